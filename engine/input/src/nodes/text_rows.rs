//! Text files with one row of numbers per node, read front to back: features and labels.

use std::sync::{Arc, Mutex, PoisonError};

use grappa_io::{Error, Position, Result};

use crate::{
    edges::trim,
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{Line, Lines},
    messages::{ONE_LESS, shown},
};

/// The longest line, in bytes: a million numbers of 16 characters.
const ROW_BYTES_MAX: usize = 16 << 20;

/// Names of a first column of ids.
pub(super) const ID_NAMES: [&str; 8] = ["id", "node", "node_id", "nodeid", "node-id", "node id", "index", "key"];

/// A text file of rows of numbers, after an optional header.
pub(super) struct TextRows {
    extent: Extent,
    header: bool,
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
    /// Reads the first lines to find header and columns. With `blanks`, a blank line is a row with one empty field; otherwise
    /// it is an error.
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
        let (mut header, mut columns) = (false, None);
        while let Some(line) = lines.next_line()? {
            let text = text_of(&line, file)?;
            let fields: Vec<_> = fields(text).collect();
            if line.number == 1
                && fields
                    .iter()
                    .all(|field| !field.is_empty() && field.parse::<f64>().is_err())
            {
                if ID_NAMES.iter().any(|name| fields[0].eq_ignore_ascii_case(name)) && fields.len() > 1 {
                    let what = format!(
                        "the first column, {}, has ids of nodes by its name; leave it out (cut -d, -f2-), and give these ids with \
                         --node-ids if rows are not in ascending order of ids. If it is a feature, rename it",
                        shown(fields[0].as_bytes())
                    );
                    return Err(Error::input(file.path(), Position::Line(1), what));
                }
                header = true;
                continue;
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
            columns,
            expected: None,
            lines: Mutex::new(None),
        })
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
                let parts: Vec<_> = fields(text).collect();
                let result = if parts.len() == self.columns {
                    each(&parts)
                } else {
                    Err(format!(
                        "expected {} numbers as in the first row, found {}",
                        self.columns,
                        parts.len()
                    ))
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

/// Splits a row at commas, or at blanks if it has no comma.
fn fields(text: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    if text.contains(',') || text.is_empty() {
        Box::new(text.split(',').map(|field| field.trim_matches([' ', '\t'])))
    } else {
        Box::new(text.split([' ', '\t']).filter(|field| !field.is_empty()))
    }
}
