//! The order of the edges that a column says, such as their times. Its values are exact: 64-bit floats.

use super::bad_edge::{BadEdge, Checked};
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
pub(super) struct EdgePlace {
    pub value: f64,
    pub kind: u8,
}

impl EdgePlace {
    /// The place that a number says.
    pub fn of_number(value: f64) -> Self {
        Self { value, kind: NUMBER }
    }

    /// The place that a value of a table says: a number, or a date.
    pub fn from_cell(cell: Cell<'_>) -> Checked<Self> {
        match cell.form() {
            Form::Missing => Err(BadEdge::NoOrder),
            Form::Number(value) if value.is_finite() => Ok(Self::of_number(value)),
            Form::Date(days) => Ok(Self { value: days, kind: DATE }),
            _ => Err(BadEdge::Order),
        }
    }
}
