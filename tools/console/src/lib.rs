//! What every Grappa program shows a person, so that all of them look and behave alike.
//!
//! A program's `main` is one call of [`run`]; its options flatten [`Args`]; what it does reports to a [`Bars`]; and it
//! ends with [`Console::finish`]:
//!
//! ```no_run
//! # use clap::Parser;
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     console: grappa_console::Args,
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     grappa_console::run(|| {
//!         let cli = Cli::parse();
//!         let console = cli.console.open();
//!         let bars = console.bars();
//!         // ... hand `&bars` to the engine, then `console.finish(&summary)` ...
//!         Ok(())
//!     })
//! }
//! ```
//!
//! What goes where: results on stdout, everything about how it is going on stderr. With `--json`, stdout carries exactly
//! one JSON object, at the end, and only if all went well. Exit codes: 0 done, 1 failed, 2 wrong usage (clap's), 130 and 143 stopped by SIGINT and
//! SIGTERM ([`signals`]).
//!
//! Nothing here knows what a graph is, beyond counting edges.

#![forbid(unsafe_code)]

mod bars;
mod output;
mod processor;
pub mod signals;
mod summary;

use std::process::ExitCode;

pub use bars::Bars;
use grappa_io::{heap::Heap, text::printable_lines};
pub use grappa_io::{
    machine::{free_memory_bytes, peak_rss_bytes},
    size::{ByteSize, ByteSizeError, count, duration},
    text::printable,
};
pub use output::{StdoutClosed, print_line, stdout};
pub use summary::{Built, Summary};

/// Where memory is refused, a program ends with a line on stderr, and not with a signal.
#[global_allocator]
static HEAP: Heap = Heap;

const HEADING: &str = "Messages";

/// The options that every program has.
#[derive(Debug, Clone, Copy, clap::Args)]
// clap names a group after the struct, and a program's own options may well be called `Args` too.
#[group(skip)]
pub struct Args {
    /// Show no progress, no summary and no warnings
    #[arg(long, short, global = true, help_heading = HEADING)]
    quiet: bool,
    /// Print the result as one JSON object on stdout
    #[arg(long, global = true, help_heading = HEADING)]
    json: bool,
    /// Write a log to stderr; -vv and -vvv log more
    #[arg(
        long,
        short,
        global = true,
        help_heading = HEADING,
        action = clap::ArgAction::Count,
        conflicts_with = "quiet"
    )]
    verbose: u8,
}

impl Args {
    /// Starts to log as the options say.
    ///
    /// # Panics
    /// If called twice in one process.
    pub fn open(&self) -> Console {
        let level = match self.verbose {
            0 if self.quiet => tracing::Level::ERROR,
            0 => tracing::Level::WARN,
            1 => tracing::Level::INFO,
            2 => tracing::Level::DEBUG,
            _ => tracing::Level::TRACE,
        };
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_target(level > tracing::Level::INFO)
            .with_writer(bars::AboveBars::default)
            .init();
        Console {
            quiet: self.quiet,
            json: self.json,
        }
    }
}

/// Where a program's output goes.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    quiet: bool,
    json: bool,
}

impl Console {
    /// Whether results are to be one JSON object on stdout.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether to tell on stdout how it is going, line by line.
    pub fn tells(&self) -> bool {
        !self.quiet && !self.json
    }

    /// Progress bars on stderr; hidden with `--quiet`, or if stderr is no terminal.
    pub fn bars(&self) -> Bars {
        if self.quiet { Bars::hidden() } else { Bars::new(true) }
    }

    /// As [`Console::bars`], for stages that come again and again: a finished one leaves no line.
    pub fn passing_bars(&self) -> Bars {
        if self.quiet { Bars::hidden() } else { Bars::new(false) }
    }

    /// Says how it ended, on stdout: one JSON object with `--json`, nothing with `--quiet`, else one line. For programs
    /// that were asked to do something.
    ///
    /// # Errors
    /// If stdout can't be written to.
    pub fn finish(&self, summary: &impl Summary) -> anyhow::Result<()> {
        if self.quiet && !self.json {
            return Ok(());
        }
        self.answer(summary)
    }

    /// Prints a result on stdout, with `--quiet` too: one JSON object with `--json`, else text. For programs that were
    /// asked to tell something.
    ///
    /// # Errors
    /// If stdout can't be written to.
    pub fn answer(&self, answer: &impl Summary) -> anyhow::Result<()> {
        if self.json {
            print_line(&serde_json::to_string(answer)?)
        } else {
            print_line(&printable_lines(&answer.text()))
        }
    }
}

/// Runs a program: checks the processor, lets it open as many files as it may, calls `main`, and tells a person why it
/// failed, in one line; also if a mapped file was truncated under it.
///
/// Everything belongs inside, the parsing of options too: on a processor that fails the check, anything before it may
/// be an illegal instruction.
///
/// SIGINT and SIGTERM are caught ([`signals`]).
///
/// A reader of stdout who leaves early (`grappa-store export ... | head`) is no failure.
pub fn run(main: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    processor::require_supported_processor();
    grappa_io::map::report_faults();
    grappa_io::machine::raise_descriptor_limit();
    signals::catch();
    match main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::stdout_was_closed(&error) => ExitCode::SUCCESS,
        Err(error) => match signals::exit_code() {
            Some(code) => {
                bars::eprint_line(&format!("interrupted: {}", output::one_line(&error)));
                code
            }
            None => {
                bars::eprint_line(&format!("error: {}", output::one_line(&error)));
                ExitCode::FAILURE
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// What most programs call theirs.
    #[derive(clap::Parser)]
    struct Args {
        #[command(flatten)]
        _console: super::Args,
    }

    #[test]
    fn a_programs_own_options_may_be_called_args_too() {
        Args::command().debug_assert();
    }
}
