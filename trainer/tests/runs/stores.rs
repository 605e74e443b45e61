//! Small stores, and models that were trained on them.

use std::{fs, path::Path, sync::Arc};

use grappa_engine::aggregate::{Budget, NodeRows};
use grappa_formats::manifest::{EdgeOptions, ExternalIds, FeatureDtype, SelfLoops};
use grappa_ingestion::ingest::{
    EdgeSplit, IngestOptions, NodeData, NodeIngest, NodeSplits, Resources, SplitFile, StoreLayout, ingest,
};
use grappa_io::{
    npy,
    progress::{Progress, Silent},
    size::ByteSize,
};
use grappa_run::{
    config::{Auto, TrainConfig},
    folder::RunFolder,
    journal::EpochRecord,
    model::LayerKind,
    summary::Summary,
};
use grappa_storage::{MappedChunks, Store};
use grappa_trainer::train::{Watcher, inference::Inference, train, trained_model::Trained};
use tch::Device;

pub const NODES: u64 = 400;
pub const CLASSES: u64 = 3;
pub const NAMES: [&str; 3] = ["admin", "non-free/libs", "web"];
pub const BUDGET: Budget = Budget { memory: 64 << 20, threads: 2 };

pub struct Unseen;

impl Watcher for Unseen {
    fn progress(&self) -> &dyn Progress {
        &Silent
    }

    fn epoch(&mut self, _record: &EpochRecord, _epochs: u64) {}

    fn warn(&mut self, message: &str) {
        // Models with learned aggregates are trained in partitions, too, and some take nothing of edges.
        let is_known = ["in partitions misses part of the neighborhoods", "are not used: the model"];
        assert!(is_known.iter().any(|known| message.contains(known)), "{message}");
    }
}

/// Everything that a run tells its watcher.
#[derive(Debug, Default)]
pub struct Seen {
    pub records: Vec<EpochRecord>,
    pub warnings: Vec<String>,
    pub told: Vec<String>,
}

impl Watcher for Seen {
    fn progress(&self) -> &dyn Progress {
        &Silent
    }

    fn epoch(&mut self, record: &EpochRecord, _epochs: u64) {
        self.records.push(record.clone());
    }

    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }

    fn tell(&mut self, message: &str) {
        self.told.push(message.to_owned());
    }
}

/// Trains in a new run at `path`.
pub fn train_at(store: &Arc<Store>, config: &TrainConfig, path: &Path) -> grappa_trainer::Result<(Summary, Seen)> {
    let mut seen = Seen::default();
    let run = RunFolder::create(path, config).unwrap();
    let summary = train(store.clone(), config.clone(), &run, false, Device::Cpu, &mut seen)?;
    Ok((summary, seen))
}

/// The error of training in a new run at `path`.
pub fn refused_at(store: &Arc<Store>, config: &TrainConfig, path: &Path) -> String {
    train_at(store, config, path).unwrap_err().to_string()
}

/// An exact inference on the CPU.
pub fn inference<'a>(
    store: &'a Store,
    chunks: &'a Arc<MappedChunks>,
    features: &'a dyn NodeRows,
    first_hop: Option<&'a dyn NodeRows>,
    budget: Budget,
    scratch: &'a Path,
) -> Inference<'a> {
    Inference {
        store,
        chunks,
        features,
        weight_sums: None,
        first_hop,
        first_inputs: None,
        budget,
        kept_memory: 0,
        scratch,
        rounded_states: FeatureDtype::F32,
        device: Device::Cpu,
    }
}

/// The content of a test store.
#[derive(Clone, Copy)]
pub struct Shape {
    pub ids: ExternalIds,
    /// Values in a row of features; with 0 there are none.
    pub dim: u64,
    pub classes: u64,
    /// Whether nodes have sets of classes.
    pub sets: bool,
    /// A node with a NaN in its features.
    pub nan: Option<u64>,
    /// Whether nodes have labels.
    pub labelled: bool,
    /// A node that is trained on and has no label.
    pub unlabelled: Option<u64>,
    /// Whether there are validation nodes.
    pub validated: bool,
    /// Whether each edge is there in both directions.
    pub undirected: bool,
    /// What becomes of self-loops, and whether each node gets one.
    pub self_loops: SelfLoops,
    /// Whether edges are held out for validation and test.
    pub edge_split: bool,
    /// Whether edges have weights and [`EDGE_FEATURES`] features.
    pub edge_data: bool,
    /// Whether one edge has a negative weight.
    pub negative_weight: bool,
}

/// Features of an edge.
pub const EDGE_FEATURES: usize = 3;

pub const DENSE: Shape = Shape {
    ids: ExternalIds::Dense,
    dim: 6,
    classes: CLASSES,
    sets: false,
    nan: None,
    labelled: true,
    unlabelled: None,
    validated: true,
    undirected: false,
    self_loops: SelfLoops::Drop,
    edge_split: false,
    edge_data: false,
    negative_weight: false,
};

/// Pseudorandom numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % below
    }
}

/// Ids that sort as their numbers do.
pub fn id(shape: Shape, node: u64) -> String {
    match shape.ids {
        ExternalIds::String => format!("package-{node:04}"),
        _ => node.to_string(),
    }
}

