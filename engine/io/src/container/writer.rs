//! The streaming writer of a container file.

use std::{
    fs::File,
    io::{BufWriter, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::container::{BlockHasher, FileKind, Header};

use crate::{Error, Result, durable};

const WRITE_BYTES: usize = 256 << 10;

/// Writes a container file front to back, in memory bounded by a small buffer and the checksum table.
///
/// Until [`ContainerWriter::finish`] has written the header, the file is recognizably incomplete.
pub struct ContainerWriter {
    path: PathBuf,
    /// Behind the payload so far.
    file: BufWriter<File>,
    kind: FileKind,
    payload_offset: u64,
    hasher: BlockHasher,
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
        let mut file = durable::create_file(path)?;
        let payload_offset = Header::payload_offset(kind, meta_bytes);
        file.seek(SeekFrom::Start(payload_offset)).map_err(Error::io("write", path))?;
        let (file, hasher) = (BufWriter::with_capacity(WRITE_BYTES, file), BlockHasher::new(kind.block_bytes()));
        Ok(Self { path: path.to_owned(), file, kind, payload_offset, hasher })
    }

    /// Payload bytes so far.
    pub fn payload_bytes(&self) -> u64 {
        self.hasher.payload_bytes()
    }

    /// Appends to the payload.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    /// Writes the checksum table and the header. The bytes may not be on disk yet; [`WrittenFile::sync`] waits for
    /// that.
    ///
    /// # Panics
    /// If `meta` is longer than was announced.
    pub fn finish(self, meta: Vec<u8>) -> Result<WrittenFile> {
        let file = self.file.into_inner().map_err(|error| Error::io("write", &self.path)(error.into_error()))?;
        let (header, table) = self.hasher.finish(self.kind, meta, self.payload_offset);
        file.write_all_at(&table, header.table_offset()).map_err(Error::io("write", &self.path))?;
        file.write_all_at(&header.encode(), 0).map_err(Error::io("write", &self.path))?;
        let bytes = header.table_offset() + table.len() as u64;
        Ok(WrittenFile { path: self.path, bytes, digest: header.digest(), file })
    }
}

impl WrittenFile {
    /// Waits until the file's content is on disk. Its name is on disk only after its folder is synced too.
    pub fn sync(&self) -> Result<()> {
        durable::sync_file(&self.file, &self.path)
    }
}
