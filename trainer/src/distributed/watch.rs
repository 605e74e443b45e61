//! The thread that talks to the store: it keeps the sign of life of this rank fresh, watches those of the others, and serves the
//! requests of the trainer.
//!
//! ```text
//! hello/RANK     RANK has come: who it is, and what must be the same on all ranks
//! alive/RANK     a counter that RANK raises twice a second
//! left           the first rank that ended before the work was finished, and why
//! bye/RANK       RANK needs the store no more
//! ```

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Place, json};
use crate::shim::c10d::{self, Store};

/// Time between two signs of life, unless the timeout is short.
const BEAT: Duration = Duration::from_millis(500);
/// Beats within the timeout, at least.
const BEATS_OF_TIMEOUT: u32 = 8;
/// Beats that the watch waits for, to find out who is missing after a connection broke.
const BEATS_TO_FIND: u32 = 5;
/// A sign of life that is new up to this number of beats after that can be the last one of a missing rank: it was given before, and is
/// seen one beat later. The others give theirs until the end.
const BEATS_TO_SEE: u32 = 2;

/// The key of the first rank that ended before the work was finished.
pub(super) const LEFT: &str = "left";

/// The end of a rank before the work was finished.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Departure {
    pub rank: u32,
    /// It was asked to stop.
    pub is_stop: bool,
    /// The reason, as the rest of a sentence that begins with the rank.
    pub reason: String,
}

/// The key under which a rank introduces itself.
pub(super) fn hello(rank: u32) -> String {
    format!("hello/{rank}")
}

/// The key that says that a rank needs the store no more.
pub(super) fn bye(rank: u32) -> String {
    format!("bye/{rank}")
}

/// The watch of a rank.
#[derive(Debug)]
pub(super) struct Watch {
    requests: Mutex<Sender<Request>>,
    seen: Arc<Seen>,
    place: Place,
    timeout: Duration,
    beat: Duration,
}

/// Observations of the thread.
#[derive(Debug)]
struct Seen(Mutex<State>);

#[derive(Debug)]
struct State {
    left: Option<Departure>,
    /// When the store last answered.
    answered: Instant,
    /// The error of the store, after which it is not asked again.
    broken: Option<String>,
    /// For each rank, its last sign of life, and when it was new.
    alive: Vec<(Vec<u8>, Instant)>,
}

enum Request {
    Get(String, Sender<c10d::Result<Option<Vec<u8>>>>),
    Set(String, Vec<u8>, Sender<c10d::Result<Option<Vec<u8>>>>),
    SetOnce(String, Vec<u8>, Sender<c10d::Result<Option<Vec<u8>>>>),
    Delete(String, Sender<c10d::Result<Option<Vec<u8>>>>),
    End,
}

impl Watch {
    /// Starts the thread. The other ranks need not be there yet.
    pub(super) fn start(store: Store, place: Place, timeout: Duration) -> Self {
        let (requests, received) = channel();
        let now = Instant::now();
        let seen = Arc::new(Seen(Mutex::new(State {
            left: None,
            answered: now,
            broken: None,
            alive: vec![(Vec::new(), now); place.ranks as usize],
        })));
        let beat = BEAT.min(timeout / BEATS_OF_TIMEOUT);
        let keeper = Keeper {
            store,
            rank: place.rank,
            ranks: place.ranks,
            seen: seen.clone(),
            beat,
            beats: 0,
        };
        // Without the thread every request fails, as with a store that is gone.
        let _ = thread::Builder::new()
            .name("store".into())
            .spawn(move || keeper.run(&received));
        Self {
            requests: Mutex::new(requests),
            seen,
            place,
            timeout,
            beat,
        }
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
        let rank = state
            .alive
            .iter()
            .position(|(sign, since)| !sign.is_empty() && silent(*since))?;
        Some(Departure {
            rank: rank as u32,
            is_stop: false,
            reason: reason(),
        })
    }

