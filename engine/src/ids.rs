//! External id -> rank -> node, and back.
//!
//! An external id is what the user's files say. Its rank is its place among all external ids, sorted; dense ids are
//! their own rank. The node is where the store's order puts that rank. Only the first step depends on what external ids
//! are, only the second on how nodes are spread over chunks.

use grappa_formats::order::Feistel;

use crate::{
    Result,
    ingest::source::{EdgeBatch, RawBlock},
};

/// How ranks, `0..nodes`, are put in the store's order.
#[derive(Debug, Clone)]
pub enum Order {
    /// Node = rank.
    Identity,
    /// A keyed permutation that takes no space.
    Feistel(Feistel),
}

impl Order {
    /// The node at `rank`.
    pub fn node(&self, rank: u64) -> u64 {
        match self {
            Self::Identity => rank,
            Self::Feistel(feistel) => feistel.forward(rank),
        }
    }

    /// The rank of `node`.
    pub fn rank(&self, node: u64) -> u64 {
        match self {
            Self::Identity => node,
            Self::Feistel(feistel) => feistel.inverse(node),
        }
    }

    /// Replaces each rank by its node.
    pub fn nodes(&self, ranks: &mut [u64]) {
        match self {
            Self::Identity => {}
            Self::Feistel(feistel) => feistel.forward_all(ranks),
        }
    }
}

/// Both steps.
#[derive(Debug)]
pub struct IdMap {
    nodes: u64,
    order: Order,
}

impl IdMap {
    /// The dense ids `0..nodes` in the given order.
    pub fn dense(nodes: u64, order: Order) -> Self {
        Self { nodes, order }
    }

    /// The second step.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The node with an integer as its external id; none if no node has it.
    ///
    /// # Panics
    /// If external ids are strings.
    pub fn node_of_int(&self, external: u64) -> Result<Option<u64>> {
        Ok((external < self.nodes).then(|| self.order.node(external)))
    }

    /// The node with a string as its external id; none if no node has it.
    ///
    /// # Panics
    /// If external ids are integers.
    pub fn node_of_text(&self, _external: &[u8]) -> Result<Option<u64>> {
        unreachable!("dense ids are integers")
    }

    /// The external id of a node, as a user would write it.
    pub fn external(&self, node: u64) -> Result<String> {
        Ok(self.order.rank(node).to_string())
    }

    /// Parses a block of edges and replaces its external ids by ranks.
    pub fn parse(&self, block: &RawBlock, batch: &mut EdgeBatch) -> Result<()> {
        block.parse(batch)
    }
}
