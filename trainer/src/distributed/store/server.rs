//! The server of the store.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    greeting::{Failure, answer},
    request::{Request, VALUE_BYTES_MAX, Verb},
};
use crate::{
    Error, Result,
    distributed::{
        keys::{self, Departure, PREFIX, json},
        place::{LAUNCHER, Place, StoreOf},
        secret::{SECRET, Secret},
    },
};

/// A connection has so long for its greeting. A rank needs some milliseconds, and tries again.
const GREETING: Duration = Duration::from_secs(5);
/// Connections without a greeting, at most. Further ones are closed at once.
const STRANGERS_MAX: usize = 256;
/// Bytes of the stack of the thread of a connection.
const STACK_BYTES: usize = 256 << 10;
const KEY_BYTES_MAX: usize = 4096;

/// Serves the store as long as it lives.
#[derive(Debug)]
pub struct StoreServer {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    values: Mutex<HashMap<String, Vec<u8>>>,
    secret: Secret,
    is_closed: AtomicBool,
    strangers: AtomicUsize,
    /// The last connection that was refused, and why.
    refused: Mutex<Option<String>>,
}

impl StoreServer {
    /// Serves processes on this host, on a free port of the loopback interface's address, with a new secret: other users of the host reach
    /// the port too.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn start() -> Result<Self> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| Self::serve(listener, Secret::random()?))
            .map_err(|error| Error::Distributed(format!("the store of the workers cannot be served: {error}")))
    }

    /// Serves at the port of `place`: on the loopback interface if its host is a name of that, or else on all interfaces, because the
    /// other ranks may know this host by any of its addresses.
    pub(in crate::distributed) fn for_place(place: &Place) -> Result<Self> {
        let (host, port) = (place.store.0.as_str(), place.store.1);
        let is_loopback = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let listener = match is_loopback {
            true => TcpListener::bind((host, port)),
            // A host without IPv6 has the other one only.
            false => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
                }
                bound => bound,
            },
        };
        listener
            .and_then(|listener| Self::serve(listener, place.secret.clone()))
            .map_err(|error| {
                Error::Distributed(match error.kind() {
                    io::ErrorKind::AddrInUse => format!(
                        "port {port} is in use on this host, by another job or another process with RANK 0: choose another MASTER_PORT \
                         (torchrun: --master-port)"
                    ),
                    _ => format!("rank 0 cannot serve the store at {host}:{port}: {error}"),
                })
            })
    }

    fn serve(listener: TcpListener, secret: Secret) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            values: Mutex::default(),
            secret,
            is_closed: AtomicBool::new(false),
            strangers: AtomicUsize::new(0),
            refused: Mutex::default(),
        });
        let server = Self { shared: shared.clone(), address: listener.local_addr()? };
        thread::Builder::new().name("store server".into()).spawn(move || accept(&listener, &shared))?;
        Ok(server)
    }

    /// Tells the processes that one of them has ended, and why: the rest of a sentence that begins with the rank.
    pub fn announce(&self, rank: u32, reason: &str) {
        let departure = Departure { rank, is_stop: false, reason: reason.to_owned() };
        self.shared.serve(Request {
            verb: Verb::SetOnce,
            key: format!("{PREFIX}/0/{}", keys::LEFT),
            value: json(&departure),
        });
    }

    /// The place of a rank of `ranks` processes of this host, which meet here.
    pub fn place(&self, rank: u32, ranks: u32) -> Place {
        Place {
            rank,
            ranks,
            local_rank: rank,
            local_ranks: ranks,
            store: (self.address.ip().to_string(), self.port()),
            store_of: StoreOf::Workers,
            is_restarted: false,
            secret: self.shared.secret.clone(),
        }
    }

    /// The variables that give a process the place of a rank, as [`Place::from_environment`] reads them.
    pub fn variables(&self, rank: u32, ranks: u32) -> Vec<(&'static str, String)> {
        let secret = self.shared.secret.text();
        [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", ranks.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("LOCAL_WORLD_SIZE", ranks.to_string()),
            ("MASTER_ADDR", self.address.ip().to_string()),
            ("MASTER_PORT", self.port().to_string()),
            (LAUNCHER, process::id().to_string()),
            (SECRET, secret.to_owned()),
        ]
        .into()
    }

    /// The address at which this host reaches it.
    pub(super) fn own_address(&self) -> SocketAddr {
        match self.address.ip().is_unspecified() {
            // It may listen on IPv6 and IPv4 together, and a host can be without the former.
            true => (Ipv4Addr::LOCALHOST, self.port()).into(),
            false => self.address,
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The last connection that was refused, and why, if there was one.
    pub(in crate::distributed) fn refused(&self) -> Option<String> {
        lock(&self.shared.refused).clone()
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, SeqCst);
        // Wakes the thread. If it cannot be reached, it waits on: the process is about to end anyway.
        let _ = TcpStream::connect_timeout(&self.own_address(), Duration::from_millis(100));
    }
}

