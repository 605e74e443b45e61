//! Node ids in a column of a Parquet file.

use std::{collections::HashSet, sync::Arc};

use grappa_io::{Error, Position, Result};
use parquet::{
    basic::Type,
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, DataType},
};

use super::{forms::TableForm, text_table::FirstValues};
use crate::{
    columns::{Kind, Purpose, Roles, TableColumn},
    conversions::Conversion,
    edges::{IdKind, id_of_float},
    file::InputFile,
    messages::Checked,
    parquet::{
        Cursor, ParquetTable, read_column,
        types::{ValueType, described, is_flat, is_integer, is_number, is_signed, is_string, name},
    },
};

/// The first rows that show what a column has.
const FIRST_ROWS: u64 = 100;

pub(super) struct ParquetIds {
    table: ParquetTable,
    column: usize,
    cursor: Cursor,
}

impl ParquetIds {
    /// Reads the footer and finds the column: by its name, or because it is the only one. `like`: its name in another part of the table,
    /// which it has if there is such a column.
    pub fn open(file: &Arc<InputFile>, kind: IdKind, form: &TableForm, like: Option<&str>) -> Result<Self> {
        let table = ParquetTable::open(file)?;
        let schema = table.schema();
        let like = like.and_then(|like| schema.columns().iter().position(|column| column.name() == like));
        let id = match schema.num_columns() {
            1 => Some(0),
            _ if like.is_some() => like,
            _ => Roles::id_of(&columns_of(&table)?, true, &form.columns).map_err(|what| file.error(what))?,
        };
        let Some(column) = id else {
            let names: Vec<_> = schema.columns().iter().map(|column| described(column)).collect();
            return Err(file.error(format!(
                "expected a column of node ids that is named id or the like, or only one column; give --id with one of {}",
                names.join(", ")
            )));
        };
        let descriptor = schema.column(column);
        let fits = is_flat(&descriptor)
            && match kind {
                IdKind::Integer => is_number(&descriptor),
                IdKind::String => is_string(&descriptor),
            };
        if !fits {
            let (column, name) = (described(&descriptor), name(&descriptor));
            return Err(file.error(match kind {
                IdKind::Integer => format!(
                    "expected integers in column {column}; strings need --ids string; if another column has the ids, give --id; other \
                     types need a cast: {}",
                    Conversion::ParquetToIntegers.command_for(file.path(), name)
                ),
                IdKind::String => {
                    format!(
                        "expected strings in column {column}; integers need --ids dense or sparse; if another column has the ids, give \
                         --id; other types need a cast: {}",
                        Conversion::ParquetToStrings.command_for(file.path(), name)
                    )
                }
            }));
        }
        table.check_columns([column].into_iter())?;
        Ok(Self { table, column, cursor: Cursor::default() })
    }

    pub fn rows(&self) -> u64 {
        self.table.rows
    }

    pub fn name(&self) -> &str {
        self.table.schema().columns()[self.column].name()
    }

    pub fn is_at_end(&self) -> bool {
        self.cursor.row == self.rows()
    }

    pub fn next_row(&self) -> u64 {
        self.cursor.row
    }

    /// The next ids, `count` at most. None of them only at the end.
    pub fn next_integers(&mut self, count: usize) -> Result<Vec<i128>> {
        let signed = is_signed(&self.table.schema().column(self.column));
        self.next(count, |ids, reader| match reader {
            ColumnReader::Int32ColumnReader(reader) => ids.read(reader, |id| match signed {
                true => Ok(id.into()),
                false => Ok(id.cast_unsigned().into()),
            }),
            ColumnReader::Int64ColumnReader(reader) => ids.read(reader, |id| match signed {
                true => Ok(id.into()),
                false => Ok(id.cast_unsigned().into()),
            }),
            ColumnReader::FloatColumnReader(reader) => {
                ids.read(reader, |id| integer_of(id.into(), f32::MANTISSA_DIGITS))
            }
            ColumnReader::DoubleColumnReader(reader) => ids.read(reader, |id| integer_of(id, f64::MANTISSA_DIGITS)),
            _ => unreachable!("integers are read from columns of integers or floats"),
        })
    }

    /// The next ids, `count` at most. None of them only at the end.
    pub fn next_strings(&mut self, count: usize) -> Result<Vec<ByteArray>> {
        self.next(count, |ids, reader| match reader {
            ColumnReader::ByteArrayColumnReader(reader) => ids.read(reader, Ok),
            _ => unreachable!("strings are read from columns of strings"),
        })
    }

    fn next<T>(
        &mut self,
        count: usize,
        read: impl Fn(&NextIds<'_>, &mut ColumnReader) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        if self.is_at_end() {
            return Ok(Vec::new());
        }
        let Self { table, column, cursor } = self;
        let (column, first) = (*column, cursor.row);
        cursor.read(table, &[column], first + count as u64, |readers, _, rows| {
            read(&NextIds { table, column, first, rows }, &mut readers[0])
        })
    }
}

struct NextIds<'a> {
    table: &'a ParquetTable,
    column: usize,
    first: u64,
    rows: usize,
}

