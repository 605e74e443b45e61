//! Rows of a table as numbers.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::schema::{CategoryForm, Column, Encoding, Missing};
use grappa_io::text::printable;

use super::{
    cell::{Cell, Form, TYPED, form_of, is_code},
    problems::{Kind, Problems},
};
use crate::spread::Spread;

#[derive(Debug)]
pub(crate) struct Encoder {
    pub columns: Vec<Column>,
    /// The positions of the values of each category.
    positions: Vec<HashMap<String, usize>>,
    /// The column of each dimension.
    column_of: Vec<usize>,
    /// Whether the columns are numbers only because their first rows are.
    pub assumed: bool,
    /// The number of values of each column that are none of its category.
    unseen: Vec<AtomicU64>,
    /// The spread of each column of numbers or dates.
    spreads: Vec<Spread>,
}

/// The column in warnings about its values.
pub(crate) fn described(column: &Column) -> String {
    match column.encoding {
        Encoding::Date { .. } => format!("{} (days since 1970)", printable(&column.name)),
        _ => printable(&column.name).into_owned(),
    }
}

impl Encoder {
    pub fn new(columns: Vec<Column>) -> Self {
        let positions = columns.iter().map(|column| match &column.encoding {
            Encoding::Category { values, .. } => values.iter().cloned().zip(0..).collect(),
            _ => HashMap::new(),
        });
        let dims = columns.iter().enumerate();
        Self {
            positions: positions.collect(),
            column_of: dims.flat_map(|(at, column)| std::iter::repeat_n(at, column.encoding.dim() as usize)).collect(),
            unseen: columns.iter().map(|_| AtomicU64::new(0)).collect(),
            spreads: Spread::columns(columns.len()),
            columns,
            assumed: false,
        }
    }

    /// An encoder of columns whose first rows are numbers.
    pub fn of_numbers(names: Vec<String>) -> Self {
        Self { assumed: true, ..Self::new(names.into_iter().map(Column::number).collect()) }
    }

    pub fn dim(&self) -> usize {
        self.column_of.len()
    }

    /// The number of values of a column so far that are none of its category.
    pub fn unseen(&self, column: usize) -> u64 {
        self.unseen[column].load(Ordering::Relaxed)
    }

    /// The spread of each column of numbers or dates so far. Other columns have none.
    pub fn spreads(&self) -> &[Spread] {
        &self.spreads
    }

    pub fn column_of(&self, dim: usize) -> usize {
        self.column_of[dim]
    }

    /// Whether a missing value of a column is an error only because the first table had none.
    pub fn is_later(&self, column: usize) -> bool {
        !self.assumed && self.columns[column].encoding.missing() == Some(Missing::Refused)
    }

