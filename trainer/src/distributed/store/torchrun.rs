//! A connection to the TCPStore of torchrun.
//!
//! c10d's client blocks until it has an answer, for ever if the other end accepts connections and stays silent. So a thread uses it,
//! which is left behind if an answer takes too long.

use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use super::{Keys, Request, Verb};
use crate::shim::c10d;

/// Time for c10d to notice by itself that its time is over.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Connection {
    requests: Mutex<Sender<Asked>>,
    timeout: Duration,
    at: String,
}

/// A request, and where the reply goes.
type Asked = (Request, Sender<c10d::Result<Option<Vec<u8>>>>);

impl Connection {
    /// Connects within `join`. Later, each answer may take `silence`.
    pub(super) fn open(host: &str, port: u16, join: Duration, silence: Duration) -> c10d::Result<Self> {
        c10d::log_fatal_only();
        let (requests, received) = channel();
        let (send, opened) = channel();
        let name = host.to_owned();
        let run = move || match c10d::Store::open(&name, port, join, silence) {
            Ok(store) => {
                let _ = send.send(Ok(()));
                serve(&store, &received);
            }
            Err(text) => {
                let _ = send.send(Err(text));
            }
        };
        let started = thread::Builder::new().name("store".into()).spawn(run);
        started.map_err(|error| format!("no thread to connect: {error}"))?;
        match opened.recv_timeout(join + GRACE) {
            Ok(opened) => opened?,
            Err(_) => {
                return Err("the port accepts connections, and nobody answers: torchrun is stopped, or another program has the port".into());
            }
        }
        Ok(Self {
            requests: Mutex::new(requests),
            timeout: silence,
            at: format!("{host}:{port}"),
        })
    }
}

impl Keys for Connection {
    fn ask(&self, request: Request) -> c10d::Result<Option<Vec<u8>>> {
        let (reply, replied) = channel();
        {
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = requests.send((request, reply));
        }
        match replied.recv_timeout(self.timeout) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "torchrun's store at {} does not answer for {} s",
                self.at,
                self.timeout.as_secs_f64()
            )),
            Err(RecvTimeoutError::Disconnected) => Err(format!("torchrun's store at {} is closed", self.at)),
        }
    }
}

/// Passes requests on, until there is nobody to make them.
fn serve(store: &c10d::Store, requests: &Receiver<Asked>) {
    for (request, reply) in requests {
        let result = match request.verb {
            Verb::Get => store.get(&request.key),
            Verb::Set => store.set(&request.key, &request.value).map(|()| None),
            Verb::SetOnce => store.set_once(&request.key, &request.value).map(Some),
            Verb::Delete => store.delete(&request.key).map(|()| None),
        };
        // Nobody waits for the reply any more if it took too long.
        let _ = reply.send(result);
    }
}
