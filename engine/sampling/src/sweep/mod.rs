//! Swept minibatches: many are sampled at once, hop by hop, with sequential passes over the adjacency lists.
//!
//! A minibatch of a graph on disk reads a list at a random place for each node that it expands. But the seeds of an epoch are known in advance,
//! and draws are addressed by counter. So a *sweep* samples all minibatches of an epoch together, or as many as the disk has room for:
//!
//! ```text
//! seeds                    pairs (node, part), by ranges of nodes
//! for each hop:
//!     for each range:      sort the pairs by node; draw from each list for all of its pairs
//!                          drawn edges, by groups of parts
//!     for each group:      sort the edges by part; relabel them as a minibatch does
//!                          blocks and new nodes of each part; pairs of the next hop
//! ```
//!
//! A *part* is a minibatch, or of disjoint seeds one of its parts. Its draws have the keys that they have in memory, so a swept minibatch equals
//! the one that is sampled on its own.
//!
//! Pairs and edges are coded in a few bytes each, in scratch files without names. All of them have checksums. Memory is bounded: buckets
//! have buffers of a fixed size, and a range or group that is too large to sort is sorted in pieces.
//!
//! While the minibatches of a sweep are used, a thread sweeps the next ones ([`Sweeps`]).

mod part;
mod pass;
mod record;
mod source;
mod spill;
mod sweeps;
mod swept;
#[cfg(test)]
mod tests;

pub use self::sweeps::{SweepEpoch, SweepOptions, Sweeps};
pub(crate) use self::{source::SweepSource, swept::SweptScratch};
