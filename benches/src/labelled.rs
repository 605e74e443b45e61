//! An R-MAT graph to train on, with features, labels and seeds: arrays for peers and a store for Grappa.
//!
//! Labels depend on the node's id alone, so neighbors carry no information. The graph is for measuring the time of training, not its
//! accuracy.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use grappa_formats::random::GOLDEN;
use grappa_io::npy;

use crate::{
    child,
    inputs::{Input, SEED},
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
        let path = |name: &str| work.join(format!("rmat-{scale}.{name}"));
        let graph = Self {
            edges: Input::Npy.in_folder(work, scale, 0)?.path,
            features: Input::Features.in_folder(work, scale, DIM)?.path,
            labels: path("labels.npy"),
            seeds: path("seeds.npy"),
            store: path("labelled.grappa"),
            seed_count: nodes / NODES_PER_SEED,
        };
        // An odd factor permutes the ids, so no seed occurs twice.
        let scattered = |i: u64| i.wrapping_mul(GOLDEN).wrapping_add(SEED) % nodes;
        write(&graph.labels, nodes, |i| scattered(i) as i64 % CLASSES)?;
        write(&graph.seeds, graph.seed_count, |i| scattered(i) as i64)?;
        if !graph.store.exists() {
            eprintln!("making {}", graph.store.display());
            let mut ingest = Command::new(programs.join("grappa-ingest"));
            ingest.args([
                "--nodes",
                &nodes.to_string(),
                "--chunks",
                "64",
                "--memory",
                "2GiB",
                "--quiet",
            ]);
            ingest.arg("--edges").arg(&graph.edges);
            ingest.arg("--features").arg(&graph.features);
            ingest.arg("--labels").arg(&graph.labels);
            ingest.arg("--train").arg(&graph.seeds);
            child::run(ingest.arg("--out").arg(&graph.store))?;
        }
        Ok(graph)
    }
}

/// Writes an array of `count` int64 values, unless it exists.
fn write(path: &Path, count: u64, value: impl Fn(u64) -> i64) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let write = || -> std::io::Result<()> {
        let partial = path.with_extension("partial");
        let mut out = BufWriter::new(File::create(&partial)?);
        out.write_all(&npy::header("<i8", &[count]))?;
        for i in 0..count {
            out.write_all(&value(i).to_le_bytes())?;
        }
        out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        std::fs::rename(partial, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write(&path, 2, |i| 1 - 2 * i as i64).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 128 + 16);
        assert_eq!(bytes[136..], (-1i64).to_le_bytes());
        write(&path, 1, |_| 2).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
