//! The nodes whose states partitions need of each other.

use std::ops::Range;

/// The boundary of a partitioned graph: for each partition, the nodes of other partitions that are sources of its edges.
#[derive(Debug, Default)]
pub(crate) struct Boundary {
    /// The row of the state of each copy that is sent.
    pub(crate) rows: Vec<u32>,
    /// The sum of the weights of each copy's edges in a mean of in-neighbors.
    pub(crate) weights: Vec<f32>,
    /// The pairs of partitions with copies, in the order of `rows`.
    pub(crate) channels: Vec<Channel>,
}

/// The copies that one partition sends another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channel {
    /// The sender.
    pub(crate) from: u32,
    /// The receiver.
    pub(crate) to: u32,
    /// Which of [`Boundary::rows`].
    pub(crate) copies: Range<usize>,
}

impl Boundary {
    /// Number of copies.
    pub(crate) fn copies(&self) -> usize {
        self.rows.len()
    }

    /// Appends the copies that partition `to` receives, whose owners and rows are sorted.
    pub(super) fn receive(&mut self, to: u32, copies: &[(u32, u32)]) {
        for of_owner in copies.chunk_by(|a, b| a.0 == b.0) {
            let start = self.rows.len();
            self.rows.extend(of_owner.iter().map(|&(_, row)| row));
            self.channels.push(Channel {
                from: of_owner[0].0,
                to,
                copies: start..self.rows.len(),
            });
        }
    }
}
