//! The thread that keeps the sign of life of this rank fresh, and watches the signs of the others. [`keys`](super::keys) lists the keys.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    keys::{Departure, LEFT, alive, bye, hello, json},
    place::{Place, StoreOf},
    store::Store,
};
use crate::shim::c10d;

/// Time between two signs of life, unless the timeout is short.
const BEAT: Duration = Duration::from_millis(500);
/// Beats within the timeout, at least.
const BEATS_OF_TIMEOUT: u32 = 8;
/// Beats that the watch waits for, to find out who is missing after a connection broke.
const BEATS_TO_FIND: u32 = 5;
/// A sign of life that is new up to this number of beats after that can be the last one of a missing rank: it was given before, and is
/// seen one beat later. The others give theirs until the end.
const BEATS_TO_SEE: u32 = 2;

#[derive(Debug)]
pub(super) struct Watch {
    store: Store,
    /// The thread ends when this is gone.
    _ends: Sender<()>,
    seen: Arc<Seen>,
    place: Place,
    timeout: Duration,
    beat: Duration,
}

/// Observations of the thread.
#[derive(Debug)]
struct Seen(Mutex<Observed>);

#[derive(Debug)]
struct Observed {
    left: Option<Departure>,
    /// When the store last answered.
    answered: Instant,
    /// The error of the store, after which it is not asked again.
    broken: Option<String>,
    /// For each rank, its last sign of life, and when it was new.
    alive: Vec<(Vec<u8>, Instant)>,
}

impl Watch {
    /// Starts the thread. The other ranks need not be there yet.
    pub(super) fn start(store: Store, place: Place, timeout: Duration) -> Self {
        let (ends, ended) = channel();
        let now = Instant::now();
        let seen = Arc::new(Seen(Mutex::new(Observed {
            left: None,
            answered: now,
            broken: None,
            alive: vec![(Vec::new(), now); place.ranks as usize],
        })));
        let beat = BEAT.min(timeout / BEATS_OF_TIMEOUT);
        let captured = (store.clone(), place.clone(), seen.clone());
        let started = thread::Builder::new().name("watch".into()).spawn(move || {
            let (store, place, seen) = captured;
            for beats in 1.. {
                seen.note(seen.look(&store, &place, beats).as_ref().map(|_| ()).map_err(String::as_str));
                if ended.recv_timeout(beat) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        if let Err(error) = started {
            seen.note(Err(&format!("no thread to watch the other ranks: {error}")));
        }
        Self { store, _ends: ends, seen, place, timeout, beat }
    }

    /// The rank that left or cannot be reached, if there is one.
    pub(super) fn departure(&self) -> Option<Departure> {
        let state = self.seen.lock();
        let silent = |since: Instant| since.elapsed() > self.timeout;
        let reason = || {
            format!(
                "shows no sign of life for {} s: it is stopped, cut off, or ended without a word",
                self.timeout.as_secs_f64()
            )
        };
        if let Some(left) = &state.left {
            return Some(left.clone());
        }
        if let Some(text) = &state.broken {
            return Some(self.without_store(&format!("has ended or cannot be reached: {text}")));
        }
        if silent(state.answered) {
            return Some(self.without_store(&reason()));
        }
        // A rank that has not come yet is not missed.
        let rank = state.alive.iter().position(|(sign, since)| !sign.is_empty() && silent(*since))?;
        Some(Departure { rank: rank as u32, is_stop: false, reason: reason() })
    }

    fn without_store(&self, reason: &str) -> Departure {
        let server = match self.place.store_of {
            StoreOf::FirstRank => " (which serves the store)",
            StoreOf::Workers | StoreOf::Torchrun => " (the launcher, which serves the store)",
        };
        Departure { rank: 0, is_stop: false, reason: format!("{server} {reason}").trim_start().to_owned() }
    }

    /// Whether a rank has come, and has not said goodbye.
    pub(super) fn needs_store(&self, rank: u32) -> bool {
        // A rank introduces itself before it gives its first sign of life.
        let has_come = || matches!(self.get(&hello(rank)), Ok(Some(_)));
        has_come() && self.departure().is_none_or(|left| left.rank != rank) && matches!(self.get(&bye(rank)), Ok(None))
    }

    /// Waits a few beats for the reason of a broken connection: the rank that left, or that has shown no sign of life since.
    pub(super) fn find_missing(&self) -> Option<Departure> {
        let begin = Instant::now();
        while begin.elapsed() < self.beat * BEATS_TO_FIND {
            if let Some(departure) = self.departure() {
                return Some(departure);
            }
            thread::sleep(self.beat / 20);
        }
        let state = self.seen.lock();
        let silent_from = begin + self.beat * BEATS_TO_SEE;
        let signs = state.alive.iter().enumerate();
        let silent = signs.filter(|(_, (sign, since))| !sign.is_empty() && *since < silent_from);
        let (rank, _) = silent.min_by_key(|(_, (_, since))| *since)?;
        Some(Departure {
            rank: rank as u32,
            is_stop: false,
            reason: "ended without a word: it was killed, or its host is gone".to_owned(),
        })
    }

    /// Tells the others that a rank ended. Only the first rank to end is kept.
    pub(super) fn publish(&self, departure: &Departure) {
        let is_first = {
            let mut state = self.seen.lock();
            let is_first = state.left.is_none();
            state.left.get_or_insert_with(|| departure.clone());
            is_first
        };
        if is_first {
            let _ = self.noted(self.store.set_once(LEFT, &json(departure)));
        }
    }

    pub(super) fn get(&self, key: &str) -> c10d::Result<Option<Vec<u8>>> {
        self.noted(self.store.get(key))
    }

    pub(super) fn set(&self, key: &str, value: &[u8]) -> c10d::Result<()> {
        self.noted(self.store.set(key, value))
    }

    pub(super) fn delete(&self, key: &str) -> c10d::Result<()> {
        self.noted(self.store.delete(key))
    }

    fn noted<T>(&self, result: c10d::Result<T>) -> c10d::Result<T> {
        self.seen.note(result.as_ref().map(|_| ()).map_err(String::as_str));
        result
    }
}

impl Seen {
    fn lock(&self) -> std::sync::MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers whether the store answered.
    fn note(&self, result: Result<(), &str>) {
        let mut state = self.lock();
        match result {
            Ok(()) => state.answered = Instant::now(),
            Err(text) => state.broken = state.broken.take().or_else(|| Some(text.to_owned())),
        }
    }

    /// Shows a sign of life, and looks at the other ranks.
    fn look(&self, store: &Store, place: &Place, beats: u64) -> c10d::Result<()> {
        if self.lock().broken.is_some() {
            return Ok(());
        }
        let sign = beats.to_string().into_bytes();
        store.set(&alive(place.rank), &sign)?;
        for rank in 0..place.ranks {
            // A rank that said goodbye shows no signs of life, and none is missed.
            let mut found = store.get(&alive(rank))?.unwrap_or_default();
            let is_same = self.lock().alive[rank as usize].0 == found;
            if is_same && store.get(&bye(rank))?.is_some() {
                found.clone_from(&sign);
            }
            let mut state = self.lock();
            let known = &mut state.alive[rank as usize];
            if known.0 != found {
                *known = (found, Instant::now());
            }
        }
        if let Some(left) = store.get(LEFT)? {
            self.lock().left = serde_json::from_slice(&left).ok();
        }
        Ok(())
    }
}
