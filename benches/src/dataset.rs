//! The graphs, how they are trained on, and their files: a store for Grappa, arrays for peers.

use std::{
    fmt,
    fs::{self, File},
    io::{BufReader, Read},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use grappa_formats::aggregates::AggregateKind;
use grappa_io::npy;

use crate::{
    child, folder,
    inputs::{EDGE_FACTOR, Input, SEED, scattered, write_array},
    peers, stores,
};

/// Values in a feature row of generated graphs.
const DIM: usize = 128;
/// Classes of generated graphs.
const CLASSES: usize = 16;

/// A graph with labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dataset {
    /// Papers and their subjects; it comes with the project
    Cora,
    /// Debian's packages and their sections
    DebianBookworm,
    /// Words and their topics
    Wordnet,
    /// Products that are bought together, and their categories
    AmazonComputers,
    /// R-MAT; the class of a node is the index of the largest of its first 16 features
    Rmat,
    /// A stochastic block model with 16 classes
    Sbm,
}

/// How a model is trained on a graph.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// The model, as `--model` names it.
    pub model: &'static str,
    /// Number of layers.
    pub layers: usize,
    /// Values of a node between layers.
    pub hidden: usize,
    /// Seeds outwards. Empty: the whole graph in each step.
    pub fanouts: &'static [i64],
    /// Learning rate.
    pub lr: f64,
    /// Number of epochs.
    pub epochs: u32,
    /// The validation accuracy to reach.
    pub target: f64,
}

impl Task {
    /// The pre-aggregated features that its model takes.
    pub fn aggregates(self) -> AggregateKind {
        match self.model {
            "gcn" => AggregateKind::Gcn,
            _ => AggregateKind::Mean,
        }
    }
}

impl Dataset {
    /// How the bench trains on it.
    pub fn task(self) -> Task {
        let minibatches =
            Task { model: "sage", layers: 2, hidden: 128, fanouts: &[15, 10], lr: 0.003, epochs: 40, target: 0.0 };
        match self {
            Self::Cora => {
                Task { model: "gcn", hidden: 64, fanouts: &[], lr: 0.01, epochs: 200, target: 0.78, ..minibatches }
            }
            Self::DebianBookworm => Task { target: 0.75, ..minibatches },
            Self::Wordnet => Task { target: 0.58, ..minibatches },
            Self::AmazonComputers => Task { target: 0.89, ..minibatches },
            Self::Rmat | Self::Sbm => Task { layers: 3, fanouts: &[15, 10, 5], epochs: 3, target: 0.75, ..minibatches },
        }
    }

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cora => "cora",
            Self::DebianBookworm => "debian-bookworm",
            Self::Wordnet => "wordnet",
            Self::AmazonComputers => "amazon-computers",
            Self::Rmat => "rmat",
            Self::Sbm => "sbm",
        }
    }

    /// Whether it is made by grappa-gen, of any size.
    pub fn is_generated(self) -> bool {
        matches!(self, Self::Rmat | Self::Sbm)
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where graphs come from and go to.
pub struct Graphs<'a> {
    /// The folder of Grappa's programs.
    pub programs: &'a Path,
    /// The folder for stores and arrays.
    pub work: &'a Path,
    /// The folder with the files of the datasets.
    pub data: &'a Path,
    /// Generated graphs have 2^scale nodes.
    pub scale: u32,
}

