//! Stores that benches make, and their `grappa-gen` and `grappa-ingest` commands.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};

use crate::{
    bench::Budget,
    cache,
    child::{self, Measured},
    folder,
    inputs::{InputFile, SEED, edges_in_npy},
};

/// `grappa-gen rmat` for a graph of 2^`scale` nodes with `edge_factor` edges per node. `programs` contains grappa-gen.
pub fn rmat(programs: &Path, scale: u32, edge_factor: f64) -> Command {
    let mut command = Command::new(programs.join("grappa-gen"));
    command.args(["rmat", "--scale", &scale.to_string()]);
    command.args(["--edge-factor", &edge_factor.to_string(), "--seed", &SEED.to_string()]);
    command.args(["--json", "--quiet"]);
    command
}

/// Makes the store `path` with `command`, which lacks `--out`, unless it exists.
///
/// # Errors
/// If the command fails.
pub fn make_once(path: &Path, mut command: Command) -> Result<()> {
    if !path.exists() {
        eprintln!("making {}", path.display());
        child::run(command.arg("--out").arg(path))?;
    }
    Ok(())
}

/// A run of grappa-ingest on an R-MAT graph.
#[derive(Debug)]
pub struct Ingest<'a> {
    /// Contains grappa-ingest.
    pub programs: &'a Path,
    /// Its budget.
    pub budget: &'a Budget,
    /// The number of nodes, if it is passed to grappa-ingest.
    pub nodes: Option<u64>,
    /// The edge list.
    pub edges: &'a InputFile,
    /// The feature file.
    pub features: Option<&'a InputFile>,
    /// The store to make.
    pub store: PathBuf,
}

impl Ingest<'_> {
    /// The files that it reads.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let inputs = [Some(self.edges), self.features];
        inputs.into_iter().flatten().map(|input| input.path.clone()).collect()
    }

    /// The size of the files that it reads.
    pub fn input_bytes(&self) -> u64 {
        self.edges.bytes + self.features.map_or(0, |features| features.bytes)
    }

    /// The command.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.programs.join("grappa-ingest"));
        command
            .arg("--edges")
            .arg(&self.edges.path)
            .arg("--out")
            .arg(&self.store);
        command.args(["--json", "--quiet"]);
        self.budget.apply(&mut command);
        if let Some(nodes) = self.nodes {
            command.args(["--nodes", &nodes.to_string()]);
        }
        if let Some(features) = self.features {
            command.arg("--features").arg(&features.path);
        }
        command
    }

    /// Makes the store from a `.npy` edge list that is not cached, and checks that it has all edges.
    ///
    /// # Errors
    /// If ingest fails, or edges are missing.
    pub fn run(&self) -> Result<Measured> {
        folder::remove(&self.store)?;
        cache::forget(&self.inputs())?;
        let measured = child::run(&mut self.command())?;
        let expected = edges_in_npy(&self.edges.path)?;
        ensure!(
            measured.count("edges")? == expected,
            "expected a store of {expected} edges: {}",
            measured.stdout
        );
        Ok(measured)
    }
}
