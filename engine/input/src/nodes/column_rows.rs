//! Rows of numbers and other values in a table of Arrow columns.
//!
//! They are read front to back, by one thread, because to go to a row of Parquet means to decode its page in every column. Between two
//! reads, a page of each column stays in memory.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use grappa_formats::{features::ElementType, time_axis::TimeUnit};
use grappa_io::{Error, Position, Result};

use super::{
    class_names::ClassNames,
    column_ids::roles_of,
    forms::{Forms, Layout, TableForm},
};
use crate::{
    columnar::{
        ColumnTable, Cursor,
        types::{ValueType, described, duration_refused, element_type, is_list, is_list_of_numbers},
        values::{Values, first_list_length, list_numbers, text},
    },
    columns::{Purpose, Roles},
    edges::{BadEdge, TimeValue, coarsest_unit, times_of, timestamps},
    messages::Checked,
    reading::Reading,
    table::Cell,
};

/// Writers end a page after this many bytes by default, and a dictionary too.
const PAGE_BYTES: u64 = 1 << 20;
/// Numbers that are decoded at a time. They stay in the cache, and their buffers are not returned to the system each time.
const PIECE_NUMBERS: usize = 1 << 14;

/// Gets the numbers of a row. An error says what is wrong with them.
pub(super) type EachRow<'a> = dyn FnMut(&[f64]) -> Checked<()> + 'a;

/// Gets the values of a row. An error says what is wrong with them.
pub(super) type EachCells<'a> = dyn FnMut(&[Cell<'_>]) -> Checked<()> + 'a;

/// Gets the time of a row, or why it has none. An error says what is wrong with it.
pub(super) type EachTime<'a> = dyn FnMut(std::result::Result<TimeValue, BadEdge>) -> Checked<()> + 'a;

/// Rows of numbers in the columns of a table, or in one column of lists.
pub(super) struct ColumnRows {
    table: ColumnTable,
    pub chosen: Chosen,
    roles: Roles,
    /// The classes of names, for a column of labels that are names.
    class_names: Arc<ClassNames>,
    /// Numbers per row.
    pub dim: usize,
    cursor: Mutex<Cursor>,
}

/// The names of the columns of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    pub id: Option<String>,
    pub data: Vec<String>,
    all: BTreeSet<String>,
}

impl Chosen {
    /// Whether a table has one of the columns that are read. Writers give a column without any value no type.
    pub fn is_in(&self, table: &ColumnTable) -> bool {
        let mut columns = table.schema.fields().iter().filter(|column| self.data.contains(column.name()));
        columns.any(|column| *column.data_type() != DataType::Null)
    }

    /// The columns of these names. None if the table has other columns.
    fn roles(&self, table: &ColumnTable) -> Option<Roles> {
        if names_of(table) != self.all {
            return None;
        }
        let position = |option: &String| table.names().position(|name| name == option);
        let id = match &self.id {
            Some(id) => Some(position(id)?),
            None => None,
        };
        let data: Vec<usize> = self.data.iter().map(position).collect::<Option<_>>()?;
        let others = (0..table.schema.fields().len()).filter(|column| Some(*column) != id && !data.contains(column));
        Some(Roles { id, left_out: others.collect(), data })
    }
}

fn names_of(table: &ColumnTable) -> BTreeSet<String> {
    table.names().map(str::to_owned).collect()
}

/// Gets the first row, the number of rows and the columns of a piece.
type EachPiece<'a> = dyn FnMut(u64, usize, &[Values]) -> Result<()> + 'a;

/// Gets the first row of a piece, and its columns as they are.
type EachArrays<'a> = dyn FnMut(u64, &[ArrayRef]) -> Result<()> + 'a;

