//! A connection to the TCPStore of torchrun.
//!
//! c10d's client blocks until it has an answer, for ever if the other end accepts connections and stays silent. So a thread uses it,
//! which is left behind if an answer takes too long.
//!
//! The protocol belongs to a version of PyTorch. The error about a store that does not answer names the version of torchrun if it is
//! another version than libtorch here, and comes soon.

use std::{
    fs,
    os::unix::process::parent_id,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use super::{
    request::{Keys, Request, Verb},
    timed::in_time,
};
use crate::{runtime::libtorch_version, shim::c10d};

/// Time for c10d to notice by itself that its time is over.
const GRACE: Duration = Duration::from_millis(500);
/// How long to wait for a torchrun of another version. Its store is there before it starts a process.
const OTHER_VERSION: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Connection {
    requests: Mutex<Sender<Asked>>,
    timeout: Duration,
    at: String,
    /// What to say about versions if the store fails.
    versions: Option<String>,
}

#[derive(Debug)]
pub(super) struct Failure {
    /// The versions of torchrun and of libtorch here with a remedy, if they differ.
    pub versions: Option<String>,
    pub text: String,
}

/// A request, and where the reply goes.
type Asked = (Request, Sender<c10d::Result<Option<Vec<u8>>>>);

impl Connection {
    /// Connects within `join`. Later, each answer may take `silence`.
    pub(super) fn open(host: &str, port: u16, join: Duration, silence: Duration) -> Result<Self, Failure> {
        let versions = other_version().map(|other| {
            let own = libtorch_version();
            format!(
                "torchrun is from PyTorch {other}, and libtorch here is {own}: use the torchrun of PyTorch {own} (pip install \
                 torch=={own}), or `grappa-train --workers N` on one host"
            )
        });
        let join = match versions {
            Some(_) => join.min(OTHER_VERSION),
            None => join,
        };
        match Self::connect(host, port, join, silence) {
            Ok(connection) => Ok(Self { versions, ..connection }),
            Err(text) => Err(Failure { versions, text }),
        }
    }

    fn connect(host: &str, port: u16, join: Duration, silence: Duration) -> c10d::Result<Self> {
        c10d::log_fatal_only();
        let name = host.to_owned();
        let opened = in_time(join + GRACE, "store", move || c10d::Store::open(&name, port, join, silence));
        let no_thread = |error| format!("no thread to connect: {error}");
        let Some(store) = opened.map_err(no_thread)? else {
            return Err("the port accepts connections, and nobody answers: torchrun is stopped, or another program has the port".into());
        };
        let (store, (requests, received)) = (store?, channel());
        let started = thread::Builder::new().name("store".into()).spawn(move || serve(&store, &received));
        started.map_err(no_thread)?;
        Ok(Self { requests: Mutex::new(requests), timeout: silence, at: format!("{host}:{port}"), versions: None })
    }
}

impl Keys for Connection {
    fn ask(&self, request: Request) -> c10d::Result<Option<Vec<u8>>> {
        let (reply, replied) = channel();
        let _ = self.requests.lock().unwrap_or_else(PoisonError::into_inner).send((request, reply));
        match replied.recv_timeout(self.timeout) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "torchrun's store at {} does not answer for {} s{}",
                self.at,
                self.timeout.as_secs_f64(),
                self.versions.as_ref().map_or_else(String::new, |versions| format!("; {versions}"))
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

/// The version of the PyTorch of the process that started this one, if it differs from the version of libtorch here.
fn other_version() -> Option<String> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", parent_id())).ok()?;
    let version = fs::read_to_string(torch_in(&maps)?.join("version.py")).ok()?;
    let version = version_in(&version)?;
    // `2.11.0+cu130` is 2.11.0 with other libraries.
    (version.split('+').next() != Some(&libtorch_version())).then_some(version)
}

/// The folder of the PyTorch whose libraries a process has mapped.
fn torch_in(maps: &str) -> Option<PathBuf> {
    let library = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        path.ends_with("/torch/lib/libtorch_cpu.so").then_some(path)
    })?;
    Path::new(library).ancestors().nth(2).map(Path::to_owned)
}

/// The version that PyTorch's `version.py` assigns.
fn version_in(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(value.trim_matches(|quote| matches!(quote, '\'' | '"')).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_process_is_found_by_its_libraries() {
        let maps = "7f00-7f01 r--p 0 08:01 5 /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 08:01 7      /a b/torch/lib/libtorch_cpu.so\n";
        assert_eq!(torch_in(maps).as_deref(), Some(Path::new("/a b/torch")));
        assert_eq!(torch_in("7f00-7f01 r--p 0 08:01 5 /usr/lib/libc.so.6\n7f02-7f03 rw-p 0 0 0\n"), None);
        let version = "from typing import Optional\n__all__ = []\n__version__ = '2.9.1+cu128'\ndebug = False\n";
        assert_eq!(version_in(version).as_deref(), Some("2.9.1+cu128"));
    }
}
