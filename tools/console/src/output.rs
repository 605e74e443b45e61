//! Printing results and errors. The reader of stdout may close it early. A terminal on stdout gets no control characters. An
//! error names each of its causes once.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use grappa_io::text::printable;

use crate::{screen, terminal};

/// The reader of stdout closed it. It is wrapped in an [`io::Error`], to be distinguished from a broken pipe elsewhere.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed by its reader")]
pub struct StdoutClosed;

/// Buffered stdout for long outputs. [`run`](crate::run) takes its broken pipe for success. What is written to a terminal
/// that was closed is lost. Flush it: an error on drop is lost.
///
/// On a terminal, characters that act on it are escaped: ids and names may have any bytes. Tabs and line ends stay. A file or
/// a program gets the bytes.
pub fn stdout() -> io::BufWriter<impl Write> {
    let stdout = io::stdout();
    let out = Out { is_terminal: stdout.is_terminal(), out: MarkClosed(stdout), rest: Vec::new() };
    io::BufWriter::with_capacity(64 << 10, out)
}

/// Prints a line on stdout, above the progress bar.
///
/// # Errors
/// If writing to stdout fails.
pub fn print_line(line: &str) -> anyhow::Result<()> {
    screen::above(|| {
        let mut stdout = stdout();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush())
    })
    .context("cannot write to stdout")
}

struct Out<W> {
    out: W,
    is_terminal: bool,
    /// The beginning of a line that is not complete, on a terminal.
    rest: Vec<u8>,
}

impl<W: Write> Out<W> {
    /// Writes the first `end` bytes of `rest`, escaped.
    fn write_escaped(&mut self, end: usize) -> io::Result<()> {
        let bytes: Vec<u8> = self.rest.drain(..end).collect();
        for piece in String::from_utf8_lossy(&bytes).split_inclusive(['\n', '\t']) {
            let text = piece.trim_end_matches(['\n', '\t']);
            self.out.write_all(printable(text).as_bytes())?;
            self.out.write_all(&piece.as_bytes()[text.len()..])?;
        }
        Ok(())
    }
}

impl<W: Write> Write for Out<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.out.write(bytes);
        }
        self.rest.extend_from_slice(bytes);
        // A character may be cut at the end of `bytes`, but none contains a line feed.
        if let Some(last) = self.rest.iter().rposition(|&byte| byte == b'\n') {
            self.write_escaped(last + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_escaped(self.rest.len())?;
        self.out.flush()
    }
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
        cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<StdoutClosed>())
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
        assert_eq!(one_line(&error), "reading edges: cannot open a.tsv: No such file or directory (os error 2)");
    }

    #[test]
    fn names_and_input_in_an_error_cannot_act_on_the_terminal() {
        let error = Error::input("a\x1b]0;b\x07\n.tsv", Position::Line(3), "found \x1b[2J");
        assert_eq!(one_line(&error.into()), "a\\u{1b}]0;b\\u{7}\\n.tsv:3: found \\u{1b}[2J");
    }

    #[test]
    fn a_terminal_gets_no_control_characters_and_others_get_the_bytes() {
        let text = "a\x1b[2J\tb\n\u{9b}31m\u{e9}\r\n\x07";
        for (is_terminal, shown) in [(true, "a\\u{1b}[2J\tb\n\\u{9b}31m\u{e9}\\r\n\\u{7}"), (false, text)] {
            let (out, rest) = (Vec::new(), Vec::new());
            let mut out = Out { out, is_terminal, rest };
            // One byte at a time, so characters are cut.
            text.as_bytes().iter().for_each(|&byte| out.write_all(&[byte]).unwrap());
            out.flush().unwrap();
            assert_eq!(String::from_utf8(out.out).unwrap(), shown);
        }
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
