//! The spill file of an edge, and its record there.

use grappa_formats::{
    NodeId,
    chunks::ChunkMap,
    manifest::{EdgeOptions, SelfLoops},
};
use grappa_input::EdgeEnd;
use grappa_io::{Result, sort::bits_for};
use grappa_storage::writer::EndChunks;

use super::blocks::{BlockBuffers, file_of};
use crate::ingest::{
    edge_split::KeyParts, edge_values::ValueShape, plan::SpillPlan, segments::segment_of, spill::SpillWriter,
};

/// Decides which spill file an edge goes to.
#[derive(Debug, Clone, Copy)]
pub enum Route<'a> {
    /// To the shard of the destination, for pass 2. Both ends are nodes. A record is the [`EdgeKeys`] key and the
    /// values of the edge.
    Shard {
        keys: &'a EdgeKeys,
        /// Whether to add reverse edges, and which self-loops to drop.
        options: EdgeOptions,
    },
    /// To the segment of one end's key, for the next pass of a join. A record is the source, the destination and the
    /// values of the edge. The key of `end` becomes the key within its segment.
    Segment {
        /// The end that decides.
        end: EdgeEnd,
        segments: u32,
    },
}

impl Route<'_> {
    /// Number of spill files per worker.
    pub fn files(&self) -> u32 {
        match self {
            Self::Shard { keys, .. } => keys.shards.chunks(),
            Self::Segment { segments, .. } => *segments,
        }
    }

    /// How the parts of edges follow from the input, if they do.
    pub fn parts(&self) -> Option<KeyParts> {
        match self {
            Self::Shard { keys, .. } => keys.parts,
            Self::Segment { .. } => None,
        }
    }

    /// Whether the part of an edge depends on its file.
    pub fn needs_places(&self) -> bool {
        KeyParts::is_of_files(self.parts())
    }

    /// Spills the edges of a block, whose records have values of this shape.
    pub fn spill(&self, block: &BlockBuffers, shape: ValueShape, writer: &mut SpillWriter) -> Result<()> {
        let batch = &block.batch;
        match *self {
            Self::Segment { end, segments } => spill_by_segment(block, shape, end, segments, writer),
            Self::Shard { keys, options } => {
                // Pass 2 adds self-loops to every list under `SelfLoops::Add`, so the self-loops of the input must go.
                let drop_loops = options.self_loops != SelfLoops::Keep;
                let ends = [&*batch.sources, &batch.targets];
                spill_by_shard(keys, ends, block, shape, drop_loops, writer)?;
                if options.undirected {
                    // A self-loop is its own reverse, and must not be doubled.
                    spill_by_shard(keys, [ends[1], ends[0]], block, shape, true, writer)?;
                }
                Ok(())
            }
        }
    }
}

fn spill_by_shard(
    keys: &EdgeKeys,
    [sources, targets]: [&[u64]; 2],
    block: &BlockBuffers,
    shape: ValueShape,
    drop_loops: bool,
    writer: &mut SpillWriter,
) -> Result<()> {
    let edges = sources.iter().copied().zip(targets.iter().copied());
    if shape.words() == 0 && keys.parts.is_none() {
        for (source, target) in edges {
            if drop_loops && source == target {
                continue;
            }
            let (shard, key) = keys.route(source, target, 0, &[]);
            writer.push_word(shard, key)?;
        }
        return Ok(());
    }
    let width = shape.width + KeyParts::extra_values(keys.parts);
    for (k, (source, target)) in edges.enumerate() {
        if drop_loops && source == target {
            continue;
        }
        let values = &block.batch.values[k * width..][..width];
        let (shard, key) = keys.route(source, target, file_of(block.place(k)), values);
        let record = writer.push(shard)?;
        record[0] = key;
        shape.write(&values[..shape.width], block.time(k), block.place(k), &mut record[1..]);
    }
    Ok(())
}

fn spill_by_segment(
    block: &BlockBuffers,
    shape: ValueShape,
    end: EdgeEnd,
    segments: u32,
    writer: &mut SpillWriter,
) -> Result<()> {
    let batch = &block.batch;
    for (k, (&source, &target)) in batch.sources.iter().zip(&batch.targets).enumerate() {
        let mut ends = [source, target];
        let (segment, key) = segment_of(ends[end as usize], segments);
        ends[end as usize] = key;
        let record = writer.push(segment)?;
        record[..2].copy_from_slice(&ends);
        let values = &batch.values[k * shape.width..][..shape.width];
        shape.write(values, block.time(k), block.place(k), &mut record[2..]);
    }
    Ok(())
}

/// Packs an edge into one word: the destination's index in its shard in the high bits, the source node in the low
/// `source_bits`. If the part of an edge depends on its file or on a value, the lowest bits of the source have the part.
///
/// Sorting the words of a shard as integers therefore sorts its edges by destination, then by source. A plan limits the
/// nodes of a shard so that both fit 64 bits ([`SpillPlan::of_edges`]).
#[derive(Debug, Clone)]
pub struct EdgeKeys {
    /// The shards, each a range of destinations.
    pub shards: ChunkMap,
    pub source_bits: u32,
    /// How parts follow from the input, if they do.
    pub parts: Option<KeyParts>,
}

impl EdgeKeys {
    /// The keys of a graph whose chunks are divided by `plan`.
    pub fn new(chunks: EndChunks<'_>, plan: &SpillPlan, parts: Option<KeyParts>) -> Self {
        Self { shards: plan.shards(chunks.destinations), source_bits: Self::source_bits(chunks, parts), parts }
    }

    pub fn source_bits(chunks: EndChunks<'_>, parts: Option<KeyParts>) -> u32 {
        bits_for(chunks.sources.nodes()) + KeyParts::bits(parts)
    }

    /// The shard of an edge of this file with these values, and its key there.
    #[inline]
    fn route(&self, source: u64, target: u64, file: u64, values: &[f32]) -> (u32, u64) {
        let source = self.parts.map_or(source, |parts| parts.join(source, file, values));
        let shard = self.shards.chunk_of(NodeId(target)).0;
        let index = target - self.shards.starts()[shard as usize];
        (shard, index.unbounded_shl(self.source_bits) | source)
    }

    /// The destination's index in its shard.
    #[inline]
    pub fn target_index(&self, key: u64) -> u64 {
        key.unbounded_shr(self.source_bits)
    }

    /// The source: a node, or what [`KeyParts::join`] made of it.
    #[inline]
    pub fn source(&self, key: u64) -> u64 {
        key & ((1 << self.source_bits) - 1)
    }

    pub fn node(&self, source: u64) -> NodeId {
        NodeId(self.parts.map_or(source, |_| KeyParts::divide(source).0))
    }
}
