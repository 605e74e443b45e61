//! A table of Arrow columns, and the cursor that reads it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    path::Path,
    sync::Arc,
};

use arrow_array::{Array, ArrayRef, RecordBatch, cast::AsArray};
use arrow_schema::{DataType, Field, SchemaRef};
use arrow_select::take::take;
use grappa_io::{Error, Position, Result};

use super::{
    parquet::{BatchReader, ParquetFile},
    row_group::{ArrowResult, RowGroup},
    types::{ValueType, described, is_integer},
    values::{Ids, numbers, text},
};
use crate::{
    file::InputFile,
    input::{MemoryData, MemoryInput},
};

/// A table of Arrow columns.
pub(crate) struct ColumnTable {
    pub file: Arc<InputFile>,
    pub schema: SchemaRef,
    pub rows: u64,
    /// The row groups that are not empty.
    pub groups: Vec<RowGroup>,
    content: Content,
}

enum Content {
    Parquet(ParquetFile),
    /// A batch for each group.
    Memory(Vec<RecordBatch>),
}

impl ColumnTable {
    /// Reads the footer of a Parquet file.
    pub fn open(file: &Arc<InputFile>) -> Result<Self> {
        let content = ParquetFile::open(file)?;
        Ok(Self::new(file.clone(), content.schema(), content.groups(), Content::Parquet(content)))
    }

    /// The table that data in memory is. None if it is an array or a matrix.
    pub fn of_memory(input: &MemoryInput) -> Result<Option<Self>> {
        match &input.data {
            MemoryData::Table(schema, batches) => {
                let file = InputFile::of_table(&input.name, input.data.total_bytes());
                Ok(Some(Self::of_batches(file, schema, batches)))
            }
            MemoryData::Parquet(bytes) => Self::open(&InputFile::of_array(&input.name, bytes)).map(Some),
            MemoryData::Array(_) | MemoryData::Matrix(_) => Ok(None),
        }
    }

    fn of_batches(file: Arc<InputFile>, schema: &SchemaRef, batches: &[RecordBatch]) -> Self {
        let batches: Vec<_> = batches.iter().filter(|batch| batch.num_rows() > 0).cloned().collect();
        let mut first_row = 0;
        let groups = batches.iter().map(|batch| {
            let group = RowGroup { first_row, rows: batch.num_rows() as u64 };
            first_row += group.rows;
            group
        });
        let groups = groups.collect();
        Self::new(file, schema.clone(), groups, Content::Memory(batches))
    }

    fn new(file: Arc<InputFile>, schema: SchemaRef, groups: Vec<RowGroup>, content: Content) -> Self {
        let rows = groups.last().map_or(0, |group: &RowGroup| group.first_row + group.rows);
        Self { file, schema, rows, groups, content }
    }

    /// The format, for people.
    pub fn format(&self) -> &'static str {
        match &self.content {
            Content::Parquet(_) => "Parquet",
            Content::Memory(_) => "table",
        }
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn column(&self, index: usize) -> &Field {
        self.schema.field(index)
    }

    /// The names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.fields().iter().map(|field| field.name().as_str())
    }

    /// What a Parquet file says about itself, by key.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        match &self.content {
            Content::Parquet(file) => file.key_values(),
            Content::Memory(_) => self.schema.metadata().clone().into_iter().collect(),
        }
    }

    /// Refuses columns that cannot be read.
    pub fn check_columns(&self, columns: impl Iterator<Item = usize> + Clone) -> Result<()> {
        match &self.content {
            Content::Parquet(file) => file.check_columns(columns),
            Content::Memory(_) => Ok(()),
        }
    }

    /// The largest size of a column in a row group, in bytes, decompressed. None in memory, which the caller provides.
    pub fn column_bytes_max(&self, column: usize) -> u64 {
        match &self.content {
            Content::Parquet(file) => file.column_bytes_max(column),
            Content::Memory(_) => 0,
        }
    }

    /// The error about data that cannot be read from `row` on.
    pub fn damaged(&self, row: u64, error: impl Display) -> Error {
        self.refused(row, format!("the Parquet data from here on cannot be read ({error}); write the file again"))
    }

    /// The error about a row.
    pub fn refused(&self, row: u64, problem: impl Into<String>) -> Error {
        Error::input(self.path(), Position::Row(row), problem)
    }
}

/// Reads rows of some columns of a table, front to back.
#[derive(Default)]
pub(crate) struct Cursor {
    row: u64,
    reader: Option<BatchReader>,
    /// Rows that the reader has returned, and the cursor has not.
    pending: Option<RecordBatch>,
}

