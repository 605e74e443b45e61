//! Whether processes that train together end well if one is killed, or if they meet strange peers: the campaigns behind
//! `docs/reliability.md`. `grappa-train` and `grappa-gen` must be beside this program.

mod peers;
mod trial;
mod workers;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Kill processes that train together, or let them meet strange peers
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
        Campaign::Workers(workers) => workers::run(workers, args.record.as_deref()),
        Campaign::Peers(peers) => peers::run(peers, args.record.as_deref()),
    }
}
