//! Minibatches of graphs with types.

use std::{collections::BTreeMap, mem, sync::Arc, thread};

use grappa_engine::{
    Batch, Block, Minibatch, NodeId, Progress, Result, Store,
    io::heap,
    sample::{Fanouts, GraphShape, Join, LoaderOptions, Sampler, Seeds, feed::RowContent, view::shape_of},
    store::{Graph, NodeTimes},
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};

use crate::{
    array::{Array, Leases},
    delivery::{BatchTask, Delivery, EpochSource, Prepare},
    epochs::{Options, PreparedBatch},
    error::exception,
    labels::Labels,
    layout::{Coo, EdgeParts},
    links::{LinkArrays, LinkOptions},
    nodes::{Numbers, nodes_at, nodes_of, numbers_of, positions_of, reserved},
    partitions::{LossWeight, PartitionOptions},
    times::{TimeDrawing, node_times, part_of_each, times_of},
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
    /// Whether batches have the features of edges, where relations have them.
    edge_features: bool,
    layout: String,
    /// Whether each seed has a neighborhood of its own.
    disjoint: bool,
    /// The limits by the times of seeds, if seeds have times.
    times: Option<TimeDrawing>,
}

/// What batches of a graph have.
pub struct GraphBatches {
    graph: Graph,
    shape: GraphShape,
    /// Whether batches list their edges by hop, as bipartite graphs.
    has_blocks: bool,
    /// Whether each seed has a neighborhood of its own.
    disjoint: bool,
    /// Whether batches have the positions of their nodes in the store of their type, too.
    by_position: bool,
    /// What batches have of the edges of each relation.
    edges: Vec<EdgeParts>,
    /// The times of nodes, by type. None without times of seeds.
    node_times: Vec<Option<Arc<NodeTimes>>>,
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
    /// The pairs of a batch of links.
    links: Option<LinkArrays>,
    batch: Batch,
}

