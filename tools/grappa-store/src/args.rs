//! The command line.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Parser, Subcommand};
use grappa_console::ByteSize;

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
    /// Write edges, labels, features and splits to files, in the ids of the input
    Export(Export),
}

#[derive(Debug, clap::Args)]
pub struct Store {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
#[group(id = "what", required = true, multiple = true, args = ["edges", "weights", "features", "labels", "split"])]
pub struct Export {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Edges, source before destination: .npy, .csv, or text with tabs (`-`: on stdout)
    #[arg(long, value_name = "FILE")]
    pub edges: Option<PathBuf>,
    /// Edge weights, a .npy in the order of the edges; text has them in a third column
    #[arg(long, value_name = "FILE.npy")]
    pub weights: Option<PathBuf>,
    /// Features, a .npy of one row a node
    #[arg(long, value_name = "FILE.npy")]
    pub features: Option<PathBuf>,
    /// Labels, a .npy of one row a node
    #[arg(long, value_name = "FILE.npy")]
    pub labels: Option<PathBuf>,
    /// The ids of the nodes in a split: train, val or test, and a file
    #[arg(long, num_args = 2, value_names = ["NAME", "FILE"], action = clap::ArgAction::Append)]
    pub split: Vec<String>,
    /// Memory to put rows in order with, such as 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: ByteSize,
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
