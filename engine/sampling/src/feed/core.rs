//! The data that the threads of a feed, its consumer and its batches share.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use grappa_io::Error;

use super::{
    access::RowAccess,
    edge_features::GraphEdgeFeatures,
    reserve::MemoryReserve,
    rows::RowFormat,
    state::State,
    stats::{Counters, FeedStats},
};

/// Everything that the threads of a feed, the consumer and its batches share.
#[derive(Debug)]
pub(super) struct FeedCore {
    pub state: Mutex<State>,
    /// Notified when the state changes in a way that someone may wait for.
    pub changed: Condvar,
    /// Stops the reader, which does not lock the state while it reads.
    pub stop: AtomicBool,
    pub counters: Counters,
    pub access: RowAccess,
    /// None if there are no features.
    pub format: Option<RowFormat>,
    /// The features of edges, if batches have them.
    pub edge_features: Option<Arc<GraphEdgeFeatures>>,
    pub reserve: MemoryReserve,
    /// Bytes in the budget for the sampler state of a thread.
    pub scratch_bytes: u64,
}

impl FeedCore {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the state changes.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all threads. The consumer gets no more batches.
    pub fn stop(&self) {
        self.stop_with(|_| {});
    }

    /// Stops all threads. The consumer gets the first error.
    pub fn fail(&self, error: Error) {
        self.stop_with(|state| {
            state.failure.get_or_insert(error);
        });
    }

    fn stop_with(&self, change: impl FnOnce(&mut State)) {
        self.stop.store(true, Ordering::Relaxed);
        let mut state = self.lock();
        state.stop = true;
        change(&mut state);
        drop(state);
        self.changed.notify_all();
    }

    /// Statistics since the feed was opened.
    pub fn stats(&self) -> FeedStats {
        self.counters.stats()
    }
}

/// Stops the other threads if its thread panics.
pub(super) struct Alarm<'a>(pub &'a FeedCore);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop_with(|state| state.panicked = true);
        }
    }
}
