//! Statistics of a feed.

use std::sync::{Mutex, PoisonError};

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

/// The counters behind [`FeedStats`]. All threads add to them, a few times per batch and per read.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<FeedStats>);

impl Counters {
    /// Adds to the statistics. `queue_depth` sums seconds, multiplied by the number of reads in flight.
    pub fn add(&self, add: impl FnOnce(&mut FeedStats)) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The current statistics.
    pub fn stats(&self) -> FeedStats {
        let stats = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let in_memory = stats.rows_resident + stats.rows_generated;
        FeedStats {
            // Saturating, because a batch adds to the counters one by one.
            rows_pooled: stats.rows_wanted.saturating_sub(in_memory + stats.rows_missed),
            queue_depth: ratio(stats.queue_depth, stats.read_seconds),
            ..stats
        }
    }
}
