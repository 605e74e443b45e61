//! Open stores: their chunks, ids, neighbors and columns.

pub use grappa_storage::*;
