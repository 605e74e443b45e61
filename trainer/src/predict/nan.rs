//! Predictions that are NaN.

use grappa_formats::NodeId;
use grappa_run::scores::is_undecided;
use roaring::RoaringTreemap;

/// Nodes whose outputs have a NaN: they, or nodes that they depend on, have NaN features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NanOutputs {
    /// Number of these nodes.
    pub nodes: u64,
    /// The first one.
    pub first: NodeId,
}

#[derive(Debug, Default)]
pub(super) struct NanRows {
    rows: u64,
    first: Option<u64>,
}

impl NanRows {
    /// Adds rows of `columns` values. Positions ascend.
    pub(super) fn add(&mut self, first_position: u64, values: &[f32], columns: usize) {
        for (position, _) in (first_position..).zip(values.chunks_exact(columns)).filter(|(_, row)| is_undecided(row)) {
            self.rows += 1;
            self.first.get_or_insert(position);
        }
    }

    /// The nodes of the rows, which are the nodes of a set, or all nodes.
    pub(super) fn found(self, set: Option<&RoaringTreemap>) -> Option<NanOutputs> {
        let first = self.first?;
        let node = set.map_or(Some(first), |set| set.select(first));
        Some(NanOutputs { nodes: self.rows, first: NodeId(node.expect("the set has a node for each row")) })
    }
}
