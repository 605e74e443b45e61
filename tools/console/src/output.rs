//! Printing results and errors. The reader of stdout may close it early. An error names each of its causes once.

use std::io::{self, Write};

use anyhow::Context;
use grappa_io::text::printable;

use crate::{bars, terminal};

/// The reader of stdout closed it. It is wrapped in an [`io::Error`], to be distinguished from a broken pipe elsewhere.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed by its reader")]
pub struct StdoutClosed;

/// Buffered stdout for long outputs. [`run`](crate::run) takes its broken pipe for success. What is written to a terminal
/// that was closed is lost. Flush it: an error on drop is lost.
pub fn stdout() -> io::BufWriter<impl Write> {
    io::BufWriter::with_capacity(64 << 10, MarkClosed(io::stdout()))
}

/// Prints a line on stdout, above the progress bar.
///
/// # Errors
/// If writing to stdout fails.
pub fn print_line(line: &str) -> anyhow::Result<()> {
    bars::above(|| {
        let mut stdout = stdout();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush())
    })
    .context("cannot write to stdout")
}

struct MarkClosed<W>(W);

impl<W: Write> Write for MarkClosed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if terminal::was_closed(&error) => Ok(bytes.len()),
            written => written.map_err(mark),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if terminal::was_closed(&error) => Ok(()),
            flushed => flushed.map_err(mark),
        }
    }
}

fn mark(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        io::Error::new(io::ErrorKind::BrokenPipe, StdoutClosed)
    } else {
        error
    }
}

/// Whether the error is a closed stdout.
pub(crate) fn stdout_was_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .is_some_and(|inner| inner.is::<StdoutClosed>())
    })
}

/// The error and its causes, joined by colons. A cause whose text the message already contains is left out. File names and
/// input in the message cannot send escape sequences to the terminal.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    printable(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use grappa_io::{Error, Position};

    use super::*;

    struct BrokenPipe;

    impl Write for BrokenPipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_names_each_cause_once() {
        let error = Error::io("open", "a.tsv")(io::Error::from_raw_os_error(2));
        let error = anyhow::Error::from(error).context("reading edges");
        assert_eq!(
            one_line(&error),
            "reading edges: cannot open a.tsv: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn names_and_input_in_an_error_cannot_act_on_the_terminal() {
        let error = Error::input("a\x1b]0;b\x07\n.tsv", Position::Line(3), "found \x1b[2J");
        assert_eq!(one_line(&error.into()), "a\\u{1b}]0;b\\u{7}\\n.tsv:3: found \\u{1b}[2J");
    }

    #[test]
    fn a_reader_who_leaves_is_recognized_through_the_engines_errors() {
        let pipe = MarkClosed(BrokenPipe).write(b"x").unwrap_err();
        let error = anyhow::Error::from(Error::io("write", "-")(pipe)).context("exporting");
        assert!(stdout_was_closed(&error));
    }

    #[test]
    fn a_broken_pipe_elsewhere_is_a_failure() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!stdout_was_closed(&error));
    }
}
