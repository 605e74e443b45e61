//! Text files with one row of numbers per node, read front to back: features and labels.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position, Result};

use super::{
    forms::{Forms, Layout, TableForm},
    text_table::{TextTable, text_of},
};
use crate::{
    columns::{Purpose, Roles},
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{Line, Lines},
    messages::{Checked, one_less},
    reading::Reading,
    separator::{OpenQuote, Separator},
};

/// Gets the number and the fields of a row, or what is wrong with its line. An error says what is wrong with it.
pub(super) type EachLine<'a> = dyn FnMut(u64, Checked<&[&str]>) -> Checked<()> + 'a;

/// A text file of rows of numbers, after an optional header.
pub(super) struct TextRows {
    extent: Extent,
    header: bool,
    /// The columns that are read, unless it is a matrix.
    table: Option<DataColumns>,
    /// Whether a line with a number for each column is a row of the table as it is of a matrix.
    is_plain: bool,
    /// Numbers per row.
    columns: usize,
    /// The number of rows that there must be, and advice for more rows.
    expected: Option<(u64, &'static str)>,
    /// The lines, and the number of the next row.
    lines: Mutex<Option<(Lines, u64)>>,
}

struct DataColumns {
    separator: Separator,
    width: usize,
    data: Vec<usize>,
}

impl TextRows {
    /// Reads the first lines to find header and columns.
    pub fn open(file: &Arc<InputFile>, forms: &Forms, form: &TableForm) -> Result<(Self, Layout)> {
        let extent = Extent::whole(file, Compression::from_head(&file.head(8)?));
        let table = TextTable::read(file, form)?;
        let header = table.as_ref().is_some_and(|table| table.header);
        let (Some(columns), Some(table)) = (first_row(&extent, file, forms, header)?, table) else {
            return Err(file.error("there are no rows in this file"));
        };
        let mut layout = Layout::matrix(forms, "text", columns, ElementType::F32);
        layout.reading.header = header;
        layout.reading.separator = (columns > 1).then_some(table.separator);
        let rows =
            Self { extent, header, table: None, is_plain: true, columns, expected: None, lines: Mutex::new(None) };
        let are_named = form.columns != Default::default();
        let splits_as_matrix = matches!(table.separator, Separator::Comma | Separator::Tab | Separator::Spaces);
        if table.is_matrix() && !are_named && splits_as_matrix {
            return Ok((rows, layout));
        }
        let Roles { id, data, left_out } = Roles::from_columns(&table.columns(), header, forms.purpose, &form.columns)
            .map_err(|problem| table.refused(file.path(), problem))?;
        if data.is_empty() {
            let problem = format!("expected {} beside the ids, found no such column", forms.name);
            return Err(table.refused(file.path(), problem));
        }
        let names = table.names_of(&data);
        let ids = id.map(|column| ("ids", table.names[column].clone()));
        layout.are_numbers = table.are_numbers(&data);
        layout.columns = data.len();
        layout.reading = Reading {
            separator: (data.len() > 1 || id.is_some()).then_some(table.separator),
            columns: ids.into_iter().chain(names.iter().map(|name| (forms.name, name.clone()))).collect(),
            left_out: table.names_of(&left_out),
            by_position: Some(id.is_none()),
            ..layout.reading
        };
        // Columns without names are known by their numbers if they have no matrix.
        if header || forms.purpose == Purpose::Splits || forms.purpose == Purpose::Features && !layout.are_numbers {
            layout.names = names;
        }
        let is_all = data.iter().copied().eq(0..table.names.len());
        // A name of a class may have spaces and quotes.
        let may_have_names = forms.purpose == Purpose::Labels && header;
        let is_plain = is_all && splits_as_matrix && layout.are_numbers && !table.has_quotes && !may_have_names;
        let columns = data.len();
        let table = Some(DataColumns { separator: table.separator, width: table.names.len(), data });
        Ok((Self { table, is_plain, columns, ..rows }, layout))
    }

    pub fn position(&self, row: u64) -> Position {
        Position::Line(row + 1 + u64::from(self.header))
    }

    /// Makes it an error when reading meets the end before or after `rows` rows. `if_more` is advice for more rows.
    pub fn expect_rows(&mut self, rows: u64, if_more: &'static str) {
        self.expected = Some((rows, if_more));
    }

