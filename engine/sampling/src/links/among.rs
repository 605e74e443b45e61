//! Draws among the destinations that the user lists, as far as a partition owns them.

use grappa_formats::NodeId;

use crate::{NodeSet, partition::Owned};

/// The positions in a set of the nodes that a partition owns.
#[derive(Debug, Default)]
pub(super) struct OwnedMembers {
    /// For each run of owned nodes: the number of members up to its end, and the position of its first member.
    runs: Vec<(u64, u64)>,
    count: u64,
}

impl OwnedMembers {
    /// Sets the positions of the members that a partition owns. Takes two lookups per run of owned nodes.
    pub fn set(&mut self, set: &NodeSet, owned: &Owned) {
        self.runs.clear();
        self.count = 0;
        for run in owned.runs() {
            let first = set.position(NodeId(run.start));
            let end = if run.end < set.universe() { set.position(NodeId(run.end)) } else { set.len() };
            self.count += end - first;
            self.runs.push((self.count, first));
        }
    }

    /// Number of members that the partition owns.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// One of these members, by its number below their count.
    pub fn at(&self, set: &NodeSet, number: u64) -> NodeId {
        let run = self.runs.partition_point(|&(end, _)| end <= number);
        let before = if run == 0 { 0 } else { self.runs[run - 1].0 };
        set.at(self.runs[run].1 + number - before)
    }
}
