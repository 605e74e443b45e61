//! Tables as text with commas.

use std::{
    io::Write,
    iter,
    path::{Path, PathBuf},
};

use grappa_io::{Error, Result};

use super::cells::{Cells, Column, GroupSink, Shape};

const WRITE_BYTES: usize = 256 << 10;

pub(super) struct CsvWriter<'a, W> {
    out: W,
    /// The name of the file, for errors.
    path: PathBuf,
    columns: &'a [Column],
    /// Text that is not written yet.
    text: Vec<u8>,
    bytes: u64,
}

impl<'a, W: Write> CsvWriter<'a, W> {
    /// Writes the header.
    pub fn new(out: W, path: &Path, columns: &'a [Column]) -> Result<Self> {
        let mut text = Vec::new();
        for column in columns {
            let names = match column.shape {
                Shape::Vector(width) => (0..width).map(|number| format!("{}_{number}", column.name)).collect(),
                Shape::One | Shape::Optional | Shape::List => vec![column.name.clone()],
            };
            for name in names {
                push_text(name.as_bytes(), &mut text);
                text.push(b',');
            }
        }
        end_line(&mut text);
        Ok(Self { out, path: path.to_owned(), columns, text, bytes: 0 })
    }

    /// Writes the rest. Returns the number of bytes of the table.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.out.flush().map_err(Error::io("write", &self.path))?;
        Ok(self.bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.out.write_all(&self.text).map_err(Error::io("write", &self.path))?;
        self.bytes += self.text.len() as u64;
        self.text.clear();
        Ok(())
    }
}

impl<W: Write + Send> GroupSink for CsvWriter<'_, W> {
    fn write(&mut self, cells: &[Cells]) -> Result<()> {
        let mut next = vec![0; cells.len()];
        let Some((cells_of_first, first)) = cells.first().zip(self.columns.first()) else {
            return Ok(());
        };
        for row in 0..cells_of_first.rows(first) {
            for ((column, cells), next) in self.columns.iter().zip(cells).zip(&mut next) {
                let count = cells.count(column, row).unwrap_or(0);
                let values = *next..*next + count;
                *next += count;
                let mut shown = values.map(|at| cells.values.shown(column.scalar, at));
                if matches!(column.shape, Shape::Vector(_)) {
                    for value in shown {
                        push_text(&value, &mut self.text);
                        self.text.push(b',');
                    }
                    continue;
                }
                if let Some(first) = shown.next() {
                    let all: Vec<_> = iter::once(first).chain(shown).collect();
                    push_text(&all.join(&b';'), &mut self.text);
                }
                self.text.push(b',');
            }
            end_line(&mut self.text);
            if self.text.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }
}

/// Appends a cell, in quotes where it would be read as something else without.
fn push_text(cell: &[u8], out: &mut Vec<u8>) {
    let ends = [cell.first(), cell.last()];
    let needs_quotes = ends.iter().any(|end| matches!(end, None | Some(b' ' | b'\t')))
        || cell.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    match needs_quotes {
        true => push_quoted(cell, out),
        false => out.extend_from_slice(cell),
    }
}

/// Appends a cell in quotes.
pub fn push_quoted(cell: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in cell {
        out.push(byte);
        out.extend((byte == b'"').then_some(byte));
    }
    out.push(b'"');
}

/// Replaces the comma after the last cell.
fn end_line(out: &mut [u8]) {
    if let Some(last) = out.last_mut() {
        *last = b'\n';
    }
}
