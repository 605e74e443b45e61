//! The in-edges of many nodes, read at once.

use grappa_engine::{NodeId, Result, Store, io::heap, store::Chunk};

use crate::nodes::{by_chunk, numbers_of};

/// The purpose of the memory, in errors.
const EDGES: &str = "in-edges";

/// The in-edges of a list of nodes, one node after another.
pub struct InEdges {
    /// Where the edges of each node begin, and at last their number.
    pub offsets: Vec<i64>,
    /// The numbers of the sources, ascending for each node.
    pub sources: Vec<i64>,
    /// A weight per edge, if edges have weights.
    pub weights: Option<Vec<f32>>,
    /// The features of each edge, row by row, if they are asked for and edges have some.
    pub features: Option<Vec<f32>>,
}

impl InEdges {
    /// Reads adjacency lists in the order of the files: each chunk is mapped once.
    ///
    /// # Errors
    /// If the store is a slice that lacks a node's chunk, or its files are damaged.
    pub fn read(store: &Store, nodes: &[NodeId], with_features: bool) -> Result<Self> {
        let mut groups: Vec<(Chunk, Vec<usize>)> = Vec::new();
        let mut offsets = heap::zeroed(nodes.len() + 1, EDGES)?;
        for (chunk, group) in by_chunk(store, nodes)? {
            let chunk = store.chunk(chunk)?;
            let (rows, first) = (chunk.rows(), chunk.span().first_node.0);
            for &at in &group {
                offsets[at + 1] = rows.degree(nodes[at].0 - first)? as i64;
            }
            groups.push((chunk, group));
        }
        for at in 0..nodes.len() {
            offsets[at + 1] += offsets[at];
        }
        let edges = offsets[nodes.len()] as usize;
        let mut sources = heap::zeroed(edges, EDGES)?;
        let mut weights = store.manifest().weighted.then(|| heap::zeroed(edges, EDGES)).transpose()?;
        let layout = store.edge_features().filter(|_| with_features);
        let dim = layout.map_or(0, |layout| layout.dim as usize);
        let mut features = layout.map(|_| heap::zeroed(edges.saturating_mul(dim), EDGES)).transpose()?;
        let (mut found, mut order, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (chunk, group) in groups {
            let (rows, first) = (chunk.rows(), chunk.span().first_node.0);
            let (weights_of_chunk, features_of_chunk) = (chunk.weights(), chunk.edge_features());
            for at in group {
                let row = nodes[at].0 - first;
                let place = offsets[at] as usize..offsets[at + 1] as usize;
                found.clear();
                found.extend(rows.row(row)?.iter().map(NodeId));
                let numbers = numbers_of(store, &found)?;
                order.clear();
                order.extend(0..numbers.len());
                order.sort_by_key(|&edge| numbers[edge]);
                for (source, &edge) in sources[place.clone()].iter_mut().zip(&order) {
                    *source = numbers[edge];
                }
                let columns = [(&weights_of_chunk, &mut weights, 1), (&features_of_chunk, &mut features, dim)];
                for (of_chunk, all, dim) in columns {
                    let (Some(of_chunk), Some(all)) = (of_chunk, all) else { continue };
                    values.resize(numbers.len() * dim, 0.0);
                    of_chunk.copy(of_chunk.range(row, &rows)?, &mut values)?;
                    let all = all[place.start * dim..place.end * dim].chunks_exact_mut(dim);
                    for (value, &edge) in all.zip(&order) {
                        value.copy_from_slice(&values[edge * dim..][..dim]);
                    }
                }
            }
        }
        Ok(Self { offsets, sources, weights, features })
    }
}
