//! Many reads at once: from files at depth, each into a buffer of the engine's own.
//!
//! Whoever reads hands in a batch of [`Read`]s, goes on with other work, and takes completions as they come, in any
//! order. The buffers belong to the engine from submission until the completion was looked at, so nothing that a caller
//! does, drops or forgets lets the kernel write into memory that is no longer its.
//!
//! - [`uring`]: io_uring, past the page cache: what large stores are read by;
//! - [`pread`]: threads that wait, through the page cache: the reference, and for where io_uring is refused;
//! - [`memory`]: byte vectors;
//! - [`fault`]: bad luck, for tests.
//!
//! Which bytes come out does not depend on the engine.

pub mod fault;
mod files;
pub mod memory;
pub mod pread;
mod transfer;
pub mod uring;

use std::{
    fmt, io,
    sync::{Arc, Once},
};

pub use self::files::ReadFile;
use self::{fault::FaultInjector, pread::Pread, transfer::Transfer, uring::Uring};
use crate::{Error, Result, size::ByteSize};

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

    /// Starts the first of `reads` for which there is room, and says how many those were; 0 only if some are in flight
    /// (or `reads` is empty). There is room for [`ReadEngine::depth`] reads, and for fewer only if they are of more files
    /// than the process may have open.
    ///
    /// # Errors
    /// If a read ends beyond the end of its file, or a file can't be opened. The reads in flight are then lost.
    ///
    /// # Panics
    /// If a read is empty, too long, or of a file that is not in the list.
    fn submit(&mut self, reads: &[Read]) -> Result<usize>;

    /// Waits until at least one read is complete, then shows every completed one, with its bytes, to `done`; says how many
    /// they were. 0 if none is in flight.
    ///
    /// # Errors
    /// If a read fails: [`Error::Read`] with file and offset. The reads in flight are then lost, those that were shown
    /// stay true, and the engine may be used again.
    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize>;
}

/// Which engine is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring, or pread where the kernel or a container refuses it.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A pool of threads.
    Pread,
}

/// How an engine reads.
#[derive(Clone)]
pub struct Options {
    /// How many reads can be under way at once, from 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// The longest read, in bytes, from 1 to [`READ_BYTES_MAX`].
    pub read_bytes_max: u32,
    /// Threads of the pread engine.
    pub threads: usize,
    /// Whether io_uring bypasses the page cache where the file system lets it.
    pub direct: bool,
    /// Injects faults into the answers of the kernel, in tests.
    pub fault_injector: Option<Arc<dyn FaultInjector>>,
}

/// The most reads under way at once.
pub const DEPTH_MAX: usize = 4096;

/// The longest read, in bytes.
pub const READ_BYTES_MAX: u32 = 64 << 20;

/// The most that the buffers of an engine may take: what the kernel registers as one.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

impl Default for Options {
    fn default() -> Self {
        Self {
            depth: 128,
            read_bytes_max: 256 << 10,
            threads: 8,
            direct: true,
            fault_injector: None,
        }
    }
}

impl Options {
    /// The most memory that an engine with these options takes, in bytes: a buffer for each read under way. io_uring takes
    /// it at once, as the kernel pins it; pread as it is needed.
    pub fn memory_bytes(&self) -> u64 {
        self.depth as u64 * Transfer::span_max(self.read_bytes_max, files::ALIGN_MAX) as u64
    }

    fn check(&self) -> Result<()> {
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return Err(Error::out_of_range(
                "the read depth",
                format!("1 to {DEPTH_MAX} reads in flight"),
                self.depth,
            ));
        }
        if !(1..=READ_BYTES_MAX).contains(&self.read_bytes_max) {
            return Err(Error::out_of_range(
                "the longest read",
                format!("1 B to {}", ByteSize(READ_BYTES_MAX.into())),
                ByteSize(self.read_bytes_max.into()),
            ));
        }
        if self.threads == 0 {
            return Err(Error::out_of_range("the number of reading threads", "at least 1", 0));
        }
        if self.memory_bytes() > BUFFER_BYTES_MAX {
            return Err(Error::limit(
                format!(
                    "{} reads of {} in flight need {} of buffers",
                    self.depth,
                    ByteSize(self.read_bytes_max.into()),
                    ByteSize(self.memory_bytes())
                ),
                ByteSize(BUFFER_BYTES_MAX),
                "choose a smaller depth or shorter reads",
            ));
        }
        Ok(())
    }

    /// # Panics
    /// If a read is not one that an engine takes.
    fn check_read(&self, read: &Read, files: usize) {
        assert!((read.file.0 as usize) < files, "{read:?} is of one of {files} files");
        assert!(
            (1..=self.read_bytes_max).contains(&read.length),
            "{read:?} has 1 to {} bytes",
            self.read_bytes_max
        );
    }

    /// The kernel's answer, as the engine sees it.
    fn answer(&self, file: FileIndex, offset: u64, part: &mut [u8], answer: io::Result<usize>) -> io::Result<usize> {
        match &self.fault_injector {
            Some(injector) => injector.answer(file, offset, part, answer),
            None => answer,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            depth,
            read_bytes_max,
            threads,
            direct,
            fault_injector,
        } = self;
        f.debug_struct("Options")
            .field("depth", depth)
            .field("read_bytes_max", read_bytes_max)
            .field("threads", threads)
            .field("direct", direct)
            .field("fault_injector", &fault_injector.is_some())
            .finish()
    }
}

/// Makes an engine that reads `files`, which a [`FileIndex`] counts from 0.
///
/// Where io_uring is refused, [`Choice::Auto`] logs why, once, and takes threads. Keep the list too: after reading,
/// [`ReadFile::check_unchanged`] says whether what was read can be believed.
///
/// # Errors
/// If an option is out of range, a file can't be opened or has changed since it was, or io_uring was asked for and is
/// refused.
pub fn open(choice: Choice, files: Arc<[ReadFile]>, options: Options) -> Result<Box<dyn ReadEngine>> {
    static TOLD: Once = Once::new();
    if choice == Choice::Pread {
        return Ok(Box::new(Pread::new(files, options)?));
    }
    match Uring::new(files.clone(), options.clone())? {
        Ok(engine) => Ok(Box::new(engine)),
        Err(refusal) if choice == Choice::Uring => Err(Error::Unsupported {
            what: "io_uring",
            cause: refusal.to_string(),
            remedy: "or read with threads (pread), which is slower",
        }),
        Err(refusal) => {
            TOLD.call_once(|| tracing::warn!("io_uring is refused: {refusal}; threads read instead, which is slower"));
            Ok(Box::new(Pread::new(files, options)?))
        }
    }
}
