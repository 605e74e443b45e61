//! Minibatches of graphs with types.

use std::{sync::Arc, thread};

use grappa_engine::{
    Batch, Block, Loader as EngineLoader, NodeId, Progress, Result, Store,
    io::heap,
    sample::{Fanouts, LoaderOptions, Sampler, Seeds, view::Halo},
    store::Graph,
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};

use crate::{
    array::{Array, Leases},
    epochs::{Command, Deliver, Options, PreparedBatch},
    error::exception,
    labels::Labels,
    layout::{Coo, EdgeParts},
    nodes::{Numbers, nodes_of, numbers_of, reserved},
    partitions::{LossWeight, PartitionOptions, Partitions},
};

/// The purpose of the memory, in errors.
const SEEDS: &str = "the seeds of a loader";

/// What is drawn at each hop, by each relation.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TypedDrawing {
    fanouts: Vec<Vec<i64>>,
    replace: bool,
    by_weight: bool,
    /// Whether batches have the weights and the ids of edges, where relations have them.
    edge_weights: bool,
    edge_ids: bool,
    layout: String,
}

/// What the thread of a loader needs.
pub struct TypedDelivery {
    graph: Graph,
    loader: EngineLoader,
    partitions: Partitions,
    /// Whether batches list their edges by hop, as bipartite graphs.
    has_blocks: bool,
    /// What batches have of the edges of each relation.
    edges: Vec<EdgeParts>,
    /// Of each type, if batches have labels.
    labels: Option<Vec<Option<Arc<Labels>>>>,
    /// Whether batches have the labels of all nodes, not only of seeds.
    labels_all: bool,
    /// The seeds: where each group begins in the list of all, and the list.
    starts: Vec<i64>,
    seeds: Arc<Vec<NodeId>>,
}

/// A batch as Python gets it.
struct Prepared {
    types: Vec<TypePart>,
    relations: Vec<RelationPart>,
    loss_weight: LossWeight,
    batch: Batch,
}

struct TypePart {
    /// The numbers of the nodes. The first are the seeds.
    numbers: Vec<i64>,
    seeds: usize,
    input_ids: Vec<i64>,
    /// The number of seeds, then the number of nodes that each hop reaches first.
    nodes_of_hops: Vec<usize>,
    labels: Option<Array>,
}

struct RelationPart {
    edges: RelationEdges,
    edges_of_hops: Vec<usize>,
}

enum RelationEdges {
    /// Those of all hops.
    Hops(Coo),
    /// A bipartite graph per hop, with the numbers of its sources and destinations; the outermost hop first.
    Blocks(Vec<(Coo, (usize, usize))>),
}

impl TypedDelivery {
    /// Opens the partitions of epoch 0.
    pub fn open(
        graph: Graph,
        seeds: Vec<(usize, Numbers)>,
        drawing: TypedDrawing,
        options: &Options,
        partitions: PartitionOptions,
        labels: Option<Vec<Option<Arc<Labels>>>>,
        progress: &dyn Progress,
    ) -> PyResult<Self> {
        let (sampler, has_blocks) = drawing.sampler(&graph)?;
        let edges = graph.relations().iter().map(|store| EdgeParts {
            weights: drawing.edge_weights && store.manifest().weighted,
            ids: drawing.edge_ids && store.has_edge_data(),
            dim: None,
        });
        let edges = edges.collect();
        let mut loading: LoaderOptions = options.loading(sampler);
        let has_features = graph.node_types().iter().any(|store| store.manifest().features.is_some());
        loading.rows.features = options.features && has_features;
        loading.threads = options.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        partitions.apply(&mut loading, Halo::Stop)?;
        loading.memory = options.memory.unwrap_or(loading.memory);
        let (mut starts, mut all) = (Vec::new(), Vec::new());
        for (node_type, Numbers(numbers)) in seeds {
            starts.push(all.len() as i64);
            let start = graph.positions().range(node_type).start;
            let nodes = nodes_of(&graph.node_types()[node_type], &numbers)?;
            heap::grow(&mut all, nodes.len(), SEEDS).map_err(exception)?;
            all.extend(nodes.into_iter().map(|node| NodeId(start + node.0)));
        }
        let seeds = Arc::new(all);
        let mut loader = EngineLoader::of_graph(&graph, loading);
        let mut partitions = Partitions::new(partitions, Seeds::List(seeds.clone()), options.seed);
        partitions.open(&mut loader, &graph, 0, progress).map_err(exception)?;
        partitions.check(&loader.all_batches(0)).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let labels_all = options.labels.as_deref() == Some("all");
        Ok(Self { graph, loader, partitions, has_blocks, edges, labels, labels_all, starts, seeds })
    }

