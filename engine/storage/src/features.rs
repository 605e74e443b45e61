//! The error about a store without features.

use std::path::Path;

use grappa_io::{Error, Position};

/// The error about a store without features. It says how to add some.
pub fn no_features(store: &Path) -> Error {
    let what = format!(
        "the nodes have no features; compute some from the graph with `grappa-store add-features {} --kind fastrp` (or degrees), \
         or ingest the graph with --features",
        store.display()
    );
    Error::input(store, Position::Whole, what)
}
