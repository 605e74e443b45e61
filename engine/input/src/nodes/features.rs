//! Features: one row of numbers per node.
//!
//! Formats: `.npy` arrays, an array in a `.npz` archive, a sparse matrix as `scipy.sparse.save_npz` writes it, Parquet, and
//! text such as OGB's `node-feat.csv.gz`. Feature rows are returned as f32.
//!
//! **Cost**: any number of threads read a plain array in place. Deflated arrays, text and Parquet are unpacked front to back;
//! read them with one thread, in order ([`MatrixSource::is_sequential`]). Memory: the requested rows. A deflated sparse matrix
//! unpacks three streams side by side.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::features::{DIM_MAX, ElementType};
use grappa_io::Result;

use super::{
    TableForm,
    node_file::{Content, Forms, NodeFile},
    place::Place,
};
use crate::{columns::Purpose, messages::shown, reading::Reading};

/// Numbers of a dense matrix in rows that are read and converted at a time.
const DENSE_PIECE: usize = 1 << 16;

const FORMS: Forms = Forms {
    name: "features",
    arrays: &["node_feat", "features", "feat", "x"],
    shapes: "shape [N, D], a row per node",
    columns_max: DIM_MAX as u64,
    sparse: true,
    blank_lines: false,
    purpose: Purpose::Features,
};

/// A matrix with one row per node.
pub struct MatrixSource {
    file: NodeFile,
    dtype: ElementType,
    non_finite_count: AtomicU64,
    /// Row and column of the first such number.
    non_finite_first: Mutex<Option<(u64, usize)>>,
}

/// Numbers among those read that are NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonFinite {
    /// How many there are.
    pub count: u64,
    /// The row of the first one, from 0.
    pub row: u64,
    /// Its column, from 0.
    pub column: usize,
}

