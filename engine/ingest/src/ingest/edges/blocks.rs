//! Blocks of edges: the input of a spill pass.
//!
//! A block is the unit of work and of the journal. [`InputBlocks`] reads the user's files.
//! [`SpilledBlocks`](super::spilled_blocks::SpilledBlocks) reads edges that an earlier pass of the join spilled.

use std::path::Path;

use grappa_formats::NodeId;
use grappa_input::{BlockId, EdgeBatch, EdgeEnd, EdgeSource, RawBlock, Reject, TextBatch};
use grappa_io::{Error, Result, workers::ReadAhead};

use super::ends::EdgeEnds;
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
    /// The time of an edge of the block; 0 if edges have no times.
    #[inline]
    pub fn time(&self, edge: usize) -> i64 {
        self.batch.order.times.get(edge).copied().unwrap_or(0)
    }

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
    pub ends: &'a EdgeEnds<'a>,
    /// The replacement of sources, and of targets.
    pub replace: [Replace; 2],
    /// Whether the edges go from the targets of the files to their sources.
    pub is_reversed: bool,
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

/// The replacement of the external ids at an end of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Nodes. The ids are in memory or dense.
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
        let width = usize::from(self.source.weighted()) + self.source.features();
        self.parse(&block, batch, text, on_reject)?;
        self.replace_keys(&block, batch, width, on_reject)?;
        if self.is_reversed {
            std::mem::swap(&mut batch.sources, &mut batch.targets);
        }
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

impl InputBlocks<'_, '_> {
    /// The ids of the sources in the files, and of the targets.
    fn columns(&self) -> [(&IdMap, Replace, bool); 2] {
        let ends = [EdgeEnd::Source, EdgeEnd::Target];
        let mut columns =
            ends.map(|end| (self.ends.map(end), self.replace[end as usize], self.ends.ids(end).are_listed));
        if self.is_reversed {
            columns.reverse();
        }
        columns
    }

    /// Parses a block, and replaces ids that are not dense by their keys.
    fn parse(
        &self,
        block: &RawBlock<'_>,
        batch: &mut EdgeBatch,
        text: &mut TextBatch,
        on_reject: &mut dyn FnMut(Reject) -> Result<()>,
    ) -> Result<()> {
        let columns = self.columns();
        if !self.source.options().are_strings() {
            block.parse(batch, on_reject)?;
            for ((ids, ..), column) in columns.into_iter().zip([&mut batch.sources, &mut batch.targets]) {
                ids.keys_of_integers(column);
            }
            return Ok(());
        }
        block.parse_text(text, on_reject)?;
        let pairs = [(&text.sources, &mut batch.sources), (&text.targets, &mut batch.targets)];
        for ((ids, ..), (keys, column)) in columns.into_iter().zip(pairs) {
            column.clear();
            column.reserve_exact(keys.len());
            ids.keys_of_text(keys, column);
        }
        std::mem::swap(&mut batch.values, &mut text.values);
        std::mem::swap(&mut batch.order, &mut text.order);
        Ok(())
    }

    /// Replaces keys by nodes, at the ends where nodes are wanted. Rejects edges whose ends are no nodes.
    fn replace_keys(
        &self,
        block: &RawBlock<'_>,
        batch: &mut EdgeBatch,
        width: usize,
        on_reject: &mut dyn FnMut(Reject) -> Result<()>,
    ) -> Result<()> {
        let mut unknown: Vec<(usize, usize)> = Vec::new();
        let columns = self.columns().into_iter().zip([&mut batch.sources, &mut batch.targets]);
        for (end, ((ids, replace, are_listed), keys)) in columns.enumerate() {
            match replace {
                Replace::Keys => {}
                Replace::Nodes if are_listed => {
                    let mut nodes = vec![None; keys.len()];
                    ids.find_nodes(keys, &mut nodes);
                    for (edge, (key, node)) in keys.iter_mut().zip(nodes).enumerate() {
                        match node {
                            Some(NodeId(node)) => *key = node,
                            None => unknown.push((edge, end)),
                        }
                    }
                }
                // All ids of the input are in the dictionary, unless the input has changed since it was made.
                Replace::Nodes => ids.replace_keys(keys).map_err(|_| block.changed())?,
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        unknown.sort_unstable();
        unknown.dedup_by_key(|&mut (edge, _)| edge);
        block.reject_edges(&unknown, on_reject)?;
        remove_edges(batch, &unknown.iter().map(|&(edge, _)| edge).collect::<Vec<_>>(), width);
        Ok(())
    }
}

/// Removes these edges, ascending, from a batch whose edges have `width` values each.
pub fn remove_edges(batch: &mut EdgeBatch, edges: &[usize], width: usize) {
    let mut removed = edges.iter().copied().peekable();
    let mut distinct = 0;
    for edge in 0..batch.sources.len() {
        if removed.next_if_eq(&edge).is_some() {
            continue;
        }
        batch.sources[distinct] = batch.sources[edge];
        batch.targets[distinct] = batch.targets[edge];
        batch.values.copy_within(edge * width..(edge + 1) * width, distinct * width);
        batch.order.shift(edge, distinct);
        distinct += 1;
    }
    batch.sources.truncate(distinct);
    batch.targets.truncate(distinct);
    batch.values.truncate(distinct * width);
    batch.order.truncate(distinct);
}
