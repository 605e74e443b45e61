//! Rows of numbers in a Parquet file.
//!
//! They are read front to back, by one thread, because to go to a row means to decode its page in every column. Between two reads, a page
//! of each column stays in memory.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};
use parquet::{
    basic::Type,
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::DataType,
    errors::ParquetError,
    schema::types::ColumnDescriptor,
};

use super::{TableForm, class_names::ClassNames, node_file::Forms, parquet_ids::roles_of};
use crate::{
    columns::{Purpose, Roles},
    file::InputFile,
    parquet::{
        ParquetTable, ReadValues, read_column,
        types::{is_flat, is_number, is_signed, is_string, name},
    },
};

/// Writers end a page after this many bytes by default, and a dictionary too.
const PAGE_BYTES: u64 = 1 << 20;
/// Numbers that are decoded at a time. They stay in the cache, and their buffers are not returned to the system each time.
const PIECE_NUMBERS: usize = 1 << 14;

/// Gets the numbers of a row. An error says what is wrong with them.
pub(super) type EachRow<'a> = dyn FnMut(&[f64]) -> std::result::Result<(), String> + 'a;

/// Rows of numbers in the columns of a table, or in one column of lists.
pub(super) struct ParquetRows {
    columns: Columns,
    roles: Roles,
    /// Numbers per row.
    dim: usize,
    cursor: Mutex<Cursor>,
}

/// Columns of a table.
struct Columns {
    table: ParquetTable,
    numbers: Vec<usize>,
    /// The classes of names, for a column of labels that are names.
    class_names: Arc<ClassNames>,
}

/// The position of a reader.
#[derive(Default)]
struct Cursor {
    row: u64,
    /// The row group, and its columns after `row`.
    open: Option<(usize, Vec<ColumnReader>)>,
}

