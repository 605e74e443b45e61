//! Weights and features of edges by their places in a store.

use grappa_engine::{Result, Store, formats::ChunkId, io::heap, store::Chunk};
use pyo3::{exceptions::PyIndexError, prelude::*};

use crate::{error::exception, nodes::reserved};

/// The purpose of the memory, in errors.
const EDGES: &str = "the values of edges";

/// Weights and features of a list of edges.
pub struct EdgeValues {
    /// A weight per edge, if edges have weights.
    pub weights: Option<Vec<f32>>,
    /// The features of each edge, row by row, if edges have some.
    pub features: Option<Vec<f32>>,
}

impl EdgeValues {
    /// Reads edges in the order of the files: each chunk is mapped once.
    ///
    /// # Errors
    /// `IndexError` if there is no such edge, or if the store is a slice that lacks its chunk; `grappa.Error` if files are damaged.
    pub fn read(store: &Store, places: &[i64]) -> PyResult<Self> {
        let first_edges = store.first_edges();
        let edges = store.manifest().edges;
        if let Some(wrong) = places.iter().find(|&&place| !(0..edges as i64).contains(&place)) {
            return Err(PyIndexError::new_err(format!(
                "there is no edge {wrong}: the graph has {edges} edges, from 0"
            )));
        }
        let dim = store.edge_features().map_or(0, |layout| layout.dim as usize);
        let mut values = Self {
            weights: store
                .manifest()
                .weighted
                .then(|| heap::zeroed(places.len(), EDGES))
                .transpose()
                .map_err(exception)?,
            features: (dim > 0)
                .then(|| heap::zeroed(places.len().saturating_mul(dim), EDGES))
                .transpose()
                .map_err(exception)?,
        };
        let mut order = reserved(places.len(), EDGES).map_err(exception)?;
        order.extend(0..places.len());
        order.sort_unstable_by_key(|&at| places[at]);
        let chunk_of = |at: usize| first_edges.partition_point(|&first| first <= places[at] as u64) - 1;
        for group in order.chunk_by(|&a, &b| chunk_of(a) == chunk_of(b)) {
            let number = chunk_of(group[0]);
            let chunk = store.chunk(ChunkId(number as u32)).map_err(exception)?;
            let of_chunk = group.iter().map(|&at| (at, places[at] as u64 - first_edges[number]));
            values.copy(&chunk, of_chunk, dim).map_err(exception)?;
        }
        Ok(values)
    }

    /// Copies the values of edges of a chunk: their indices in the list, with their places in the chunk.
    fn copy(&mut self, chunk: &Chunk, edges: impl Iterator<Item = (usize, u64)>, dim: usize) -> Result<()> {
        let (weights, features) = (chunk.weights(), chunk.edge_features());
        for (at, edge) in edges {
            let edge = edge..edge + 1;
            if let (Some(of_chunk), Some(all)) = (&weights, &mut self.weights) {
                of_chunk.copy(edge.clone(), &mut all[at..=at])?;
            }
            if let (Some(of_chunk), Some(all)) = (&features, &mut self.features) {
                of_chunk.copy(edge, &mut all[at * dim..][..dim])?;
            }
        }
        Ok(())
    }
}
