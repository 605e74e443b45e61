//! What a slice is made of, and what was made.

use std::{ops::RangeInclusive, path::PathBuf};

use serde::Serialize;

use super::edges::SliceEdges;

/// Options of [`place`](super::place).
#[derive(Debug, Clone)]
pub struct PlaceOptions {
    /// The chunks of the slice.
    pub chunks: Vec<RangeInclusive<u32>>,
    /// Which edges into their nodes it has.
    pub edges: SliceEdges,
    /// Whether it has the features, pre-aggregated features and in-degrees of all other chunks that its edges come from.
    pub halo_features: bool,
    /// The store to make.
    pub out: PathBuf,
    /// Whether to copy files even where they can be linked.
    pub copy: bool,
    /// Number of threads.
    pub threads: usize,
    /// Whether to continue an unfinished run.
    pub resume: bool,
    /// Whether an existing store of this name is replaced, when the new one is complete.
    pub replace: bool,
}

/// Result of [`place`](super::place). Field names are keys of the JSON output of `grappa-store place`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// Number of nodes of the graph.
    pub nodes: u64,
    /// Number of nodes of the slice's chunks.
    pub nodes_present: u64,
    /// Number of edges of the slice.
    pub edges: u64,
    /// Edges into nodes of the slice that it does not have, because their sources are in other chunks.
    pub edges_left_out: u64,
    /// Names of the kinds of pre-aggregated features that the slice has.
    pub aggregates: Vec<&'static str>,
    /// Number of chunks of the graph.
    pub chunks: u32,
    /// Number of chunks of the slice.
    pub chunks_present: u32,
    /// Number of other chunks whose features the slice has.
    pub chunks_halo: u32,
    /// Number of other chunks whose features and in-degrees it has.
    pub chunks_halo_degrees: u32,
    /// Files that are hard links to files of the store.
    pub files_linked: u64,
    /// Bytes that were copied.
    pub bytes_copied: u64,
    /// Total length of the slice's files in bytes, shared ones included.
    pub bytes: u64,
}
