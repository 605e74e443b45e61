//! The graph of files. It is written while the lists of files are read; only the folders are in memory.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use anyhow::{Context, Result, bail};
use half::f16;

use super::{
    descriptions::{normalize, slot},
    index::{self, Index},
    npy::{self, Writer},
    packages::Packages,
};

/// Counts of a graph of files.
#[derive(Debug, Default, PartialEq)]
pub struct Tree {
    pub nodes: u64,
    pub files: u64,
    pub folders: u64,
    pub edges: u64,
    /// Number of entries whose package does not exist.
    pub unknown: u64,
}

/// The graph while it is written.
struct Growing<'a> {
    packages: &'a Packages,
    tree: Tree,
    edges: Writer,
    features: Option<Features>,
    /// The nodes of folders, by path without a trailing slash.
    folders: HashMap<Vec<u8>, u64>,
}

/// Writes the edges, and the features of files and folders after those of packages.
pub fn write(index: &Index, packages: &Packages, edges: &Path, features: Option<Features>) -> Result<Tree> {
    let mut growing = Growing {
        packages,
        tree: Tree {
            nodes: packages.len() as u64,
            ..Tree::default()
        },
        edges: Writer::create(edges, npy::Element::I64)?,
        features,
        folders: HashMap::new(),
    };
    for path in &index.contents {
        index::lines(path, |line| growing.line(line))?;
    }
    let Growing {
        tree, edges, features, ..
    } = growing;
    edges.finish(&[tree.edges, 2])?;
    if let Some(features) = features {
        features.finish(tree.nodes)?;
    }
    Ok(tree)
}

impl Growing<'_> {
    /// Reads a line such as `usr/bin/apt    admin/apt`: a path, which may contain blanks, and after the last blank the
    /// packages that contain it.
    fn line(&mut self, line: &[u8]) -> Result<()> {
        let Some(blank) = line.iter().rposition(|&byte| byte == b' ') else {
            bail!(
                "expected a path and packages, found {:?}",
                String::from_utf8_lossy(line)
            );
        };
        let path = line[..blank].trim_ascii_end();
        let (folder, name) = split(path);
        let folder = self.folder(folder)?;
        let file = self.node(name)?;
        self.tree.files += 1;
        self.edge(file, folder)?;
        for owner in line[blank + 1..].split(|&byte| byte == b',') {
            let name = owner.rsplit(|&byte| byte == b'/').next().unwrap_or(owner);
            match std::str::from_utf8(name).ok().and_then(|name| self.packages.id(name)) {
                Some(package) => self.edge(package, file)?,
                None => self.tree.unknown += 1,
            }
        }
        Ok(())
    }

    /// The node of a folder. New folders are added from the root down.
    fn folder(&mut self, path: &[u8]) -> Result<u64> {
        if let Some(&node) = self.folders.get(path) {
            return Ok(node);
        }
        // The root is the folder with the empty name.
        let parent = match path {
            [] => None,
            _ => Some(self.folder(split(path).0)?),
        };
        let node = self.node(split(path).1)?;
        self.folders.insert(path.to_vec(), node);
        self.tree.folders += 1;
        if let Some(parent) = parent {
            self.edge(node, parent)?;
        }
        Ok(node)
    }

    fn node(&mut self, name: &[u8]) -> Result<u64> {
        let node = self.tree.nodes;
        self.tree.nodes += 1;
        if let Some(features) = &mut self.features {
            features.file(name)?;
        }
        Ok(node)
    }

    fn edge(&mut self, source: u64, target: u64) -> Result<()> {
        self.tree.edges += 1;
        self.edges.ids(&[source, target])
    }
}

/// Splits a path into its folder and the rest.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// Features that are written with the nodes: counts of hashed words in a name or description, scaled to length 1.
pub struct Features {
    out: Writer,
    dim: usize,
    row: Vec<f32>,
    slots: HashMap<Box<[u8]>, (usize, f64)>,
}

/// The most words whose columns are cached. The cache is cleared when it is full, so that memory is bounded.
const SLOTS_MAX: usize = 1 << 20;

impl Features {
    /// Starts with the packages, which have these words.
    pub fn create(path: &Path, dim: usize, packages: &[BTreeMap<String, u32>]) -> Result<Self> {
        let mut features = Self {
            out: Writer::create(path, npy::Element::F16)?,
            dim,
            row: vec![0.0; dim],
            slots: HashMap::new(),
        };
        for bag in packages {
            for (word, &count) in bag {
                features.add(word.as_bytes(), count);
            }
            features.end_row()?;
        }
        Ok(features)
    }

    /// Adds a file or folder with this name.
    fn file(&mut self, name: &[u8]) -> Result<()> {
        let name = String::from_utf8_lossy(name).to_lowercase();
        for word in runs(name.as_bytes()) {
            self.add(word, 1);
        }
        self.end_row().context("writing features")
    }

    fn add(&mut self, word: &[u8], count: u32) {
        let (column, sign) = match self.slots.get(word) {
            Some(&slot) => slot,
            None => {
                if self.slots.len() == SLOTS_MAX {
                    self.slots.clear();
                }
                let slot = slot(word, self.dim);
                self.slots.insert(word.into(), slot);
                slot
            }
        };
        self.row[column] += (sign * f64::from(count)) as f32;
    }

    fn end_row(&mut self) -> Result<()> {
        normalize(&mut self.row);
        let row: Vec<f16> = self.row.iter().map(|&value| f16::from_f32(value)).collect();
        self.row.fill(0.0);
        self.out.f16s(&row)
    }

    fn finish(self, nodes: u64) -> Result<()> {
        self.out.finish(&[nodes, self.dim as u64])
    }
}

/// Runs of letters and runs of digits.
fn runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let kind = |byte: u8| (byte.is_ascii_lowercase(), byte.is_ascii_digit());
    text.chunk_by(move |&a, &b| kind(a) == kind(b))
        .filter(move |run| kind(run[0]) != (false, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_runs_of_letters_and_digits() {
        let found: Vec<&[u8]> = runs(b"lib-x86.so.12").collect();
        assert_eq!(found, [&b"lib"[..], b"x", b"86", b"so", b"12"]);
    }
}
