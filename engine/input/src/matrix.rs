//! One row of numbers per node: features.
//!
//! Read from `.npy` arrays, from an archive's array, from a sparse matrix as `scipy.sparse.save_npz` writes it (CSR), and
//! from text such as OGB's `node-feat.csv.gz`. Rows come as f32.
//!
//! **Cost**: plain arrays are read in place, by any number of threads at once. Deflated arrays and text are unpacked front
//! to back, by one thread at a time: [`MatrixSource::is_sequential`] says so; read these with one thread, in order. Memory
//! is that of the rows asked for; a deflated sparse matrix is three streams unpacked side by side.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_io::{Error, Position, Result};

use super::{
    file::{ExtentReader, InputFile, shown},
    npy::{self, ElementType, NpyArray},
    rows::TextRows,
    zip::{self, Npz},
};

/// Numbers of a dense matrix are read in pieces of so many.
const DENSE_PIECE: usize = 1 << 16;

/// Entries of a sparse matrix are read in pieces of so many.
const SPARSE_PIECE: usize = 1 << 16;

/// A matrix with one row per node.
pub struct MatrixSource {
    file: std::sync::Arc<InputFile>,
    rows: Option<u64>,
    dim: usize,
    dtype: ElementType,
    content: Content,
    non_finite_count: AtomicU64,
    /// Row and column of the first one.
    non_finite_first: Mutex<Option<(u64, usize)>>,
}

enum Content {
    Dense { array: NpyArray, reader: ExtentReader },
    Sparse(Box<Sparse>),
    Text(TextRows),
}

/// Numbers among those read that are NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonFinite {
    /// How many there are.
    pub count: u64,
    /// The row of the first, from 0.
    pub row: u64,
    /// Its column, from 0.
    pub column: usize,
}

impl MatrixSource {
    /// Opens the matrix in `path` and checks its shape and type.
    ///
    /// Of a `.npz` archive, a sparse matrix is taken if there is one, else the array `node_feat`, `features`, `feat` or
    /// `x`, else the only array.
    pub fn open(path: &Path) -> Result<Self> {
        let file = InputFile::open(path)?;
        let head = file.head(8)?;
        if head.is_empty() {
            return Err(Error::input(path, Position::Whole, "this file is empty"));
        }
        let (rows, dim, dtype, content) = if head.starts_with(zip::MAGIC) {
            let archive = Npz::open(&file)?;
            if ["indptr", "row", "offsets"].iter().any(|name| archive.contains(name)) {
                let sparse = Sparse::open(&archive)?;
                let (rows, dim, dtype) = (sparse.rows, sparse.columns, sparse.data.element);
                (Some(rows), dim, dtype, Content::Sparse(Box::new(sparse)))
            } else {
                Self::dense(archive.first_of(&["node_feat", "features", "feat", "x"], "features")?)?
            }
        } else if head.starts_with(npy::MAGIC) || has_extension(path, "npy") {
            Self::dense(NpyArray::open(&file)?)?
        } else {
            let text = TextRows::open(&file, false)?;
            (None, text.columns() as u64, ElementType::F32, Content::Text(text))
        };
        let dim_max = u64::from(grappa_formats::features::DIM_MAX);
        if rows == Some(0) || dim == 0 || dim > dim_max {
            return Err(Error::input(
                path,
                Position::Whole,
                format!(
                    "expected a matrix of at least one row and 1 to {dim_max} columns, found {} by {dim}",
                    rows.map_or_else(|| "some".to_owned(), |rows| rows.to_string())
                ),
            ));
        }
        Ok(Self {
            file,
            rows,
            dim: dim as usize,
            dtype,
            content,
            non_finite_count: AtomicU64::new(0),
            non_finite_first: Mutex::new(None),
        })
    }

