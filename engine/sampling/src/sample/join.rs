//! Joins minibatches into one block-diagonal minibatch.
//!
//! The nodes of a minibatch are in *levels*: seeds, then the nodes that the first hop added, and so on. The joined minibatch
//! has the first level of each part, then the second level of each part, and so on:
//!
//! ```text
//! part 0             seeds 0            level 1 of 0            level 2 of 0
//! part 1             seeds 1            level 1 of 1            level 2 of 1
//! joined             seeds 0, seeds 1,  level 1 of 0, of 1,     level 2 of 0, of 1
//! ```
//!
//! So the destinations and sources of its blocks are prefixes of its list of nodes, as in any minibatch. No edge joins two
//! parts. A node that is in two parts is in the list twice, with the edges that each part drew for it.

use std::ops::Range;

use grappa_io::Result;

use super::{
    minibatch::{Block, Minibatch},
    sampler::check_size,
};

impl Minibatch {
    /// Joins `parts` into `out`, and replaces its previous content. `indices` is reusable memory for the new index of each
    /// node of each part.
    ///
    /// # Errors
    /// If the joined minibatch has 2^32 edges and nodes in a block, or 2^31 nodes.
    ///
    /// # Panics
    /// If parts differ in their number of hops, or there are none.
    pub fn join(parts: &[Self], indices: &mut Vec<u32>, out: &mut Self) -> Result<()> {
        let hops = parts[0].blocks.len();
        assert!(
            parts.iter().all(|part| part.blocks.len() == hops),
            "parts of different numbers of hops"
        );
        let nodes = parts.iter().map(|part| part.nodes.len()).sum();
        for hop in 0..hops {
            check_size(parts.iter().map(|part| part.blocks[hop].indices.len()).sum(), nodes)?;
        }
        check_size(0, nodes)?;
        out.clear();
        out.blocks.resize_with(hops, Block::default);
        out.seeds = parts.iter().map(|part| part.seeds).sum();
        out.nodes.reserve(nodes);
        indices.clear();
        indices.resize(nodes, 0);
        for level in 0..=hops {
            for (part, indices) in with_indices(parts, indices) {
                let level = part.level(level);
                let first = out.nodes.len() as u32;
                if parts.len() > 1 {
                    out.part_nodes.push(level.len() as u32);
                }
                (first..)
                    .zip(&mut indices[level.clone()])
                    .for_each(|(new, index)| *index = new);
                out.nodes.extend_from_slice(&part.nodes[level]);
            }
        }
        for (hop, block) in out.blocks.iter_mut().enumerate() {
            let sum = |count: fn(&Block) -> usize| parts.iter().map(|part| count(&part.blocks[hop])).sum();
            block.begin(sum(|block| block.destinations));
            block.sources = sum(|block| block.sources);
            for level in 0..=hop {
                for (part, indices) in with_indices(parts, indices) {
                    block.append(&part.blocks[hop], part.level(level), indices);
                }
            }
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
    /// Appends some destinations of another block, whose node `i` has the index `indices[i]` here.
    fn append(&mut self, other: &Self, destinations: Range<usize>, indices: &[u32]) {
        let edges = other.offsets[destinations.start] as usize..other.offsets[destinations.end] as usize;
        // Modulo 2^32, because the first edges of a level may come earlier or later than here.
        let shift = (self.indices.len() as u32).wrapping_sub(edges.start as u32);
        let ends = &other.offsets[destinations.start + 1..=destinations.end];
        self.offsets.extend(ends.iter().map(|end| end.wrapping_add(shift)));
        let sources = &other.indices[edges.clone()];
        self.indices
            .extend(sources.iter().map(|&source| indices[source as usize]));
        if !other.edge_weights.is_empty() {
            self.edge_weights.extend_from_slice(&other.edge_weights[edges]);
        }
        self.visible.extend_from_slice(&other.visible[destinations.clone()]);
        self.global.extend_from_slice(&other.global[destinations.clone()]);
        self.halo.extend_from_slice(&other.halo[destinations]);
    }
}
