//! The largest minibatch.

use grappa_io::{Error, Result};

/// The maximum number of nodes of a minibatch.
pub(crate) const MINIBATCH_NODES_MAX: usize = 1 << 31;

/// Fails if a minibatch is too large for 32-bit indices. `edges` is the number in a block, and `nodes` an upper bound
/// of the minibatch's nodes. They count together, because some layers add a self-loop to each destination.
#[inline(always)]
pub(crate) fn check_size(edges: usize, nodes: usize) -> Result<()> {
    if edges + nodes > u32::MAX as usize || nodes > MINIBATCH_NODES_MAX {
        return Err(too_large(edges, nodes));
    }
    Ok(())
}

#[cold]
fn too_large(edges: usize, nodes: usize) -> Error {
    Error::limit(
        format!("a minibatch has a block with {edges} edges and up to {nodes} nodes"),
        "2^31 nodes, and fewer than 2^32 edges and nodes together in a block",
        "sample smaller batches, or fewer neighbors",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minibatches_end_where_their_numbers_do() {
        const EDGES_MAX: usize = u32::MAX as usize;
        for (edges, nodes) in [(0, 0), (EDGES_MAX, 0), (EDGES_MAX - MINIBATCH_NODES_MAX, MINIBATCH_NODES_MAX)] {
            check_size(edges, nodes).unwrap();
        }
        for (edges, nodes) in [(EDGES_MAX + 1, 0), (EDGES_MAX, 1), (0, MINIBATCH_NODES_MAX + 1), (1 << 40, 1 << 40)] {
            let error = check_size(edges, nodes).unwrap_err().to_string();
            assert!(error.contains("smaller batches"), "{error}");
        }
    }
}
