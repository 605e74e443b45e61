//! Node ids in a column of a table.

use std::collections::HashSet;

use arrow_array::{Array, ArrayRef};
use grappa_io::Result;

use super::{forms::TableForm, text_table::FirstValues};
use crate::{
    columnar::{
        ColumnTable, Cursor,
        types::{ValueType, described, duration_refused, is_integer, is_list_of_numbers, is_signed},
        values::{Ids, text},
    },
    columns::{Kind, Purpose, Roles, TableColumn},
    conversions::Conversion,
    edges::{IdKind, id_of_float},
};

/// The first rows that show what a column has.
const FIRST_ROWS: u64 = 100;

pub(super) struct ColumnIds {
    table: ColumnTable,
    column: usize,
    cursor: Cursor,
}

impl ColumnIds {
    /// Finds the column: by its name, or because it is the only one. `like`: its name in another part of the table,
    /// which it has if there is such a column.
    pub fn open(table: ColumnTable, kind: IdKind, form: &TableForm, like: Option<&str>) -> Result<Self> {
        let file = &table.file;
        let like = like.and_then(|like| table.names().position(|name| name == like));
        let id = match table.schema.fields().len() {
            1 => Some(0),
            _ if like.is_some() => like,
            _ => Roles::id_of(&columns_of(&table)?, true, &form.columns).map_err(|problem| file.error(problem))?,
        };
        let Some(column) = id else {
            let names: Vec<_> = table.schema.fields().iter().map(|column| described(column)).collect();
            return Err(file.error(format!(
                "expected a column of node ids that is named id or the like, or only one column; give --id with one of {}",
                names.join(", ")
            )));
        };
        let field = table.column(column);
        match (kind, ValueType::from_field(field)) {
            (IdKind::Integer, ValueType::Number) | (IdKind::String, ValueType::String) => {}
            (_, ValueType::Duration) => return Err(file.error(duration_refused(field))),
            (IdKind::Integer, _) => {
                return Err(file.error(format!(
                    "expected integers in column {}; strings need --ids string; if another column has the ids, give --id; other types \
                     need a cast: {}",
                    described(field),
                    file.remedy_for(Conversion::ParquetToIntegers, field.name())
                )));
            }
            (IdKind::String, _) => {
                return Err(file.error(format!(
                    "expected strings in column {}; integers need --ids dense or sparse; if another column has the ids, give --id; other \
                     types need a cast: {}",
                    described(field),
                    file.remedy_for(Conversion::ParquetToStrings, field.name())
                )));
            }
        }
        table.check_columns([column].into_iter())?;
        Ok(Self { table, column, cursor: Cursor::default() })
    }

    pub fn rows(&self) -> u64 {
        self.table.rows
    }

    pub fn name(&self) -> &str {
        self.table.column(self.column).name()
    }

    pub fn is_at_end(&self) -> bool {
        self.cursor.row() == self.rows()
    }

    pub fn next_row(&self) -> u64 {
        self.cursor.row()
    }

    /// The next ids, `count` at most. None of them only at the end.
    pub fn next_integers(&mut self, count: usize) -> Result<Vec<i128>> {
        let (first, Some(array)) = self.next(count)? else {
            return Ok(Vec::new());
        };
        let is_signed = is_signed(self.table.column(self.column));
        let Ids { words, float_digits } = Ids::new(&array);
        let ids = words.into_iter().zip(first..).map(|(word, row)| match float_digits {
            None if is_signed => Ok(word.cast_signed().into()),
            None => Ok(word.into()),
            Some(digits) => {
                let value = f64::from_bits(word);
                id_of_float(value, digits).map(i128::from).map_err(|bad| {
                    self.table.refused(row, format!("expected a node id, found {value}: {}", bad.reason()))
                })
            }
        });
        ids.collect()
    }

    /// The next ids, `count` at most, as a column of strings without missing values. None of them only at the end.
    pub fn next_strings(&mut self, count: usize) -> Result<Option<ArrayRef>> {
        Ok(self.next(count)?.1)
    }

