//! The command line.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Parser, Subcommand};

/// Look into a graph store.
#[derive(Debug, Parser)]
#[command(name = "grappa-store", version)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub console: grappa_console::Args,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a store holds: counts, sizes, degrees
    Info(Store),
    /// Check every byte of a store, and whether its files agree; exits with 1 if anything is wrong
    Verify(Store),
}

#[derive(Debug, clap::Args)]
pub struct Store {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Threads {
    /// Worker threads; by default one per processor
    #[arg(long, value_name = "T")]
    threads: Option<NonZeroUsize>,
}

impl Threads {
    /// How many threads to use.
    pub fn get(self) -> anyhow::Result<usize> {
        match self.threads {
            Some(threads) => Ok(threads.get()),
            None => Ok(std::thread::available_parallelism()?.get()),
        }
    }
}
