//! Options of read engines.

use std::{fmt, io, sync::Arc};

use super::{
    files::ALIGN_MAX,
    request::{FaultInjector, FileIndex, Read},
    transfer::Transfer,
};
use crate::{Error, Result, size::ByteSize};

/// Options of an engine.
#[derive(Clone)]
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

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, read_bytes_max, threads, direct, fault_injector } = self;
        f.debug_struct("Options")
            .field("depth", depth)
            .field("read_bytes_max", read_bytes_max)
            .field("threads", threads)
            .field("direct", direct)
            .field("fault_injector", &fault_injector.is_some())
            .finish()
    }
}
