//! The columns of a table, before it is known what they are for.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

use grappa_io::{Error, Position, Result};

use super::{column_ids::columns_of, forms::TableForm, text_table::TextTable};
use crate::{
    columnar::{
        ColumnTable, Cursor,
        types::{ValueType, is_integer, is_list_of_numbers},
        values::text,
    },
    columns::{Kind, Roles, TableColumn},
    file::InputFile,
    kinds,
    line_reader::Lines,
    separator::{Field, OpenQuote},
};

/// Rows that are read at a time.
const ROWS: usize = 1 << 14;

/// The different values of a column of a table in text with a header; a cell without a value is the empty one. None if there are more than
/// `values_max`, or no such column. Reads the table.
///
/// # Errors
/// If the file can't be read, or a quoted field does not end.
pub fn text_values(path: &Path, form: &TableForm, column: &str, values_max: usize) -> Result<Option<BTreeSet<String>>> {
    let file = InputFile::open(path)?;
    let Some(table) = TextTable::read(&file, form)?.filter(|table| table.header) else { return Ok(None) };
    let Some(at) = table.names.iter().position(|name| name == column) else { return Ok(None) };
    let (mut lines, mut values) = (Lines::of_file(&file)?, BTreeSet::new());
    lines.next_line()?;
    while let Some(line) = lines.next_line()? {
        if line.text().is_empty() {
            continue;
        }
        let field = table.separator.split(line.text()).nth(at).unwrap_or(Ok(Field::default()));
        let field = field.map_err(|OpenQuote| Error::input(path, Position::Line(line.number), OpenQuote::REASON))?;
        let value = String::from_utf8_lossy(&field);
        if !values.contains(&*value) {
            values.insert(value.into_owned());
        }
        if values.len() > values_max {
            return Ok(None);
        }
    }
    Ok(Some(values))
}

/// The columns of a table in Parquet or text.
pub struct TableSchema {
    /// The columns, in the order of the table.
    pub columns: Vec<ColumnSchema>,
    /// The number of rows, if it is known before the table is read: in Parquet.
    pub rows: Option<u64>,
    /// What a Parquet file says about itself, by key.
    pub metadata: BTreeMap<String, String>,
    /// Whether the columns have names.
    pub has_names: bool,
    table: Option<ColumnTable>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSchema {
    /// Its name, or its number, from 1.
    pub name: String,
    /// What its values are, as far as the schema or the first lines show.
    pub values: ColumnValues,
    kind: Kind,
}

/// The values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnValues {
    /// Integers, or, in text, other numbers whose first ones are integers.
    Integers,
    /// Numbers, with fractions or not.
    Floats,
    /// Booleans.
    Booleans,
    /// Lists of numbers.
    Lists,
    /// Dates and times.
    Times,
    /// Text.
    Text,
    /// Something that is not read.
    Others,
}

impl TableSchema {
    /// Reads the schema of a Parquet file, or the first lines of text. None if the file is neither, such as an array.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn read(path: &Path, form: &TableForm) -> Result<Option<Self>> {
        let file = InputFile::open(path)?;
        let head = file.head(8)?;
        if head.starts_with(kinds::NPY) || head.starts_with(kinds::ZIP) {
            return Ok(None);
        }
        if !head.starts_with(kinds::PARQUET) {
            let Some(table) = TextTable::read(&file, form)? else { return Ok(None) };
            let columns = table.columns().into_iter().enumerate().map(|(at, column)| ColumnSchema {
                name: column.name.to_owned(),
                values: match column.kind {
                    Kind::DistinctIntegers => ColumnValues::Integers,
                    Kind::Numbers if table.are_integers(at) => ColumnValues::Integers,
                    Kind::Numbers => ColumnValues::Floats,
                    Kind::Encodable if table.are_times(at) => ColumnValues::Times,
                    Kind::Strings | Kind::Encodable => ColumnValues::Text,
                    Kind::Others => ColumnValues::Others,
                },
                kind: column.kind,
            });
            let (columns, has_names) = (columns.collect(), table.header);
            return Ok(Some(Self { columns, rows: None, metadata: BTreeMap::new(), has_names, table: None }));
        }
        let table = ColumnTable::open(&file)?;
        let kinds = columns_of(&table)?;
        let columns = table.schema.fields().iter().zip(kinds).map(|(field, column)| ColumnSchema {
            name: field.name().clone(),
            values: match ValueType::from_field(field) {
                ValueType::Number if is_integer(field) => ColumnValues::Integers,
                ValueType::Number => ColumnValues::Floats,
                ValueType::Boolean => ColumnValues::Booleans,
                ValueType::Days | ValueType::Moments(_) => ColumnValues::Times,
                ValueType::String => ColumnValues::Text,
                ValueType::Other if is_list_of_numbers(field) => ColumnValues::Lists,
                ValueType::Duration | ValueType::Other => ColumnValues::Others,
            },
            kind: column.kind,
        });
        let (columns, metadata) = (columns.collect(), table.metadata());
        Ok(Some(Self { columns, rows: Some(table.rows), metadata, has_names: true, table: Some(table) }))
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column with the ids of the rows, as tables of nodes find it. None if rows have none, or it is not certain.
    pub fn id_column(&self, form: &TableForm) -> Option<&ColumnSchema> {
        let columns: Vec<_> =
            self.columns.iter().map(|column| TableColumn { name: &column.name, kind: column.kind }).collect();
        let id = match columns.len() {
            1 => Some(0),
            _ => Roles::id_of(&columns, self.has_names, &form.columns).ok().flatten(),
        };
        id.map(|id| &self.columns[id])
    }

    /// Whether a column of text in Parquet has at most `values_max` different values. Reads the column.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn is_category(&self, name: &str, values_max: usize) -> Result<bool> {
        let Some(table) = &self.table else {
            return Ok(self.column(name).is_some_and(|column| column.kind == Kind::Encodable));
        };
        let Some(at) = table.names().position(|other| other == name) else { return Ok(false) };
        table.check_columns([at].into_iter())?;
        let (mut cursor, mut values) = (Cursor::default(), HashSet::new());
        while let Some(arrays) = cursor.next(table, &[at], ROWS)? {
            let array = &arrays[0];
            let new = (0..array.len()).filter_map(|row| text(array, row)).map(<[u8]>::to_vec);
            values.extend(new);
            if values.len() > values_max {
                return Ok(false);
            }
        }
        Ok(!values.is_empty())
    }
}
