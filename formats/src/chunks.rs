//! The division of nodes into chunks, and the lookup of a node's chunk.

use std::ops::Range;

use crate::{ChunkId, FormatError, NODES_MAX, NodeId, Result, error::invalid_if};

/// The division of `0..nodes` into contiguous chunks.
///
/// A lookup costs a multiplication and a comparison if chunks differ by at most one node, which is how ingest makes
/// them unless the user gives a partition. It costs a binary search otherwise.
///
/// ```
/// use grappa_formats::{ChunkId, NodeId, chunks::ChunkMap};
///
/// let map = ChunkMap::uniform(10, 3);
/// assert_eq!(map.starts(), [0, 3, 6, 10]);
/// assert_eq!(map.chunk_of(NodeId(5)), ChunkId(1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkMap {
    /// `chunks + 1` node ids; chunk `i` is `starts[i]..starts[i + 1]`.
    starts: Vec<u64>,
    /// `floor(2^64 * chunks / nodes)` if every chunk starts where equal division puts it.
    reciprocal: Option<u64>,
}

impl ChunkMap {
    /// The maximum number of nodes in a chunk. Nodes of a chunk are numbered with 32 bits.
    pub const CHUNK_NODES_MAX: u64 = 1 << 32;

    /// Divides `nodes` nodes into `chunks` chunks whose sizes differ by at most one.
    ///
    /// # Panics
    /// If `chunks` is 0 or larger than `nodes`. (A graph without nodes may have one empty chunk.)
    pub fn uniform(nodes: u64, chunks: u32) -> Self {
        assert!(chunks > 0 && u64::from(chunks) <= nodes.max(1), "{chunks} chunks of {nodes} nodes");
        let starts = (0..=chunks).map(|i| (u128::from(i) * u128::from(nodes) / u128::from(chunks)) as u64);
        Self::with_starts(starts.collect())
    }

    /// Chunks with given starts. `starts` begins with 0 and ascends, and its last entry is the number of nodes.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] if that does not hold, or a chunk or the graph has too many nodes.
    pub fn from_starts(starts: Vec<u64>) -> Result<Self> {
        invalid_if!(
            starts.len() < 2 || starts[0] != 0 || u32::try_from(starts.len() - 1).is_err(),
            0,
            "chunk starts must begin with 0 and name at least one chunk"
        );
        if let Some(i) = starts.windows(2).position(|w| w[0] > w[1] || w[1] - w[0] > Self::CHUNK_NODES_MAX) {
            return Err(FormatError::invalid(0, format!("chunk {i} has a negative size or more than 2^32 nodes")));
        }
        invalid_if!(starts[starts.len() - 1] > NODES_MAX, 0, "{} nodes are more than 2^40", starts[starts.len() - 1]);
        Ok(Self::with_starts(starts))
    }

    fn with_starts(starts: Vec<u64>) -> Self {
        let (chunks, nodes) = (starts.len() as u128 - 1, u128::from(starts[starts.len() - 1]));
        let uniform = starts.iter().enumerate().all(|(i, &s)| u128::from(s) == i as u128 * nodes / chunks);
        // A single chunk needs no division, and its reciprocal may not fit in 64 bits.
        let reciprocal = (uniform && chunks > 1 && nodes > chunks).then(|| ((chunks << 64) / nodes) as u64);
        Self { starts, reciprocal }
    }

    /// The number of chunks, C.
    pub fn chunks(&self) -> u32 {
        (self.starts.len() - 1) as u32
    }

    /// The number of nodes, N.
    pub fn nodes(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// The first node of each chunk, then the number of nodes.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// The node ids of a chunk.
    #[inline]
    pub fn range(&self, chunk: ChunkId) -> Range<u64> {
        self.starts[chunk.0 as usize]..self.starts[chunk.0 as usize + 1]
    }

    /// The number of nodes of a chunk.
    pub fn len(&self, chunk: ChunkId) -> u64 {
        let range = self.range(chunk);
        range.end - range.start
    }

    /// The chunk of `node`.
    ///
    /// # Panics
    /// If `node` is not below [`ChunkMap::nodes`].
    #[inline]
    pub fn chunk_of(&self, node: NodeId) -> ChunkId {
        let Some(reciprocal) = self.reciprocal else {
            return self.search(node);
        };
        // `floor(node * chunks / nodes)` estimates the chunk. Starts and reciprocal are rounded down, so the estimate
        // can be off by up to two in either direction.
        let mut chunk = ((u128::from(node.0) * u128::from(reciprocal)) >> 64) as usize;
        while self.starts[chunk] > node.0 {
            chunk -= 1;
        }
        while self.starts[chunk + 1] <= node.0 {
            chunk += 1;
        }
        ChunkId(chunk as u32)
    }

    #[cold]
    fn search(&self, node: NodeId) -> ChunkId {
        assert!(node.0 < self.nodes(), "node {node} of {}", self.nodes());
        ChunkId(self.starts.partition_point(|&start| start <= node.0) as u32 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(map: &ChunkMap, node: u64) -> u32 {
        (0..map.chunks()).find(|&c| map.range(ChunkId(c)).contains(&node)).expect("every node has a chunk")
    }

    #[test]
    fn every_node_is_in_the_chunk_whose_range_holds_it() {
        for (nodes, chunks) in [(1, 1), (2, 2), (7, 3), (100, 7), (101, 100), (4096, 64), (1000, 999)] {
            let map = ChunkMap::uniform(nodes, chunks);
            assert_eq!((map.nodes(), map.chunks()), (nodes, chunks));
            for node in 0..nodes {
                assert_eq!(map.chunk_of(NodeId(node)).0, naive(&map, node), "node {node} of {nodes} in {chunks}");
            }
        }
    }

    #[test]
    fn chunk_boundaries_are_exact_at_forty_bits() {
        let map = ChunkMap::uniform(NODES_MAX - 3, 4099);
        for chunk in 0..4099 {
            let range = map.range(ChunkId(chunk));
            assert_eq!(map.chunk_of(NodeId(range.start)).0, chunk);
            assert_eq!(map.chunk_of(NodeId(range.end - 1)).0, chunk);
        }
    }

    #[test]
    fn uneven_chunks_skip_empty_ones() {
        let map = ChunkMap::from_starts(vec![0, 5, 5, 9]).unwrap();
        assert_eq!(map.chunk_of(NodeId(4)), ChunkId(0));
        assert_eq!(map.chunk_of(NodeId(5)), ChunkId(2));
        assert_eq!(map.len(ChunkId(1)), 0);
    }

    #[test]
    fn bad_starts_are_errors() {
        for starts in [vec![], vec![0], vec![1, 2], vec![0, 3, 2], vec![0, NODES_MAX + 1]] {
            assert!(ChunkMap::from_starts(starts).is_err());
        }
    }
}
