//! Store folders: opens, reads and writes them.
//!
//! - [`Store`] is an open store. It maps the adjacency lists of its [`Chunk`]s one by one; [`MappedChunks`] has all of them.
//! - [`MappedLabels`] and [`MappedFeatures`] are labels and feature rows of a chunk's nodes. They compare each block with its checksum
//!   before its first use.
//! - [`StoreIds`] maps external ids to nodes and back. [`NodePermutation`] does the step from dense ids to nodes.
//! - [`Neighbors`] reads the in-neighbors of single nodes.
//! - [`CheckedAdjacency`] and [`CheckedEdgeRows`] read a chunk's edges, and compare blocks in the same way.
//! - [`NodeTimes`] has the times of the nodes of a type, which are in the order of time.
//! - [`aggregates`] opens pre-aggregated features.
//! - [`writer`] writes the folder of a new store and the adjacency lists of its chunks.
//! - [`feature_rows`] writes feature rows for a finished store.
//! - [`files`] names the files of a store.
//!
//! This crate does not parse input files, sort edges or draw samples. Opening a store takes about 10 us per file and reads
//! no payload.

#![forbid(unsafe_code)]

pub mod aggregates;
pub mod assignments;
mod checked;
mod chunk;
mod columns;
pub mod feature_rows;
pub mod files;
mod graph;
mod ids;
mod list_meta;
mod mapped;
mod member;
mod neighbors;
mod node_times;
mod open;
mod permutation;
pub mod writer;

pub use checked::{CheckedAdjacency, CheckedEdgeRows};
pub use chunk::{AdjacencyFiles, Chunk, HaloDegrees};
pub use columns::{MappedFeatures, MappedLabels};
pub use graph::{Graph, Positions, Relation};
pub use ids::{ExternalId, StoreIds};
pub use list_meta::expect_adjacency;
pub use mapped::MappedChunks;
pub use member::{read_listed_member, read_manifest_of_member};
pub use neighbors::Neighbors;
pub use node_times::{NodeTimeFiles, NodeTimes};
pub use open::{Store, is_graph, no_features, read_manifest, read_schema};
pub use permutation::{NodePermutation, NodeTable};
