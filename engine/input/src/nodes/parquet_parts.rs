//! Rows of numbers in Parquet: in one file, or in the files of a folder, one after another.
//!
//! A table of 10^9 rows has thousands of parts, and the footers of all of them take too much memory and too many descriptors. So each part
//! is opened once to count its rows and compare its columns with the columns of the first, and again when it is read.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use super::{
    class_names::ClassNames,
    forms::{Forms, TableForm},
    parquet_rows::{Chosen, EachCells, EachRow, ParquetRows},
    place::Place,
};
use crate::{
    file::{InputFile, are_large},
    parquet,
    reading::Reading,
};

/// A table.
pub(super) struct ParquetParts {
    forms: &'static Forms,
    form: TableForm,
    /// Those that have rows, or one that has none.
    parts: Vec<Part>,
    bytes: u64,
    held_bytes: u64,
    columns: usize,
    element: ElementType,
    chosen: Chosen,
    left_out: Vec<String>,
    /// Whether all columns have numbers, or zeros and ones.
    are_numbers: bool,
    is_list: bool,
    /// The names of classes, if the data are labels that are names.
    class_names: Arc<ClassNames>,
    /// The part that is read.
    open: Mutex<Option<(usize, ParquetRows)>>,
}

struct Part {
    path: PathBuf,
    /// Number of rows before it.
    first_row: u64,
    rows: u64,
}

impl ParquetParts {
    /// A table in one file.
    pub fn file(file: &Arc<InputFile>, forms: &'static Forms, form: &TableForm) -> Result<Self> {
        let class_names = Arc::default();
        let table = ParquetRows::open(file, forms, form, &class_names, None)?;
        let part = Part { path: file.path().to_owned(), first_row: 0, rows: table.rows() };
        Ok(Self::new(forms, form, vec![part], file.bytes(), table.held_bytes(), class_names, table))
    }

    /// A table whose parts are these files, in their order.
    pub fn folder(files: Vec<PathBuf>, forms: &'static Forms, form: &TableForm) -> Result<Self> {
        let (mut parts, mut bytes, mut held_bytes) = (Vec::new(), 0, 0);
        let (mut rows, mut first) = (0, None::<ParquetRows>);
        let class_names = Arc::default();
        for path in files {
            let file = open_part(&path)?;
            let like = first.as_ref().filter(|first| first.rows() > 0).map(ParquetRows::chosen);
            let table = ParquetRows::open(&file, forms, form, &class_names, like.as_ref())?;
            bytes += file.bytes();
            held_bytes = held_bytes.max(table.held_bytes());
            // Writers that divide a table by keys leave parts without rows.
            if table.rows() == 0 {
                first.get_or_insert(table);
                continue;
            }
            let part = Part { path, first_row: rows, rows: table.rows() };
            rows += table.rows();
            match &first {
                Some(first) if first.rows() > 0 => table.check_like(first)?,
                _ => first = Some(table),
            }
            parts.push(part);
        }
        let first = first.expect("a folder has files");
        if parts.is_empty() {
            parts.push(Part { path: first.path().to_owned(), first_row: 0, rows: 0 });
        }
        Ok(Self::new(forms, form, parts, bytes, held_bytes, class_names, first))
    }

    fn new(
        forms: &'static Forms,
        form: &TableForm,
        parts: Vec<Part>,
        bytes: u64,
        held_bytes: u64,
        class_names: Arc<ClassNames>,
        first: ParquetRows,
    ) -> Self {
        Self {
            forms,
            form: form.clone(),
            parts,
            bytes,
            held_bytes,
            columns: first.columns(),
            element: first.element(),
            chosen: first.chosen(),
            are_numbers: first.are_numbers(),
            is_list: first.is_list(),
            left_out: first.left_out(),
            class_names,
            open: Mutex::new(Some((0, first))),
        }
    }

