//! The graph and the program of a campaign.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use grappa_benches::programs;

/// grappa-train, and a folder with a graph of 2000 nodes.
pub struct Trial {
    train: PathBuf,
    pub folder: PathBuf,
}

impl Trial {
    /// Generates the graph in `folder`.
    pub fn new(folder: &Path) -> Result<Self> {
        let programs = programs::folder()?;
        let folder = folder.canonicalize()?;
        let mut generate = Command::new(programs.join("grappa-gen"));
        generate.args([
            "sbm",
            "--nodes",
            "2000",
            "--feature-dim",
            "8",
            "--chunks",
            "8",
            "--quiet",
        ]);
        let status = generate.arg("--out").arg(folder.join("graph.grappa")).status()?;
        ensure!(status.success(), "grappa-gen fails");
        Ok(Self {
            train: programs.join("grappa-train"),
            folder,
        })
    }

    pub fn run_folder(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// A training of the graph, which prints nothing and writes a run to [`Trial::run_folder`].
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.train);
        command
            .current_dir(&self.folder)
            .args(["graph.grappa", "--threads", "1", "--quiet", "--out", "run"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// Starts a program.
pub fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().with_context(|| format!("cannot start {command:?}"))
}
