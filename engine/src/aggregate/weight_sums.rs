//! One pass over the weights of all edges: whether an aggregation can take them, and their sums.

use std::sync::{Arc, Mutex};

use grappa_formats::{ChunkId, NodeId};
use grappa_io::{Error, Result, workers};
use grappa_storage::{Chunk, MappedChunks, Store};

/// Adjacency lists whose weights are read at once.
const PIECE_ROWS: u64 = 1 << 14;

/// The weights of all edges, and what is expected of them.
#[derive(Debug, Clone, Copy)]
pub struct AllWeights<'a> {
    /// The store. Its edges have weights.
    pub store: &'a Store,
    /// Its chunks.
    pub chunks: &'a MappedChunks,
    /// What takes the weights, for messages.
    pub taker: &'a str,
    /// Whether the taker divides by sums of weights, so that none may be negative.
    pub divides: bool,
    /// How else to proceed, for messages.
    pub remedy: &'a str,
    /// Worker threads.
    pub threads: usize,
}

impl AllWeights<'_> {
    /// Checks that all weights are finite, and at least 0 if the taker divides by their sums.
    ///
    /// # Errors
    /// If a weight is not, or if files cannot be read.
    pub fn check(&self) -> Result<()> {
        self.pass(&|_, _| {})
    }

    /// The sums of the weights of each node's in-edges: 4 bytes per node. 0 for nodes whose chunks a slice lacks.
    ///
    /// # Errors
    /// As [`AllWeights::check`].
    pub fn sums(&self) -> Result<Arc<[f32]>> {
        let sums = Mutex::new(vec![0.0; self.chunks.map().nodes() as usize]);
        self.pass(&|first, row_sums| {
            sums.lock().expect("no thread panics")[first as usize..][..row_sums.len()].copy_from_slice(row_sums);
        })?;
        Ok(sums.into_inner().expect("no thread panicked").into())
    }

    /// Checks all weights. Passes the sums of some successive nodes to `take`, with the first node.
    fn pass(&self, take: &(dyn Fn(u64, &[f32]) + Sync)) -> Result<()> {
        let least = if self.divides { 0.0 } else { f32::MIN };
        let map = self.chunks.map();
        let wrong = Mutex::new(None);
        let chunks: Vec<ChunkId> = (0..map.chunks()).map(ChunkId).collect();
        workers::for_each(self.threads, &chunks, |id| {
            let Some(chunk) = self.chunks.chunk(id) else { return Ok(()) };
            let first = map.range(id).start;
            let found = chunk_sums(chunk, least, |row, row_sums| take(first + row, row_sums))?;
            if let Some((row, weight)) = found {
                *wrong.lock().expect("no thread panics") = Some((NodeId(first + row), weight));
            }
            Ok(())
        })?;
        let Some((node, weight)) = wrong.into_inner().expect("no thread panicked") else {
            return Ok(());
        };
        let needs = match self.divides {
            true => "finite weights of at least 0, because it divides by their sums",
            false => "finite weights",
        };
        let contradiction = format!(
            "{}: an edge to {} has weight {weight}, and {} needs {needs}",
            self.store.path().display(),
            self.store.ids().name(node),
            self.taker
        );
        Err(Error::conflict(contradiction, self.remedy))
    }
}

/// Passes the sums of the weights of some successive rows of a chunk to `take`, with the first row. Returns a row with a weight that is
/// less than `least` or not finite, and the weight.
fn chunk_sums(chunk: &Chunk, least: f32, mut take: impl FnMut(u64, &[f32])) -> Result<Option<(u64, f32)>> {
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
