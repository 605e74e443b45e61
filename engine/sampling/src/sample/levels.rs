//! The blocks and the levels of minibatches of a graph.

use std::ops::Range;

use super::minibatch::{Block, Minibatch};
use crate::shape::GraphShape;

impl GraphShape {
    /// The block of a relation at a hop.
    ///
    /// # Panics
    /// If there is no such relation or hop.
    pub fn block<'a>(&self, types: &'a [Minibatch], relation: usize, hop: usize) -> &'a Block {
        &types[self.relations[relation].destination].blocks[self.block_place(relation, hop)]
    }

    /// The number of hops of a minibatch. Without relations, there are none.
    pub fn hops(&self, types: &[Minibatch]) -> usize {
        self.relations
            .first()
            .map_or(0, |relation| types[relation.destination].blocks.len() / self.blocks_per_hop(relation.destination))
    }

    /// The nodes of a type that a hop added, or the seeds at level 0, as a range of their indices.
    pub fn level(&self, types: &[Minibatch], node_type: usize, level: usize) -> Range<usize> {
        // All relations from a type have its nodes after each hop as sources.
        let relation = self.relations.iter().position(|relation| relation.source == node_type);
        let seeds = types[node_type].seeds;
        let after = |hops: usize| match (hops, relation) {
            (0, _) | (_, None) => seeds,
            (_, Some(relation)) => self.block(types, relation, hops - 1).sources,
        };
        match level {
            0 => 0..seeds,
            _ => after(level - 1)..after(level),
        }
    }
}
