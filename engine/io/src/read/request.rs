//! Reads, the engines that perform them, and the injectors that disturb them.

use std::io;

use crate::Result;

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
    /// Length in bytes: at least 1, at most [`ReadEngine::read_bytes_max`].
    pub length: u32,
    /// A number that the caller chooses to recognize the read.
    pub tag: u64,
}

/// Reads pieces of files, many at a time.
///
/// All engines return the same bytes, or an error that names file and offset. A short read is continued. A read beyond
/// the end of the file is an error.
pub trait ReadEngine: Send {
    /// Its name in reports: `uring`, `pread`, `memory`.
    fn name(&self) -> &'static str;

    /// Maximum length of a read, in bytes.
    fn read_bytes_max(&self) -> u32;

    /// Maximum number of reads in flight.
    fn depth(&self) -> usize;

    /// Number of reads in flight: submitted, and their completion not yet seen by the caller.
    fn in_flight(&self) -> usize;

    /// Starts as many of `reads` as fit, from the first on, and returns their number. It is 0 only if reads are in
    /// flight or `reads` is empty. [`ReadEngine::depth`] reads fit; fewer fit only if they use more files than the
    /// process may have open.
    ///
    /// # Errors
    /// If a read ends beyond the end of its file, or a file cannot be opened. Then the reads in flight are lost.
    ///
    /// # Panics
    /// If a read is empty, too long, or of a file that is not in the list.
    fn submit(&mut self, reads: &[Read]) -> Result<usize>;

    /// Waits until at least one read is complete, then calls `done` with each completed read and its bytes. Returns
    /// their number; 0 if none is in flight.
    ///
    /// # Errors
    /// If a read fails: [`Error::Read`](crate::Error::Read) with file and offset. Then the reads in flight are lost. Bytes already passed
    /// to `done` are valid, and the engine may be used again.
    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize>;
}

/// Alters results of the kernel before an engine sees them.
pub trait FaultInjector: Send + Sync {
    /// The altered result of a read at `offset` into `part`. `answer` is the kernel's result.
    fn answer(&self, file: FileIndex, offset: u64, part: &mut [u8], answer: io::Result<usize>) -> io::Result<usize>;

    /// Called before each entry into io_uring. An error replaces the entry.
    fn enter(&self) -> io::Result<()> {
        Ok(())
    }
}
