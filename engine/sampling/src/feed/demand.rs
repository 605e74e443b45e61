//! Measures how much memory minibatches of a source need, by sampling a few of them.

#[cfg(test)]
mod tests;

use grappa_formats::{NodeId, random};
use grappa_io::{Result, heap};

use super::{edge_features::GraphEdgeFeatures, in_flight::InFlightBatch, rows::RowFormat, source::BatchSource};
use crate::sample::{Block, LinkPairs, Minibatch};

/// The purpose of the memory, in errors.
pub(super) const MINIBATCH: &str = "a minibatch";
/// Bits of a node.
const NODE_BITS: u32 = 40;

/// The size of the minibatches of a source, and of what samples them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MinibatchDemand {
    pub batches: u64,
    /// Nodes of each type, and therefore feature rows, of a minibatch.
    pub nodes: Vec<usize>,
    /// Bytes that are held for the whole time: the memory of the source itself, and checksums of files.
    pub held_bytes: u64,
    /// Bytes of the sampler state of a thread.
    pub scratch_bytes: u64,
    distinct: DistinctRows,
    /// Sizes of the blocks of the minibatch of each type.
    blocks: Vec<Vec<BlockSize>>,
    /// Positives and negatives of a minibatch of links, and its marks of negatives.
    pairs: [usize; 2],
    is_negative: usize,
    /// The node type whose minibatches have the pairs.
    links_type: usize,
}

/// Model of the number of distinct rows that several minibatches need together: `each * minibatches ^ growth`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct DistinctRows {
    /// Rows of one minibatch, on average.
    each: f64,
    /// Between 0, if all minibatches need the same rows, and 1, if no row is needed twice.
    growth: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BlockSize {
    destinations: usize,
    edges: usize,
    weighted: bool,
    timed: bool,
    /// Values of an edge's features, if edges have ids.
    edge_dim: Option<usize>,
    /// Whether it has [`Block::own`].
    has_own: bool,
}

impl MinibatchDemand {
    /// The minimum number of sampled minibatches.
    const PROBES: u64 = 5;
    /// More minibatches are sampled until they have this many nodes together. Small minibatches vary more, and more of
    /// them wait in a window.
    const PROBE_NODES: usize = 1 << 18;
    /// The maximum number of sampled minibatches.
    const PROBES_MAX: u64 = 100;
    /// The number of margins on top of the largest sampled minibatch.
    const MARGINS: usize = 4;
    /// About this many of the sampled nodes are kept, to count the distinct ones.
    const KEPT_NODES: usize = 1 << 20;

    /// The demand if minibatches had only seeds. Samples nothing, unlike [`MinibatchDemand::measure`], which may take
    /// minutes if adjacency lists are mapped.
    pub fn of_seeds(source: &impl BatchSource) -> Self {
        Self {
            batches: source.batches(),
            nodes: vec![usize::try_from(source.nodes_min()).unwrap_or(usize::MAX)],
            held_bytes: source.bytes(),
            ..Self::default()
        }
    }

    /// Samples a few minibatches. The first demand adds an eighth to the largest: minibatches of 1024 seeds differ by a
    /// few per cent. It adds a half if only some of the minibatches may be sampled in advance. The others add less and
    /// less, for memory that is too small for that, and the last one adds nothing.
    pub fn measure(
        source: &impl BatchSource,
        edge_features: Option<&GraphEdgeFeatures>,
    ) -> Result<[Self; Self::MARGINS]> {
        Self::measure_keeping(source, edge_features, Self::KEPT_NODES)
    }

