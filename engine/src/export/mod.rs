//! Exports stores to files that other programs, and ingest, can read. Everything is in external ids.
//!
//! An export is a stream of Arrow record batches in bounded memory, and [`table`] writes them in each format:
//!
//! - [`edges`]: a row for each edge, in the order of the store;
//! - [`columns`]: features, labels and times, one row for each node, sorted by external id. Dense ids are 0, 1, 2, ...;
//! - [`scratch_rows`]: values that a program computed for each node, in the same order or in another;
//! - [`ids`]: the sorted ids of all nodes, or of the nodes of a split;
//! - [`node_table`] and [`pair_table`]: tables with a row for each node, or for pairs of nodes.
//!
//! A file gets its name when it is complete and synced. Existing files are not touched, unless the caller wants them replaced. An exported store that is ingested
//! again with the same permutation, seed and chunks has the same adjacency lists, features, labels and splits, with two
//! exceptions: nodes without edges whose ids are sparse or strings are lost if ingest does not get the exported [`ids`], and the
//! last bit of the scale of an int8 feature row may differ.

pub mod arrays;
pub mod columns;
mod edge_spans;
pub mod edges;
mod id_column;
pub mod ids;
pub mod node_table;
mod order;
pub mod pair_table;
pub mod scratch_rows;
mod spill;
pub mod table;

use std::io;

use grappa_io::{Error, Position, Result, ledger::Lease, workers};
use grappa_storage::Store;
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use crate::aggregate::Budget;

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// Number of edges or nodes.
    pub rows: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Who took how much of the memory.
    pub leases: Vec<Lease>,
}

fn pool(threads: usize) -> Result<ThreadPool> {
    workers::check_threads(threads)?;
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Error::Thread { source: io::Error::other(error) })
}

/// Fails for a slice, which lacks some nodes.
fn expect_whole(store: &Store, data: &str) -> Result<()> {
    if store.manifest().is_whole() {
        return Ok(());
    }
    let problem = format!(
        "the store is a slice with {} of {} chunks, and {data} of all nodes were asked for; only its edges can be exported",
        store.present_chunks().count(),
        store.chunks().chunks()
    );
    Err(Error::input(store.path(), Position::Whole, problem))
}
