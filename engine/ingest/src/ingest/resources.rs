//! Memory, threads and scratch space.

use std::{num::NonZeroUsize, path::PathBuf};

/// Memory, threads and scratch space of an ingest.
#[derive(Debug, Clone)]
pub struct Resources {
    /// Memory budget in bytes.
    pub memory: u64,
    /// Number of worker threads.
    pub threads: usize,
    /// Folder for scratch files. By default they are in the folder of the unfinished store.
    pub tmp: Option<PathBuf>,
}

impl Default for Resources {
    /// 2 GiB of memory and all processors.
    fn default() -> Self {
        Self { memory: 2 << 30, threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get), tmp: None }
    }
}