    /// The batch, with the index of each seed in the list of all seeds.
    fn prepare(&self, batch: Batch, indices: &[i64], loss_weight: LossWeight) -> Result<Prepared> {
        let mut input_ids = vec![Vec::new(); batch.minibatches().len()];
        for &index in indices {
            let (node_type, _) = self.graph.positions().locate(self.seeds[index as usize].0);
            let group = self.starts.partition_point(|&start| start <= index) - 1;
            input_ids[node_type].push(index - self.starts[group]);
        }
        let manifest = self.graph.manifest();
        let relations: Vec<RelationBlocks<'_>> =
            (0..manifest.relations.len()).map(|number| RelationBlocks::new(&self.graph, number, &batch)).collect();
        let parts = relations.iter().zip(&self.edges).map(|(relation, &edges)| relation.part(edges, self.has_blocks));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let mut types = Vec::with_capacity(input_ids.len());
        for ((node_type, minibatch), input_ids) in batch.minibatches().iter().enumerate().zip(input_ids) {
            let store = &self.graph.node_types()[node_type];
            let labelled = if self.labels_all { &minibatch.nodes[..] } else { &minibatch.nodes[..minibatch.seeds] };
            let labels = self.labels.as_ref().and_then(|labels| labels[node_type].as_ref());
            let mut reached = minibatch.seeds;
            let mut nodes_of_hops = vec![reached];
            let sources =
                manifest.relations.iter().zip(&relations).filter(|(entry, _)| entry.source as usize == node_type);
            let any = sources.map(|(_, relation)| relation).next();
            for hop in 0..relations.first().map_or(0, |relation| relation.blocks.len()) {
                // All relations from a type have its nodes after the hop.
                let nodes = any.map_or(reached, |relation| relation.blocks[hop].sources);
                nodes_of_hops.push(nodes - reached);
                reached = nodes;
            }
            types.push(TypePart {
                numbers: numbers_of(store, &minibatch.nodes)?,
                seeds: minibatch.seeds,
                input_ids,
                nodes_of_hops,
                labels: labels.map(|labels| labels.read(store, labelled)).transpose()?,
            });
        }
        Ok(Prepared { types, relations: parts, loss_weight, batch })
    }
}

impl Deliver for TypedDelivery {
    fn size(&self) -> (u64, u64) {
        let all = self.loader.all_batches(0);
        (all.steps(), all.seeds_of_all())
    }

    fn deliver(&mut self, command: &Command) -> Result<()> {
        let Self { loader, partitions, graph, .. } = self;
        partitions.open(loader, graph, command.epoch, &command.until_end())?;
        let order = command.order.as_ref();
        if let Some(order) = order {
            loader.set_seeds(partitions.seeds_at(&order.positions).into());
            loader.set_batches(order.ends.clone());
        }
        let all = loader.all_batches(command.epoch);
        partitions.check(&all)?;
        let (steps, seeds_per_step) = (all.steps(), all.seeds_per_step());
        let batches = loader.batches(command.epoch, |batches| batches.in_every_step(steps))?;
        command.deliver_each(self.loader.deliver(&batches), |batch| {
            let partitions = &self.partitions;
            let loss_weight = partitions.loss_weight(&batches, &batch, seeds_per_step);
            let positions = order.map(|order| &order.positions[..]);
            let indices = partitions.input_ids(&batches, batch.index(), &[], positions);
            Ok(Box::new(self.prepare(batch, &indices, loss_weight)?))
        })
    }
}

