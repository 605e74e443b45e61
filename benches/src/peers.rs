//! Python peers: their scripts, and whether they can run on this machine.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::programs;

/// A library that Grappa is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// GraphBolt.
    GraphBolt,
    /// DGL.
    Dgl,
    /// PyTorch Geometric.
    Pyg,
}

impl Peer {
    /// All peers.
    pub const ALL: [Self; 3] = [Self::GraphBolt, Self::Dgl, Self::Pyg];

    /// Its name in scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::GraphBolt => "graphbolt",
            Self::Dgl => "dgl",
            Self::Pyg => "pyg",
        }
    }

    /// The Python that has it: DGL's has GraphBolt too.
    pub fn python<'a>(self, dgl: &'a Option<PathBuf>, pyg: &'a Option<PathBuf>) -> Option<&'a Path> {
        match self {
            Self::GraphBolt | Self::Dgl => dgl.as_deref(),
            Self::Pyg => pyg.as_deref(),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GraphBolt => "GraphBolt",
            Self::Dgl => "DGL",
            Self::Pyg => "PyG",
        })
    }
}

/// The command that runs a script of `benches/peers` with `threads` threads, without warnings.
pub fn script(python: &Path, name: &str, threads: usize) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-W", "ignore"])
        .arg(folder().join(name))
        // Libraries read it when they are loaded, so a script can't set it.
        .env("OMP_NUM_THREADS", threads.to_string());
    command
}

fn folder() -> PathBuf {
    match programs::bundle() {
        Some(bundle) => bundle.join("share/peers"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("peers"),
    }
}

/// Runs a command that succeeds if a peer is installed. Returns its standard output.
///
/// # Errors
/// If it can't be started or fails. The error is the last line of its standard error, where Python names the exception.
pub fn check(command: &mut Command) -> Result<String, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| output.status.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<String, String> {
        check(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn the_last_line_of_stderr_is_the_reason_of_a_failure() {
        assert_eq!(shell("echo 3.11").unwrap(), "3.11\n");
        let traceback = "printf 'Traceback:\\n  line 1\\nImportError: no dgl\\n\\n' >&2; exit 1";
        assert_eq!(shell(traceback).unwrap_err(), "ImportError: no dgl");
        assert!(shell("exit 3").unwrap_err().contains('3'));
        let none = check(&mut Command::new("/no/such/python")).unwrap_err();
        assert!(none.contains("/no/such/python"), "{none}");
    }
}