    /// Appends the numbers of a row. A missing value that has no replacement is NaN. A value that does not fit is a problem.
    pub fn row(&self, row: u64, cells: &[Cell<'_>], out: &mut Vec<f32>, problems: &mut Problems) {
        for (at, &cell) in cells.iter().enumerate() {
            self.value(at, row, cell, out, problems);
        }
    }

    /// The same for the fields of a row of text, for columns of numbers.
    pub fn row_of_numbers(&self, row: u64, fields: &[&str], out: &mut Vec<f32>, problems: &mut Problems) {
        for (at, &field) in fields.iter().enumerate() {
            match self.spreads[at].parse(field) {
                Some(number) if !is_code(field) => out.push(number),
                _ => self.value(at, row, Cell::Raw(field), out, problems),
            }
        }
    }

    /// Appends zeros for a line that is no row, which is a problem.
    pub fn no_row(&self, row: u64, problem: &str, out: &mut Vec<f32>, problems: &mut Problems) {
        problems.add(Kind::Line, 0, row, problem);
        out.extend(std::iter::repeat_n(0.0, self.dim()));
    }

    /// Appends the numbers of a value. One that does not fit is a problem, and zeros.
    fn value(&self, at: usize, row: u64, cell: Cell<'_>, out: &mut Vec<f32>, problems: &mut Problems) {
        if let Err(kind) = self.cell(at, cell, out) {
            problems.add(kind, at, row, cell.category().as_deref().unwrap_or("a date"));
            out.extend(std::iter::repeat_n(0.0, self.columns[at].encoding.dim() as usize));
        }
    }

    /// Appends the numbers of a value. If it does not fit, it appends nothing.
    pub fn cell(&self, at: usize, cell: Cell<'_>, out: &mut Vec<f32>) -> Result<(), Kind> {
        match &self.columns[at].encoding {
            Encoding::Number { missing } => scalar(number_of(cell, &self.spreads[at])?, *missing, out),
            Encoding::Boolean { missing } => scalar(boolean_of(cell)?, *missing, out),
            Encoding::Date { missing } => scalar(date_of(cell, &self.spreads[at])?, *missing, out),
            Encoding::Category { values, form } => {
                let is_missing = matches!(cell, Cell::Raw(text) | Cell::String(text) if form_of(text) == Form::Missing);
                let text = match cell {
                    Cell::Missing => None,
                    _ if is_missing => None,
                    Cell::Date(_) => return Err(Kind::Text),
                    cell => cell.category(),
                };
                let position = match text {
                    None => values.len(),
                    Some(text) => self.positions[at].get(&*text).copied().unwrap_or_else(|| {
                        self.unseen[at].fetch_add(1, Ordering::Relaxed);
                        values.len()
                    }),
                };
                match form {
                    CategoryForm::Index => out.push(position as f32),
                    CategoryForm::OneHot => out.extend((0..=values.len()).map(|value| f32::from(value == position))),
                }
            }
        }
        Ok(())
    }
}

/// Appends a number, or the replacement of a missing one, and perhaps the indicator.
fn scalar(number: Option<f32>, missing: Missing, out: &mut Vec<f32>) {
    let replacement = missing.value().map_or(f32::NAN, |value| value as f32);
    out.push(number.unwrap_or(replacement));
    if missing.has_indicator() {
        out.push(f32::from(number.is_none()));
    }
}

/// The number of a value, which is added to the spread of its column. None if it is missing.
fn number_of(cell: Cell<'_>, spread: &Spread) -> Result<Option<f32>, Kind> {
    match (cell.form(), cell) {
        (Form::Missing, _) => Ok(None),
        (Form::Number(_), Cell::Raw(text) | Cell::String(text)) => Ok(spread.parse(text)),
        (Form::Number(number), _) => {
            spread.add(number);
            Ok(Some(number as f32))
        }
        (Form::Boolean(value, TYPED), _) => Ok(Some(f32::from(value))),
        (Form::Code, _) => Err(Kind::Code),
        (Form::OtherNumber(kind), _) => Err(Kind::OtherNumber(kind)),
        _ => Err(Kind::Text),
    }
}

/// 1 for true, 0 for false. None if the value is missing.
pub(crate) fn boolean_of(cell: Cell<'_>) -> Result<Option<f32>, Kind> {
    match cell.form() {
        Form::Missing => Ok(None),
        Form::Boolean(value, _) => Ok(Some(f32::from(value))),
        Form::Number(number) if number == 0.0 || number == 1.0 => Ok(Some(number as f32)),
        _ => Err(Kind::NotBoolean),
    }
}

/// The days since 1970-01-01, which are added to the spread of their column. None if the value is missing.
fn date_of(cell: Cell<'_>, spread: &Spread) -> Result<Option<f32>, Kind> {
    match cell.form() {
        Form::Missing => Ok(None),
        Form::Date(days) => {
            spread.add(days);
            Ok(Some(days as f32))
        }
        Form::OtherDate => Err(Kind::OtherDate),
        _ => Err(Kind::NotDate),
    }
}
