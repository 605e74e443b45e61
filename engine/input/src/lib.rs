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

mod crc;
mod edges;
mod extent;
mod file;
mod line_reader;
mod messages;
mod nodes;
mod npy;
pub mod ogb;
mod zip;

#[cfg(test)]
mod tests;

pub use edges::{
    BadEdge, BlockId, EdgeBatch, EdgeFormat, EdgeSource, EdgeSourceOptions, IdKind, IdLimit, Keys, OnBadLine,
    REJECT_BYTES_MAX, RawBlock, Reject, TextBatch,
};
pub use nodes::{LabelBatch, LabelSource, MatrixSource, NonFinite, PartSource, SplitSource, read_split_ids};
pub use npy::ElementType;