struct TypePart {
    /// The numbers of the nodes. The first are the seeds.
    numbers: Vec<i64>,
    positions: Option<Vec<i64>>,
    seeds: usize,
    input_ids: Vec<i64>,
    /// The time of each seed, if seeds have times.
    seed_times: Vec<i64>,
    /// The time of each node, if seeds and the nodes of the type have times.
    node_times: Option<Vec<i64>>,
    /// The number of seeds, then the number of nodes that each hop reaches first.
    nodes_of_hops: Vec<usize>,
    /// The index of each node's seed among the seeds of all types, if seeds have neighborhoods of their own.
    seed_of_each: Option<Vec<i64>>,
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

/// Opens the partitions of epoch 0.
#[expect(clippy::too_many_arguments, reason = "they are all that a loader is made of")]
pub fn open_graph(
    graph: Graph,
    seeds: Vec<(usize, Numbers)>,
    drawing: TypedDrawing,
    options: &Options,
    partitions: PartitionOptions,
    labels: Option<Vec<Option<Arc<Labels>>>>,
    links: Option<LinkOptions>,
    progress: &dyn Progress,
) -> PyResult<Delivery<GraphBatches>> {
    let (sampler, has_blocks) = drawing.sampler(&graph)?;
    let edges = graph.relations().iter().map(|store| {
        let (dim, type_place) = EdgeParts::features_of(store).map_err(exception)?;
        Ok(EdgeParts {
            weights: drawing.edge_weights && store.manifest().weighted,
            ids: drawing.edge_ids && store.has_edge_data(),
            times: drawing.times.is_some() && store.is_timed(),
            dim: dim.filter(|_| drawing.edge_features),
            type_place,
        })
    });
    let edges = edges.collect::<PyResult<_>>()?;
    let mut loading: LoaderOptions = options.loading(sampler);
    let has_features = graph.node_types().iter().any(|store| store.manifest().features.is_some());
    loading.minibatches.join_steps = Some(Join::Apart);
    loading.minibatches.disjoint = drawing.disjoint;
    loading.edge_features = drawing.edge_features;
    loading.rows.features = options.features && has_features;
    loading.threads = options.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    partitions.apply(&graph, &mut loading)?;
    loading.memory = options.memory.unwrap_or(loading.memory);
    let (mut starts, mut all) = (Vec::new(), Vec::new());
    for (node_type, Numbers(numbers)) in seeds {
        starts.push(all.len() as i64);
        let start = graph.positions().range(node_type).start;
        let store = &graph.node_types()[node_type];
        let nodes = if options.by_position { nodes_at(store, &numbers)? } else { nodes_of(store, &numbers)? };
        heap::grow(&mut all, nodes.len(), SEEDS).map_err(exception)?;
        all.extend(nodes.into_iter().map(|node| NodeId(start + node.0)));
    }
    let seeds = Arc::new(all);
    let listed = if links.is_some() { Seeds::All } else { Seeds::List(seeds.clone()) };
    let source = EpochSource::open(graph.clone(), loading, listed, (options, partitions), links, progress)?;
    let labels_all = options.labels.as_deref() == Some("all");
    let (shape, disjoint) = (shape_of(&graph), drawing.disjoint);
    let by_position = options.by_position;
    let node_times = graph.node_types().iter().map(|store| node_times(store, drawing.times.is_some()));
    let node_times = node_times.collect::<PyResult<_>>()?;
    let batches = GraphBatches {
        graph,
        shape,
        has_blocks,
        disjoint,
        by_position,
        edges,
        node_times,
        labels,
        labels_all,
        starts,
        seeds,
    };
    Ok(Delivery { source, batches })
}

impl Prepare for GraphBatches {
    fn prepare(&self, batch: Batch, task: BatchTask) -> Result<Box<dyn PreparedBatch>> {
        let minibatches = batch.minibatches();
        let mut input_ids = vec![Vec::new(); minibatches.len()];
        let mut seed_times = vec![Vec::new(); minibatches.len()];
        if task.links.is_none() {
            let mut times = task.seed_times.into_iter().flatten();
            for index in task.input_ids.into_iter().flatten() {
                let (node_type, _) = self.graph.positions().locate(self.seeds[index as usize].0);
                let group = self.starts.partition_point(|&start| start <= index) - 1;
                input_ids[node_type].push(index - self.starts[group]);
                seed_times[node_type].extend(times.next());
            }
        }
        let hops = self.shape.hops(minibatches);
        let parts = self.edges.iter().enumerate().map(|(number, &edges)| {
            let blocks: Vec<_> = (0..hops).map(|hop| self.shape.block(minibatches, number, hop)).collect();
            RelationPart::new(&blocks, edges, self.has_blocks)
        });
        let relations = parts.collect::<Result<Vec<_>>>()?;
        let mut seeds_of_each = self
            .disjoint
            .then(|| Self::seed_of_each(minibatches, task.links.is_some()))
            .transpose()?
            .map(Vec::into_iter);
        let mut types = Vec::with_capacity(input_ids.len());
        for (((node_type, minibatch), input_ids), seed_times) in
            minibatches.iter().enumerate().zip(input_ids).zip(seed_times)
        {
            let store = &self.graph.node_types()[node_type];
            let labelled = if self.labels_all { &minibatch.nodes[..] } else { &minibatch.nodes[..minibatch.seeds] };
            let labels = self.labels.as_ref().and_then(|labels| labels[node_type].as_ref());
            types.push(TypePart {
                numbers: numbers_of(store, &minibatch.nodes)?,
                positions: self.by_position.then(|| positions_of(&minibatch.nodes)).transpose()?,
                seeds: minibatch.seeds,
                input_ids,
                seed_times,
                node_times: self.node_times[node_type].as_ref().map(|times| times_of(times, minibatch)).transpose()?,
                nodes_of_hops: (0..=hops).map(|level| self.shape.level(minibatches, node_type, level).len()).collect(),
                seed_of_each: seeds_of_each.as_mut().and_then(Iterator::next),
                labels: labels.map(|labels| labels.read(store, labelled)).transpose()?,
            });
        }
        Ok(Box::new(Prepared { types, relations, loss_weight: task.loss_weight, links: task.links, batch }))
    }
}

impl GraphBatches {
    /// The index of each node's seed, of each type, if seeds were sampled apart. Seeds are numbered type by type, and links in their order.
    fn seed_of_each(minibatches: &[Minibatch], is_of_links: bool) -> Result<Vec<Vec<i64>>> {
        let mut of_types = minibatches.iter().map(part_of_each).collect::<Result<Vec<_>>>()?;
        if is_of_links {
            return Ok(of_types);
        }
        // Parts are in the order of the batch, which may mix types.
        let mut numbers = reserved(minibatches.iter().map(|minibatch| minibatch.seeds).sum(), SEEDS)?;
        numbers.resize(numbers.capacity(), 0);
        let parts_of_seeds = of_types.iter().zip(minibatches).flat_map(|(parts, minibatch)| &parts[..minibatch.seeds]);
        parts_of_seeds.zip(0..).for_each(|(&part, number)| numbers[part as usize] = number);
        of_types.iter_mut().flatten().for_each(|part| *part = numbers[*part as usize]);
        Ok(of_types)
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
        if (self.edge_ids || self.edge_features) && has(Store::has_edge_data) {
            sampler = sampler.with_edge_ids();
        }
        if let Some(times) = &self.times {
            sampler = times.apply(sampler)?;
        }
        Ok((sampler, has_blocks))
    }
}

impl RelationPart {
    /// The blocks of a relation, hop by hop.
    fn new(blocks: &[&Block], parts: EdgeParts, has_blocks: bool) -> Result<Self> {
        let edges_of_hops = blocks.iter().map(|block| block.indices.len()).collect();
        if !has_blocks {
            return Ok(Self { edges: RelationEdges::Hops(Coo::from_blocks(blocks, parts)?), edges_of_hops });
        }
        let outermost_first = blocks
            .iter()
            .rev()
            .map(|block| Ok((Coo::from_blocks(&[block], parts)?, (block.sources, block.destinations))));
        Ok(Self { edges: RelationEdges::Blocks(outermost_first.collect::<Result<_>>()?), edges_of_hops })
    }
}

impl PreparedBatch for Prepared {
    fn into_dict<'py>(self: Box<Self>, py: Python<'py>, leases: &Arc<Leases>) -> PyResult<Bound<'py, PyDict>> {
        let Self { types, relations, loss_weight, links, batch } = *self;
        let dict = PyDict::new(py);
        if let Some(mut links) = links {
            let entries = PyDict::new(py);
            entries.set_item("input_id", Array::vector(mem::take(&mut links.numbers)))?;
            links.put(&entries)?;
            dict.set_item("links", entries)?;
        }
        match loss_weight {
            LossWeight::OfBatch(weight) => dict.set_item("loss_weight", weight)?,
            LossWeight::OfSeeds(weights) => dict.set_item("loss_weight", Array::vector(weights))?,
        }
        let mut of_types = reserved(types.len(), SEEDS).map_err(exception)?;
        for part in types {
            let entries = PyDict::new(py);
            entries.set_item("n_id", Array::vector(part.numbers))?;
            if let Some(positions) = part.positions {
                entries.set_item("positions", Array::vector(positions))?;
            }
            entries.set_item("num_sampled_nodes", part.nodes_of_hops)?;
            if !part.input_ids.is_empty() {
                entries.set_item("batch_size", part.seeds)?;
                entries.set_item("input_id", Array::vector(part.input_ids))?;
                if !part.seed_times.is_empty() {
                    entries.set_item("seed_time", Array::vector(part.seed_times))?;
                }
            }
            if let Some(times) = part.node_times {
                entries.set_item("node_time", Array::vector(times))?;
            }
            if let Some(seeds) = part.seed_of_each {
                entries.set_item("batch", Array::vector(seeds))?;
            }
            if let Some(labels) = part.labels {
                entries.set_item("y", labels)?;
            }
            of_types.push(entries);
        }
        let mut aggregates = BTreeMap::new();
        for (node_type, content, rows) in Array::features(batch, leases) {
            match content {
                RowContent::Features => of_types[node_type].set_item("x", rows)?,
                RowContent::Aggregates(relation) => drop(aggregates.insert(relation, rows)),
            }
        }
        dict.set_item("types", of_types)?;
        let mut of_relations = reserved(relations.len(), SEEDS).map_err(exception)?;
        for (number, part) in relations.into_iter().enumerate() {
            let entries = PyDict::new(py);
            if let Some(rows) = aggregates.remove(&number) {
                entries.set_item("x_aggregated", rows)?;
            }
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
