//! Minibatches of several parts that share no nodes: the seeds of each part have nodes of their own, and one time.
//!
//! The minibatch is the one that [`Minibatch::join`] makes of a minibatch of each part: the first level of each part, then the second level
//! of each part, and so on. But the destinations of all parts are in the same groups, so that many cache misses are in flight at once, as
//! in minibatches whose seeds share nodes:
//!
//! ```text
//! for each hop:
//!     for each relation: draw for the destinations of all parts
//!     for each part: relabel its sources, by relation and level; append its new nodes
//! ```
//!
//! The nodes of a part are few, so the table that relabels them is small and stays in the L1 cache.

use std::{mem, ops::Range};

use grappa_formats::NodeId;
use grappa_io::{Error, Result, heap};

use super::{
    minibatch::{Block, Minibatch},
    neighbors::{DrawnEdges, SAMPLED},
    random::{BatchKey, HopKey},
    relabel::Hashed,
    size::check_size,
    time::TimeHops,
};
use crate::shape::{GraphShape, RelationEnds};

/// The seeds of parts that are sampled apart. Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct SeedParts {
    /// The seeds of each type, one part after another.
    seeds: Vec<Vec<NodeId>>,
    /// For each type, where the seeds of each part end.
    ends: Vec<Vec<usize>>,
    pub(crate) keys: Vec<BatchKey>,
    /// The time of each part, if the sampler has times.
    pub(crate) times: Vec<i64>,
}

impl SeedParts {
    /// Begins without parts, in a graph of `types` node types.
    pub(crate) fn begin(&mut self, types: usize) {
        self.seeds.resize_with(types, Vec::new);
        self.ends.resize_with(types, Vec::new);
        self.seeds.iter_mut().for_each(Vec::clear);
        self.ends.iter_mut().for_each(Vec::clear);
        self.keys.clear();
        self.times.clear();
    }

    /// Adds a seed to the part that is added next.
    pub(crate) fn push_seed(&mut self, node_type: usize, seed: NodeId) {
        self.seeds[node_type].push(seed);
    }

    /// Adds the part with the seeds that were pushed since the last part. It has a time if the sampler has times.
    pub(crate) fn push_part(&mut self, key: BatchKey, time: Option<i64>) {
        for (ends, seeds) in self.ends.iter_mut().zip(&self.seeds) {
            ends.push(seeds.len());
        }
        self.keys.push(key);
        self.times.extend(time);
    }

    /// The number of parts.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The seeds of each type, one part after another.
    pub(crate) fn seeds(&self) -> &[Vec<NodeId>] {
        &self.seeds
    }

    /// The seeds of a type of a part.
    pub(crate) fn seeds_of(&self, node_type: usize, part: usize) -> &[NodeId] {
        let ends = &self.ends[node_type];
        let start = part.checked_sub(1).map_or(0, |before| ends[before]);
        &self.seeds[node_type][start..ends[part]]
    }

    /// Bytes of memory, including unused capacity.
    pub(crate) fn bytes(&self) -> u64 {
        let Self { seeds, ends, keys, times } = self;
        let bytes = seeds.iter().map(Vec::capacity).sum::<usize>() * size_of::<NodeId>()
            + ends.iter().map(Vec::capacity).sum::<usize>() * size_of::<usize>()
            + keys.capacity() * size_of::<BatchKey>()
            + times.capacity() * size_of::<i64>();
        bytes as u64
    }
}

/// The parts of a minibatch that is sampled. Reusable memory.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub types: Vec<TypeParts>,
    /// The key of the draws of each part at a hop and relation.
    pub keys: Vec<HopKey>,
    /// The edges of each relation that a hop drew.
    pub drawn: Vec<DrawnEdges>,
    /// The blocks of each relation at a hop.
    blocks: Vec<Block>,
}

/// The nodes of a type, by part.
#[derive(Debug, Default)]
pub(super) struct TypeParts {
    /// The part of each node.
    pub parts: Vec<u32>,
    /// The index of each node among the nodes of its part.
    pub indices: Vec<u32>,
    /// The limit of each node, if nodes have limits of their own.
    pub limits: Vec<i64>,
    /// For each level, the first node of each part, and the end of the last part.
    levels: Vec<Vec<usize>>,
    part: PartNodes,
}

/// The nodes of a type in the part that is relabelled.
#[derive(Debug, Default)]
struct PartNodes {
    /// Whether the part has edges from this type.
    begun: bool,
    table: Hashed,
    nodes: Vec<NodeId>,
    /// The places of the nodes of earlier levels among those of all parts, and of the first node after them.
    places: Vec<u32>,
    first: u32,
}

