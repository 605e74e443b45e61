//! Stores on disk: writing, opening, verifying, describing and exporting them.
//!
//! - [`Store`] is an open store, whose [`Chunk`]s are mapped one by one;
//! - [`add_features`] computes features from the graph for a store without;
//! - [`aggregates`] makes and opens pre-aggregated features;
//! - [`export`] writes it out in external ids;
//! - [`info`](mod@info) describes it;
//! - [`node_list`] reads which nodes a user means;
//! - [`plan`](mod@plan) says beforehand what a store will take;
//! - [`verify`](mod@verify) checks every byte, and whether the parts agree;
//! - [`writer`] makes the folder, and the row files of a chunk.

pub mod add_features;
pub mod aggregates;
pub(crate) mod assignments;
mod checked;
mod chunk;
mod chunk_rows;
pub mod export;
pub(crate) mod files;
mod ids;
pub mod info;
pub mod node_list;
mod open;
pub mod plan;
#[cfg(test)]
pub(crate) mod tests;
pub mod verify;
pub mod writer;

pub use checked::{CheckedFeatures, CheckedLabels, CheckedRows, CheckedWeights};
pub use chunk::Chunk;
pub(crate) use chunk::RowFiles;
pub use ids::{ExternalId, StoreIds};
pub use open::{Store, read_manifest};
