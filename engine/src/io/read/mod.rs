//! Many reads at once: from files at depth, each into a buffer of the engine's own.
//!
//! Whoever reads hands in a batch of [`Read`]s, goes on with other work, and takes completions as they come, in any
//! order. The buffers belong to the engine from submission until the completion was looked at, so nothing that a caller
//! does, drops or forgets lets the kernel write into memory that is no longer its.

use crate::Result;

/// A file that an engine reads, by its place in the list that the engine was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIndex(pub u32);

/// A piece of a file that is wanted. It need not be aligned to anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Which file.
    pub file: FileIndex,
    /// Where it starts, in bytes.
    pub offset: u64,
    /// How many bytes; at least 1, at most [`ReadEngine::read_bytes_max`].
    pub length: u32,
    /// The caller's own number for it.
    pub tag: u64,
}

/// Reads pieces of files, many at a time.
///
/// All engines give the same bytes, and an error that names file and offset where they can't: a short read is
/// continued, one at the end of the file is an error.
pub trait ReadEngine: Send {
    /// What it is called in reports: `uring`, `pread`, `memory`.
    fn name(&self) -> &'static str;

    /// The longest read it takes, in bytes.
    fn read_bytes_max(&self) -> u32;

    /// How many reads can be under way at once.
    fn depth(&self) -> usize;

    /// How many reads are under way: submitted, and their completion not yet looked at.
    fn in_flight(&self) -> usize;

    /// Starts the first of `reads` for which there is room, and says how many those were; 0 if [`ReadEngine::depth`] reads
    /// are in flight.
    ///
    /// # Panics
    /// If a read is empty, too long, or of a file that is not in the list.
    fn submit(&mut self, reads: &[Read]) -> Result<usize>;

    /// Waits until at least one read is complete, then shows every completed one, with its bytes, to `done`; says how many
    /// they were. 0 if none is in flight. After an error the reads in flight are lost, and their buffers are safe.
    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize>;
}
