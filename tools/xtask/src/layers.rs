//! The layers of the workspace: which crate may depend on which.
//!
//! Cargo forbids circles of crates, but not a new dependency. So the dependencies are listed here, and `cargo xtask tidy` compares
//! them with each Cargo.toml. A new line is a change of the design. Inside a crate, [`imports`](crate::imports) forbids circles.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::command::root;

/// Each crate with the crates of the workspace that it may depend on, apart from tests.
const LAYERS: [(&str, &[&str]); 15] = [
    ("formats", &[]),
    ("engine/io", &["grappa-formats"]),
    ("engine/input", &["grappa-formats", "grappa-io"]),
    ("engine/synthetic", &["grappa-formats", "grappa-io"]),
    ("engine/storage", &["grappa-formats", "grappa-io"]),
    ("engine/ingest", &["grappa-formats", "grappa-input", "grappa-io", "grappa-storage", "grappa-synthetic"]),
    ("engine/sampling", &["grappa-formats", "grappa-io", "grappa-storage", "grappa-synthetic"]),
    (
        "engine",
        &[
            "grappa-ingestion",
            "grappa-formats",
            "grappa-input",
            "grappa-io",
            "grappa-sampling",
            "grappa-storage",
            "grappa-synthetic",
        ],
    ),
    ("trainer/kernels", &["grappa-formats", "grappa-io"]),
    (
        "trainer/knowledge",
        &[
            "grappa-engine",
            "grappa-formats",
            "grappa-io",
            "grappa-kernels",
            "grappa-report",
            "grappa-run",
            "grappa-storage",
        ],
    ),
    ("trainer/scores", &["grappa-formats"]),
    ("trainer/run", &["grappa-formats", "grappa-io", "grappa-sampling", "grappa-scores"]),
    ("trainer/report", &["grappa-io", "grappa-run"]),
    (
        "trainer",
        &[
            "grappa-engine",
            "grappa-formats",
            "grappa-io",
            "grappa-kernels",
            "grappa-knowledge",
            "grappa-report",
            "grappa-run",
            "grappa-sampling",
            "grappa-storage",
        ],
    ),
    (
        "trainer/methods",
        &[
            "grappa-engine",
            "grappa-formats",
            "grappa-io",
            "grappa-kernels",
            "grappa-report",
            "grappa-run",
            "grappa-sampling",
            "grappa-storage",
            "grappa-trainer",
        ],
    ),
];

/// Adds what contradicts the table.
pub fn check(problems: &mut Vec<String>) -> Result<()> {
    for (folder, allowed) in LAYERS {
        let path = Path::new(folder).join("Cargo.toml");
        let text = fs::read_to_string(root().join(&path)).with_context(|| format!("cannot read {}", path.display()))?;
        for name in dependencies(&text).filter(|name| !allowed.contains(name)) {
            problems.push(format!(
                "{}: the layers do not let this crate depend on {name} (tools/xtask/src/layers.rs)",
                path.display()
            ));
        }
    }
    Ok(())
}

/// The crates of the workspace under `[dependencies]` of a Cargo.toml.
fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| name.starts_with("grappa-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_tests_do_not_count() {
        let text = "[dependencies]\nbytes.workspace = true\ngrappa-io.workspace = true\n\n[dev-dependencies]\ngrappa-skip.workspace = true\n";
        assert_eq!(dependencies(text).collect::<Vec<_>>(), ["grappa-io"]);
    }
}
