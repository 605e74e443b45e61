//! The threads of a feed, and how the consumer waits for them.

use std::{
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Instant,
};

use grappa_io::{Error, Result, read::ReadEngine};

use super::{
    access::RowAccess,
    batch::Batch,
    core::{Alarm, FeedCore},
    reader::{FetchOutcome, WindowReader},
    source::BatchSource,
    state::{Stage, schedule::ReaderTask},
    stats::Stall,
    worker::Worker,
};
use crate::view::TurnsEpoch;

/// The threads of one epoch.
pub(super) struct EpochThreads {
    core: Arc<FeedCore>,
    workers: Vec<JoinHandle<()>>,
    reader: Option<JoinHandle<Box<dyn ReadEngine>>>,
    /// The turns of views, until all workers have ended.
    turns: Option<TurnsEpoch>,
}

impl EpochThreads {
    /// Starts `workers` workers, and a reader if there is an engine.
    pub fn start<S: BatchSource>(
        core: &Arc<FeedCore>,
        source: &Arc<S>,
        workers: usize,
        engine: Option<Box<dyn ReadEngine>>,
    ) -> Self {
        core.stop.store(false, Ordering::Relaxed);
        core.lock().begin(source.batches());
        let turns = source.begin();
        let workers = (0..workers).filter_map(|_| {
            let source = source.clone();
            spawn(core, "feed-worker", move |core| Worker::new(core).run(&*source))
        });
        Self {
            workers: workers.collect(),
            reader: engine.and_then(|engine| spawn(core, "feed-reader", |core| read_windows(core, engine))),
            core: core.clone(),
            turns,
        }
    }

    /// Waits for the next batch, or the error that prevents it. `None` after the last batch and after an error.
    pub fn next(&mut self) -> Option<Result<Batch>> {
        let core = self.core.clone();
        let mut state = core.lock();
        loop {
            if state.has_panicked() {
                drop(state);
                self.join();
                unreachable!("join resumes the panic");
            }
            if let Some(error) = state.take_failure() {
                return Some(Err(error));
            }
            if state.is_delivered() || state.is_stopped() {
                return None;
            }
            if let Some((index, batch, features)) = state.deliver() {
                drop(state);
                core.changed.notify_all();
                core.counters.add(|stats| {
                    stats.batches += 1;
                    stats.edges += batch.minibatch.edges() as u64;
                });
                return Some(Ok(Batch { index, batch, features, core }));
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

    /// Stops all threads, waits for them, and returns the engine. If a thread panicked, resumes its panic.
    pub fn join(&mut self) -> Option<Box<dyn ReadEngine>> {
        self.core.stop();
        if let Some(turns) = &self.turns {
            turns.stop();
        }
        let mut panic = None;
        for worker in self.workers.drain(..) {
            panic = panic.or(worker.join().err());
        }
        self.turns = None;
        let engine = match self.reader.take().map(JoinHandle::join) {
            Some(Ok(engine)) => Some(engine),
            Some(Err(reader)) => {
                panic = panic.or(Some(reader));
                None
            }
            None => None,
        };
        match panic {
            // A second panic while this thread unwinds would abort the process.
            Some(panic) if !thread::panicking() => std::panic::resume_unwind(panic),
            _ => engine,
        }
    }
}

/// Starts a thread. If that fails, the consumer gets the error instead of the first batch.
fn spawn<T: Send + 'static>(
    core: &Arc<FeedCore>,
    name: &str,
    work: impl FnOnce(&FeedCore) -> T + Send + 'static,
) -> Option<JoinHandle<T>> {
    let of_thread = core.clone();
    let started = thread::Builder::new().name(name.to_owned()).spawn(move || work(&of_thread));
    started.map_err(|source| core.fail(Error::Thread { source })).ok()
}

/// Reads windows until the epoch ends.
fn read_windows(core: &FeedCore, mut engine: Box<dyn ReadEngine>) -> Box<dyn ReadEngine> {
    let _alarm = Alarm(core);
    let (RowAccess::Stored(rows), Some(format)) = (&core.access, &core.format) else {
        return engine;
    };
    let Some(pool) = &rows.pool else {
        return engine;
    };
    let reader = WindowReader { files: &rows.files, format, pool };
    loop {
        let window = {
            let mut state = core.lock();
            loop {
                match state.reader_task() {
                    ReaderTask::Read(window) => break window,
                    ReaderTask::Wait => state = core.wait(state),
                    ReaderTask::End => return engine,
                }
            }
        };
        let started = Instant::now();
        let fetched = reader.fetch(&window.misses, &mut *engine, &core.counters, &core.stop);
        match fetched {
            Ok(FetchOutcome::Complete) => {
                tracing::debug!(
                    window = window.number,
                    batches = window.batches,
                    rows = window.rows,
                    read = window.misses.len(),
                    seconds = started.elapsed().as_secs_f64(),
                    "read a window"
                );
                core.counters.add(|stats| stats.windows += 1);
                core.lock().fetched(window.misses);
            }
            Ok(FetchOutcome::Stopped) => core.lock().not_fetched(window),
            Err(error) => {
                core.lock().not_fetched(window);
                core.fail(error);
            }
        }
        core.changed.notify_all();
    }
}
