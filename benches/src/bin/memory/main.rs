//! Peak memory of programs relative to their budgets.

mod ingest;
mod programs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use grappa_benches::bench;

/// Measure the peak memory of programs relative to their budgets
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    measured: Measured,
}

#[derive(Debug, Subcommand)]
enum Measured {
    /// Ingest at several scales
    Ingest(ingest::Args),
    /// Programs that read a store, and all models, with budgets and dimensions of several sizes
    Programs(programs::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| match &args.measured {
        Measured::Ingest(ingest) => bench::run(ingest),
        Measured::Programs(programs) => bench::run(programs),
    })
}
