//! The types of columns.

use parquet::{
    basic::{ConvertedType, LogicalType, TimeUnit, Type},
    schema::types::ColumnDescriptor,
};

/// Whether a column has one value, or none, in each row.
pub(crate) fn is_flat(column: &ColumnDescriptor) -> bool {
    column.max_rep_level() == 0 && column.path().parts().len() == 1
}

/// Whether a column has integers, and not dates or decimals, which are stored as integers too.
pub(crate) fn is_integer(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Type::INT32 | Type::INT64)
        && match column.logical_type_ref() {
            Some(logical) => matches!(logical, LogicalType::Integer(_)),
            None => matches!(
                column.converted_type(),
                ConvertedType::NONE
                    | ConvertedType::INT_8
                    | ConvertedType::INT_16
                    | ConvertedType::INT_32
                    | ConvertedType::INT_64
                    | ConvertedType::UINT_8
                    | ConvertedType::UINT_16
                    | ConvertedType::UINT_32
                    | ConvertedType::UINT_64
            ),
        }
}

pub(crate) fn is_signed(column: &ColumnDescriptor) -> bool {
    match column.logical_type_ref() {
        Some(LogicalType::Integer(integer)) => integer.is_signed,
        _ => !matches!(
            column.converted_type(),
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64
        ),
    }
}

pub(crate) fn is_string(column: &ColumnDescriptor) -> bool {
    column.physical_type() == Type::BYTE_ARRAY && column.converted_type() != ConvertedType::DECIMAL
}

/// Whether a column has integers or floats.
pub(crate) fn is_number(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE) || is_integer(column)
}

/// What a column has in each row, as far as features can have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ValueType {
    Number,
    Boolean,
    /// Days since 1970-01-01.
    Days,
    /// Moments since 1970-01-01, as multiples of a fraction of a day.
    Moments(f64),
    /// Moments as old writers have them: nanoseconds of a day, and the day.
    OldMoments,
    String,
    /// Lists, groups, decimals and binary numbers.
    Other,
}

impl ValueType {
    pub fn of(column: &ColumnDescriptor) -> Self {
        const DAY_MILLISECONDS: f64 = 86_400e3;
        if !is_flat(column) {
            return Self::Other;
        }
        match (column.physical_type(), column.logical_type_ref(), column.converted_type()) {
            (Type::BOOLEAN, ..) => Self::Boolean,
            (Type::INT32, Some(LogicalType::Date), _) | (Type::INT32, None, ConvertedType::DATE) => Self::Days,
            (Type::INT64, Some(LogicalType::Timestamp(moment)), _) => Self::Moments(match moment.unit {
                TimeUnit::MILLIS => DAY_MILLISECONDS,
                TimeUnit::MICROS => DAY_MILLISECONDS * 1e3,
                TimeUnit::NANOS => DAY_MILLISECONDS * 1e6,
            }),
            (Type::INT64, None, ConvertedType::TIMESTAMP_MILLIS) => Self::Moments(DAY_MILLISECONDS),
            (Type::INT64, None, ConvertedType::TIMESTAMP_MICROS) => Self::Moments(DAY_MILLISECONDS * 1e3),
            (Type::INT96, ..) => Self::OldMoments,
            _ if is_number(column) => Self::Number,
            _ if is_string(column) => Self::String,
            _ => Self::Other,
        }
    }

    /// Whether all values are numbers, or zeros and ones.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::Boolean)
    }
}

/// A column's name and type, for messages.
pub(crate) fn described(column: &ColumnDescriptor) -> String {
    format!("{} ({})", column.name(), column.physical_type())
}

/// The name of a column, or of the group that it is in.
pub(crate) fn name(column: &ColumnDescriptor) -> &str {
    column.path().parts().first().map_or("", String::as_str)
}