impl Parts {
    /// Makes the seeds the first nodes of `out`. `blocks_of` gives the number of blocks of a type. `has_limits` tells whether nodes have
    /// limits of their own.
    pub fn begin(
        &mut self,
        seeds: &SeedParts,
        shape: &GraphShape,
        blocks_of: impl Fn(usize) -> usize,
        has_limits: bool,
        out: &mut [Minibatch],
    ) -> Result<()> {
        self.types.resize_with(out.len(), TypeParts::default);
        self.drawn.resize_with(shape.relations.len(), DrawnEdges::default);
        self.blocks.resize_with(shape.relations.len(), Block::default);
        for (node_type, (parts, out)) in self.types.iter_mut().zip(&mut *out).enumerate() {
            out.clear();
            out.blocks.resize_with(blocks_of(node_type), Block::default);
            let TypeParts { parts, indices, limits, levels, .. } = parts;
            parts.clear();
            indices.clear();
            limits.clear();
            levels.resize_with(levels.len().max(1), Vec::new);
            levels[0].clear();
            levels[0].push(0);
            for part in 0..seeds.len() {
                let of_part = seeds.seeds_of(node_type, part);
                out.nodes.extend_from_slice(of_part);
                check_size(0, out.nodes.len())?;
                parts.resize(out.nodes.len(), part as u32);
                indices.extend(0..of_part.len() as u32);
                if has_limits {
                    limits.resize(out.nodes.len(), seeds.times[part]);
                }
                levels[0].push(out.nodes.len());
            }
            out.seeds = out.nodes.len();
            out.part_times.extend_from_slice(&seeds.times);
            check_seeds(&out.nodes, shape.nodes[node_type])?;
        }
        Ok(())
    }

    /// Begins to draw by a relation at a hop.
    pub fn begin_relation(&mut self, seeds: &SeedParts, hop: usize, number: usize) {
        self.keys.clear();
        self.keys.extend(seeds.keys.iter().map(|key| key.hop(hop).of_relation(number)));
    }

    /// Relabels the edges that all relations drew at a hop, and appends the nodes that they reached. With `first_level`, edges are those
    /// of the destinations from this level on.
    pub fn relabel(
        &mut self,
        shape: &GraphShape,
        hop: usize,
        first_level: usize,
        hops: TimeHops,
        out: &mut [Minibatch],
    ) -> Result<()> {
        let Self { types, drawn, blocks, .. } = self;
        let relations = || shape.relations.iter().enumerate();
        for (number, &RelationEnds { source, destination }) in relations() {
            let block = &mut blocks[number];
            mem::swap(block, &mut out[destination].blocks[shape.block_place(number, hop)]);
            let (edges, nodes) = (drawn[number].sources.len(), out[source].nodes.len());
            check_size(edges, nodes + edges)?;
            heap::grow(&mut block.indices, edges, SAMPLED)?;
            block.indices.resize(edges, 0);
        }
        for (parts, out) in types.iter_mut().zip(&mut *out) {
            parts.begin_level(hop + 1, out.nodes.len());
        }
        let parts = types.first().map_or(0, |parts| parts.levels[0].len() - 1);
        for part in 0..parts {
            for (number, &RelationEnds { source, destination }) in relations() {
                let (block, drawn) = (&mut blocks[number], &drawn[number]);
                for level in first_level..=hop {
                    let destinations = types[destination].level(level, part);
                    let edges = block.offsets[destinations.start] as usize..block.offsets[destinations.end] as usize;
                    if edges.is_empty() {
                        continue;
                    }
                    let (sources, indices) = (&drawn.sources[edges.clone()], &mut block.indices[edges.clone()]);
                    let reached = types[source].relabel(part, hop, &out[source].nodes, sources, indices);
                    if hops == TimeHops::Edge {
                        note_limits(types, (source, destination), reached, destinations, block, drawn);
                    }
                    types[source].part.place(&mut block.indices[edges]);
                }
            }
            for (parts, out) in types.iter_mut().zip(&mut *out) {
                parts.end_part(part, hop + 1, &mut out.nodes)?;
            }
        }
        for (number, &RelationEnds { source, destination }) in relations() {
            blocks[number].sources = out[source].nodes.len();
            mem::swap(&mut blocks[number], &mut out[destination].blocks[shape.block_place(number, hop)]);
        }
        Ok(())
    }

    /// Ends a minibatch of `parts` parts. One alone needs no numbers.
    pub fn end(&self, parts: usize, out: &mut [Minibatch]) {
        if parts > 1 {
            for (of_type, out) in self.types.iter().zip(out) {
                out.parts.extend_from_slice(&of_type.parts);
            }
        }
    }

