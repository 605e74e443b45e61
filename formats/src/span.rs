//! Which rows a file of a chunk holds.
//!
//! The meta of every file of a chunk starts with this, so that files that changed places are found when they are
//! opened:
//!
//! ```text
//! offset  bytes  what
//!      0      4  chunk
//!      4      4  zero
//!      8      8  first node
//!     16      8  number of rows, one per node
//! ```

use crate::{ChunkId, FormatError, NODES_MAX, NodeId, Result, bytes::Fields, chunks::ChunkMap};

/// The rows of a chunk: one per node, from its first node on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSpan {
    /// The chunk.
    pub chunk: ChunkId,
    /// The node of row 0.
    pub first_node: NodeId,
    /// Number of rows, at most 2^32.
    pub rows: u64,
}

impl ChunkSpan {
    /// Length of the encoded span in bytes.
    pub const BYTES: usize = 24;

    /// The rows of `chunk`.
    pub fn of(map: &ChunkMap, chunk: ChunkId) -> Self {
        Self {
            chunk,
            first_node: NodeId(map.range(chunk).start),
            rows: map.len(chunk),
        }
    }

    /// Fails unless this is the span that belongs in the place of the file it was read from.
    pub fn expect(&self, expected: &Self) -> Result<()> {
        if self != expected {
            return Err(FormatError::invalid(
                64,
                format!("the file is of {self}, but in the place of {expected}; were files swapped?"),
            ));
        }
        Ok(())
    }

    /// Appends the encoded span to a meta.
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
        if rows > ChunkMap::CHUNK_NODES_MAX || first_node > NODES_MAX - rows {
            return Err(FormatError::invalid(
                at + 8,
                format!("{rows} rows from node {first_node} are more than a chunk or a graph can have"),
            ));
        }
        Ok(Self {
            chunk,
            first_node: NodeId(first_node),
            rows,
        })
    }
}

impl std::fmt::Display for ChunkSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "chunk {} ({} rows from node {})",
            self.chunk, self.rows, self.first_node
        )
    }
}
