//! Whether a store is the one of a resumed run.

use std::path::Path;

use grappa_run::{checkpoint::RunState, folder, model::Task, schema::Match};
use grappa_storage::Graph;

use crate::{Error, Result};

/// Refuses a store that is not the one of the run in `folder`. `digest` identifies the store, or what all hosts train on.
pub(super) fn check_store(folder: &Path, state: &RunState, graph: &Graph, digest: u64) -> Result<()> {
    if state.store_digest == digest {
        return Ok(());
    }
    if graph.has_types() {
        return Err(other_store());
    }
    let store = &graph.node_types()[0];
    let (run, found) = (folder::schema_of(folder, state)?, store.schema()?);
    let features = ("features", Match::of_features(&run, &found));
    for (kind, matched) in [features, ("classes", Match::from_names(&run.classes, &found.classes))] {
        if matched.is_other() || matches!(matched, Match::Reordered(_)) {
            return Err(Error::WrongStore(format!(
                "the {kind} of the store are not those that the run was trained with: {}; use the store that it was trained on, or start \
                 a new run",
                matched.difference()
            )));
        }
    }
    let manifest = store.manifest();
    // The outputs of a model of links are embeddings.
    if let (Some(features), Some(labels)) = (&manifest.features, manifest.labels)
        && state.task() != Task::Links
    {
        state.check_store(features.dim.into(), labels.classes.into())?;
    }
    Err(other_store())
}

fn other_store() -> Error {
    Error::WrongStore(
        "the store is not the one that the run was trained on, or hosts have other chunks of its graph; use that store and those \
         chunks, or start a new run"
            .into(),
    )
}
