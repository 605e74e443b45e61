//! The feature feed: delivers minibatches with the features of their nodes, also if the features do not fit in memory.
//!
//! ```text
//! batch source --sample--> nodes --plan--> slots, misses --fetch--> feature rows --assemble--> buffer --> consumer
//!                                          \___________ a window at a time ___________/
//! ```
//!
//! A [`Feed`] holds everything that stays from epoch to epoch. [`Feed::epoch`] starts the threads of an epoch and
//! iterates over its [`Batch`]es in order. A batch depends on the source and the store only, and not on threads,
//! budget, windows or the read engine.
//!
//! Feature rows are held in the type in which they are stored. There are three kinds:
//!
//! - *Resident* rows: all rows of the owned chunks, if they fit in memory. They are read once and found by arithmetic.
//!   If no other rows can be needed, nothing is planned.
//! - *Pooled* rows: the pool has slots for the rows of in-flight batches, and for those that were needed most often.
//! - *Computed* rows, if the store has procedural features.
//!
//! A *window* is a sequence of batches whose missing rows are read together. It ends when it has the maximum number of
//! batches that the budget allows, or when its rows take half of the pool. If the reader is idle, it also ends if so
//! few rows are missing that waiting for more does not pay. So windows are short while nearly all rows are in memory,
//! and become passes over the files if few are. While one window is assembled and consumed, the next is sampled,
//! planned and read.
//!
//! A row consists of a node's features and, if requested, its pre-aggregated features
//! ([`Aggregates`](grappa_storage::aggregates::Aggregates)). Both are planned, read and evicted together.
//!
//! Any error (a failed read, a file that changed, a batch that does not fit) stops all threads and is the last item of
//! the iterator. A panic of a thread continues in the consumer.

mod access;
mod batch;
mod budget;
mod buffer;
mod coalescing;
mod demand;
mod files;
mod open;
mod options;
mod partitions;
mod pipeline;
mod planner;
mod pool;
mod reader;
mod reserve;
mod resident;
mod rows;
mod sharing;
mod source;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;

use grappa_io::{Result, read::ReadEngine};

use self::{
    access::RowAccess,
    budget::FeedBudget,
    pipeline::{Core, Threads},
    pool::PoolGeometry,
    rows::RowFormat,
};
pub use self::{
    batch::Batch,
    buffer::FeatureBuffer,
    options::{FeedOptions, HostProcesses, OutputDtype, RegisterMemory, Registration},
    partitions::{BatchPlace, EpochOptions, Part, PartitionBatches, Seeded},
    resident::ResidentRows,
    source::BatchSource,
    stats::{FeedStats, Stall},
};

/// Delivers minibatches with features, epoch after epoch.
pub struct Feed {
    core: Arc<Core>,
    engine: Option<Box<dyn ReadEngine>>,
    engine_name: Option<&'static str>,
    threads: usize,
    budget: FeedBudget,
}

impl Feed {
    /// Starts the threads that sample, plan, read and assemble the batches of `source`.
    ///
    /// # Panics
    /// If a thread of an earlier epoch panicked.
    pub fn epoch<S: BatchSource>(&mut self, source: &Arc<S>) -> Epoch<'_> {
        assert!(
            !self.core.lock().has_panicked(),
            "a thread of this feed panicked in an earlier epoch"
        );
        let threads = Threads::start(&self.core, source, self.threads, self.engine.take());
        Epoch { threads, feed: self }
    }

    /// Statistics since the feed was opened.
    pub fn stats(&self) -> FeedStats {
        self.core.stats()
    }

    /// The engine that reads feature rows, or has read them: `uring` or `pread`. None if no rows are stored.
    pub fn engine_name(&self) -> Option<&'static str> {
        self.engine_name
    }

    /// Whether all rows that the store has are resident, so that none is read on demand.
    pub fn is_resident(&self) -> bool {
        self.budget.resident_bytes > 0 && self.budget.pool.is_none()
    }

    /// Bytes of the resident rows, as far as they are this process's: a part of those that processes share.
    pub fn resident_bytes(&self) -> u64 {
        self.budget.resident_bytes
    }

    /// The rows of all nodes in memory, if the feed has them: features (column 0) or pre-aggregated features (column 1).
    pub fn resident_rows(&self, column: usize) -> Option<ResidentRows> {
        match &self.core.access {
            RowAccess::Stored(rows) => ResidentRows::of(rows, column),
            RowAccess::None | RowAccess::Generated(_) => None,
        }
    }

    /// The number of slots of the pool.
    pub fn pool_rows(&self) -> usize {
        self.budget.pool.map_or(0, PoolGeometry::slots)
    }

    /// The maximum number of batches of a window.
    pub fn lookahead(&self) -> usize {
        self.budget.lookahead
    }
}

/// Iterates over the batches of an epoch, in order. When it is dropped, it stops the threads.
pub struct Epoch<'a> {
    feed: &'a mut Feed,
    threads: Threads,
}

impl Epoch<'_> {
    /// Statistics since the feed was opened.
    pub fn stats(&self) -> FeedStats {
        self.feed.core.stats()
    }

    /// Says that batches are used by a thread that does not wait for them: it returns all but `batches` of them without
    /// another one. A batch that lacks memory then waits for theirs. By default this is an error if the consumer waits for
    /// that batch.
    pub fn hold_while_waiting(&self, batches: u64) {
        self.feed.core.lock().hold_while_waiting(batches);
    }

    /// Ends the epoch from another thread than the one that waits for batches.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.feed.core.clone())
    }
}

/// Ends an [`Epoch`].
#[derive(Debug)]
pub struct Stopper(Arc<Core>);

impl Stopper {
    /// Ends the epoch: no more batches come, and whoever waits for one gets none.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    /// Waits for the next batch. There are none after an error.
    ///
    /// # Panics
    /// If a thread panicked.
    fn next(&mut self) -> Option<Result<Batch>> {
        self.threads.next()
    }
}

impl Drop for Epoch<'_> {
    fn drop(&mut self) {
        self.feed.engine = self.threads.join();
        let mut state = self.feed.core.lock();
        if !state.has_panicked() {
            state.end();
        }
    }
}

impl Core {
    fn stats(&self) -> FeedStats {
        let row_bytes = self.format.as_ref().map_or(0, RowFormat::stored_bytes);
        self.counters.stats(row_bytes)
    }
}
