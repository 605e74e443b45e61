//! How to read edges.

use std::{fmt, path::PathBuf};

use super::IdLimit;

/// How the edges are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeFormat {
    /// Told from each file's first bytes and name.
    #[default]
    Auto,
    /// Text, columns separated by blanks, tabs or a comma.
    Tsv,
    /// As [`Tsv`](Self::Tsv), but the first line may be a header, and string keys are separated by commas and may be quoted.
    Csv,
    /// NumPy array [E, 2] or [2, E] of 32- or 64-bit integers. [2, 2] is read as [E, 2]. In a `.npz` archive, the array
    /// `edge_index`, `edges` or `edge_list`, or the only one.
    Npy,
    /// Pairs of little-endian 32-bit integers.
    U32,
    /// Pairs of little-endian 64-bit integers.
    U64,
    /// Apache Parquet: the first two columns, or those named like `src` and `dst`.
    Parquet,
}

/// What node ids are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdKind {
    /// Integers from 0.
    #[default]
    Integer,
    /// Any UTF-8 text.
    String,
}

/// What to do about lines that are no edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadLine {
    /// The first one is an error.
    #[default]
    Fail,
    /// They are left out and listed in [`EdgeBatch::rejected`].
    Skip,
}

/// How to read edges.
#[derive(Debug, Clone)]
pub struct EdgeSourceOptions {
    /// How the edges are written.
    pub format: EdgeFormat,
    /// What node ids are.
    pub ids: IdKind,
    /// Below which integer ids must be.
    pub id_limit: IdLimit,
    /// A `.npy` array of one number per edge, parallel to the edges of all files; these must be binary.
    pub weights: Option<PathBuf>,
    /// What to do about lines that are no edges.
    pub on_bad_line: OnBadLine,
    /// How many bytes of input make a block; compressed text is cut after unpacking. A worker holds one block and its
    /// parsed edges: `block_bytes`, and 16 bytes (20 with a weight) per edge.
    pub block_bytes: usize,
}

impl Default for EdgeSourceOptions {
    fn default() -> Self {
        Self {
            format: EdgeFormat::Auto,
            ids: IdKind::Integer,
            id_limit: IdLimit::Dense,
            weights: None,
            on_bad_line: OnBadLine::Fail,
            block_bytes: 8 << 20,
        }
    }
}

/// A block's place in the input. The same files and options give the same blocks every time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Which of the files.
    pub file: u32,
    /// Which block of that file, from 0.
    pub block: u64,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.file, self.block)
    }
}
