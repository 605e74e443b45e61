//! The values of Arrow arrays: numbers as f64, ids as 64-bit words, strings as bytes.

use std::str::Utf8Error;

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType,
    cast::AsArray,
    types::{
        Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
        UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType, TimeUnit};

use super::types::ValueType;
use crate::table::Cell;

/// The values of a column in some rows.
pub(crate) enum Values {
    /// A missing number is NaN.
    Numbers(Vec<f64>),
    /// 0 and 1. A missing one is NaN.
    Booleans(Vec<f64>),
    /// Days since 1970-01-01. A missing one is NaN.
    Dates(Vec<f64>),
    Strings(ArrayRef),
}

impl Values {
    /// The values of an array of this type.
    pub fn new(array: &ArrayRef, value_type: ValueType) -> Self {
        match value_type {
            ValueType::Number => Self::Numbers(numbers(array)),
            ValueType::Boolean => Self::Booleans(numbers(array)),
            ValueType::Days => Self::Dates(numbers(array)),
            ValueType::Moments(per_day) => {
                Self::Dates(numbers(array).into_iter().map(|value| value / per_day).collect())
            }
            ValueType::String => Self::Strings(array.clone()),
            ValueType::Duration | ValueType::Other => unreachable!("columns of other types are refused"),
        }
    }

    pub fn cell(&self, index: usize) -> Result<Cell<'_>, Utf8Error> {
        Ok(match self {
            Self::Numbers(values) => Cell::Number(values[index]),
            Self::Booleans(values) | Self::Dates(values) if values[index].is_nan() => Cell::Missing,
            Self::Booleans(values) => Cell::Boolean(values[index] != 0.0),
            Self::Dates(values) => Cell::Date(values[index]),
            Self::Strings(array) => match text(array, index) {
                Some(text) => Cell::String(str::from_utf8(text)?),
                None => Cell::Missing,
            },
        })
    }
}

/// The bytes of a string. None if it is missing.
pub(crate) fn text(array: &dyn Array, index: usize) -> Option<&[u8]> {
    if array.is_null(index) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(index).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(index).as_bytes(),
        DataType::Utf8View => array.as_string_view().value(index).as_bytes(),
        DataType::Binary => array.as_binary::<i32>().value(index),
        DataType::LargeBinary => array.as_binary::<i64>().value(index),
        DataType::BinaryView => array.as_binary_view().value(index),
        other => unreachable!("strings have no type {other}"),
    })
}

/// The values of an array of numbers, booleans, dates or timestamps. A missing one is NaN.
pub(crate) fn numbers(array: &dyn Array) -> Vec<f64> {
    match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            array.iter().map(|value| value.map_or(f64::NAN, |value| f64::from(u8::from(value)))).collect()
        }
        DataType::Int8 => each::<Int8Type>(array, f64::from),
        DataType::Int16 => each::<Int16Type>(array, f64::from),
        DataType::Int32 => each::<Int32Type>(array, f64::from),
        DataType::Int64 => each::<Int64Type>(array, |value| value as f64),
        DataType::UInt8 => each::<UInt8Type>(array, f64::from),
        DataType::UInt16 => each::<UInt16Type>(array, f64::from),
        DataType::UInt32 => each::<UInt32Type>(array, f64::from),
        DataType::UInt64 => each::<UInt64Type>(array, |value| value as f64),
        DataType::Float16 => each::<Float16Type>(array, f64::from),
        DataType::Float32 => each::<Float32Type>(array, f64::from),
        DataType::Float64 => each::<Float64Type>(array, |value| value),
        DataType::Date32 => each::<Date32Type>(array, f64::from),
        DataType::Date64 => each::<Date64Type>(array, |value| value as f64),
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => each::<TimestampSecondType>(array, |value| value as f64),
            TimeUnit::Millisecond => each::<TimestampMillisecondType>(array, |value| value as f64),
            TimeUnit::Microsecond => each::<TimestampMicrosecondType>(array, |value| value as f64),
            TimeUnit::Nanosecond => each::<TimestampNanosecondType>(array, |value| value as f64),
        },
        other => unreachable!("numbers have no type {other}"),
    }
}

