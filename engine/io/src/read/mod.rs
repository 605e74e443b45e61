//! Many reads in flight, each into a buffer that the engine owns.
//!
//! A caller submits a batch of [`Read`]s, continues with other work, and takes completions as they come, in any order. The
//! engine owns the buffers from submission until the caller has seen the completion. So the kernel never writes into memory
//! that was freed or reused, whatever the caller drops or forgets.
//!
//! - [`uring`]: io_uring, past the page cache; the engine for large stores;
//! - [`pread`]: blocking threads, through the page cache; the reference, and the fallback where io_uring is refused;
//! - [`memory`]: byte vectors;
//! - [`fault`]: fault injection, for tests.
//!
//! All engines return the same bytes.

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

/// A file, by its index in the list of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIndex(pub u32);

/// A read of a piece of a file. It needs no alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub file: FileIndex,
    /// Start in the file, in bytes.
    pub offset: u64,
    /// Length in bytes, from 1 to [`ReadEngine::read_bytes_max`].
    pub length: u32,
    /// The caller's tag of the read.
    pub tag: u64,
}

/// Reads pieces of files, many at a time.
///
/// All engines return the same bytes, or an error that names file and offset. They continue short reads. A read that ends
/// after the end of its file is an error.
pub trait ReadEngine: Send {
    /// Name in reports: `uring`, `pread`, `memory`.
    fn name(&self) -> &'static str;

    /// The longest accepted read, in bytes.
    fn read_bytes_max(&self) -> u32;

    /// The largest number of reads in flight.
    fn depth(&self) -> usize;

    /// Number of reads in flight: submitted, and not yet passed to `done`.
    fn in_flight(&self) -> usize;

    /// Starts as many of `reads`, from the first on, as there is room for. Returns their number, which is 0 only if some reads
    /// are in flight or `reads` is empty. There is room for [`ReadEngine::depth`] reads, or for fewer if they are from more
    /// files than the process may have open.
    ///
    /// # Errors
    /// If a read ends after the end of its file, or a file cannot be opened. The reads in flight are then lost.
    ///
    /// # Panics
    /// If a read is empty, too long, or of a file that is not in the list.
    fn submit(&mut self, reads: &[Read]) -> Result<usize>;

    /// Waits until at least one read is complete, then passes every completed read with its bytes to `done`. Returns their
    /// number, which is 0 if no read is in flight.
    ///
    /// # Errors
    /// If a read fails: [`Error::Read`] with file and offset. The reads in flight are then lost. Reads that were passed to
    /// `done` remain valid, and the engine may be used again.
    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize>;
}

/// The choice of a read engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring, or pread if the kernel or a container refuses io_uring.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A pool of threads.
    Pread,
}

/// Options of an engine.
#[derive(Clone)]
pub struct Options {
    /// The largest number of reads in flight, from 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// The longest read, in bytes, from 1 to [`READ_BYTES_MAX`].
    pub read_bytes_max: u32,
    /// Number of threads of the pread engine.
    pub threads: usize,
    /// Whether io_uring bypasses the page cache where the file system allows it.
    pub direct: bool,
    /// Fault injection, for tests.
    pub fault_injector: Option<Arc<dyn FaultInjector>>,
}

/// The upper limit of [`Options::depth`].
pub const DEPTH_MAX: usize = 4096;

/// The longest read, in bytes.
pub const READ_BYTES_MAX: u32 = 64 << 20;

/// The most memory for the buffers of an engine: the kernel registers no larger buffer.
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
    /// The most memory that an engine with these options takes, in bytes: one buffer per read in flight. io_uring takes it at
    /// once, because the kernel pins it; pread takes it as needed.
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
    /// If the file index or the length of the read is out of range.
    fn check_read(&self, read: &Read, files: usize) {
        assert!((read.file.0 as usize) < files, "{read:?} is of one of {files} files");
        assert!(
            (1..=self.read_bytes_max).contains(&read.length),
            "{read:?} has 1 to {} bytes",
            self.read_bytes_max
        );
    }

    /// The kernel's answer, after fault injection.
    fn answer(&self, file: FileIndex, offset: u64, part: &mut [u8], answer: io::Result<usize>) -> io::Result<usize> {
        match &self.fault_injector {
            Some(fault_injector) => fault_injector.answer(file, offset, part, answer),
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

/// Makes an engine that reads `files`; a [`FileIndex`] is an index in this list.
///
/// If io_uring is refused, [`Choice::Auto`] logs why, once, and uses threads. Keep the list: after reading, check with
/// [`ReadFile::check_unchanged`] that the files did not change.
///
/// # Errors
/// If an option is out of range, a file cannot be opened or has changed since its [`ReadFile`] was made, or io_uring was
/// chosen and is refused.
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
