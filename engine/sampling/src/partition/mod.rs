//! Partitions: which chunks each one owns, which edges it sees, and how that changes between super-epochs.
//!
//! ```text
//!             edge buckets (i, j): destination chunk i, source chunk j
//!                          j
//!                  0  1  2  3  4  5       chunks 0, 3: base of partition 0     partition 0 owns 0, 1, 3, 4
//!               0  x  x  .  x  x  .       chunks 1, 4: base of partition 1       and sees the buckets marked x;
//!               1  x  x  .  x  x  .       chunks 2, 5: base of partition 2     the dots in its rows are cut:
//!            i  2                         partition 0 has the base of 1        sources there are halo nodes
//!               3  x  x  .  x  x  .         as its variable part
//!               4  x  x  .  x  x  .
//!               5                         its seeds: training nodes of its base, chunks 0 and 3
//! ```
//!
//! Each chunk belongs to the *base* of exactly one partition, so each training node is a seed exactly once per epoch.
//! Under `sweep` it also belongs to the *variable part* of one other partition. A partition *owns* both parts. It sees
//! the edges between nodes that it owns. All other edges into its nodes are *cut*; views and samplers decide how to
//! treat their sources.
//!
//! - [`Schedule`] assigns chunks to partitions, as a function of seed and super-epoch alone.
//! - [`repartition`] writes a new assignment into a store, atomically. A training run writes its own ([`assign`],
//!   [`keep`]) and leaves the assignment of the store unchanged.
//! - [`Owned`] has the nodes that one partition owns, and numbers them with local ids.
//! - [`Share`] says which partitions one of several workers serves, and [`Hosts`] which chunks if they have different
//!   slices.
//! - [`report()`] and [`coverage()`] describe which edges each partition sees.
//!
//! A graph with types is partitioned by the chunks of all types ([`ChunkTables`]). Those of each type are dealt on their own.
//!
//! Repartitioning moves no edges. It writes a table of C x C entries for C chunks, in milliseconds for any graph.

mod coverage;
mod dealt;
mod hosts;
mod owned;
mod repartition;
mod report;
mod schedule;
mod seeds;
mod share;
mod tables;
#[cfg(test)]
mod tests;

pub use coverage::{Coverage, CoverageOptions, Histogram, coverage};
pub use dealt::foreign;
pub use hosts::{HeldChunk, HeldChunks, Hosts, held_chunks};
pub(crate) use owned::groups;
pub use owned::{LocalId, Owned};
pub use repartition::{RepartitionOptions, Repartitioned, assign, keep, repartition};
pub use report::{PartitionReport, report};
pub use schedule::{Schedule, assignment, check_concurrent, chunk_sizes};
pub use seeds::SeedNodes;
pub use share::Share;
pub use tables::{ChunkTables, RelationTable};
