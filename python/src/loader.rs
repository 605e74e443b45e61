//! Minibatches for Python. A thread owns the loader of the engine.

use std::{sync::Arc, thread};

use grappa_engine::{
    Batch, Progress, Store as EngineStore,
    formats::manifest::PermutationSpec,
    sample::{Fanouts, Join, LoaderOptions, Sampler, Seeds, feed::MinibatchOptions},
    store::{Graph as EngineGraph, NodeTimes},
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    array::{Array, Leases},
    background,
    delivery::{BatchTask, Delivery, EpochSource, Prepare},
    epochs::{Batches, Deliver, Options, Order, PreparedBatch, Running},
    error::exception,
    graph::Graph,
    labels::Labels,
    layout::{Drawing, Layout, Neighborhood},
    links::{LinkArrays, LinkOptions},
    nodes::{Numbers, collected, nodes_at, nodes_of, positions_of},
    partitions::{LossWeight, PartitionOptions},
    process::OfProcess,
    store::Store,
    times::{node_times, times_of},
    typed_loader::{TypedDrawing, open_graph},
};

/// The memory of a loader that is given none, in bytes: half of the free memory.
#[pyfunction]
pub fn default_memory() -> PyResult<u64> {
    let fanouts = Fanouts::new(&[1]).map_err(exception)?;
    Ok(LoaderOptions::new(MinibatchOptions::new(Sampler::uniform(fanouts, false))).memory)
}

/// Samples minibatches of a store on threads of its own.
#[pyclass(frozen, module = "grappa._grappa")]
pub struct Loader {
    running: OfProcess<Running>,
    batches: u64,
    seeds: u64,
    leases: Arc<Leases>,
}

/// A batch as Python gets it.
struct Prepared {
    batch: Batch,
    neighborhood: Neighborhood,
    positions: Option<Vec<i64>>,
    input_ids: Vec<i64>,
    /// The time of each seed, if seeds have times.
    seed_times: Option<Vec<i64>>,
    /// The time of each node, if seeds and nodes have times.
    node_times: Option<Vec<i64>>,
    labels: Option<Array>,
    links: Option<LinkArrays>,
    loss_weight: LossWeight,
}

/// What batches of a store have.
struct StoreBatches {
    store: Arc<EngineStore>,
    layout: Layout,
    /// The times of nodes, if seeds and nodes have times.
    node_times: Option<Arc<NodeTimes>>,
    labels: Option<Arc<Labels>>,
    /// Whether batches have the labels of all nodes, not only of seeds.
    labels_all: bool,
    /// Whether batches have the positions of their nodes in the store, too.
    by_position: bool,
}

#[pymethods]
impl Loader {
    #[new]
    #[pyo3(signature = (store, seeds, drawing, options, partitions, links = None))]
    fn new(
        py: Python<'_>,
        store: &Store,
        seeds: Option<Numbers>,
        drawing: Drawing,
        options: Options,
        partitions: PartitionOptions,
        links: Option<LinkOptions>,
    ) -> PyResult<Self> {
        options.check()?;
        let labels = match options.labels {
            Some(_) => py.detach(|| store.mapped_labels())?,
            None => None,
        };
        let store = store.engine().clone();
        let delivery = background::run(py, None, move |progress| {
            open_store(store, seeds, drawing, &options, partitions, labels, links, &*progress)
        })?;
        Self::start(Box::new(delivery))
    }

    /// A loader of a graph with types. `seeds` has a node type and numbers of its nodes, for each group of seeds.
    #[staticmethod]
    #[pyo3(signature = (graph, seeds, drawing, options, partitions, links = None))]
    fn of_graph(
        py: Python<'_>,
        graph: &Graph,
        seeds: Vec<(usize, Numbers)>,
        drawing: TypedDrawing,
        options: Options,
        partitions: PartitionOptions,
        links: Option<LinkOptions>,
    ) -> PyResult<Self> {
        options.check()?;
        let (graph, labels) = (graph.engine().clone(), options.labels.is_some().then(|| graph.labels()).transpose()?);
        let delivery = background::run(py, None, move |progress| {
            open_graph(graph, seeds, drawing, &options, partitions, labels, links, &*progress)
        })?;
        Self::start(Box::new(delivery))
    }

    /// Number of batches of an epoch.
    fn __len__(&self) -> usize {
        self.batches as usize
    }

    /// Number of seeds of an epoch.
    #[getter]
    fn num_seeds(&self) -> u64 {
        self.seeds
    }

    /// Starts an epoch. An earlier one that is not finished ends. `positions` is the order of its seeds, as valid positions in the list of
    /// all seeds, and `ends` has the end of each batch in it; both only where nothing is divided among processes or shuffled.
    #[pyo3(signature = (epoch, positions = None, ends = None))]
    fn epoch(
        &self,
        py: Python<'_>,
        epoch: u64,
        positions: Option<Numbers>,
        ends: Option<Numbers>,
    ) -> PyResult<Batches> {
        let order = positions.map(|Numbers(positions)| Order {
            positions,
            ends: ends.map(|Numbers(ends)| ends.into_iter().map(|end| end as u64).collect()),
        });
        self.running.get()?.epoch(py, epoch, order, &self.leases)
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        // Threads of a process that was forked do not exist in the other one.
        if let Ok(running) = self.running.get() {
            py.detach(|| running.end());
        }
    }
}

