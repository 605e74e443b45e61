//! Requests to the store.

use std::{fmt, time::Duration};

use crate::{Error, distributed::place::Place, shim::c10d};

pub(super) const VALUE_BYTES_MAX: usize = 8 << 20;

/// The end of a connection on this side. `Err` has the reason, as a text.
pub(super) trait Keys: fmt::Debug + Send + Sync {
    /// The value of the key after the request; none if it has no value, or nobody wants to know it.
    fn ask(&self, request: Request) -> c10d::Result<Option<Vec<u8>>>;
}

#[derive(Debug)]
pub(super) struct Request {
    pub verb: Verb,
    pub key: String,
    /// Empty unless the request sets the key.
    pub value: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Set,
    /// Sets a key that has no value, and returns the value that it then has.
    SetOnce,
    Delete,
}

/// The error of a rank that does not reach the store of `place`.
pub(super) fn no_store(place: &Place, text: &str, join: Duration) -> Error {
    let (host, port) = &place.store;
    Error::Distributed(format!(
        "rank {} found no store at {host}:{port} within {} s (--join-timeout): {} must run there, and MASTER_ADDR and MASTER_PORT must be \
         the same for all ranks ({text})",
        place.rank,
        join.as_secs_f64(),
        place.store_of
    ))
}
