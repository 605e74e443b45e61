//! Licenses of the crates that the executables contain. Most of them demand that their text goes with copies.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    command::{cargo, output},
    files::{copy, write},
};

/// Beginnings of the names of files with licenses.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// Writes the licenses of everything that `packages` depend on into `folder`: a folder of files for each crate, and a table.
pub fn write_licenses(packages: &[&str], folder: &Path) -> Result<()> {
    let mut tree = cargo(&["tree", "--edges=normal", "--prefix=none", "--format={p}"]);
    tree.args(packages.iter().map(|package| format!("--package={package}")));
    let tree = output(&mut tree)?;
    let used: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();

    let metadata = output(&mut cargo(&["metadata", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("Cargo printed no JSON")?;
    let mut table = "# Crates in the executables, and their licenses\n\n| crate | license |\n|---|---|\n".to_owned();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, version) = (text("name"), text("version"));
        let described = format!("{name} v{version}");
        // Packages of the workspace have no source.
        let is_used = used
            .iter()
            .any(|used| used.strip_prefix(&described).is_some_and(|rest| rest.is_empty() || rest.starts_with(" (")));
        if package["source"].is_null() || !is_used {
            continue;
        }
        table += &format!("| {name} {version} | {} |\n", text("license"));
        let source = Path::new(text("manifest_path")).parent().context("a manifest is in a folder")?;
        for file in license_files(source)? {
            let file_name = file.file_name().context("a file has a name")?;
            copy(&file, &folder.join(format!("{name}-{version}")).join(file_name))?;
        }
    }
    write(&folder.join("README.md"), &table)
}

/// The files with licenses in the folder of a crate.
fn license_files(source: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|prefix| name.starts_with(prefix)) {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_that_a_program_contains_come_with_their_licenses() {
        let folder = tempfile::tempdir().unwrap();
        write_licenses(&["grappa-gen"], folder.path()).unwrap();
        let table = fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(table.contains("| clap 4.") && table.contains(" | MIT OR Apache-2.0 |"), "{table}");
        assert!(!table.contains("| grappa-") && !table.contains("| tch "), "{table}");
        let clap = fs::read_dir(folder.path()).unwrap().find_map(|entry| {
            let entry = entry.unwrap();
            entry.file_name().to_string_lossy().starts_with("clap-4.").then(|| entry.path())
        });
        assert!(clap.unwrap().join("LICENSE-MIT").exists());
    }
}
