//! The number of threads.

use std::num::NonZeroUsize;

/// The heading of options about resources in the help.
pub const RESOURCES: &str = "Resources";

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Threads {
    /// Number of worker threads [default: one per processor]
    #[arg(long, help_heading = RESOURCES, value_name = "T")]
    threads: Option<NonZeroUsize>,
}

impl Threads {
    /// How many threads to use.
    pub fn get(self) -> anyhow::Result<usize> {
        Ok(self.threads.map_or_else(std::thread::available_parallelism, Ok)?.get())
    }
}