    pub fn rows(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.first_row + part.rows)
    }

    /// Numbers per row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The names of classes that were read, if the data are labels that are names.
    pub fn class_names(&self) -> &Arc<ClassNames> {
        &self.class_names
    }

    pub fn has_ids(&self) -> bool {
        self.chosen.id.is_some()
    }

    /// The names of the columns with the data.
    pub fn names(&self) -> &[String] {
        &self.chosen.data
    }

    /// Whether all columns have numbers, or zeros and ones.
    pub fn are_numbers(&self) -> bool {
        self.are_numbers
    }

    /// Whether rows are lists in one column.
    pub fn is_list(&self) -> bool {
        self.is_list
    }

    /// How the table is read.
    pub fn reading(&self, what: &'static str) -> Reading {
        let ids = self.chosen.id.iter().map(|name| ("ids", name.clone()));
        let data = self.chosen.data.iter().map(|name| (what, name.clone()));
        Reading {
            format: "Parquet",
            columns: ids.chain(data).collect(),
            left_out: self.left_out.clone(),
            by_position: Some(self.chosen.id.is_none()),
            more_files: self.parts.len() - 1,
            ..Reading::of(what)
        }
    }

    /// The type of the numbers in the first part. Of several types it is the type of the first column.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Size of the files in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that stay in use between reads: a page of each column of a part.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The place of a row.
    pub fn place(&self, row: u64) -> Place<'_> {
        let part = &self.parts[self.part_of(row)];
        Place { path: &part.path, position: Position::Row(row - part.first_row) }
    }

    fn part_of(&self, row: u64) -> usize {
        let after = self.parts.partition_point(|part| part.first_row <= row);
        after.saturating_sub(1)
    }

    /// Calls `each` with up to `count` rows of numbers from row `first` on. A missing number is NaN. Returns the number of rows.
    pub fn read(&self, first: u64, count: usize, each: &mut EachRow<'_>) -> Result<usize> {
        self.read_parts(first, count, &mut |part, from, count| part.read(from, count, each))
    }

    /// Calls `each` with the values of up to `count` rows from row `first` on. Returns the number of rows.
    pub fn read_cells(&self, first: u64, count: usize, each: &mut EachCells<'_>) -> Result<usize> {
        self.read_parts(first, count, &mut |part, from, count| part.read_cells(from, count, each))
    }

    /// Calls `read` with each part of the rows, its first row and the number of rows. It returns the number that it read.
    fn read_parts(
        &self,
        first: u64,
        count: usize,
        read: &mut dyn FnMut(&ParquetRows, u64, usize) -> Result<usize>,
    ) -> Result<usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.rows().min(first.saturating_add(count as u64));
        let mut row = first;
        while row < end {
            let number = self.part_of(row);
            let from = row - self.parts[number].first_row;
            row += read(self.part(number, &mut open)?, from, (end - row) as usize)? as u64;
        }
        Ok(end.saturating_sub(first) as usize)
    }

    /// Opens a part, unless it is open.
    fn part<'a>(
        &self,
        number: usize,
        open: &'a mut MutexGuard<'_, Option<(usize, ParquetRows)>>,
    ) -> Result<&'a ParquetRows> {
        let table = match open.take() {
            Some((of, table)) if of == number => table,
            closed => {
                drop(closed);
                let Part { path, rows, .. } = &self.parts[number];
                let file = open_part(path)?;
                if are_large(self.bytes) {
                    file.read_past_cache();
                }
                let like = Some(&self.chosen);
                let table = ParquetRows::open(&file, self.forms, &self.form, &self.class_names, like)?;
                if table.rows() != *rows || table.columns() != self.columns {
                    let what = "the file changed while it was read; start again";
                    return Err(Error::input(path, Position::Whole, what));
                }
                table
            }
        };
        let (_, table) = open.insert((number, table));
        Ok(table)
    }
}

/// Opens a file of a folder, which must be Parquet.
pub(super) fn open_part(path: &Path) -> Result<Arc<InputFile>> {
    let file = InputFile::open(path)?;
    if file.head(parquet::MAGIC.len())? != parquet::MAGIC {
        let what = "a folder of node data must have Parquet files only, and this is none; move it elsewhere, or put the data into one \
                    file and name that";
        return Err(Error::input(path, Position::Whole, what));
    }
    Ok(file)
}