    fn dense(array: NpyArray) -> Result<(Option<u64>, u64, ElementType, Content)> {
        let (rows, dim) = match *array.shape {
            [rows] => (rows, 1),
            [rows, dim] => (rows, dim),
            _ => {
                return Err(array.error(format!(
                    "features must have shape [N, D], a row per node, found {}: numpy.save(path, a.reshape(len(a), -1))",
                    array.shape_shown()
                )));
            }
        };
        let reader = array.reader();
        Ok((Some(rows), dim, array.element, Content::Dense { array, reader }))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Number of rows; not known beforehand of text.
    pub fn rows(&self) -> Option<u64> {
        self.rows
    }

    /// Numbers per row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// What the numbers are in the file. Text counts as f32.
    pub fn dtype(&self) -> ElementType {
        self.dtype
    }

    /// Size of the file in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Whether reading is cheap only front to back, by one thread.
    pub fn is_sequential(&self) -> bool {
        match &self.content {
            Content::Dense { reader, .. } => reader.is_sequential(),
            Content::Sparse(sparse) => sparse.data_reader.is_sequential(),
            Content::Text(_) => true,
        }
    }

    /// Refuses a matrix that does not have one row for each of `nodes` nodes: now, or where rows are only counted as they
    /// are read, when the wrong end is met.
    pub fn expect_rows(&mut self, nodes: u64) -> Result<()> {
        if let Content::Text(text) = &mut self.content {
            text.expect_rows(nodes);
        }
        match self.rows {
            Some(rows) if rows != nodes => Err(Error::input(self.path(), Position::Whole, wrong_rows(nodes, rows))),
            _ => Ok(()),
        }
    }

    /// Fails unless the bytes of an archive's members have the CRCs that they should have; bytes that were not read are
    /// read now. Nothing that was read may be believed before.
    pub fn check(&self) -> Result<()> {
        match &self.content {
            Content::Dense { reader, .. } => reader.check(),
            Content::Sparse(sparse) => sparse.check(),
            Content::Text(_) => Ok(()),
        }
    }

    /// Replaces `out` by rows `first..first + count`, one after another, and says how many rows these are: fewer than
    /// `count` only at the end of the matrix.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut Vec<f32>) -> Result<usize> {
        let count = match self.rows {
            Some(rows) => (count as u64).min(rows.saturating_sub(first)) as usize,
            None => count,
        };
        out.clear();
        let read = match &self.content {
            Content::Dense { array, reader } => {
                out.resize(count * self.dim, 0.0);
                // Piece by piece, so that the bytes are converted while they are still in the cache.
                let mut bytes = Vec::new();
                let mut element = first * self.dim as u64;
                for numbers in out.chunks_mut(DENSE_PIECE) {
                    bytes.resize(numbers.len() * array.element.bytes(), 0);
                    reader.read_exact_at(&mut bytes, array.offset_of(element))?;
                    array.element.source_dtype().to_f32(&bytes, numbers);
                    element += numbers.len() as u64;
                }
                count
            }
            Content::Sparse(sparse) => {
                out.resize(count * self.dim, 0.0);
                sparse.read_rows(first, count, out)?;
                count
            }
            Content::Text(text) => text.read(first, count, &mut |fields| {
                for field in fields {
                    out.push(
                        field
                            .parse()
                            .map_err(|_| format!("expected a number, found {}", shown(field.as_bytes())))?,
                    );
                }
                Ok(())
            })?,
        };
        self.note_non_finite(first, out);
        Ok(read)
    }

    /// As [`read_rows`](Self::read_rows), but leaves the numbers as they are in the file, little-endian: `out` becomes
    /// the bytes of [`dtype`](Self::dtype) that `grappa_formats` converts. Nothing is checked for being finite.
    ///
    /// None, and nothing read, of a sparse matrix and of text, which have no such bytes.
    pub fn read_raw(&self, first: u64, count: usize, out: &mut Vec<u8>) -> Result<Option<usize>> {
        let Content::Dense { array, reader } = &self.content else {
            return Ok(None);
        };
        let rows = array.shape[0].saturating_sub(first);
        let count = (count as u64).min(rows) as usize;
        out.resize(count * self.dim * array.element.bytes(), 0);
        reader.read_exact_at(out, array.offset_of(first * self.dim as u64))?;
        Ok(Some(count))
    }

