//! The weights and features of edges: what the model takes, checked, and how minibatches get it.

use std::sync::Arc;

use grappa_engine::aggregate::AllWeights;
use grappa_run::{
    config::{StoredEdges, TrainConfig},
    model::{EdgeInput, LayerKind},
};
use grappa_sampling::{EdgeValues, sample::Sampler};
use grappa_storage::{Graph, MappedChunks, Store};

use super::times;
use crate::{Error, Result};

/// What a store has of edges.
pub(crate) fn stored(store: &Store) -> StoredEdges {
    StoredEdges {
        weights: store.manifest().weighted,
        features: store.edge_features().map_or(0, |layout| layout.dim as usize),
        age_values: 0,
        is_whole: store.manifest().is_whole(),
    }
}

/// What a graph has of edges, and the values of their ages if the run uses times. Models of graphs with types take no features of edges.
pub(crate) fn of_graph(graph: &Graph, config: &TrainConfig) -> StoredEdges {
    match graph.has_types() {
        false => StoredEdges {
            // Models with weights for each relation take them for each relation.
            age_values: match config.model.is_relational() {
                false => times::edge_age_values(graph, 0, config),
                true => 0,
            },
            ..stored(&graph.relations()[0])
        },
        true => StoredEdges { weights: false, features: 0, age_values: 0, is_whole: graph.is_whole() },
    }
}

/// Checks that a store has the edge data that a model was trained with.
///
/// # Errors
/// The message names what the store lacks.
pub(crate) fn check_store(store: &Store, input: EdgeInput, model: LayerKind) -> Result<()> {
    let stored = stored(store);
    let (is_there, lacks) = match input {
        EdgeInput::Nothing => (true, String::new()),
        EdgeInput::Weights if model == LayerKind::Gcn => (
            stored.weights && stored.is_whole,
            "the weights of all edges: use a whole store that was ingested with --weight or --weights".to_owned(),
        ),
        EdgeInput::Weights => (stored.weights, "weights of edges: ingest them with --weight or --weights".to_owned()),
        EdgeInput::Features(features) => (
            stored.features == features,
            format!(
                "{features} features of each edge, but {}: ingest them with --edge-features or --edge-features-from",
                stored.features
            ),
        ),
    };
    match is_there {
        true => Ok(()),
        false => Err(Error::WrongStore(format!(
            "{}: the model was trained with edge data that the store lacks; it has not {lacks}",
            store.path().display()
        ))),
    }
}

/// A sampler whose blocks have what the model takes of edges.
pub(crate) fn with_values(sampler: Sampler, values: EdgeValues) -> Sampler {
    match values {
        EdgeValues::Nothing => sampler,
        EdgeValues::Weight => sampler.with_edge_weights(),
        EdgeValues::Features => sampler.with_edge_ids(),
    }
}

/// Checks the weights of all edges for a model that takes them, in one pass over their files. Returns the sum of the weights of each node's
/// in-edges if the model divides by it: 4 bytes per node. Otherwise none.
///
/// # Errors
/// If a weight is not finite, or negative where a model divides by sums; if files cannot be read.
pub(crate) fn weight_sums(
    store: &Store,
    chunks: &MappedChunks,
    model: LayerKind,
    input: EdgeInput,
    threads: usize,
) -> Result<Option<Arc<[f32]>>> {
    if input != EdgeInput::Weights {
        return Ok(None);
    }
    let weights = AllWeights {
        store,
        chunks,
        taker: &model.to_string(),
        divides: model != LayerKind::Gin,
        remedy: "ingest other weights, or use --edge-data ignore",
        threads,
    };
    match model {
        LayerKind::Gcn => Ok(Some(weights.sums()?)),
        _ => Ok(weights.check().map(|()| None)?),
    }
}

/// Bytes of the [`weight_sums`] of a model.
pub(crate) fn weight_sum_bytes(nodes: u64, model: LayerKind, edges: EdgeInput) -> u64 {
    match model == LayerKind::Gcn && edges == EdgeInput::Weights {
        true => 4 * nodes,
        false => 0,
    }
}

/// The memory that is left beside [`weight_sums`], in bytes.
pub(crate) fn memory_beside(memory: u64, weight_sums: Option<&Arc<[f32]>>) -> u64 {
    memory.saturating_sub(weight_sums.map_or(0, |sums| size_of_val(&**sums) as u64))
}
