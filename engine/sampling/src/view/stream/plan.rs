//! Which adjacency lists are read, and where they are.

use std::{ops::Range, sync::Arc};

use grappa_formats::{
    ChunkId,
    edge_rows::{ANCHOR_ROWS, EdgeRowsMeta},
    rows::{RowSizes, RowsMeta},
};
use grappa_io::{
    Result,
    container::{Checksums, ContainerFile},
    read::{FileIndex, ReadFile},
};
use grappa_storage::AdjacencyFiles;

use super::{common::PIECE_EDGES, piece::Blocks};
use crate::view::edge_filter::EdgeFilter;

/// The chunks to read, divided into pieces.
pub(in crate::view) struct StreamPlan {
    pub(super) files: Arc<[ReadFile]>,
    pub(super) chunks: Vec<ChunkPlan>,
}

/// The files and pieces of a chunk.
pub(super) struct ChunkPlan {
    pub chunk: ChunkId,
    pub meta: RowsMeta,
    pub sizes: Arc<RowSizes>,
    pub edges: Payload,
    pub degrees: Payload,
    pub weights: Option<(Payload, EdgeRowsMeta)>,
    /// Ranges of nodes, by their indices in the chunk.
    pub pieces: Vec<Range<u64>>,
}

/// The payload of a file.
#[derive(Clone)]
pub(super) struct Payload {
    pub file: FileIndex,
    pub checksums: Arc<Checksums>,
}

impl StreamPlan {
    /// Opens the files of the chunks that `filter` includes, and divides the chunks into pieces.
    pub(in crate::view) fn new(filter: &EdgeFilter<'_>) -> Result<Self> {
        let mut opened = Vec::new();
        let mut chunks = Vec::new();
        for chunk in filter.owned.chunks() {
            let files = AdjacencyFiles::open(filter.store, filter.store.span(chunk)?, filter.edge_data.weights)?;
            chunks.push(ChunkPlan {
                chunk,
                edges: Payload::open(&files.edges, &mut opened)?,
                degrees: Payload::open(&files.degrees, &mut opened)?,
                weights: match &files.weights {
                    Some((file, meta)) => Some((Payload::open(file, &mut opened)?, *meta)),
                    None => None,
                },
                pieces: pieces(&files.meta),
                meta: files.meta,
                sizes: files.sizes,
            });
        }
        Ok(Self { files: opened.into(), chunks })
    }

    pub(in crate::view) fn pieces(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.pieces.len()).sum()
    }

    /// The chunk of the last piece, if there is one.
    pub(in crate::view) fn last_chunk(&self) -> Option<ChunkId> {
        let mut chunks = self.chunks.iter().rev();
        chunks.find(|chunk| !chunk.pieces.is_empty()).map(|chunk| chunk.chunk)
    }
}

impl Payload {
    /// Opens a file, as the next of `opened`.
    fn open(file: &ContainerFile, opened: &mut Vec<ReadFile>) -> Result<Self> {
        let payload = Self { file: FileIndex(opened.len() as u32), checksums: Arc::new(file.new_checksums()?) };
        opened.push(ReadFile::open(file.path(), Some(file.bytes()))?);
        Ok(payload)
    }

    /// The length of the blocks that contain a range of the payload.
    pub(super) fn bytes_of(&self, range: &Range<u64>) -> usize {
        let blocks = self.checksums.blocks_around(range.clone());
        (blocks.end - blocks.start) as usize
    }

    /// The blocks that contain a range of the payload, to be filled in `bytes`.
    pub(super) fn blocks(&self, range: Range<u64>, bytes: Vec<u8>) -> Blocks {
        Blocks { start: self.checksums.blocks_around(range).start, checksums: Arc::clone(&self.checksums), bytes }
    }
}

/// Divides the nodes of a chunk into pieces of about [`PIECE_EDGES`]. They begin where the file of edge weights has
/// anchors, so that the anchors alone locate the weights of a piece.
pub(super) fn pieces(meta: &RowsMeta) -> Vec<Range<u64>> {
    let count = meta.edges.div_ceil(PIECE_EDGES).clamp(1, meta.rows.max(1));
    let pieces = (0..count).map(|i| piece_start(meta, i, count)..piece_start(meta, i + 1, count));
    pieces.filter(|piece| !piece.is_empty()).collect()
}

fn piece_start(meta: &RowsMeta, i: u64, count: u64) -> u64 {
    let index = (u128::from(i) * u128::from(meta.rows) / u128::from(count)) as u64;
    if i < count { index - index % ANCHOR_ROWS } else { index }
}
