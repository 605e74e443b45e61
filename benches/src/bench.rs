//! The frame of a bench: parse options, measure, print the page, record it.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::Result;
use clap::{Args, Parser};
use grappa_console::ByteSize;

use crate::{programs, record::Record};

/// A bench. The type holds its options.
pub trait Bench: Parser {
    /// Title of the page.
    const TITLE: &'static str;
    /// The question that the page answers, with the setting.
    const QUESTION: &'static str;

    /// Where its files are.
    fn files(&self) -> &Files;

    /// Measures, and adds tables and notes to the record.
    ///
    /// # Errors
    /// If a contender fails.
    fn measure(&self, record: &mut Record) -> Result<()>;
}

/// Where a bench keeps its files.
#[derive(Debug, Args)]
pub struct Files {
    /// Folder for inputs, which are kept for the next run, and outputs, which are removed
    #[arg(long, value_name = "DIR")]
    pub work: PathBuf,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE")]
    pub record: Option<PathBuf>,
}

/// Resources of a measured program.
#[derive(Debug, Args)]
pub struct Budget {
    /// Memory budget of the measured program
    #[arg(long, default_value = "512MiB")]
    pub memory: ByteSize,
    /// Threads of each contender
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
}

impl Budget {
    /// Passes the budget to a program of Grappa.
    pub fn apply(&self, command: &mut Command) {
        command.args(["--memory", &self.memory.0.to_string()]);
        command.args(["--threads", &self.threads.to_string()]);
    }
}

/// The `main` of a bench.
pub fn main<B: Bench>() -> ExitCode {
    let bench = B::parse();
    grappa_console::run(|| run(&bench))
}

/// Runs a bench, and prints and appends its record.
///
/// # Errors
/// If a contender fails, or the record cannot be written.
pub fn run<B: Bench>(bench: &B) -> Result<()> {
    let command = programs::command_line()?;
    let files = bench.files();
    let mut record = Record::new(B::TITLE, B::QUESTION, &command, &files.work)?;
    bench.measure(&mut record)?;
    record.finish(files.record.as_deref())
}
