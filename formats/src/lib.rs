//! The file formats of a Grappa store: encoders, decoders and checks.
//!
//! This crate converts bytes to values and values to bytes. It opens no file, prints nothing and starts no thread. The
//! pages in `formats/spec/*.md` specify every layout, in enough detail to write a reader from them. If a module and its
//! page disagree, one of them has a bug.
//!
//! A store is a folder of *container files* ([`container`]). Each has a header with checksums, a payload, and a table
//! of checksums of the payload's blocks. Opening a file reads only the header; verifying it can name the offset of the
//! damage. The [`manifest`] lists the files of the store and describes their contents.
//!
//! Decoders never trust their input. Invalid bytes are a [`FormatError`] with an offset, never a panic, and never an
//! allocation that the length of the input does not justify. A wrong argument from the caller is a panic.

#![forbid(unsafe_code)]

pub mod aggregates;
pub mod assignment;
mod bytes;
pub mod chunks;
pub mod container;
pub mod dictionary;
pub mod dtype;
mod edge_part;
pub mod edge_rows;
mod error;
pub mod features;
pub mod graph;
mod id;
pub mod labels;
pub mod manifest;
pub mod permutation;
pub mod permutation_table;
pub mod random;
pub mod rows;
pub mod schema;
mod span;
pub mod splits;
pub mod time_axis;
pub mod varint;

pub use edge_part::EdgePart;
pub use error::{FormatError, Result};
pub use id::{ChunkId, DenseId, NODES_MAX, NodeId, PartitionId};
pub use span::ChunkSpan;
