//! Options of a feed.

use std::{any::Any, fmt, sync::Arc};

use grappa_formats::aggregates::AggregateKind;
use grappa_io::{Result, read};

use super::edge_features::GraphEdgeFeatures;

/// The type of the delivered values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputDtype {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// bfloat16: the upper half of binary32, rounded to nearest, ties to even.
    Bf16,
}

impl OutputDtype {
    /// Bytes per value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Registers memory with a device, so that the device can copy from it without the CPU (pinned memory).
pub trait RegisterMemory: fmt::Debug + Send + Sync {
    /// Registers `memory` until the result is dropped, which happens before the memory is released. None if
    /// registration is not possible; the memory is then used unregistered.
    fn register(&self, memory: &[u8]) -> Option<Registration>;
}

/// Ends a registration when it is dropped.
pub type Registration = Box<dyn Any + Send + Sync>;

/// Processes of one machine that train together. They keep one copy of the feature rows in memory if one of them has no
/// room for all rows, and all have room for their part.
pub trait HostProcesses: fmt::Debug + Send + Sync {
    /// The number of processes.
    fn count(&self) -> u32;

    /// The number of this process among them, from 0.
    fn index(&self) -> u32;

    /// Tells the others some numbers, and returns the numbers of all processes, by index. All processes must call it,
    /// in the same order.
    ///
    /// # Errors
    /// [`Error::Stopped`](grappa_io::Error::Stopped) if another process has ended.
    fn exchange(&self, numbers: &[u64]) -> Result<Vec<Vec<u64>>>;
}

/// Options of the feature rows of batches. By default there are none.
#[derive(Debug, Clone, Default)]
pub struct RowOptions {
    /// Whether batches have the features of their nodes.
    pub features: bool,
    /// The kind of pre-aggregated features that they have besides, if any.
    pub aggregates: Option<AggregateKind>,
    /// The type of the delivered values.
    pub output: OutputDtype,
    /// Registers the buffers of delivered features with a device.
    pub register: Option<Arc<dyn RegisterMemory>>,
}

/// Options of a feed.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// All memory that the feed may take, in bytes: feature rows, read buffers, minibatches, feature buffers, and the
    /// memory of the batch source and of each thread's sampler.
    pub memory_bytes: u64,
    /// Bytes that the adjacency lists take in addition, out of the user's memory. Errors name a budget for both.
    pub adjacency_bytes: u64,
    /// Bytes that mapped adjacency lists would take with unlimited memory: all of their files. 0 if they are not
    /// mapped.
    pub mapped_adjacency_bytes: u64,
    /// The feature rows to deliver.
    pub rows: RowOptions,
    /// Delivers the features of edges, too, by their [ids](crate::sample::Block). Their memory is not in `memory_bytes`.
    pub edge_features: Option<Arc<GraphEdgeFeatures>>,
    /// The processes of this machine that open a feed of the same rows now, to share those in memory.
    pub host: Option<Arc<dyn HostProcesses>>,
    /// Whether memory is too little if it has no room for minibatches an eighth larger than those that are sampled in
    /// advance. By default, they get what room there is.
    pub keeps_margin: bool,
    /// Number of threads that sample and assemble. One more thread reads, and mostly sleeps.
    pub threads: usize,
    /// The maximum number of batches of a window. By default, the number for which batches and pool balance.
    pub lookahead: Option<usize>,
    /// The read engine.
    pub engine: read::Choice,
    /// Options of the read engine.
    pub read: read::Options,
    /// The coalescing gap, in bytes: two missing rows of a file share a read if the gap between them is at most this
    /// long. The best value is the number of bytes that the disk transfers in the time of one more read. Measured by
    /// default.
    pub coalescing_gap_bytes: Option<u32>,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            adjacency_bytes: 0,
            mapped_adjacency_bytes: 0,
            rows: RowOptions { features: true, ..RowOptions::default() },
            edge_features: None,
            host: None,
            keeps_margin: false,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            lookahead: None,
            engine: read::Choice::Auto,
            read: read::Options::default(),
            coalescing_gap_bytes: None,
        }
    }
}

impl FeedOptions {
    /// Bytes that adjacency lists take beside a feed of `feed_bytes`. Mapped ones take a quarter of both, if they are
    /// as large.
    pub(super) fn adjacency_bytes_beside(&self, feed_bytes: u64) -> u64 {
        self.adjacency_bytes.max(self.mapped_adjacency_bytes.min(feed_bytes / 3 + 1))
    }
}
