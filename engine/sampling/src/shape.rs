//! The node types and relations of a graph, as far as minibatches depend on them.

/// The node types of a graph, and the types that its relations join. A store is one relation of one type.
///
/// A minibatch of a graph is a [`Minibatch`](crate::sample::Minibatch) for each node type: its nodes, and the blocks of the relations into it. The blocks of the
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
    pub fn untyped(nodes: u64) -> Self {
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
}