impl Loader {
    /// Starts the thread that delivers.
    fn start(delivery: Box<dyn Deliver>) -> PyResult<Self> {
        let (batches, seeds) = delivery.size();
        Ok(Self { running: OfProcess::new(Running::start(delivery)?), batches, seeds, leases: Arc::default() })
    }
}

#[expect(clippy::too_many_arguments, reason = "they are all that a loader is made of")]
fn open_store(
    store: Arc<EngineStore>,
    seeds: Option<Numbers>,
    drawing: Drawing,
    options: &Options,
    partitions: PartitionOptions,
    labels: Option<Arc<Labels>>,
    links: Option<LinkOptions>,
    progress: &dyn Progress,
) -> PyResult<Delivery<StoreBatches>> {
    let threads = options.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let node_times = node_times(&store, drawing.is_at_times())?;
    let (sampler, layout) = drawing.open(&store, threads)?;
    let mut loading = options.loading(sampler);
    loading.minibatches.join_steps = Some(Join::Apart);
    loading.minibatches.disjoint = layout.is_disjoint();
    loading.rows.features = options.features && store.manifest().features.is_some();
    loading.edge_features = layout.takes_edge_features();
    loading.threads = threads;
    let graph = EngineGraph::from_store(&store);
    partitions.apply(&graph, &mut loading)?;
    loading.memory = options.memory.unwrap_or(loading.memory);
    loading.threads = options.threads.unwrap_or(loading.threads);
    let seeds = match seeds {
        // The order of the store is only the order of node numbers if the store kept it.
        None if options.seed_times.is_none() && options.shuffle
            || options.by_position
            || links.is_some()
            || options.seed_times.is_none() && store.manifest().ids.permutation == PermutationSpec::Identity =>
        {
            Seeds::All
        }
        None => {
            let nodes = store.manifest().nodes;
            let all = collected(0..nodes as i64, nodes as usize, "the numbers of all nodes").map_err(exception)?;
            Seeds::List(nodes_of(&store, &all)?.into())
        }
        Some(Numbers(positions)) if options.by_position => Seeds::List(nodes_at(&store, &positions)?.into()),
        Some(Numbers(numbers)) => Seeds::List(nodes_of(&store, &numbers)?.into()),
    };
    let source = EpochSource::open(graph, loading, seeds, (options, partitions), links, progress)?;
    let labels_all = options.labels.as_deref() == Some("all");
    let batches = StoreBatches { store, layout, node_times, labels, labels_all, by_position: options.by_position };
    Ok(Delivery { source, batches })
}

impl Prepare for StoreBatches {
    fn prepare(&self, batch: Batch, task: BatchTask) -> Result<Box<dyn PreparedBatch>, grappa_engine::Error> {
        let minibatch = batch.minibatch();
        let labelled = if self.labels_all { &minibatch.nodes[..] } else { &minibatch.nodes[..minibatch.seeds] };
        let labels = self.labels.as_ref().map(|labels| labels.read(&self.store, labelled));
        let neighborhood = Neighborhood::new(&self.store, minibatch, &self.layout)?;
        let BatchTask { input_ids, seed_times, loss_weight, links } = task;
        Ok(Box::new(Prepared {
            input_ids: input_ids.unwrap_or_else(|| neighborhood.numbers[..minibatch.seeds].to_vec()),
            seed_times,
            node_times: self.node_times.as_ref().map(|times| times_of(times, minibatch)).transpose()?,
            positions: self.by_position.then(|| positions_of(&minibatch.nodes)).transpose()?,
            loss_weight,
            neighborhood,
            labels: labels.transpose()?,
            links,
            batch,
        }))
    }
}

impl PreparedBatch for Prepared {
    fn into_dict<'py>(self: Box<Self>, py: Python<'py>, leases: &Arc<Leases>) -> PyResult<Bound<'py, PyDict>> {
        let dict = self.neighborhood.into_dict(py)?;
        if let Some(positions) = self.positions {
            dict.set_item("positions", Array::vector(positions))?;
        }
        dict.set_item("input_id", Array::vector(self.input_ids))?;
        if let Some(times) = self.seed_times {
            dict.set_item("seed_time", Array::vector(times))?;
        }
        if let Some(times) = self.node_times {
            dict.set_item("node_time", Array::vector(times))?;
        }
        match self.loss_weight {
            LossWeight::OfBatch(weight) => dict.set_item("loss_weight", weight)?,
            LossWeight::OfSeeds(weights) => dict.set_item("loss_weight", Array::vector(weights))?,
        }
        if let Some(labels) = self.labels {
            dict.set_item("y", labels)?;
        }
        if let Some(links) = self.links {
            links.put(&dict)?;
        }
        for (name, (.., features)) in ["x", "x_aggregated"].into_iter().zip(Array::features(self.batch, leases)) {
            dict.set_item(name, features)?;
        }
        Ok(dict)
    }
}
