//! The nodes that each layer has to compute.

use std::sync::Arc;

use grappa_formats::random;
use grappa_io::progress::Progress;
use grappa_run::model::ModelOptions;
use grappa_sampling::{GraphShape, InNeighbors, NeighborSample, NodeSet, policy::STATE_WORK};
use grappa_storage::MappedChunks;

use crate::Result;

/// The nodes whose states exact inference needs, layer by layer, and type by type.
///
/// The result is wanted for some nodes. The last layer takes the states of these and of all their in-neighbors; the layer before
/// takes the states of the in-neighbors of all these in turn. Nodes that are in no such set are never read.
#[derive(Debug, Clone)]
pub struct Needed {
    /// At index l: the nodes of each type whose states layer l takes. Last: the nodes whose results are wanted.
    sets: Vec<Vec<Arc<NodeSet>>>,
    /// The types whose results are wanted.
    output_types: Vec<usize>,
    /// The edges that each layer aggregates.
    edges: Vec<u64>,
    /// The in-neighbors that each layer aggregates; empty if all layers aggregate all.
    samples: Vec<Option<NeighborSample>>,
}

/// The edges along which states depend on each other.
#[derive(Debug, Clone)]
pub struct NeededGraph<'a> {
    /// Number of nodes of each type.
    pub nodes: Vec<u64>,
    /// The adjacency lists of each relation.
    pub lists: Vec<&'a MappedChunks>,
    /// The type of each relation's sources.
    pub sources: Vec<usize>,
    /// For each layer, the relations that it aggregates for each type ([`ModelOptions::relations_of_layers`]).
    pub layers: Vec<Vec<Option<Vec<usize>>>>,
    /// The types whose results are wanted.
    pub output_types: Vec<usize>,
}

impl<'a> NeededGraph<'a> {
    /// A graph without types, with this number of layers.
    pub fn untyped(chunks: &'a MappedChunks, nodes: u64, layers: usize) -> Self {
        Self {
            nodes: vec![nodes],
            lists: vec![chunks],
            sources: vec![0],
            layers: vec![vec![Some(vec![0])]; layers],
            output_types: vec![0],
        }
    }

    /// The graph of a model.
    pub fn of_model(lists: &'a [Arc<MappedChunks>], shape: &GraphShape, model: &ModelOptions) -> Self {
        Self {
            nodes: shape.nodes.clone(),
            lists: lists.iter().map(|lists| &**lists).collect(),
            sources: shape.relations.iter().map(|relation| relation.source).collect(),
            layers: model.relations_of_layers(),
            output_types: model.graph().output_types(),
        }
    }
}

/// Fails if `given` bytes of memory do not hold the sets of an inference over `layers` layers of a graph with `nodes` nodes, where each
/// may be in all of them.
///
/// # Errors
/// [`grappa_io::Error::Budget`], with this remedy.
pub fn check_sets(nodes: u64, layers: usize, given: u64, remedy: &'static str) -> Result<()> {
    let least = NodeSet::bytes_of(nodes).saturating_mul(layers as u64 + 1);
    if least <= given {
        return Ok(());
    }
    Err(grappa_io::Error::Budget {
        operation: "the sets of nodes that an exact inference computes".into(),
        given,
        least,
        remedy,
    }
    .into())
}

/// How [`Needed`] is found.
#[derive(Debug, Clone, Copy)]
pub struct NeededOptions<'a> {
    /// Number of layers that are computed.
    pub layers: usize,
    /// The in-neighbors that each layer aggregates: a sample, or all. Empty if all layers aggregate all.
    pub samples: &'a [Option<NeighborSample>],
    /// Whether the first layer's aggregates are known, so that it takes no in-neighbors.
    pub knows_first_hop: bool,
    /// More nodes whose states are needed: at index l, the nodes whose states layer l + 1 makes.
    pub also: &'a [Arc<NodeSet>],
    /// The largest work to look for; see [`Needed::work`].
    pub work_max: f64,
    /// Number of threads.
    pub threads: usize,
}

impl Needed {
    /// All nodes of each type that the results of the output types depend on, without a look at the edges.
    pub fn all(graph: &NeededGraph<'_>) -> Self {
        let [everyone, nobody] = [NodeSet::all as fn(u64) -> NodeSet, |nodes| NodeSet::from_members(nodes, [])]
            .map(|set| graph.nodes.iter().map(|&nodes| Arc::new(set(nodes))).collect::<Vec<_>>());
        let mut last = nobody;
        graph.output_types.iter().for_each(|&node_type| last[node_type] = everyone[node_type].clone());
        let mut sets = vec![last];
        let mut edges = Vec::new();
        for relations in graph.layers.iter().rev() {
            let mut inputs = sets.last().expect("there is one").clone();
            let aggregated = || relations.iter().flatten().flatten();
            for &relation in aggregated() {
                let source = graph.sources[relation];
                inputs[source] = everyone[source].clone();
            }
            edges.push(aggregated().map(|&relation| graph.lists[relation].edges()).sum());
            sets.push(inputs);
        }
        sets.reverse();
        edges.reverse();
        Self { sets, output_types: graph.output_types.clone(), edges, samples: Vec::new() }
    }

