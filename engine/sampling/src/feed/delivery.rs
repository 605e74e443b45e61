//! A feed, and the epochs that it delivers.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Instant,
};

use grappa_io::{Result, ledger::Lease, read::ReadEngine};

use super::{
    access::RowAccess,
    batch::Batch,
    budget::FeedBudget,
    core::FeedCore,
    pipeline::{read_windows, spawn},
    pool::geometry::PoolGeometry,
    resident_rows::ResidentRows,
    source::{BatchSource, WorkAhead},
    state::Stage,
    stats::{FeedStats, Stall},
    worker::Worker,
};
use crate::sample::Minibatch;

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
        let core = &self.core;
        core.lock().check_idle();
        let engine = self.engine().take();
        core.stop.store(false, Ordering::Relaxed);
        core.lock().begin(source.batches());
        let ahead = source.begin();
        let workers = (0..self.threads).filter_map(|_| {
            let source = source.clone();
            spawn(core, "feed-worker", move |core| Worker(core).run(&*source))
        });
        Epoch {
            feed: self,
            workers: workers.collect(),
            reader: engine.and_then(|engine| spawn(core, "feed-reader", |core| read_windows(core, engine))),
            ahead,
        }
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

    /// The memory of each part of the feed.
    pub fn leases(&self) -> &[Lease] {
        &self.budget.leases
    }

    /// Resident bytes charged to this process: its share, if processes share the rows.
    pub fn resident_bytes(&self) -> u64 {
        self.budget.resident_bytes
    }

    /// The rows of all nodes in memory, if the feed has them: features (column 0) or pre-aggregated features (column
    /// 1).
    pub fn resident_rows(&self, column: usize) -> Option<ResidentRows> {
        match &self.core.access {
            RowAccess::Stored(rows) => ResidentRows::from_rows(rows, column),
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
    workers: Vec<JoinHandle<()>>,
    reader: Option<JoinHandle<Box<dyn ReadEngine>>>,
    /// Work ahead, until all workers have ended.
    ahead: Option<WorkAhead>,
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
        self.feed.core.lock().consumer.held_while_waiting = batches;
    }

    /// Ends the epoch from another thread than the one that waits for batches.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.feed.core.clone())
    }

    /// Stops all threads, waits for them, and returns the engine. If a thread panicked, resumes its panic.
    fn join(&mut self) -> Option<Box<dyn ReadEngine>> {
        self.feed.core.stop();
        if let Some(ahead) = &self.ahead {
            ahead.stop();
        }
        let mut panic = None;
        for worker in self.workers.drain(..) {
            panic = panic.or(worker.join().err());
        }
        self.ahead = None;
        let engine = self.reader.take().and_then(|reader| match reader.join() {
            Ok(engine) => Some(engine),
            Err(of_reader) => {
                panic.get_or_insert(of_reader);
                None
            }
        });
        match panic {
            // A second panic while this thread unwinds would abort the process.
            Some(panic) if !thread::panicking() => std::panic::resume_unwind(panic),
            _ => engine,
        }
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
        let core = &self.feed.core;
        let mut state = core.lock();
        loop {
            if state.panicked {
                drop(state);
                self.join();
                unreachable!("join resumes the panic");
            }
            if let Some(error) = state.failure.take() {
                return Some(Err(error));
            }
            if state.is_delivered() || state.stop {
                return None;
            }
            if let Some((index, batch, features)) = state.deliver() {
                drop(state);
                core.changed.notify_all();
                core.counters.add(|stats| {
                    stats.batches += 1;
                    stats.edges += batch.minibatches.iter().map(Minibatch::edges).sum::<usize>() as u64;
                });
                return Some(Ok(Batch { index, batch, features, core: core.clone() }));
            }
            let stall: fn(&mut Stall) -> &mut f64 = match state.next_stage() {
                None | Some(Stage::Sampling | Stage::Unreserved | Stage::Sampled) => |stall| &mut stall.sample,
                Some(Stage::Planned(window)) if !state.is_fetched(window) => |stall| &mut stall.read,
                Some(Stage::Planned(_) | Stage::Assembling | Stage::Ready) => |stall| &mut stall.assemble,
            };
            if state.wait_for_batch() {
                core.changed.notify_all();
            }
            let since = Instant::now();
            state = core.wait(state);
            core.counters.add(|stats| *stall(&mut stats.stall) += since.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Epoch<'_> {
    fn drop(&mut self) {
        *self.feed.engine() = self.join();
        let mut state = self.feed.core.lock();
        if !state.panicked {
            state.end();
        }
    }
}
