//! Container files on disk: streaming writer, cheap open, and reads that verify checksums.
//!
//! Every byte of a payload is verified once, before its first use. [`ContainerFile::read_at`] does it for reads,
//! [`MappedPayload`] for mappings, and [`Checksums`] for other ways to read.

mod checksums;
mod mapped;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io,
    num::NonZeroU64,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use grappa_formats::{
    FormatError,
    container::{BlockHasher, FileKind, HEADER_BYTES, Header},
};
use rustix::fs::{Advice, fadvise};

pub use self::{checksums::Checksums, mapped::MappedPayload};
use super::{durable, identity::Identity, regular};
use crate::{Error, Result};

/// Bytes of the write buffer.
const WRITE_BYTES: usize = 256 << 10;

/// Writes a container file front to back, in memory bounded by a small buffer and the checksum table.
///
/// Until [`ContainerWriter::finish`] has written the header, the file is recognizably incomplete.
pub struct ContainerWriter {
    path: PathBuf,
    file: File,
    kind: FileKind,
    payload_offset: u64,
    hasher: BlockHasher,
    buffer: Vec<u8>,
    written: u64,
}

/// A complete container file whose bytes may still be on their way to the disk.
#[derive(Debug)]
pub struct WrittenFile {
    /// Its path.
    pub path: PathBuf,
    /// Length in bytes.
    pub bytes: u64,
    /// The checksum in its header.
    pub digest: u64,
    file: File,
}

impl ContainerWriter {
    /// Creates the file, and replaces a file that a killed run left at `path`. `meta_bytes` is the length of the meta
    /// that [`ContainerWriter::finish`] will get.
    pub fn create(path: &Path, kind: FileKind, meta_bytes: usize) -> Result<Self> {
        let file = durable::create_file(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            kind,
            payload_offset: Header::payload_offset(kind, meta_bytes),
            hasher: BlockHasher::new(kind.block_bytes()),
            buffer: Vec::with_capacity(WRITE_BYTES),
            written: 0,
        })
    }

    /// Payload bytes so far.
    pub fn payload_bytes(&self) -> u64 {
        self.hasher.payload_bytes()
    }

    /// Appends to the payload.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        if self.buffer.len() + bytes.len() <= WRITE_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        if bytes.len() >= WRITE_BYTES {
            self.write_through(bytes)
        } else {
            self.buffer.extend_from_slice(bytes);
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.write_through(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        result
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self.payload_offset + self.written;
        self.file
            .write_all_at(bytes, at)
            .map_err(Error::io("write", &self.path))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the checksum table and the header. The bytes may not be on disk yet; [`WrittenFile::sync`] waits for
    /// that.
    ///
    /// # Panics
    /// If `meta` is longer than was announced.
    pub fn finish(mut self, meta: Vec<u8>) -> Result<WrittenFile> {
        self.flush()?;
        let (header, table) = self.hasher.finish(self.kind, meta, self.payload_offset);
        self.file
            .write_all_at(&table, header.table_offset())
            .map_err(Error::io("write", &self.path))?;
        self.file
            .write_all_at(&header.encode(), 0)
            .map_err(Error::io("write", &self.path))?;
        let bytes = header.table_offset() + table.len() as u64;
        Ok(WrittenFile {
            path: self.path,
            bytes,
            digest: header.digest(),
            file: self.file,
        })
    }
}

impl WrittenFile {
    /// Waits until the file's content is on disk. Its name is on disk only after its folder is synced too.
    pub fn sync(&self) -> Result<()> {
        durable::sync_file(&self.file, &self.path)
    }
}

/// A closed container file whose header and length were checked. A reader can keep one per chunk, even if there are
/// more chunks than files that a process may open.
#[derive(Debug)]
pub struct ClosedFile {
    path: PathBuf,
    identity: Identity,
    header: Header,
    digest: u64,
    checksums: Arc<OnceLock<Checksums>>,
}

impl ClosedFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.identity.bytes()
    }

    /// The part of the payload to read so that [`ClosedFile::check_read`] need not read more: whole blocks, unless these
    /// bytes were verified before.
    pub fn to_verify(&self, payload: Range<u64>) -> Result<Range<u64>> {
        let checksums = self.checksums()?;
        Ok(match checksums.are_right(payload.clone()) {
            true => payload,
            false => checksums.blocks_around(payload),
        })
    }

    /// Verifies `bytes`, which were read from `offset` of the payload on, unless that was done before. The rest of a
    /// block is read for it.
    pub fn check_read(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self.checksums()?.are_right(offset..offset + bytes.len() as u64) {
            true => Ok(()),
            false => self.open()?.check_read(bytes, offset),
        }
    }

    fn checksums(&self) -> Result<&Checksums> {
        if self.checksums.get().is_none() {
            self.open()?.checksums()?;
        }
        Ok(self.checksums.get().expect("the open file made them"))
    }

    /// Opens it again. Blocks that were verified are not verified again. Fails with [`Error::Changed`] if the file was
    /// replaced or modified.
    pub fn open(&self) -> Result<ContainerFile> {
        let file = regular::open(&self.path)?;
        self.identity.check_file(&file, &self.path)?;
        Ok(ContainerFile {
            path: self.path.clone(),
            file,
            header: self.header.clone(),
            digest: self.digest,
            checksums: Arc::clone(&self.checksums),
        })
    }
}

/// An open container file whose header and length were checked.
#[derive(Debug)]
pub struct ContainerFile {
    path: PathBuf,
    file: File,
    header: Header,
    digest: u64,
    /// Made when the payload is first read.
    checksums: Arc<OnceLock<Checksums>>,
}

