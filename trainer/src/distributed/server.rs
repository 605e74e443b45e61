//! The store of a launcher.

use std::time::Duration;

use super::{
    json, prefix,
    watch::{self, Departure},
};
use crate::{Error, Result, shim::c10d};

/// Serves the store for processes on this host, as long as it lives.
#[derive(Debug)]
pub struct StoreServer(c10d::Store);

impl StoreServer {
    /// Starts to serve on a free port of the loopback interface's address.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn start() -> Result<Self> {
        c10d::log_fatal_only();
        let store = c10d::Store::open("127.0.0.1", 0, true, Duration::from_secs(30), &prefix(0));
        store
            .map(Self)
            .map_err(|text| Error::Distributed(format!("the store of the workers cannot be served: {text}")))
    }

    /// Tells the processes that one of them has ended, and why: the rest of a sentence that begins with the rank.
    pub fn announce(&self, rank: u32, reason: &str) {
        let departure = Departure {
            rank,
            is_stop: false,
            reason: reason.to_owned(),
        };
        // They notice by themselves, too.
        let _ = self.0.set_once(watch::LEFT, &json(&departure));
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}
