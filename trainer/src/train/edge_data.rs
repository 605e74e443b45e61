//! The weights and features of edges: what the model takes, checked, and how minibatches get it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use grappa_formats::{ChunkId, NodeId};
use grappa_io::workers;
use grappa_run::{
    config::{StoredEdges, TrainConfig},
    model::{EdgeInput, LayerKind},
};
use grappa_sampling::{EdgeValues, sample::Sampler};
use grappa_storage::{Chunk, MappedChunks, Store};

use crate::{Error, Result};

/// Adjacency lists whose weights are read at once.
const PIECE_ROWS: u64 = 1 << 14;

/// What a store has of edges.
pub(super) fn stored(store: &Store) -> StoredEdges {
    StoredEdges {
        weights: store.manifest().weighted,
        features: store.edge_features().map_or(0, |layout| layout.dim as usize),
        is_whole: store.manifest().is_whole(),
    }
}

/// What the model of a run takes of the edges of a store.
///
/// # Errors
/// If an option contradicts it.
pub(super) fn input(store: &Store, config: &TrainConfig) -> Result<EdgeInput> {
    Ok(config.edge_input(stored(store))?)
}

/// Checks that a store has the edge data that a model was trained with.
///
/// # Errors
/// The message names what the store lacks.
pub(super) fn check_store(store: &Store, input: EdgeInput, model: LayerKind) -> Result<()> {
    let stored = stored(store);
    let (is_there, lacks) = match input {
        EdgeInput::Nothing => (true, String::new()),
        EdgeInput::Weights if model == LayerKind::Gcn => (
            stored.weights && stored.is_whole,
            "the weights of all edges: use a whole store that was ingested with --weight or --weights".to_owned(),
        ),
        EdgeInput::Weights => (
            stored.weights,
            "weights of edges: ingest them with --weight or --weights".to_owned(),
        ),
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
pub(super) fn with_values(sampler: Sampler, values: EdgeValues) -> Sampler {
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
pub(super) fn weight_sums(
    store: &Store,
    chunks: &MappedChunks,
    model: LayerKind,
    input: EdgeInput,
    threads: usize,
) -> Result<Option<Arc<[f32]>>> {
    if input != EdgeInput::Weights {
        return Ok(None);
    }
    let keeps = model == LayerKind::Gcn;
    let least = if model == LayerKind::Gin { f32::MIN } else { 0.0 };
    let map = chunks.map();
    let sums = Mutex::new(vec![0.0; if keeps { map.nodes() as usize } else { 0 }]);
    let next = AtomicU32::new(0);
    let wrong = Mutex::new(None);
    workers::run(threads, |worker| {
        while worker.goes_on() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= map.chunks() {
                break;
            }
            let Some(chunk) = chunks.chunk(ChunkId(number)) else {
                continue;
            };
            let first = map.range(ChunkId(number)).start;
            let found = chunk_sums(chunk, least, |row, of_rows| {
                if keeps {
                    let at = (first + row) as usize;
                    sums.lock().expect("no thread panics")[at..at + of_rows.len()].copy_from_slice(of_rows);
                }
            })?;
            if let Some((row, weight)) = found {
                *wrong.lock().expect("no thread panics") = Some((NodeId(first + row), weight));
            }
        }
        Ok(())
    })?;
    if let Some((node, weight)) = wrong.into_inner().expect("no thread panicked") {
        let needs = match model {
            LayerKind::Gin => "finite weights",
            _ => "finite weights of at least 0, because it divides by their sums",
        };
        return Err(Error::WrongStore(format!(
            "{}: an edge to {} has weight {weight}, and {model} needs {needs}: ingest other weights, or use --edge-data ignore",
            store.path().display(),
            store.ids().name(node)
        )));
    }
    Ok(keeps.then(|| sums.into_inner().expect("no thread panicked").into()))
}

/// Bytes of the [`weight_sums`] of a run.
///
/// # Errors
/// As [`input`].
pub(super) fn weight_sum_bytes(store: &Store, config: &TrainConfig) -> Result<u64> {
    let has_sums = config.model == LayerKind::Gcn && input(store, config)? == EdgeInput::Weights;
    Ok(if has_sums { 4 * store.manifest().nodes } else { 0 })
}

/// The memory that is left beside [`weight_sums`], in bytes.
pub(super) fn memory_beside(memory: u64, weight_sums: Option<&Arc<[f32]>>) -> u64 {
    memory.saturating_sub(weight_sums.map_or(0, |sums| size_of_val(&**sums) as u64))
}

/// Passes the sums of the weights of some successive rows of a chunk to `take`, with the first row. Returns a row with a weight that is
/// less than `least` or not finite, and the weight.
fn chunk_sums(chunk: &Chunk, least: f32, mut take: impl FnMut(u64, &[f32])) -> grappa_io::Result<Option<(u64, f32)>> {
    let (lists, weights) = (chunk.rows(), chunk.weights().expect("edges have weights"));
    let (mut values, mut sums) = (Vec::new(), Vec::new());
    for first in (0..lists.rows()).step_by(PIECE_ROWS as usize) {
        let rows = first..lists.rows().min(first + PIECE_ROWS);
        let mut start = weights.range(first, &lists)?.start;
        weights.read_ahead(start..weights.range(rows.end - 1, &lists)?.end);
        sums.clear();
        for (row, degree) in rows.clone().zip(lists.degrees(rows.clone())) {
            let end = start + degree?;
            values.resize((end - start) as usize, 0.0);
            weights.copy(start..end, &mut values)?;
            if let Some(wrong) = values.iter().find(|value| !(least..=f32::MAX).contains(*value)) {
                return Ok(Some((row, *wrong)));
            }
            // In f64, because a hub has millions.
            sums.push(values.iter().map(|&value| f64::from(value)).sum::<f64>() as f32);
            start = end;
        }
        take(first, &sums);
        chunk.release_rows(rows);
    }
    Ok(None)
}
