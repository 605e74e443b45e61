//! Numbers of nodes by their coverage.

use serde::Serialize;

/// How much of the neighborhoods of its nodes a partition sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Number of nodes that the partition does not own and that have an edge to an owned node.
    pub halo_nodes: u64,
    /// The owned destinations of each relation by their coverage. A store has one relation.
    pub by_relation: Vec<Histogram>,
}

/// Number of nodes by their coverage. The coverage of a node is its in-edges from owned nodes / all its in-edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Histogram {
    /// Nodes without in-edges, which have no coverage.
    pub no_in_edges: u64,
    /// Nodes with in-edges, all of them cut.
    pub zero: u64,
    /// Nodes with a coverage between 0 and 1, both excluded: below 0.1, from 0.1 to below 0.2, and so on.
    pub tenths: [u64; 10],
    /// Nodes with in-edges, all of them visible.
    pub one: u64,
}

impl Histogram {
    pub(super) fn count(&mut self, visible: u64, degree: u64) {
        let nodes = match visible {
            _ if degree == 0 => &mut self.no_in_edges,
            0 => &mut self.zero,
            _ if visible >= degree => &mut self.one,
            // Below 10. Degrees are below 2^48, so the product does not overflow.
            _ => &mut self.tenths[(10 * visible / degree) as usize],
        };
        *nodes += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.no_in_edges += other.no_in_edges;
        self.zero += other.zero;
        self.one += other.one;
        for (sum, nodes) in self.tenths.iter_mut().zip(other.tenths) {
            *sum += nodes;
        }
    }
}
