//! Text files with one row of numbers per node, read front to back: features and labels.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_io::{Error, Position, Result};

use super::id_column::IdColumn;
use crate::{
    edges::trim,
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
    /// The column of ids before the numbers, if there is one.
    ids: Option<IdColumn>,
    /// Numbers per row.
    columns: usize,
    /// The number of rows that there must be, and advice for more rows.
    expected: Option<(u64, &'static str)>,
    /// The lines, and the number of the next row.
    lines: Mutex<Option<(Lines, u64)>>,
}

/// The lines of a text file that may be compressed.
pub(crate) fn lines_of(extent: &Extent) -> Result<Lines> {
    Ok(Lines::new(extent.stream()?, ROW_BYTES_MAX))
}

impl TextRows {
    /// Reads the first lines to find header and columns. With `blanks`, a blank line is a row with one empty field, unless rows have
    /// ids; otherwise it is an error.
    pub fn open(file: &Arc<InputFile>, blanks: bool) -> Result<Self> {
        let head = file.head(8)?;
        if head.starts_with(b"PAR1") {
            let what = "only edges are read from Parquet; save these rows as .npy: numpy.save(path, \
                        numpy.ascontiguousarray(table.to_numpy()))";
            return Err(Error::input(file.path(), Position::Whole, what));
        }
        let compression = Compression::of(&head);
        let extent = Extent::whole(file, compression);
        let mut lines = lines_of(&extent)?;
        let (mut header, mut ids, mut columns) = (false, None, None);
        while let Some(line) = lines.next_line()? {
            if line.number == 1 {
                ids = IdColumn::of_header(&line.bytes);
            }
            let text = text_of(&line, file)?;
            let fields: Vec<_> = fields(text).collect();
            let is_name = |field: &&str| !field.is_empty() && field.parse::<f64>().is_err();
            if line.number == 1 && (ids.is_some() || fields.iter().all(is_name)) {
                header = true;
                continue;
            }
            if let Some(ids) = ids {
                columns = Some(numbers_of(ids, &line, file)?.len());
                break;
            }
            if fields.len() > 1 || !fields[0].is_empty() {
                columns = Some(fields.len());
                break;
            }
            if !blanks {
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
            ids,
            columns,
            expected: None,
            lines: Mutex::new(None),
        })
    }

    /// Whether the first column has the ids of the rows.
    pub fn has_ids(&self) -> bool {
        self.ids.is_some()
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
                let result = match self.ids {
                    None => self.row(&fields(text).collect::<Vec<_>>(), each),
                    Some(ids) => {
                        let numbers = numbers_of(ids, &line, self.file())?;
                        self.row(&numbers.iter().map(|number| &**number).collect::<Vec<_>>(), each)
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

/// The fields after the id of a line.
fn numbers_of<'a>(ids: IdColumn, line: &'a Line, file: &InputFile) -> Result<Vec<Cow<'a, str>>> {
    text_of(line, file)?;
    let mut fields = Vec::new();
    ids.values(&line.bytes, &mut fields)
        .map_err(|what| Error::input(file.path(), Position::Line(line.number), what))?;
    let text = |field: Cow<'a, [u8]>| match field {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    };
    Ok(fields.into_iter().map(text).collect())
}

/// Splits a row at commas, or at blanks if it has no comma.
fn fields(text: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    if text.contains(',') || text.is_empty() {
        Box::new(text.split(',').map(|field| field.trim_matches([' ', '\t'])))
    } else {
        Box::new(text.split([' ', '\t']).filter(|field| !field.is_empty()))
    }
}
