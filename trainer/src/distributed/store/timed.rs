//! Work that takes at most a given time.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// Starts `work` on a thread. If it takes too long for its caller, the thread is left behind: `work` may be blocked for ever.
pub(in crate::distributed) fn aside<T: Send + 'static>(
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
pub(super) fn in_time<T: Send + 'static>(
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
pub(super) fn read_until(mut stream: &TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
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
pub(super) fn write_until(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
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
