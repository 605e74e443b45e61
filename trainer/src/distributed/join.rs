//! How processes find each other, and make sure that they belong together.

use std::{
    fs,
    sync::{
        Mutex,
        atomic::AtomicU64,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    Place, ProcessGroup,
    attempts::Attempts,
    json, prefix,
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
    if !place.is_store_of_launcher || !place.is_restarted {
        return join_attempt(0, place, hello, waits, is_stopped, &|| false);
    }
    let attempts = Attempts::of(&place, waits.join)?;
    let mut attempt = attempts.find(0)?;
    loop {
        // A store that is gone is noticed elsewhere.
        let is_superseded = || attempts.is_begun(attempt + 1).unwrap_or(false);
        let joined = join_attempt(attempt, place.clone(), hello.clone(), waits, is_stopped, &is_superseded);
        match joined {
            Err(_) if place.rank > 0 && is_superseded() => attempt = attempts.find(attempt + 1)?,
            joined => return joined,
        }
    }
}

/// Joins the other processes of an attempt. Gives up when it is superseded by the next one.
fn join_attempt(
    attempt: u64,
    place: Place,
    hello: Hello,
    waits: Waits,
    is_stopped: fn() -> bool,
    is_superseded: &dyn Fn() -> bool,
) -> Result<ProcessGroup> {
    let timeout = waits.join;
    let (host, port) = &place.store;
    let prefix = prefix(attempt);
    let open = |is_server| c10d::Store::open(host, *port, is_server, timeout, &prefix);
    let store = open(place.serves_store()).map_err(|text| no_store(&place, &text, timeout))?;
    let arrival = Arrival {
        ranks: place.ranks,
        host: host_name(),
        process: std::process::id(),
        hello,
    };
    let found = store.set_once(&watch::hello(place.rank), &json(&arrival));
    let found = found.map_err(|text| no_store(&place, &text, timeout))?;
    if found != json(&arrival) {
        return Err(duplicate(&place, &found));
    }
    // Gloo has a connection of its own, because its rendezvous blocks.
    let for_gloo = open(false).map_err(|text| no_store(&place, &text, timeout))?;
    let group = ProcessGroup {
        watch: Watch::start(store, place.clone(), waits.silence),
        place,
        gloo: Mutex::new(None),
        messages: AtomicU64::new(0),
        is_stopped,
    };
    let joined = group
        .meet(&arrival, timeout, is_superseded)
        .and_then(|()| group.connect(for_gloo, timeout, is_superseded));
    match joined {
        Ok(gloo) => {
            *group.gloo.lock().unwrap_or_else(|poison| poison.into_inner()) = Some(gloo);
            Ok(group)
        }
        Err(error) => {
            group.announce(false, &format!("could not join: {error}"));
            group.leave();
            Err(error)
        }
    }
}

impl ProcessGroup {
    /// Waits for all ranks, and compares what they say with what this rank says.
    fn meet(&self, own: &Arrival, timeout: Duration, is_superseded: &dyn Fn() -> bool) -> Result<()> {
        let until = Instant::now() + timeout;
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
                return Err(never_came(&missing, &self.place, timeout));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Connects to all ranks, on another thread: a rank that is stopped right now would block this one.
    fn connect(&self, store: c10d::Store, timeout: Duration, is_superseded: &dyn Fn() -> bool) -> Result<c10d::Group> {
        let (rank, ranks) = (self.place.rank, self.place.ranks);
        let (send, connected) = channel();
        let connect = move || {
            let _ = send.send(c10d::Group::connect(&store, rank, ranks, timeout, NEVER));
        };
        let started = thread::Builder::new().name("connect".into()).spawn(connect);
        started.map_err(|error| Error::Distributed(format!("no thread to connect to the other ranks: {error}")))?;
        let until = Instant::now() + timeout * 2;
        let mut found = connected.recv_timeout(POLL);
        while matches!(found, Err(RecvTimeoutError::Timeout)) && Instant::now() < until {
            if is_superseded() {
                return Err(superseded());
            }
            found = connected.recv_timeout(10 * POLL);
        }
        match found {
            Ok(group) => group.map_err(|text| {
                let cause = self.explain(&text);
                match self.failure() {
                    Some(_) => cause,
                    None => Error::Distributed(format!(
                        "rank {rank} cannot connect to the other ranks: {text}; GLOO_SOCKET_IFNAME names the network interface to \
                         use, such as eth0"
                    )),
                }
            }),
            Err(_) => Err(self.explain("no answer")),
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

pub(super) fn never_came(missing: &[u32], place: &Place, timeout: Duration) -> Error {
    let ranks: Vec<String> = missing.iter().map(u32::to_string).collect();
    Error::Distributed(format!(
        "rank {} did not come within {} s (--join-timeout); WORLD_SIZE is {}: start as many processes, with the same MASTER_ADDR and \
         MASTER_PORT",
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

pub(super) fn no_store(place: &Place, text: &str, timeout: Duration) -> Error {
    let (host, port) = &place.store;
    let is_in_use = text.contains("EADDRINUSE") || text.contains("already in use");
    Error::Distributed(match (place.serves_store(), is_in_use) {
        (true, true) => format!(
            "port {port} is in use on this host, by another job or another process with RANK 0: choose another MASTER_PORT (torchrun: \
             --master-port)"
        ),
        (true, false) => format!("rank 0 cannot serve the store at {host}:{port}: {text}"),
        (false, _) => format!(
            "rank {} found no store at {host}:{port} within {} s: {} must run there, and MASTER_ADDR and MASTER_PORT must be the same \
             for all ranks ({text})",
            place.rank,
            timeout.as_secs_f64(),
            if place.is_store_of_launcher {
                "the launcher"
            } else {
                "rank 0"
            },
        ),
    })
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
