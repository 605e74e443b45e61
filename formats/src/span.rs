//! The span of a chunk: its number and its nodes.
//!
//! The metas of a chunk's features, labels, edge weights and edge features start with it. A file that was swapped with the file of
//! another chunk is therefore found when it is opened.
//!
//! ```text
//! offset  bytes  content
//!      0      4  chunk
//!      4      4  zeros
//!      8      8  first node
//!     16      8  number of entries, one per node
//! ```

use crate::{ChunkId, NODES_MAX, NodeId, Result, bytes::Fields, chunks::ChunkMap, error::invalid_if};

/// The nodes of a chunk. Its files have one entry (an adjacency list, a feature row, a label) per node, in order.
///
/// ```
/// use grappa_formats::{ChunkId, ChunkSpan, chunks::ChunkMap};
///
/// let span = ChunkSpan::for_chunk(&ChunkMap::uniform(10, 3), ChunkId(1));
/// assert_eq!(span.to_string(), "chunk 1 (3 nodes from node 3 on)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSpan {
    /// The number of the chunk.
    pub chunk: ChunkId,
    /// The node of entry 0.
    pub first_node: NodeId,
    /// Number of nodes, and of entries; at most 2^32.
    pub rows: u64,
}

impl ChunkSpan {
    /// Length of the encoded span in bytes.
    pub const BYTES: usize = 24;

    /// The span of `chunk`.
    pub fn for_chunk(map: &ChunkMap, chunk: ChunkId) -> Self {
        Self { chunk, first_node: NodeId(map.range(chunk).start), rows: map.len(chunk) }
    }

    /// Fails unless the file it was read from has the expected span.
    pub fn expect(&self, expected: &Self) -> Result<()> {
        invalid_if!(self != expected, 64, "the file is of {self}, expected {expected}; were files swapped?");
        Ok(())
    }

    /// Appends the span to a meta.
    pub fn encode_into(&self, meta: &mut Vec<u8>) {
        meta.extend_from_slice(&self.chunk.0.to_le_bytes());
        meta.extend_from_slice(&0u32.to_le_bytes());
        meta.extend_from_slice(&self.first_node.0.to_le_bytes());
        meta.extend_from_slice(&self.rows.to_le_bytes());
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self> {
        let at = fields.offset();
        let chunk = ChunkId(fields.u32());
        fields.zeros::<4>()?;
        let (first_node, rows) = (fields.u64(), fields.u64());
        invalid_if!(
            rows > ChunkMap::CHUNK_NODES_MAX || first_node > NODES_MAX - rows,
            at + 8,
            "{rows} entries from node {first_node} on are more than a chunk or a graph can have"
        );
        Ok(Self { chunk, first_node: NodeId(first_node), rows })
    }
}

impl std::fmt::Display for ChunkSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "chunk {} ({} nodes from node {} on)", self.chunk, self.rows, self.first_node)
    }
}
