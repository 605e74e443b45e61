//! The nodes that each layer has to compute.

use std::sync::Arc;

use grappa_engine::aggregate::NodeSet;
use grappa_io::progress::Progress;
use grappa_storage::Store;

use crate::Result;

/// The nodes whose states exact inference needs, layer by layer.
///
/// The result is wanted for some nodes. The last layer takes the states of these and of all their in-neighbours; the layer before
/// takes those of the in-neighbours of all these in turn. Nodes that are in no such set are never read.
#[derive(Debug, Clone)]
pub struct Needed {
    /// At index l: the nodes whose states layer l takes. Last: the nodes whose results are wanted.
    sets: Vec<Arc<NodeSet>>,
    /// The edges that each layer aggregates.
    edges: Vec<u64>,
}

impl Needed {
    /// All nodes at each of `layers` layers.
    pub fn all(store: &Store, layers: usize) -> Self {
        let all = Arc::new(NodeSet::all(store.manifest().nodes));
        Self {
            sets: vec![all; layers + 1],
            edges: vec![store.manifest().edges; layers],
        }
    }

    /// What the results of `wanted` after `layers` layers depend on. If the first layer's aggregates are known, it takes no
    /// in-neighbours.
    ///
    /// # Errors
    /// If an adjacency list cannot be read, or progress says to stop.
    pub fn of(
        store: &Store,
        wanted: NodeSet,
        layers: usize,
        knows_first_hop: bool,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut sets = vec![Arc::new(wanted)];
        let mut edges = Vec::new();
        for layer in (0..layers).rev() {
            let last = sets.last().expect("there is one");
            let (set, of_layer) = match layer == 0 && knows_first_hop {
                true => (last.clone(), 0),
                false => {
                    let (set, edges) = last.with_in_neighbours(store, threads, progress)?;
                    (Arc::new(set), edges)
                }
            };
            sets.push(set);
            edges.push(of_layer);
        }
        sets.reverse();
        edges.reverse();
        Ok(Self { sets, edges })
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
    pub fn wanted(&self) -> &NodeSet {
        self.sets.last().expect("there is one")
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.edges.len()
    }

    /// A measure of the work: edges to aggregate and states to update. A state costs about as much as 16 edges.
    pub fn work(&self) -> f64 {
        let states: u64 = self.sets[1..].iter().map(|set| set.len()).sum();
        self.edges.iter().sum::<u64>() as f64 + 16.0 * states as f64
    }

    /// The edges that a layer aggregates.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn edges(&self, layer: usize) -> u64 {
        self.edges[layer]
    }
}
