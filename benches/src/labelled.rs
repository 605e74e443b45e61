//! An R-MAT graph to train on, with features, labels and seeds: arrays for peers and a store for Grappa.
//!
//! Labels depend on the node's id alone, so neighbors carry no information. The graph is for measuring the time of training, not its
//! accuracy.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{
    inputs::{Input, scattered, write_array},
    stores,
};

/// Values in a feature vector.
pub const DIM: usize = 128;
/// Number of classes.
pub const CLASSES: i64 = 32;
/// 1 / NODES_PER_SEED of the nodes are seeds.
const NODES_PER_SEED: u64 = 20;

/// The files of a graph.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// `[edges, 2]` of int64.
    pub edges: PathBuf,
    /// `[nodes, DIM]` of f32.
    pub features: PathBuf,
    /// `[nodes]` of int64.
    pub labels: PathBuf,
    /// Nodes to train on, of int64.
    pub seeds: PathBuf,
    /// The store with all of that, in 64 chunks.
    pub store: PathBuf,
    /// Number of seeds.
    pub seed_count: u64,
}

impl Labelled {
    /// The graph of 2^`scale` nodes in `work`. Missing files are written first. `programs` contains grappa-ingest.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn in_folder(work: &Path, scale: u32, programs: &Path) -> Result<Self> {
        let nodes = 1u64 << scale;
        let graph = Self {
            edges: Input::Npy.in_folder(work, scale, 0)?.path,
            features: Input::Features.in_folder(work, scale, DIM)?.path,
            labels: work.join(format!("rmat-{scale}.labels.npy")),
            seeds: work.join(format!("rmat-{scale}.seeds.npy")),
            store: work.join(format!("rmat-{scale}.labelled.grappa")),
            seed_count: nodes / NODES_PER_SEED,
        };
        write_array(&graph.labels, nodes, |i| scattered(i, nodes) as i64 % CLASSES)?;
        write_array(&graph.seeds, graph.seed_count, |i| scattered(i, nodes) as i64)?;
        let mut ingest = Command::new(programs.join("grappa-ingest"));
        ingest.args(["--nodes", &nodes.to_string(), "--chunks", "64", "--memory", "2GiB", "--quiet"]);
        ingest.arg("--edges").arg(&graph.edges).arg("--features").arg(&graph.features);
        ingest.arg("--labels").arg(&graph.labels).arg("--train").arg(&graph.seeds);
        stores::make_once(&graph.store, ingest)?;
        Ok(graph)
    }
}
