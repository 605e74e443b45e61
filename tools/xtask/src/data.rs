//! `cargo xtask data`: real graphs from the index of Debian's package archive. `tools/debian.py` makes them.

use std::{ffi::OsString, process::Command};

use anyhow::{Context, Result, ensure};

use crate::command::{output, root};

/// The script, which runs in the folder of the caller.
pub fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg(root().join("tools/debian.py"));
    command
}

/// Makes a graph. The script prints errors.
pub fn data(args: &[OsString]) -> Result<()> {
    let status = script().args(args).status().context("cannot start python3")?;
    ensure!(status.success(), "tools/debian.py failed ({status})");
    Ok(())
}

/// Checks that apt has an index on this machine for the graph of packages.
///
/// # Errors
/// The error names what is missing and the remedy.
pub fn machine_has_index() -> Result<()> {
    output(script().arg("has-index")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_passes_its_tests() {
        let tests = root().join("tools");
        output(Command::new("python3").args(["-B", "-m", "unittest", "discover"]).arg(tests)).unwrap();
    }
}
