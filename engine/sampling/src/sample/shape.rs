//! The node types and relations of a graph, as far as minibatches depend on them.

use std::ops::Range;

use super::minibatch::{Block, Minibatch};

/// The node types of a graph, and the types that its relations join. A store is one relation of one type.
///
/// A minibatch of a graph is a [`Minibatch`] for each node type: its nodes, and the blocks of the relations into it. The blocks of the
/// first hop come first, in the order of relations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphShape {
    /// Number of nodes of each type.
    pub nodes: Vec<u64>,
    /// The types that each relation joins.
    pub relations: Vec<RelationEnds>,
}

/// The node types that a relation joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelationEnds {
    /// The type of its sources.
    pub source: usize,
    /// The type of its destinations.
    pub destination: usize,
}

impl GraphShape {
    /// The shape of a store.
    pub fn of_store(nodes: u64) -> Self {
        Self { nodes: vec![nodes], relations: vec![RelationEnds { source: 0, destination: 0 }] }
    }

    /// Number of node types.
    pub fn types(&self) -> usize {
        self.nodes.len()
    }

    /// The number of blocks of a node type at each hop: one for each relation into it.
    pub fn blocks_per_hop(&self, node_type: usize) -> usize {
        self.relations.iter().filter(|relation| relation.destination == node_type).count()
    }

    /// The place of the block of a relation at a hop among the blocks of its destinations' type.
    ///
    /// # Panics
    /// If there is no such relation.
    pub fn block_place(&self, relation: usize, hop: usize) -> usize {
        let destination = self.relations[relation].destination;
        let before = self.relations[..relation].iter().filter(|other| other.destination == destination).count();
        hop * self.blocks_per_hop(destination) + before
    }

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