    fn note_non_finite(&self, first: u64, rows: &[f32]) {
        // Cheap while all is well: no branch but one per piece.
        for (piece, numbers) in rows.chunks(4096).enumerate() {
            let bad = numbers.iter().map(|number| u32::from(!number.is_finite())).sum::<u32>();
            if bad == 0 {
                continue;
            }
            let at = numbers.iter().position(|number| !number.is_finite()).unwrap_or(0) + piece * 4096;
            let place = (first + (at / self.dim) as u64, at % self.dim);
            self.non_finite_count.fetch_add(u64::from(bad), Ordering::Relaxed);
            let mut found = self.non_finite_first.lock().unwrap_or_else(PoisonError::into_inner);
            *found = Some(found.map_or(place, |found| found.min(place)));
        }
    }

    /// What was NaN or infinite (also: beyond f32) among all rows read so far.
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
        Err(Error::input(
            self.path(),
            Position::Row(row),
            format!(
                "column {column} is NaN, infinite or beyond 32-bit floats, and {} more like it; mend the features, or \
                 let them pass with --allow-nan",
                count - 1
            ),
        ))
    }
}

/// The message about a file with another number of rows than there are nodes.
pub(super) fn wrong_rows(nodes: u64, rows: u64) -> String {
    format!(
        "expected {nodes} rows, one per node, found {rows}; {}",
        if rows > nodes {
            "give --nodes if nodes without edges follow the last one with"
        } else {
            "the file belongs to another graph, or is incomplete"
        }
    )
}

pub(super) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension()
        .is_some_and(|other| other.eq_ignore_ascii_case(extension))
}

/// A sparse matrix in compressed rows: the entries of row `r` are `indptr[r]..indptr[r + 1]`; entry `k` is `data[k]` in
/// column `indices[k]`.
struct Sparse {
    rows: u64,
    columns: u64,
    indptr: NpyArray,
    indptr_reader: ExtentReader,
    /// After reading rows: the row that follows, and where its entries begin.
    last_end: Mutex<Option<(u64, i64)>>,
    indices: NpyArray,
    indices_reader: ExtentReader,
    data: NpyArray,
    data_reader: ExtentReader,
}

impl Sparse {
    fn open(archive: &Npz) -> Result<Self> {
        if archive.contains("format") {
            let (extent, bytes) = archive.extent("format")?;
            let mut text = vec![0; bytes.min(1 << 10) as usize];
            let read = extent.stream()?.read_full(&mut text)?;
            extent.check()?;
            // The letters at the end, as |S3 or as <U3 with its zeros between.
            let letters: Vec<u8> = text[..read].iter().copied().filter(|&byte| byte != 0).collect();
            let format = &letters[letters.len().saturating_sub(3)..];
            if format != b"csr" {
                return Err(extent.error(format!(
                    "expected a sparse matrix in format csr, found {}: scipy.sparse.save_npz(path, a.tocsr())",
                    shown(format)
                )));
            }
        }
        if !archive.contains("indptr") {
            return Err(archive.error(
                "expected a sparse matrix in format csr, with indptr, indices and data: scipy.sparse.save_npz(path, \
                 a.tocsr())",
            ));
        }
        let [indptr, indices, data] = ["indptr", "indices", "data"].map(|name| archive.array(name));
        let (indptr, indices, data) = (indptr?, indices?, data?);
        let shape = archive.array("shape")?;
        if *shape.shape != [2] || !is_index(shape.element) {
            return Err(shape.error("expected two int64, the numbers of rows and columns"));
        }
        let (mut numbers, mut bytes) = (Vec::new(), vec![0; 2 * shape.element.bytes()]);
        let reader = shape.reader();
        reader.read_exact_at(&mut bytes, shape.data_offset)?;
        reader.check()?;
        indices_of(shape.element, &bytes, &mut numbers);
        let [Some(rows), Some(columns)] = [0, 1].map(|at: usize| u64::try_from(numbers[at]).ok()) else {
            return Err(shape.error("a number of rows or columns is negative"));
        };
        for (array, name) in [(&indptr, "indptr"), (&indices, "indices")] {
            if array.shape.len() != 1 || !is_index(array.element) {
                return Err(array.error(format!(
                    "{name} must be a row of int32 or int64, found {} of shape {}",
                    array.element.name(),
                    array.shape_shown()
                )));
            }
        }
        if Some(indptr.shape[0]) != rows.checked_add(1) {
            return Err(indptr.error(format!(
                "expected {rows} rows and one, found {} entries; a matrix in format csr is wanted: \
                 scipy.sparse.save_npz(path, a.tocsr())",
                indptr.shape[0]
            )));
        }
        if data.shape != indices.shape {
            return Err(data.error(format!(
                "there are {} column numbers but values of shape {}",
                indices.shape[0],
                data.shape_shown()
            )));
        }
        Ok(Self {
            rows,
            columns,
            indptr_reader: indptr.reader(),
            last_end: Mutex::new(None),
            indices_reader: indices.reader(),
            data_reader: data.reader(),
            indptr,
            indices,
            data,
        })
    }