    /// The row and the array of the next ids.
    fn next(&mut self, count: usize) -> Result<(u64, Option<ArrayRef>)> {
        let first = self.cursor.row();
        let array = self.cursor.next(&self.table, &[self.column], count)?.map(|mut arrays| arrays.remove(0));
        if let Some(missing) = array.as_ref().and_then(|array| (0..array.len()).find(|&row| array.is_null(row))) {
            let problem = format!("expected a node id in column {}, found a missing value", self.name());
            return Err(self.table.refused(first + missing as u64, problem));
        }
        Ok((first, array))
    }
}

pub(super) fn columns_of(table: &ColumnTable) -> Result<Vec<TableColumn<'_>>> {
    let columns = table.schema.fields().iter().enumerate();
    columns
        .map(|(at, column)| {
            Ok(TableColumn {
                name: column.name(),
                kind: match ValueType::from_field(column) {
                    ValueType::String => kind_of_strings(table, at)?,
                    ValueType::Number | ValueType::Boolean | ValueType::Duration => Kind::Numbers,
                    ValueType::Days | ValueType::Moments(_) => Kind::Encodable,
                    ValueType::Other if is_list_of_numbers(column) => Kind::Numbers,
                    ValueType::Other => Kind::Others,
                },
            })
        })
        .collect()
}

/// The first rows of a column, in arrays.
fn first_values(table: &ColumnTable, column: usize) -> Result<Vec<ArrayRef>> {
    table.check_columns([column].into_iter())?;
    let (mut cursor, mut arrays) = (Cursor::default(), Vec::new());
    while cursor.row() < FIRST_ROWS
        && let Some(next) = cursor.next(table, &[column], (FIRST_ROWS - cursor.row()) as usize)?
    {
        arrays.extend(next);
    }
    Ok(arrays)
}

/// The kind of the first values of a column of strings.
fn kind_of_strings(table: &ColumnTable, at: usize) -> Result<Kind> {
    let arrays = first_values(table, at)?;
    if arrays.is_empty() {
        return Ok(Kind::Strings);
    }
    let values = arrays.iter().flat_map(|array| (0..array.len()).filter_map(|row| text(array, row)));
    // Strings of digits are names too, if they are all different.
    let different: HashSet<&[u8]> = values.clone().collect();
    let are_names = !different.is_empty() && different.len() == values.clone().count();
    Ok(match FirstValues::from_values(values).kind {
        Kind::Numbers | Kind::DistinctIntegers if are_names => Kind::Strings,
        Kind::Numbers | Kind::DistinctIntegers => Kind::Encodable,
        kind => kind,
    })
}

pub(super) fn roles_of(table: &ColumnTable, purpose: Purpose, form: &TableForm) -> Result<Roles> {
    let mut columns = columns_of(table)?;
    let file = &table.file;
    // Only if no name tells the ids, their values do: reading them takes a page of each column.
    let id = Roles::id_of(&columns, true, &form.columns).map_err(|problem| file.error(problem))?;
    if id.is_none() {
        for (at, column) in columns.iter_mut().enumerate() {
            if is_integer(table.column(at)) && are_distinct(table, at)? {
                column.kind = Kind::DistinctIntegers;
            }
        }
    }
    Roles::from_columns(&columns, true, purpose, &form.columns).map_err(|problem| file.error(problem))
}

/// Whether the first values of a column of integers are different ones, none of them negative or missing.
fn are_distinct(table: &ColumnTable, at: usize) -> Result<bool> {
    let arrays = first_values(table, at)?;
    let rows: usize = arrays.iter().map(|array| array.len()).sum();
    let has_missing = arrays.iter().any(|array| array.null_count() > 0);
    let is_signed = is_signed(table.column(at));
    let words = arrays.iter().flat_map(|array| Ids::new(array).words);
    let different: HashSet<u64> = words.filter(|&word| !is_signed || word.cast_signed() >= 0).collect();
    Ok(rows > 1 && !has_missing && different.len() == rows)
}
