//! A batch on its way through the stages of a feed.

use grappa_formats::NodeId;

use super::rows::{RowFormat, RowType};
use crate::sample::Minibatch;

/// The minibatches of a batch, the slots of its feature rows, and the memory reserved for it. It is reused from batch to batch.
#[derive(Debug, Default)]
pub(super) struct InFlightBatch {
    /// The minibatch of each node type.
    pub minibatches: Vec<Minibatch>,
    /// The positions of the nodes whose rows are planned, unless they are the nodes of one type.
    pub positions: Vec<NodeId>,
    /// The slot of each row in the pool, or [`RESIDENT`](crate::feed::resident::RESIDENT). Empty without a pool.
    pub slots: Vec<u32>,
    /// Bytes reserved for the minibatch.
    pub reserved_bytes: u64,
}

impl InFlightBatch {
    /// Number of nodes of a type.
    pub fn nodes(&self, node_type: usize) -> usize {
        self.minibatches[node_type].nodes.len()
    }

    /// Lists the rows of the minibatches.
    pub fn list_rows(&mut self, format: &RowFormat) {
        self.positions.clear();
        if format.lists_positions() {
            for RowType { node_type, start } in format.types() {
                let nodes = self.minibatches[node_type].nodes.iter();
                self.positions.extend(nodes.map(|node| NodeId(start + node.0)));
            }
        }
    }

    /// The positions of the nodes whose rows are planned.
    pub fn rows(&self, format: &RowFormat) -> &[NodeId] {
        match format.types().next() {
            Some(of) if !format.lists_positions() => &self.minibatches[of.node_type].nodes,
            _ => &self.positions,
        }
    }
}