impl ContainerFile {
    /// Opens a file, checks header, kind and length. The payload is not read.
    pub fn open(path: &Path, kind: FileKind) -> Result<Self> {
        let file = regular::open(path)?;
        let file_bytes = file.metadata().map_err(Error::io("read the length of", path))?.len();
        // Most headers fit with their meta; then one read is enough.
        let mut prefix = vec![0; file_bytes.min(256) as usize];
        file.read_exact_at(&mut prefix, 0).map_err(Error::io("read", path))?;
        if let Some(fixed) = prefix.first_chunk::<HEADER_BYTES>() {
            let wanted = Header::prefix_bytes(fixed).map_err(Error::format(path))?;
            if wanted > file_bytes {
                let error = FormatError::Length {
                    what: "file",
                    expected: wanted,
                    found: file_bytes,
                };
                return Err(Error::format(path)(error));
            }
            if wanted > prefix.len() as u64 {
                prefix.resize(wanted as usize, 0);
                file.read_exact_at(&mut prefix, 0).map_err(Error::io("read", path))?;
            }
        }
        let header = Header::decode(&prefix, kind, file_bytes).map_err(Error::format(path))?;
        let digest = header.digest();
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
            digest,
            checksums: Arc::default(),
        })
    }

    /// Closes it. It can be opened again.
    pub fn close(self) -> Result<ClosedFile> {
        Ok(ClosedFile {
            identity: Identity::of(&self.file, &self.path)?,
            path: self.path,
            header: self.header,
            digest: self.digest,
            checksums: self.checksums,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The checksum in the header. It covers the whole file.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.header.table_offset() + self.header.blocks() * 8
    }

    /// Reads the whole payload. For small files.
    pub fn read_payload(&self) -> Result<Vec<u8>> {
        let mut payload = vec![0; self.header.payload_bytes as usize];
        self.read_at(&mut payload, 0)?;
        Ok(payload)
    }

    /// Reads `buffer.len()` bytes of payload from `offset` on. Verifies each block that contains some of them when it
    /// is first read; this reads the rest of the block too.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.read_unchecked(buffer, offset)?;
        self.check_read(buffer, offset)
    }

    /// Verifies `bytes`, which were read from `offset` of the payload on in another way, as [`ContainerFile::read_at`] does.
    pub fn check_read(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let checksums = self.checksums()?;
        checksums.check_with(offset, bytes, |block, at| self.read_unchecked(block, at))
    }

    fn checksums(&self) -> Result<&Checksums> {
        match self.checksums.get() {
            Some(checksums) => Ok(checksums),
            // If two threads come here at once, those of the second are dropped.
            None => {
                let checksums = Checksums::of(self)?;
                Ok(self.checksums.get_or_init(|| checksums))
            }
        }
    }

    /// Starts reading a part of the payload into the page cache.
    pub fn read_ahead(&self, payload: Range<u64>) {
        self.advise(payload, Advice::WillNeed);
    }

    /// Removes a part of the payload from the page cache. A pass over a large file calls it for what it has read, which would otherwise push
    /// out what others still need.
    pub fn release(&self, payload: Range<u64>) {
        self.advise(payload, Advice::DontNeed);
    }

    fn advise(&self, payload: Range<u64>, advice: Advice) {
        let offset = self.header.payload_offset + payload.start;
        // A length of zero would mean the rest of the file.
        if let Some(bytes) = NonZeroU64::new(payload.end - payload.start) {
            // Ignored: this only saves time.
            let _ = fadvise(&self.file, offset, Some(bytes), advice);
        }
    }

    fn read_unchecked(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_exact_at(buffer, self.header.payload_offset + offset)
            .map_err(|e| self.read_error(e))
    }

    fn read_error(&self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let found = self.file.metadata().map_or(0, |m| m.len());
            return Error::format(&self.path)(FormatError::Length {
                what: "file",
                expected: self.bytes(),
                found,
            });
        }
        Error::io("read", &self.path)(error)
    }

    /// Verifies the table and every payload byte. The error is the first problem.
    pub fn verify_all(&self, on_bytes: impl FnMut(u64)) -> Result<()> {
        let mut first = None;
        self.verify(on_bytes, |problem| _ = first.get_or_insert(problem))?;
        first.map_or(Ok(()), Err)
    }

    /// Verifies the table and every payload byte. Passes each error to `on_problem`, because a file may have several.
    /// Reads the file once, about 1 MiB at a time.
    pub fn verify(&self, mut on_bytes: impl FnMut(u64), mut on_problem: impl FnMut(Error)) -> Result<()> {
        let mut table = vec![0; self.header.blocks() as usize * 8];
        self.file
            .read_exact_at(&mut table, self.header.table_offset())
            .map_err(|e| self.read_error(e))?;
        if let Err(error) = self.header.check_table(&table) {
            // If the table is damaged, no block can be verified.
            on_problem(Error::format(&self.path)(error));
            return Ok(());
        }
        let block_bytes = self.header.block_bytes as usize;
        let blocks_per_read = (1usize << 20).div_ceil(block_bytes);
        let mut buffer = vec![0; blocks_per_read * block_bytes];
        let mut block = 0;
        while block < self.header.blocks() {
            let offset = block * block_bytes as u64;
            let bytes = (self.header.payload_bytes - offset).min(buffer.len() as u64) as usize;
            self.read_unchecked(&mut buffer[..bytes], offset)?;
            for piece in buffer[..bytes].chunks(block_bytes) {
                if let Err(error) = self.header.check_block(&table, block, piece) {
                    on_problem(Error::format(&self.path)(error));
                }
                block += 1;
            }
            on_bytes(bytes as u64);
        }
        Ok(())
    }
}
