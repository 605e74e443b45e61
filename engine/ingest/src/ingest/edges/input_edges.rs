//! The input of the passes over edges.

use grappa_input::EdgeSource;

use crate::ingest::{edge_ingest::EdgeReader, edge_values::EdgeValues};

/// The input of the passes.
pub struct InputEdges<'a> {
    pub reader: EdgeReader<'a>,
    pub source: &'a EdgeSource,
    pub values: &'a EdgeValues,
    /// The number of edges, or an estimate of it.
    pub edges: u64,
    /// Whether the edges go from the targets of the files to their sources.
    pub is_reversed: bool,
}