impl ColumnRows {
    /// Chooses the columns. `like`: the columns of another part of the table, which are read if both parts have
    /// the same columns. A single column of labels may have names; its numbers are their `class_names`.
    pub fn open(
        table: ColumnTable,
        forms: &Forms,
        form: &TableForm,
        class_names: &Arc<ClassNames>,
        like: Option<&Chosen>,
    ) -> Result<Self> {
        let file = &table.file;
        let roles = match like.and_then(|like| like.roles(&table)) {
            Some(roles) => roles,
            None => roles_of(&table, forms.purpose, form)?,
        };
        let data = &roles.data;
        if data.is_empty() {
            return Err(file.error(format!("expected columns of {}, found none", forms.name)));
        }
        let may_have_names = forms.purpose == Purpose::Labels && data.len() == 1;
        for column in data.iter().map(|&column| table.column(column)) {
            if may_have_names && ValueType::from_field(column) == ValueType::String {
                continue;
            }
            check_type(column, forms.purpose).map_err(|problem| file.error(problem))?;
            if is_list(column) && data.len() > 1 {
                return Err(file.error(format!(
                    "column {} has lists, so it must be the only one beside the ids, and there are {} more; leave them out: {}",
                    column.name(),
                    data.len() - 1,
                    forms.purpose.only(column.name())
                )));
            }
        }
        table.check_columns(data.iter().copied())?;
        let name = |column: usize| table.column(column).name().clone();
        let chosen = Chosen {
            id: roles.id.map(name),
            data: data.iter().map(|&column| name(column)).collect(),
            all: names_of(&table),
        };
        let class_names = Arc::clone(class_names);
        let mut rows = Self { table, chosen, roles, class_names, dim: 1, cursor: Mutex::default() };
        if !rows.is_list() {
            rows.dim = rows.roles.data.len();
        } else if rows.rows() > 0 {
            rows.dim = rows.first_list()?;
        }
        Ok(rows)
    }

    pub fn path(&self) -> &Path {
        self.table.file.path()
    }

    /// Fails unless its rows can follow the rows of another file.
    pub fn check_like(&self, other: &Self) -> Result<()> {
        let (names, others) = (&self.chosen.data, &other.chosen.data);
        if let Some(at) = (0..names.len().max(others.len())).find(|&at| names.get(at) != others.get(at)) {
            let [found, expected] = [names, others].map(|names| match names.get(at) {
                Some(name) => format!("column {at} is {name}"),
                None => format!("there are {} columns", names.len()),
            });
            return Err(self.unlike(other, &found, &expected));
        }
        match (self.chosen.id.is_some(), other.chosen.id.is_some()) {
            (true, false) => Err(self.unlike(other, "there are ids", "none")),
            (false, true) => Err(self.unlike(other, "there are no ids", "some")),
            _ if self.types() != other.types() => {
                let (types, others) = (self.types(), other.types());
                let at = (0..types.len()).find(|&at| types[at] != others[at]).unwrap_or(0);
                let [found, expected] =
                    [types[at], others[at]].map(|kind| format!("column {} has values of the type {kind:?}", names[at]));
                Err(self.unlike(other, &found, &expected))
            }
            _ if self.dim != other.dim => {
                let [found, expected] = [self.dim, other.dim].map(|dim| format!("{dim} numbers"));
                Err(self.unlike(other, &format!("lists have {found}"), &expected))
            }
            _ => Ok(()),
        }
    }

    /// The error about rows that cannot follow the rows of `other`.
    fn unlike(&self, other: &Self, found: &str, expected: &str) -> Error {
        let problem = format!(
            "{found}, but {expected} in {}, and a table has the same columns in all files; write it again",
            other.path().display()
        );
        Error::input(self.path(), Position::Whole, problem)
    }

    fn types(&self) -> Vec<ValueType> {
        self.roles.data.iter().map(|&column| ValueType::from_field(self.table.column(column))).collect()
    }

    pub fn rows(&self) -> u64 {
        self.table.rows
    }

