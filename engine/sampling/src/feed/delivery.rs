//! A feed, and the epochs that it delivers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grappa_io::{Result, read::ReadEngine};

use super::{
    access::RowAccess, batch::Batch, budget::FeedBudget, core::FeedCore, pipeline::EpochThreads,
    pool::geometry::PoolGeometry, resident_rows::ResidentRows, source::BatchSource, stats::FeedStats,
};

/// Delivers minibatches with features, epoch after epoch. Clones are the same feed, so one of them can deliver while
/// the owner of another is changed.
#[derive(Clone)]
pub struct Feed {
    pub(super) core: Arc<FeedCore>,
    /// None while an epoch has it, and if no row is read on demand.
    pub(super) engine: Arc<Mutex<Option<Box<dyn ReadEngine>>>>,
    pub(super) engine_name: Option<&'static str>,
    pub(super) threads: usize,
    pub(super) budget: FeedBudget,
}

impl Feed {
    /// Starts the threads that sample, plan, read and assemble the batches of `source`.
    ///
    /// # Panics
    /// If a thread of an earlier epoch panicked, or another epoch has not ended.
    pub fn epoch<S: BatchSource>(&self, source: &Arc<S>) -> Epoch<'_> {
        self.core.lock().check_idle();
        let engine = self.engine().take();
        Epoch { threads: EpochThreads::start(&self.core, source, self.threads, engine), feed: self }
    }

    fn engine(&self) -> MutexGuard<'_, Option<Box<dyn ReadEngine>>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The rows of all nodes in memory, if the feed has them: features (column 0) or pre-aggregated features (column
    /// 1).
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
    feed: &'a Feed,
    threads: EpochThreads,
}

impl Epoch<'_> {
    /// Statistics since the feed was opened.
    pub fn stats(&self) -> FeedStats {
        self.feed.core.stats()
    }

    /// Says that another thread uses the batches: while this one waits for the next batch, that thread returns all
    /// batches but `batches`. A batch that lacks memory then waits for theirs. By default this is an error if the
    /// consumer waits for that batch.
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
pub struct Stopper(Arc<FeedCore>);

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
        *self.feed.engine() = self.threads.join();
        let mut state = self.feed.core.lock();
        if !state.has_panicked() {
            state.end();
        }
    }
}
