//! Which part of the graph each worker sees, and how that changes from one super-epoch to the next.
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
//! - [`Schedule`] says who owns which chunks in a super-epoch, a function of seed and super-epoch alone;
//! - [`repartition`] writes an assignment that counts from then on, whatever kills it; a training run has its own
//!   ([`assign`], [`keep`]), and leaves the store's alone;
//! - [`Owned`] is what one partition owns: ranges of nodes, and their local ids;
//! - [`report()`] and [`coverage()`] tell what partitions see.
//!
//! Each chunk is in the *base* of exactly one partition, so that each training node is a seed exactly once an epoch; under
//! `sweep` it is in the *variable* part of one other as well. A partition *owns* base and variable part, and sees the edges
//! between nodes that it owns. The rest of the edges into its nodes are *cut*: what view and sampler make of their sources is
//! up to them.
//!
//! Repartitioning moves no edges. It writes a table of C x C entries, which takes milliseconds whatever the size of the graph.

mod coverage;
mod owned;
mod repartition;
mod report;
mod schedule;
mod seeds;
#[cfg(test)]
mod tests;

pub use coverage::{Coverage, CoverageOptions, Histogram, coverage};
pub use owned::{LocalId, Owned};
pub use repartition::{RepartitionOptions, Repartitioned, assign, keep, repartition};
pub use report::{PartitionReport, report};
pub use schedule::{Schedule, assignment, chunk_sizes};
pub use seeds::SeedNodes;
