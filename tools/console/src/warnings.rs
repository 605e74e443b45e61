//! Warnings for a caller that is not a terminal.

use std::{
    io::{self, Write},
    mem,
    sync::{Mutex, PoisonError},
};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on, warnings wait for [`take_warnings`]. Does nothing if this process shows them already.
pub fn keep_warnings() {
    let kept = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .with_target(false)
        .with_writer(|| Kept)
        .try_init();
    // Another subscriber shows them.
    drop(kept);
}

/// The warnings since the last call, oldest first.
pub fn take_warnings() -> Vec<String> {
    mem::take(&mut *WARNINGS.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An event is one call.
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