    /// [`measure`](Self::measure) that keeps about `kept_nodes` of the sampled nodes.
    fn measure_keeping(
        source: &impl BatchSource,
        edge_features: Option<&GraphEdgeFeatures>,
        kept_nodes: usize,
    ) -> Result<[Self; Self::MARGINS]> {
        // A feed without batches of its own may deliver others later.
        let types = source.types();
        let mut demand = Self {
            batches: source.batches(),
            nodes: vec![0; types],
            blocks: vec![Vec::new(); types],
            ..Self::default()
        };
        let from = source.probes();
        let batches = from.end - from.start;
        let mut scratch = Default::default();
        let mut minibatches = vec![Minibatch::default(); types];
        let (mut probes, mut nodes) = (0, 0);
        let (mut kept, mut kept_share) = (Vec::new(), 1);
        for probe in 0..Self::PROBES_MAX.min(batches) {
            if probe >= Self::PROBES && nodes >= Self::PROBE_NODES {
                break;
            }
            let batch = match batches <= Self::PROBES {
                true => probe,
                false => Self::spread(probe, batches),
            };
            source.sample(from.start + batch, &mut scratch, &mut minibatches)?;
            if let Some(edges) = edge_features {
                edges.make_room(&mut minibatches);
            }
            demand.cover(&minibatches);
            let of_batch = minibatches.iter().map(|minibatch| minibatch.nodes.len()).sum::<usize>();
            if probe == 0 {
                let expected = Self::PROBE_NODES.max(Self::PROBES as usize * of_batch);
                kept_share = expected.div_ceil(kept_nodes) as u64;
            }
            // A node is always kept or never. So the kept nodes repeat as often as all nodes do.
            heap::reserve(&mut kept, of_batch.div_ceil(kept_share as usize), MINIBATCH)?;
            for (node_type, minibatch) in (0u64..).zip(&minibatches) {
                // Nodes of two types differ.
                let nodes = minibatch.nodes.iter().map(|node| NodeId(node_type << NODE_BITS | node.0));
                kept.extend(nodes.filter(|node| random::hash(node.0).is_multiple_of(kept_share)));
            }
            nodes += of_batch;
            probes += 1;
        }
        demand.distinct = DistinctRows::from_nodes(kept, probes);
        demand.distinct.each *= kept_share as f64;
        demand.held_bytes = source.bytes();
        // Other groups of partitions reach more nodes, above all those that own hubs.
        let share = if batches < demand.batches { 2 } else { 8 };
        Ok([Some(share), Some(2 * share), Some(4 * share), None].map(|share| {
            let mut demand = demand.clone();
            let more = |n: usize| n + share.map_or(0, |share| n / share + 64);
            let nodes_max = usize::try_from(source.nodes_max()).unwrap_or(usize::MAX);
            demand.nodes.iter_mut().for_each(|nodes| *nodes = more(*nodes).min(nodes_max));
            demand.scratch_bytes = source.scratch_bytes(&scratch, demand.nodes.iter().sum());
            for block in demand.blocks.iter_mut().flatten() {
                block.destinations = more(block.destinations);
                block.edges = more(block.edges);
            }
            demand
        }))
    }

    /// The minibatch that probe `probe` samples, below `end`. Fractional parts of multiples of the golden ratio are
    /// spread evenly after any number of probes, and not periodic. Partitions take turns, so a fixed stride would miss
    /// some of them.
    fn spread(probe: u64, end: u64) -> u64 {
        random::scale(probe.wrapping_mul(random::GOLDEN), end)
    }

    fn cover(&mut self, minibatches: &[Minibatch]) {
        self.nodes.resize(minibatches.len(), 0);
        self.blocks.resize_with(minibatches.len(), Vec::new);
        for (node_type, minibatch) in minibatches.iter().enumerate() {
            self.nodes[node_type] = self.nodes[node_type].max(minibatch.nodes.len());
            self.cover_blocks(node_type, minibatch);
        }
        let Some(links_type) = minibatches.iter().position(|minibatch| !minibatch.links.positives.is_empty()) else {
            return;
        };
        let links = &minibatches[links_type].links;
        self.links_type = links_type;
        self.pairs[0] = self.pairs[0].max(links.positives.len());
        self.pairs[1] = self.pairs[1].max(links.negatives.len());
        self.is_negative = self.is_negative.max(links.is_negative.len());
    }

    fn cover_blocks(&mut self, node_type: usize, minibatch: &Minibatch) {
        let sizes = &mut self.blocks[node_type];
        sizes.resize_with(sizes.len().max(minibatch.blocks.len()), BlockSize::default);
        for (size, block) in sizes.iter_mut().zip(&minibatch.blocks) {
            size.destinations = size.destinations.max(block.destinations);
            size.edges = size.edges.max(block.indices.len());
            size.weighted |= !block.edge_weights.is_empty();
            size.timed |= !block.edge_times.is_empty();
            if !block.edge_ids.is_empty() {
                size.edge_dim = Some(block.edge_features.len() / block.edge_ids.len());
            }
            size.has_own |= !block.own.is_empty();
        }
    }

    /// Estimates the number of distinct rows that `minibatches` need together.
    pub fn distinct_rows(&self, minibatches: u64) -> u64 {
        (self.distinct.each * (minibatches as f64).powf(self.distinct.growth)) as u64
    }

    /// Whether minibatches are of links with negatives.
    pub fn has_negatives(&self) -> bool {
        self.pairs[1] > 0
    }

