//! Options of a plan of a training run.

use grappa_formats::manifest::FeatureDtype;
use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::plan::Degrees;

/// A training run.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// The graph.
    pub graph: TrainGraph,
    /// The model.
    pub model: TrainModel,
    /// Number of training nodes; of edges of an epoch, if links are predicted.
    pub train: u64,
    /// Number of nodes that an evaluation scores; of edges, if links are predicted.
    pub scored: u64,
    /// Link prediction; none for a task of nodes.
    pub links: Option<LinkOptions>,
    /// Seeds per minibatch and partition, if given.
    pub batch: Option<u64>,
    /// Number of partitions, if given.
    pub partitions: Option<u32>,
    /// Number of partitions of a step, if given.
    pub concurrent: Option<u32>,
    /// Whether nodes of other partitions get historical embeddings or sampled in-neighbors (`--halo auto`).
    pub expands_halo: bool,
    /// Whether minibatches are swept (`--sampling`). None chooses as training does.
    pub sweeps: Option<bool>,
    /// The machine.
    pub machine: Machine,
}

impl TrainOptions {
    /// Refuses numbers that are impossible.
    pub(super) fn check(&self) -> Result<()> {
        let (examples, range, most) = match self.links {
            Some(_) => ("the number of training edges", "1 to the number of edges", self.graph.edges),
            None => ("the number of training nodes", "1 to the number of nodes", self.graph.nodes),
        };
        let least = self.graph.nodes.min(self.graph.edges);
        for (option, range, value, is_possible) in [
            ("the number of nodes and edges", "at least 1 of each", least, least > 0),
            (examples, range, self.train, (1..=most).contains(&self.train)),
            ("the number of layers", "at least 1", 0, !self.model.fanouts.is_empty()),
            ("the hidden dimension", "at least 1", 0, self.model.hidden > 0),
        ] {
            if !is_possible {
                return Err(Error::out_of_range(option, range, value));
            }
        }
        Ok(())
    }
}

/// The graph of a store, or of a store that is planned.
#[derive(Debug, Clone)]
pub struct TrainGraph {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of edges.
    pub edges: u64,
    /// The assumed distribution of degrees.
    pub degrees: Degrees,
    /// Number of chunks.
    pub chunks: u32,
    /// The share of the edges whose sources the store has: 1, unless it is a slice.
    pub present: f64,
    /// Bytes of the encoded adjacency lists, with their directories.
    pub adjacency_bytes: u64,
    /// Values of a node and their type.
    pub features: (u32, FeatureDtype),
    /// Nodes whose features are stored: all nodes, or the nodes of a slice and its halo nodes. 0 if features are
    /// computed.
    pub stored: u64,
    /// The pre-aggregated features that the store has already.
    pub aggregates: Option<StoredAggregates>,
}

/// A GraphSAGE.
#[derive(Debug, Clone)]
pub struct TrainModel {
    /// Neighbors to sample, one number per layer, from the seeds outwards; none takes all.
    pub fanouts: Vec<Option<u32>>,
    /// Whether the first hop is pre-aggregated.
    pub preaggregated: bool,
    /// Hidden dimension.
    pub hidden: u32,
    /// Number of classes; of values of an embedding, if links are predicted.
    pub classes: u32,
}

/// The machine, as far as training may use it.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Bytes of memory for the graph and its features.
    pub memory: u64,
    /// Disk bandwidth in bytes a second.
    pub disk_bandwidth: f64,
    /// Worker threads.
    pub threads: usize,
    /// Floating-point operations a second of a device other than the processors, if there is one.
    pub device_rate: Option<f64>,
    /// Speed of the processors.
    pub rates: TrainRates,
}

/// Link prediction.
#[derive(Debug, Clone, Copy)]
pub struct LinkOptions {
    /// Negatives of each edge, with a destination of their own.
    pub negatives: u32,
    /// Whether each epoch draws its edges, for which it reads the graph.
    pub draws_edges: bool,
    /// Candidates of each edge that is scored. None: all nodes.
    pub candidates: Option<u32>,
}

/// Processor time of one thread of training.
///
/// From records of two cores of a shared AMD EPYC (5th generation), in `benches/record`. Times of two threads are
/// doubled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainRates {
    /// Nanoseconds to read, decode and store an edge of a view in memory: 5.4 of R-MAT 29, whose lists are long, and
    /// 8.3 of a block model (2026-11-22, billion edges).
    pub load_edge_ns: f64,
    /// Nanoseconds to sample an edge: 73.0 M edges/s (2026-11-20, feed).
    pub sample_edge_ns: f64,
    /// Nanoseconds to sweep an edge, its destination and its source: 62 M edges of R-MAT 22 in 13 s of one thread, less sampling (2026-12-01,
    /// sweeps).
    pub sweep_edge_ns: f64,
    /// Nanoseconds to gather a byte of f32 features into a minibatch: 178 minibatches/s of 93 K rows with 512 bytes,
    /// less sampling (2026-11-20, feed).
    pub gather_byte_ns: f64,
    /// Nanoseconds to aggregate a byte of a source's row in a training step: the difference of a sampled and a
    /// pre-aggregated first hop (2026-11-20, training).
    pub aggregate_byte_ns: f64,
    /// Floating-point operations a second of products with everything between them: the rest of a step (2026-11-20,
    /// training).
    pub product_flops: f64,
    /// Nanoseconds to aggregate a byte of a source's row over the whole graph (2026-11-21, evaluation).
    pub infer_byte_ns: f64,
    /// Seconds of a step on any number of threads, for the optimizer and everything of fixed size (2026-11-20,
    /// training).
    pub step_seconds: f64,
}

impl Default for TrainRates {
    fn default() -> Self {
        Self {
            load_edge_ns: 6.8,
            sample_edge_ns: 13.7,
            sweep_edge_ns: 196.0,
            gather_byte_ns: 0.19,
            aggregate_byte_ns: 0.086,
            product_flops: 1.55e11,
            infer_byte_ns: 0.2,
            step_seconds: 0.0018,
        }
    }
}

/// The pre-aggregated features that a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StoredAggregates {
    /// Whether the features of each node are beside them.
    pub with_features: bool,
}
