//! Pass 1: edges from the input to the spill files of their destination's shard.
//!
//! ```text
//! each worker: loop
//!     take the next block nobody has, parse it
//!     ids -> nodes, a batch at a time
//!     for each edge: append (row in shard, source) to the shard's buffer
//! ```
//!
//! Cost on two cores: some 40 ns an edge and thread; the input is read once, and 8 bytes an edge are written (16 with
//! weights).

use std::path::Path;

use grappa_formats::{
    NodeId,
    chunks::ChunkMap,
    manifest::{EdgeOptions, SelfLoops},
};
use grappa_input::{BlockId, EdgeBatch, EdgeSource};
use grappa_io::{Result, sort::bits_for};

use crate::{
    ids::IdMap,
    ingest::{
        plan::SpillPlan,
        spill::SpillWriter,
        spread::{Blocks, Buffers, Taken},
    },
};

/// How an edge becomes a word: the row within its shard above, the source's node id below.
#[derive(Debug, Clone)]
pub struct EdgeKeys {
    /// The shards, each a range of rows.
    pub shards: ChunkMap,
    /// Bits of a source's node id.
    pub source_bits: u32,
}

impl EdgeKeys {
    /// The keys of a graph whose chunks are divided by `plan`.
    pub fn new(chunks: &ChunkMap, plan: &SpillPlan) -> Self {
        Self {
            shards: plan.shards(chunks),
            source_bits: bits_for(chunks.nodes()),
        }
    }

    /// The shard of an edge, and its key there.
    #[inline]
    fn of(&self, source: u64, target: u64) -> (u32, u64) {
        let shard = self.shards.chunk_of(NodeId(target)).0;
        let row = target - self.shards.starts()[shard as usize];
        (shard, row.unbounded_shl(self.source_bits) | source)
    }

    /// The row within its shard of a key.
    #[inline]
    pub fn row(&self, key: u64) -> u64 {
        key.unbounded_shr(self.source_bits)
    }

    /// The source of a key.
    #[inline]
    pub fn source(&self, key: u64) -> u64 {
        key & ((1 << self.source_bits) - 1)
    }
}

/// The blocks of the input.
pub struct InputBlocks<'a> {
    /// The input.
    pub source: &'a EdgeSource,
    /// External ids to nodes.
    pub ids: &'a IdMap,
    /// What external ids are replaced by.
    pub replace: Replace,
}

/// What external ids are replaced by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// By their nodes.
    Nodes,
    /// By the keys of [`crate::ids::keys`].
    Keys,
}

impl Blocks for InputBlocks<'_> {
    fn total_bytes(&self) -> u64 {
        self.source.total_bytes()
    }

    fn next(&self, skip: &dyn Fn(BlockId) -> bool, into: &mut Buffers) -> Result<Option<Taken>> {
        let Some(block) = self.source.next_block(skip)? else {
            return Ok(None);
        };
        match self.replace {
            Replace::Nodes => self.ids.parse(&block, &mut into.batch, &mut into.text)?,
            Replace::Keys => self.ids.parse_keys(&block, &mut into.batch, &mut into.text)?,
        }
        Ok(Some(Taken {
            id: block.id(),
            bytes: block.input_bytes(),
        }))
    }

    fn path(&self, id: BlockId) -> &Path {
        self.source.path(id.file)
    }
}

/// How edges go to the shard of their destination.
pub struct Scatter<'a> {
    /// What to do to edges.
    pub options: EdgeOptions,
    /// Edge to shard and key.
    pub keys: &'a EdgeKeys,
}

impl Scatter<'_> {
    /// Spills a batch of edges.
    pub fn push(&self, batch: &EdgeBatch, writer: &mut SpillWriter) -> Result<()> {
        self.push_all(batch, writer, false)?;
        if self.options.undirected {
            self.push_all(batch, writer, true)?;
        }
        Ok(())
    }

    /// Spills the batch, or its reverse without self-loops, which are their own reverse.
    fn push_all(&self, batch: &EdgeBatch, writer: &mut SpillWriter, reverse: bool) -> Result<()> {
        let (sources, targets) = match reverse {
            false => (&batch.sources, &batch.targets),
            true => (&batch.targets, &batch.sources),
        };
        // Self-loops that are added are added to rows, so those of the input must go.
        let drop_loops = reverse || self.options.self_loops != SelfLoops::Keep;
        let edges = sources.iter().copied().zip(targets.iter().copied());
        if batch.weights.is_empty() {
            for (source, target) in edges {
                if drop_loops && source == target {
                    continue;
                }
                let (shard, key) = self.keys.of(source, target);
                writer.push_word(shard, key)?;
            }
        } else {
            for ((source, target), weight) in edges.zip(&batch.weights) {
                if drop_loops && source == target {
                    continue;
                }
                let (shard, key) = self.keys.of(source, target);
                writer.push(shard)?.copy_from_slice(&[key, u64::from(weight.to_bits())]);
            }
        }
        Ok(())
    }
}