    /// Empty minibatches with the capacity that minibatches are expected to need. They list the positions of `positions` nodes.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn batch(&self, format: Option<&RowFormat>) -> Result<InFlightBatch> {
        let minibatches = self.nodes.iter().enumerate().map(|(node_type, &nodes)| {
            let [positives, negatives, is_negative] = match node_type == self.links_type {
                true => [self.pairs[0], self.pairs[1], self.is_negative],
                false => [0; 3],
            };
            let blocks = self.blocks.get(node_type).into_iter().flatten();
            Ok(Minibatch {
                nodes: with_room(nodes)?,
                seeds: 0,
                parts: Vec::new(),
                part_times: Vec::new(),
                blocks: blocks.map(BlockSize::block).collect::<Result<_>>()?,
                links: LinkPairs {
                    positives: with_room(positives)?,
                    negatives: with_room(negatives)?,
                    is_negative: with_room(is_negative)?,
                    source_type: 0,
                },
            })
        });
        let minibatches = minibatches.collect::<Result<_>>()?;
        let positions = format.filter(|format| format.lists_positions()).map_or(0, |format| self.rows(format));
        Ok(InFlightBatch { minibatches, positions: with_room(positions)?, ..InFlightBatch::default() })
    }

    /// Bytes of [`MinibatchDemand::batch`].
    ///
    /// # Errors
    /// As [`MinibatchDemand::batch`].
    pub fn batch_bytes(&self, format: Option<&RowFormat>) -> Result<u64> {
        Ok(batch_bytes(&self.batch(format)?))
    }

    /// The number of feature rows of a batch.
    pub fn rows(&self, format: &RowFormat) -> usize {
        format.rows(|node_type| self.nodes_of(node_type))
    }

    /// The number of nodes of a type. A demand that was not measured has seeds of one type.
    pub fn nodes_of(&self, node_type: usize) -> usize {
        self.nodes.get(node_type).copied().unwrap_or(0)
    }
}

/// An empty vector with room for `count` values.
fn with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    heap::reserve(&mut values, count, MINIBATCH)?;
    Ok(values)
}

impl DistinctRows {
    /// Fits the model to `minibatches` minibatches that have these nodes together.
    fn from_nodes(mut nodes: Vec<NodeId>, minibatches: u32) -> Self {
        let each = nodes.len() as f64 / f64::from(minibatches.max(1));
        nodes.sort_unstable();
        nodes.dedup();
        let growth = match minibatches {
            0 | 1 => 1.0,
            _ if nodes.is_empty() => 1.0,
            _ => ((nodes.len() as f64 / each).ln() / f64::from(minibatches).ln()).clamp(0.0, 1.0),
        };
        Self { each, growth }
    }
}

impl BlockSize {
    fn block(&self) -> Result<Block> {
        Ok(Block {
            destinations: 0,
            sources: 0,
            offsets: with_room(self.destinations + 1)?,
            indices: with_room(self.edges)?,
            own: with_room(if self.has_own { self.destinations } else { 0 })?,
            edge_weights: with_room(if self.weighted { self.edges } else { 0 })?,
            edge_times: with_room(if self.timed { self.edges } else { 0 })?,
            edge_ids: with_room(self.edge_dim.map_or(0, |_| self.edges))?,
            edge_features: with_room(self.edge_dim.unwrap_or(0) * self.edges)?,
            visible: with_room(self.destinations)?,
            global: with_room(self.destinations)?,
            halo: with_room(self.destinations)?,
        })
    }
}

/// Bytes of memory of the minibatches of a batch, including unused capacity.
pub(super) fn batch_bytes(batch: &InFlightBatch) -> u64 {
    let positions = batch.positions.capacity() * size_of::<NodeId>();
    batch.minibatches.iter().map(minibatch_bytes).sum::<u64>() + positions as u64
}

/// Bytes of memory of a minibatch, including unused capacity.
pub(super) fn minibatch_bytes(minibatch: &Minibatch) -> u64 {
    fn bytes<T>(vec: &Vec<T>) -> u64 {
        (vec.capacity() * size_of::<T>()) as u64
    }
    let of_block = |block: &Block| -> u64 {
        let indices = bytes(&block.offsets) + bytes(&block.indices) + bytes(&block.own);
        let values = bytes(&block.edge_weights) + bytes(&block.edge_features);
        let edges = values + bytes(&block.edge_ids) + bytes(&block.edge_times);
        let degrees = bytes(&block.visible) + bytes(&block.global) + bytes(&block.halo);
        indices + edges + degrees + size_of::<Block>() as u64
    };
    let blocks: u64 = minibatch.blocks.iter().map(of_block).sum();
    let parts = bytes(&minibatch.parts) + bytes(&minibatch.part_times);
    bytes(&minibatch.nodes) + parts + blocks + minibatch.links.bytes()
}
