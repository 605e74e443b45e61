//! An aggregation: the nodes, the rows and the budget. [`run`](super::run) performs it.

use std::ops::Range;

use grappa_io::Result;
use grappa_sampling::{InNeighbors, NodeSet};
use grappa_storage::Store;

use super::{budget::Budget, rows::NodeRows};

/// Receives the states of a range of positions among the destinations. It may keep the vector, and leave another in its place. What it leaves
/// is the memory of the next states.
pub type Sink<'a> = dyn FnMut(Range<u64>, &mut Vec<f32>) -> Result<()> + 'a;

/// As [`Sink`]. Also receives the destinations' rows in their encoding, if the pass has read them.
pub type SinkWithRows<'a> = dyn FnMut(Range<u64>, &mut Vec<f32>, Option<&[u8]>) -> Result<()> + 'a;

/// Writes the own rows ([`Reduce::begin`](super::Reduce::begin)) of a range of positions among the destinations. Ranges come in ascending order, each small beside
/// the budget.
pub type OwnRows<'a> = dyn FnMut(Range<u64>, &mut [f32]) -> Result<()> + 'a;

/// The nodes to aggregate for, and the rows to aggregate.
pub struct Aggregation<'a> {
    /// The graph.
    pub store: &'a Store,
    /// The in-neighbors of each node, with the values of edges that the reduction takes ([`InNeighbors::with_values`]).
    pub lists: InNeighbors<'a>,
    /// The nodes that have rows. All listed in-neighbors of the destinations are among them.
    pub sources: &'a NodeSet,
    /// Their rows, by position in `sources`.
    pub rows: &'a dyn NodeRows,
    /// The nodes that get a state.
    pub destinations: &'a NodeSet,
    /// Memory and threads.
    pub budget: Budget,
}

impl Aggregation<'_> {
    /// Whether rows are streamed, because they exceed the memory.
    pub(super) fn streams(&self) -> bool {
        self.rows.in_memory().is_none() && self.budget.streams(self.sources.len(), self.rows.width())
    }
}
