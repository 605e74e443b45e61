//! The threads of a feed, and what the consumer sees of them.

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
    buffer::{FeatureBuffer, Reserve},
    planner::{Planned, Planner},
    reader::{Fetched, Target},
    rows::{RowFormat, RowScratch},
    source::{BatchSource, bytes_of},
    state::{Reading, Sheet, Stage, State, Work},
    stats::Counters,
};
use crate::sample::Minibatch;

/// What all threads of a feed, the consumer and the batches that it holds share.
#[derive(Debug)]
pub(super) struct Core {
    pub state: Mutex<State>,
    /// Anything that someone might wait for.
    pub changed: Condvar,
    /// Tells the reader, who does not look at the state while it reads.
    pub stop: AtomicBool,
    pub counters: Counters,
    pub access: RowAccess,
    /// None if there are no features.
    pub format: Option<RowFormat>,
    pub reserve: Reserve,
    /// Bytes that the budget has for what a thread samples with.
    pub scratch_bytes: u64,
}

/// What a thread samples with, and how much of it is paid for.
struct Paid<'a, S> {
    reserve: &'a Reserve,
    scratch: S,
    bytes: u64,
    /// How much of that is from the reserve.
    taken: u64,
}

impl<S> Paid<'_, S> {
    /// Pays for a scratch that takes so many bytes.
    fn pay(&mut self, bytes: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.reserve.take(more, "its sampler's tables")?;
            self.bytes += more;
            self.taken += more;
        }
        Ok(())
    }
}

impl<S> Drop for Paid<'_, S> {
    fn drop(&mut self) {
        self.reserve.give_back(self.taken);
    }
}

/// A minibatch with the features of its nodes. When it is dropped, its memory is used for another one: a consumer that
/// keeps more than a few of them waits for itself.
#[derive(Debug)]
pub struct Batch {
    index: u64,
    sheet: Sheet,
    features: Option<FeatureBuffer>,
    core: Arc<Core>,
}

impl Batch {
    /// Which batch of the epoch it is.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Nodes and edges.
    pub fn minibatch(&self) -> &Minibatch {
        &self.sheet.minibatch
    }

    /// The features of the minibatch's nodes, in their order; none if there are none.
    pub fn features(&self) -> Option<&FeatureBuffer> {
        self.features.as_ref()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let sheet = std::mem::take(&mut self.sheet);
        self.core.lock().take_back(sheet, self.features.take());
        self.core.changed.notify_all();
    }
}

/// The threads of one epoch.
pub(super) struct Threads {
    core: Arc<Core>,
    workers: Vec<JoinHandle<()>>,
    reader: Option<JoinHandle<Box<dyn ReadEngine>>>,
}

impl Threads {
    /// Starts `workers` threads that sample and assemble, and one that reads if there is an engine.
    pub fn start<S: BatchSource>(
        core: &Arc<Core>,
        source: &Arc<S>,
        workers: usize,
        engine: Option<Box<dyn ReadEngine>>,
    ) -> Self {
        core.stop.store(false, Ordering::Relaxed);
        core.lock().begin(source.batches());
        let spawn = |name: &str| thread::Builder::new().name(name.to_owned());
        // The error of a thread that cannot be started is that of the first batch.
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
        }
    }

    /// The next batch, or why there is none; `None` when all were delivered or it was said why not.
    pub fn next(&mut self) -> Option<Result<Batch>> {
        let core = self.core.clone();
        let mut state = core.lock();
        loop {
            if state.has_panicked() {
                drop(state);
                self.join();
                unreachable!("a thread panicked");
            }
            if let Some(error) = state.take_failure() {
                return Some(Err(error));
            }
            if state.is_delivered() || state.is_stopped() {
                return None;
            }
            if let Some((index, sheet, features)) = state.deliver() {
                drop(state);
                core.changed.notify_all();
                core.counters.batches.add(1);
                core.counters.edges.add(sheet.minibatch.edges() as u64);
                return Some(Ok(Batch {
                    index,
                    sheet,
                    features,
                    core,
                }));
            }
            let stall = match state.next_stage() {
                None | Some(Stage::Sampling | Stage::Sampled) => &core.counters.stall_sample_ns,
                Some(Stage::Planned(window)) if !state.is_fetched(window) => &core.counters.stall_read_ns,
                Some(Stage::Planned(_) | Stage::Assembling | Stage::Ready) => &core.counters.stall_assemble_ns,
            };
            let since = Instant::now();
            state = core.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            stall.add(since.elapsed().as_nanos() as u64);
        }
    }

    /// Stops all threads and waits for them. Returns the engine; its panic is that of a thread, if one panicked.
    pub fn join(&mut self) -> Option<Box<dyn ReadEngine>> {
        self.core.stop.store(true, Ordering::Relaxed);
        self.core.lock().stop();
        self.core.changed.notify_all();
        let mut panic = None;
        for worker in self.workers.drain(..) {
            panic = panic.or(worker.join().err());
        }
        let engine = match self.reader.take().map(JoinHandle::join) {
            Some(Ok(engine)) => Some(engine),
            Some(Err(reader)) => {
                panic = panic.or(Some(reader));
                None
            }
            None => None,
        };
        match panic {
            Some(panic) if !thread::panicking() => std::panic::resume_unwind(panic),
            _ => engine,
        }
    }
}

