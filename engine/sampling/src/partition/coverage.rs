//! Exact counts of halo nodes, and of how much of the neighborhood of its nodes each partition sees.
//!
//! ```text
//! for each pass (a set of partitions and a range of sources, as large as bitmaps fit in memory):
//!     for each chunk that one of the partitions owns, on all threads:
//!         for each adjacency list, for each owner of the chunk:
//!             set the bit of each source in the range that the owner does not own
//!             in the first range: coverage of the destination = visible sources / all sources
//!     halo nodes of each partition += set bits
//! ```
//!
//! A bitmap takes one bit per node of the graph. If the bitmaps of all partitions fit in memory, each adjacency list is
//! read once. Otherwise it is read once for each set of partitions that owns it, and if not even one bitmap fits, once
//! for each range of sources. Lists are decoded from mapped files, whose pages are released on the way. So memory is
//! the bitmaps plus some megabytes per thread.

mod bitmap;
mod count;
#[cfg(test)]
mod tests;

use grappa_formats::assignment::Assignment;
use grappa_io::{Error, Result, progress::Progress};
use grappa_storage::Store;
use serde::Serialize;

/// The minimum memory for bitmaps, in bytes.
const MEMORY_MIN: u64 = 1 << 20;

/// Options of [`coverage()`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoverageOptions {
    /// Memory for bitmaps, in bytes. At least 1 MiB.
    pub memory: u64,
    /// Number of worker threads.
    pub threads: usize,
}

/// How much of the neighborhoods of its nodes a partition sees. Field names are keys of the JSON output of
/// `grappa-store info --coverage`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Coverage {
    /// Number of nodes that the partition does not own and that have an edge to an owned node.
    pub halo_nodes: u64,
    /// The owned nodes by their coverage.
    pub coverage: Histogram,
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
    /// Counts a node.
    fn count(&mut self, visible: u64, degree: u64) {
        let nodes = match visible {
            _ if degree == 0 => &mut self.no_in_edges,
            0 => &mut self.zero,
            _ if visible >= degree => &mut self.one,
            // Below 10. Degrees are below 2^48, so the product does not overflow.
            _ => &mut self.tenths[(10 * visible / degree) as usize],
        };
        *nodes += 1;
    }

    fn add(&mut self, other: &Self) {
        self.no_in_edges += other.no_in_edges;
        self.zero += other.zero;
        self.one += other.one;
        for (sum, nodes) in self.tenths.iter_mut().zip(other.tenths) {
            *sum += nodes;
        }
    }
}

/// Counts the halo nodes and the coverage of every partition.
///
/// # Errors
/// If the memory is below 1 MiB, or if a chunk cannot be read.
///
/// # Panics
/// If the assignment has a different number of chunks than the store.
pub fn coverage(
    store: &Store,
    assignment: &Assignment,
    options: &CoverageOptions,
    progress: &dyn Progress,
) -> Result<Vec<Coverage>> {
    assert_eq!(
        assignment.chunks(),
        store.chunks().chunks(),
        "the assignment does not match the chunks of the store"
    );
    if options.memory < MEMORY_MIN {
        return Err(Error::Budget {
            what: "counting halo nodes".into(),
            given: options.memory,
            least: MEMORY_MIN,
            remedy: "raise --memory",
        });
    }
    let passes = count::passes(store.manifest().nodes, assignment.partitions(), options.memory);
    count::count(store, assignment, &passes, options.threads, progress)
}