/// A store in which neighbors are of a node's class more often than not; of class `node % classes`.
pub fn store(folder: &Path, shape: Shape) -> Arc<Store> {
    fs::create_dir_all(folder).unwrap();
    let mut random = Numbers(7);
    let mut values = Numbers(11);
    let mut edges = String::new();
    if shape.edge_data {
        edges += "source\ttarget\tweight\tamount\thour\tkind\n";
    }
    for node in 0..NODES {
        for _ in 0..4 {
            let source = match random.next(4) {
                0 => random.next(NODES),
                // Links are learned from classes, which must not shift where numbers wrap around.
                _ if shape.edge_split => random.next(NODES / shape.classes) * shape.classes + node % shape.classes,
                _ => (random.next(NODES / shape.classes) * shape.classes + node) % NODES,
            };
            edges += &format!("{}\t{}", id(shape, source), id(shape, node));
            if shape.edge_data {
                let weight = match shape.negative_weight && node == 77 {
                    true => -1.0,
                    false => values.next(100) as f32 / 50.0,
                };
                edges += &format!("\t{weight}");
                (0..EDGE_FEATURES).for_each(|_| edges += &format!("\t{}", values.next(100) as f32 / 50.0 - 1.0));
            }
            edges += "\n";
        }
    }
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let array = |name: &str, descr: &str, sizes: &[u64], values: Vec<u8>| {
        file(name, &[&npy::header(descr, sizes)[..], &values].concat())
    };
    let mut feature = |node: u64, column: u64| {
        let noise = match shape.nan {
            Some(nan) if (nan, 0) == (node, column) => f32::NAN,
            _ => random.next(1000) as f32 / 500.0,
        };
        noise + f32::from(u8::from(node % shape.classes == column))
    };
    let features = (0..NODES).flat_map(|node| (0..shape.dim).map(move |column| (node, column)));
    let features = features.flat_map(|(node, column)| feature(node, column).to_le_bytes());
    let class = |node: u64| node % shape.classes;
    let labels = match shape.sets {
        false => array(
            "labels.npy",
            "<i8",
            &[NODES],
            (0..NODES)
                .map(|node| if shape.unlabelled == Some(node) { -1 } else { class(node) as i64 })
                .flat_map(i64::to_le_bytes)
                .collect(),
        ),
        true => array(
            "labels.npy",
            "|i1",
            &[NODES, shape.classes],
            (0..NODES)
                .flat_map(|node| (0..shape.classes).map(move |other| u8::from(class(node) == other || other == 0)))
                .collect(),
        ),
    };
    let split = |name: &'static str, part: std::ops::Range<u64>| {
        let ids = (0..NODES).filter(|node| part.contains(&(node / 3 % 10)));
        let text: String = ids.map(|node| id(shape, node) + "\n").collect();
        SplitFile { name, ids: file(&format!("{name}.txt"), text.as_bytes()).into() }
    };
    let out = folder.join("graph.grappa");
    let mut options = IngestOptions {
        resources: Resources { memory: 64 << 20, ..Resources::default() },
        nodes: NodeIngest {
            ids: shape.ids,
            data: NodeData {
                allow_nan: shape.nan.is_some(),
                features: (shape.dim > 0)
                    .then(|| array("features.npy", "<f4", &[NODES, shape.dim], features.collect()))
                    .map(Into::into),
                labels: shape.labelled.then_some(labels.into()),
                ..NodeData::default()
            },
            splits: NodeSplits {
                files: [("train", 0..5), ("val", 5..7), ("test", 7..10)]
                    .into_iter()
                    .filter(|(name, _)| shape.validated || *name != "val")
                    .map(|(name, part)| split(name, part))
                    .collect(),
                ..NodeSplits::default()
            },
            layout: StoreLayout { chunks: Some(4), ..StoreLayout::default() },
            ..NodeIngest::default()
        },
        ..IngestOptions::new(vec![file("edges.tsv", edges.as_bytes())], out.clone())
    };
    options.edges.options =
        EdgeOptions { undirected: shape.undirected, self_loops: shape.self_loops, ..EdgeOptions::default() };
    options.edges.split = shape.edge_split.then(|| EdgeSplit::random("80/10/10".parse().unwrap(), 1).unwrap());
    if shape.edge_data {
        options.edges.form.columns.features = ["amount", "hour", "kind"].map(Into::into).to_vec();
    }
    ingest(&options, &Silent).unwrap();
    Arc::new(Store::open(&out).unwrap())
}

pub fn trained(store: &Arc<Store>, folder: &Path, model: LayerKind) -> (Trained, Summary) {
    trained_as(store, folder, TrainConfig { model, ..config() })
}

/// A configuration that trains quickly.
pub fn config() -> TrainConfig {
    TrainConfig {
        hidden: 16,
        epochs: 8,
        lr: 0.05,
        batch: "16".parse().unwrap(),
        partitions: Auto::Value(2),
        memory: ByteSize(256 << 20),
        ..TrainConfig::default()
    }
}

/// The model of a new run in `folder`, and what came of it.
pub fn trained_as(store: &Arc<Store>, folder: &Path, config: TrainConfig) -> (Trained, Summary) {
    let names = folder.join("names.txt");
    fs::write(&names, NAMES.join("\n")).unwrap();
    let config = TrainConfig { class_names: Some(names.clone()), ..config };
    let path = folder.join(format!("{}.run", config.model));
    let run = RunFolder::create(&path, &config).unwrap();
    let summary = train(store.clone(), config, &run, false, Device::Cpu, &mut Unseen).unwrap();
    // The run has its own copy.
    fs::remove_file(names).unwrap();
    (Trained::open(&path, Device::Cpu).unwrap(), summary)
}
