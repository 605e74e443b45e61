//! Joins minibatches into one block-diagonal minibatch.
//!
//! The nodes of a minibatch are in *levels*: seeds, then the nodes that the first hop added, and so on. The joined
//! minibatch has the first level of each part, then the second level of each part, and so on:
//!
//! ```text
//! part 0             seeds 0            level 1 of 0            level 2 of 0
//! part 1             seeds 1            level 1 of 1            level 2 of 1
//! joined             seeds 0, seeds 1,  level 1 of 0, of 1,     level 2 of 0, of 1
//! ```
//!
//! Each node type has levels of its own. So the destinations and sources of its blocks are prefixes of this list, as in any
//! minibatch. No edge joins two parts. A node that is in two parts is in the list twice, with the edges that each part drew
//! for it.
//!
//! With [`Join::SharedInput`], a node has its features once: [`Minibatch::nodes`] has it once, and the edges of the last
//! block come from these nodes. The parts of 16 partitions may have ten times as many nodes together as there are
//! different ones. With [`Join::Apart`], the nodes are the levels above.

use std::ops::Range;

use grappa_io::{Result, heap};

use super::{
    minibatch::{Block, Minibatch},
    relabel::RelabelTable,
    sampler::Scratch,
    size::check_size,
};
use crate::shape::{GraphShape, RelationEnds};

/// The purpose of the memory, in errors.
const JOINED: &str = "a minibatch of several parts";

/// The input of joined minibatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Each node is in the input once.
    SharedInput,
    /// Each part has an input of its own. A node that several parts reach is in the minibatch as often, and the
    /// destinations of every block are the first of its sources.
    Apart,
}

/// Reusable memory for [`Minibatch::join`].
#[derive(Debug, Default)]
pub struct JoinScratch {
    /// The nodes of each type.
    types: Vec<TypeIndices>,
}

/// The new indices of the nodes of a type, one part after another.
#[derive(Debug, Default)]
struct TypeIndices {
    /// For each node, its index among the destinations of all levels.
    places: Vec<u32>,
    /// For each node, its index in the joined list of nodes.
    rows: Vec<u32>,
    /// Where the nodes of each part start, then their number.
    starts: Vec<usize>,
}

impl JoinScratch {
    /// Bytes of memory for parts of `nodes` nodes, or of as many as there were before.
    pub fn bytes(&self, nodes: usize) -> u64 {
        let before = |indices: fn(&TypeIndices) -> &Vec<u32>| self.types.iter().map(indices).map(Vec::capacity).sum();
        let indices = nodes.max(before(|indices| &indices.places)) + nodes.max(before(|indices| &indices.rows));
        (indices * size_of::<u32>()) as u64
    }
}

impl TypeIndices {
    /// Reserves an index for each node of the parts.
    fn begin(&mut self, nodes_of_parts: impl Iterator<Item = usize>) -> Result<()> {
        let Self { places, rows, starts } = self;
        starts.clear();
        starts.push(0);
        let mut nodes = 0;
        starts.extend(nodes_of_parts.map(|count| {
            nodes += count;
            nodes
        }));
        for indices in [places, rows] {
            indices.clear();
            heap::reserve(indices, nodes, JOINED)?;
            indices.resize(nodes, 0);
        }
        Ok(())
    }

    /// The rows of a part if they are shared, or its places.
    fn indices(&self, part: usize, shared: bool) -> &[u32] {
        let indices = if shared { &self.rows } else { &self.places };
        &indices[self.starts[part]..self.starts[part + 1]]
    }
}