    /// What the rows are. `more_files`: the files of the table after this one.
    pub fn layout(&self, forms: &Forms, more_files: usize) -> Layout {
        let element = match element_type(self.table.column(self.roles.data[0])) {
            DataType::Boolean => ElementType::Bool,
            kind if kind.is_integer() && kind.primitive_width() == Some(8) => ElementType::I64,
            kind if kind.is_integer() => ElementType::I32,
            DataType::Float16 => ElementType::F16,
            DataType::Float32 => ElementType::F32,
            _ => ElementType::F64,
        };
        let ids = self.chosen.id.iter().map(|name| ("ids", name.clone()));
        let data = self.chosen.data.iter().map(|name| (forms.name, name.clone()));
        let left_out = self.roles.left_out.iter().map(|&column| self.table.column(column).name().clone());
        let mut layout = Layout::matrix(forms, self.table.format(), self.dim, element);
        layout.reading = Reading {
            columns: ids.chain(data).collect(),
            left_out: left_out.collect(),
            by_position: Some(self.chosen.id.is_none()),
            more_files,
            ..layout.reading
        };
        if !self.is_list() {
            layout.names.clone_from(&self.chosen.data);
            layout.are_numbers = self.types().iter().all(|kind| kind.is_number());
        }
        layout
    }

    /// Bytes of the pages that stay in memory: of each column a dictionary, a page, and its compressed bytes, if the writer did not choose
    /// other sizes.
    pub fn held_bytes(&self) -> u64 {
        self.roles.data.iter().map(|&column| self.table.column_bytes_max(column).min(3 * PAGE_BYTES)).sum()
    }

    /// Whether rows are lists in one column.
    fn is_list(&self) -> bool {
        is_list(self.table.column(self.roles.data[0]))
    }

    /// Calls `each` with up to `count` rows of numbers from row `first` on. A missing number is NaN. Returns the number of rows.
    pub fn read(&self, first: u64, count: usize, each: &mut EachRow<'_>) -> Result<usize> {
        let mut row = Vec::with_capacity(self.dim);
        self.read_pieces(first, count, &mut |from, rows, values| {
            let columns: Vec<Cow<'_, [f64]>> = values.iter().map(|values| self.as_numbers(values)).collect();
            for index in 0..rows {
                row.clear();
                match &columns[..] {
                    [lists] => row.extend_from_slice(&lists[index * self.dim..][..self.dim]),
                    columns => row.extend(columns.iter().map(|column| column[index])),
                }
                each(&row).map_err(|problem| self.refused(from + index as u64, problem))?;
            }
            Ok(())
        })
    }

    /// Calls `each` with the values of up to `count` rows from row `first` on. Returns the number of rows.
    pub fn read_cells(&self, first: u64, count: usize, each: &mut EachCells<'_>) -> Result<usize> {
        self.read_pieces(first, count, &mut |from, rows, values| {
            let mut row = Vec::with_capacity(values.len());
            for index in 0..rows {
                row.clear();
                for (at, column) in values.iter().enumerate() {
                    row.push(column.cell(index).map_err(|_| {
                        let name = &self.chosen.data[at];
                        let problem = format!("expected text in UTF-8 in column {name}, found other bytes");
                        self.refused(from + index as u64, problem)
                    })?);
                }
                each(&row).map_err(|problem| self.refused(from + index as u64, problem))?;
            }
            Ok(())
        })
    }

    /// Calls `each` with the time of up to `count` rows from row `first` on. Without a unit, timestamps have the coarsest unit in which they
    /// are whole, whatever the type of the column. Returns the number of rows.
    pub fn read_times(
        &self,
        first: u64,
        count: usize,
        unit: Option<TimeUnit>,
        each: &mut EachTime<'_>,
    ) -> Result<usize> {
        self.read_arrays(first, count, &mut |from, arrays| {
            let (mut refused, counts) = (None, unit.is_none().then(|| timestamps(&arrays[0])).flatten());
            times_of(&arrays[0], unit, |row, mut time| {
                if let (Some((counts, own)), Ok(time)) = (counts, &mut time) {
                    time.unit = coarsest_unit(counts[row], own);
                }
                if refused.is_none() {
                    refused = each(time).err().map(|problem| self.refused(from + row as u64, problem));
                }
            });
            refused.map_or(Ok(()), Err)
        })
    }

