//! What a feed did, as numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a feed did since it was made. All bytes are of rows as they are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FeedStats {
    /// Minibatches that were delivered.
    pub batches: u64,
    /// Edges of these.
    pub edges: u64,
    /// Rows that the minibatches wanted, their input nodes.
    pub rows_wanted: u64,
    /// Of these, rows of resident chunks.
    pub rows_resident: u64,
    /// Of these, rows that were computed.
    pub rows_generated: u64,
    /// Of these, rows that the pool had, or that the same window read for an earlier minibatch.
    pub rows_pooled: u64,
    /// Of these, rows that were read.
    pub rows_missed: u64,
    /// Rows that nobody wanted when they were read with their neighbours, and that the pool kept.
    pub rows_adopted: u64,
    /// Bytes of the wanted rows.
    pub bytes_wanted: u64,
    /// Bytes that were read for windows, in whole pages.
    pub bytes_read: u64,
    /// Reads that these were.
    pub reads: u64,
    /// Windows that were read.
    pub windows: u64,
    /// Seconds in which something was being read.
    pub read_seconds: f64,
    /// Reads under way while something was being read, on average.
    pub queue_depth: f64,
    /// What the consumer waited for.
    pub stall: Stall,
}

impl FeedStats {
    /// Bytes read for each byte wanted: below 1 if most rows stay in memory.
    pub fn read_amplification(&self) -> f64 {
        ratio(self.bytes_read as f64, self.bytes_wanted as f64)
    }

    /// The share of wanted rows that were not read.
    pub fn hit_rate(&self) -> f64 {
        1.0 - ratio(self.rows_missed as f64, self.rows_wanted as f64)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Seconds that the consumer waited, by what became of the minibatch that it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stall {
    /// It, or others of its window, were being sampled and planned.
    pub sample: f64,
    /// Its window was being read.
    pub read: f64,
    /// Its rows were there and were put together.
    pub assemble: f64,
}

/// A sum that threads add to.
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

/// The sums behind [`FeedStats`].
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
    /// Time, each nanosecond counted as often as reads were under way.
    pub depth_ns: Sum,
    pub stall_sample_ns: Sum,
    pub stall_read_ns: Sum,
    pub stall_assemble_ns: Sum,
}

impl Counters {
    /// What the sums say, of rows of `row_bytes`.
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
            // The sums are read one after another while they grow.
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
