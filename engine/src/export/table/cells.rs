//! Columns of a table, and their values.

use std::borrow::Cow;

use grappa_io::Result;

/// The type of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// i64.
    Integer,
    /// u64, stored as the i64 with the same bits.
    Unsigned,
    /// f32.
    Float,
    /// UTF-8 in Parquet, bytes in CSV.
    Text,
}

/// The number of values of a row in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One.
    One,
    /// One or none.
    Optional,
    /// This many.
    Vector(usize),
    /// Any number, or no list at all.
    List,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, which no other column has.
    pub name: String,
    /// The type of its values.
    pub scalar: Scalar,
    /// The number of values of a row.
    pub shape: Shape,
    /// Whether the same few values repeat, so that a dictionary of them saves space.
    pub repeats: bool,
}

impl Column {
    /// A column whose values hardly repeat.
    pub fn new(name: impl Into<String>, scalar: Scalar, shape: Shape) -> Self {
        Self { name: name.into(), scalar, shape, repeats: false }
    }
}

/// The values of a column in a group of rows, one row after another.
#[derive(Debug)]
pub enum Values {
    /// Of [`Scalar::Integer`] and [`Scalar::Unsigned`].
    Integers(Vec<i64>),
    /// Of [`Scalar::Float`].
    Floats(Vec<f32>),
    /// Of [`Scalar::Text`].
    Texts(Vec<Vec<u8>>),
}

/// A column of a group of rows.
#[derive(Debug)]
pub struct Cells {
    /// The values of all rows.
    pub values: Values,
    /// The number of values of each row; none for no value or no list. Empty if the shape says it for all rows.
    pub counts: Vec<Option<usize>>,
}

impl From<Values> for Cells {
    fn from(values: Values) -> Self {
        let counts = Vec::new();
        Self { values, counts }
    }
}

impl Cells {
    pub(super) fn count(&self, column: &Column, row: usize) -> Option<usize> {
        match (self.counts.get(row), column.shape) {
            (Some(count), _) => *count,
            (None, Shape::Vector(width)) => Some(width),
            (None, Shape::One | Shape::Optional | Shape::List) => Some(1),
        }
    }

    pub(super) fn rows(&self, column: &Column) -> usize {
        match (self.counts.len(), column.shape) {
            (0, Shape::Vector(width)) => self.values.len() / width.max(1),
            (0, Shape::One | Shape::Optional | Shape::List) => self.values.len(),
            (rows, _) => rows,
        }
    }
}

impl Values {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    /// A value as text.
    pub(super) fn shown(&self, scalar: Scalar, at: usize) -> Cow<'_, [u8]> {
        match (self, scalar) {
            (Self::Integers(values), Scalar::Unsigned) => values[at].cast_unsigned().to_string().into_bytes().into(),
            (Self::Integers(values), _) => values[at].to_string().into_bytes().into(),
            (Self::Floats(values), _) => values[at].to_string().into_bytes().into(),
            (Self::Texts(values), _) => values[at][..].into(),
        }
    }
}

/// Gets the groups of rows of a table.
pub trait GroupSink: Send {
    /// Writes the next rows. There are cells for each column, in order.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&mut self, cells: &[Cells]) -> Result<()>;
}
