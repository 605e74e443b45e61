//! The options of the bench, and the graph.

use std::{path::PathBuf, process::Command};

use anyhow::Result;
use clap::Parser;
use grappa_benches::{bench::Files, child::Measured, inputs::EDGE_FACTOR, limit::MemoryLimit, stores};
use grappa_console::ByteSize;

const DIM: u32 = 128;

/// Measure the feature feed in memory and out of core
#[derive(Debug, Parser)]
pub struct Args {
    #[command(flatten)]
    pub files: Files,
    /// The graph has 2^SCALE nodes and takes 9 GB of disk at scale 22
    #[arg(long, default_value_t = 22)]
    pub scale: u32,
    /// Runs of each contender
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Batches of a run: an epoch has 205
    #[arg(long, default_value_t = 205)]
    pub batches: u64,
    /// Batches of a peer's out-of-core run
    #[arg(long, default_value_t = 5)]
    pub peer_batches: u64,
    /// The memory limit, including the page cache
    #[arg(long, default_value = "1.5GB")]
    pub limit: ByteSize,
    /// The part of the limit that Grappa is told to use. The rest is for the program itself and cached pages of the graph
    #[arg(long, default_value = "1.2GB")]
    pub memory: ByteSize,
    /// Memory budget of runs in memory. Everything must fit
    #[arg(long, default_value = "8GiB")]
    pub in_memory: ByteSize,
    /// Make the stores and measure nothing
    #[arg(long)]
    pub prepare: bool,
    /// A Python with DGL and GraphBolt; without it they are left out
    #[arg(long, value_name = "PYTHON")]
    pub peers_python: Option<PathBuf>,
    /// A Python with PyG and pyg-lib or torch-sparse; without it PyG is left out
    #[arg(long, value_name = "PYTHON")]
    pub pyg_python: Option<PathBuf>,
}

/// A graph, and how programs are measured on it.
pub struct FeedSetup<'a> {
    pub args: &'a Args,
    pub programs: PathBuf,
    pub limit: Option<MemoryLimit>,
    pub seeds: PathBuf,
}

impl FeedSetup<'_> {
    /// The store with features of this type; made first if it does not exist.
    pub fn store(&self, dtype: &str) -> Result<PathBuf> {
        let scale = self.args.scale;
        let store = self.args.files.work.join(format!("feed-{scale}-{dtype}.grappa"));
        let mut command = stores::rmat(&self.programs, scale, EDGE_FACTOR);
        command.args(["--feature-dim", &DIM.to_string(), "--feature-dtype", dtype]);
        stores::make_once(&store, command)?;
        Ok(store)
    }

    pub fn limited(&self, command: &Command) -> Result<Measured> {
        self.limit.as_ref().expect("out of core there is a limit").run(command)
    }
}