impl Cursor {
    pub fn at(row: u64) -> Self {
        Self { row, ..Self::default() }
    }

    /// The next row.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// Returns the next rows of `columns`, 1 to `rows_max`, or none at the end of the table. All calls name the same columns.
    pub fn next(&mut self, table: &ColumnTable, columns: &[usize], rows_max: usize) -> Result<Option<Vec<ArrayRef>>> {
        let batch = match self.pending.take() {
            Some(batch) => batch,
            None if self.row >= table.rows => return Ok(None),
            None => self.read(table, columns, rows_max).map_err(|error| table.damaged(self.row, error))?,
        };
        let rows = batch.num_rows().min(rows_max);
        if rows < batch.num_rows() {
            self.pending = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.row += rows as u64;
        // A batch has each column once, in the order of the schema.
        let place = |column: &usize| columns.iter().filter(|other| *other < column).collect::<BTreeSet<_>>().len();
        let arrays = columns.iter().map(|column| plain(&batch.column(place(column)).slice(0, rows)));
        let arrays =
            arrays.collect::<ArrowResult<_>>().map_err(|error| table.damaged(self.row - rows as u64, error))?;
        Ok(Some(arrays))
    }

    fn read(&mut self, table: &ColumnTable, columns: &[usize], rows_max: usize) -> ArrowResult<RecordBatch> {
        let file = match &table.content {
            Content::Parquet(file) => file,
            Content::Memory(batches) => {
                let number = table.groups.partition_point(|group| group.first_row <= self.row) - 1;
                let first = (self.row - table.groups[number].first_row) as usize;
                let columns: BTreeSet<usize> = columns.iter().copied().collect();
                let batch = batches[number].project(&columns.into_iter().collect::<Vec<_>>())?;
                return Ok(batch.slice(first, batch.num_rows() - first));
            }
        };
        let reader = match &mut self.reader {
            Some(reader) => reader,
            closed => closed.insert(file.reader(columns, self.row, rows_max)?),
        };
        let batch = reader.next_batch();
        // A reader that failed is in no known state.
        if batch.is_err() {
            self.reader = None;
        }
        batch
    }
}

/// The array with the values of a dictionary instead of their keys.
fn plain(array: &ArrayRef) -> ArrowResult<ArrayRef> {
    match array.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            take(dictionary.values(), dictionary.keys(), None)
        }
        _ => Ok(array.clone()),
    }
}

/// Rows that [`read_table`] reads at a time.
const READ_ROWS: usize = 1 << 16;

/// The values of a column of a whole table.
#[derive(Debug, Clone, PartialEq)]
pub enum TableColumn {
    /// Integers, 0 or more.
    Integers(Vec<u64>),
    /// 32-bit floats. A missing one is NaN.
    Floats(Vec<f32>),
    /// Strings. A missing one is empty.
    Strings(Vec<Vec<u8>>),
}

/// Reads a Parquet file that Grappa has written: its columns with their names.
///
/// # Errors
/// If the file cannot be read, or has columns of other types.
pub fn read_table(path: &Path) -> Result<Vec<(String, TableColumn)>> {
    let table = ColumnTable::open(&InputFile::open(path)?)?;
    let all: Vec<usize> = (0..table.schema.fields().len()).collect();
    table.check_columns(all.iter().copied())?;
    let mut columns = Vec::new();
    for column in all {
        let field = table.column(column);
        let mut values = match ValueType::from_field(field) {
            ValueType::Number if is_integer(field) => TableColumn::Integers(Vec::new()),
            ValueType::Number => TableColumn::Floats(Vec::new()),
            ValueType::String => TableColumn::Strings(Vec::new()),
            _ => {
                let problem = format!("expected numbers or strings in column {}", described(field));
                return Err(table.file.error(problem));
            }
        };
        let mut cursor = Cursor::default();
        while let Some(arrays) = cursor.next(&table, &[column], READ_ROWS)? {
            let array = &arrays[0];
            match &mut values {
                TableColumn::Integers(values) => values.extend(Ids::new(array).words),
                TableColumn::Floats(values) => values.extend(numbers(array).into_iter().map(|number| number as f32)),
                TableColumn::Strings(values) => {
                    values.extend((0..array.len()).map(|row| text(array, row).unwrap_or_default().to_vec()));
                }
            }
        }
        columns.push((field.name().clone(), values));
    }
    Ok(columns)
}
