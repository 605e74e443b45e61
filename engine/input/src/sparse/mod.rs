//! Sparse matrices in `.npz` archives, as `scipy.sparse.save_npz` writes them: which arrays have the entries.
//!
//! | format | arrays |
//! |---|---|
//! | coo | `row`, `col` and `data`: an element of each per entry, in any order |
//! | csr | entries `indptr[r]..indptr[r + 1]` of `indices` and `data` have the columns and values of row `r` |
//! | csc | the same for column `c`; `indices` has rows |
//!
//! The archives of the GNN benchmark of Shchur et al. have two matrices in format csr, whose arrays begin with `adj_` and
//! `attr_`.

mod entries;

use std::path::Path;

use grappa_formats::features::ElementType;
use grappa_io::{Error, Result};

pub(crate) use self::entries::EntryReader;

use crate::{
    conversions::Conversion,
    input::MemoryMatrix,
    messages::shown,
    npy::{ArrayReader, NpyArray},
    zip::Npz,
};

/// The arrays of a sparse matrix. Their lengths fit each other; their elements were not read.
pub(crate) struct SparseArrays {
    pub rows: u64,
    pub columns: u64,
    pub places: Places,
    pub data: NpyArray,
}

pub(crate) enum Places {
    /// Row and column of each entry (coo).
    Coordinates { row: ArrayReader, column: ArrayReader },
    /// The end of each row's entries, after a zero, and the column of each entry (csr), or the same by column (csc).
    Compressed { starts: ArrayReader, others: ArrayReader, by_row: bool },
}

impl SparseArrays {
    /// The matrix in an archive, if there is one: of SciPy, or one whose arrays begin with `prefix`.
    ///
    /// # Errors
    /// If the matrix has a format that is not read, or arrays that do not fit each other.
    pub fn find(archive: &Npz, prefix: &str) -> Result<Option<Self>> {
        let prefix = ["", prefix].into_iter().find(|prefix| {
            archive.contains(&format!("{prefix}shape"))
                && ["indptr", "row", "offsets"].iter().any(|name| archive.contains(&format!("{prefix}{name}")))
        });
        prefix.map(|prefix| Self::open(archive, prefix)).transpose()
    }

    fn open(archive: &Npz, prefix: &str) -> Result<Self> {
        let format = format_of(archive, prefix)?;
        let [rows, columns] = shape_of(&archive.array(&format!("{prefix}shape"))?)?;
        let data = archive.array(&format!("{prefix}data"))?;
        let index = |name: &str| index(archive.array(&format!("{prefix}{name}"))?);
        let (places, entries) = match &format[..] {
            b"coo" => {
                let [row, column] = [index("row")?, index("col")?];
                if row.shape != column.shape {
                    let problem = format!(
                        "there are {} row numbers and {} column numbers; the matrix is damaged: write it again",
                        row.shape[0], column.shape[0]
                    );
                    return Err(column.error(problem));
                }
                let entries = row.shape[0];
                (Places::Coordinates { row: row.reader(), column: column.reader() }, entries)
            }
            b"csr" | b"csc" => {
                let [starts, others] = [index("indptr")?, index("indices")?];
                let by_row = format == b"csr";
                let lines = if by_row { rows } else { columns };
                if Some(starts.shape[0]) != lines.checked_add(1) {
                    return Err(starts.error(format!(
                        "expected {lines} + 1 entries for {lines} {}, found {}; the matrix is damaged: write it again",
                        if by_row { "rows" } else { "columns" },
                        starts.shape[0]
                    )));
                }
                let entries = others.shape[0];
                (Places::Compressed { starts: starts.reader(), others: others.reader(), by_row }, entries)
            }
            _ => {
                return Err(archive.file.error(format!(
                    "expected a sparse matrix in format csr, csc or coo, found {}; convert it: {}",
                    shown(&format),
                    archive.file.remedy(Conversion::SparseToCsr)
                )));
            }
        };
        if *data.shape != [entries] {
            return Err(data.error(format!(
                "there are {entries} entries, but values of shape {}; the matrix is damaged: write it again",
                data.shape_shown()
            )));
        }
        Ok(Self { rows, columns, places, data })
    }

    /// A matrix in memory. `name` is its name for messages.
    pub fn in_memory(name: &Path, matrix: &MemoryMatrix) -> Result<Self> {
        let [rows, columns] = matrix.shape;
        let array = |array| NpyArray::in_memory(name, array);
        let (lines, others) = (index(array(&matrix.lines)?)?, index(array(&matrix.others)?)?);
        let places = match &*matrix.format {
            "coo" => Places::Coordinates { row: lines.reader(), column: others.reader() },
            format => Places::Compressed { starts: lines.reader(), others: others.reader(), by_row: format == "csr" },
        };
        Ok(Self { rows, columns, places, data: array(&matrix.data)? })
    }

    pub fn entries(&self) -> u64 {
        self.data.shape[0]
    }
}

/// The error about starts of rows that do not rise to the number of entries.
pub(crate) fn starts_do_not_rise(starts: &NpyArray, entries: u64) -> Error {
    starts.error(format!(
        "it does not rise from 0 to {entries}, the number of entries; the matrix is damaged: write it again"
    ))
}

/// The three letters of the format.
fn format_of(archive: &Npz, prefix: &str) -> Result<Vec<u8>> {
    let name = format!("{prefix}format");
    if !archive.contains(&name) {
        return Ok(match archive.contains(&format!("{prefix}indptr")) {
            true => b"csr".to_vec(),
            false => b"coo".to_vec(),
        });
    }
    let (extent, bytes) = archive.extent(&name)?;
    let mut text = vec![0; bytes.min(1 << 10) as usize];
    let read = extent.stream()?.read_full(&mut text)?;
    extent.check()?;
    // The last three letters, stored as |S3, or as <U3 with zeros in between.
    let letters: Vec<u8> = text[..read].iter().copied().filter(|&byte| byte != 0).collect();
    Ok(letters[letters.len().saturating_sub(3)..].to_vec())
}

/// Numbers of rows and columns.
fn shape_of(shape: &NpyArray) -> Result<[u64; 2]> {
    if *shape.shape != [2] || !is_index(shape.element) {
        return Err(shape.error("expected two int64: the number of rows and the number of columns"));
    }
    let (reader, mut numbers) = (shape.reader(), Vec::new());
    reader.read_any_indices(0, 2, &mut numbers)?;
    reader.check()?;
    match [0, 1].map(|at: usize| u64::try_from(numbers[at]).ok()) {
        [Some(rows), Some(columns)] => Ok([rows, columns]),
        _ => Err(shape.error("a number of rows or columns is negative")),
    }
}

/// Fails unless an array has places of entries.
fn index(array: NpyArray) -> Result<NpyArray> {
    if array.shape.len() == 1 && is_index(array.element) {
        return Ok(array);
    }
    Err(array.error(format!(
        "expected int32 or int64 of one axis, found {} of shape {}; the matrix is damaged: write it again",
        array.element.name(),
        array.shape_shown()
    )))
}

fn is_index(element: ElementType) -> bool {
    matches!(element, ElementType::I32 | ElementType::I64)
}

/// Replaces the contents of `into` with the elements, which are int32 or int64.
pub(crate) fn indices_of(element: ElementType, bytes: &[u8], into: &mut Vec<i64>) {
    into.clear();
    if element == ElementType::I32 {
        into.extend(bytes.as_chunks().0.iter().map(|&bytes| i64::from(i32::from_le_bytes(bytes))));
    } else {
        into.extend(bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)));
    }
}
