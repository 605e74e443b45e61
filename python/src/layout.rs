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

use crate::{
    array::Array,
    error::exception,
    nodes::{collected, joined, numbers_of, reserved},
    times::{TimeDrawing, part_of_each},
};

/// The purpose of the memory, in errors.
const BATCH: &str = "the edges of a batch; give a smaller batch_size or num_neighbors";

/// How batches list their edges.
pub struct Layout {
    kind: Kind,
    /// Whether seeds are sampled apart.
    disjoint: bool,
    edges: EdgeParts,
}

/// What batches have of their edges besides their ends.
#[derive(Clone, Copy)]
pub struct EdgeParts {
    pub weights: bool,
    /// The places of edges in the store.
    pub ids: bool,
    /// The times of edges.
    pub times: bool,
    /// The number of features of an edge, if batches have them.
    pub dim: Option<usize>,
    /// The place among these features of the number of an edge's type, if edges have types.
    pub type_place: Option<usize>,
}

impl EdgeParts {
    /// The number of features of an edge of a store, and the place of its type.
    ///
    /// # Errors
    /// If the schema cannot be read.
    pub fn features_of(store: &Store) -> Result<(Option<usize>, Option<usize>)> {
        let dim = store.edge_features().map(|layout| layout.dim as usize);
        Ok((dim, store.edge_types()?.map(|(place, _)| place)))
    }
}

enum Kind {
    /// One list of edges, hop by hop, as PyTorch Geometric has it.
    Hops,
    /// A bipartite graph per hop, as DGL has it.
    Blocks,
    /// All edges among the sampled nodes.
    Induced(InducedEdges),
}

/// What is drawn at each hop.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Drawing {
    fanouts: Vec<i64>,
    replace: bool,
    by_weight: bool,
    edge_weights: bool,
    edge_ids: bool,
    edge_features: bool,
    layout: String,
    /// Whether each seed has a neighborhood of its own.
    disjoint: bool,
    /// The limits by the times of seeds, if seeds have times.
    times: Option<TimeDrawing>,
}

impl Drawing {
    /// Whether seeds have times.
    pub fn is_at_times(&self) -> bool {
        self.times.is_some()
    }

    /// The sampler and the layout of its minibatches. `threads` look for induced edges.
    pub fn open(self, store: &Store, threads: usize) -> PyResult<(Sampler, Layout)> {
        let fanouts = Fanouts::new(&self.fanouts).map_err(exception)?;
        let path = store.path().display();
        if (self.by_weight || self.edge_weights) && !store.manifest().weighted {
            return Err(PyValueError::new_err(format!(
                "{path} has no edge weights; ingest with weights=..., or leave out by_weight, edge_weights and weight_attr"
            )));
        }
        if self.edge_features && store.edge_features().is_none() {
            return Err(PyValueError::new_err(format!(
                "{path} has no edge features; ingest with edge_features=..., or leave out edge_features"
            )));
        }
        if self.edge_ids && !store.has_edge_data() {
            return Err(PyValueError::new_err(format!(
                "{path} has neither edge weights nor edge features, so its edges have no ids; leave out edge_ids"
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
                (
                    sampler.drawing_once(),
                    Kind::Induced(InducedEdges { chunks, first_edges: store.first_edges(), threads }),
                )
            }
            other => {
                return Err(PyValueError::new_err(format!(
                    "layout={other:?}; give \"hops\", \"blocks\" or \"induced\""
                )));
            }
        };
        let (dim, type_place) = EdgeParts::features_of(store).map_err(exception)?;
        let dim = dim.filter(|_| self.edge_features);
        let edges =
            EdgeParts { weights: self.edge_weights, ids: self.edge_ids, times: self.times.is_some(), dim, type_place };
        // What induced edges have is read with these.
        let is_sampled = !matches!(kind, Kind::Induced(_));
        let mut sampler = sampler;
        if is_sampled && edges.weights {
            sampler = sampler.with_edge_weights();
        }
        if is_sampled && (edges.ids || edges.dim.is_some()) {
            sampler = sampler.with_edge_ids();
        }
        if let Some(times) = &self.times {
            sampler = times.apply(sampler)?;
        }
        Ok((sampler, Layout { kind, disjoint: self.disjoint, edges }))
    }
}

impl Layout {
    /// Whether the loader has to sample seeds apart.
    pub fn is_disjoint(&self) -> bool {
        self.disjoint
    }

    /// Whether the loader has to deliver the features of sampled edges.
    pub fn takes_edge_features(&self) -> bool {
        self.edges.dim.is_some() && !matches!(self.kind, Kind::Induced(_))
    }
}

/// The nodes and edges of a minibatch as Python gets them.
pub struct Neighborhood {
    /// The numbers of the nodes. The first are the seeds.
    pub numbers: Vec<i64>,
    seeds: usize,
    /// The index of each node's seed, if seeds are sampled apart.
    seed_of_each: Option<Vec<i64>>,
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
pub struct Coo {
    /// Sources of all edges, then their destinations: a matrix of shape (2, edges).
    index: Vec<i64>,
    weights: Option<Vec<f32>>,
    ids: Option<Vec<i64>>,
    times: Option<Vec<i64>>,
    /// With the number of features of an edge.
    features: Option<(Vec<f32>, usize)>,
    /// The place of the number of an edge's type among them.
    type_place: Option<usize>,
}

impl Neighborhood {
    /// The minibatch of `store` in a layout.
    pub fn new(store: &Store, minibatch: &Minibatch, layout: &Layout) -> Result<Self> {
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
                    coo: Coo::from_blocks(&blocks.iter().collect::<Vec<_>>(), layout.edges)?,
                    nodes_of_hops,
                    edges_of_hops: blocks.iter().map(|block| block.indices.len()).collect(),
                }
            }
            Kind::Blocks => {
                let outermost_first = blocks.iter().rev().map(|block| {
                    let coo = Coo::from_blocks(&[block], layout.edges)?;
                    Ok((coo, (block.sources, block.destinations)))
                });
                Edges::Blocks(outermost_first.collect::<Result<_>>()?)
            }
            Kind::Induced(files) => Edges::Induced(Coo::among(&minibatch.nodes, files, layout.edges)?),
        };
        Ok(Self {
            numbers: numbers_of(store, &minibatch.nodes)?,
            seeds: minibatch.seeds,
            seed_of_each: layout.disjoint.then(|| part_of_each(minibatch)).transpose()?,
            edges,
        })
    }

