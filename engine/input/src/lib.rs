//! Everything that reads users' files: edge lists, and arrays of one row per node.
//!
//! - [`EdgeSource`] cuts edge files into numbered blocks that many threads read and parse at once: text (blanks, tabs,
//!   commas; plain, gzip or Zstandard), `.npy` and `.npz`, raw pairs of integers, Parquet;
//! - [`MatrixSource`] (features), [`LabelSource`], [`SplitSource`] and [`PartSource`] read what nodes carry;
//! - [`ogb::discover`] finds all of these in a folder of the Open Graph Benchmark.
//!
//! What is read is checked, against the checksums that a format has: CRC-32 of members of `.npz` and of `.gz`, checksums of
//! `.zst` and of Parquet pages where these were written with them. A source that has a method `check` must be asked before
//! what it gave is believed. Every message names the file, the line, row or offset, what was found, and what to do. Ids
//! come out as the user wrote them; mapping them is the pipeline's business.
//!
//! **Memory**: nothing is mapped, no file is held whole. A worker holds one block of input and its parsed edges.
//! **Cost**: text is parsed at more than half a gigabyte a second and thread, arrays at the speed of memory.

#![forbid(unsafe_code)]

mod batch;
mod crc;
mod edges;
mod file;
mod labels;
mod lines;
mod matrix;
mod npy;
pub mod ogb;
mod parquet;
mod parts;
mod rows;
mod split;
mod table;
mod text;
mod zip;

#[cfg(test)]
mod tests;

pub use batch::{EdgeBatch, Keys, REJECT_BYTES_MAX, Reject, TextBatch};
pub use edges::{BlockId, EdgeFormat, EdgeSource, EdgeSourceOptions, IdKind, OnBadLine, RawBlock};
pub use labels::{LabelBatch, LabelSource};
pub use lines::{BadEdge, IdLimit};
pub use matrix::{MatrixSource, NonFinite};
pub use npy::ElementType;
pub use parts::PartSource;
pub use split::{SplitSource, read_split_ids};