impl MatrixSource {
    /// Opens the matrix in `path` and checks its shape and type.
    ///
    /// From a `.npz` archive it takes the sparse matrix if there is one, else the array `node_feat`, `features`, `feat` or
    /// `x`, else the only array. From a table it takes the columns
    /// that have numbers, but not ids, labels or splits.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &TableForm::default())
    }

    /// The same, with columns of a table that the user names.
    pub fn open_with(path: &Path, form: &TableForm) -> Result<Self> {
        let file = NodeFile::open(path, &FORMS, form)?;
        let dtype = match &file.content {
            Content::Dense { array, .. } => array.element,
            Content::Sparse(sparse) => sparse.element(),
            Content::Text(_) => ElementType::F32,
            Content::Parquet(table) => table.element(),
        };
        Ok(Self {
            file,
            dtype,
            non_finite_count: AtomicU64::new(0),
            non_finite_first: Mutex::new(None),
        })
    }

    /// The file, or the folder of its parts.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The place of a row.
    pub fn place(&self, row: u64) -> Place<'_> {
        self.file.place(row)
    }

    /// Number of rows. It is not known beforehand for text.
    pub fn rows(&self) -> Option<u64> {
        self.file.rows()
    }

    /// Numbers per row.
    pub fn dim(&self) -> usize {
        self.file.columns()
    }

    /// Type of the numbers in the file. Text counts as f32.
    pub fn dtype(&self) -> ElementType {
        self.dtype
    }

    /// Whether it is a table with the ids of the rows, which [`SplitSource`](super::SplitSource) reads.
    pub fn has_ids(&self) -> bool {
        self.file.has_ids()
    }

    /// How the file is read.
    pub fn reading(&self) -> Reading {
        self.file.reading()
    }

    /// Bytes of memory that stay in use between reads: a page of each column of Parquet, or the entries of a sparse matrix.
    pub fn held_bytes(&self) -> u64 {
        self.file.held_bytes()
    }

    /// Size in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.file.total_bytes()
    }

    /// Bytes of memory per row that [`Self::read_rows`] takes, with its result.
    pub fn read_cost(&self) -> usize {
        let of_number = match &self.file.content {
            // The decoded value, its levels, and its place in a column.
            Content::Parquet(_) => 2 * size_of::<f64>() + 2 * size_of::<i16>(),
            Content::Dense { .. } | Content::Sparse(_) | Content::Text(_) => self.dtype.bytes(),
        };
        self.dim() * (of_number + size_of::<f32>())
    }

    /// Whether each row is a single number that may be a class: an integer, or any number in text.
    pub fn may_be_labels(&self) -> bool {
        let is_float = self.dtype.is_float();
        self.dim() == 1 && (matches!(self.file.content, Content::Text(_)) || !is_float)
    }

    /// Whether reading is cheap only front to back, by one thread.
    pub fn is_sequential(&self) -> bool {
        self.file.is_sequential()
    }

    /// Refuses a matrix that does not have one row for each of `nodes` nodes. The rows of text are counted only as they are
    /// read, so for text the error comes from the read that meets the wrong end. `if_more` is advice for more rows.
    pub fn expect_rows(&mut self, nodes: u64, if_more: &'static str) -> Result<()> {
        self.file.expect_rows(nodes, if_more)
    }

    /// Fails unless the members of an archive have their CRC-32. It reads the bytes that were not read yet. Call it before you
    /// rely on any row.
    pub fn check(&self) -> Result<()> {
        self.file.check()
    }

    /// Replaces the contents of `out` with rows `first..first + count`, one after another. Returns the number of rows read,
    /// which is below `count` only at the end of the matrix.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut Vec<f32>) -> Result<usize> {
        let count = match self.rows() {
            Some(rows) => (count as u64).min(rows.saturating_sub(first)) as usize,
            None => count,
        };
        out.clear();
        let read = match &self.file.content {
            Content::Dense { array, reader } => {
                out.resize(count * self.dim(), 0.0);
                // Piece by piece, so that the bytes are still in the cache when they are converted. Columns are read for all
                // rows at once, because each takes a read.
                let piece_rows = match array.has_columns {
                    true => count.max(1),
                    false => (DENSE_PIECE / self.dim()).max(1),
                };
                let mut bytes = Vec::new();
                let mut row = first;
                for numbers in out.chunks_mut(piece_rows * self.dim()) {
                    bytes.resize(numbers.len() * array.element.bytes(), 0);
                    reader.read_rows(row, &mut bytes)?;
                    array.element.to_f32(&bytes, numbers);
                    row += piece_rows as u64;
                }
                count
            }
            Content::Sparse(sparse) => {
                out.resize(count * self.dim(), 0.0);
                sparse.read_rows(first, count, out)?;
                count
            }
            Content::Text(text) => text.read(first, count, &mut |fields| {
                for (column, field) in fields.iter().enumerate() {
                    out.push(field.parse().map_err(|_| not_a_number(column, field))?);
                }
                Ok(())
            })?,
            Content::Parquet(table) => {
                out.reserve(count * self.dim());
                table.read(first, count, &mut |row| {
                    out.extend(row.iter().map(|&number| number as f32));
                    Ok(())
                })?
            }
        };
        self.note_non_finite(first, out);
        Ok(read)
    }

    fn note_non_finite(&self, first: u64, rows: &[f32]) {
        // Cheap as long as all numbers are finite: one branch per piece.
        for (piece, numbers) in rows.chunks(4096).enumerate() {
            let bad = numbers.iter().map(|number| u32::from(!number.is_finite())).sum::<u32>();
            if bad == 0 {
                continue;
            }
            let at = numbers.iter().position(|number| !number.is_finite()).unwrap_or(0) + piece * 4096;
            let place = (first + (at / self.dim()) as u64, at % self.dim());
            self.non_finite_count.fetch_add(u64::from(bad), Ordering::Relaxed);
            let mut found = self.non_finite_first.lock().unwrap_or_else(PoisonError::into_inner);
            *found = Some(found.map_or(place, |found| found.min(place)));
        }
    }

    /// The numbers that are NaN, infinite or beyond the range of f32 among all rows read so far.
    pub fn non_finite(&self) -> Option<NonFinite> {
        let first = *self.non_finite_first.lock().unwrap_or_else(PoisonError::into_inner);
        first.map(|(row, column)| NonFinite {
            count: self.non_finite_count.load(Ordering::Relaxed),
            row,
            column,
        })
    }

    /// Refuses the matrix if any number read so far was NaN or infinite.
    pub fn check_finite(&self) -> Result<()> {
        let Some(NonFinite { count, row, column }) = self.non_finite() else {
            return Ok(());
        };
        Err(self.place(row).error(format!(
            "column {column} is NaN, infinite or beyond 32-bit floats, and so are {} more numbers; fix the features, or accept them \
             with --allow-nan",
            count - 1
        )))
    }
}

/// The message about a field of text that is not a number.
fn not_a_number(column: usize, field: &str) -> String {
    let remedy = match column {
        0 => "; if the first column has the ids of the nodes, give --id 1",
        _ => "",
    };
    format!("expected a number, found {}{remedy}", shown(field.as_bytes()))
}