fn each<T: ArrowPrimitiveType>(array: &dyn Array, number: impl Fn(T::Native) -> f64) -> Vec<f64> {
    let array = array.as_primitive::<T>();
    match array.nulls() {
        None => array.values().iter().map(|&value| number(value)).collect(),
        Some(nulls) => {
            let values = array.values().iter().zip(nulls);
            values.map(|(&value, is_present)| if is_present { number(value) } else { f64::NAN }).collect()
        }
    }
}

/// Ids in 64-bit words.
pub(crate) struct Ids {
    /// The integers, or the bits of their floats as f64. A missing one is any number.
    pub words: Vec<u64>,
    /// Binary digits of the floats. None for integers.
    pub float_digits: Option<u32>,
}

impl Ids {
    /// The values of an array of integers or floats.
    pub fn new(array: &dyn Array) -> Self {
        let words = match array.data_type() {
            DataType::Int8 => words::<Int8Type>(array, |id| i64::from(id).cast_unsigned()),
            DataType::Int16 => words::<Int16Type>(array, |id| i64::from(id).cast_unsigned()),
            DataType::Int32 => words::<Int32Type>(array, |id| i64::from(id).cast_unsigned()),
            DataType::Int64 => words::<Int64Type>(array, i64::cast_unsigned),
            DataType::UInt8 => words::<UInt8Type>(array, u64::from),
            DataType::UInt16 => words::<UInt16Type>(array, u64::from),
            DataType::UInt32 => words::<UInt32Type>(array, u64::from),
            DataType::UInt64 => words::<UInt64Type>(array, |id| id),
            DataType::Float16 => words::<Float16Type>(array, |id| f64::from(id).to_bits()),
            DataType::Float32 => words::<Float32Type>(array, |id| f64::from(id).to_bits()),
            DataType::Float64 => words::<Float64Type>(array, f64::to_bits),
            other => unreachable!("ids have no type {other}"),
        };
        let float_digits = match array.data_type() {
            DataType::Float16 => Some(FLOAT16_DIGITS),
            DataType::Float32 => Some(f32::MANTISSA_DIGITS),
            DataType::Float64 => Some(f64::MANTISSA_DIGITS),
            _ => None,
        };
        Self { words, float_digits }
    }
}

const FLOAT16_DIGITS: u32 = 11;

fn words<T: ArrowPrimitiveType>(array: &dyn Array, word: impl Fn(T::Native) -> u64) -> Vec<u64> {
    array.as_primitive::<T>().values().iter().map(|&id| word(id)).collect()
}

/// The elements of a column of lists, one list after another. All lists have `dim` elements.
///
/// # Errors
/// The index and the length of the first list of another length. A missing list has none.
pub(crate) fn list_numbers(array: &dyn Array, dim: usize) -> Result<Vec<f64>, (usize, usize)> {
    let lists = Lists::new(array);
    let mut elements = Vec::with_capacity(array.len() * dim);
    for index in 0..array.len() {
        let length = lists.length(index);
        if length != dim {
            return Err((index, length));
        }
        elements.extend(numbers(&lists.elements(index)));
    }
    Ok(elements)
}

/// The number of elements of the first list. A missing list has none.
pub(crate) fn first_list_length(array: &dyn Array) -> usize {
    Lists::new(array).length(0)
}

struct Lists<'a>(&'a dyn Array);

impl<'a> Lists<'a> {
    fn new(array: &'a dyn Array) -> Self {
        Self(array)
    }

    fn length(&self, index: usize) -> usize {
        match self.0.is_null(index) {
            true => 0,
            false => self.elements(index).len(),
        }
    }

    fn elements(&self, index: usize) -> ArrayRef {
        match self.0.data_type() {
            DataType::List(_) => self.0.as_list::<i32>().value(index),
            DataType::LargeList(_) => self.0.as_list::<i64>().value(index),
            _ => self.0.as_fixed_size_list().value(index),
        }
    }
}
