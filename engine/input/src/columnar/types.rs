//! The types of columns.

use arrow_schema::{DataType, Field, TimeUnit};

/// The values of a column, as far as Grappa reads them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ValueType {
    Number,
    Boolean,
    /// Days since 1970-01-01.
    Days,
    /// Moments since 1970-01-01, as multiples of a fraction of a day.
    Moments(f64),
    /// Lengths of time, whose unit no store keeps.
    Duration,
    String,
    /// Lists, structs, decimals and others.
    Other,
}

impl ValueType {
    pub fn from_field(column: &Field) -> Self {
        const DAY_SECONDS: f64 = 86_400.0;
        match plain(column.data_type()) {
            DataType::Boolean => Self::Boolean,
            DataType::Date32 => Self::Days,
            DataType::Date64 => Self::Moments(DAY_SECONDS * 1e3),
            DataType::Timestamp(unit, _) => Self::Moments(match unit {
                TimeUnit::Second => DAY_SECONDS,
                TimeUnit::Millisecond => DAY_SECONDS * 1e3,
                TimeUnit::Microsecond => DAY_SECONDS * 1e6,
                TimeUnit::Nanosecond => DAY_SECONDS * 1e9,
            }),
            DataType::Duration(_) => Self::Duration,
            kind if is_string(kind) => Self::String,
            kind if kind.is_integer() || kind.is_floating() => Self::Number,
            _ => Self::Other,
        }
    }

    /// Whether all values are numbers, or zeros and ones.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::Boolean)
    }

    /// Whether an encoding can make numbers of the values.
    pub fn is_encodable(self) -> bool {
        !matches!(self, Self::Duration | Self::Other)
    }
}

pub(crate) fn is_string(kind: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(kind, Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView)
}

/// The type of the values of a dictionary, or the type itself.
fn plain(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, values) => values,
        kind => kind,
    }
}

/// The elements of a column of lists.
fn elements(column: &Field) -> Option<&Field> {
    match column.data_type() {
        DataType::List(elements) | DataType::LargeList(elements) | DataType::FixedSizeList(elements, _) => {
            Some(elements)
        }
        _ => None,
    }
}

pub(crate) fn is_list(column: &Field) -> bool {
    elements(column).is_some()
}

/// Whether a column has lists of numbers or booleans.
pub(crate) fn is_list_of_numbers(column: &Field) -> bool {
    elements(column).is_some_and(|elements| ValueType::from_field(elements).is_number())
}

pub(crate) fn is_struct(column: &Field) -> bool {
    matches!(column.data_type(), DataType::Struct(_))
}

pub(crate) fn is_integer(column: &Field) -> bool {
    plain(column.data_type()).is_integer()
}

pub(crate) fn is_signed(column: &Field) -> bool {
    plain(column.data_type()).is_signed_integer()
}

/// The type of the elements of a column, in lists or not.
pub(crate) fn element_type(column: &Field) -> &DataType {
    plain(elements(column).unwrap_or(column).data_type())
}

/// A column's name and type, for messages.
pub(crate) fn described(column: &Field) -> String {
    format!("{} ({})", column.name(), column.data_type())
}

/// What is wrong with a column of durations, and the remedy.
pub(crate) fn duration_refused(column: &Field) -> String {
    format!(
        "column {} has durations ({}), whose unit a store does not keep; write them as numbers of seconds",
        column.name(),
        column.data_type()
    )
}