    fn without_store(&self, reason: &str) -> Departure {
        let server = match self.place.is_store_of_launcher {
            true => " (the launcher, which serves the store)",
            false => " (which serves the store)",
        };
        Departure {
            rank: 0,
            is_stop: false,
            reason: format!("{server} {reason}").trim_start().to_owned(),
        }
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
            let _ = self.ask(|reply| Request::SetOnce(LEFT.to_owned(), json(departure), reply));
        }
    }

    pub(super) fn get(&self, key: &str) -> c10d::Result<Option<Vec<u8>>> {
        self.ask(|reply| Request::Get(key.to_owned(), reply))
    }

    pub(super) fn set(&self, key: &str, value: &[u8]) -> c10d::Result<()> {
        self.ask(|reply| Request::Set(key.to_owned(), value.to_owned(), reply))
            .map(|_| ())
    }

    pub(super) fn delete(&self, key: &str) -> c10d::Result<()> {
        self.ask(|reply| Request::Delete(key.to_owned(), reply)).map(|_| ())
    }

    /// Ends the thread, and with it the connection to the store, and the server if it is here.
    pub(super) fn end(&self) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = requests.send(Request::End);
    }

    fn ask(
        &self,
        request: impl FnOnce(Sender<c10d::Result<Option<Vec<u8>>>>) -> Request,
    ) -> c10d::Result<Option<Vec<u8>>> {
        let (reply, replied) = channel();
        {
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = requests.send(request(reply));
        }
        match replied.recv_timeout(self.timeout) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(format!("{} does not answer", self.place.store_name())),
            Err(RecvTimeoutError::Disconnected) => Err(format!("{} is closed", self.place.store_name())),
        }
    }
}

impl Seen {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own state.
struct Keeper {
    store: Store,
    rank: u32,
    ranks: u32,
    seen: Arc<Seen>,
    beat: Duration,
    beats: u64,
}

impl Keeper {
    fn run(mut self, requests: &Receiver<Request>) {
        let mut next = Instant::now();
        loop {
            match requests.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Request::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(request) => self.serve(request),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= next {
                let watched = self.look();
                self.note(watched);
                next = Instant::now() + self.beat;
            }
        }
    }

    fn serve(&self, request: Request) {
        let (reply, result) = match request {
            Request::Get(key, reply) => (reply, self.store.get(&key)),
            Request::Set(key, value, reply) => (reply, self.store.set(&key, &value).map(|()| None)),
            Request::SetOnce(key, value, reply) => (reply, self.store.set_once(&key, &value).map(Some)),
            Request::Delete(key, reply) => (reply, self.store.delete(&key).map(|()| None)),
            Request::End => return,
        };
        self.note(result.as_ref().map(|_| ()).map_err(Clone::clone));
        // Nobody waits for the reply any more if it took too long.
        let _ = reply.send(result);
    }

    /// Shows a sign of life, and looks at the other ranks.
    fn look(&mut self) -> c10d::Result<()> {
        if self.seen.lock().broken.is_some() {
            return Ok(());
        }
        self.beats += 1;
        self.store.set(&alive(self.rank), self.beats.to_string().as_bytes())?;
        for rank in 0..self.ranks {
            // A rank that said goodbye shows no signs of life, and none is missed.
            let mut found = self.store.get(&alive(rank))?.unwrap_or_default();
            let is_same = self.seen.lock().alive[rank as usize].0 == found;
            if is_same && self.store.get(&bye(rank))?.is_some() {
                found = self.beats.to_string().into_bytes();
            }
            let mut state = self.seen.lock();
            let known = &mut state.alive[rank as usize];
            if known.0 != found {
                *known = (found, Instant::now());
            }
        }
        if let Some(left) = self.store.get(LEFT)? {
            self.seen.lock().left = serde_json::from_slice(&left).ok();
        }
        Ok(())
    }

    fn note(&self, result: c10d::Result<()>) {
        let mut state = self.seen.lock();
        match result {
            Ok(()) => state.answered = Instant::now(),
            Err(text) => state.broken = state.broken.take().or(Some(text)),
        }
    }
}

/// The key of a sign of life.
fn alive(rank: u32) -> String {
    format!("alive/{rank}")
}
