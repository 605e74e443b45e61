//! The inputs of nodes: features, ages and learnable embeddings.

use std::sync::Arc;

use grappa_run::config::TrainConfig;
use grappa_storage::{Graph, Store, no_features};

use super::times;
use crate::{Error, Result};

/// Refuses a graph with a type whose nodes have no inputs.
pub(crate) fn check(graph: &Graph, config: &TrainConfig) -> Result<()> {
    let path = graph.path();
    let lacks = |name: &str, store: &Arc<Store>| {
        let number = graph.type_named(name).unwrap_or(0);
        let values = config.node_embeddings.values(name) + times::node_age_values(graph, number, config);
        store.manifest().features.is_none() && values == 0
    };
    let types = graph.manifest().node_types.iter().zip(graph.node_types());
    let lacking: Vec<&str> =
        types.filter(|(entry, store)| lacks(&entry.name, store)).map(|(entry, _)| entry.name.as_str()).collect();
    match lacking[..] {
        [] => Ok(()),
        [_] if !graph.has_types() => Err(no_features(path).into()),
        [first, ..] => Err(Error::WrongStore(format!(
            "{}: nodes of type {} have no features, which the model needs: make them from the features of neighbors with `grappa-store \
             add-features {} --kind mean --type {first}`, learn embeddings of them with --node-embeddings {first}=64, or ingest the graph \
             again with --features-from {first}=COLUMNS",
            path.display(),
            lacking.join(", "),
            path.display()
        ))),
    }
}
