//! stderr and stdout while a progress bar is drawn: lines appear above it.

use std::{
    io::{self, Write},
    sync::LazyLock,
};

use grappa_io::text::printable;
use indicatif::MultiProgress;

use crate::{log, terminal};

/// All output to stderr goes through this. Otherwise bars and log lines would overwrite each other.
pub(crate) static SCREEN: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(terminal::on_stderr()));

pub(crate) fn clear() {
    let _ = SCREEN.clear();
}

/// Prints a line on stderr, above the progress bar.
pub(crate) fn eprint_line(line: &str) {
    if let Some(line) = log::shown(line, true) {
        // In one call, because several processes may write to the same terminal. An error cannot be reported if stderr
        // is closed.
        above(|| {
            let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
        });
    }
}

/// Runs `write` while the bar is not drawn, so that its output to stdout or stderr is not mixed with it.
pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    SCREEN.suspend(write)
}

/// The destination of the log: stderr, above the bars.
#[derive(Default)]
pub(crate) struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The log writes each event in one call, with a line end.
        let text = String::from_utf8_lossy(bytes);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = printable(line);
        if let Some(line) = log::shown(&line, line.trim_start().starts_with("ERROR")) {
            above(|| io::stderr().write_all(format!("{line}\n").as_bytes()))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
