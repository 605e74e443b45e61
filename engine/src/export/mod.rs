//! Stores back into files that other programs read, and that ingest reads again: everything in external ids.
//!
//! - [`edges`]: a line or an array row for each edge, in the order of the store;
//! - [`columns`]: features and labels, one row a node in the order of the sorted external ids, which for dense ids is id 0,
//!   1, 2, ...;
//! - [`made`]: what a program made for each node, in the same order;
//! - [`splits`]: the ids of the nodes in a split, sorted.
//!
//! Files appear under their name when they are complete and on disk; existing files are left alone. What is exported,
//! ingested again with the same order, seed and chunks, gives the same rows, features, labels and splits. (But for nodes
//! without edges whose ids are sparse or strings: nothing names them. And the scale of an int8 row can come back with
//! another last bit.)

pub mod columns;
pub mod edges;
pub mod made;
mod spill;
pub mod splits;

use std::io;

use grappa_formats::{DenseId, manifest::ExternalIds};
use grappa_io::{Error, Position, Result, workers};
use grappa_storage::Store;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// What an export may use.
#[derive(Debug, Clone, Copy)]
pub struct ExportBudget {
    /// Worker threads.
    pub threads: usize,
    /// Bytes of memory for rows that are put in order.
    pub memory: u64,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// Edges, or nodes.
    pub rows: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

fn pool(threads: usize) -> Result<ThreadPool> {
    workers::check_threads(threads)?;
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Error::Thread {
            source: io::Error::other(error),
        })
}

/// NumPy's name for the type of external ids, which are integers: signed where that suffices, as most programs expect it.
fn id_descr(store: &Store) -> Result<&'static str> {
    let nodes = store.manifest().nodes;
    let ids = store.ids();
    match store.manifest().ids.external {
        ExternalIds::Sparse if nodes > 0 && ids.integer_at(DenseId(nodes - 1))? > i64::MAX as u64 => Ok("<u8"),
        ExternalIds::Dense | ExternalIds::Sparse => Ok("<i8"),
        ExternalIds::String => {
            let what =
                "ids are strings, which a .npy of integers cannot hold; export to a file called .tsv, .csv or .txt";
            Err(Error::input(store.path(), Position::Whole, what))
        }
    }
}

/// Fails for a slice, of which some nodes are not there.
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
