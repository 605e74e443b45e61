//! How processes find each other, and make sure that they belong together.

use std::{
    fs,
    sync::{Mutex, atomic::AtomicU64, mpsc::RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    Place, ProcessGroup, StoreOf, StoreServer,
    attempts::Attempts,
    json, prefix,
    store::{Store, aside},
    watch::{self, Watch},
};
use crate::{Error, Result, shim::c10d};

/// Time between two looks at what the other ranks do.
const POLL: Duration = Duration::from_millis(20);
/// Operations of Gloo end when they are done, or when the watch says that a rank is missing. Not by time.
const NEVER: Duration = Duration::MAX;

/// The message of a rank that joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Settings that must be the same on all ranks: a name, and a value that people can compare. The first one that differs is reported,
    /// so a setting comes before those that follow from it.
    pub same: Vec<(String, String)>,
}

/// A rank that has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Arrival {
    ranks: u32,
    host: String,
    process: u32,
    hello: Hello,
}

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
    pub fn of(timeout: Duration) -> Self {
        Self {
            join: timeout,
            silence: timeout,
        }
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
    let server = place.serves_store().then(|| StoreServer::of(&place)).transpose()?;
    let until = Instant::now() + waits.join;
    let store = Store::open(&place, server.as_ref(), waits.join, waits.silence)?;
    let joining = Joining {
        store,
        place,
        hello,
        waits,
        is_stopped,
    };
    match joining.place.is_restarted && joining.place.store_of != StoreOf::FirstRank {
        true => joining.latest_attempt(until),
        false => joining.attempt(0, until, server, &|| false),
    }
}

/// A process that joins others.
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
        let attempts = Attempts::of(&self.store, &self.place, self.waits.join);
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
            host: host_name(),
            process: std::process::id(),
            hello: self.hello.clone(),
        };
        let found = store.set_once(&watch::hello(self.place.rank), &json(&arrival));
        let found = found.map_err(|text| lost(&self.place, &text))?;
        if found != json(&arrival) {
            return Err(duplicate(&self.place, &found));
        }
        let group = ProcessGroup {
            watch: Watch::start(store.clone(), self.place.clone(), self.waits.silence),
            server,
            place: self.place.clone(),
            gloo: Mutex::new(None),
            messages: AtomicU64::new(0),
            is_stopped: self.is_stopped,
        };
        let joined = group
            .meet(&arrival, until, self.waits.join, is_superseded)
            .and_then(|()| group.connect(store, self.waits.silence, is_superseded));
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
}

impl ProcessGroup {
    /// Waits for all ranks until a moment, which is `join` after the start. Compares what they say with what this rank says.
    fn meet(&self, own: &Arrival, until: Instant, join: Duration, is_superseded: &dyn Fn() -> bool) -> Result<()> {
        let mut missing: Vec<u32> = (0..self.place.ranks).filter(|&rank| rank != self.place.rank).collect();
        while !missing.is_empty() {
            let mut still = Vec::new();
            for rank in missing {
                match self
                    .watch
                    .get(&watch::hello(rank))
                    .map_err(|text| self.explain(&text))?
                {
                    Some(other) => compare(&self.place, own, rank, &other)?,
                    None => still.push(rank),
                }
            }
            missing = still;
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if is_superseded() {
                return Err(superseded());
            }
            if !missing.is_empty() && Instant::now() > until {
                let refused = self.server.as_ref().and_then(StoreServer::refused);
                return Err(never_came(&missing, &self.place, join, refused));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Connects to all ranks within `timeout`, on another thread: a rank that is stopped right now would block this one.
    fn connect(&self, store: Store, timeout: Duration, is_superseded: &dyn Fn() -> bool) -> Result<c10d::Group> {
        let (rank, ranks) = (self.place.rank, self.place.ranks);
        let connect = move || c10d::Group::connect(Box::new(store), rank, ranks, timeout, NEVER);
        let connected = aside("connect", connect)
            .map_err(|error| Error::Distributed(format!("no thread to connect to the other ranks: {error}")))?;
        let until = Instant::now() + timeout;
        loop {
            match connected.recv_timeout(POLL) {
                Ok(Ok(group)) => return Ok(group),
                Ok(Err(text)) => return Err(self.not_connected(&text)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.not_connected("the thread panicked")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if is_superseded() {
                return Err(superseded());
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if Instant::now() > until {
                return Err(self.not_connected(&format!("no answer within {} s (--timeout)", timeout.as_secs_f64())));
            }
        }
    }

    /// The error of a rank that is not connected to all others.
    fn not_connected(&self, text: &str) -> Error {
        let cause = self.explain(text);
        match self.failure() {
            Some(_) => cause,
            None => Error::Distributed(format!(
                "rank {} cannot connect to the other ranks: {text}; GLOO_SOCKET_IFNAME names the network interface to use, such as eth0",
                self.place.rank
            )),
        }
    }
}

/// The error of a rank that joined the processes of the start before. It joins again, so nobody reads it.
fn superseded() -> Error {
    Error::Distributed("the processes were started again".to_owned())
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// The error about ranks that did not come. `refused` is the last connection to the store that was refused.
pub(super) fn never_came(missing: &[u32], place: &Place, timeout: Duration, refused: Option<String>) -> Error {
    let refused = refused.map_or_else(String::new, |refused| format!("; a connection from {refused}"));
    let ranks: Vec<String> = missing.iter().map(u32::to_string).collect();
    Error::Distributed(format!(
        "rank {} did not come within {} s (--join-timeout); WORLD_SIZE is {}: start as many processes, with the same MASTER_ADDR and \
         MASTER_PORT{refused}",
        ranks.join(", "),
        timeout.as_secs_f64(),
        place.ranks
    ))
}

pub(super) fn duplicate(place: &Place, found: &[u8]) -> Error {
    let who = match serde_json::from_slice::<Arrival>(found) {
        Ok(other) => format!("process {} on {}", other.process, other.host),
        Err(_) => "another process".to_owned(),
    };
    Error::Distributed(format!(
        "{who} is rank {} too: give each process another RANK, or each job another MASTER_PORT",
        place.rank
    ))
}

/// The error of a rank that lost the store while it joined.
pub(super) fn lost(place: &Place, text: &str) -> Error {
    Error::Distributed(format!(
        "rank {} lost the store of {} while it joined: {text}",
        place.rank, place.store_of
    ))
}

/// Refuses a rank that does not belong to this one.
fn compare(place: &Place, own: &Arrival, rank: u32, other: &[u8]) -> Result<()> {
    let no = |what: String| Err(Error::Distributed(what));
    let Ok(other) = serde_json::from_slice::<Arrival>(other) else {
        return no(format!(
            "rank {rank} is another program, or another version of this one"
        ));
    };
    if other.ranks != own.ranks {
        return no(format!(
            "rank {rank} has WORLD_SIZE {} and rank {} has {}: all ranks need the same",
            other.ranks, place.rank, own.ranks
        ));
    }
    for (name, value) in &own.hello.same {
        let same = other.hello.same.iter().find(|(other, _)| other == name);
        let of_other = same.map_or("none", |(_, value)| value);
        if of_other != value {
            return no(format!(
                "ranks differ in the {name}: rank {} has {value}, and rank {rank} on {} has {of_other}",
                place.rank, other.host
            ));
        }
    }
    Ok(())
}