/// Tells the others of a panic.
struct Alarm<'a>(&'a Core);

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

    fn fail(&self, error: Error) {
        self.stop.store(true, Ordering::Relaxed);
        self.lock().fail(error);
        self.changed.notify_all();
    }

    /// What a worker does from beginning to end.
    fn work<S: BatchSource>(&self, source: &S) {
        let _alarm = Alarm(self);
        let mut scratch = Paid {
            reserve: &self.reserve,
            scratch: source.scratch(),
            bytes: self.scratch_bytes,
            taken: 0,
        };
        let mut row_scratch = self.format.as_ref().map(RowFormat::scratch);
        loop {
            let work = {
                let mut state = self.lock();
                loop {
                    match state.work() {
                        Work::Wait => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                        work => break work,
                    }
                }
            };
            match work {
                Work::Sample { index, mut sheet } => {
                    let sampled = self.sample(source, index, &mut scratch, &mut sheet);
                    match sampled {
                        Ok(()) => self.lock().sampled(index, sheet),
                        Err(error) => {
                            self.lock().take_back(sheet, None);
                            self.fail(error);
                        }
                    }
                }
                Work::Plan {
                    index,
                    sheet,
                    planner,
                    serial,
                    pinned,
                } => self.plan(index, sheet, planner, serial, pinned),
                Work::Close {
                    mut planner,
                    next_batch,
                    misses,
                } => {
                    let window = planner.close(next_batch, misses, &self.counters);
                    self.lock().closed(planner, window);
                }
                Work::Assemble { index, sheet, buffer } => {
                    self.assemble(index, sheet, buffer, row_scratch.as_mut());
                }
                Work::Wait => unreachable!("it waited"),
                Work::End => break,
            }
            self.changed.notify_all();
        }
        self.changed.notify_all();
    }

    fn sample<S: BatchSource>(
        &self,
        source: &S,
        index: u64,
        scratch: &mut Paid<'_, S::Scratch>,
        sheet: &mut Sheet,
    ) -> Result<()> {
        source.sample(index, &mut scratch.scratch, &mut sheet.minibatch)?;
        scratch.pay(source.scratch_bytes(&scratch.scratch, sheet.minibatch.nodes.len()))?;
        sheet.places.clear();
        let bytes = bytes_of(&sheet.minibatch);
        if bytes > sheet.bytes {
            self.reserve.take(bytes - sheet.bytes, "its nodes and edges")?;
            sheet.bytes = bytes;
        }
        Ok(())
    }

    fn plan(&self, index: u64, mut sheet: Sheet, mut planner: Box<Planner>, serial: u64, pinned: u64) {
        let planned = planner.plan(
            &sheet.minibatch.nodes,
            &mut sheet.places,
            serial,
            serial - pinned,
            &self.counters,
        );
        let rows = sheet.minibatch.nodes.len();
        let (full, error) = match planned {
            Ok(Planned::Whole) => (None, None),
            // Only its own rows are in the way.
            Ok(Planned::Full) if pinned == 0 => (Some(0), Some(self.pool_too_small(rows))),
            Ok(Planned::Full) => (Some(pinned), None),
            Err(error) => (Some(pinned), Some(error)),
        };
        self.lock().planned(index, sheet, planner, full);
        if let Some(error) = error {
            self.fail(error);
        }
    }

    fn pool_too_small(&self, rows: usize) -> Error {
        Error::conflict(
            format!("the {rows} feature rows of a minibatch do not fit the feed's row pool"),
            "give it more memory, or sample with smaller batches or fanouts",
        )
    }

    fn assemble(&self, index: u64, sheet: Sheet, mut buffer: Option<FeatureBuffer>, scratch: Option<&mut RowScratch>) {
        let gather = || {
            let (Some(format), Some(scratch), Some(buffer)) = (&self.format, scratch, &mut buffer) else {
                return Ok(());
            };
            let nodes = &sheet.minibatch.nodes;
            buffer.resize(nodes.len(), &self.reserve)?;
            self.access.gather(format, nodes, &sheet.places, scratch, buffer)
        };
        match gather() {
            Ok(()) => {
                self.access.count_unplanned(sheet.minibatch.nodes.len(), &self.counters);
                self.lock().assembled(index, sheet, buffer);
            }
            Err(error) => {
                self.lock().take_back(sheet, buffer);
                self.fail(error);
            }
        }
    }

    /// What the reader does from beginning to end.
    fn read(&self, mut engine: Box<dyn ReadEngine>) -> Box<dyn ReadEngine> {
        let _alarm = Alarm(self);
        let (RowAccess::Stored(rows), Some(format)) = (&self.access, &self.format) else {
            return engine;
        };
        let Some(pool) = &rows.pool else {
            return engine;
        };
        let target = Target {
            files: &rows.files,
            format,
            pool,
        };
        loop {
            let window = {
                let mut state = self.lock();
                loop {
                    match state.reading() {
                        Reading::Window(window) => break window,
                        Reading::Wait => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                        Reading::End => return engine,
                    }
                }
            };
            let started = Instant::now();
            let fetched = target.fetch(&window.misses, &mut *engine, &self.counters, &self.stop);
            match fetched {
                Ok(Fetched::All) => {
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
                Ok(Fetched::Stopped) => self.lock().not_fetched(window),
                Err(error) => {
                    self.lock().not_fetched(window);
                    self.fail(error);
                }
            }
            self.changed.notify_all();
        }
    }
}