impl NextIds<'_> {
    /// Reads them. `each` makes an id of a value, or says why it is none.
    fn read<T: DataType, U>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        each: impl Fn(T::T) -> Checked<U>,
    ) -> Result<Vec<U>> {
        let column = self.table.schema().column(self.column);
        let read =
            read_column(reader, &column, 0, self.rows).map_err(|error| self.table.damaged(self.first, &error))?;
        let refused = |row, what| Error::input(self.table.file.path(), Position::Row(row), what);
        if let Some(missing) = read.levels.iter().position(|&level| level == 0) {
            let what = format!("expected a node id in column {}, found a missing value", name(&column));
            return Err(refused(self.first + missing as u64, what));
        }
        (self.first..).zip(read.values).map(|(row, value)| each(value).map_err(|what| refused(row, what))).collect()
    }
}

/// The id in a float of a type with `digits` binary digits.
fn integer_of(value: f64, digits: u32) -> Checked<i128> {
    let id =
        id_of_float(value, digits).map_err(|bad| format!("expected a node id, found {value}: {}", bad.reason()))?;
    Ok(id.into())
}

fn columns_of(table: &ParquetTable) -> Result<Vec<TableColumn<'_>>> {
    let columns = table.schema().columns().iter().enumerate();
    columns
        .map(|(at, column)| {
            Ok(TableColumn {
                name: name(column),
                kind: match ValueType::of(column) {
                    ValueType::String => kind_of_strings(table, at)?,
                    ValueType::Number | ValueType::Boolean => Kind::Numbers,
                    ValueType::Days | ValueType::Moments(_) | ValueType::OldMoments => Kind::Encodable,
                    ValueType::Other if is_number(column) || column.physical_type() == Type::BOOLEAN => Kind::Numbers,
                    ValueType::Other => Kind::Others,
                },
            })
        })
        .collect()
}

/// What the first values of a column of strings are.
fn kind_of_strings(table: &ParquetTable, at: usize) -> Result<Kind> {
    let column = table.schema().column(at);
    let (mut values, mut rows) = (Vec::new(), 0);
    table.check_columns([at].into_iter())?;
    for (index, group) in table.groups.iter().enumerate() {
        let count = group.rows.min(FIRST_ROWS - rows);
        if count == 0 {
            break;
        }
        let ColumnReader::ByteArrayColumnReader(mut reader) = table.column(index, at)? else {
            unreachable!("strings are byte arrays");
        };
        let read = read_column(&mut reader, &column, 0, count as usize)
            .map_err(|error| table.damaged(group.first_row, &error))?;
        values.extend(read.values);
        rows += count;
    }
    if rows == 0 {
        return Ok(Kind::Strings);
    }
    // Strings of digits are names too, if they are all different.
    let different: HashSet<&[u8]> = values.iter().map(ByteArray::data).collect();
    let are_names = !values.is_empty() && different.len() == values.len();
    Ok(match FirstValues::of(values.iter().map(ByteArray::data)).kind {
        Kind::Numbers | Kind::DistinctIntegers if are_names => Kind::Strings,
        Kind::Numbers | Kind::DistinctIntegers => Kind::Encodable,
        kind => kind,
    })
}

pub(super) fn roles_of(table: &ParquetTable, purpose: Purpose, form: &TableForm) -> Result<Roles> {
    let schema = table.schema();
    let mut columns = columns_of(table)?;
    let file = &table.file;
    // Only if no name tells the ids, their values do: reading them takes a page of each column.
    let id = Roles::id_of(&columns, true, &form.columns).map_err(|what| file.error(what))?;
    if id.is_none() {
        for (at, column) in columns.iter_mut().enumerate() {
            if is_flat(&schema.column(at)) && is_integer(&schema.column(at)) && are_distinct(table, at)? {
                column.kind = Kind::DistinctIntegers;
            }
        }
    }
    Roles::of(&columns, true, purpose, &form.columns).map_err(|what| file.error(what))
}

/// Whether the first values of a column of integers are different ones, none of them negative or missing.
fn are_distinct(table: &ParquetTable, at: usize) -> Result<bool> {
    let column = table.schema().column(at);
    let Some(group) = table.groups.first() else {
        return Ok(false);
    };
    let rows = group.rows.min(FIRST_ROWS) as usize;
    table.check_columns([at].into_iter())?;
    let values: Vec<i64> = match table.column(0, at)? {
        ColumnReader::Int32ColumnReader(mut reader) => {
            let read = read_column(&mut reader, &column, 0, rows).map_err(|error| table.damaged(0, &error))?;
            read.values.into_iter().map(i64::from).collect()
        }
        ColumnReader::Int64ColumnReader(mut reader) => {
            let read = read_column(&mut reader, &column, 0, rows).map_err(|error| table.damaged(0, &error))?;
            read.values
        }
        _ => unreachable!("integers are in columns of integers"),
    };
    let different: HashSet<i64> = values.iter().copied().filter(|&value| value >= 0).collect();
    Ok(rows > 1 && different.len() == rows)
}
