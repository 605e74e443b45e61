//! A container file that is open, or closed to be opened again.

use std::{
    fs::File,
    io,
    num::NonZeroU64,
    ops::{Deref, Range},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use grappa_formats::{
    FormatError,
    container::{FileKind, HEADER_BYTES, Header},
};
use rustix::fs::{Advice, fadvise};

use super::checksums::Checksums;
use crate::{Error, Result, identity::Identity, regular};

/// A closed container file whose header and length were checked. A reader can keep one per chunk, even if there are
/// more chunks than files that a process may open.
#[derive(Debug, Clone)]
pub struct ClosedFile {
    path: PathBuf,
    identity: Identity,
    header: Header,
    /// Made when the payload is first read.
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
        Ok(ContainerFile { file, closed: self.clone() })
    }
}

/// An open container file whose header and length were checked. Dereferences to what it is when it is closed.
#[derive(Debug)]
pub struct ContainerFile {
    file: File,
    closed: ClosedFile,
}

impl Deref for ContainerFile {
    type Target = ClosedFile;

    fn deref(&self) -> &ClosedFile {
        &self.closed
    }
}

impl ContainerFile {
    /// Opens a file, checks header, kind and length. The payload is not read.
    pub fn open(path: &Path, kind: FileKind) -> Result<Self> {
        let file = regular::open(path)?;
        let identity = Identity::from_file(&file, path)?;
        let file_bytes = identity.bytes();
        // Most headers fit with their meta; then one read is enough.
        let mut prefix = vec![0; file_bytes.min(256) as usize];
        file.read_exact_at(&mut prefix, 0).map_err(Error::io("read", path))?;
        if let Some(fixed) = prefix.first_chunk::<HEADER_BYTES>() {
            let needed_bytes = Header::prefix_bytes(fixed).map_err(Error::format(path))?;
            if needed_bytes > file_bytes {
                let error = FormatError::Length { part: "file", expected: needed_bytes, found: file_bytes };
                return Err(Error::format(path)(error));
            }
            if needed_bytes > prefix.len() as u64 {
                prefix.resize(needed_bytes as usize, 0);
                file.read_exact_at(&mut prefix, 0).map_err(Error::io("read", path))?;
            }
        }
        let header = Header::decode(&prefix, kind, file_bytes).map_err(Error::format(path))?;
        Ok(Self { file, closed: ClosedFile { path: path.to_owned(), identity, header, checksums: Arc::default() } })
    }

    /// Closes it. It can be opened again.
    pub fn close(self) -> ClosedFile {
        self.closed
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The checksum in the header. It covers the whole file.
    pub fn digest(&self) -> u64 {
        self.header.digest()
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
            // If two threads come here at once, the checksums of the second are dropped.
            None => {
                let checksums = self.new_checksums()?;
                Ok(self.checksums.get_or_init(|| checksums))
            }
        }
    }

    /// Checksums for other ways to read the payload. Reads nothing yet.
    pub fn new_checksums(&self) -> Result<Checksums> {
        Checksums::new(&self.path, &self.file, self.header.clone())
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
        self.file.read_exact_at(buffer, self.header.payload_offset + offset).map_err(|e| self.read_error(e))
    }

    fn read_error(&self, error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let found = self.file.metadata().map_or(0, |m| m.len());
            return Error::format(&self.path)(FormatError::Length { part: "file", expected: self.bytes(), found });
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
        self.file.read_exact_at(&mut table, self.header.table_offset()).map_err(|e| self.read_error(e))?;
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
