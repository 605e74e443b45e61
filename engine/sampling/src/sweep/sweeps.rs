//! Sweeps of an epoch, one after the other, ahead of those who use the minibatches.

use std::{
    collections::VecDeque,
    ops::Range,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use grappa_io::{Error, Result};

use super::{pass::Resources, source::SweepSource, spill::DiskSpace, swept::Swept};

/// Minibatches of the first sweep. It is small, so that the first batches come early, and tells how much disk space a minibatch takes.
const FIRST_MINIBATCHES: u64 = 16;
/// A sweep has at most this many times as many minibatches as the one before.
const GROWTH: u64 = 16;
/// The sweeps on disk: one is used, the other is made.
const SWEEPS_ON_DISK: u64 = 2;

/// Resources of sweeps.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    /// The folder of scratch files.
    pub folder: PathBuf,
    /// The most bytes of disk that they take.
    pub disk_bytes: u64,
    /// Bytes of memory, beside mapped adjacency lists.
    pub memory_bytes: u64,
    /// The number of threads.
    pub threads: usize,
}

/// The sweeps of an epoch. A thread makes the next one while minibatches of the last one are used.
#[derive(Debug)]
pub struct Sweeps {
    options: SweepOptions,
    disk: Arc<DiskSpace>,
    state: Mutex<State>,
    /// Notified when a sweep was made or used, or the epoch ends.
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Whether an epoch has begun and not ended.
    is_begun: bool,
    /// The sweeps that were made, each with the number of its minibatches that were not used.
    ready: VecDeque<(Arc<Swept>, u64)>,
    error: Option<Error>,
    /// Whether the thread that sweeps has panicked.
    has_panicked: bool,
}

/// An epoch of sweeps. When it is dropped, the epoch has ended, and nothing is on disk.
#[derive(Debug)]
pub struct SweepEpoch {
    sweeps: Arc<Sweeps>,
    thread: Option<JoinHandle<()>>,
}

impl SweepEpoch {
    /// The epoch ends early. Wakes the threads that wait for minibatches.
    pub(crate) fn stop(&self) {
        let _state = self.sweeps.lock();
        self.sweeps.stop.store(true, Ordering::Relaxed);
        self.sweeps.changed.notify_all();
    }
}

impl Drop for SweepEpoch {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It catches panics, which go on in the threads that wait.
            let _ = thread.join();
        }
        *self.sweeps.lock() = State::default();
        self.sweeps.stop.store(false, Ordering::Relaxed);
    }
}

impl Sweeps {
    /// Makes nothing yet.
    pub fn new(options: SweepOptions) -> Self {
        Self {
            disk: Arc::new(DiskSpace::new(&options.folder, options.disk_bytes)),
            options,
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }

    /// Bytes of memory that sweeps take.
    pub fn memory_bytes(&self) -> u64 {
        self.options.memory_bytes
    }

    /// Bytes of disk that scratch files take now.
    pub fn disk_used(&self) -> u64 {
        self.disk.used()
    }

    /// The most bytes of disk that scratch files have taken so far.
    pub fn disk_peak(&self) -> u64 {
        self.disk.peak()
    }

    /// Begins an epoch, and sweeps its first minibatches.
    pub(crate) fn begin(self: &Arc<Self>, source: Arc<dyn SweepSource>) -> SweepEpoch {
        self.lock().is_begun = true;
        let sweeps = self.clone();
        let spawned = thread::Builder::new().name("sweep".to_owned()).spawn(move || {
            let made = panic::catch_unwind(AssertUnwindSafe(|| sweeps.sweep_all(&*source)));
            let mut state = sweeps.lock();
            match made {
                Ok(Ok(())) => return,
                Ok(Err(error)) => state.error = Some(error),
                Err(_) => state.has_panicked = true,
            }
            sweeps.changed.notify_all();
        });
        let thread = spawned.map_err(|source| self.lock().error = Some(Error::Thread { source })).ok();
        SweepEpoch { sweeps: self.clone(), thread }
    }

    /// A minibatch was read, and is not read again.
    pub(crate) fn used(&self, minibatch: u64) {
        let mut state = self.lock();
        let position = state.ready.iter().position(|(swept, _)| swept.minibatches.contains(&minibatch));
        if let Some(at) = position {
            let (_, left) = &mut state.ready[at];
            *left -= 1;
            if *left == 0 {
                state.ready.remove(at);
                self.changed.notify_all();
            }
        }
    }

    /// The sweep with a minibatch. Waits until it was made. None if no epoch has begun.
    ///
    /// # Errors
    /// If the sweep failed, or the epoch was stopped.
    ///
    /// # Panics
    /// If the thread that sweeps has panicked.
    pub(crate) fn wait(&self, minibatch: u64) -> Result<Option<Arc<Swept>>> {
        let mut state = self.lock();
        loop {
            if !state.is_begun {
                return Ok(None);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            assert!(!state.has_panicked, "the thread that sweeps has panicked");
            // Others wait until this error has stopped the epoch.
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            if let Some((swept, _)) = state.ready.iter().find(|(swept, _)| swept.minibatches.contains(&minibatch)) {
                return Ok(Some(swept.clone()));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes all sweeps of an epoch.
    fn sweep_all(&self, source: &dyn SweepSource) -> Result<()> {
        let resources = Resources { memory: self.options.memory_bytes, threads: self.options.threads.max(1) };
        let (all, mut first, mut count) = (source.minibatches(), 0, FIRST_MINIBATCHES);
        while first < all {
            let range = first..all.min(first + count);
            self.wait_for_room()?;
            let (began, disk) = (Instant::now(), self.disk.written());
            let swept = Swept::sweep(source, range.clone(), resources, &self.disk, &self.stop)?;
            let bytes = (self.disk.written() - disk) / (range.end - range.start);
            tracing::debug!(
                first = range.start,
                minibatches = range.end - range.start,
                bytes_each = bytes,
                seconds = began.elapsed().as_secs_f64(),
                "swept minibatches"
            );
            first = range.end;
            count = self.next_count(range, bytes);
            let left = swept.minibatches.end - swept.minibatches.start;
            self.lock().ready.push_back((Arc::new(swept), left));
            self.changed.notify_all();
        }
        Ok(())
    }

    /// The number of minibatches of the sweep after one whose scratch files took `bytes` for each.
    fn next_count(&self, last: Range<u64>, bytes: u64) -> u64 {
        // A quarter more, because minibatches differ.
        let room = self.options.disk_bytes / SWEEPS_ON_DISK / (bytes + bytes / 4).max(1);
        room.clamp(1, GROWTH * (last.end - last.start))
    }

    /// Waits until fewer sweeps than may be on disk are.
    fn wait_for_room(&self) -> Result<()> {
        let mut state = self.lock();
        while state.ready.len() as u64 >= SWEEPS_ON_DISK {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
