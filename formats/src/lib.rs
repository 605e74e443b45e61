//! The bytes of a Grappa store.
//!
//! Everything here maps bytes to values and values to bytes: no file is opened, nothing is printed, no thread is
//! started. The layouts are specified in `formats/spec/*.md`, completely enough to write a reader from; where a module
//! and its spec disagree, that is a bug.
//!
//! A store is a directory of *container files* ([`container`]): a checksummed header, a payload, and a table of
//! checksums, one per 64 KiB of payload, so that opening is cheap (headers only) and verifying can name the offset of
//! what is wrong. The [`manifest`] says which files there are and what they mean.

#![forbid(unsafe_code)]

pub mod aggregates;
pub mod assignment;
mod bytes;
pub mod chunks;
pub mod container;
pub mod dictionary;
pub mod dtype;
mod error;
pub mod features;
mod id;
pub mod labels;
pub mod manifest;
pub mod order;
pub mod order_table;
pub mod random;
pub mod rows;
mod span;
pub mod splits;
pub mod weights;

pub use error::{FormatError, Result};
pub use id::{ChunkId, NODES_MAX, NodeId, PartitionId};
pub use span::ChunkSpan;
