//! The in-edges of many nodes, read at once.

use grappa_engine::{NodeId, Result, Store, store::Chunk};

use crate::nodes::numbers_of;

/// The in-edges of a list of nodes, one node after another.
pub struct InEdges {
    /// Where the edges of each node begin, and at last their number.
    pub offsets: Vec<i64>,
    /// The numbers of the sources, ascending for each node.
    pub sources: Vec<i64>,
    /// A weight per edge, if edges have weights.
    pub weights: Option<Vec<f32>>,
}

impl InEdges {
    /// Reads adjacency lists in the order of the files: each chunk is mapped once.
    ///
    /// # Errors
    /// If the store is a slice that lacks a node's chunk, or its files are damaged.
    pub fn read(store: &Store, nodes: &[NodeId]) -> Result<Self> {
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_unstable_by_key(|&at| nodes[at]);
        let chunk_of = |at: usize| store.chunks().chunk_of(nodes[at]);
        let mut groups: Vec<(Chunk, &[usize])> = Vec::new();
        let mut offsets = vec![0; nodes.len() + 1];
        for group in order.chunk_by(|&a, &b| chunk_of(a) == chunk_of(b)) {
            let chunk = store.chunk(chunk_of(group[0]))?;
            let (rows, first) = (chunk.rows(), chunk.span().first_node.0);
            for &at in group {
                offsets[at + 1] = rows.degree(nodes[at].0 - first)? as i64;
            }
            groups.push((chunk, group));
        }
        for at in 0..nodes.len() {
            offsets[at + 1] += offsets[at];
        }
        let edges = offsets[nodes.len()] as usize;
        let mut sources = vec![0; edges];
        let mut weights = store.manifest().weighted.then(|| vec![0.0; edges]);
        for (chunk, group) in groups {
            let (rows, weights_of_chunk, first) = (chunk.rows(), chunk.weights(), chunk.span().first_node.0);
            let (mut found, mut pairs) = (Vec::new(), Vec::new());
            for &at in group {
                let row = nodes[at].0 - first;
                let place = offsets[at] as usize..offsets[at + 1] as usize;
                found.clear();
                found.extend(rows.row(row)?.iter().map(NodeId));
                let sources = &mut sources[place.clone()];
                sources.copy_from_slice(&numbers_of(store, &found)?);
                match (&weights_of_chunk, &mut weights) {
                    (Some(of_chunk), Some(weights)) => {
                        let weights = &mut weights[place];
                        of_chunk.copy(of_chunk.range(row, &rows)?, weights)?;
                        pairs.clear();
                        pairs.extend(sources.iter().copied().zip(weights.iter().copied()));
                        pairs.sort_by_key(|&(source, _)| source);
                        for (at, &(source, weight)) in pairs.iter().enumerate() {
                            (sources[at], weights[at]) = (source, weight);
                        }
                    }
                    _ => sources.sort_unstable(),
                }
            }
        }
        Ok(Self {
            offsets,
            sources,
            weights,
        })
    }
}
