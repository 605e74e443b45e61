//! Which start of the processes a process belongs to.
//!
//! When a process ends, torchrun starts all of them again. Its store stays, with the keys of the processes before. So each start, an
//! *attempt*, has a number, which is in the prefix of its keys. Rank 0 begins an attempt. The others join the latest one, unless it is one
//! of processes before: somebody has left it, or it has a process of the same rank. TORCHELASTIC_RESTART_COUNT does not tell attempts
//! apart: each agent of torchrun counts only the failures of its own processes.
//!
//! ```text
//! N/begun     who began attempt N
//! N/...       the keys of attempt N, as `keys` lists them
//! ```

use std::{
    process, thread,
    time::{Duration, Instant, SystemTime},
};

use super::{
    join_error::{duplicate, lost, never_came},
    keys::{self, PREFIX},
    place::Place,
    store::Store,
};
use crate::Result;

/// Time between two looks at the store.
const POLL: Duration = Duration::from_millis(50);

pub(super) struct Attempts<'a> {
    store: Store,
    place: &'a Place,
    timeout: Duration,
}

impl<'a> Attempts<'a> {
    /// The attempts that the store of a launcher knows.
    pub fn new(store: &Store, place: &'a Place, timeout: Duration) -> Self {
        Self { store: store.within(PREFIX), place, timeout }
    }

    /// The attempt of this process, from `first` on: rank 0 begins it, and the others wait for it.
    ///
    /// # Errors
    /// If rank 0 does not begin one in time, or the store fails.
    pub fn find(&self, first: u64) -> Result<u64> {
        match self.place.rank {
            0 => self.begin(first),
            _ => self.wait(first),
        }
    }

    fn begin(&self, first: u64) -> Result<u64> {
        let own = format!("process {} at {:?}", process::id(), SystemTime::now()).into_bytes();
        let mut attempt = first;
        loop {
            let found = self.store.set_once(&begun(attempt), &own);
            if found.map_err(|text| lost(self.place, &text))? == own {
                return Ok(attempt);
            }
            attempt += 1;
        }
    }

    fn wait(&self, first: u64) -> Result<u64> {
        let until = Instant::now() + self.timeout;
        let mut attempt = first;
        loop {
            while self.is_begun(attempt + 1)? {
                attempt += 1;
            }
            let is_begun = self.is_begun(attempt)?;
            let greeting = self.get(&format!("{attempt}/{}", keys::hello(self.place.rank)))?;
            let is_left = self.get(&format!("{attempt}/{}", keys::LEFT))?.is_some();
            if is_begun && greeting.is_none() && !is_left {
                return Ok(attempt);
            }
            if Instant::now() > until {
                return Err(match greeting.filter(|_| !is_left) {
                    Some(found) => duplicate(self.place, &found),
                    None => never_came(&[0], self.place, self.timeout, None),
                });
            }
            thread::sleep(POLL);
        }
    }

    /// Whether an attempt has begun.
    ///
    /// # Errors
    /// If the store fails.
    pub fn is_begun(&self, attempt: u64) -> Result<bool> {
        Ok(self.get(&begun(attempt))?.is_some())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let found = self.store.get(key);
        found.map_err(|text| lost(self.place, &text))
    }
}

fn begun(attempt: u64) -> String {
    format!("{attempt}/begun")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::distributed::{Hello, ProcessGroup, StoreServer, Waits, join};

    /// A rank as torchrun starts it.
    fn place(server: &StoreServer, rank: u32) -> Place {
        Place { is_restarted: true, ..server.place(rank, 2) }
    }

    fn start(server: &StoreServer, rank: u32, timeout: Duration) -> Result<ProcessGroup> {
        let hello = Hello { same: Vec::new() };
        join(place(server, rank), hello, Waits::for_timeout(timeout), || false)
    }

    /// A value that rank 0 gives both.
    fn shared(group: &ProcessGroup, value: u64) -> u64 {
        group.share("value", || Ok(value)).unwrap()
    }

    #[test]
    fn processes_that_are_started_again_meet_whoever_is_first() {
        const TIMEOUT: Duration = Duration::from_secs(60);
        let server = &StoreServer::start().unwrap();
        for attempt in 0..3 {
            let groups = thread::scope(|scope| {
                let mut ranks = [1, 0];
                ranks.rotate_left(attempt % 2);
                let threads = ranks.map(|rank| {
                    let started = scope.spawn(move || Arc::new(start(server, rank, TIMEOUT).unwrap()));
                    // The first one looks at the keys of the attempt before.
                    thread::sleep(4 * POLL);
                    started
                });
                threads.map(|thread| thread.join().unwrap())
            });
            let values = thread::scope(|scope| {
                let threads = groups.each_ref().map(|group| scope.spawn(|| shared(group, attempt as u64)));
                threads.map(|thread| thread.join().unwrap())
            });
            assert_eq!(values, [attempt as u64; 2]);
            // They end as if they were killed: no word, and their keys stay.
        }
    }

    #[test]
    fn a_rank_that_joined_an_attempt_of_dead_processes_joins_the_next_one() {
        const TIMEOUT: Duration = Duration::from_secs(60);
        let server = &StoreServer::start().unwrap();
        let place = place(server, 0);
        let store = Store::open(&place, None, TIMEOUT, TIMEOUT).unwrap();
        // Rank 0 has begun, and was killed before rank 1 came.
        assert_eq!(Attempts::new(&store, &place, TIMEOUT).find(0).unwrap(), 0);
        let [zero, one] = thread::scope(|scope| {
            let one = scope.spawn(|| start(server, 1, TIMEOUT).unwrap());
            thread::sleep(Duration::from_millis(300));
            let zero = scope.spawn(|| start(server, 0, TIMEOUT).unwrap());
            [zero, one].map(|thread| thread.join().unwrap())
        });
        thread::scope(|scope| {
            let other = scope.spawn(|| shared(&one, 0));
            assert_eq!([shared(&zero, 7), other.join().unwrap()], [7; 2]);
        });
    }

    #[test]
    fn two_processes_of_one_rank_are_an_error_that_names_the_other() {
        let server = &StoreServer::start().unwrap();
        let errors = thread::scope(|scope| {
            let threads = [0, 1, 1].map(|rank| {
                let started = scope.spawn(move || start(server, rank, Duration::from_secs(3)));
                thread::sleep(Duration::from_millis(300));
                started
            });
            threads.map(|thread| thread.join().unwrap().err().map(|error| error.to_string()))
        });
        assert_eq!([&errors[0], &errors[1]], [&None; 2]);
        let error = errors[2].as_ref().unwrap();
        assert!(error.contains("is rank 1 too: give each process another RANK"), "{error}");
    }
}