    fn refused(&self, row: u64, problem: String) -> Error {
        self.table.refused(row, problem)
    }

    /// Calls `each` with the first row, the number of rows and the columns of each piece of the rows.
    fn read_pieces(&self, first: u64, count: usize, each: &mut EachPiece<'_>) -> Result<usize> {
        self.read_arrays(first, count, &mut |from, arrays| {
            let columns = self.roles.data.iter().zip(arrays);
            let values = columns.map(|(&column, array)| match self.is_list() {
                true => list_numbers(array, self.dim).map(Values::Numbers).map_err(|(index, length)| {
                    let (name, dim) = (self.table.column(column).name(), self.dim);
                    let problem = format!(
                        "expected a list of {dim} numbers in column {name}, as in the first row, found {length}"
                    );
                    self.refused(from + index as u64, problem)
                }),
                false => Ok(Values::new(array, ValueType::from_field(self.table.column(column)))),
            });
            each(from, arrays[0].len(), &values.collect::<Result<Vec<_>>>()?)
        })
    }

    /// Calls `each` with the first row and the columns of each piece of the rows.
    fn read_arrays(&self, first: u64, count: usize, each: &mut EachArrays<'_>) -> Result<usize> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor.row() != first {
            *cursor = Cursor::at(first);
        }
        let end = self.rows().min(first.saturating_add(count as u64));
        let piece = (PIECE_NUMBERS / self.dim).max(1);
        while cursor.row() < end {
            let from = cursor.row();
            let rows_max = (end - from).min(piece as u64) as usize;
            let Some(arrays) = cursor.next(&self.table, &self.roles.data, rows_max)? else {
                return Err(self.table.damaged(from, "a column has too few values"));
            };
            each(from, &arrays)?;
        }
        Ok(end.saturating_sub(first) as usize)
    }

    /// Values as numbers. The numbers of strings are their classes.
    fn as_numbers<'a>(&self, values: &'a Values) -> Cow<'a, [f64]> {
        match values {
            Values::Numbers(numbers) | Values::Booleans(numbers) | Values::Dates(numbers) => numbers.into(),
            Values::Strings(names) => {
                let names = (0..names.len()).map(|row| text(names, row));
                let classes = names.map(|name| name.map_or(f64::NAN, |name| self.class_names.number(name)));
                classes.collect::<Vec<_>>().into()
            }
        }
    }

    /// The number of values in the list of the first row.
    fn first_list(&self) -> Result<usize> {
        let column = self.roles.data[0];
        let arrays = Cursor::default().next(&self.table, &[column], 1)?.unwrap_or_default();
        match arrays.first().map_or(0, |lists| first_list_length(lists)) {
            0 => {
                let name = self.table.column(column).name();
                Err(self.table.refused(0, format!("expected a list of numbers in column {name}, found none")))
            }
            length => Ok(length),
        }
    }
}

/// Refuses a column that has no numbers, nor lists of numbers. Features may have other values that become numbers.
fn check_type(column: &Field, purpose: Purpose) -> Checked<()> {
    let value_type = ValueType::from_field(column);
    match value_type {
        ValueType::Duration => Err(duration_refused(column)),
        _ if purpose == Purpose::Times => match value_type {
            ValueType::Number | ValueType::Days | ValueType::Moments(_) | ValueType::String => Ok(()),
            _ => Err(format!("expected integers, dates or timestamps in column {}", described(column))),
        },
        _ if purpose != Purpose::Labels && value_type.is_encodable() => Ok(()),
        _ if value_type.is_number() || is_list_of_numbers(column) => Ok(()),
        _ => Err(format!(
            "expected {}numbers, or lists of numbers, in column {}; name other columns with --features-from or --label, or write numbers",
            match purpose {
                Purpose::Features | Purpose::Splits | Purpose::Times => "text, dates, ",
                Purpose::Labels => "",
            },
            described(column)
        )),
    }
}