    /// Calls `each` with the fields of up to `count` rows from row `first` on. Returns the number of rows.
    pub fn read(&self, first: u64, count: usize, each: &mut EachLine<'_>) -> Result<usize> {
        let mut guard = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, mut next) = match guard.take() {
            Some((lines, next)) if next <= first => (lines, next),
            _ => {
                let mut lines = Lines::from_extent(&self.extent)?;
                if self.header {
                    lines.next_line()?;
                }
                (lines, 0)
            }
        };
        let mut read = 0;
        while read < count {
            let Some(line) = lines.next_line()? else {
                self.check_end(next)?;
                break;
            };
            if next >= first {
                if let Some((expected, if_more)) = self.expected
                    && next >= expected
                {
                    return Err(self.too_many(expected, if_more));
                }
                let text = text_of(&line, &self.extent.file)?;
                self.row(next, text, &line, each)
                    .map_err(|problem| Error::input(self.extent.file.path(), Position::Line(line.number), problem))?;
                read += 1;
            }
            next += 1;
        }
        if let Some((expected, if_more)) = self.expected
            && next == expected
            && lines.next_line()?.is_some()
        {
            return Err(self.too_many(expected, if_more));
        }
        *guard = Some((lines, next));
        Ok(read)
    }

    /// Calls `each` with the fields of a row, or with what is wrong with its line.
    fn row(&self, row: u64, text: &str, line: &Line, each: &mut EachLine<'_>) -> Checked<()> {
        if self.is_plain {
            let numbers: Vec<_> = fields(text).collect();
            if numbers.len() == self.columns {
                return each(row, Ok(&numbers));
            }
            if self.table.is_none() {
                let problem = format!("expected {} numbers as in the first row, found {}", self.columns, numbers.len());
                return each(row, Err(problem));
            }
        }
        let table = self.table.as_ref().expect("what is no matrix is a table");
        match table.fields(line) {
            Ok(fields) => each(row, Ok(&fields.iter().map(|field| &**field).collect::<Vec<_>>())),
            Err(problem) => each(row, Err(problem)),
        }
    }

    fn check_end(&self, rows: u64) -> Result<()> {
        match self.expected {
            Some((expected, _)) if rows < expected => Err(self.extent.error(format!(
                "expected {expected} rows, one per node, found {rows}; the file is truncated, or belongs to another graph{}",
                if rows + 1 == expected { one_less(expected) } else { String::new() }
            ))),
            _ => Ok(()),
        }
    }

    fn too_many(&self, expected: u64, if_more: &str) -> Error {
        self.extent.error(format!("expected {expected} rows, one per node, found more; {if_more}"))
    }
}

/// The number of columns of the first row. None if there is no row.
fn first_row(extent: &Extent, file: &InputFile, forms: &Forms, header: bool) -> Result<Option<usize>> {
    let mut lines = Lines::from_extent(extent)?;
    while let Some(line) = lines.next_line()? {
        let text = text_of(&line, file)?;
        if line.number == 1 && header {
            continue;
        }
        let fields: Vec<_> = fields(text).collect();
        if fields.len() > 1 || !fields[0].is_empty() {
            return Ok(Some(fields.len()));
        }
        if !forms.blank_lines {
            return Err(Error::input(
                file.path(),
                Position::Line(line.number),
                "expected a row of numbers, found a blank line",
            ));
        }
    }
    Ok(None)
}

impl DataColumns {
    fn fields<'a>(&self, line: &'a Line) -> Checked<Vec<Cow<'a, str>>> {
        let mut fields = self.separator.fields(&line.bytes).map_err(|OpenQuote| OpenQuote::REASON)?;
        if fields.len() != self.width {
            return Err(format!("expected {} columns as in the first line, found {}", self.width, fields.len()));
        }
        let chosen = self.data.iter().map(|&column| match std::mem::take(&mut fields[column]) {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        });
        Ok(chosen.collect())
    }
}

/// Splits a row at commas, or at blanks if it has no comma.
fn fields(text: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    if text.contains(',') || text.is_empty() {
        Box::new(text.split(',').map(|field| field.trim_matches([' ', '\t'])))
    } else {
        Box::new(text.split([' ', '\t']).filter(|field| !field.is_empty()))
    }
}
