//! Text files with one row of numbers per node, read front to back: features and labels.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_io::{Error, Position, Result};

use super::{id_column::IdColumn, node_file::Forms, table_columns::Chosen};
use crate::{
    edges::{Field, trim},
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{Line, Lines},
    messages::ONE_LESS,
};

/// The longest line, in bytes: a million numbers of 16 characters.
const ROW_BYTES_MAX: usize = 16 << 20;

/// A text file of rows of numbers, after an optional header.
pub(super) struct TextRows {
    extent: Extent,
    header: bool,
    /// The columns, if the first one has ids.
    table: Option<TextTable>,
    /// Numbers per row.
    columns: usize,
    /// The number of rows that there must be, and advice for more rows.
    expected: Option<(u64, &'static str)>,
    /// The lines, and the number of the next row.
    lines: Mutex<Option<(Lines, u64)>>,
}

/// The columns of a table.
struct TextTable {
    ids: IdColumn,
    /// Number of all columns.
    width: usize,
    chosen: Chosen,
}

/// The lines of a text file that may be compressed.
pub(crate) fn lines_of(extent: &Extent) -> Result<Lines> {
    Ok(Lines::new(extent.stream()?, ROW_BYTES_MAX))
}

impl TextRows {
    /// Reads the first lines to find header and columns.
    pub fn open(file: &Arc<InputFile>, forms: &Forms) -> Result<Self> {
        let compression = Compression::of(&file.head(8)?);
        let extent = Extent::whole(file, compression);
        let mut lines = lines_of(&extent)?;
        let (mut header, mut table, mut columns) = (false, None, None);
        while let Some(line) = lines.next_line()? {
            let text = text_of(&line, file)?;
            if line.number == 1 {
                table = TextTable::of_header(&line, file, forms)?;
            }
            let fields: Vec<_> = fields(text).collect();
            let is_name = |field: &&str| !field.is_empty() && field.parse::<f64>().is_err();
            if line.number == 1 && (table.is_some() || fields.iter().all(is_name)) {
                header = true;
                continue;
            }
            if let Some(table) = &table {
                columns = Some(table.chosen.columns.len());
                break;
            }
            if fields.len() > 1 || !fields[0].is_empty() {
                columns = Some(fields.len());
                break;
            }
            if !forms.blank_lines {
                return Err(Error::input(
                    file.path(),
                    Position::Line(line.number),
                    "expected a row of numbers, found a blank line",
                ));
            }
        }
        let Some(columns) = columns else {
            return Err(Error::input(
                file.path(),
                Position::Whole,
                "there are no rows in this file",
            ));
        };
        Ok(Self {
            extent,
            header,
            table,
            columns,
            expected: None,
            lines: Mutex::new(None),
        })
    }

    /// Whether the first column has the ids of the rows.
    pub fn has_ids(&self) -> bool {
        self.table.is_some()
    }

    /// The columns of a table that are left out.
    pub fn left_out(&self) -> &[String] {
        self.table.as_ref().map_or(&[], |table| &table.chosen.left_out)
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn file(&self) -> &InputFile {
        &self.extent.file
    }

    /// Makes it an error when reading meets the end before or after `rows` rows. `if_more` is advice for more rows.
    pub fn expect_rows(&mut self, rows: u64, if_more: &'static str) {
        self.expected = Some((rows, if_more));
    }

    /// Calls `each` with the fields of up to `count` rows from row `first` on. Returns the number of rows.
    pub fn read(
        &self,
        first: u64,
        count: usize,
        each: &mut dyn FnMut(&[&str]) -> std::result::Result<(), String>,
    ) -> Result<usize> {
        let mut guard = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, mut next) = match guard.take() {
            Some((lines, next)) if next <= first => (lines, next),
            _ => {
                let mut lines = lines_of(&self.extent)?;
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
                let text = text_of(&line, self.file())?;
                let result = match &self.table {
                    None => self.row(&fields(text).collect::<Vec<_>>(), each),
                    Some(table) => {
                        let numbers = table.numbers(&line, self.file())?;
                        each(&numbers.iter().map(|number| &**number).collect::<Vec<_>>())
                    }
                };
                result.map_err(|what| Error::input(self.file().path(), Position::Line(line.number), what))?;
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

    /// Calls `each` with the numbers of a row.
    fn row(
        &self,
        numbers: &[&str],
        each: &mut dyn FnMut(&[&str]) -> std::result::Result<(), String>,
    ) -> std::result::Result<(), String> {
        if numbers.len() == self.columns {
            return each(numbers);
        }
        Err(format!(
            "expected {} numbers as in the first row, found {}",
            self.columns,
            numbers.len()
        ))
    }

    fn check_end(&self, rows: u64) -> Result<()> {
        match self.expected {
            Some((expected, _)) if rows < expected => Err(self.extent.error(format!(
                "expected {expected} rows, one per node, found {rows}; the file is truncated, or belongs to another graph{}",
                if rows + 1 == expected { ONE_LESS } else { "" }
            ))),
            _ => Ok(()),
        }
    }

    fn too_many(&self, expected: u64, if_more: &str) -> Error {
        self.extent
            .error(format!("expected {expected} rows, one per node, found more; {if_more}"))
    }
}

fn text_of<'a>(line: &'a Line, file: &InputFile) -> Result<&'a str> {
    let bytes = match line.bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(bytes) if line.number == 1 => bytes,
        _ => &line.bytes,
    };
    std::str::from_utf8(trim(bytes)).map_err(|_| {
        Error::input(
            file.path(),
            Position::Line(line.number),
            "expected a row of numbers in text, found other bytes; save arrays as .npy or .npz files",
        )
    })
}

impl TextTable {
    /// The columns, if the first line is a header that names a first column of ids.
    fn of_header(line: &Line, file: &InputFile, forms: &Forms) -> Result<Option<Self>> {
        let Some(ids) = IdColumn::of_header(&line.bytes) else {
            return Ok(None);
        };
        let refuse = |what| Error::input(file.path(), Position::Line(line.number), what);
        let mut fields = Vec::new();
        ids.fields(&line.bytes, &mut fields).map_err(refuse)?;
        let names: Vec<_> = fields.iter().map(|field| String::from_utf8_lossy(field)).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let chosen = forms.columns.choose(&names, Some(0));
        if chosen.columns.is_empty() {
            let what = format!(
                "expected {} beside the ids, found no such column in this header",
                forms.name
            );
            return Err(refuse(what));
        }
        Ok(Some(Self {
            ids,
            width: names.len(),
            chosen,
        }))
    }

    /// The fields of a line with the data.
    fn numbers<'a>(&self, line: &'a Line, file: &InputFile) -> Result<Vec<Cow<'a, str>>> {
        let refuse = |what| Error::input(file.path(), Position::Line(line.number), what);
        let mut fields = Vec::new();
        self.ids.fields(&line.bytes, &mut fields).map_err(refuse)?;
        if fields.len() != self.width {
            let what = format!(
                "expected {} columns as in the header, found {}",
                self.width,
                fields.len()
            );
            return Err(refuse(what));
        }
        let text = |field: Field<'a>| match field {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
        };
        let chosen = self.chosen.columns.iter();
        Ok(chosen
            .map(|&column| text(std::mem::take(&mut fields[column])))
            .collect())
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
