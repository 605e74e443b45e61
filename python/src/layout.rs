//! Minibatches in the layouts of PyTorch Geometric and DGL.

use std::{collections::HashMap, thread};

use grappa_engine::{
    Block, Minibatch, NodeId, Result, Store,
    sample::{Fanouts, Sampler},
    store::MappedChunks,
};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyDict, PyList},
};

use crate::{array::Array, error::exception, nodes::numbers_of};

/// How batches list their edges.
pub struct Layout {
    kind: Kind,
    /// Whether batches have the weights of their edges.
    weights: bool,
}

enum Kind {
    /// One list of edges, hop by hop, as PyTorch Geometric has it.
    Hops,
    /// A bipartite graph per hop, as DGL has it.
    Blocks,
    /// All edges among the sampled nodes.
    Induced { chunks: MappedChunks, threads: usize },
}

/// What is drawn at each hop.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Drawing {
    fanouts: Vec<i64>,
    replace: bool,
    by_weight: bool,
    edge_weights: bool,
    layout: String,
}

impl Drawing {
    /// The sampler and the layout of its minibatches. `threads` look for induced edges.
    pub fn open(self, store: &Store, threads: usize) -> PyResult<(Sampler, Layout)> {
        let fanouts = Fanouts::new(&self.fanouts).map_err(exception)?;
        if (self.by_weight || self.edge_weights) && !store.manifest().weighted {
            let path = store.path().display();
            return Err(PyValueError::new_err(format!(
                "{path} has no edge weights; ingest with weights=..., or leave out edge_weights and weight_attr"
            )));
        }
        let sampler = match self.by_weight {
            true => Sampler::by_weight(fanouts, self.replace),
            false => Sampler::uniform(fanouts, self.replace),
        };
        let (sampler, kind) = match &self.layout[..] {
            "hops" => (sampler.drawing_once(), Kind::Hops),
            "blocks" => (sampler, Kind::Blocks),
            "induced" => {
                let chunks = MappedChunks::open(store).map_err(exception)?;
                (sampler.drawing_once(), Kind::Induced { chunks, threads })
            }
            other => {
                return Err(PyValueError::new_err(format!(
                    "layout={other:?}; give \"hops\", \"blocks\" or \"induced\""
                )));
            }
        };
        let weights = self.edge_weights;
        // The weights of induced edges are read with these.
        let sampler = match &kind {
            Kind::Hops | Kind::Blocks if weights => sampler.with_edge_weights(),
            _ => sampler,
        };
        Ok((sampler, Layout { kind, weights }))
    }
}

/// The nodes and edges of a minibatch as Python gets them.
pub struct Neighborhood {
    numbers: Vec<i64>,
    seeds: usize,
    edges: Edges,
}

enum Edges {
    Hops {
        coo: Coo,
        /// The number of seeds, then the number of nodes that each hop reaches first.
        nodes_of_hops: Vec<usize>,
        edges_of_hops: Vec<usize>,
    },
    /// With the numbers of sources and destinations; the outermost hop first.
    Blocks(Vec<(Coo, (usize, usize))>),
    Induced(Coo),
}

/// Edges in coordinates: indices of nodes of the batch.
struct Coo {
    /// Sources of all edges, then their destinations: a matrix of shape (2, edges).
    index: Vec<i64>,
    weights: Option<Vec<f32>>,
}

impl Neighborhood {
    /// The minibatch of `store` in a layout.
    pub fn of(store: &Store, minibatch: &Minibatch, layout: &Layout) -> Result<Self> {
        let blocks = &minibatch.blocks[..];
        let edges = match &layout.kind {
            Kind::Hops => {
                let mut reached = minibatch.seeds;
                let mut nodes_of_hops = vec![reached];
                for block in blocks {
                    nodes_of_hops.push(block.sources - reached);
                    reached = block.sources;
                }
                Edges::Hops {
                    coo: Coo::of(blocks, layout.weights),
                    nodes_of_hops,
                    edges_of_hops: blocks.iter().map(|block| block.indices.len()).collect(),
                }
            }
            Kind::Blocks => {
                let block = |block: &Block| {
                    let coo = Coo::of(std::slice::from_ref(block), layout.weights);
                    (coo, (block.sources, block.destinations))
                };
                Edges::Blocks(blocks.iter().rev().map(block).collect())
            }
            Kind::Induced { chunks, threads } => {
                Edges::Induced(Coo::among(&minibatch.nodes, chunks, *threads, layout.weights)?)
            }
        };
        Ok(Self {
            numbers: numbers_of(store, &minibatch.nodes)?,
            seeds: minibatch.seeds,
            edges,
        })
    }

