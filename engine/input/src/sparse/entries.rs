//! Reads the entries of a sparse matrix front to back.

use std::sync::{Mutex, PoisonError};

use grappa_io::Result;

use super::{Places, SparseArrays, indices_of, starts_do_not_rise};
use crate::npy::{ArrayReader, NpyArray};

/// Starts of compressed rows that are read at a time.
const STARTS: u64 = 1 << 15;

/// A reader of the rows and columns of entries.
///
/// **Cost**: formats csr and csc find the row, or column, of an entry from the entries before it, so reads in order are cheap, and
/// a read further back starts again. Memory: 256 KiB of starts.
pub(crate) struct EntryReader {
    rows: u64,
    columns: u64,
    places: PlaceReaders,
}

enum PlaceReaders {
    Coordinates { row: ArrayReader, column: ArrayReader },
    Compressed { lines: Mutex<Lines>, others: ArrayReader, by_row: bool },
}

impl EntryReader {
    pub fn of(arrays: &SparseArrays) -> Self {
        Self {
            rows: arrays.rows,
            columns: arrays.columns,
            places: match &arrays.places {
                Places::Coordinates { row, column } => {
                    PlaceReaders::Coordinates { row: row.reader(), column: column.reader() }
                }
                Places::Rows(lines) | Places::Columns(lines) => PlaceReaders::Compressed {
                    lines: Mutex::new(Lines::of(&lines.starts, arrays.entries())),
                    others: lines.others.reader(),
                    by_row: matches!(arrays.places, Places::Rows(_)),
                },
            },
        }
    }

    /// Whether only reads in order are cheap.
    pub fn is_sequential(&self) -> bool {
        match &self.places {
            PlaceReaders::Coordinates { row, .. } => row.is_sequential(),
            PlaceReaders::Compressed { .. } => true,
        }
    }

    /// Fails unless the arrays have their CRC-32. It reads the bytes that were not read yet.
    pub fn check(&self) -> Result<()> {
        match &self.places {
            PlaceReaders::Coordinates { row, column } => {
                row.check()?;
                column.check()
            }
            PlaceReaders::Compressed { lines, others, .. } => {
                let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.starts.check()?;
                others.check()
            }
        }
    }

    /// Replaces the contents of `rows` and `columns` with the places of `count` entries from `first` on. Fails if one does not
    /// exist.
    pub fn read(&self, first: u64, count: usize, rows: &mut Vec<i64>, columns: &mut Vec<i64>) -> Result<()> {
        match &self.places {
            PlaceReaders::Coordinates { row, column } => {
                row.read_indices(first, count, self.rows, rows)?;
                column.read_indices(first, count, self.columns, columns)
            }
            PlaceReaders::Compressed { lines, others, by_row } => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                let (line_of, other, all) = match by_row {
                    true => (rows, columns, self.columns),
                    false => (columns, rows, self.rows),
                };
                lines.read(first, count, line_of)?;
                others.read_indices(first, count, all, other)
            }
        }
    }
}

impl ArrayReader {
    /// Replaces the contents of `into` with int32 or int64.
    fn read_any_indices(&self, first: u64, count: usize, into: &mut Vec<i64>) -> Result<()> {
        let mut bytes = vec![0; count * self.array.element.bytes()];
        self.read(first, &mut bytes)?;
        indices_of(self.array.element, &bytes, into);
        Ok(())
    }

    /// The same for indices that must be below `all`.
    fn read_indices(&self, first: u64, count: usize, all: u64, into: &mut Vec<i64>) -> Result<()> {
        self.read_any_indices(first, count, into)?;
        let missing = into.iter().position(|&index| u64::try_from(index).map_or(true, |index| index >= all));
        match missing {
            None => Ok(()),
            Some(at) => Err(self.array.error(format!(
                "element {} is {}, but the shape of the matrix allows 0 to {}; it is damaged: write it again",
                first + at as u64,
                into[at],
                all.saturating_sub(1)
            ))),
        }
    }
}

/// The compressed row, or column, of each entry.
struct Lines {
    starts: ArrayReader,
    entries: u64,
    /// Starts that were read, and the number of the first one.
    piece: Vec<i64>,
    piece_first: u64,
    /// The line of the next entry, and the number of that entry.
    line: u64,
    next: u64,
}

impl Lines {
    fn of(starts: &NpyArray, entries: u64) -> Self {
        Self { starts: starts.reader(), entries, piece: Vec::new(), piece_first: 0, line: 0, next: 0 }
    }

    /// Replaces the contents of `into` with the lines of `count` entries from `first` on.
    fn read(&mut self, first: u64, count: usize, into: &mut Vec<i64>) -> Result<()> {
        into.clear();
        into.reserve(count);
        if first < self.next {
            (self.line, self.next) = (0, 0);
        }
        let end = first + count as u64;
        self.next = first;
        while self.next < end {
            let line_end = self.end()?;
            let here = line_end.min(end).saturating_sub(self.next);
            into.resize(into.len() + here as usize, self.line as i64);
            self.next += here;
            if self.next < end {
                self.line += 1;
            }
        }
        Ok(())
    }

    /// The end of the line's entries.
    fn end(&mut self) -> Result<u64> {
        let start = self.start(self.line)?;
        let end = self.start(self.line + 1)?;
        let is_whole = (self.line > 0 || start == 0) && start <= end;
        match u64::try_from(end) {
            Ok(end) if is_whole && end <= self.entries => Ok(end),
            _ => Err(starts_do_not_rise(&self.starts.array, self.entries)),
        }
    }

    fn start(&mut self, line: u64) -> Result<i64> {
        let all = self.starts.array.shape[0];
        if line >= all {
            return Err(starts_do_not_rise(&self.starts.array, self.entries));
        }
        if !(self.piece_first..self.piece_first + self.piece.len() as u64).contains(&line) {
            // Reads of an archive go on where the last one ended, so the end of a line is read with the starts after it.
            let known = (line > 0 && self.piece_first + self.piece.len() as u64 == line)
                .then(|| self.piece.last().copied())
                .flatten();
            let count = (all - line).min(STARTS) as usize;
            self.starts.read_any_indices(line, count, &mut self.piece)?;
            self.piece_first = line;
            if let Some(known) = known {
                self.piece.insert(0, known);
                self.piece_first -= 1;
            }
        }
        Ok(self.piece[(line - self.piece_first) as usize])
    }
}
