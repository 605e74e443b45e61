//! Statistics of a feed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Statistics since the feed was opened. Rows are feature rows, and bytes are as stored.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FeedStats {
    /// Delivered minibatches.
    pub batches: u64,
    /// Edges of the delivered minibatches.
    pub edges: u64,
    /// Rows that minibatches needed: the sum of their nodes.
    pub rows_wanted: u64,
    /// Needed rows of resident chunks.
    pub rows_resident: u64,
    /// Needed rows that were computed.
    pub rows_generated: u64,
    /// Needed rows that were in the pool, or that the same window reads for an earlier minibatch.
    pub rows_pooled: u64,
    /// Needed rows that were read.
    pub rows_missed: u64,
    /// Rows that no batch needed, that were read because they are between needed ones, and that the pool kept.
    pub rows_adopted: u64,
    /// Bytes of the needed rows.
    pub bytes_wanted: u64,
    /// Bytes that were read for windows, in whole pages.
    pub bytes_read: u64,
    /// Number of these reads.
    pub reads: u64,
    /// Number of windows that were read.
    pub windows: u64,
    /// Seconds in which reads were in flight.
    pub read_seconds: f64,
    /// Average number of reads in flight during these seconds.
    pub queue_depth: f64,
    /// Time that the consumer waited.
    pub stall: Stall,
}

impl FeedStats {
    /// Bytes read per needed byte. Below 1 if most rows stay in memory.
    pub fn read_amplification(&self) -> f64 {
        ratio(self.bytes_read as f64, self.bytes_wanted as f64)
    }

    /// The share of needed rows that were not read.
    pub fn hit_rate(&self) -> f64 {
        1.0 - ratio(self.rows_missed as f64, self.rows_wanted as f64)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Seconds that the consumer waited, by the state of the next minibatch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stall {
    /// The minibatch, or others of its window, were being sampled and planned.
    pub sample: f64,
    /// Its window was being read.
    pub read: f64,
    /// Its rows were in memory, and it was being assembled.
    pub assemble: f64,
}

/// A counter that all threads add to.
#[derive(Debug, Default)]
pub(super) struct Sum(AtomicU64);

impl Sum {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn seconds(&self) -> f64 {
        self.get() as f64 / 1e9
    }
}

/// The counters behind [`FeedStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub batches: Sum,
    pub edges: Sum,
    pub rows_wanted: Sum,
    pub rows_resident: Sum,
    pub rows_generated: Sum,
    pub rows_missed: Sum,
    pub rows_adopted: Sum,
    pub bytes_read: Sum,
    pub reads: Sum,
    pub windows: Sum,
    pub read_ns: Sum,
    /// Nanoseconds, multiplied by the number of reads in flight.
    pub depth_ns: Sum,
    pub stall_sample_ns: Sum,
    pub stall_read_ns: Sum,
    pub stall_assemble_ns: Sum,
}

impl Counters {
    /// The current statistics. `row_bytes` is the stored size of a row, over all columns.
    pub fn stats(&self, row_bytes: usize) -> FeedStats {
        let (wanted, resident, generated) = (
            self.rows_wanted.get(),
            self.rows_resident.get(),
            self.rows_generated.get(),
        );
        let missed = self.rows_missed.get();
        FeedStats {
            batches: self.batches.get(),
            edges: self.edges.get(),
            rows_wanted: wanted,
            rows_resident: resident,
            rows_generated: generated,
            // Saturating, because other threads count while the counters are loaded one by one.
            rows_pooled: wanted.saturating_sub(resident + generated + missed),
            rows_missed: missed,
            rows_adopted: self.rows_adopted.get(),
            bytes_wanted: wanted * row_bytes as u64,
            bytes_read: self.bytes_read.get(),
            reads: self.reads.get(),
            windows: self.windows.get(),
            read_seconds: self.read_ns.seconds(),
            queue_depth: ratio(self.depth_ns.get() as f64, self.read_ns.get() as f64),
            stall: Stall {
                sample: self.stall_sample_ns.seconds(),
                read: self.stall_read_ns.seconds(),
                assemble: self.stall_assemble_ns.seconds(),
            },
        }
    }
}