    /// Finds the nodes that the states of the nodes `results` of each output type depend on. None if that is more work than [`NeededOptions::work_max`]: the search
    /// then ends early.
    ///
    /// # Errors
    /// If an adjacency list cannot be read, or progress says to stop.
    pub fn compute(
        graph: &NeededGraph<'_>,
        results: Vec<NodeSet>,
        options: &NeededOptions<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<Self>> {
        let threads = options.threads;
        let nothing = |&nodes: &u64| Arc::new(NodeSet::from_members(nodes, []));
        let mut last: Vec<Arc<NodeSet>> = graph.nodes.iter().map(nothing).collect();
        for (&node_type, results) in graph.output_types.iter().zip(results) {
            last[node_type] = Arc::new(results);
        }
        let mut sets = vec![last];
        let mut edges = Vec::new();
        let mut work = 0.0;
        for (layer, relations) in graph.layers[..options.layers].iter().enumerate().rev() {
            let outputs = sets.last().expect("there is one");
            let is_known = layer == 0 && options.knows_first_hop;
            // The relations that the layer aggregates, with the number of their edges.
            let mut aggregated = Vec::new();
            for (node_type, set) in outputs.iter().enumerate().filter(|(_, set)| !set.is_empty()) {
                work += STATE_WORK * set.len() as f64;
                for &relation in relations[node_type].iter().flatten().filter(|_| !is_known) {
                    let lists = lists(graph.lists[relation], options.samples, layer, relation);
                    let edges = lists.edges_to(set, threads)?;
                    work += edges as f64;
                    aggregated.push((node_type, relation, edges));
                }
            }
            if work > options.work_max {
                return Ok(None);
            }
            let mut inputs: Vec<Arc<NodeSet>> = outputs.clone();
            for &(node_type, relation, _) in &aggregated {
                let lists = lists(graph.lists[relation], options.samples, layer, relation);
                let (source, set) = (graph.sources[relation], &outputs[node_type]);
                let found = match source == node_type {
                    true => lists.with_sources(set, threads, progress)?.0,
                    false => lists.sources_of(set, threads, progress)?,
                };
                inputs[source] = Arc::new(inputs[source].union(&found));
            }
            // Layer `layer - 1` makes these states.
            if !is_known && let Some(also) = layer.checked_sub(2).and_then(|at| options.also.get(at)) {
                let own = graph.output_types[0];
                inputs[own] = Arc::new(inputs[own].union(also));
            }
            sets.push(inputs);
            edges.push(aggregated.iter().map(|(.., edges)| edges).sum());
        }
        sets.reverse();
        edges.reverse();
        Ok(Some(Self { sets, output_types: graph.output_types.clone(), edges, samples: options.samples.to_vec() }))
    }

    /// Whether some layers aggregate samples of in-neighbors.
    pub fn is_sampled(&self) -> bool {
        !self.samples.is_empty()
    }

    /// The in-neighbors of a relation that a layer aggregates.
    pub(super) fn lists<'a>(&self, chunks: &'a MappedChunks, layer: usize, relation: usize) -> InNeighbors<'a> {
        lists(chunks, &self.samples, layer, relation)
    }

    /// The nodes of a graph without types whose states a layer takes.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn inputs(&self, layer: usize) -> &NodeSet {
        self.inputs_of(layer, self.output_types[0])
    }

    /// The nodes of a graph without types whose states a layer makes.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn outputs(&self, layer: usize) -> &NodeSet {
        self.inputs_of(layer + 1, self.output_types[0])
    }

    /// The nodes of a type whose states a layer takes. Those that it makes are the inputs of the next one.
    ///
    /// # Panics
    /// If there is no such layer or type.
    pub fn inputs_of(&self, layer: usize, node_type: usize) -> &NodeSet {
        &self.sets[layer][node_type]
    }

    /// The nodes whose results are wanted, of the first output type.
    pub fn results(&self) -> &NodeSet {
        self.outputs(self.layers() - 1)
    }

    /// The position of the first result of each output type among all results, which are in the order of output types.
    pub(super) fn first_results(&self) -> Vec<(usize, u64)> {
        let mut first = 0;
        let starts = self.output_types.iter().map(|&node_type| {
            let count = self.inputs_of(self.layers(), node_type).len();
            first += count;
            (node_type, first - count)
        });
        starts.collect()
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.edges.len()
    }

    /// A measure of the work: the number of edges to aggregate, and 16 for each state to update.
    pub fn work(&self) -> f64 {
        let states: u64 = self.sets[1..].iter().flatten().map(|set| set.len()).sum();
        self.edges.iter().sum::<u64>() as f64 + STATE_WORK * states as f64
    }
}

/// All relations draw different in-neighbors.
fn lists<'a>(
    chunks: &'a MappedChunks,
    samples: &[Option<NeighborSample>],
    layer: usize,
    relation: usize,
) -> InNeighbors<'a> {
    let sample = samples.get(layer).copied().flatten().map(|sample| NeighborSample {
        seed: if relation == 0 { sample.seed } else { random::combine(sample.seed, relation as u64) },
        ..sample
    });
    InNeighbors::sampled(chunks, sample)
}
