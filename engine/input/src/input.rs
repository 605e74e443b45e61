//! Inputs: files, folders and lists of files, and data in memory.

use std::{
    fmt::{self, Debug},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::conversions::Conversion;

/// An input: a file, a folder, several files, or data in memory.
#[derive(Debug, Clone)]
pub enum Input {
    /// A file, or a folder of files that are one input.
    Path(PathBuf),
    /// Several files that are one table.
    Parts(Arc<TableParts>),
    /// Data in memory.
    Memory(Arc<MemoryInput>),
}

/// Parquet files whose rows follow one another in one table.
///
/// The first file has all columns. A later file may lack all columns that are read, such as hidden labels: its rows have no values then.
#[derive(Debug, PartialEq, Eq)]
pub struct TableParts {
    /// The name, such as their folder.
    pub name: PathBuf,
    /// The files, in the order of the rows. There is at least one.
    pub files: Vec<PathBuf>,
}

/// Data in memory, under a name for messages.
#[derive(Debug)]
pub struct MemoryInput {
    /// The name, such as the name of the argument that has the data.
    pub name: PathBuf,
    /// The data.
    pub data: MemoryData,
}

/// Data in memory. Readers do not copy it, except in blocks.
#[derive(Debug)]
pub enum MemoryData {
    /// An array of numbers.
    Array(MemoryArray),
    /// A sparse matrix of SciPy.
    Matrix(MemoryMatrix),
    /// A table of Arrow columns. Rows follow one another through all batches.
    Table(SchemaRef, Vec<RecordBatch>),
    /// The bytes of a Parquet file, as an array of them.
    Parquet(MemoryArray),
}

/// An array of numbers in memory.
#[derive(Debug, Clone)]
pub struct MemoryArray {
    /// The elements, without gaps.
    pub bytes: Arc<dyn ReadAt>,
    /// The type of the elements, as `descr` in a `.npy` header: `<i8`.
    pub descr: String,
    /// The length of each axis.
    pub shape: Vec<u64>,
    /// Whether columns follow one another (Fortran order), and not rows.
    pub column_major: bool,
    /// Whether an array of edges of shape [2, 2] has sources in its first row.
    pub is_edge_index: bool,
}

/// A sparse matrix in memory, with the arrays of `scipy.sparse`.
#[derive(Debug)]
pub struct MemoryMatrix {
    /// `coo`, `csr` or `csc`.
    pub format: String,
    /// Rows and columns.
    pub shape: [u64; 2],
    /// The value of each entry.
    pub data: MemoryArray,
    /// The rows of the entries (coo), or the starts of rows or columns (`indptr`).
    pub lines: MemoryArray,
    /// The columns of the entries (coo), or `indices`.
    pub others: MemoryArray,
}

/// Bytes that any thread reads at any offset.
pub trait ReadAt: Debug + Send + Sync {
    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
}

impl MemoryData {
    /// Bytes of the data.
    pub fn total_bytes(&self) -> u64 {
        match self {
            Self::Array(array) | Self::Parquet(array) => array.total_bytes(),
            Self::Matrix(matrix) => {
                [&matrix.data, &matrix.lines, &matrix.others].map(MemoryArray::total_bytes).iter().sum()
            }
            Self::Table(_, batches) => batches.iter().map(|batch| batch.get_array_memory_size() as u64).sum(),
        }
    }
}

impl MemoryArray {
    /// Bytes of all elements, as their type says. Elements of an unknown type have none.
    pub fn total_bytes(&self) -> u64 {
        let width = self.descr.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0_u64);
        self.shape.iter().fold(width, |bytes, &length| bytes.saturating_mul(length))
    }
}

impl Input {
    /// The path, or the name of the data, for messages.
    pub fn name(&self) -> &Path {
        match self {
            Self::Path(path) => path,
            Self::Parts(parts) => &parts.name,
            Self::Memory(input) => &input.name,
        }
    }

    /// What converts the data: a command for a file, an expression of Python for data in memory.
    pub fn remedy(&self, conversion: Conversion) -> String {
        match self {
            Self::Path(path) => conversion.command(path),
            Self::Parts(parts) => conversion.command(&parts.name),
            Self::Memory(input) => conversion.expression(&input.name),
        }
    }

    /// Whether the input is a folder.
    pub fn is_dir(&self) -> bool {
        matches!(self, Self::Path(path) if path.is_dir())
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name().display())
    }
}

/// Files are equal by their paths, data in memory is equal to itself.
impl PartialEq for Input {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path(path), Self::Path(other)) => path == other,
            (Self::Parts(parts), Self::Parts(other)) => parts == other,
            (Self::Memory(input), Self::Memory(other)) => Arc::ptr_eq(input, other),
            _ => false,
        }
    }
}

impl Eq for Input {}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&Path> for Input {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<&PathBuf> for Input {
    fn from(path: &PathBuf) -> Self {
        Self::Path(path.clone())
    }
}

impl From<&Self> for Input {
    fn from(input: &Self) -> Self {
        input.clone()
    }
}

impl From<TableParts> for Input {
    fn from(parts: TableParts) -> Self {
        Self::Parts(Arc::new(parts))
    }
}

impl From<MemoryInput> for Input {
    fn from(input: MemoryInput) -> Self {
        Self::Memory(Arc::new(input))
    }
}
