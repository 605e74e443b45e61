//! Stores that benches make with `grappa-gen`.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{child, inputs::SEED};

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
