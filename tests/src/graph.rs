//! Graphs with features, labels and splits, and their input files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{npy::Npy, random::Random};

/// A graph with everything that a store can contain.
#[derive(Debug, Clone)]
pub struct Graph {
    /// Number of nodes. Ids are 0 to `nodes` - 1.
    pub nodes: usize,
    /// Source and destination.
    pub edges: Vec<(u64, u64)>,
    /// Number of features per node.
    pub dim: usize,
    /// One feature row per node, in order.
    pub features: Vec<f32>,
    /// One class per node; -1 for none.
    pub labels: Vec<i64>,
    /// The nodes of `train`, `val` and `test`.
    pub splits: [Vec<i64>; 3],
}

/// The files of a graph.
#[derive(Debug, Clone)]
pub struct GraphFiles {
    /// The edges, as tab-separated text.
    pub edges: PathBuf,
    /// `.npy`, f32.
    pub features: PathBuf,
    /// `.npy`, int64.
    pub labels: PathBuf,
    /// `.npy`, int64, of `train`, `val` and `test`.
    pub splits: [PathBuf; 3],
}

/// The options of ingest for the files of nodes that [`Graph::write`] writes, in their folder.
pub const NODE_FILES: &str =
    "--features features.npy --labels labels.npy --train train.npy --val val.npy --test test.npy";

/// Names of the splits on the command line.
pub const SPLITS: [&str; 3] = ["train", "val", "test"];

impl Graph {
    /// A graph in which some nodes have many edges and some have none. The first and the last node have edges.
    pub fn random(seed: u64, nodes: usize, edges: usize, dim: usize) -> Self {
        let mut random = Random::new(seed);
        let mut edge = || {
            let source = random.below(nodes as u64);
            // Squaring a fraction crowds destinations on small ids.
            let target = (random.unit().powi(2) * nodes as f64) as u64;
            (source, target)
        };
        let ends = [(0, nodes as u64 - 1), (nodes as u64 - 1, 0)];
        let edges = (2..edges).map(|_| edge()).chain(ends).collect();
        // Fractions that text, f32 and f16 alike hold exactly.
        let features = (0..nodes * dim).map(|_| (random.below(2049) as f32 - 1024.0) / 1024.0).collect();
        // Nodes without a label are in no split: that would be a warning.
        let is_labelled = |node: usize| node % 17 != 3 || ![2, 4].contains(&(node % 5));
        let labels = (0..nodes).map(|node| if is_labelled(node) { random.below(7) as i64 } else { -1 }).collect();
        let split = |k: usize| (0..nodes as i64).filter(move |&node| node % 5 == k as i64).collect();
        Self { nodes, edges, dim, features, labels, splits: [split(0), split(1), split(3)] }
    }

    /// The edges as text with this column separator.
    pub fn text(&self, separator: char) -> String {
        let line = |(source, target)| format!("{source}{separator}{target}\n");
        self.edges.iter().copied().map(line).collect()
    }

    /// The features as an array.
    pub fn features_npy(&self) -> Npy {
        Npy::new(&[self.nodes, self.dim], self.features.iter().copied())
    }

    /// The labels as an array.
    pub fn labels_npy(&self) -> Npy {
        Npy::new(&[self.nodes], self.labels.iter().copied())
    }

    /// Writes everything into a folder.
    pub fn write(&self, folder: &Path) -> GraphFiles {
        let files = GraphFiles {
            edges: folder.join("edges.tsv"),
            features: folder.join("features.npy"),
            labels: folder.join("labels.npy"),
            splits: SPLITS.map(|name| folder.join(format!("{name}.npy"))),
        };
        fs::write(&files.edges, self.text('\t')).unwrap();
        self.features_npy().write(&files.features);
        self.labels_npy().write(&files.labels);
        for (split, path) in self.splits.iter().zip(&files.splits) {
            Npy::new(&[split.len()], split.iter().copied()).write(path);
        }
        files
    }
}

impl GraphFiles {
    /// Adds the options for features, labels and splits to a command.
    pub fn node_arguments<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.arg("--features").arg(&self.features);
        command.arg("--labels").arg(&self.labels);
        for (name, path) in SPLITS.iter().zip(&self.splits) {
            command.arg(format!("--{name}")).arg(path);
        }
        command
    }
}
