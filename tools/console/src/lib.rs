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
mod failure;
pub mod log;
pub mod options;
mod output;
mod processor;
pub mod reports;
mod screen;
pub mod signals;
mod summary;
pub mod table;
mod terminal;
mod warnings;

use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

pub use bars::Bars;
pub use failure::{Failure, FailureKind};
use grappa_io::{
    heap::{self, Heap},
    text::printable_lines,
};
pub use grappa_io::{
    machine::{free_memory_bytes, peak_rss_bytes},
    progress::Progress,
    size::{ByteSize, ByteSizeError, count, duration},
    text::{first_names, printable},
};
pub use output::{StdoutClosed, one_line, print_line, stdout};
pub use summary::{Built, Summary};
use tracing_subscriber::{Layer, filter::filter_fn, layer::SubscriberExt, util::SubscriberInitExt};
pub use warnings::{keep_warnings, take_warnings};

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
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_target(level > tracing::Level::INFO)
            .with_writer(screen::AboveBars::default);
        let is_reported = reports::is_open();
        let shown = move |event: &tracing::Metadata<'_>| {
            *event.level() <= level && !(is_reported && *event.level() == tracing::Level::WARN)
        };
        let warnings = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_level(false)
            .with_target(false)
            .with_writer(reports::Warnings::default);
        let reported = move |event: &tracing::Metadata<'_>| is_reported && *event.level() == tracing::Level::WARN;
        tracing_subscriber::registry()
            .with(lines.with_filter(filter_fn(shown)))
            .with(warnings.with_filter(filter_fn(reported)))
            .init();
        Console { quiet: self.quiet, json: self.json, caller: None }
    }
}

/// The output of a program.
#[derive(Clone)]
pub struct Console {
    quiet: bool,
    json: bool,
    /// None if the program is a process of its own.
    caller: Option<Arc<Caller>>,
}

/// Another program that runs this one as a function.
struct Caller {
    progress: Arc<dyn Progress + Send + Sync>,
    answer: Mutex<Option<Answer>>,
}

/// The result of a program that another one runs as a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What `--json` prints.
    pub json: String,
    /// What is printed without it.
    pub text: String,
}

impl Console {
    /// The console of a program that another one runs as a function: nothing is printed, progress goes to `progress`, which may also stop
    /// the program, and [`Console::take_answer`] has the result.
    pub fn within(progress: Arc<dyn Progress + Send + Sync>) -> Self {
        Self { quiet: false, json: true, caller: Some(Arc::new(Caller { progress, answer: Mutex::default() })) }
    }

    /// The result of a program that runs as a function, if it has one. A program that fails may have one: the problems that it found.
    pub fn take_answer(&self) -> Option<Answer> {
        let caller = self.caller.as_ref()?;
        caller.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

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
        Self { quiet: true, json: false, caller: None }
    }

    /// Progress bars on stderr. They are hidden with `--quiet`, or if stderr is not a terminal.
    pub fn bars(&self) -> Bars {
        self.bars_that(true)
    }

    /// Like [`Console::bars`], for stages that repeat: a finished stage leaves no line.
    pub fn passing_bars(&self) -> Bars {
        self.bars_that(false)
    }

    fn bars_that(&self, leave_lines: bool) -> Bars {
        match &self.caller {
            Some(caller) => Bars::of_caller(caller.progress.clone()),
            None if self.quiet => Bars::hidden(),
            None => Bars::new(leave_lines),
        }
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
        if let Some(caller) = &self.caller {
            let (json, text) = (serde_json::to_string(answer)?, answer.text());
            *caller.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Answer { json, text });
            Ok(())
        } else if self.json {
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

/// [`run`], for a caller that ends the process with the code.
pub fn code_of(main: impl FnOnce() -> anyhow::Result<()>) -> u8 {
    code_with(main, Failure::new)
}

/// As [`code_of`]. `describe` also knows the errors of the program's own libraries.
pub fn code_with(main: impl FnOnce() -> anyhow::Result<()>, describe: impl FnOnce(&anyhow::Error) -> Failure) -> u8 {
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
                reports::failure(&Failure { process: log::process_name(), ..describe(&error) });
                screen::eprint_line(&format!("error: {}", one_line(&error)));
                1
            }
        },
    }
}
