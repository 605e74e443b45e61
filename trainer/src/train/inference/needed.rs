//! The nodes that each layer has to compute.

use std::sync::Arc;

use grappa_io::progress::Progress;
use grappa_sampling::{InNeighbors, NeighborSample, NodeSet, policy::STATE_WORK};
use grappa_storage::{MappedChunks, Store};

use crate::Result;

/// The nodes whose states exact inference needs, layer by layer.
///
/// The result is wanted for some nodes. The last layer takes the states of these and of all their in-neighbors; the layer before
/// takes the states of the in-neighbors of all these in turn. Nodes that are in no such set are never read.
#[derive(Debug, Clone)]
pub struct Needed {
    /// At index l: the nodes whose states layer l takes. Last: the nodes whose results are wanted.
    sets: Vec<Arc<NodeSet>>,
    /// The edges that each layer aggregates.
    edges: Vec<u64>,
    /// The in-neighbors that each layer aggregates; empty if all layers aggregate all.
    samples: Vec<Option<NeighborSample>>,
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
    /// All nodes at each of `layers` layers.
    pub fn all(store: &Store, layers: usize) -> Self {
        let all = Arc::new(NodeSet::all(store.manifest().nodes));
        Self { sets: vec![all; layers + 1], edges: vec![store.manifest().edges; layers], samples: Vec::new() }
    }

    /// Finds the nodes that the states of the nodes `results` depend on. None if that is more work than [`NeededOptions::work_max`]: the search
    /// then ends early.
    ///
    /// # Errors
    /// If an adjacency list cannot be read, or progress says to stop.
    pub fn compute(
        chunks: &MappedChunks,
        results: NodeSet,
        options: &NeededOptions<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<Self>> {
        let threads = options.threads;
        let mut sets = vec![Arc::new(results)];
        let mut edges = Vec::new();
        let mut work = 0.0;
        for layer in (0..options.layers).rev() {
            let lists = lists(chunks, options.samples, layer);
            let outputs = sets.last().expect("there is one");
            let is_known = layer == 0 && options.knows_first_hop;
            work += STATE_WORK * outputs.len() as f64;
            if !is_known {
                work += lists.edges_to(outputs, threads)? as f64;
            }
            if work > options.work_max {
                return Ok(None);
            }
            let (inputs, layer_nodes) = match is_known {
                true => (outputs.clone(), 0),
                false => {
                    let (inputs, edges) = lists.with_sources(outputs, threads, progress)?;
                    // Layer `layer - 1` makes these states.
                    let inputs = match layer.checked_sub(2).and_then(|at| options.also.get(at)) {
                        Some(also) => inputs.union(also),
                        None => inputs,
                    };
                    (Arc::new(inputs), edges)
                }
            };
            sets.push(inputs);
            edges.push(layer_nodes);
        }
        sets.reverse();
        edges.reverse();
        Ok(Some(Self { sets, edges, samples: options.samples.to_vec() }))
    }

    /// Whether some layers aggregate samples of in-neighbors.
    pub fn is_sampled(&self) -> bool {
        !self.samples.is_empty()
    }

    /// The in-neighbors that a layer aggregates.
    pub(super) fn lists<'a>(&self, chunks: &'a MappedChunks, layer: usize) -> InNeighbors<'a> {
        lists(chunks, &self.samples, layer)
    }

    /// The nodes whose states a layer takes.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn inputs(&self, layer: usize) -> &NodeSet {
        &self.sets[layer]
    }

    /// The nodes whose states a layer makes.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn outputs(&self, layer: usize) -> &NodeSet {
        &self.sets[layer + 1]
    }

    /// The nodes whose results are wanted.
    pub fn results(&self) -> &NodeSet {
        self.sets.last().expect("there is one")
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.edges.len()
    }

    /// A measure of the work: the number of edges to aggregate, and 16 for each state to update.
    pub fn work(&self) -> f64 {
        let states: u64 = self.sets[1..].iter().map(|set| set.len()).sum();
        self.edges.iter().sum::<u64>() as f64 + STATE_WORK * states as f64
    }
}

fn lists<'a>(chunks: &'a MappedChunks, samples: &[Option<NeighborSample>], layer: usize) -> InNeighbors<'a> {
    InNeighbors::sampled(chunks, samples.get(layer).copied().flatten())
}