impl ParquetRows {
    /// Reads the footer and chooses the columns. A single column of labels may have names; its numbers are their `class_names`.
    pub fn open(file: &Arc<InputFile>, forms: &Forms, form: &TableForm, class_names: &Arc<ClassNames>) -> Result<Self> {
        let refuse = |what: String| Error::input(file.path(), Position::Whole, what);
        let table = ParquetTable::open(file)?;
        let schema = table.schema();
        let roles = roles_of(&table, forms.purpose, form)?;
        let numbers = roles.data.clone();
        if numbers.is_empty() {
            return Err(refuse(format!("expected columns of {}, found none", forms.name)));
        }
        let is_list = |column: usize| schema.column(column).max_rep_level() == 1;
        let may_have_names = forms.purpose == Purpose::Labels && numbers.len() == 1;
        let has_names = |column: usize| {
            let column = schema.column(column);
            may_have_names && is_flat(&column) && is_string(&column)
        };
        for &column in numbers.iter().filter(|&&column| !has_names(column)) {
            check_numbers(&schema.column(column)).map_err(refuse)?;
            if is_list(column) && numbers.len() > 1 {
                return Err(refuse(format!(
                    "column {} has lists, so it must be the only one beside the ids, and there are {} more; leave them out: {}",
                    name(&schema.column(column)),
                    numbers.len() - 1,
                    forms.purpose.only(name(&schema.column(column)))
                )));
            }
        }
        table.check_columns(numbers.iter().copied())?;
        let is_list = is_list(numbers[0]);
        let columns = Columns {
            table,
            numbers,
            class_names: Arc::clone(class_names),
        };
        let dim = match is_list {
            true if columns.table.rows() > 0 => columns.first_list()?,
            true => 1,
            false => columns.numbers.len(),
        };
        Ok(Self {
            columns,
            roles,
            dim,
            cursor: Mutex::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.columns.table.file().path()
    }

    /// Fails unless its rows can follow those of another file.
    pub fn check_like(&self, other: &Self) -> Result<()> {
        let refuse = |found: &str, expected: &str| {
            let what = format!(
                "{found}, but {expected} in {}, and a table has the same columns in all files; write it again",
                other.path().display()
            );
            Err(Error::input(self.path(), Position::Whole, what))
        };
        let (names, others) = (self.columns.names(), other.columns.names());
        if let Some(at) = (0..names.len().max(others.len())).find(|&at| names.get(at) != others.get(at)) {
            let shown = |names: &[String]| match names.get(at) {
                Some(name) => format!("column {at} is {name}"),
                None => format!("there are {} columns", names.len()),
            };
            return refuse(&shown(&names), &shown(&others));
        }
        match (self.has_ids(), other.has_ids()) {
            (true, false) => refuse("there are ids", "none"),
            (false, true) => refuse("there are no ids", "some"),
            _ if self.dim != other.dim => refuse(
                &format!("lists have {} numbers", self.dim),
                &format!("{} numbers", other.dim),
            ),
            _ => Ok(()),
        }
    }

    pub fn rows(&self) -> u64 {
        self.columns.table.rows()
    }

    /// Numbers per row.
    pub fn columns(&self) -> usize {
        self.dim
    }

    pub fn has_ids(&self) -> bool {
        self.roles.id.is_some()
    }

    /// The name of the column of ids.
    pub fn id_name(&self) -> Option<&str> {
        self.roles
            .id
            .map(|column| self.columns.table.schema().columns()[column].name())
    }

    /// The names of the columns with the data.
    pub fn names(&self) -> Vec<String> {
        self.columns.names()
    }

    /// The columns that are left out.
    pub fn left_out(&self) -> Vec<String> {
        let columns = self.columns.table.schema().columns();
        let left_out = self.roles.left_out.iter();
        left_out.map(|&column| name(&columns[column]).to_owned()).collect()
    }

    /// The type of the numbers. Of several types it is that of the first column.
    pub fn element(&self) -> ElementType {
        let column = self.columns.table.schema().column(self.columns.numbers[0]);
        match column.physical_type() {
            Type::BOOLEAN => ElementType::Bool,
            Type::INT32 => ElementType::I32,
            Type::INT64 => ElementType::I64,
            Type::FLOAT => ElementType::F32,
            _ => ElementType::F64,
        }
    }

    /// Bytes of the pages that stay in memory: of each column a dictionary, a page, and its compressed bytes, if the writer did not choose
    /// other sizes.
    pub fn held_bytes(&self) -> u64 {
        let of_column = |&column: &usize| self.columns.table.column_bytes_max(column).min(3 * PAGE_BYTES);
        self.columns.numbers.iter().map(of_column).sum()
    }

    /// Calls `each` with up to `count` rows from row `first` on. A missing number is NaN. Returns the number of rows.
    pub fn read(&self, first: u64, count: usize, each: &mut EachRow<'_>) -> Result<usize> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor.row != first {
            *cursor = Cursor { row: first, open: None };
        }
        let end = self.rows().min(first.saturating_add(count as u64));
        let piece = (PIECE_NUMBERS / self.dim).max(1) as u64;
        while cursor.row < end {
            let end = end.min(cursor.row + piece);
            self.read_piece(&mut cursor, end, each)?;
        }
        Ok(end.saturating_sub(first) as usize)
    }

    /// Reads rows up to `end`, or up to the end of a row group.
    fn read_piece(&self, cursor: &mut Cursor, end: u64, each: &mut EachRow<'_>) -> Result<()> {
        let from = cursor.row;
        let (group, skip, mut readers) = match cursor.open.take() {
            Some((group, readers)) => (group, 0, readers),
            None => self.columns.open_at(from)?,
        };
        let bounds = &self.columns.table.groups()[group];
        let group_end = bounds.first_row + bounds.rows;
        let rows = (end.min(group_end) - from) as usize;
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(readers.len());
        for (reader, &column) in readers.iter_mut().zip(&self.columns.numbers) {
            values.push(self.columns.numbers(reader, column, skip, rows, from, self.dim)?);
        }
        let mut row = Vec::with_capacity(self.dim);
        for index in 0..rows {
            row.clear();
            match &values[..] {
                [lists] => row.extend_from_slice(&lists[index * self.dim..][..self.dim]),
                columns => row.extend(columns.iter().map(|column| column[index])),
            }
            each(&row).map_err(|what| {
                Error::input(
                    self.columns.table.file().path(),
                    Position::Row(from + index as u64),
                    what,
                )
            })?;
        }
        cursor.row = from + rows as u64;
        if cursor.row < group_end {
            cursor.open = Some((group, readers));
        }
        Ok(())
    }
}

impl Columns {
    fn names(&self) -> Vec<String> {
        let schema = self.table.schema();
        let names = self
            .numbers
            .iter()
            .map(|&column| name(&schema.column(column)).to_owned());
        names.collect()
    }

    /// The row group of a row, the number of rows before it in the group, and the columns of the group.
    fn open_at(&self, row: u64) -> Result<(usize, usize, Vec<ColumnReader>)> {
        let after = self.table.groups().partition_point(|group| group.first_row <= row);
        let group = after - 1;
        let skip = (row - self.table.groups()[group].first_row) as usize;
        let open = |&column: &usize| self.table.column(group, column);
        let readers = self.numbers.iter().map(open).collect::<Result<_>>()?;
        Ok((group, skip, readers))
    }

    /// The number of values in the list of the first row.
    fn first_list(&self) -> Result<usize> {
        let mut reader = self.table.column(0, self.numbers[0])?;
        let mut read = |column: &ColumnDescriptor| match &mut reader {
            ColumnReader::BoolColumnReader(reader) => Ok(read_column(reader, column, 0, 1)?.levels),
            ColumnReader::Int32ColumnReader(reader) => Ok(read_column(reader, column, 0, 1)?.levels),
            ColumnReader::Int64ColumnReader(reader) => Ok(read_column(reader, column, 0, 1)?.levels),
            ColumnReader::FloatColumnReader(reader) => Ok(read_column(reader, column, 0, 1)?.levels),
            ColumnReader::DoubleColumnReader(reader) => Ok(read_column(reader, column, 0, 1)?.levels),
            _ => unreachable!("columns of other types are refused"),
        };
        let column = self.table.schema().column(self.numbers[0]);
        let levels = read(&column).map_err(|error| self.table.damaged(0, &error))?;
        let in_list = levels.iter().filter(|&&level| level >= level_in_list(&column));
        match in_list.count() {
            0 => Err(Error::input(
                self.table.file().path(),
                Position::Row(0),
                format!("expected a list of numbers in column {}, found none", name(&column)),
            )),
            count => Ok(count),
        }
    }

