//! The out-of-core graph engine: stores on disk, and minibatches from them.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod derive;
pub mod export;
pub mod generate;
pub mod info;
pub mod ingest;
pub mod node_list;
pub mod place;
pub mod plan;
pub mod sample;
pub mod store;
#[cfg(test)]
mod tests;
pub mod verify;

pub use grappa_formats::{self as formats, ChunkId, NodeId, PartitionId};
pub use grappa_io::{
    self as io, Error, Result,
    progress::{Progress, Silent},
};

pub use self::{
    ingest::{IngestOptions, SplitFile, ingest},
    sample::{Block, Loader, LoaderBuilder, Minibatch, feed::Batch},
    store::{ExternalId, Neighbors, Store},
};
