//! The out-of-core graph engine: stores on disk, and minibatches from them.
//!
//! Start here:
//!
//! - [`ingest`] builds a store from edge lists, features, labels and splits;
//! - [`Store`] opens it, translates ids ([`Store::node`], [`Store::external_id`]) and reads in-neighbors
//!   ([`Store::neighbors`]);
//! - [`Loader`] samples minibatches with features under a memory budget.
//!
//! ```no_run
//! use std::{path::Path, sync::Arc};
//!
//! use grappa_engine::{Loader, Store};
//!
//! let store = Arc::new(Store::open(Path::new("graph.grappa"))?);
//! let mut loader = Loader::open(&store).fanouts([15, 10, 5]).batch(1024).memory(4 << 30).partitions(16).start()?;
//! for batch in loader.epoch(0)? {
//!     let batch = batch?;
//!     let nodes = &batch.minibatch().nodes;
//!     let features = batch.features().map(|features| features.f32s());
//!     println!("{} nodes, {:?} values", nodes.len(), features.map(|values| values.len()));
//! }
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Nothing here links libtorch or prints. Long operations report to a [`Progress`] and stop when it says so. Failures are
//! [`Error`]s that name the file, the place in it and a remedy.
//!
//! # Advanced
//!
//! The modules below work on whole stores. The layers under them are crates of their own, which programs of this
//! repository use directly: `grappa-io`, `grappa-input`, `grappa-synthetic`, `grappa-storage`, `grappa-ingestion` and
//! `grappa-sampling`.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod derive;
pub mod export;
pub mod info;
pub mod node_list;
pub mod place;
pub mod plan;
#[cfg(test)]
mod tests;
pub mod verify;

pub use grappa_formats::{ChunkId, NodeId, PartitionId};
pub use grappa_ingestion::ingest::{IngestOptions, RandomSplit, Shares, SplitFile, Summary as IngestSummary, ingest};
pub use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
};
pub use grappa_sampling::{
    Loader, LoaderBuilder, LoaderOptions, Seeds,
    feed::{Batch, FeatureBuffer},
    sample::{Block, Minibatch},
};
pub use grappa_storage::{ExternalId, Neighbors, Store};
