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
//! So the destinations and sources of its blocks are prefixes of this list, as in any minibatch. No edge joins two
//! parts. A node that is in two parts is in the list twice, with the edges that each part drew for it.
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
    /// For each node of each part, its index among the destinations of all levels.
    places: Vec<u32>,
    /// For each node of each part, its index in the joined list of nodes.
    rows: Vec<u32>,
}

impl JoinScratch {
    /// Bytes of memory for parts of `nodes` nodes, or of as many as there were before.
    pub fn bytes(&self, nodes: usize) -> u64 {
        let indices = self.places.capacity().max(nodes) + self.rows.capacity().max(nodes);
        (indices * size_of::<u32>()) as u64
    }
}

impl Minibatch {
    /// Joins `parts` into `out`, and replaces its previous content. The graph has `graph_nodes` nodes. A part alone
    /// stays as it is.
    ///
    /// # Errors
    /// If the parts have 2^32 edges and nodes in a block, or 2^31 nodes.
    ///
    /// # Panics
    /// If parts differ in their number of hops, two of them have the same seed, or there are none.
    pub fn join(
        parts: &[Self],
        join: Join,
        graph_nodes: u64,
        sampler: &mut Scratch,
        scratch: &mut JoinScratch,
        out: &mut Self,
    ) -> Result<()> {
        let hops = parts[0].blocks.len();
        assert!(parts.iter().all(|part| part.blocks.len() == hops), "parts of different numbers of hops");
        let nodes = parts.iter().map(|part| part.nodes.len()).sum();
        for hop in 0..hops {
            check_size(parts.iter().map(|part| part.blocks[hop].indices.len()).sum(), nodes)?;
        }
        check_size(0, nodes)?;
        out.clear();
        out.blocks.resize_with(hops, Block::default);
        out.seeds = parts.iter().map(|part| part.seeds).sum();
        let JoinScratch { places, rows } = scratch;
        for indices in [&mut *places, &mut *rows] {
            indices.clear();
            heap::reserve(indices, nodes, JOINED)?;
            indices.resize(nodes, 0);
        }
        if join == Join::Apart {
            heap::reserve(&mut out.nodes, nodes, JOINED)?;
        }
        if sampler.tables.is_empty() {
            sampler.tables.push(RelabelTable::default());
        }
        let table = sampler.tables[0].table_for(graph_nodes);
        table.begin();
        let mut next = 0;
        for level in 0..=hops {
            for (part, places) in with_indices(parts, places) {
                let places = &mut places[part.level(level)];
                (next..).zip(&mut *places).for_each(|(new, place)| *place = new);
                next += places.len() as u32;
            }
            for (part, rows) in with_indices(parts, rows) {
                let level = part.level(level);
                match join {
                    Join::SharedInput => table.relabel(&part.nodes[level.clone()], &mut out.nodes, &mut rows[level]),
                    Join::Apart => out.nodes.extend_from_slice(&part.nodes[level]),
                }
            }
            // Parts of links may share seeds: the source of an edge is in any partition.
            let may_share = parts.iter().any(|part| !part.links.positives.is_empty());
            assert!(level > 0 || may_share || out.nodes.len() == out.seeds, "parts with the same seed");
        }
        for (hop, block) in out.blocks.iter_mut().enumerate() {
            let is_shared = hop + 1 == hops && join == Join::SharedInput;
            let of_parts = parts.iter().map(|part| &part.blocks[hop]);
            block.begin(of_parts.clone().map(|block| block.destinations).sum());
            block.sources = if is_shared { out.nodes.len() } else { of_parts.map(|block| block.sources).sum() };
            let indices = if is_shared { &mut *rows } else { &mut *places };
            block.reserve(parts.iter().map(|part| &part.blocks[hop]))?;
            for level in 0..=hop {
                for (part, indices) in with_indices(parts, indices) {
                    block.append(&part.blocks[hop], part.level(level), indices);
                }
            }
            if is_shared {
                block.take_own(parts, rows);
            }
        }
        // Without blocks, the rows of a model are the rows of its input.
        let of_seeds = if hops == 0 && join == Join::SharedInput { rows } else { places };
        for (part, indices) in with_indices(parts, of_seeds) {
            out.links.append(&part.links, indices);
        }
        Ok(())
    }

    /// The nodes that a hop added, or the seeds.
    fn level(&self, level: usize) -> Range<usize> {
        match level {
            0 => 0..self.seeds,
            _ => {
                let block = &self.blocks[level - 1];
                block.destinations..block.sources
            }
        }
    }
}

/// Each part with the new indices of its nodes.
fn with_indices<'a>(
    parts: &'a [Minibatch],
    mut indices: &'a mut [u32],
) -> impl Iterator<Item = (&'a Minibatch, &'a mut [u32])> {
    parts.iter().map(move |part| {
        let (of_part, others) = std::mem::take(&mut indices).split_at_mut(part.nodes.len());
        indices = others;
        (part, of_part)
    })
}

impl Block {
    /// Sets [`Block::own`] of the last block of joined `parts`, whose nodes have the indices `rows` among the sources.
    fn take_own(&mut self, parts: &[Minibatch], rows: &mut [u32]) {
        for level in 0..parts[0].blocks.len() {
            for (part, rows) in with_indices(parts, rows) {
                self.own.extend_from_slice(&rows[part.level(level)]);
            }
        }
        if (0..).zip(&self.own).all(|(place, &row)| place == row) {
            self.own.clear();
        }
    }

    /// Reserves memory for the edges of other blocks.
    fn reserve<'a>(&mut self, blocks: impl Iterator<Item = &'a Self> + Clone) -> Result<()> {
        heap::reserve(&mut self.indices, blocks.clone().map(|block| block.indices.len()).sum(), JOINED)?;
        heap::reserve(&mut self.edge_weights, blocks.clone().map(|block| block.edge_weights.len()).sum(), JOINED)?;
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
        if !other.edge_ids.is_empty() {
            self.edge_ids.extend_from_slice(&other.edge_ids[edges]);
        }
        self.visible.extend_from_slice(&other.visible[destinations.clone()]);
        self.global.extend_from_slice(&other.global[destinations.clone()]);
        self.halo.extend_from_slice(&other.halo[destinations]);
    }
}
