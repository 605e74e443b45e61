//! How processes find each other, and make sure that they belong together.

use std::{
    fs,
    sync::mpsc::RecvTimeoutError,
    thread,
    time::{Duration, Instant},
};

use super::{
    attempts::Attempts,
    group::ProcessGroup,
    join_error::{Arrival, Hello, compare, duplicate, lost, never_came},
    keys::{self, json, prefix},
    place::{Place, StoreOf},
    store::{Store, StoreServer, aside},
    watch::Watch,
};
use crate::{Error, Result, shim::c10d};

/// Time between two looks at what the other ranks do.
const POLL: Duration = Duration::from_millis(20);
/// Operations of Gloo end when they are done, or when the watch says that a rank is missing. Not by time.
const NEVER: Duration = Duration::MAX;

/// How long ranks wait for each other.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// Until all are there, at the start.
    pub join: Duration,
    /// Until a rank without a sign of life is missing.
    pub silence: Duration,
}

impl Waits {
    /// The same for both.
    pub fn for_timeout(timeout: Duration) -> Self {
        Self { join: timeout, silence: timeout }
    }
}

/// Joins the other processes. Returns when all are there and connected. `is_stopped` tells whether this process was asked to stop; it
/// stays true then. A rank that waits for a value of another one gives up if so.
///
/// # Errors
/// If a rank does not come within `waits.join`, two processes have the same rank, ranks differ in what must be the same, or the store
/// cannot be served or reached. Each message names the rank.
pub fn join(place: Place, hello: Hello, waits: Waits, is_stopped: fn() -> bool) -> Result<ProcessGroup> {
    c10d::log_fatal_only();
    let server = place.serves_store().then(|| StoreServer::for_place(&place)).transpose()?;
    let until = Instant::now() + waits.join;
    let store = Store::open(&place, server.as_ref(), waits.join, waits.silence)?;
    let joining = Joining { store, place, hello, waits, is_stopped };
    match joining.place.is_restarted && joining.place.store_of != StoreOf::FirstRank {
        true => joining.latest_attempt(until),
        false => joining.attempt(0, until, server, &|| false),
    }
}

struct Joining {
    store: Store,
    place: Place,
    hello: Hello,
    waits: Waits,
    is_stopped: fn() -> bool,
}

impl Joining {
    /// Joins the other processes of the latest attempt.
    fn latest_attempt(&self, mut until: Instant) -> Result<ProcessGroup> {
        let attempts = Attempts::new(&self.store, &self.place, self.waits.join);
        let mut attempt = attempts.find(0)?;
        loop {
            // A store that is gone is noticed elsewhere.
            let is_superseded = || attempts.is_begun(attempt + 1).unwrap_or(false);
            match self.attempt(attempt, until, None, &is_superseded) {
                Err(_) if self.place.rank > 0 && is_superseded() => attempt = attempts.find(attempt + 1)?,
                joined => return joined,
            }
            until = Instant::now() + self.waits.join;
        }
    }

    /// Joins the other processes of an attempt. Gives up when it is superseded by the next one.
    fn attempt(
        &self,
        attempt: u64,
        until: Instant,
        server: Option<StoreServer>,
        is_superseded: &dyn Fn() -> bool,
    ) -> Result<ProcessGroup> {
        let store = self.store.within(&prefix(attempt));
        let arrival = Arrival {
            ranks: self.place.ranks,
            host: fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
            process: std::process::id(),
            hello: self.hello.clone(),
        };
        let found = store.set_once(&keys::hello(self.place.rank), &json(&arrival));
        let found = found.map_err(|text| lost(&self.place, &text))?;
        if found != json(&arrival) {
            return Err(duplicate(&self.place, &found));
        }
        let watch = Watch::start(store.clone(), self.place.clone(), self.waits.silence);
        let group = ProcessGroup::new(self.place.clone(), watch, server, self.is_stopped);
        let joined = self
            .meet(&group, &arrival, until, is_superseded)
            .and_then(|()| connect(&group, store, self.waits.silence, is_superseded));
        match joined {
            Ok(gloo) => {
                *group.gloo() = Some(gloo);
                Ok(group)
            }
            Err(error) => {
                group.announce(false, &format!("could not join: {error}"));
                group.leave();
                Err(error)
            }
        }
    }

    /// Waits for all ranks until a moment. Compares what they say with what this rank says.
    fn meet(
        &self,
        group: &ProcessGroup,
        own: &Arrival,
        until: Instant,
        is_superseded: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut missing: Vec<u32> = (0..self.place.ranks).filter(|&rank| rank != self.place.rank).collect();
        while !missing.is_empty() {
            let mut still = Vec::new();
            for rank in missing {
                match group.watch.get(&keys::hello(rank)).map_err(|text| group.explain(&text))? {
                    Some(other) => compare(&self.place, own, rank, &other)?,
                    None => still.push(rank),
                }
            }
            missing = still;
            if let Some(failure) = group.failure() {
                return Err(failure);
            }
            if is_superseded() {
                return Err(superseded());
            }
            if !missing.is_empty() && Instant::now() > until {
                let refused = group.server.as_ref().and_then(StoreServer::refused);
                return Err(never_came(&missing, &self.place, self.waits.join, refused));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

/// Connects to all ranks within `timeout`, on another thread: a rank that is stopped right now would block this one.
fn connect(
    group: &ProcessGroup,
    store: Store,
    timeout: Duration,
    is_superseded: &dyn Fn() -> bool,
) -> Result<c10d::Group> {
    let (rank, ranks) = (group.place.rank, group.place.ranks);
    let connected = aside("connect", move || c10d::Group::connect(Box::new(store), rank, ranks, timeout, NEVER))
        .map_err(|error| Error::Distributed(format!("no thread to connect to the other ranks: {error}")))?;
    let until = Instant::now() + timeout;
    loop {
        match connected.recv_timeout(POLL) {
            Ok(Ok(gloo)) => return Ok(gloo),
            Ok(Err(text)) => return Err(not_connected(group, &text)),
            Err(RecvTimeoutError::Disconnected) => return Err(not_connected(group, "the thread panicked")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if is_superseded() {
            return Err(superseded());
        }
        if let Some(failure) = group.failure() {
            return Err(failure);
        }
        if Instant::now() > until {
            return Err(not_connected(group, &format!("no answer within {} s (--timeout)", timeout.as_secs_f64())));
        }
    }
}

/// The error of a rank that is not connected to all others.
fn not_connected(group: &ProcessGroup, text: &str) -> Error {
    let cause = group.explain(text);
    match group.failure() {
        Some(_) => cause,
        None => Error::Distributed(format!(
            "rank {} cannot connect to the other ranks: {text}; GLOO_SOCKET_IFNAME names the network interface to use, such as eth0",
            group.place.rank
        )),
    }
}

/// The error of a rank that joined the processes of the start before. It joins again, so nobody reads it.
fn superseded() -> Error {
    Error::Distributed("the processes were started again".to_owned())
}
