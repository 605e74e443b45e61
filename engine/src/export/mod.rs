//! Exports stores to files that other programs, and ingest, can read. Everything is in external ids.
//!
//! - [`edges`]: a line or an array row for each edge, in the order of the store;
//! - [`columns`]: features and labels, one row for each node, sorted by external id. Dense ids are 0, 1, 2, ...;
//! - [`made`]: values that a program made for each node, in the same order;
//! - [`ids`]: the sorted ids of all nodes, or of the nodes of a split;
//! - [`table`] and [`node_table`]: all of these as Parquet or CSV, with named columns.
//!
//! A file gets its name when it is complete and synced. Existing files are not touched, unless the caller wants them replaced. An exported store that is ingested
//! again with the same permutation, seed and chunks has the same adjacency lists, features, labels and splits, with two
//! exceptions: nodes without edges whose ids are sparse or strings are lost if ingest does not get the exported [`ids`], and the
//! last bit of the scale of an int8 feature row may differ.

pub mod columns;
mod edge_table;
mod edge_text;
pub mod edges;
pub mod ids;
pub mod made;
pub mod node_table;
mod order;
pub mod pair_table;
mod spill;
pub mod table;

use std::io;

use grappa_io::{Error, Position, Result, workers};
use grappa_storage::Store;
use rayon::{ThreadPool, ThreadPoolBuilder};

pub use crate::aggregate::Budget;

/// The result of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// Number of edges or nodes.
    pub rows: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

fn pool(threads: usize) -> Result<ThreadPool> {
    workers::check_threads(threads)?;
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Error::Thread { source: io::Error::other(error) })
}

/// Fails for a slice, which lacks some nodes.
fn expect_whole(store: &Store, what: &str) -> Result<()> {
    if store.manifest().is_whole() {
        return Ok(());
    }
    let what = format!(
        "the store is a slice with {} of {} chunks, and {what} of all nodes were asked for; only its edges can be exported",
        store.present_chunks().count(),
        store.chunks().chunks()
    );
    Err(Error::input(store.path(), Position::Whole, what))
}
