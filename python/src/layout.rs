//! Minibatches in the layout of PyTorch Geometric.

use grappa_engine::Minibatch;

/// The edges of a minibatch in COO, hop by hop, and the number of nodes and edges of each hop.
pub struct CooEdges {
    /// Sources of all edges, then their destinations: a matrix of shape (2, edges).
    pub edge_index: Vec<i64>,
    pub edges: usize,
    /// The number of seeds, then the number of nodes that each hop reaches first.
    pub nodes_of_hops: Vec<usize>,
    pub edges_of_hops: Vec<usize>,
}

impl CooEdges {
    /// Numbers are indices of [`Minibatch::nodes`].
    pub fn of(minibatch: &Minibatch) -> Self {
        let edges = minibatch.edges();
        let mut edge_index = Vec::with_capacity(2 * edges);
        for block in &minibatch.blocks {
            edge_index.extend(block.indices.iter().map(|&source| i64::from(source)));
        }
        for block in &minibatch.blocks {
            for (destination, bounds) in (0..).zip(block.offsets.windows(2)) {
                edge_index.resize(edge_index.len() + (bounds[1] - bounds[0]) as usize, destination);
            }
        }
        let mut reached = minibatch.seeds;
        let mut nodes_of_hops = vec![reached];
        for block in &minibatch.blocks {
            nodes_of_hops.push(block.sources - reached);
            reached = block.sources;
        }
        Self {
            edge_index,
            edges,
            nodes_of_hops,
            edges_of_hops: minibatch.blocks.iter().map(|block| block.indices.len()).collect(),
        }
    }
}
