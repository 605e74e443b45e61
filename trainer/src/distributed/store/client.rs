//! A connection to the store of rank 0, or of the launcher of --workers.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    greeting::{self, greet},
    request::{Keys, Request, VALUE_BYTES_MAX, no_store},
    server::length,
    timed::{in_time, read_until, write_until},
};
use crate::{
    Error,
    distributed::{
        place::Place,
        secret::{SECRET, Secret},
    },
    shim::c10d,
};

/// The longest try to connect. A process that was started again elsewhere has another address, and connecting to an address that nobody
/// has takes the system minutes.
const TRY: Duration = Duration::from_secs(10);
/// The pause before the next one.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Connection {
    /// None after an error.
    stream: Mutex<Option<TcpStream>>,
    at: String,
    timeout: Duration,
}

#[derive(Debug)]
pub(super) enum Refusal {
    /// Nobody listens, or the host cannot be reached.
    Unreachable(String),
    /// Somebody accepts connections and says nothing.
    Silent,
    /// Somebody who does not know the greeting.
    Stranger,
    OtherSecret,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(error.to_string())
    }
}

impl Connection {
    /// Connects within `join`, at `host:port`. Later, each answer may take `silence`.
    pub(super) fn open(
        host: &str,
        port: u16,
        secret: &Secret,
        join: Duration,
        silence: Duration,
    ) -> Result<Self, Refusal> {
        let until = Instant::now() + join;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match connect(host, port, secret, left.min(TRY)) {
                Ok(stream) => {
                    return Ok(Self {
                        stream: Mutex::new(Some(stream)),
                        at: format!("{host}:{port}"),
                        timeout: silence,
                    });
                }
                Err(Refusal::OtherSecret) => return Err(Refusal::OtherSecret),
                // A shorter try would fail for its shortness.
                Err(refusal) if until < Instant::now() + 2 * PAUSE => return Err(refusal),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}

fn connect(host: &str, port: u16, secret: &Secret, time: Duration) -> Result<TcpStream, Refusal> {
    let until = Instant::now() + time;
    let name = host.to_owned();
    // The resolver has timeouts of its own.
    let found = in_time(time, "resolve", move || (name.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    let addresses = found?;
    let addresses =
        addresses.unwrap_or_else(|| Err(io::Error::other("the name of the host is not resolved in time")))?;
    let mut last = Refusal::Unreachable("the host has no address".to_owned());
    for (tried, address) in addresses.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        let share = left / (addresses.len() - tried) as u32;
        let refusal = match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Err(error) => error.into(),
            Ok(stream) => match stream
                .set_nodelay(true)
                .map_err(greeting::Failure::Io)
                .and_then(|()| greet(&stream, secret, Instant::now() + share))
            {
                Ok(()) => return Ok(stream),
                Err(greeting::Failure::OtherSecret) => return Err(Refusal::OtherSecret),
                Err(greeting::Failure::Io(error)) if error.kind() == io::ErrorKind::TimedOut => Refusal::Silent,
                // It closed the connection, as programs do that do not understand the greeting.
                Err(greeting::Failure::Stranger | greeting::Failure::Io(_)) => Refusal::Stranger,
            },
        };
        // A host can have several addresses, and what was found at one explains more than that nobody is at another.
        if matches!(last, Refusal::Unreachable(_)) {
            last = refusal;
        }
    }
    Err(last)
}

impl Keys for Connection {
    fn ask(&self, request: Request) -> c10d::Result<Option<Vec<u8>>> {
        if request.value.len() > VALUE_BYTES_MAX {
            return Err(format!("{} has too long a value for the store", request.key));
        }
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + self.timeout;
        let answer = match &*stream {
            Some(stream) => exchange(stream, &request, until),
            None => return Err(format!("the connection to the store at {} is lost", self.at)),
        };
        answer.map_err(|error| {
            // The rest of an answer may still come.
            *stream = None;
            match error.kind() {
                io::ErrorKind::TimedOut => {
                    format!("the store at {} does not answer for {} s", self.at, self.timeout.as_secs_f64())
                }
                io::ErrorKind::UnexpectedEof => format!("the store at {} closed the connection", self.at),
                _ => format!("the store at {}: {error}", self.at),
            }
        })
    }
}

fn exchange(stream: &TcpStream, request: &Request, until: Instant) -> io::Result<Option<Vec<u8>>> {
    write_until(stream, &request.encode(), until)?;
    let mut header = [0; 5];
    read_until(stream, &mut header, until)?;
    let mut value = vec![0; length(&header[1..], VALUE_BYTES_MAX)?];
    read_until(stream, &mut value, until)?;
    Ok((header[0] == 1).then_some(value))
}

impl Refusal {
    /// The error of a rank that was refused for all of `join`.
    pub(super) fn error(self, place: &Place, join: Duration) -> Error {
        let (host, port) = &place.store;
        let (rank, seconds) = (place.rank, join.as_secs_f64());
        Error::Distributed(match self {
            Self::Unreachable(text) => return no_store(place, &text, join),
            Self::Silent => format!(
                "rank {rank} got no answer from {host}:{port} within {seconds} s (--join-timeout), although the port accepts connections: \
                 {} is stopped or overloaded, or another program has the port; choose another MASTER_PORT then",
                place.store_of
            ),
            Self::Stranger => format!(
                "rank {rank} met a stranger at {host}:{port}, for {seconds} s (--join-timeout): it does not greet as {} does, so another \
                 program has the port, or another version of this one; MASTER_ADDR and MASTER_PORT must name a free port of the host of \
                 rank 0",
                place.store_of
            ),
            Self::OtherSecret => format!(
                "rank {rank} and {} at {host}:{port} have different secrets: give all ranks the same {SECRET}, or none",
                place.store_of
            ),
        })
    }
}
