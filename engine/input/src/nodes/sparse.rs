//! Sparse matrices as `scipy.sparse.save_npz` writes them, in compressed rows (CSR).

use std::sync::{Mutex, PoisonError};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use crate::{extent::ExtentReader, messages::shown, npy::NpyArray, zip::Npz};

/// Entries of a sparse matrix that are read at a time.
const SPARSE_PIECE: usize = 1 << 16;

/// A sparse matrix in compressed rows: the entries of row `r` are `indptr[r]..indptr[r + 1]`; entry `k` is `data[k]` in
/// column `indices[k]`.
pub(super) struct Sparse {
    pub rows: u64,
    pub columns: u64,
    indptr: NpyArray,
    indptr_reader: ExtentReader,
    /// The row after those read last, and the start of its entries.
    last_end: Mutex<Option<(u64, i64)>>,
    indices: NpyArray,
    indices_reader: ExtentReader,
    data: NpyArray,
    data_reader: ExtentReader,
}

impl Sparse {
    pub fn open(archive: &Npz) -> Result<Self> {
        if archive.contains("format") {
            let (extent, bytes) = archive.extent("format")?;
            let mut text = vec![0; bytes.min(1 << 10) as usize];
            let read = extent.stream()?.read_full(&mut text)?;
            extent.check()?;
            // The last three letters, stored as |S3, or as <U3 with zeros in between.
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
            return Err(shape.error("expected two int64: the number of rows and the number of columns"));
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
                "expected {rows} + 1 entries for {rows} rows, found {}; convert the matrix to format csr: \
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

    /// The type of the entries.
    pub fn element(&self) -> ElementType {
        self.data.element
    }

    pub fn is_sequential(&self) -> bool {
        self.data_reader.is_sequential()
    }

    pub fn check(&self) -> Result<()> {
        [&self.indptr_reader, &self.indices_reader, &self.data_reader]
            .into_iter()
            .try_for_each(ExtentReader::check)
    }

    /// The starts of the rows' entries, and the end of the last row's.
    fn ends(&self, first: u64, count: usize) -> Result<Vec<i64>> {
        let mut last = self.last_end.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ends = Vec::new();
        // The start of these rows is the end of those read before. A deflated stream has already passed it.
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

    /// Adds the entries of the rows to `out`, which is all zeros. Entries with the same row and column add up, as in SciPy.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut [f32]) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let ends = self.ends(first, count)?;
        let entries = self.indices.shape[0];
        let in_order = ends.windows(2).all(|pair| pair[0] <= pair[1]);
        let is_first = first == 0;
        let is_last = first + count as u64 == self.rows;
        let in_range = ends[0] >= 0 && ends[count] as u64 <= entries;
        let has_all = (!is_first || ends[0] == 0) && (!is_last || ends[count] as u64 == entries);
        if !in_order || !in_range || !has_all {
            return Err(Error::input(
                self.indptr.extent.file.path(),
                Position::Row(first),
                format!(
                    "indptr does not rise from 0 to {entries}, the number of entries; the matrix is damaged: write it again"
                ),
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
            self.data.element.to_f32(&bytes, &mut values);
            for (&column, &value) in indices.iter().zip(&values) {
                while ends[row + 1] as u64 <= at {
                    row += 1;
                }
                let Some(column) = usize::try_from(column).ok().filter(|&column| column < columns) else {
                    return Err(Error::input(
                        self.indices.extent.file.path(),
                        Position::Row(first + row as u64),
                        format!(
                            "column {column} does not exist, as there are {columns}; the matrix is damaged: write it again"
                        ),
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

/// Replaces the contents of `into` with the elements, which are int32 or int64.
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
