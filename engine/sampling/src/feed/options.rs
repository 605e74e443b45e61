//! What a feed may take, and what it delivers.

use std::{any::Any, fmt, sync::Arc};

use grappa_formats::aggregates::AggregateKind;
use grappa_io::read;

/// The type of the values that are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputDtype {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// The upper half of binary32, rounded to nearest, ties to even.
    Bf16,
}

impl OutputDtype {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Lets a device fetch from memory by itself.
pub trait RegisterMemory: fmt::Debug + Send + Sync {
    /// Registers memory until what it returns is dropped, which is before the memory is given back. None if that can't be:
    /// then the memory is as any other.
    fn register(&self, memory: &[u8]) -> Option<Registration>;
}

/// Ends a registration when it is dropped.
pub type Registration = Box<dyn Any + Send + Sync>;

/// How a feed is made.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// All memory that the feed may take, in bytes: rows, buffers of the disk, of minibatches and of features, and what the
    /// batch source takes for itself and for each thread that samples.
    pub memory_bytes: u64,
    /// What the rows of the graph take of the user's memory beside that. Errors name what would do for both.
    pub rows_bytes: u64,
    /// What mapped rows would take with more memory, at most: all their bytes. 0 if rows are not mapped.
    pub mapped_bytes: u64,
    /// The type of the delivered values.
    pub output: OutputDtype,
    /// Whether features are delivered; else minibatches alone.
    pub features: bool,
    /// The kind of pre-aggregated features that are delivered with them.
    pub aggregates: Option<AggregateKind>,
    /// Registers the buffers that features are delivered in.
    pub register: Option<Arc<dyn RegisterMemory>>,
    /// Threads that sample and assemble. Another one reads, which mostly sleeps.
    pub threads: usize,
    /// The most batches whose rows are read together; by default as many as pay for the memory that they wait in.
    pub lookahead: Option<usize>,
    /// What reads.
    pub engine: read::Choice,
    /// How it reads.
    pub read: read::Options,
    /// Two wanted rows of a file with no more than so many bytes between them are read together: as many as the disk
    /// transfers in the time that one more read takes it. By default that is measured.
    pub bridge_bytes: Option<u32>,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            rows_bytes: 0,
            mapped_bytes: 0,
            output: OutputDtype::F32,
            features: true,
            aggregates: None,
            register: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            lookahead: None,
            engine: read::Choice::Auto,
            read: read::Options::default(),
            bridge_bytes: None,
        }
    }
}

impl FeedOptions {
    /// What the rows of the graph take beside a feed of so many bytes: mapped ones a quarter of both, if they have so much.
    pub(super) fn rows_beside(&self, feed_bytes: u64) -> u64 {
        self.rows_bytes.max(self.mapped_bytes.min(feed_bytes / 3 + 1))
    }
}
