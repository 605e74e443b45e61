//! Runs that have nothing left to do.

use std::path::Path;

use grappa_run::{config::TrainConfig, finished::FinishedRun};
use grappa_storage::Store;

use crate::train::ranks::store_digest;

/// The run in `folder`, if it is finished and was trained on `store` ([`FinishedRun::find`]). Whether a slice is the one that the run was
/// trained on depends on all hosts, so it is not checked.
pub fn finished(store: &Store, folder: &Path, config: &TrainConfig) -> Option<FinishedRun> {
    let run = FinishedRun::find(folder, config)?;
    let is_of_store = !store.manifest().is_whole() || store_digest(store).ok()? == run.state.store_digest;
    is_of_store.then_some(run)
}
