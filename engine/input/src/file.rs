//! Input files, and data in memory that is read like a file: opened once, read at offsets by any thread.
//!
//! Files are read with `pread` into the caller's buffers. They are not mapped: mapped pages would count as memory of the
//! process, and a file that shrinks under its mapping kills the process. Files that the page cache cannot hold are read
//! past it ([`read_past_cache_if_large`]).

use std::{
    fs::File,
    io,
    num::NonZeroU64,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use grappa_io::{Error, Position, Result, direct::DirectFile, machine, regular, size::ByteSize};
use rustix::fs::Advice;

use crate::{
    conversions::Conversion,
    input::{MemoryArray, ReadAt},
};

#[derive(Debug)]
pub(crate) struct InputFile {
    content: Content,
    path: PathBuf,
    bytes: u64,
}

#[derive(Debug)]
enum Content {
    File {
        file: File,
        /// Set if the file is read past the page cache.
        direct: OnceLock<DirectFile>,
    },
    Memory(Arc<dyn ReadAt>),
    /// A table in memory has no bytes to read.
    Table,
}

/// Files that take more than this share of what the page cache can hold are read past it. Smaller ones are probably still
/// cached when they are read a second time.
const CACHED_SHARE: u64 = 2;

/// From now on, reads that name an offset and a length go past the page cache, if these files together are too large for
/// it. Call it when the files are open and only blocks remain to be read.
pub(crate) fn read_past_cache_if_large<'a>(files: impl Iterator<Item = &'a InputFile> + Clone) {
    if are_large(files.clone().map(InputFile::bytes).sum()) {
        files.for_each(InputFile::read_past_cache);
    }
}

/// Whether files with this many bytes together are too large for the page cache.
pub(crate) fn are_large(bytes: u64) -> bool {
    machine::cacheable_bytes().is_some_and(|cacheable| bytes > cacheable / CACHED_SHARE)
}

impl InputFile {
    /// Opens `path`, which must be a regular file: blocks are read from anywhere in it, and again on `--resume`.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let file = regular::open(path)?;
        let metadata = file.metadata().map_err(Error::io("read", path))?;
        // Only advice: a file system that ignores it is slower.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        let content = Content::File { file, direct: OnceLock::new() };
        Ok(Arc::new(Self { content, path: path.to_owned(), bytes: metadata.len() }))
    }

    /// The bytes of an array in memory. `name` is its name for messages.
    pub fn of_array(name: &Path, array: &MemoryArray) -> Arc<Self> {
        let content = Content::Memory(array.bytes.clone());
        Arc::new(Self { content, path: name.to_owned(), bytes: array.total_bytes() })
    }

    /// A table in memory, which has this many bytes, under its name for messages.
    pub fn of_table(name: &Path, bytes: u64) -> Arc<Self> {
        Arc::new(Self { content: Content::Table, path: name.to_owned(), bytes })
    }

    /// What converts the data: a command for a file, an expression of Python for data in memory.
    pub fn remedy(&self, conversion: Conversion) -> String {
        match self.content {
            Content::File { .. } => conversion.command(&self.path),
            Content::Memory(_) | Content::Table => conversion.expression(&self.path),
        }
    }

    /// As [`Self::remedy`], for a column or an array in the data.
    pub fn remedy_for(&self, conversion: Conversion, name: &str) -> String {
        match self.content {
            Content::File { .. } => conversion.command_for(&self.path, name),
            Content::Memory(_) | Content::Table => self.remedy(conversion).replace("COLUMN", name),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn error(&self, problem: impl Into<String>) -> Error {
        Error::input(&self.path, Position::Whole, problem)
    }

    /// Size in bytes when the file was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `into` from `offset`. Fails if the file has become shorter since it was opened.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        let read = match &self.content {
            Content::File { file, direct } => match direct.get() {
                Some(direct) => direct.read_exact_at(into, offset),
                None => file.read_exact_at(into, offset),
            },
            Content::Memory(bytes) => bytes.read_exact_at(into, offset),
            Content::Table => Err(io::ErrorKind::Unsupported.into()),
        };
        read.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::input(
                &self.path,
                Position::Offset(offset),
                format!(
                    "expected {} more here, but the file ends; it had {} when it was opened: something is changing it",
                    ByteSize(into.len() as u64),
                    ByteSize(self.bytes)
                ),
            ),
            _ => Error::io("read", &self.path)(source),
        })
    }

    /// Whether reads go past the page cache.
    #[cfg(test)]
    pub fn is_direct(&self) -> bool {
        matches!(&self.content, Content::File { direct, .. } if direct.get().is_some())
    }

    /// From now on, reads go past the page cache, if the file system allows it.
    pub fn read_past_cache(&self) {
        if let Content::File { file, direct } = &self.content
            && let Some(opened) = DirectFile::from_file(file)
        {
            // If it was set before, that one is as good.
            let _ = direct.set(opened);
        }
    }

    /// Reads up to `into.len()` bytes from `offset`, through the page cache.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.content {
            Content::File { file, .. } => file.read_at(into, offset),
            Content::Memory(bytes) => {
                let length = (self.bytes.saturating_sub(offset)).min(into.len() as u64) as usize;
                bytes.read_exact_at(&mut into[..length], offset)?;
                Ok(length)
            }
            Content::Table => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The file for a reader that seeks. Only one may do so at a time: the position belongs to the file, not to the clone.
    /// Everything else reads at offsets.
    pub fn try_clone(&self) -> Result<File> {
        let file = match &self.content {
            Content::File { file, .. } => file.try_clone(),
            Content::Memory(_) | Content::Table => Err(io::ErrorKind::Unsupported.into()),
        };
        file.map_err(Error::io("open", &self.path))
    }

    /// The first `bytes` bytes, or the whole file if it is shorter.
    pub fn head(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut head = vec![0; (bytes as u64).min(self.bytes) as usize];
        self.read_exact_at(&mut head, 0)?;
        Ok(head)
    }

    /// Tells the kernel to start reading this range in the background.
    pub fn will_need(&self, offset: u64, bytes: u64) {
        let Content::File { file, direct } = &self.content else {
            return;
        };
        if direct.get().is_some() {
            return;
        }
        if let Some(bytes) = NonZeroU64::new(bytes.min(self.bytes.saturating_sub(offset))) {
            let _ = rustix::fs::fadvise(file, offset, Some(bytes), Advice::WillNeed);
        }
    }
}