impl Graphs<'_> {
    /// The store of a dataset, which is made if it does not exist. None if its files are missing.
    pub fn store(&self, dataset: Dataset) -> Result<Option<PathBuf>> {
        let store = self.work.join(format!("{}.grappa", self.stem(dataset)));
        if store.exists() {
            return Ok(Some(store));
        }
        let data = self.data.join(dataset.name());
        let mut command = match dataset {
            Dataset::Cora => {
                let cora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/cora");
                self.ingest(&cora, ["edges.tsv", "features.npz"])
            }
            Dataset::Rmat => self.ingest_rmat()?,
            Dataset::Sbm => self.generate_sbm(),
            _ if !data.exists() => return Ok(None),
            _ => {
                let mut ingest = self.ingest(&data, ["edges.npy", "features.npy"]);
                ingest.args(["--chunks", "64"]);
                ingest
            }
        };
        command.arg("--quiet");
        stores::make_once(&store, command)?;
        Ok(Some(store))
    }

    /// The folder with the arrays of a store, for peers. `python` has NumPy.
    pub fn arrays(&self, dataset: Dataset, store: &Path, python: &Path) -> Result<PathBuf> {
        let arrays = self.work.join(format!("{}.arrays", self.stem(dataset)));
        if arrays.exists() {
            return Ok(arrays);
        }
        eprintln!("making {}", arrays.display());
        let partial = arrays.with_extension("partial");
        folder::remove(&partial)?;
        fs::create_dir(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
        let mut export = Command::new(self.programs.join("grappa-store"));
        export.arg("export").arg(store).arg("--quiet");
        for name in ["edges", "features", "labels"] {
            export.arg(format!("--{name}")).arg(partial.join(format!("{name}.npy")));
        }
        for name in ["train", "val", "test"] {
            export.args(["--split", name]).arg(partial.join(format!("{name}.npy")));
        }
        child::run(&mut export)?;
        child::run(peers::script(python, "time_to_accuracy.py", 1).arg("prepare").arg(&partial))?;
        fs::rename(&partial, &arrays).with_context(|| format!("cannot rename {}", partial.display()))?;
        Ok(arrays)
    }

    fn stem(&self, dataset: Dataset) -> String {
        match dataset.is_generated() {
            true => format!("accuracy-of-{dataset}-{}", self.scale),
            false => format!("accuracy-of-{dataset}"),
        }
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    /// `grappa-ingest` for a folder of arrays. Edges and features have these names.
    fn ingest(&self, data: &Path, [edges, features]: [&str; 2]) -> Command {
        let mut ingest = self.program("grappa-ingest");
        ingest.args(["--undirected", "--dedup", "--self-loops", "drop"]);
        let others = ["labels", "train", "val", "test"].map(|name| (name, format!("{name}.npy")));
        for (name, file) in [("edges", edges.to_owned()), ("features", features.to_owned())].into_iter().chain(others) {
            ingest.arg(format!("--{name}")).arg(data.join(file));
        }
        ingest
    }

    /// An SBM with the splits of the R-MAT graph.
    fn generate_sbm(&self) -> Command {
        let mut generate = self.program("grappa-gen");
        generate.args(["sbm", "--scale", &self.scale.to_string()]);
        generate.args(["--classes", &CLASSES.to_string()]);
        generate.args(["--feature-dim", &DIM.to_string(), "--seed", &SEED.to_string()]);
        generate.args(["--edge-factor", &EDGE_FACTOR.to_string()]);
        generate.args(["--train-fraction", "0.05", "--val-fraction", "0.002", "--test-fraction", "0.004"]);
        generate
    }

    /// An R-MAT graph. 5 % of the nodes are to train on, 0.2 % to validate and 0.4 % to test.
    fn ingest_rmat(&self) -> Result<Command> {
        let nodes = 1u64 << self.scale;
        let edges = Input::Npy.in_folder(self.work, self.scale, 0)?.path;
        let features = Input::Features.in_folder(self.work, self.scale, DIM)?.path;
        let labels = self.rmat_file("labels");
        if !labels.exists() {
            let classes = classes(&features, nodes).with_context(|| format!("cannot read {}", features.display()))?;
            write_array(&labels, nodes, |node| classes[node as usize])?;
        }
        let (train, val, test) = (nodes / 20, nodes / 512, nodes / 256);
        let mut ingest = self.program("grappa-ingest");
        ingest.args(["--nodes", &nodes.to_string(), "--chunks", "64", "--memory", "2GiB"]);
        for (name, file) in [("edges", &edges), ("features", &features), ("labels", &labels)] {
            ingest.arg(format!("--{name}")).arg(file);
        }
        let splits = [("train", 0..train), ("val", train..train + val), ("test", train + val..train + val + test)];
        for (name, range) in splits {
            let file = self.rmat_file(name);
            write_array(&file, range.end - range.start, |i| scattered(range.start + i, nodes) as i64)?;
            ingest.arg(format!("--{name}")).arg(file);
        }
        Ok(ingest)
    }

    fn rmat_file(&self, name: &str) -> PathBuf {
        self.work.join(format!("rmat-{}.of-features.{name}.npy", self.scale))
    }
}

/// For each node, the index of the largest of its first [`CLASSES`] features.
fn classes(features: &Path, nodes: u64) -> std::io::Result<Vec<i64>> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(features)?);
    file.read_exact(&mut [0; npy::HEADER_BYTES])?;
    let mut row = [0; 4 * DIM];
    let mut classes = Vec::new();
    for _ in 0..nodes {
        file.read_exact(&mut row)?;
        let values = row.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes")));
        let (largest, _) =
            values.take(CLASSES).enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).expect("a row has features");
        classes.push(largest as i64);
    }
    Ok(classes)
}
