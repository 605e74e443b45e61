//! Runs that have nothing left to do.

use std::path::Path;

use grappa_run::{config::TrainConfig, finished::FinishedRun};
use grappa_storage::Graph;

/// The run in `folder`, if it is finished and was trained on this graph ([`FinishedRun::find`]). Whether a slice is the one that the run was
/// trained on depends on all hosts, so it is not checked.
pub fn finished(graph: &Graph, folder: &Path, config: &TrainConfig) -> Option<FinishedRun> {
    let run = FinishedRun::find(folder, config)?;
    let is_of_graph = !graph.is_whole() || graph.digest().ok()? == run.state.store_digest;
    is_of_graph.then_some(run)
}