impl TypedDrawing {
    /// The sampler, and whether batches have blocks.
    fn sampler(&self, graph: &Graph) -> PyResult<(Sampler, bool)> {
        let fanouts = self.fanouts.iter().map(|fanouts| Fanouts::new(fanouts)).collect::<Result<Vec<_>>>();
        let fanouts = fanouts.map_err(exception)?;
        let Some(first) = fanouts.first().cloned() else {
            return Err(PyValueError::new_err("the graph has no relations, so there are no neighbors to sample"));
        };
        let unweighted = graph.relations().iter().position(|store| !store.manifest().weighted);
        if let (true, Some(relation)) = (self.by_weight, unweighted) {
            return Err(PyValueError::new_err(format!(
                "the relation {} has no edge weights; ingest it with weights, or leave out weight_attr",
                graph.manifest().relation_name(relation)
            )));
        }
        let sampler = match self.by_weight {
            true => Sampler::by_weight(first, self.replace),
            false => Sampler::uniform(first, self.replace),
        };
        let mut sampler = sampler.with_relation_fanouts(fanouts).map_err(exception)?;
        let has_blocks = self.layout == "blocks";
        if !has_blocks {
            sampler = sampler.drawing_once();
        }
        let has = |part: fn(&Store) -> bool| graph.relations().iter().any(|store| part(store));
        if self.edge_weights && has(|store| store.manifest().weighted) {
            sampler = sampler.with_edge_weights();
        }
        if self.edge_ids && has(Store::has_edge_data) {
            sampler = sampler.with_edge_ids();
        }
        Ok((sampler, has_blocks))
    }
}

/// The blocks of a relation in a batch, hop by hop.
struct RelationBlocks<'a> {
    blocks: Vec<&'a Block>,
}

impl<'a> RelationBlocks<'a> {
    fn new(graph: &Graph, number: usize, batch: &'a Batch) -> Self {
        let relations = &graph.manifest().relations;
        let destination = relations[number].destination;
        let before = relations[..number].iter().filter(|entry| entry.destination == destination).count();
        let all = relations.iter().filter(|entry| entry.destination == destination).count();
        Self { blocks: batch.minibatches()[destination as usize].blocks.iter().skip(before).step_by(all).collect() }
    }

    fn part(&self, parts: EdgeParts, has_blocks: bool) -> Result<RelationPart> {
        let edges_of_hops = self.blocks.iter().map(|block| block.indices.len()).collect();
        if !has_blocks {
            return Ok(RelationPart {
                edges: RelationEdges::Hops(Coo::from_blocks(&self.blocks, parts)?),
                edges_of_hops,
            });
        }
        let outermost_first = self
            .blocks
            .iter()
            .rev()
            .map(|block| Ok((Coo::from_blocks(&[block], parts)?, (block.sources, block.destinations))));
        Ok(RelationPart { edges: RelationEdges::Blocks(outermost_first.collect::<Result<_>>()?), edges_of_hops })
    }
}

impl PreparedBatch for Prepared {
    fn into_dict<'py>(self: Box<Self>, py: Python<'py>, leases: &Arc<Leases>) -> PyResult<Bound<'py, PyDict>> {
        let Self { types, relations, loss_weight, batch } = *self;
        let dict = PyDict::new(py);
        match loss_weight {
            LossWeight::OfBatch(weight) => dict.set_item("loss_weight", weight)?,
            LossWeight::OfSeeds(weights) => dict.set_item("loss_weight", Array::vector(weights))?,
        }
        let mut of_types = reserved(types.len(), SEEDS).map_err(exception)?;
        for part in types {
            let entries = PyDict::new(py);
            entries.set_item("n_id", Array::vector(part.numbers))?;
            entries.set_item("num_sampled_nodes", part.nodes_of_hops)?;
            if part.seeds > 0 {
                entries.set_item("batch_size", part.seeds)?;
                entries.set_item("input_id", Array::vector(part.input_ids))?;
            }
            if let Some(labels) = part.labels {
                entries.set_item("y", labels)?;
            }
            of_types.push(entries);
        }
        for (node_type, features) in Array::features(batch, leases) {
            of_types[node_type].set_item("x", features)?;
        }
        dict.set_item("types", of_types)?;
        let mut of_relations = reserved(relations.len(), SEEDS).map_err(exception)?;
        for part in relations {
            let entries = PyDict::new(py);
            match part.edges {
                RelationEdges::Hops(coo) => coo.put(&entries)?,
                RelationEdges::Blocks(blocks) => {
                    let blocks = blocks.into_iter().map(|(coo, size)| {
                        let block = PyDict::new(py);
                        coo.put(&block)?;
                        block.set_item("size", size)?;
                        Ok(block)
                    });
                    entries.set_item("blocks", blocks.collect::<PyResult<Vec<_>>>()?)?;
                }
            }
            entries.set_item("num_sampled_edges", part.edges_of_hops)?;
            of_relations.push(entries);
        }
        dict.set_item("relations", of_relations)?;
        Ok(dict)
    }
}
