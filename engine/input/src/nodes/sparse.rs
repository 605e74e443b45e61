//! Features in a sparse matrix.
//!
//! The rows of format csr are read where they are. The entries of formats coo and csc may be anywhere: the entries of a small matrix
//! are held in memory, in the order of their rows, and a large one is refused with the command that converts it.

use std::sync::{Mutex, PoisonError};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use crate::{
    conversions::Conversion,
    npy::ArrayReader,
    sparse::{EntryReader, Places, SparseArrays, indices_of, starts_do_not_rise},
};

/// Entries of a sparse matrix that are read at a time.
const SPARSE_PIECE: usize = 1 << 16;

/// The most entries that are held in memory: 24 MiB of them.
const HELD_MAX: u64 = 1 << 20;

pub(super) struct Sparse {
    pub rows: u64,
    pub columns: u64,
    pub element: ElementType,
    entries: Entries,
}

enum Entries {
    /// In compressed rows, in the file.
    Stored(Box<StoredRows>),
    /// In memory, in the order of their rows.
    InMemory(Vec<SparseValue>),
}

struct SparseValue {
    row: u64,
    column: u64,
    value: f32,
}

impl Sparse {
    /// The matrix of these arrays.
    pub fn open(arrays: SparseArrays) -> Result<Self> {
        let (rows, columns, element) = (arrays.rows, arrays.columns, arrays.data.element);
        let entries = match arrays.places {
            Places::Compressed { starts, others, by_row: true } => Entries::Stored(Box::new(StoredRows {
                rows,
                columns,
                starts,
                last_end: Mutex::new(None),
                others,
                data: arrays.data.reader(),
            })),
            _ if arrays.entries() > HELD_MAX => {
                let file = &arrays.data.extent.file;
                return Err(file.error(format!(
                    "of a matrix with more than {HELD_MAX} entries, only format csr is read by rows; convert it: {}",
                    file.remedy(Conversion::SparseToCsr)
                )));
            }
            _ => Entries::InMemory(sorted_entries(arrays)?),
        };
        Ok(Self { rows, columns, element, entries })
    }

    pub fn is_sequential(&self) -> bool {
        match &self.entries {
            Entries::Stored(stored) => stored.data.is_sequential(),
            Entries::InMemory(_) => false,
        }
    }

    /// Bytes of memory that stay in use between reads.
    pub fn held_bytes(&self) -> u64 {
        match &self.entries {
            Entries::Stored(_) => 0,
            Entries::InMemory(sorted_entries) => (sorted_entries.capacity() * size_of::<SparseValue>()) as u64,
        }
    }

    /// Fails unless the arrays have their CRC-32. It reads the bytes that were not read yet.
    pub fn check(&self) -> Result<()> {
        match &self.entries {
            Entries::Stored(stored) => {
                [&stored.starts, &stored.others, &stored.data].into_iter().try_for_each(ArrayReader::check)
            }
            // They were checked when they were read.
            Entries::InMemory(_) => Ok(()),
        }
    }

    /// Adds the entries of the rows to `out`, which is all zeros. Entries with the same row and column add up, as in SciPy.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut [f32]) -> Result<()> {
        match &self.entries {
            Entries::Stored(stored) => stored.read_rows(first, count, out),
            Entries::InMemory(sorted_entries) => {
                let start = sorted_entries.partition_point(|entry| entry.row < first);
                let end = sorted_entries.partition_point(|entry| entry.row < first + count as u64);
                for entry in &sorted_entries[start..end] {
                    out[((entry.row - first) * self.columns + entry.column) as usize] += entry.value;
                }
                Ok(())
            }
        }
    }
}

/// All entries, in the order of their rows.
fn sorted_entries(arrays: SparseArrays) -> Result<Vec<SparseValue>> {
    let (entries, data) = (arrays.entries(), arrays.data.reader());
    let places = EntryReader::new(arrays);
    let mut all = Vec::with_capacity(entries as usize);
    let (mut rows, mut columns, mut bytes, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while (all.len() as u64) < entries {
        let first = all.len() as u64;
        let count = (entries - first).min(SPARSE_PIECE as u64) as usize;
        places.read(first, count, &mut rows, &mut columns)?;
        bytes.resize(count * data.array.element.bytes(), 0);
        data.read(first, &mut bytes)?;
        values.resize(count, 0.0);
        data.array.element.to_f32(&bytes, &mut values);
        let read = rows.iter().zip(&columns).zip(&values);
        all.extend(read.map(|((&row, &column), &value)| SparseValue { row: row as u64, column: column as u64, value }));
    }
    places.check()?;
    data.check()?;
    // Stable, so that entries of one place add up in their order.
    all.sort_by_key(|entry| entry.row);
    Ok(all)
}

/// Entries in compressed rows: the entries of row `r` are `starts[r]..starts[r + 1]`.
struct StoredRows {
    rows: u64,
    columns: u64,
    starts: ArrayReader,
    /// The row after those read last, and the start of its entries.
    last_end: Mutex<Option<(u64, i64)>>,
    others: ArrayReader,
    data: ArrayReader,
}

impl StoredRows {
    /// The starts of the rows' entries, and the end of the last row's.
    fn ends(&self, first: u64, count: usize) -> Result<Vec<i64>> {
        let mut last = self.last_end.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ends = Vec::new();
        // The start of these rows is the end of those read before. A deflated stream has already passed it.
        let known = last.filter(|&(row, _)| row == first).map(|(_, end)| end);
        let missing = if known.is_some() { count } else { count + 1 };
        self.starts.read_any_indices(first + (count + 1 - missing) as u64, missing, &mut ends)?;
        if let Some(known) = known {
            ends.insert(0, known);
        }
        *last = Some((first + count as u64, ends[count]));
        Ok(ends)
    }

    fn read_rows(&self, first: u64, count: usize, out: &mut [f32]) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let ends = self.ends(first, count)?;
        let entries = self.others.array.shape[0];
        let in_order = ends.windows(2).all(|pair| pair[0] <= pair[1]);
        let is_first = first == 0;
        let is_last = first + count as u64 == self.rows;
        let in_range = ends[0] >= 0 && ends[count] as u64 <= entries;
        let has_all = (!is_first || ends[0] == 0) && (!is_last || ends[count] as u64 == entries);
        if !in_order || !in_range || !has_all {
            return Err(starts_do_not_rise(&self.starts.array, entries));
        }
        let columns = self.columns as usize;
        let (mut at, end) = (ends[0] as u64, ends[count] as u64);
        let (mut bytes, mut indices, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = 0;
        while at < end {
            let piece = (end - at).min(SPARSE_PIECE as u64) as usize;
            bytes.resize(piece * self.others.array.element.bytes(), 0);
            self.others.read(at, &mut bytes)?;
            indices_of(self.others.array.element, &bytes, &mut indices);
            bytes.resize(piece * self.data.array.element.bytes(), 0);
            self.data.read(at, &mut bytes)?;
            values.resize(piece, 0.0);
            self.data.array.element.to_f32(&bytes, &mut values);
            for (&column, &value) in indices.iter().zip(&values) {
                while ends[row + 1] as u64 <= at {
                    row += 1;
                }
                let Some(column) = usize::try_from(column).ok().filter(|&column| column < columns) else {
                    return Err(Error::input(
                        self.others.array.path(),
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
