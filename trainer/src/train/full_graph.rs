//! The graph of a method whose steps take all of it ([`super::methods`]).

use grappa_engine::aggregate::{NodeRows, StoreFeatures};
use grappa_io::progress::Progress;
use grappa_run::config::Method;
use tch::{Tensor, no_grad};

use super::{
    data::TrainingData,
    learner::Learner,
    methods::{FullStep, FullTraining, LocalParts, PartitionedGraph, exchange_of},
    partitions,
    processes::Processes,
    resolved::ResolvedConfig,
};
use crate::{Error, Result};

/// Refuses several processes.
pub(super) fn check_processes(config: &ResolvedConfig, processes: &Processes) -> Result<()> {
    match config.trains_full_graph() && processes.group.is_some() {
        true => Err(Error::Options(format!(
            "--method {} trains all partitions in one process: leave out --workers and launchers, or use `--method grappa`",
            config.method
        ))),
        false => Ok(()),
    }
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
    let graph = PartitionedGraph::new(config, data, &assignment, config.device, progress)?;
    let parts = match config.method {
        Method::Llcg => PartitionedGraph::parts(data, &assignment, config.device, progress)?,
        _ => Vec::new(),
    };
    let store_rows = StoreFeatures::open(&data.store)?;
    let (nodes, width) = (data.store.manifest().nodes, store_rows.width());
    let mut values = vec![0.0; nodes as usize * width];
    store_rows.read(0..nodes, &mut values)?;
    let rows = Tensor::from_slice(&values).view([nodes as i64, width as i64]);
    let mut step = step_of(config, data, learner, graph, &rows)?;
    step.exchange = exchange_of(config);
    let parts = parts
        .into_iter()
        .map(|part| step_of(config, data, learner, part, &rows));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let local = (!parts.is_empty()).then(|| LocalParts::new(config, parts, &learner.model));
    Ok(FullTraining { step, local })
}

/// A step on a graph without an exchange. `rows` are the features of all nodes.
fn step_of(
    config: &ResolvedConfig,
    data: &TrainingData,
    learner: &Learner,
    graph: PartitionedGraph,
    rows: &Tensor,
) -> Result<FullStep> {
    let of_states: Vec<i64> = graph.nodes.iter().map(|node| node.0 as i64).collect();
    let rows = rows
        .index_select(0, &Tensor::from_slice(&of_states))
        .to_device(config.device);
    Ok(FullStep {
        features: no_grad(|| learner.model.normalized_features(&rows)),
        labels: data.labels().tensor(&graph.seed_nodes)?.to_device(config.device),
        factors: Tensor::from_slice(&graph.factors).to_device(config.device),
        exchange: None,
        graph,
    })
}