    /// Bytes of memory, including unused capacity.
    pub fn bytes(&self) -> u64 {
        let types: usize = self.types.iter().map(TypeParts::bytes).sum();
        let drawn: u64 = self.drawn.iter().map(DrawnEdges::bytes).sum();
        (types + self.keys.capacity() * size_of::<HopKey>()) as u64 + drawn
    }
}

impl TypeParts {
    /// The nodes of a level of a part, as a range of their indices.
    fn level(&self, level: usize, part: usize) -> Range<usize> {
        self.levels[level][part]..self.levels[level][part + 1]
    }

    /// The first node of a level.
    pub fn level_start(&self, level: usize) -> usize {
        self.levels[level][0]
    }

    /// Begins a level of all parts, which comes after these nodes.
    fn begin_level(&mut self, level: usize, nodes: usize) {
        self.levels.resize_with(self.levels.len().max(level + 1), Vec::new);
        self.levels[level].clear();
        self.levels[level].push(nodes);
    }

    /// Writes the indices of some sources among the nodes of a part. `nodes` are those of all parts, without the ones that this hop adds to
    /// the part. Returns the number of nodes that the part had before.
    fn relabel(&mut self, part: usize, hop: usize, nodes: &[NodeId], sources: &[NodeId], indices: &mut [u32]) -> usize {
        if !self.part.begun {
            let levels = self.levels[..=hop].iter().map(|level| level[part]..level[part + 1]);
            self.part.begin(levels, nodes);
        }
        let PartNodes { table, nodes: of_part, .. } = &mut self.part;
        let before = of_part.len();
        table.relabel_in_cache(sources, of_part, indices);
        before
    }

    /// Ends a part at a hop: appends the nodes that the hop added to it to those of all parts.
    fn end_part(&mut self, part: usize, level: usize, nodes: &mut Vec<NodeId>) -> Result<()> {
        if mem::take(&mut self.part.begun) {
            let PartNodes { nodes: of_part, places, .. } = &self.part;
            let added = &of_part[places.len()..];
            heap::grow(nodes, added.len(), SAMPLED)?;
            nodes.extend_from_slice(added);
            self.parts.resize(nodes.len(), part as u32);
            self.indices.extend(places.len() as u32..of_part.len() as u32);
        }
        self.levels[level].push(nodes.len());
        Ok(())
    }

    fn bytes(&self) -> usize {
        let Self { parts, indices, limits, levels, part: PartNodes { nodes, places, .. } } = self;
        (parts.capacity() + indices.capacity() + places.capacity()) * size_of::<u32>()
            + limits.capacity() * size_of::<i64>()
            + levels.iter().map(Vec::capacity).sum::<usize>() * size_of::<usize>()
            + nodes.capacity() * size_of::<NodeId>()
            + self.part.table.bytes(nodes.len()) as usize
    }
}

impl PartNodes {
    /// Begins a part with the nodes of its earlier levels.
    fn begin(&mut self, levels: impl Iterator<Item = Range<usize>>, all: &[NodeId]) {
        // Parts are of about the same size.
        let expected = self.nodes.len();
        self.nodes.clear();
        self.places.clear();
        for level in levels {
            self.nodes.extend_from_slice(&all[level.clone()]);
            self.places.extend(level.start as u32..level.end as u32);
        }
        self.begun = true;
        self.first = all.len() as u32;
        self.table.begin_with(&self.nodes, expected);
    }

    /// Replaces indices among the nodes of the part with their places among those of all parts.
    #[inline(always)]
    fn place(&self, indices: &mut [u32]) {
        let known = self.places.len() as u32;
        for index in indices {
            *index = match self.places.get(*index as usize) {
                Some(&place) => place,
                None => self.first + (*index - known),
            };
        }
    }
}

/// Gives the nodes that edges reached first their limits: the time of the edge, or the limit of its destination if the relation has no
/// times. `reached` is the number of nodes that the part had before. The block has the indices of sources among the nodes of the part.
fn note_limits(
    types: &mut [TypeParts],
    (source, destination): (usize, usize),
    mut reached: usize,
    destinations: Range<usize>,
    block: &Block,
    drawn: &DrawnEdges,
) {
    for target in destinations {
        let limit = types[destination].limits[target];
        for edge in block.edges_of(target) {
            if block.indices[edge] as usize == reached {
                types[source].limits.push(drawn.times.get(edge).copied().unwrap_or(limit));
                reached += 1;
            }
        }
    }
}

/// Fails if a seed is not one of the nodes of its type, of which there are `nodes`.
pub(super) fn check_seeds(seeds: &[NodeId], nodes: u64) -> Result<()> {
    match seeds.iter().find(|seed| seed.0 >= nodes) {
        None => Ok(()),
        Some(seed) => Err(Error::conflict(
            format!("seed {seed} is not a node of the graph, which has {nodes}"),
            "give node ids of the store, not external ids",
        )),
    }
}
