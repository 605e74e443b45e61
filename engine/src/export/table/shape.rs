//! Formats and columns of tables.

use std::{collections::HashMap, path::Path};

use arrow_schema::{Field, SchemaRef};

/// Rows of a group at most, and bytes of them.
pub(super) const GROUP_ROWS: u64 = 1 << 17;
pub(super) const GROUP_BYTES: u64 = 8 << 20;

/// Groups of a Parquet file, which numbers them with 16 bits.
pub(super) const GROUPS_MAX: u64 = i16::MAX as u64;

/// The key in the metadata of a field whose values repeat.
pub(super) const REPEATS: &str = "repeats";

/// The format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// A NumPy array of numbers, `.npy`.
    Npy,
    /// `.parquet`
    Parquet,
    /// `.csv`, with a header line. Cells have quotes where needed.
    Csv,
    /// Text with tabs and without quotes. It has a header line if the first column has strings: integers cannot be mistaken for a header.
    Tsv,
    /// Text with one column, without a header line and without quotes.
    Lines,
}

impl TableFormat {
    /// The format that the ending of a name says: `.npy`, `.parquet` or `.csv`.
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Some(Self::Npy),
            Some("parquet") => Some(Self::Parquet),
            Some("csv") => Some(Self::Csv),
            _ => None,
        }
    }
}

/// The format, the columns and the size of a table.
#[derive(Debug, Clone)]
pub struct TableShape {
    /// The format.
    pub format: TableFormat,
    /// The columns.
    pub schema: SchemaRef,
    /// Number of rows. A table that is no array may have fewer.
    pub rows: u64,
    /// Bytes of a row in memory, about.
    pub row_bytes: u64,
}

impl TableShape {
    /// The rows of a group of a Parquet file. More rows than groups of the usual size can contain make groups larger.
    pub(in crate::export) fn group_rows(&self) -> u64 {
        let usual = (GROUP_BYTES / self.row_bytes.max(1)).clamp(1, GROUP_ROWS);
        usual.max(self.rows.div_ceil(GROUPS_MAX))
    }
}

/// A column in which few values repeat, so that Parquet stores a dictionary of them.
pub fn repeating(column: Field) -> Field {
    column.with_metadata(HashMap::from([(REPEATS.to_owned(), String::new())]))
}