    /// The entries of a batch of the package.
    pub fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("n_id", Array::vector(self.numbers))?;
        dict.set_item("batch_size", self.seeds)?;
        if let Some(seeds) = self.seed_of_each {
            dict.set_item("batch", Array::vector(seeds))?;
        }
        match self.edges {
            Edges::Hops { coo, nodes_of_hops, edges_of_hops } => {
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
    pub fn from_blocks(blocks: &[&Block], parts: EdgeParts) -> Result<Self> {
        let edges: usize = blocks.iter().map(|block| block.indices.len()).sum();
        let mut index = reserved(2 * edges, BATCH)?;
        for block in blocks {
            index.extend(block.indices.iter().map(|&source| i64::from(source)));
        }
        for block in blocks {
            for (destination, bounds) in (0..).zip(block.offsets.windows(2)) {
                index.resize(index.len() + (bounds[1] - bounds[0]) as usize, destination);
            }
        }
        let (mut weights, mut ids, mut times, mut features) = (None, None, None, None);
        if parts.weights {
            let of_blocks: Vec<_> = blocks.iter().map(|block| &block.edge_weights[..]).collect();
            weights = Some(joined(&of_blocks, BATCH)?);
        }
        if parts.ids {
            let of_blocks = blocks.iter().flat_map(|block| &block.edge_ids);
            ids = Some(collected(of_blocks.map(|&id| id as i64), edges, BATCH)?);
        }
        if parts.times {
            let of_blocks: Vec<_> = blocks.iter().map(|block| &block.edge_times[..]).collect();
            times = Some(joined(&of_blocks, BATCH)?);
        }
        if let Some(dim) = parts.dim {
            let of_blocks: Vec<_> = blocks.iter().map(|block| &block.edge_features[..]).collect();
            features = Some((joined(&of_blocks, BATCH)?, dim));
        }
        Ok(Self { index, weights, ids, times, features, type_place: parts.type_place })
    }

    /// All edges among `nodes`, by destination.
    fn among(nodes: &[NodeId], files: &InducedEdges, wanted: EdgeParts) -> Result<Self> {
        // Edges from a repeated seed come from its first place.
        let indices: HashMap<NodeId, i64> =
            nodes.iter().enumerate().rev().map(|(index, &node)| (node, index as i64)).collect();
        let part = nodes.len().div_ceil(files.threads.max(1)).max(1);
        let parts: Vec<Result<Induced>> = thread::scope(|scope| {
            let parts = nodes.chunks(part).zip((0..).step_by(part));
            let threads: Vec<_> = parts
                .map(|(nodes, first)| {
                    let indices = &indices;
                    scope.spawn(move || files.among(nodes, first, indices, wanted))
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let sources = parts.iter().map(|part| &part.sources[..]);
        let ends: Vec<_> = sources.chain(parts.iter().map(|part| &part.destinations[..])).collect();
        let (mut weights, mut ids, mut features) = (None, None, None);
        if wanted.weights {
            weights = Some(joined(&parts.iter().map(|part| &part.weights[..]).collect::<Vec<_>>(), BATCH)?);
        }
        if wanted.ids {
            ids = Some(joined(&parts.iter().map(|part| &part.ids[..]).collect::<Vec<_>>(), BATCH)?);
        }
        if let Some(dim) = wanted.dim {
            features = Some((joined(&parts.iter().map(|part| &part.features[..]).collect::<Vec<_>>(), BATCH)?, dim));
        }
        Ok(Self { index: joined(&ends, BATCH)?, weights, ids, times: None, features, type_place: wanted.type_place })
    }

    pub fn put(self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        let edges = self.index.len() / 2;
        dict.set_item("edge_index", Array::new(self.index, &[2, edges]))?;
        if let Some(weights) = self.weights {
            dict.set_item("edge_weight", Array::vector(weights))?;
        }
        if let Some(ids) = self.ids {
            dict.set_item("e_id", Array::vector(ids))?;
        }
        if let Some(times) = self.times {
            dict.set_item("edge_time", Array::vector(times))?;
        }
        if let Some((features, dim)) = self.features {
            if let Some(place) = self.type_place {
                // Numbers of types are whole, and below 2^24.
                let types = features.iter().skip(place).step_by(dim).map(|&number| number as i64);
                dict.set_item("edge_type", Array::vector(collected(types, edges, BATCH).map_err(exception)?))?;
            }
            dict.set_item("edge_attr", Array::new(features, &[edges, dim]))?;
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
    ids: Vec<i64>,
    features: Vec<f32>,
}

/// Finds edges in the files of a store.
struct InducedEdges {
    chunks: MappedChunks,
    /// The id of the first edge of each chunk.
    first_edges: Vec<u64>,
    threads: usize,
}

impl InducedEdges {
    /// The edges into `nodes` from any node of their batch. `first` is the index of the first of them in the batch, `indices` has the
    /// index of each node of it.
    fn among(
        &self,
        nodes: &[NodeId],
        first: usize,
        indices: &HashMap<NodeId, i64>,
        EdgeParts { weights, ids, dim, .. }: EdgeParts,
    ) -> Result<Induced> {
        let mut found = Induced::default();
        for (&node, destination) in nodes.iter().zip(first as i64..) {
            // A slice may lack the adjacency list.
            let Some((chunk, row)) = self.chunks.get(node) else { continue };
            let rows = chunk.rows();
            let weights = chunk.weights().filter(|_| weights);
            let features = chunk.edge_features().filter(|_| dim.is_some());
            let located_by = chunk.edge_features().or(chunk.weights());
            let edges = match (located_by, ids || weights.is_some() || features.is_some()) {
                (Some(edges), true) => edges.range(row, &rows)?,
                _ => 0..0,
            };
            for (source, edge) in rows.row(row)?.iter().zip(edges.start..) {
                let Some(&source) = indices.get(&NodeId(source)) else { continue };
                found.sources.push(source);
                found.destinations.push(destination);
                let edge = edge..edge + 1;
                if let Some(weights) = weights {
                    let at = found.weights.len();
                    found.weights.push(0.0);
                    weights.copy(edge.clone(), &mut found.weights[at..])?;
                }
                if let Some(features) = features {
                    let at = found.features.len();
                    found.features.resize(at + features.meta().layout.dim as usize, 0.0);
                    features.copy(edge.clone(), &mut found.features[at..])?;
                }
                if ids {
                    let first_edge = self.first_edges[chunk.span().chunk.0 as usize];
                    found.ids.push((first_edge + edge.start) as i64);
                }
            }
        }
        Ok(found)
    }
}
