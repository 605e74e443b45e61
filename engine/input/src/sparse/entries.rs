//! Reads the entries of a sparse matrix front to back.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use grappa_io::Result;

use super::{Places, SparseArrays, indices_of, starts_do_not_rise};
use crate::npy::ArrayReader;

/// Starts of compressed rows that are read at a time.
const STARTS: u64 = 1 << 15;

/// A reader of the rows and columns of entries.
///
/// **Cost**: formats csr and csc find the row, or column, of an entry from the entries before it, so reads in order are cheap, and
/// a read further back starts again. Memory: 256 KiB of starts.
pub(crate) struct EntryReader {
    arrays: SparseArrays,
    lines: Mutex<Lines>,
}

impl EntryReader {
    pub fn new(arrays: SparseArrays) -> Self {
        Self { arrays, lines: Mutex::default() }
    }

    /// Whether only reads in order are cheap.
    pub fn is_sequential(&self) -> bool {
        match &self.arrays.places {
            Places::Coordinates { row, .. } => row.is_sequential(),
            Places::Compressed { .. } => true,
        }
    }

    /// Fails unless the arrays have their CRC-32. It reads the bytes that were not read yet.
    pub fn check(&self) -> Result<()> {
        let (Places::Coordinates { row: first, column: second }
        | Places::Compressed { starts: first, others: second, .. }) = &self.arrays.places;
        first.check()?;
        second.check()
    }

    /// Replaces the contents of `rows` and `columns` with the places of `count` entries from `first` on. Fails if one does not
    /// exist.
    pub fn read(&self, first: u64, count: usize, rows: &mut Vec<i64>, columns: &mut Vec<i64>) -> Result<()> {
        let SparseArrays { rows: all_rows, columns: all_columns, places, .. } = &self.arrays;
        match places {
            Places::Coordinates { row, column } => {
                row.read_indices(first, count, *all_rows, rows)?;
                column.read_indices(first, count, *all_columns, columns)
            }
            Places::Compressed { starts, others, by_row } => {
                let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
                let (line_of, other, all) = match by_row {
                    true => (rows, columns, *all_columns),
                    false => (columns, rows, *all_rows),
                };
                lines.read(starts, self.arrays.entries(), first..first + count as u64, line_of)?;
                others.read_indices(first, count, all, other)
            }
        }
    }
}

impl ArrayReader {
    /// Replaces the contents of `into` with int32 or int64.
    pub(crate) fn read_any_indices(&self, first: u64, count: usize, into: &mut Vec<i64>) -> Result<()> {
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
#[derive(Default)]
struct Lines {
    /// Starts that were read, and the number of the first one.
    piece: Vec<i64>,
    piece_first: u64,
    /// The line of the next entry, and the number of that entry.
    line: u64,
    next: u64,
}

impl Lines {
    /// Replaces the contents of `into` with the lines of these entries, of `all`.
    fn read(&mut self, starts: &ArrayReader, all: u64, entries: Range<u64>, into: &mut Vec<i64>) -> Result<()> {
        into.clear();
        into.reserve((entries.end - entries.start) as usize);
        if entries.start < self.next {
            (self.line, self.next) = (0, 0);
        }
        self.next = entries.start;
        while self.next < entries.end {
            let line_end = self.end(starts, all)?;
            let here = line_end.min(entries.end).saturating_sub(self.next);
            into.resize(into.len() + here as usize, self.line as i64);
            self.next += here;
            if self.next < entries.end {
                self.line += 1;
            }
        }
        Ok(())
    }

    /// The end of the line's entries.
    fn end(&mut self, starts: &ArrayReader, all: u64) -> Result<u64> {
        let [start, end] = [self.start(starts, all, self.line)?, self.start(starts, all, self.line + 1)?];
        let is_whole = (self.line > 0 || start == 0) && start <= end;
        match u64::try_from(end) {
            Ok(end) if is_whole && end <= all => Ok(end),
            _ => Err(starts_do_not_rise(&starts.array, all)),
        }
    }

    fn start(&mut self, starts: &ArrayReader, all: u64, line: u64) -> Result<i64> {
        let lines = starts.array.shape[0];
        if line >= lines {
            return Err(starts_do_not_rise(&starts.array, all));
        }
        if !(self.piece_first..self.piece_first + self.piece.len() as u64).contains(&line) {
            // Reads of an archive go on where the last one ended, so the end of a line is read with the starts after it.
            let known = (line > 0 && self.piece_first + self.piece.len() as u64 == line)
                .then(|| self.piece.last().copied())
                .flatten();
            let count = (lines - line).min(STARTS) as usize;
            starts.read_any_indices(line, count, &mut self.piece)?;
            self.piece_first = line;
            if let Some(known) = known {
                self.piece.insert(0, known);
                self.piece_first -= 1;
            }
        }
        Ok(self.piece[(line - self.piece_first) as usize])
    }
}
