//! Whether programs that are killed, or started twice, leave what they should: the campaign behind `docs/reliability.md`.
//!
//! Programs must have debug assertions, which is what lets them be killed before any change of the file system: run this without
//! `--release`. `grappa-train` takes part if it lies beside this program.

mod kills;
mod pairs;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Kill programs, and start them twice, and compare what they leave
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    campaign: Campaign,
    /// Append the result to this page
    #[arg(long, value_name = "PAGE", global = true)]
    record: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Campaign {
    /// Two ingests of one output, started a while apart, with and without --resume
    Pairs(pairs::Args),
    /// Kills at random moments, and before every change of the file system
    Kills(kills::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| run(&args))
}

fn run(args: &Args) -> Result<()> {
    match &args.campaign {
        Campaign::Pairs(pairs) => pairs::run(pairs, args.record.as_deref()),
        Campaign::Kills(kills) => kills::run(kills, args.record.as_deref()),
    }
}
