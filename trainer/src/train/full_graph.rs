//! The graph of a method whose steps take all of it ([`super::methods`]).

use grappa_engine::aggregate::store_features;
use grappa_formats::NodeId;
use grappa_io::progress::Progress;
use grappa_run::config::Method;
use grappa_storage::Store;
use tch::{Tensor, no_grad};

use super::{
    data::TrainingData,
    learner::Learner,
    methods::{FullStep, FullTraining, LocalParts, Owners, PartitionedGraph, Wire, exchange_of, ranks_of},
    partitions,
    processes::Processes,
    resolved::ResolvedConfig,
};
use crate::{Error, Result};

/// Refuses several processes for methods that train in one, and processes without a partition.
pub(super) fn check_processes(config: &ResolvedConfig, processes: &Processes) -> Result<()> {
    let (method, partitions, ranks) = (config.method, config.partitions(), processes.count());
    if !config.trains_full_graph() || processes.group.is_none() {
        return Ok(());
    }
    if !method.may_have_processes() {
        return Err(Error::Options(format!(
            "--method {method} trains all partitions in one process: leave out --workers and launchers, or use `--method full`, varco or \
             grappa"
        )));
    }
    if partitions < ranks {
        return Err(Error::Options(format!(
            "--method {method} divides {partitions} partitions among {ranks} processes, and each needs one: use --partitions {ranks}, or \
             fewer processes"
        )));
    }
    Ok(())
}

/// Divides the graph, and reads its features and labels.
pub(super) fn open(
    config: &ResolvedConfig,
    data: &TrainingData,
    processes: &Processes,
    learner: &Learner,
    warnings: &mut Vec<String>,
    progress: &dyn Progress,
) -> Result<FullTraining> {
    let assignment = partitions::assign(config, &data.store, processes, 0, warnings)?;
    let owners = Owners::new(&data.store, &assignment, processes);
    let graph = PartitionedGraph::new(config, data, &owners, config.device, progress)?;
    let parts = match config.method {
        Method::Llcg => PartitionedGraph::parts(data, &owners, config.device, progress)?,
        _ => Vec::new(),
    };
    let rows = NodeFeatures::read(&data.store, &graph.nodes)?;
    let mut step = step_of(config, data, learner, graph, &rows)?;
    let group = processes.group.clone();
    let wire = group.map(|group| Wire::new(group, ranks_of(config.partitions(), processes)));
    step.exchange = exchange_of(config, wire);
    let parts = parts.into_iter().map(|part| step_of(config, data, learner, part, &rows));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let local = (!parts.is_empty()).then(|| LocalParts::new(config, parts, &learner.model));
    Ok(FullTraining { step, local })
}

/// Features of some nodes.
struct NodeFeatures {
    /// Ascending.
    nodes: Vec<NodeId>,
    /// f32 of `[nodes, features]`.
    rows: Tensor,
}

impl NodeFeatures {
    fn read(store: &Store, nodes: &[NodeId]) -> Result<Self> {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let of_store = store_features(store)?;
        let width = of_store.width();
        let mut values = vec![0.0; nodes.len() * width];
        let mut start = 0;
        for run in nodes.chunk_by(|a, b| a.0 + 1 == b.0) {
            let end = start + run.len() * width;
            of_store.read(run[0].0..run[0].0 + run.len() as u64, &mut values[start..end])?;
            start = end;
        }
        let rows = Tensor::from_slice(&values).view([nodes.len() as i64, width as i64]);
        Ok(Self { nodes, rows })
    }

    /// The rows of `nodes`, which are among them.
    fn of(&self, nodes: &[NodeId]) -> Tensor {
        let places = nodes.iter().map(|node| self.nodes.binary_search(node).expect("it was read") as i64);
        let places: Vec<i64> = places.collect();
        self.rows.index_select(0, &Tensor::from_slice(&places))
    }
}

/// A step on a graph without an exchange. `features` has all of its nodes.
fn step_of(
    config: &ResolvedConfig,
    data: &TrainingData,
    learner: &Learner,
    graph: PartitionedGraph,
    features: &NodeFeatures,
) -> Result<FullStep> {
    let rows = features.of(&graph.nodes).to_device(config.device);
    Ok(FullStep {
        features: no_grad(|| learner.model.normalized_features(&rows)),
        labels: data.labels().tensor(&graph.seed_nodes)?.to_device(config.device),
        factors: Tensor::from_slice(&graph.factors).to_device(config.device),
        exchange: None,
        graph,
    })
}
