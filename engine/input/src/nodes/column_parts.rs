//! Rows of numbers in tables of Arrow columns: in one file, or in several files, one after another.
//!
//! A table of 10^9 rows has thousands of parts, and the footers of all of them take too much memory and too many descriptors. So each part
//! is opened once to count its rows and compare its columns with the columns of the first, and again when it is read.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use grappa_formats::time_axis::TimeUnit;
use grappa_io::{Error, Position, Result};

use super::{
    class_names::ClassNames,
    column_rows::{Chosen, ColumnRows, EachCells, EachRow, EachTime},
    forms::{Forms, InputPlace, Layout, TableForm},
};
use crate::{
    columnar::ColumnTable,
    edges::BadEdge,
    file::{InputFile, are_large},
    kinds,
    messages::Checked,
    table::Cell,
};

pub(super) struct ColumnParts {
    forms: &'static Forms,
    form: TableForm,
    /// Those that have rows, or one that has none.
    parts: Vec<PartRows>,
    pub bytes: u64,
    /// Bytes of memory that stay in use between reads: a page of each column of a part.
    pub held_bytes: u64,
    /// Numbers per row.
    columns: usize,
    chosen: Chosen,
    /// The names of classes that were read, if the data are labels that are names.
    pub class_names: Arc<ClassNames>,
    open: Mutex<Option<(usize, ColumnRows)>>,
}

struct PartRows {
    path: PathBuf,
    /// Number of rows before it.
    first_row: u64,
    rows: u64,
    /// Whether it has the columns that are read. Rows of another part have no values.
    has_values: bool,
}

/// Whether a part may lack the columns that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gaps {
    Allowed,
    Refused,
}

/// A part that is open, or one without values.
enum OpenPart<'a> {
    Values(&'a ColumnRows),
    Gap(&'a PartRows),
}

/// Gets a part, its first row to read, and the number of rows. Returns the number that it read.
type ReadPart<'a> = dyn FnMut(OpenPart<'_>, u64, usize) -> Result<usize> + 'a;

impl PartRows {
    /// Calls `each` for up to `count` rows without values from row `first` on. An error says what is wrong with that.
    fn each_gap(&self, first: u64, count: usize, each: &mut dyn FnMut() -> Checked<()>) -> Result<usize> {
        let end = self.rows.min(first.saturating_add(count as u64));
        for row in first..end {
            each().map_err(|problem| Error::input(&self.path, Position::Row(row), problem))?;
        }
        Ok((end - first) as usize)
    }
}

impl ColumnParts {
    /// A table whose parts are these tables, in their order.
    pub fn open(
        tables: impl Iterator<Item = Result<ColumnTable>>,
        gaps: Gaps,
        forms: &'static Forms,
        form: &TableForm,
    ) -> Result<(Self, Layout)> {
        let (mut parts, mut bytes, mut held_bytes) = (Vec::new(), 0, 0);
        let (mut rows, mut first) = (0, None::<ColumnRows>);
        let class_names = Arc::default();
        for table in tables {
            let table = table?;
            let file = table.file.clone();
            let has_values = gaps == Gaps::Refused || first.as_ref().is_none_or(|first| first.chosen.is_in(&table));
            if !has_values {
                bytes += file.bytes();
                parts.push(PartRows { path: file.path().to_owned(), first_row: rows, rows: table.rows, has_values });
                rows += table.rows;
                continue;
            }
            let like = first.as_ref().filter(|first| first.rows() > 0).map(|first| &first.chosen);
            let table = ColumnRows::open(table, forms, form, &class_names, like)?;
            bytes += file.bytes();
            held_bytes = held_bytes.max(table.held_bytes());
            // Writers that divide a table by keys leave parts without rows.
            if table.rows() == 0 {
                first.get_or_insert(table);
                continue;
            }
            parts.push(PartRows { path: file.path().to_owned(), first_row: rows, rows: table.rows(), has_values });
            rows += table.rows();
            match &first {
                Some(first) if first.rows() > 0 => table.check_like(first)?,
                _ => first = Some(table),
            }
        }
        let first = first.expect("a table has files");
        if parts.is_empty() {
            parts.push(PartRows { path: first.path().to_owned(), first_row: 0, rows: 0, has_values: true });
        }
        let layout = first.layout(forms, parts.len() - 1);
        let table = Self {
            forms,
            form: form.clone(),
            parts,
            bytes,
            held_bytes,
            columns: first.dim,
            chosen: first.chosen.clone(),
            class_names,
            open: Mutex::new(Some((0, first))),
        };
        Ok((table, layout))
    }

