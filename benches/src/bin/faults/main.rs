//! Whether programs that are killed, or started twice, leave the right bytes: the campaigns behind
//! `docs/reliability.md`.
//!
//! Run it without `--release`. Only programs with debug assertions can be killed before any change of the file system.
//! Training is included if `grappa-train` is beside this program.

mod damage;
mod kills;
mod pairs;
mod peers;
mod pool;
mod workers;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Kill programs, or start them twice, and compare their results
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
    /// Start two ingests of one output shortly after each other, with and without --resume
    Pairs(pairs::Args),
    /// Kill programs at random moments and before every change of the file system
    Kills(kills::Args),
    /// Kill programs, damage their unfinished files, and restart them
    Damage(damage::Args),
    /// Kill one of several processes that train together, and start them again
    Workers(workers::Args),
    /// Let ranks join beside programs that are silent, slow, strange or stopped
    Peers(peers::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    grappa_console::run(|| run(&args))
}

fn run(args: &Args) -> Result<()> {
    match &args.campaign {
        Campaign::Pairs(pairs) => pairs::run(pairs, args.record.as_deref()),
        Campaign::Kills(kills) => kills::run(kills, args.record.as_deref()),
        Campaign::Damage(damage) => damage::run(damage, args.record.as_deref()),
        Campaign::Workers(workers) => workers::run(workers, args.record.as_deref()),
        Campaign::Peers(peers) => peers::run(peers, args.record.as_deref()),
    }
}