    /// The numbers of the nodes. The first are the seeds.
    pub fn numbers(&self) -> &[i64] {
        &self.numbers
    }

    /// The entries of a batch of the package.
    pub fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        let nodes = self.numbers.len();
        dict.set_item("n_id", Array::i64s(self.numbers, &[nodes]))?;
        dict.set_item("batch_size", self.seeds)?;
        match self.edges {
            Edges::Hops {
                coo,
                nodes_of_hops,
                edges_of_hops,
            } => {
                coo.put(&dict)?;
                dict.set_item("num_sampled_nodes", nodes_of_hops)?;
                dict.set_item("num_sampled_edges", edges_of_hops)?;
            }
            Edges::Blocks(blocks) => {
                let list = PyList::empty(py);
                for (coo, sizes) in blocks {
                    let block = PyDict::new(py);
                    coo.put(&block)?;
                    block.set_item("size", sizes)?;
                    list.append(block)?;
                }
                dict.set_item("blocks", list)?;
            }
            Edges::Induced(coo) => coo.put(&dict)?,
        }
        Ok(dict)
    }
}

impl Coo {
    /// The edges of some blocks.
    fn of(blocks: &[Block], weights: bool) -> Self {
        let edges: usize = blocks.iter().map(|block| block.indices.len()).sum();
        let mut index = Vec::with_capacity(2 * edges);
        for block in blocks {
            index.extend(block.indices.iter().map(|&source| i64::from(source)));
        }
        for block in blocks {
            for (destination, bounds) in (0..).zip(block.offsets.windows(2)) {
                index.resize(index.len() + (bounds[1] - bounds[0]) as usize, destination);
            }
        }
        let weights = weights.then(|| blocks.iter().flat_map(|block| &block.edge_weights).copied().collect());
        Self { index, weights }
    }

    /// All edges among `nodes`, by destination.
    fn among(nodes: &[NodeId], chunks: &MappedChunks, threads: usize, weights: bool) -> Result<Self> {
        let indices: HashMap<NodeId, i64> = nodes.iter().copied().zip(0..).collect();
        let part = nodes.len().div_ceil(threads.max(1)).max(1);
        let parts: Vec<Result<Induced>> = thread::scope(|scope| {
            let parts = nodes.chunks(part).zip((0..).step_by(part));
            let find = |(nodes, first)| {
                let indices = &indices;
                scope.spawn(move || Induced::find(nodes, first, indices, chunks, weights))
            };
            let threads: Vec<_> = parts.map(find).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let sources = parts.iter().flat_map(|part| &part.sources);
        let destinations = parts.iter().flat_map(|part| &part.destinations);
        Ok(Self {
            index: sources.chain(destinations).copied().collect(),
            weights: weights.then(|| parts.iter().flat_map(|part| &part.weights).copied().collect()),
        })
    }

    fn put(self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        let edges = self.index.len() / 2;
        dict.set_item("edge_index", Array::i64s(self.index, &[2, edges]))?;
        if let Some(weights) = self.weights {
            dict.set_item("edge_weight", Array::f32s(weights, &[edges]))?;
        }
        Ok(())
    }
}

/// The edges into some nodes of a batch from any of its nodes.
#[derive(Default)]
struct Induced {
    sources: Vec<i64>,
    destinations: Vec<i64>,
    weights: Vec<f32>,
}

impl Induced {
    /// `first` is the index of the first of the `nodes` in the batch, `indices` has the index of each node of it.
    fn find(
        nodes: &[NodeId],
        first: usize,
        indices: &HashMap<NodeId, i64>,
        chunks: &MappedChunks,
        weights: bool,
    ) -> Result<Self> {
        let mut found = Self::default();
        let mut of_row = Vec::new();
        for (&node, destination) in nodes.iter().zip(first as i64..) {
            // A slice may lack the adjacency list.
            let Some((chunk, row)) = chunks.get(node) else { continue };
            let rows = chunk.rows();
            if weights && let Some(weights) = chunk.weights() {
                let range = weights.range(row, &rows)?;
                of_row.resize((range.end - range.start) as usize, 0.0);
                weights.copy(range, &mut of_row)?;
            }
            for (at, source) in rows.row(row)?.iter().enumerate() {
                if let Some(&source) = indices.get(&NodeId(source)) {
                    found.sources.push(source);
                    found.destinations.push(destination);
                    if weights {
                        found.weights.push(of_row[at]);
                    }
                }
            }
        }
        Ok(found)
    }
}
