//! A connection to the store.

use std::{sync::Arc, time::Duration};

use super::{
    client,
    request::{Keys, Request, Verb, no_store},
    server::StoreServer,
    torchrun,
};
use crate::{
    Error, Result,
    distributed::place::{Place, StoreOf},
    shim::c10d,
};

/// A connection to the store. All keys have the same prefix. Clones share the connection.
#[derive(Debug, Clone)]
pub(in crate::distributed) struct Store {
    keys: Arc<dyn Keys>,
    prefix: String,
}

impl Store {
    /// Connects to the store of `place` within `join`, or to the store of this process. Later, each answer may take `silence`.
    pub fn open(place: &Place, own: Option<&StoreServer>, join: Duration, silence: Duration) -> Result<Self> {
        // A host may not know itself by the name that others know.
        let (host, port) =
            own.map_or_else(|| place.store.clone(), |server| (server.own_address().ip().to_string(), server.port()));
        let keys: Arc<dyn Keys> = match place.store_of {
            StoreOf::Torchrun => {
                Arc::new(torchrun::Connection::open(&host, port, join, silence).map_err(|failure| {
                    match failure.versions {
                        None => no_store(place, &failure.text, join),
                        Some(versions) => Error::Distributed(format!(
                            "rank {} does not understand the store of torchrun at {host}:{port}: {versions} ({})",
                            place.rank, failure.text
                        )),
                    }
                })?)
            }
            StoreOf::FirstRank | StoreOf::Workers => Arc::new(
                client::Connection::open(&host, port, &place.secret, join, silence)
                    .map_err(|refusal| refusal.error(place, join))?,
            ),
        };
        Ok(Self { keys, prefix: String::new() })
    }

    /// The same connection, with `prefix/` before all keys.
    pub fn within(&self, prefix: &str) -> Self {
        Self { keys: self.keys.clone(), prefix: format!("{}{prefix}/", self.prefix) }
    }

    /// The value of a key, if it has one.
    pub fn get(&self, key: &str) -> c10d::Result<Option<Vec<u8>>> {
        self.ask(Verb::Get, key, &[])
    }

    /// Sets a key.
    pub fn set(&self, key: &str, value: &[u8]) -> c10d::Result<()> {
        self.ask(Verb::Set, key, value).map(|_| ())
    }

    /// Sets a key that has no value yet. Returns the value that it then has: this one, or the earlier one.
    pub fn set_once(&self, key: &str, value: &[u8]) -> c10d::Result<Vec<u8>> {
        self.ask(Verb::SetOnce, key, value).map(Option::unwrap_or_default)
    }

    /// Deletes a key.
    pub fn delete(&self, key: &str) -> c10d::Result<()> {
        self.ask(Verb::Delete, key, &[]).map(|_| ())
    }

    fn ask(&self, verb: Verb, key: &str, value: &[u8]) -> c10d::Result<Option<Vec<u8>>> {
        self.keys.ask(Request { verb, key: format!("{}{key}", self.prefix), value: value.to_owned() })
    }
}

impl c10d::Keys for Store {
    fn set(&self, key: &str, value: &[u8]) -> c10d::Result<()> {
        self.set(key, value)
    }

    fn get(&self, key: &str) -> c10d::Result<Option<Vec<u8>>> {
        self.get(key)
    }
}
