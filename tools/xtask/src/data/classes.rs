//! Labels and splits of packages. The label is the section.

use std::{collections::BTreeMap, fmt, io::Write, path::Path};

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::{
    npy,
    packages::{Packages, write_text},
};

/// A section with fewer packages is not a class.
const PACKAGES_MIN: usize = 50;

const SPLITS: [&str; 3] = ["train", "val", "test"];

/// Sections and their packages.
pub struct Classes {
    names: Vec<String>,
    /// The class of each package; -1 for none.
    labels: Vec<i64>,
    /// The labelled packages of each split.
    splits: [Vec<i64>; 3],
}

impl Classes {
    pub fn of(packages: &Packages) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for package in packages.list() {
            *counts.entry(&package.section).or_default() += 1;
        }
        let is_class = |(section, count): &(&&str, &usize)| !section.is_empty() && **count >= PACKAGES_MIN;
        let names: Vec<String> = counts
            .iter()
            .filter(is_class)
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let label = |section: &String| names.binary_search(section).map_or(-1, |class| class as i64);
        let labels: Vec<i64> = packages.list().iter().map(|package| label(&package.section)).collect();
        let mut splits = [Vec::new(), Vec::new(), Vec::new()];
        for ((id, package), &label) in (0..).zip(packages.list()).zip(&labels) {
            if label >= 0 {
                splits[split(&package.name)].push(id);
            }
        }
        Self { names, labels, splits }
    }

    /// Writes the labels of `nodes` nodes, the splits, and the class names. Only packages have labels.
    pub fn write(&self, folder: &Path, packages: &Packages, nodes: u64) -> Result<()> {
        npy::write(&folder.join("labels.npy"), npy::Element::I64, &[nodes], |out| {
            out.i64s(&self.labels)?;
            (packages.len() as u64..nodes).try_for_each(|_| out.i64s(&[-1]))
        })?;
        for (name, ids) in SPLITS.iter().zip(&self.splits) {
            npy::write(
                &folder.join(format!("{name}.npy")),
                npy::Element::I64,
                &[ids.len() as u64],
                |out| out.i64s(ids),
            )?;
        }
        write_text(&folder.join("classes.txt"), |out| {
            self.names.iter().try_for_each(|name| writeln!(out, "{name}"))
        })
    }

    /// Writes the splits by name.
    pub fn write_named_splits(&self, folder: &Path, packages: &Packages) -> Result<()> {
        for (name, ids) in SPLITS.iter().zip(&self.splits) {
            write_text(&folder.join(format!("{name}.txt")), |out| {
                ids.iter()
                    .try_for_each(|&id| writeln!(out, "{}", packages.list()[id as usize].name))
            })?;
        }
        Ok(())
    }
}

impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labelled: usize = self.splits.iter().map(Vec::len).sum();
        write!(f, "{labelled} labelled, {} classes", self.names.len())?;
        for (name, ids) in SPLITS.iter().zip(&self.splits) {
            write!(f, ", {} to {name}", ids.len())?;
        }
        Ok(())
    }
}

/// The split of a package: 6 of 10 train, 2 val, 2 test. It does not depend on other packages.
fn split(name: &str) -> usize {
    let digest = Sha256::digest(name);
    let word = digest.first_chunk().expect("a digest has 32 bytes");
    match u64::from_le_bytes(*word) % 10 {
        0..6 => 0,
        6..8 => 1,
        _ => 2,
    }
}
