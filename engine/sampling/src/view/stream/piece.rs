//! Pieces of chunks: the bytes of successive adjacency lists.

use std::{ops::Range, sync::Arc};

use grappa_formats::{
    ChunkId,
    edge_rows::{ANCHOR_ROWS, EdgeRowsMeta},
    rows::{PADDING_BYTES, RowSizes, Rows, RowsMeta},
};
use grappa_io::{Error, Result, container::Checksums};

/// A piece that was read and is not decoded.
#[derive(Debug)]
pub(in crate::view) struct Piece {
    /// Its chunk.
    pub chunk: ChunkId,
    /// The nodes of the piece, by their indices in the chunk.
    pub nodes: Range<u64>,
    pub(super) directory: Arc<Directory>,
    /// The blocks of the adjacency lists.
    pub(super) edges: Blocks,
    /// The range of the edge weights in their payload, and their blocks, if edge weights are read.
    pub(super) weights: Option<(Range<u64>, Blocks)>,
}

/// The memory of a piece that was decoded.
pub(in crate::view) struct PieceMemory {
    pub(super) bytes: usize,
    pub(super) buffers: [Vec<u8>; 2],
}

/// Whole blocks of a payload.
#[derive(Debug)]
pub(super) struct Blocks {
    pub checksums: Arc<Checksums>,
    /// The offset of the first block in the payload.
    pub start: u64,
    pub bytes: Vec<u8>,
}

/// Locates the adjacency lists and edge weights of a chunk.
#[derive(Debug)]
pub(super) struct Directory {
    pub meta: RowsMeta,
    pub sizes: Arc<RowSizes>,
    pub degrees: Vec<u8>,
    /// The anchors of the edge weights; empty if edge weights are not read.
    pub anchors: Vec<u8>,
}

impl Piece {
    /// Fails if a byte of the piece is damaged. To be called before anything is decoded.
    pub(in crate::view) fn check(&self) -> Result<()> {
        self.edges.check()?;
        self.weights.as_ref().map_or(Ok(()), |(_, blocks)| blocks.check())
    }

    /// The decoder of the adjacency lists. Lists of the chunk that are not in the piece are empty, or belong to a
    /// neighboring piece.
    pub(in crate::view) fn lists(&self) -> Rows<'_> {
        let Directory { meta, sizes, degrees, .. } = &*self.directory;
        Rows::part(meta, sizes, self.edges.start, &self.edges.bytes, degrees)
            .expect("lengths were checked with the headers")
    }

    /// The edge weights; empty if they are not read.
    pub(in crate::view) fn edge_weights(&self) -> &[[u8; 4]] {
        match &self.weights {
            Some((range, blocks)) => blocks.part(range).as_chunks().0,
            None => &[],
        }
    }

    /// Gives up the piece and keeps its memory.
    pub(in crate::view) fn into_memory(self) -> PieceMemory {
        let weights = self.weights.map_or(Vec::new(), |(_, blocks)| blocks.bytes);
        PieceMemory { bytes: self.edges.bytes.len() + weights.len(), buffers: [self.edges.bytes, weights] }
    }
}

impl Blocks {
    pub(super) fn check(&self) -> Result<()> {
        self.checksums.check(self.start, &self.bytes).map_err(Error::format(self.checksums.path()))
    }

    /// The bytes of a range of the payload. The blocks must contain it.
    pub(super) fn part(&self, range: &Range<u64>) -> &[u8] {
        &self.bytes[(range.start - self.start) as usize..(range.end - self.start) as usize]
    }
}

impl Directory {
    /// The range of adjacency lists in the payload of `edges`; none if the directory is damaged.
    pub(super) fn edges_of(&self, nodes: &Range<u64>) -> Option<Range<u64>> {
        let lists = Rows::part(&self.meta, &self.sizes, 0, &[], &self.degrees).expect("the length that was read");
        let start = lists.locate(nodes.start).extent().start;
        let end = lists.locate(nodes.end - 1).extent().end + PADDING_BYTES as u64;
        (start <= end && end <= self.meta.edges_payload_bytes()).then_some(start..end)
    }

    /// The range of edge weights in their payload; none if the anchors are damaged.
    pub(super) fn weights_of(&self, nodes: &Range<u64>, meta: &EdgeRowsMeta) -> Option<Range<u64>> {
        let (start, end) = (self.edges_before(nodes.start, meta)?, self.edges_before(nodes.end, meta)?);
        (start <= end && end <= meta.edges).then(|| meta.place_of(start..end))
    }

    /// The number of edges of the nodes before one that an anchor is for, or of all nodes.
    fn edges_before(&self, index: u64, meta: &EdgeRowsMeta) -> Option<u64> {
        if index == self.meta.rows {
            return Some(meta.edges);
        }
        let anchor = *self.anchors.as_chunks().0.get((index / ANCHOR_ROWS) as usize)?;
        Some(u64::from_le_bytes(anchor))
    }
}
