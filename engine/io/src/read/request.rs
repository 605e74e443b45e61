//! Reads, and the injectors that disturb them.

use std::{fmt, io};

/// Index of a file in the list that the engine was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIndex(pub u32);

/// A request for a piece of a file. It needs no alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Which file.
    pub file: FileIndex,
    /// Start in the file, in bytes.
    pub offset: u64,
    /// Length in bytes: at least 1, at most [`Options::read_bytes_max`](super::Options::read_bytes_max).
    pub length: u32,
    /// A number that the caller chooses to recognize the read.
    pub tag: u64,
}

/// Alters results of the kernel before an engine sees them.
pub trait FaultInjector: fmt::Debug + Send + Sync {
    /// The altered result of a read at `offset` into `part`. `answer` is the kernel's result.
    fn answer(&self, file: FileIndex, offset: u64, part: &mut [u8], answer: io::Result<usize>) -> io::Result<usize>;

    /// Called before each entry into io_uring. An error replaces the entry.
    fn enter(&self) -> io::Result<()> {
        Ok(())
    }
}
