//! The threads of a feed, and how the consumer waits for them.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use grappa_io::{Error, Result, read::ReadEngine};

use super::{
    access::RowAccess,
    batch::Batch,
    reader::{FetchOutcome, WindowReader},
    reserve::MemoryReserve,
    rows::RowFormat,
    source::BatchSource,
    state::{ReaderTask, Stage, State},
    stats::Counters,
};

/// Everything that the threads of a feed, the consumer and its batches share.
#[derive(Debug)]
pub(super) struct Core {
    pub state: Mutex<State>,
    /// Notified when the state changes in a way that someone may wait for.
    pub changed: Condvar,
    /// Stops the reader, which does not lock the state while it reads.
    pub stop: AtomicBool,
    pub counters: Counters,
    pub access: RowAccess,
    /// None if there are no features.
    pub format: Option<RowFormat>,
    pub reserve: MemoryReserve,
    /// Bytes in the budget for the sampler state of a thread.
    pub scratch_bytes: u64,
}

/// The threads of one epoch.
pub(super) struct Threads {
    core: Arc<Core>,
    workers: Vec<JoinHandle<()>>,
    reader: Option<JoinHandle<Box<dyn ReadEngine>>>,
    source: Arc<dyn EpochEnd>,
}

/// The part of a [`BatchSource`] that ends an epoch.
trait EpochEnd: Send + Sync {
    fn stop(&self);
    fn end(&self);
}

impl<S: BatchSource> EpochEnd for S {
    fn stop(&self) {
        BatchSource::stop(self);
    }

    fn end(&self) {
        BatchSource::end(self);
    }
}

impl Threads {
    /// Starts `workers` workers, and a reader if there is an engine.
    pub fn start<S: BatchSource>(
        core: &Arc<Core>,
        source: &Arc<S>,
        workers: usize,
        engine: Option<Box<dyn ReadEngine>>,
    ) -> Self {
        core.stop.store(false, Ordering::Relaxed);
        core.lock().begin(source.batches());
        source.begin();
        let spawn = |name: &str| thread::Builder::new().name(name.to_owned());
        // If a thread cannot be started, the consumer gets the error instead of the first batch.
        let failed = |source| core.fail(Error::Thread { source });
        let start_worker = |_| {
            let (core, source) = (core.clone(), source.clone());
            let started = spawn("feed-worker").spawn(move || core.work(&*source));
            started.map_err(failed).ok()
        };
        let start_reader = |engine| {
            let core = core.clone();
            let started = spawn("feed-reader").spawn(move || core.read(engine));
            started.map_err(failed).ok()
        };
        Self {
            core: core.clone(),
            workers: (0..workers).filter_map(start_worker).collect(),
            reader: engine.and_then(start_reader),
            source: source.clone(),
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
                core.counters.batches.add(1);
                core.counters.edges.add(batch.minibatch.edges() as u64);
                return Some(Ok(Batch {
                    index,
                    batch,
                    features,
                    core,
                }));
            }
            let stall = match state.next_stage() {
                None | Some(Stage::Sampling | Stage::Unreserved | Stage::Sampled) => &core.counters.stall_sample_ns,
                Some(Stage::Planned(window)) if !state.is_fetched(window) => &core.counters.stall_read_ns,
                Some(Stage::Planned(_) | Stage::Assembling | Stage::Ready) => &core.counters.stall_assemble_ns,
            };
            if state.wait_for_batch() {
                core.changed.notify_all();
            }
            let since = Instant::now();
            state = core.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            stall.add(since.elapsed().as_nanos() as u64);
        }
    }

    /// Stops all threads, waits for them, and returns the engine. If a thread panicked, resumes its panic.
    pub fn join(&mut self) -> Option<Box<dyn ReadEngine>> {
        self.core.stop();
        self.source.stop();
        let mut panic = None;
        for worker in self.workers.drain(..) {
            panic = panic.or(worker.join().err());
        }
        self.source.end();
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

/// Stops the other threads if its thread panics.
pub(super) struct Alarm<'a>(pub &'a Core);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop.store(true, Ordering::Relaxed);
            self.0.lock().panicked();
            self.0.changed.notify_all();
        }
    }
}

impl Core {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all threads. The consumer gets no more batches.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.lock().stop();
        self.changed.notify_all();
    }

    /// Stops all threads. The consumer gets the first error.
    pub fn fail(&self, error: Error) {
        self.stop.store(true, Ordering::Relaxed);
        self.lock().fail(error);
        self.changed.notify_all();
    }

    /// Runs the reader until the epoch ends.
    fn read(&self, mut engine: Box<dyn ReadEngine>) -> Box<dyn ReadEngine> {
        let _alarm = Alarm(self);
        let (RowAccess::Stored(rows), Some(format)) = (&self.access, &self.format) else {
            return engine;
        };
        let Some(pool) = &rows.pool else {
            return engine;
        };
        let reader = WindowReader {
            files: &rows.files,
            format,
            pool,
        };
        loop {
            let window = {
                let mut state = self.lock();
                loop {
                    match state.reader_task() {
                        ReaderTask::Read(window) => break window,
                        ReaderTask::Wait => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                        ReaderTask::End => return engine,
                    }
                }
            };
            let started = Instant::now();
            let fetched = reader.fetch(&window.misses, &mut *engine, &self.counters, &self.stop);
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
                    self.counters.windows.add(1);
                    self.lock().fetched(window.misses);
                }
                Ok(FetchOutcome::Stopped) => self.lock().not_fetched(window),
                Err(error) => {
                    self.lock().not_fetched(window);
                    self.fail(error);
                }
            }
            self.changed.notify_all();
        }
    }
}
