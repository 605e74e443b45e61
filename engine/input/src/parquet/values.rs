//! The next values of a column in a Parquet file.

use std::str::Utf8Error;

use grappa_io::{Error, Position, Result};
use parquet::{
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, DataType},
    errors::ParquetError,
    schema::types::ColumnDescriptor,
};

use super::{
    ParquetTable, ReadValues, read_column,
    types::{ValueType, is_signed, name},
};
use crate::table::Cell;

const DAY_MILLISECONDS: f64 = 86_400e3;

pub(crate) enum Values {
    /// A missing number is NaN.
    Numbers(Vec<f64>),
    Booleans(Vec<f64>),
    /// Days since 1970-01-01. A missing one is NaN.
    Dates(Vec<f64>),
    Strings(Vec<Option<ByteArray>>),
}

impl Values {
    pub fn cell(&self, index: usize) -> std::result::Result<Cell<'_>, Utf8Error> {
        Ok(match self {
            Self::Numbers(values) => Cell::Number(values[index]),
            Self::Booleans(values) | Self::Dates(values) if values[index].is_nan() => Cell::Missing,
            Self::Booleans(values) => Cell::Boolean(values[index] != 0.0),
            Self::Dates(values) => Cell::Date(values[index]),
            Self::Strings(values) => match &values[index] {
                Some(text) => Cell::String(str::from_utf8(text.data())?),
                None => Cell::Missing,
            },
        })
    }
}

pub(crate) struct NextRows<'a> {
    pub table: &'a ParquetTable,
    pub column: &'a ColumnDescriptor,
    /// Rows to skip, and rows to read after them.
    pub skip: usize,
    pub rows: usize,
    /// The number of the first one.
    pub first: u64,
    /// Numbers per row, if they are lists.
    pub dim: usize,
}

impl NextRows<'_> {
    pub fn values(&self, reader: &mut ColumnReader) -> Result<Values> {
        let signed = is_signed(self.column);
        let value_type = ValueType::of(self.column);
        Ok(match reader {
            ColumnReader::BoolColumnReader(reader) => {
                Values::Booleans(self.numbers(reader, |value| f64::from(u8::from(value)))?)
            }
            ColumnReader::FloatColumnReader(reader) => Values::Numbers(self.numbers(reader, f64::from)?),
            ColumnReader::DoubleColumnReader(reader) => Values::Numbers(self.numbers(reader, |value| value)?),
            ColumnReader::Int32ColumnReader(reader) if value_type == ValueType::Days => {
                Values::Dates(self.numbers(reader, f64::from)?)
            }
            // Parquet has the bits of unsigned integers in signed ones.
            ColumnReader::Int32ColumnReader(reader) => Values::Numbers(self.numbers(reader, |value| match signed {
                true => f64::from(value),
                false => f64::from(value.cast_unsigned()),
            })?),
            ColumnReader::Int64ColumnReader(reader) => match value_type {
                ValueType::Moments(per_day) => Values::Dates(self.numbers(reader, |value| value as f64 / per_day)?),
                _ => Values::Numbers(self.numbers(reader, |value| match signed {
                    true => value as f64,
                    false => value.cast_unsigned() as f64,
                })?),
            },
            ColumnReader::Int96ColumnReader(reader) => {
                Values::Dates(self.numbers(reader, |value| value.to_millis() as f64 / DAY_MILLISECONDS)?)
            }
            ColumnReader::ByteArrayColumnReader(reader) => Values::Strings(self.read(reader, Some, || None)?),
            ColumnReader::FixedLenByteArrayColumnReader(_) => unreachable!("columns of other types are refused"),
        })
    }

    fn numbers<T: DataType>(&self, reader: &mut ColumnReaderImpl<T>, number: impl Fn(T::T) -> f64) -> Result<Vec<f64>> {
        self.read(reader, number, || f64::NAN)
    }

    fn read<T: DataType, V>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        value: impl Fn(T::T) -> V,
        missing: impl Fn() -> V,
    ) -> Result<Vec<V>> {
        let read = read_column(reader, self.column, self.skip, self.rows)
            .map_err(|error| self.table.damaged(self.first, &error))?;
        if self.column.max_rep_level() == 0 && read.levels.is_empty() {
            return Ok(read.values.into_iter().map(value).collect());
        }
        self.check_lists(&read)?;
        let (present, exists) = (self.column.max_def_level(), level_in_list(self.column));
        let mut values = read.values.into_iter();
        let levels = read.levels.iter().filter(|&&level| level >= exists);
        let found: Vec<V> = levels
            .map(|&level| match level == present {
                true => values.next().map_or_else(&missing, &value),
                false => missing(),
            })
            .collect();
        // Levels of a damaged file may begin within a list.
        let of_row = if self.column.max_rep_level() > 0 { self.dim } else { 1 };
        match found.len() == self.rows * of_row {
            true => Ok(found),
            false => {
                let error = ParquetError::General("its lists are inconsistent".to_owned());
                Err(self.table.damaged(self.first, &error))
            }
        }
    }

    /// Refuses lists of other lengths than the first one.
    fn check_lists<T>(&self, read: &ReadValues<T>) -> Result<()> {
        if self.column.max_rep_level() == 0 {
            return Ok(());
        }
        let exists = level_in_list(self.column);
        let mut lengths = Vec::with_capacity(self.rows);
        for (&repeat, &level) in read.repeats.iter().zip(&read.levels) {
            if repeat == 0 {
                lengths.push(0);
            }
            // Levels of a damaged file may begin within a list.
            if let Some(length) = lengths.last_mut() {
                *length += usize::from(level >= exists);
            }
        }
        let Some(at) = lengths.iter().position(|&length| length != self.dim) else {
            return Ok(());
        };
        let what = format!(
            "expected a list of {} numbers in column {}, as in the first row, found {}",
            self.dim,
            name(self.column),
            lengths[at]
        );
        Err(Error::input(self.table.file.path(), Position::Row(self.first + at as u64), what))
    }
}

/// The definition level from which on there is a value, which may be missing: a null, or no element of a list.
pub(crate) fn level_in_list(column: &ColumnDescriptor) -> i16 {
    match column.max_rep_level() {
        0 => 0,
        _ => column.max_def_level() - i16::from(column.self_type().is_optional()),
    }
}
