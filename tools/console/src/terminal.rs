//! The terminal of the program, which may be closed while it runs: a connection ends, or its window is closed.
//!
//! A program that goes on without its terminal, because it ignores SIGHUP or writes a checkpoint, loses its output and nothing
//! else.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::FileTypeExt},
};

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

/// Redraws per second, at most.
const REDRAWS: u8 = 20;
/// EIO: what writing to a terminal returns when it is closed.
const CLOSED: i32 = 5;

/// Draws on stderr if it is a terminal.
pub fn on_stderr() -> ProgressDrawTarget {
    match ProgressDrawTarget::stderr() {
        hidden if hidden.is_hidden() => hidden,
        _ => ProgressDrawTarget::term_like_with_hz(Box::new(Stderr(Term::buffered_stderr())), REDRAWS),
    }
}

/// Whether `error`, of writing to stdout, says that it is a terminal that was closed.
pub fn was_closed(error: &io::Error) -> bool {
    if error.raw_os_error() != Some(CLOSED) {
        return false;
    }
    let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let metadata = file.and_then(|file| file.metadata());
    metadata.is_ok_and(|metadata| metadata.file_type().is_char_device())
}

/// The terminal on stderr. What cannot be drawn is lost. [`indicatif`] panics at an error.
#[derive(Debug)]
struct Stderr(Term);

/// Takes what could not be done for done.
fn lossy(_: io::Result<()>) -> io::Result<()> {
    Ok(())
}

impl TermLike for Stderr {
    fn width(&self) -> u16 {
        TermLike::width(&self.0)
    }

    fn height(&self) -> u16 {
        TermLike::height(&self.0)
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        lossy(self.0.move_cursor_up(lines))
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        lossy(self.0.move_cursor_down(lines))
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        lossy(self.0.move_cursor_right(columns))
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        lossy(self.0.move_cursor_left(columns))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        lossy(self.0.write_line(text))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        lossy(self.0.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        lossy(self.0.clear_line())
    }

    fn flush(&self) -> io::Result<()> {
        lossy(self.0.flush())
    }
}
