//! Blocks of edges: the input of a spill pass.
//!
//! A block is the unit of work and of the journal. [`InputBlocks`] reads the user's files.
//! [`SpilledBlocks`](super::spilled_blocks::SpilledBlocks) reads edges that an earlier pass of the join spilled.

use std::path::Path;

use grappa_input::{BlockId, EdgeBatch, EdgeSource, RawBlock, Reject, TextBatch};
use grappa_io::{Error, Result, workers::ReadAhead};

use crate::{ids::IdMap, ingest::edge_split::KeyParts};

/// Called with each line or row that is left out, and its file.
pub type OnReject<'a> = &'a mut dyn FnMut(&Path, Reject) -> Result<()>;

/// A source of blocks of edges, shared by all workers.
pub trait EdgeBlocks: Sync {
    /// The sum of [`ReadBlock::bytes`] over all blocks, for progress.
    fn total_bytes(&self) -> u64;

    /// Puts the edges of the next block that no worker has taken into `buffers.batch`. Returns none when all blocks were
    /// taken. Blocks come in no particular order.
    fn next(&self, buffers: &mut BlockBuffers, on_reject: OnReject<'_>) -> Result<Option<ReadBlock>>;
}

pub struct ReadBlock {
    /// Identifies the block. It is the same in every run with the same block size.
    pub id: BlockId,
    pub bytes: u64,
}

/// The buffers that a worker reuses from block to block.
#[derive(Debug, Default)]
pub struct BlockBuffers {
    pub batch: EdgeBatch,
    /// The places of its edges in the input. Empty if they do not matter.
    pub places: Vec<u64>,
    /// The ids of its edges, if they are strings.
    pub text: TextBatch,
    /// The records of the block, if it was spilled before.
    pub words: Vec<u64>,
}

impl BlockBuffers {
    /// The place of an edge of the block in the input; 0 if places do not matter.
    #[inline]
    pub fn place(&self, edge: usize) -> u64 {
        self.places.get(edge).copied().unwrap_or(0)
    }
}

/// The blocks of the user's files, parsed and with their external ids replaced.
pub struct InputBlocks<'a, 's> {
    pub source: &'s EdgeSource,
    /// Their blocks, as other threads read them.
    pub blocks: &'a ReadAhead<RawBlock<'s>>,
    pub ids: &'a IdMap,
    pub replace: Replace,
    /// How the parts of edges follow from the input, if they do.
    pub parts: Option<KeyParts>,
    /// Whether the places of edges in the input matter.
    pub with_places: bool,
}

/// Bits of an edge's place in the input: its index among the edges of a block, and the number of the block in its file. The number
/// of the file has the others.
const INDEX_BITS: u32 = 24;
const BLOCK_BITS: u32 = 24;

/// The file of the edge at a place in the input.
#[inline]
pub fn file_of(place: u64) -> u64 {
    place >> (BLOCK_BITS + INDEX_BITS)
}

/// The replacement of the external ids of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Nodes. All ids are in memory or dense.
    Nodes,
    /// Keys ([`crate::ids::keys`]), which a join replaces by nodes later.
    Keys,
}

impl EdgeBlocks for InputBlocks<'_, '_> {
    fn total_bytes(&self) -> u64 {
        self.source.total_bytes()
    }

    fn next(&self, buffers: &mut BlockBuffers, on_reject: OnReject<'_>) -> Result<Option<ReadBlock>> {
        let Some(block) = self.blocks.next()? else {
            return Ok(None);
        };
        let path = self.source.path(block.id().file);
        let on_reject = &mut |reject| on_reject(path, reject);
        let BlockBuffers { batch, text, places, .. } = buffers;
        match self.replace {
            Replace::Nodes => self.ids.parse(&block, batch, text, on_reject)?,
            Replace::Keys => self.ids.parse_keys(&block, batch, text, on_reject)?,
        }
        let width = usize::from(self.source.weighted()) + self.source.features();
        KeyParts::append(self.parts, width, &batch.order.values, &mut batch.values);
        places.clear();
        if self.with_places {
            let BlockId { file, block } = block.id();
            let edges = batch.sources.len() as u64;
            if edges >> INDEX_BITS > 0 || block >> BLOCK_BITS > 0 || file >> (64 - BLOCK_BITS - INDEX_BITS) > 0 {
                return Err(Error::limit(
                    format!(
                        "{}: the places of edges in the input are wanted, and this is block {block} of file {file}",
                        path.display()
                    ),
                    "2^24 blocks in 2^16 files".to_owned(),
                    "give fewer and smaller files; --merge first and last, --val-edges and --test-edges need places"
                        .to_owned(),
                ));
            }
            let first = u64::from(file) << (BLOCK_BITS + INDEX_BITS) | block << INDEX_BITS;
            places.extend(first..first + edges);
        }
        Ok(Some(ReadBlock { id: block.id(), bytes: block.input_bytes() }))
    }
}
