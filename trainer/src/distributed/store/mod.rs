//! The key-value store in which ranks find each other.
//!
//! ```text
//! rank 0, or the launcher of --workers     serves it (`server`)
//! each rank                                has a connection to it (`client`)
//! torchrun                                 serves a TCPStore of PyTorch instead (`torchrun`)
//! ```
//!
//! A connection begins with a greeting (`greeting`), by which both ends show that they are of this program and know the same secret. A
//! stranger gets no further. It cannot delay others either: each connection has a thread of its own.
//!
//! No call waits longer than its time for the other end, which may be stopped, cut off, or another program.

mod client;
mod greeting;
mod secret;
mod server;
#[cfg(test)]
mod tests;
mod torchrun;

use std::{
    fmt,
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

pub use self::{
    secret::{SECRET, Secret},
    server::StoreServer,
};
use super::{Place, place::StoreOf};
use crate::{Error, Result, shim::c10d};

/// The longest value.
const VALUE_BYTES_MAX: usize = 8 << 20;

/// A connection to the store. All keys have the same prefix. Clones share the connection.
#[derive(Debug, Clone)]
pub(super) struct Store {
    keys: Arc<dyn Keys>,
    prefix: String,
}

/// The end of a connection on this side. `Err` has the reason, as a text.
trait Keys: fmt::Debug + Send + Sync {
    /// The value of the key after the request; none if it has no value, or nobody wants to know it.
    fn ask(&self, request: Request) -> c10d::Result<Option<Vec<u8>>>;
}

/// A request to the store.
#[derive(Debug)]
struct Request {
    verb: Verb,
    key: String,
    /// Empty unless the request sets the key.
    value: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Set,
    /// Sets a key that has no value, and returns the value that it then has.
    SetOnce,
    Delete,
}

impl Store {
    /// Connects to the store of `place` within `join`, or to that of this process. Later, each answer may take `silence`.
    ///
    /// # Errors
    /// If the store cannot be reached or does not answer in time, or the other end has another secret.
    pub(super) fn open(place: &Place, own: Option<&StoreServer>, join: Duration, silence: Duration) -> Result<Self> {
        // A host may not know itself by the name that others know.
        let (host, port) = own.map_or_else(
            || place.store.clone(),
            |server| (server.own_address().ip().to_string(), server.port()),
        );
        let keys: Arc<dyn Keys> = match place.store_of {
            StoreOf::Torchrun => Arc::new(torchrun::Connection::open(&host, port, join, silence).map_err(
                |failure| match failure.versions {
                    None => no_store(place, &failure.text, join),
                    Some(versions) => Error::Distributed(format!(
                        "rank {} does not understand the store of torchrun at {host}:{port}: {versions} ({})",
                        place.rank, failure.text
                    )),
                },
            )?),
            StoreOf::FirstRank | StoreOf::Workers => Arc::new(
                client::Connection::open(&host, port, &place.secret, join, silence)
                    .map_err(|refusal| refusal.error(place, join))?,
            ),
        };
        Ok(Self {
            keys,
            prefix: String::new(),
        })
    }

    /// The same connection, with `prefix/` before all keys.
    pub(super) fn within(&self, prefix: &str) -> Self {
        Self {
            keys: self.keys.clone(),
            prefix: format!("{}{prefix}/", self.prefix),
        }
    }

    /// The value of a key, if it has one.
    pub(super) fn get(&self, key: &str) -> c10d::Result<Option<Vec<u8>>> {
        self.ask(Verb::Get, key, &[])
    }

    /// Sets a key.
    pub(super) fn set(&self, key: &str, value: &[u8]) -> c10d::Result<()> {
        self.ask(Verb::Set, key, value).map(|_| ())
    }

    /// Sets a key that has no value yet. Returns the value that it then has: this one, or the earlier one.
    pub(super) fn set_once(&self, key: &str, value: &[u8]) -> c10d::Result<Vec<u8>> {
        self.ask(Verb::SetOnce, key, value).map(Option::unwrap_or_default)
    }

    /// Deletes a key.
    pub(super) fn delete(&self, key: &str) -> c10d::Result<()> {
        self.ask(Verb::Delete, key, &[]).map(|_| ())
    }

    fn ask(&self, verb: Verb, key: &str, value: &[u8]) -> c10d::Result<Option<Vec<u8>>> {
        self.keys.ask(Request {
            verb,
            key: format!("{}{key}", self.prefix),
            value: value.to_owned(),
        })
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

/// Starts `work` on a thread. If it takes too long for its caller, the thread is left behind: `work` may be blocked for ever.
///
/// # Errors
/// If there is no thread.
pub(super) fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (send, done) = channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // The caller may have given up.
        let _ = send.send(work());
    })?;
    Ok(done)
}

/// The result of `work` on another thread, if it comes within `time`.
///
/// # Errors
/// If there is no thread.
fn in_time<T: Send + 'static>(
    time: Duration,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    match aside(name, work)?.recv_timeout(time) {
        Ok(done) => Ok(Some(done)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other(format!("the thread `{name}` panicked"))),
    }
}

/// Fills `bytes` from a connection, until a moment at the latest.
fn read_until(mut stream: &TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes = &mut bytes[read..],
            Err(error) if is_to_repeat(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes `bytes` to a connection, until a moment at the latest.
fn write_until(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_to_repeat(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Time until a moment.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left < Duration::from_millis(1) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Whether a system call ended early: by a signal, or by the timeout of the socket.
fn is_to_repeat(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}