    fn check(&self) -> Result<()> {
        [&self.indptr_reader, &self.indices_reader, &self.data_reader]
            .into_iter()
            .try_for_each(ExtentReader::check)
    }

    /// Where the rows' entries begin, and where the last one's end.
    fn ends(&self, first: u64, count: usize) -> Result<Vec<i64>> {
        let mut last = self.last_end.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ends = Vec::new();
        // Where these rows begin is where those read before ended; a deflated stream has passed that.
        let known = last.filter(|&(row, _)| row == first).map(|(_, end)| end);
        let missing = if known.is_some() { count } else { count + 1 };
        let mut bytes = vec![0; missing * self.indptr.element.bytes()];
        let from = first + (count + 1 - missing) as u64;
        self.indptr_reader
            .read_exact_at(&mut bytes, self.indptr.offset_of(from))?;
        indices_of(self.indptr.element, &bytes, &mut ends);
        if let Some(known) = known {
            ends.insert(0, known);
        }
        *last = Some((first + count as u64, ends[count]));
        Ok(ends)
    }

    /// Adds the entries of the rows to `out`, which is all zeros. Entries in the same place add up, as in SciPy.
    fn read_rows(&self, first: u64, count: usize, out: &mut [f32]) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let ends = self.ends(first, count)?;
        let entries = self.indices.shape[0];
        let in_order = ends.windows(2).all(|pair| pair[0] <= pair[1]);
        if !in_order || ends[0] < 0 || ends[count] as u64 > entries {
            return Err(Error::input(
                self.indptr.extent.file.path(),
                Position::Row(first),
                format!("indptr does not rise from 0 to the {entries} entries; the matrix is damaged: write it again"),
            ));
        }
        let columns = self.columns as usize;
        let (mut at, end) = (ends[0] as u64, ends[count] as u64);
        let (mut bytes, mut indices, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = 0;
        while at < end {
            let piece = (end - at).min(SPARSE_PIECE as u64) as usize;
            bytes.resize(piece * self.indices.element.bytes(), 0);
            self.indices_reader
                .read_exact_at(&mut bytes, self.indices.offset_of(at))?;
            indices_of(self.indices.element, &bytes, &mut indices);
            bytes.resize(piece * self.data.element.bytes(), 0);
            self.data_reader.read_exact_at(&mut bytes, self.data.offset_of(at))?;
            values.resize(piece, 0.0);
            self.data.element.source_dtype().to_f32(&bytes, &mut values);
            for (&column, &value) in indices.iter().zip(&values) {
                while ends[row + 1] as u64 <= at {
                    row += 1;
                }
                let Some(column) = usize::try_from(column).ok().filter(|&column| column < columns) else {
                    return Err(Error::input(
                        self.indices.extent.file.path(),
                        Position::Row(first + row as u64),
                        format!("column {column} is not among the {columns} there are; the matrix is damaged"),
                    ));
                };
                out[row * columns + column] += value;
                at += 1;
            }
        }
        Ok(())
    }
}

fn is_index(element: ElementType) -> bool {
    matches!(element, ElementType::I32 | ElementType::I64)
}

/// Replaces `into` by the elements, which are int32 or int64.
fn indices_of(element: ElementType, bytes: &[u8], into: &mut Vec<i64>) {
    into.clear();
    if element == ElementType::I32 {
        into.extend(
            bytes
                .as_chunks()
                .0
                .iter()
                .map(|&bytes| i64::from(i32::from_le_bytes(bytes))),
        );
    } else {
        into.extend(bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)));
    }
}
