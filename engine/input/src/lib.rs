//! Readers of users' files: edge lists, and data with one row per node.
//!
//! - [`EdgeSource`] cuts edge files into numbered blocks, which many threads read and parse concurrently. Formats: text
//!   (plain, gzip or Zstandard), matrices of Matrix Market, `.npy` and `.npz`, raw pairs of integers, Parquet.
//! - [`MatrixSource`] (features), [`LabelSource`], [`SplitSource`], [`SplitColumns`], [`NodeTimeSource`] and [`PartSource`] read per-node data.
//! - A table with other values than numbers is examined first ([`MatrixSource::fit`], [`EncodingOptions`]), and encoded as a schema says.
//! - [`Reading`] tells how a file is read: its separator, and the roles of its columns.
//! - [`files_of`] and [`files_of_all`] list the files of a folder that is one input.
//! - [`ogb::discover`] finds all of these files in a folder of the Open Graph Benchmark.
//!
//! Readers verify the checksums of each format: the CRC-32 of `.npz` members and of `.gz`, and the checksums of `.zst` and of
//! Parquet pages if the writer added them. If a source has a method `check`, call it before you rely on its data. Each error
//! names the file, the line, row or offset, what was found, and the remedy. Ids are returned as the user wrote them; this
//! crate does not map them.
//!
//! **Memory**: no file is mapped or held whole. A worker holds one block of input and its parsed edges. **Cost**: text is
//! parsed at more than 0.5 GB/s per thread, arrays at memory bandwidth.

#![forbid(unsafe_code)]

mod columnar;
mod columns;
mod conversions;
mod crc;
mod digest;
mod edges;
mod extent;
mod file;
mod folder;
mod gzip;
mod input;
mod kinds;
mod line_reader;
mod messages;
mod nodes;
mod npy;
pub mod ogb;
mod reading;
mod separator;
mod sparse;
mod spread;
mod table;
mod triples;
mod zip;

#[cfg(test)]
mod tests;

pub use columnar::{TableColumn, read_table};
pub use columns::{EdgeColumnOptions, EdgeEnd, TableOptions, TimeColumn};
pub use conversions::Conversion;
pub use edges::{
    BadEdge, BlockId, Comments, EDGE_FEATURES_MAX, EdgeBatch, EdgeFormat, EdgeSource, EdgeSourceOptions, EndIds,
    HeaderLine, IdKind, IdLimit, Keys, LimitSource, NodeTypeOfEnd, OnBadLine, REJECT_BYTES_MAX, RawBlock, Reject,
    TextBatch, integer_of,
};
pub use folder::{files_of, files_of_all};
pub use input::{Input, MemoryArray, MemoryData, MemoryInput, MemoryMatrix, ReadAt, TableParts};
pub use messages::read_ids_from_one;
pub use nodes::{
    ColumnSchema, ColumnValues, InputPlace, LabelBatch, LabelSource, LabelType, MatrixSource, NodeFile, NodeTimeSource,
    NonFinite, PartSource, SPLITS, SplitColumns, SplitSource, TableForm, TableSchema, read_split_ids, text_values,
};
pub use npy::{Numbers, read_numbers, shape_of};
pub use reading::{ColumnReading, Reading};
pub use separator::Separator;
pub use table::{EncodingOptions, MissingOption, MissingOptions, Replacement};
pub use triples::relations_of_triples;