/// Starts a thread for each connection.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.is_closed.load(SeqCst) {
            return;
        }
        let Ok((stream, from)) = accepted else {
            // No descriptor is free, or the connection is gone.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        if shared.strangers.load(SeqCst) >= STRANGERS_MAX {
            shared.refuse(from, &format!("{STRANGERS_MAX} others had not greeted"));
            continue;
        }
        shared.strangers.fetch_add(1, SeqCst);
        let shared_by_thread = shared.clone();
        let started = thread::Builder::new()
            .name("store client".into())
            .stack_size(STACK_BYTES)
            .spawn(move || shared_by_thread.attend(&stream, from));
        if let Err(error) = started {
            shared.strangers.fetch_sub(1, SeqCst);
            shared.refuse(from, &error.to_string());
        }
    }
}

impl Shared {
    fn attend(&self, stream: &TcpStream, from: SocketAddr) {
        let greeted = answer(stream, &self.secret, Instant::now() + GREETING);
        self.strangers.fetch_sub(1, SeqCst);
        match greeted {
            Ok(()) => {}
            Err(Failure::Stranger) => {
                return self.refuse(from, "it is another program, or another version of this one");
            }
            Err(Failure::OtherSecret) => return self.refuse(from, &format!("it has another secret ({SECRET})")),
            Err(Failure::Io(error)) => return self.refuse(from, &format!("it did not greet: {error}")),
        }
        // The connection is closed, or the other end broke the protocol.
        let _ = self.converse(stream);
    }

    fn converse(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        stream.set_nodelay(true)?;
        while !self.is_closed.load(SeqCst) {
            let request = Request::read(stream)?;
            let value = self.serve(request);
            let mut reply = vec![u8::from(value.is_some())];
            let value = value.unwrap_or_default();
            reply.extend((value.len() as u32).to_le_bytes());
            reply.extend(value);
            (&mut &*stream).write_all(&reply)?;
        }
        Ok(())
    }

    fn serve(&self, request: Request) -> Option<Vec<u8>> {
        let mut values = lock(&self.values);
        match request.verb {
            Verb::Get => values.get(&request.key).cloned(),
            Verb::Set => {
                values.insert(request.key, request.value);
                None
            }
            Verb::SetOnce => Some(values.entry(request.key).or_insert(request.value).clone()),
            Verb::Delete => {
                values.remove(&request.key);
                None
            }
        }
    }

    fn refuse(&self, from: SocketAddr, why: &str) {
        *lock(&self.refused) = Some(format!("{from} was refused: {why}"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// ```text
// request    verb u8, bytes of the key u32, bytes of the value u32, key, value
// reply      1 if there is a value, else 0, u8; bytes of the value u32; value
// ```

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.verb as u8];
        bytes.extend((self.key.len() as u32).to_le_bytes());
        bytes.extend((self.value.len() as u32).to_le_bytes());
        bytes.extend(self.key.as_bytes());
        bytes.extend(&self.value);
        bytes
    }

    fn read(stream: &TcpStream) -> io::Result<Self> {
        let mut header = [0; 9];
        (&mut &*stream).read_exact(&mut header)?;
        let verbs = [Verb::Get, Verb::Set, Verb::SetOnce, Verb::Delete];
        let verb = verbs.into_iter().find(|verb| *verb as u8 == header[0]);
        let verb = verb.ok_or(io::ErrorKind::InvalidData)?;
        let key = read_bytes(stream, length(&header[1..5], KEY_BYTES_MAX)?)?;
        Ok(Self {
            verb,
            key: String::from_utf8(key).map_err(|_| io::ErrorKind::InvalidData)?,
            value: read_bytes(stream, length(&header[5..], VALUE_BYTES_MAX)?)?,
        })
    }
}

/// The length that four bytes say.
pub(super) fn length(bytes: &[u8], most: usize) -> io::Result<usize> {
    let length = u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize;
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(length)
}

/// Allocates memory for bytes as they come, not for a length that the other end only claims.
fn read_bytes(stream: &TcpStream, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}