    /// Skips rows of a column and reads the next ones, `dim` numbers each if they are lists.
    fn numbers(
        &self,
        reader: &mut ColumnReader,
        column: usize,
        skip: usize,
        rows: usize,
        first: u64,
        dim: usize,
    ) -> Result<Vec<f64>> {
        let at = Place {
            columns: self,
            column: &self.table.schema().column(column),
            skip,
            rows,
            first,
            dim,
        };
        let signed = is_signed(at.column);
        match reader {
            ColumnReader::BoolColumnReader(reader) => at.read(reader, |value| f64::from(u8::from(value))),
            ColumnReader::FloatColumnReader(reader) => at.read(reader, f64::from),
            ColumnReader::DoubleColumnReader(reader) => at.read(reader, |value| value),
            // Parquet has the bits of unsigned integers in signed ones.
            ColumnReader::Int32ColumnReader(reader) => at.read(reader, |value| match signed {
                true => f64::from(value),
                false => f64::from(value.cast_unsigned()),
            }),
            ColumnReader::Int64ColumnReader(reader) => at.read(reader, |value| match signed {
                true => value as f64,
                false => value.cast_unsigned() as f64,
            }),
            ColumnReader::ByteArrayColumnReader(reader) => at.read(reader, |name| self.class_names.number(name.data())),
            _ => unreachable!("columns of other types are refused"),
        }
    }
}

/// The next rows of a column.
struct Place<'a> {
    columns: &'a Columns,
    column: &'a ColumnDescriptor,
    /// Rows to skip, and rows to read after them.
    skip: usize,
    rows: usize,
    /// The number of the first one.
    first: u64,
    dim: usize,
}

impl Place<'_> {
    fn read<T: DataType>(&self, reader: &mut ColumnReaderImpl<T>, number: impl Fn(T::T) -> f64) -> Result<Vec<f64>> {
        let read = read_column(reader, self.column, self.skip, self.rows)
            .map_err(|error| self.columns.table.damaged(self.first, &error))?;
        if self.column.max_rep_level() == 0 && read.levels.is_empty() {
            return Ok(read.values.into_iter().map(number).collect());
        }
        self.check_lists(&read)?;
        let (present, exists) = (self.column.max_def_level(), level_in_list(self.column));
        let mut values = read.values.into_iter();
        let levels = read.levels.iter().filter(|&&level| level >= exists);
        let numbers: Vec<f64> = levels
            .map(|&level| match level == present {
                true => values.next().map_or(f64::NAN, &number),
                false => f64::NAN,
            })
            .collect();
        // Levels of a damaged file may begin within a list.
        let of_row = if self.column.max_rep_level() > 0 { self.dim } else { 1 };
        match numbers.len() == self.rows * of_row {
            true => Ok(numbers),
            false => {
                let error = ParquetError::General("its lists are inconsistent".to_owned());
                Err(self.columns.table.damaged(self.first, &error))
            }
        }
    }

    /// Refuses lists of other lengths than the first one.
    fn check_lists<T>(&self, read: &ReadValues<T>) -> Result<()> {
        if self.column.max_rep_level() == 0 {
            return Ok(());
        }
        let exists = level_in_list(self.column);
        let (mut row, mut length) = (None, 0);
        let check = |row: Option<u64>, length: usize| match row {
            Some(row) if length != self.dim => Err(Error::input(
                self.columns.table.file().path(),
                Position::Row(row),
                format!(
                    "expected a list of {} numbers in column {}, as in the first row, found {length}",
                    self.dim,
                    name(self.column)
                ),
            )),
            _ => Ok(()),
        };
        for (&repeat, &level) in read.repeats.iter().zip(&read.levels) {
            if repeat == 0 {
                check(row, length)?;
                (row, length) = (Some(row.map_or(self.first, |row| row + 1)), 0);
            }
            length += usize::from(level >= exists);
        }
        check(row, length)
    }
}

/// The definition level from which on there is a value, which may be missing: a null, or no element of a list.
fn level_in_list(column: &ColumnDescriptor) -> i16 {
    match column.max_rep_level() {
        0 => 0,
        _ => column.max_def_level() - i16::from(column.self_type().is_optional()),
    }
}

/// Refuses a column that has no numbers, nor lists of numbers.
fn check_numbers(column: &ColumnDescriptor) -> std::result::Result<(), String> {
    let is_list = column.max_rep_level() == 1;
    let has_numbers = is_number(column) || column.physical_type() == Type::BOOLEAN;
    match has_numbers && (is_list || is_flat(column)) {
        true => Ok(()),
        false => Err(format!(
            "expected numbers, or lists of numbers, in column {} ({}); name other columns with --features-from or --label, or write \
             numbers",
            name(column),
            column.physical_type()
        )),
    }
}
