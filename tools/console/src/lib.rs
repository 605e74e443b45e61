//! Terminal output of all Grappa programs: options, progress bars, summaries, errors and signals.
//!
//! A program's `main` is one call of [`run`]. Its options flatten [`ConsoleArgs`]. Its work reports to a [`Bars`]. It ends with
//! [`Console::finish`]:
//!
//! ```no_run
//! # use clap::Parser;
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     console: grappa_console::ConsoleArgs,
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
//! Results go to stdout; progress, warnings and errors go to stderr. With `--json`, stdout has exactly one JSON object, at
//! the end, and only after success. Exit codes: 0 success, 1 failure, 2 wrong usage (clap's), 130, 143 and 129 stopped by
//! SIGINT, SIGTERM and SIGHUP ([`signals`]).
//!
//! This crate knows nothing of graphs, except that progress counts edges, and the options that several programs have ([`options`]).

#![forbid(unsafe_code)]

mod bars;
pub mod log;
pub mod options;
mod output;
mod processor;
mod screen;
pub mod signals;
mod summary;
pub mod table;
mod terminal;

use std::process::ExitCode;

pub use bars::Bars;
use grappa_io::{
    heap::{self, Heap},
    text::printable_lines,
};
pub use grappa_io::{
    machine::{free_memory_bytes, peak_rss_bytes},
    size::{ByteSize, ByteSizeError, count, duration},
    text::{first_names, printable},
};
pub use output::{StdoutClosed, one_line, print_line, stdout};
pub use summary::{Built, Summary};

/// When the system refuses memory, the program ends with an error on stderr instead of a signal.
#[global_allocator]
static HEAP: Heap = Heap;

const HEADING: &str = "Messages";

/// The options that every program has.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ConsoleArgs {
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

impl ConsoleArgs {
    /// Starts logging at the level of the options.
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
            .with_writer(screen::AboveBars::default)
            .init();
        Console {
            quiet: self.quiet,
            json: self.json,
        }
    }
}

/// The output of a program.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    quiet: bool,
    json: bool,
}

impl Console {
    /// Whether `--json` was given.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether to print progress lines on stdout: neither `--quiet` nor `--json` was given.
    pub fn tells(&self) -> bool {
        !self.quiet && !self.json
    }

    /// A console without progress, summary and lines, for one of several processes.
    #[must_use]
    pub fn silenced(&self) -> Self {
        Self {
            quiet: true,
            json: false,
        }
    }

    /// Progress bars on stderr. They are hidden with `--quiet`, or if stderr is not a terminal.
    pub fn bars(&self) -> Bars {
        if self.quiet { Bars::hidden() } else { Bars::new(true) }
    }

    /// Like [`Console::bars`], for stages that repeat: a finished stage leaves no line.
    pub fn passing_bars(&self) -> Bars {
        if self.quiet { Bars::hidden() } else { Bars::new(false) }
    }

    /// Prints the summary of an action on stdout: a JSON object with `--json`, nothing with `--quiet`, else text.
    ///
    /// # Errors
    /// If writing to stdout fails.
    pub fn finish(&self, summary: &impl Summary) -> anyhow::Result<()> {
        if self.quiet && !self.json {
            return Ok(());
        }
        self.answer(summary)
    }

    /// Prints the answer to a query on stdout, also with `--quiet`: a JSON object with `--json`, else text.
    ///
    /// # Errors
    /// If writing to stdout fails.
    pub fn answer(&self, answer: &impl Summary) -> anyhow::Result<()> {
        if self.json {
            print_line(&serde_json::to_string(answer)?)
        } else {
            print_line(&printable_lines(&answer.text()))
        }
    }
}

/// Runs a program. Checks the processor, raises the limit of open files, lets freed memory return to the system, catches SIGINT, SIGTERM
/// and SIGHUP ([`signals`]), and calls `main`. Prints an error in one line, also when a mapped file was truncated during the run.
///
/// All code of a program belongs into `main`, also the parsing of options: on a processor that fails the check, code before
/// it may be an illegal instruction.
///
/// A closed stdout (`grappa-store export ... | head`) counts as success.
pub fn run(main: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    ExitCode::from(code_of(main))
}

/// [`run`], for a program that ends itself with the code.
pub fn code_of(main: impl FnOnce() -> anyhow::Result<()>) -> u8 {
    processor::require_supported_processor();
    grappa_io::map::report_faults();
    grappa_io::machine::raise_descriptor_limit();
    heap::return_large_blocks();
    signals::catch();
    match main() {
        Ok(()) => 0,
        Err(error) if output::stdout_was_closed(&error) => 0,
        Err(error) => match signals::exit_code() {
            Some(code) => {
                screen::eprint_line(&format!("interrupted: {}", one_line(&error)));
                code
            }
            None => {
                screen::eprint_line(&format!("error: {}", one_line(&error)));
                1
            }
        },
    }
}
