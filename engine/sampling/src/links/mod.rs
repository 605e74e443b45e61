//! Link prediction: minibatches of edges, with negatives and the neighborhoods of all ends.
//!
//! ```text
//! positives of the epoch                  positives: edges of a part of the store, or a list
//! batch: an even share, shuffled          grappa_sampling::feed
//!     negatives                           negatives: draw ends; while one is a true edge, draw again
//!     seeds: the ends, each once          task
//!     neighborhoods                       grappa_sampling::sample
//!     remove the positives of the batch, and their reverses, from the messages
//! ```
//!
//! The training positives are the edges of the graph, which messages use. A positive whose own edge is among the messages can be read off
//! them. So each minibatch leaves out the edges that it is asked about; the rest of the graph stays.
//!
//! In a partition, the destinations of positives are nodes of its base, and their sources may be halo nodes. Negatives come from all nodes
//! that it owns.
//!
//! Edges are read front to back, once per epoch at most; no edge is read at random. Negatives cost a lookup of one adjacency list each.

mod among;
mod end_times;
mod events;
mod known;
mod negatives;
mod positives;
mod ranked;
mod task;
#[cfg(test)]
mod tests;

pub(crate) use self::task::{LinkScratch, TimedPositives};
pub use self::{
    end_times::EndTimes,
    events::{EdgeBank, split_by_time},
    known::KnownEdges,
    negatives::{Candidates, ListedPairs, Negatives, WithoutNegative},
    positives::{PartEdges, Positives, TimeRange},
    ranked::{RankCandidates, Ranked, known_edges_of},
    task::{ExcludedEdges, LinkRelation, LinkTask},
};