impl Minibatch {
    /// Joins `parts` into `out`, and replaces its previous content. A part is a minibatch of each node type of the graph, and so is `out`. A
    /// part alone stays as it is.
    ///
    /// # Errors
    /// If the parts have 2^32 edges and nodes in a block, or 2^31 nodes of a type.
    ///
    /// # Panics
    /// If parts differ in their number of hops, two parts that share their input have the same seed, or there are none.
    pub fn join(
        parts: &[Self],
        join: Join,
        shape: &GraphShape,
        sampler: &mut Scratch,
        JoinScratch { types: indices }: &mut JoinScratch,
        out: &mut [Self],
    ) -> Result<()> {
        let types = shape.types();
        let parts: Vec<&[Self]> = parts.chunks(types).collect();
        let hops = shape.hops(parts[0]);
        let numbers = numbers(&parts);
        let is_joined = numbers.last().is_some_and(|of_last| of_last.end > 1);
        assert!(parts.iter().all(|part| shape.hops(part) == hops), "parts of different numbers of hops");
        sampler.tables.resize_with(types.max(sampler.tables.len()), RelabelTable::default);
        indices.resize_with(types, TypeIndices::default);
        for (node_type, indices) in indices.iter_mut().enumerate() {
            let out = &mut out[node_type];
            let minibatches = || parts.iter().map(|part| &part[node_type]);
            let nodes = minibatches().map(|part| part.nodes.len()).sum();
            let blocks = parts[0][node_type].blocks.len();
            for place in 0..blocks {
                check_size(minibatches().map(|part| part.blocks[place].indices.len()).sum(), nodes)?;
            }
            check_size(0, nodes)?;
            out.clear();
            out.blocks.resize_with(blocks, Block::default);
            out.seeds = minibatches().map(|part| part.seeds).sum();
            minibatches().for_each(|part| out.part_times.extend_from_slice(&part.part_times));
            indices.begin(minibatches().map(|part| part.nodes.len()))?;
            if join == Join::Apart {
                heap::reserve(&mut out.nodes, nodes, JOINED)?;
                heap::reserve(&mut out.parts, if is_joined { nodes } else { 0 }, JOINED)?;
            }
            let table = sampler.tables[node_type].table_for(shape.nodes[node_type]);
            table.begin();
            let TypeIndices { places, rows, starts } = indices;
            let mut next = 0;
            for level in 0..=hops {
                for ((part, numbers), &start) in parts.iter().zip(&numbers).zip(&*starts) {
                    let range = shape.level(part, node_type, level);
                    let nodes = &part[node_type].nodes[range.clone()];
                    let parts_of_part = part[node_type].parts.get(range.clone());
                    let indices = start + range.start..start + range.end;
                    (next..).zip(&mut places[indices.clone()]).for_each(|(new, place)| *place = new);
                    next += nodes.len() as u32;
                    match join {
                        Join::SharedInput => table.relabel(nodes, &mut out.nodes, &mut rows[indices]),
                        Join::Apart => {
                            out.nodes.extend_from_slice(nodes);
                            match parts_of_part {
                                Some(parts) => out.parts.extend(parts.iter().map(|part| numbers.start + part)),
                                // A part alone stays as it is.
                                None if is_joined => out.parts.resize(out.nodes.len(), numbers.start),
                                None => {}
                            }
                        }
                    }
                }
                // Parts of links may share seeds: the source of an edge is in any partition. The pairs are those of one of the types.
                let may_share = parts.iter().copied().flatten().any(|part| !part.links.positives.is_empty());
                assert!(level > 0 || may_share || out.nodes.len() == out.seeds, "parts with the same seed");
            }
        }
        for (number, &RelationEnds { source, destination }) in shape.relations.iter().enumerate() {
            for hop in 0..hops {
                let place = shape.block_place(number, hop);
                let is_shared = hop + 1 == hops && join == Join::SharedInput;
                let part_blocks = || parts.iter().map(|part| &part[destination].blocks[place]);
                let shared_sources = out[source].nodes.len();
                let block = &mut out[destination].blocks[place];
                block.begin(part_blocks().map(|block| block.destinations).sum());
                block.sources = if is_shared { shared_sources } else { part_blocks().map(|block| block.sources).sum() };
                block.reserve(part_blocks())?;
                for level in 0..=hop {
                    for (at, part) in parts.iter().enumerate() {
                        let destinations = shape.level(part, destination, level);
                        block.append(
                            &part[destination].blocks[place],
                            destinations,
                            indices[source].indices(at, is_shared),
                        );
                    }
                }
                if is_shared {
                    for level in 0..hops {
                        for (at, part) in parts.iter().enumerate() {
                            let rows = indices[destination].indices(at, true);
                            block.own.extend_from_slice(&rows[shape.level(part, destination, level)]);
                        }
                    }
                    if (0..).zip(&block.own).all(|(place, &row)| place == row) {
                        block.own.clear();
                    }
                }
            }
        }
        // Without blocks, the rows of a model are the rows of its input.
        let is_shared = hops == 0 && join == Join::SharedInput;
        for (at, part) in parts.iter().enumerate() {
            for (node_type, minibatch) in part.iter().enumerate() {
                if minibatch.links.positives.is_empty() {
                    continue;
                }
                let source = minibatch.links.source_type;
                let ends = [source, node_type].map(|node_type| indices[node_type].indices(at, is_shared));
                out[node_type].links.append(&minibatch.links, ends);
            }
        }
        Ok(())
    }
}

/// The numbers of each part in the joined minibatch. A part that was joined apart itself has several.
fn numbers(parts: &[&[Minibatch]]) -> Vec<Range<u32>> {
    let mut next = 0;
    let numbers = parts.iter().map(|part| {
        let last = part.iter().filter_map(|minibatch| minibatch.parts.iter().max()).max();
        let start = next;
        next += last.map_or(1, |last| last + 1);
        start..next
    });
    numbers.collect()
}

impl Block {
    /// Reserves memory for the edges of other blocks.
    fn reserve<'a>(&mut self, blocks: impl Iterator<Item = &'a Self> + Clone) -> Result<()> {
        heap::reserve(&mut self.indices, blocks.clone().map(|block| block.indices.len()).sum(), JOINED)?;
        heap::reserve(&mut self.edge_weights, blocks.clone().map(|block| block.edge_weights.len()).sum(), JOINED)?;
        heap::reserve(&mut self.edge_times, blocks.clone().map(|block| block.edge_times.len()).sum(), JOINED)?;
        heap::reserve(&mut self.edge_ids, blocks.map(|block| block.edge_ids.len()).sum(), JOINED)
    }

    /// Appends some destinations of another block, whose node `i` has the index `indices[i]` here.
    fn append(&mut self, other: &Self, destinations: Range<usize>, indices: &[u32]) {
        let edges = other.offsets[destinations.start] as usize..other.offsets[destinations.end] as usize;
        // Modulo 2^32, because the first edges of a level may come earlier or later than here.
        let shift = (self.indices.len() as u32).wrapping_sub(edges.start as u32);
        let ends = &other.offsets[destinations.start + 1..=destinations.end];
        self.offsets.extend(ends.iter().map(|end| end.wrapping_add(shift)));
        let sources = &other.indices[edges.clone()];
        self.indices.extend(sources.iter().map(|&source| indices[source as usize]));
        if !other.edge_weights.is_empty() {
            self.edge_weights.extend_from_slice(&other.edge_weights[edges.clone()]);
        }
        if !other.edge_times.is_empty() {
            self.edge_times.extend_from_slice(&other.edge_times[edges.clone()]);
        }
        if !other.edge_ids.is_empty() {
            self.edge_ids.extend_from_slice(&other.edge_ids[edges]);
        }
        self.visible.extend_from_slice(&other.visible[destinations.clone()]);
        self.global.extend_from_slice(&other.global[destinations.clone()]);
        self.halo.extend_from_slice(&other.halo[destinations]);
    }
}
