//! Read engines, and their options.

use std::{io, sync::Arc};

use super::{
    files::ALIGN_MAX,
    request::{FaultInjector, FileIndex, Read},
    transfer::Transfer,
};
use crate::{Error, Result, size::ByteSize};

/// Reads pieces of files, many at a time.
///
/// All engines return the same bytes, or an error that names file and offset. A short read is continued. A read beyond
/// the end of the file is an error.
pub trait ReadEngine: Send {
    /// Its name in reports: `uring`, `pread`.
    fn name(&self) -> &'static str;

    /// The options that it was made with.
    fn options(&self) -> &Options;

    /// Number of reads in flight: submitted, and their completion not yet seen by the caller.
    fn in_flight(&self) -> usize;

    /// Starts as many of `reads` as fit, from the first on, and returns their number. It is 0 only if reads are in
    /// flight or `reads` is empty. [`Options::depth`] reads fit; fewer fit only if they use more files than the
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

/// Options of an engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Maximum number of reads in flight, from 1 to [`DEPTH_MAX`].
    pub depth: usize,
    /// Maximum length of a read in bytes, from 1 to [`READ_BYTES_MAX`].
    pub read_bytes_max: u32,
    /// Threads of the pread engine.
    pub threads: usize,
    /// Whether io_uring bypasses the page cache if the file system supports it.
    pub direct: bool,
    /// In tests: injects faults into the results of the kernel.
    pub fault_injector: Option<Arc<dyn FaultInjector>>,
}

/// Upper bound of [`Options::depth`].
pub const DEPTH_MAX: usize = 4096;

/// Upper bound of [`Options::read_bytes_max`].
pub const READ_BYTES_MAX: u32 = 64 << 20;

/// Maximum bytes of an engine's buffers: the kernel's limit for one registered buffer.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

impl Default for Options {
    fn default() -> Self {
        Self { depth: 128, read_bytes_max: 256 << 10, threads: 8, direct: true, fault_injector: None }
    }
}

impl Options {
    /// Maximum memory of an engine with these options, in bytes: a buffer for each read in flight. io_uring takes all
    /// of it at once, because the kernel pins it. pread allocates buffers on demand.
    pub fn memory_bytes(&self) -> u64 {
        self.depth as u64 * Transfer::span_max(self.read_bytes_max, ALIGN_MAX) as u64
    }

    pub(super) fn check(&self) -> Result<()> {
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return Err(Error::out_of_range("the read depth", format!("1 to {DEPTH_MAX} reads in flight"), self.depth));
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

    /// Checks a read of one of `files` files.
    ///
    /// # Panics
    /// If the file index or the length of the read is out of range.
    pub(super) fn check_read(&self, read: &Read, files: usize) {
        assert!((read.file.0 as usize) < files, "{read:?} has an index beyond the {files} files");
        assert!(
            (1..=self.read_bytes_max).contains(&read.length),
            "{read:?} must have 1 to {} bytes",
            self.read_bytes_max
        );
    }

    /// The kernel's result, after fault injection.
    pub(super) fn answer(
        &self,
        file: FileIndex,
        offset: u64,
        part: &mut [u8],
        answer: io::Result<usize>,
    ) -> io::Result<usize> {
        match &self.fault_injector {
            Some(injector) => injector.answer(file, offset, part, answer),
            None => answer,
        }
    }
}