    pub fn rows(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.first_row + part.rows)
    }

    pub fn place(&self, row: u64) -> InputPlace<'_> {
        let part = &self.parts[self.part_of(row)];
        InputPlace { path: &part.path, position: Position::Row(row - part.first_row) }
    }

    fn part_of(&self, row: u64) -> usize {
        let after = self.parts.partition_point(|part| part.first_row <= row);
        after.saturating_sub(1)
    }

    /// Calls `each` with up to `count` rows of numbers from row `first` on. A missing number is NaN. Returns the number of rows.
    pub fn read(&self, first: u64, count: usize, each: &mut EachRow<'_>) -> Result<usize> {
        self.read_parts(first, count, &mut |part, from, count| match part {
            OpenPart::Values(part) => part.read(from, count, each),
            OpenPart::Gap(part) => {
                let missing = vec![f64::NAN; self.columns];
                part.each_gap(from, count, &mut || each(&missing))
            }
        })
    }

    /// Calls `each` with the values of up to `count` rows from row `first` on. Returns the number of rows.
    pub fn read_cells(&self, first: u64, count: usize, each: &mut EachCells<'_>) -> Result<usize> {
        self.read_parts(first, count, &mut |part, from, count| match part {
            OpenPart::Values(part) => part.read_cells(from, count, each),
            OpenPart::Gap(part) => {
                let missing = vec![Cell::Missing; self.chosen.data.len()];
                part.each_gap(from, count, &mut || each(&missing))
            }
        })
    }

    /// Calls `each` with the time of up to `count` rows from row `first` on. Returns the number of rows.
    pub fn read_times(
        &self,
        first: u64,
        count: usize,
        unit: Option<TimeUnit>,
        each: &mut EachTime<'_>,
    ) -> Result<usize> {
        self.read_parts(first, count, &mut |part, from, count| match part {
            OpenPart::Values(part) => part.read_times(from, count, unit, each),
            OpenPart::Gap(part) => part.each_gap(from, count, &mut || each(Err(BadEdge::NoTime))),
        })
    }

    /// Calls `read` with each part of the rows, its first row and the number of rows. It returns the number that it read.
    fn read_parts(&self, first: u64, count: usize, read: &mut ReadPart<'_>) -> Result<usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.rows().min(first.saturating_add(count as u64));
        let mut row = first;
        while row < end {
            let number = self.part_of(row);
            let part = &self.parts[number];
            let from = row - part.first_row;
            let part = match part.has_values {
                true => OpenPart::Values(self.part(number, &mut open)?),
                false => OpenPart::Gap(part),
            };
            row += read(part, from, (end - row) as usize)? as u64;
        }
        Ok(end.saturating_sub(first) as usize)
    }

    /// Opens a part, unless it is open.
    fn part<'a>(
        &self,
        number: usize,
        open: &'a mut MutexGuard<'_, Option<(usize, ColumnRows)>>,
    ) -> Result<&'a ColumnRows> {
        let table = match open.take() {
            Some((open_number, table)) if open_number == number => table,
            closed => {
                drop(closed);
                let PartRows { path, rows, .. } = &self.parts[number];
                let part = open_part(path)?;
                if are_large(self.bytes) {
                    part.file.read_past_cache();
                }
                let like = Some(&self.chosen);
                let table = ColumnRows::open(part, self.forms, &self.form, &self.class_names, like)?;
                if table.rows() != *rows || table.dim != self.columns {
                    let problem = "the file changed while it was read; start again";
                    return Err(Error::input(path, Position::Whole, problem));
                }
                table
            }
        };
        let (_, table) = open.insert((number, table));
        Ok(table)
    }
}

/// Opens a file of several, which must be Parquet.
pub(super) fn open_part(path: &Path) -> Result<ColumnTable> {
    let file = InputFile::open(path)?;
    if file.head(kinds::PARQUET.len())? != kinds::PARQUET {
        let problem = "node data in several files must be Parquet, and this is none; move it elsewhere, or put the data into one file and \
                    name that";
        return Err(Error::input(path, Position::Whole, problem));
    }
    ColumnTable::open(&file)
}
