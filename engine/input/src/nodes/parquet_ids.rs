//! Node ids in a column of a Parquet file.

use std::sync::Arc;

use grappa_io::{Error, Position, Result};
use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, DataType},
    schema::types::SchemaDescriptor,
};

use super::table_columns::{ID_NAMES, INDEX_OF_PANDAS};
use crate::{
    edges::IdKind,
    file::InputFile,
    parquet::{
        ParquetTable, read_column,
        types::{described, is_flat, is_integer, is_signed, is_string, name},
    },
};

/// The ids in a column of a table.
pub(super) struct ParquetIds {
    table: ParquetTable,
    column: usize,
    row: u64,
    /// The row group, and its column after `row`.
    open: Option<(usize, ColumnReader)>,
}

impl ParquetIds {
    /// Reads the footer and finds the column: by its name, or because it is the only one.
    pub fn open(file: &Arc<InputFile>, kind: IdKind) -> Result<Self> {
        let refuse = |what: String| Error::input(file.path(), Position::Whole, what);
        let table = ParquetTable::open(file)?;
        let schema = table.schema();
        let only = || (schema.num_columns() == 1).then_some(0);
        let Some(column) = id_column(schema).or_else(only) else {
            let names: Vec<_> = schema.columns().iter().map(|column| described(column)).collect();
            return Err(refuse(format!(
                "expected a column of node ids that is named id, or only one column; found {}",
                names.join(", ")
            )));
        };
        let descriptor = schema.column(column);
        let fits = is_flat(&descriptor)
            && match kind {
                IdKind::Integer => is_integer(&descriptor),
                IdKind::String => is_string(&descriptor),
            };
        if !fits {
            let column = described(&descriptor);
            return Err(refuse(match kind {
                IdKind::Integer => format!(
                    "expected integers in column {column}; strings need --ids string, other types a cast to int64"
                ),
                IdKind::String => {
                    format!("expected strings in column {column}; integers need --ids dense or sparse")
                }
            }));
        }
        table.check_columns([column].into_iter())?;
        Ok(Self {
            table,
            column,
            row: 0,
            open: None,
        })
    }

    pub fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// The name of the column.
    pub fn name(&self) -> &str {
        self.table.schema().columns()[self.column].name()
    }

    pub fn is_at_end(&self) -> bool {
        self.row == self.rows()
    }

    /// The row of the next id.
    pub fn next_row(&self) -> u64 {
        self.row
    }

    /// The next ids, `count` at most. None of them only at the end.
    pub fn next_integers(&mut self, count: usize) -> Result<Vec<i128>> {
        let signed = is_signed(&self.table.schema().column(self.column));
        self.next(count, |ids, reader, rows| match reader {
            ColumnReader::Int32ColumnReader(reader) => ids.read(reader, rows, |id: i32| match signed {
                true => i128::from(id),
                false => i128::from(id.cast_unsigned()),
            }),
            ColumnReader::Int64ColumnReader(reader) => ids.read(reader, rows, |id: i64| match signed {
                true => i128::from(id),
                false => i128::from(id.cast_unsigned()),
            }),
            _ => unreachable!("integers are read from columns of integers"),
        })
    }

    /// The next ids, `count` at most. None of them only at the end.
    pub fn next_strings(&mut self, count: usize) -> Result<Vec<ByteArray>> {
        self.next(count, |ids, reader, rows| match reader {
            ColumnReader::ByteArrayColumnReader(reader) => ids.read(reader, rows, |id| id),
            _ => unreachable!("strings are read from columns of strings"),
        })
    }

    fn next<T>(
        &mut self,
        count: usize,
        read: impl Fn(&Self, &mut ColumnReader, usize) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        if self.is_at_end() {
            return Ok(Vec::new());
        }
        let (group, mut reader) = match self.open.take() {
            Some(open) => open,
            None => {
                let after = self.table.groups().partition_point(|group| group.first_row <= self.row);
                (after - 1, self.table.column(after - 1, self.column)?)
            }
        };
        let bounds = &self.table.groups()[group];
        let left = bounds.first_row + bounds.rows - self.row;
        let rows = left.min(count as u64);
        let ids = read(self, &mut reader, rows as usize)?;
        self.row += rows;
        if rows < left {
            self.open = Some((group, reader));
        }
        Ok(ids)
    }

    fn read<T: DataType, U>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        each: impl FnMut(T::T) -> U,
    ) -> Result<Vec<U>> {
        let column = self.table.schema().column(self.column);
        let read = read_column(reader, &column, 0, rows).map_err(|error| self.table.damaged(self.row, &error))?;
        match read.levels.iter().position(|&level| level == 0) {
            None => Ok(read.values.into_iter().map(each).collect()),
            Some(missing) => Err(Error::input(
                self.table.file().path(),
                Position::Row(self.row + missing as u64),
                format!("expected a node id in column {}, found a missing value", name(&column)),
            )),
        }
    }
}

/// The column of ids, if one is named so.
pub(super) fn id_column(schema: &SchemaDescriptor) -> Option<usize> {
    let mut names = ID_NAMES.iter().chain([&INDEX_OF_PANDAS]);
    names.find_map(|id| {
        let columns = &mut schema.columns().iter();
        columns.position(|column| is_flat(column) && column.name().eq_ignore_ascii_case(id))
    })
}
