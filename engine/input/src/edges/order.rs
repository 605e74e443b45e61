//! The order of the edges that a column says, such as their times. Its values are exact: 64-bit floats.

use grappa_formats::features::ElementType;

use super::{BadEdge, edge_array::EdgeArray, fields::Checked};
use crate::{
    columns::listed,
    messages::in_shell,
    table::{Cell, Form},
};

const NUMBER: u8 = 1;
const DATE: u8 = 2;
/// The kinds of a column that has both: which number a date would be is not known.
pub(super) const MIXED: u8 = NUMBER | DATE;

/// The name of the weights of edges.
pub(super) const WEIGHT: &str = "weight";

/// The message that edges have no value of this name, but those that are `known`.
pub(super) fn no_such_value(name: &str, known: &[String]) -> String {
    let remedy = match known.is_empty() {
        true => "omit it, or give the edges as a table with a column of times".to_owned(),
        false => format!("give one of {}", listed(known, ", ")),
    };
    format!("--edge-split-by {}: these edges have no such value; {remedy}", in_shell(name))
}

/// The place of an edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub value: f64,
    pub kind: u8,
}

impl Place {
    /// The place that a number says.
    pub fn of_number(value: f64) -> Self {
        Self { value, kind: NUMBER }
    }

    /// The place that a value of a table says: a number, or a date.
    pub fn of(cell: Cell<'_>) -> Checked<Self> {
        match cell.form() {
            Form::Missing => Err(BadEdge::NoOrder),
            Form::Number(value) if value.is_finite() => Ok(Self::of_number(value)),
            Form::Date(days) => Ok(Self { value: days, kind: DATE }),
            _ => Err(BadEdge::Order),
        }
    }
}

/// A column of an array of values of edges.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArrayColumn {
    /// The number of the array.
    pub array: usize,
    pub column: usize,
}

impl ArrayColumn {
    /// The column that the user calls so: `weight`, or the number of a feature, from 1.
    pub fn named(name: &str, arrays: &[EdgeArray]) -> Result<Self, String> {
        let mut known = Vec::new();
        for (at, array) in arrays.iter().enumerate() {
            for column in 0..array.width {
                let own = if array.is_weights() { WEIGHT.to_owned() } else { (column + 1).to_string() };
                if own == name {
                    return Ok(Self { array: at, column });
                }
                known.push(own);
            }
        }
        Err(no_such_value(name, &known))
    }

    /// Appends the places of the rows in the bytes of its array.
    pub fn places(self, array: &EdgeArray, bytes: &[u8]) -> impl Iterator<Item = Place> {
        let element = array.reader.array.element;
        let size = element.bytes();
        bytes
            .chunks_exact(array.row_bytes())
            .map(move |row| Place::of_number(number(element, &row[self.column * size..][..size])))
    }
}

/// An element of an array. 64 bits stay exact, apart from integers beyond 2^53.
fn number(element: ElementType, bytes: &[u8]) -> f64 {
    match (element, <[u8; 8]>::try_from(bytes)) {
        (ElementType::F64, Ok(bytes)) => f64::from_le_bytes(bytes),
        (ElementType::I64, Ok(bytes)) => i64::from_le_bytes(bytes) as f64,
        (ElementType::U64, Ok(bytes)) => u64::from_le_bytes(bytes) as f64,
        _ => {
            let mut value = [0.0];
            element.to_f32(bytes, &mut value);
            f64::from(value[0])
        }
    }
}
