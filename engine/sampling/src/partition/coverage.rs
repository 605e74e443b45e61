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
//! A graph with types is counted relation by relation, and its nodes are positions. A bitmap takes one bit per node of the graph. If the bitmaps of all partitions fit in memory, each adjacency list is
//! read once. Otherwise it is read once for each set of partitions that owns it, and if not even one bitmap fits, once
//! for each range of sources. Lists are decoded from mapped files, whose pages are released on the way. So memory is
//! the bitmaps plus some megabytes per thread.

mod count;
mod histogram;
#[cfg(test)]
mod tests;

use grappa_formats::assignment::Assignment;
use grappa_io::{Error, Result, progress::Progress};
use grappa_storage::Graph;

pub use self::histogram::{Coverage, Histogram};

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

/// Counts the halo nodes and the coverage of every partition.
///
/// # Errors
/// If the memory is below 1 MiB, or if a chunk cannot be read.
///
/// # Panics
/// If the assignment has a different number of chunks than the graph.
pub fn coverage(
    graph: &Graph,
    assignment: &Assignment,
    options: &CoverageOptions,
    progress: &dyn Progress,
) -> Result<Vec<Coverage>> {
    assert_eq!(
        assignment.chunks(),
        graph.positions().chunks().chunks(),
        "the assignment does not match the chunks of the store"
    );
    if options.memory < MEMORY_MIN {
        return Err(Error::Budget {
            operation: "counting halo nodes".into(),
            given: options.memory,
            least: MEMORY_MIN,
            remedy: "raise --memory",
        });
    }
    let passes = count::passes(graph.positions().chunks().nodes(), assignment.partitions(), options.memory);
    count::count(graph, assignment, &passes, options.threads, progress)
}
