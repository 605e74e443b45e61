//! Tables as text.
//!
//! This is no use of the `arrow-csv` crate, which refuses lists, writes the bytes of strings that are not UTF-8 as hexadecimal digits, the
//! number 2 as `2.0`, and blanks at the ends of a cell without quotes, where readers of CSV skip them.

use std::io::Write;

use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Int64Array, ListArray, RecordBatch, StringArray,
    UInt64Array, cast::AsArray,
};
use arrow_schema::{DataType, Schema};

use super::shape::TableFormat;

/// Appends the names of the columns, if the format has them.
pub(super) fn append_header(format: TableFormat, schema: &Schema, out: &mut Vec<u8>) {
    if format == TableFormat::Tsv && schema.field(0).data_type() != &DataType::Binary {
        return;
    }
    let mut names = Vec::new();
    for field in schema.fields() {
        match field.data_type() {
            DataType::FixedSizeList(_, width) => names.extend((0..*width).map(|at| format!("{}_{at}", field.name()))),
            _ => names.push(field.name().clone()),
        }
    }
    for name in names {
        let start = out.len();
        match format {
            TableFormat::Csv => {
                out.extend(name.bytes());
                quote_if_needed(out, start);
            }
            // There are no quotes: a name that needs them loses its tabs and line ends.
            _ => out.extend(name.replace(['\t', '\n', '\r'], " ").bytes()),
        }
        out.push(separator(format));
    }
    end_line(out);
}

/// Appends rows.
pub(super) fn append(format: TableFormat, batch: &RecordBatch, out: &mut Vec<u8>) {
    let columns: Vec<Cells<'_>> = batch.columns().iter().map(Cells::new).collect();
    for row in 0..batch.num_rows() {
        for column in &columns {
            column.append(row, format, out);
            out.push(separator(format));
        }
        end_line(out);
    }
}

fn separator(format: TableFormat) -> u8 {
    if format == TableFormat::Csv { b',' } else { b'\t' }
}

/// The cells of a column.
enum Cells<'a> {
    Integers(&'a Int64Array),
    Unsigned(&'a UInt64Array),
    Floats(&'a Float32Array),
    Bytes(&'a BinaryArray),
    Strings(&'a StringArray),
    Lists(&'a ListArray, Box<Cells<'a>>),
    /// Several cells of each row.
    Vectors(&'a FixedSizeListArray, Box<Cells<'a>>),
}

impl<'a> Cells<'a> {
    fn new(column: &'a ArrayRef) -> Self {
        match column.data_type() {
            DataType::Int64 => Self::Integers(column.as_primitive()),
            DataType::UInt64 => Self::Unsigned(column.as_primitive()),
            DataType::Float32 => Self::Floats(column.as_primitive()),
            DataType::Binary => Self::Bytes(column.as_binary()),
            DataType::Utf8 => Self::Strings(column.as_string()),
            DataType::List(_) => Self::Lists(column.as_list(), Box::new(Self::new(column.as_list::<i32>().values()))),
            DataType::FixedSizeList(..) => {
                let vectors = column.as_fixed_size_list();
                Self::Vectors(vectors, Box::new(Self::new(vectors.values())))
            }
            other => unreachable!("no text has columns of {other}"),
        }
    }

    /// Appends the cell of a row, or its cells. A missing value is an empty cell.
    fn append(&self, row: usize, format: TableFormat, out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Self::Integers(column) if column.is_valid(row) => {
                out.extend_from_slice(itoa::Buffer::new().format(column.value(row)).as_bytes());
            }
            Self::Unsigned(column) if column.is_valid(row) => {
                out.extend_from_slice(itoa::Buffer::new().format(column.value(row)).as_bytes());
            }
            Self::Floats(column) if column.is_valid(row) => {
                write!(out, "{}", column.value(row)).expect("memory takes all bytes");
            }
            Self::Bytes(column) if column.is_valid(row) => append_text(column.value(row), format, out),
            Self::Strings(column) if column.is_valid(row) => append_text(column.value(row).as_bytes(), format, out),
            Self::Lists(column, values) if column.is_valid(row) => {
                let [first, end] = [row, row + 1].map(|row| column.value_offsets()[row] as usize);
                for at in first..end {
                    // Quotes are for the whole list.
                    values.append(at, TableFormat::Lines, out);
                    out.extend((at + 1 < end).then_some(b';'));
                }
                if first < end && format == TableFormat::Csv {
                    quote_if_needed(out, start);
                }
            }
            Self::Vectors(column, values) => {
                let (first, width) = (column.value_offset_at(row), column.value_length() as usize);
                for at in first..first + width {
                    values.append(at, format, out);
                    out.extend((at + 1 < first + width).then_some(separator(format)));
                }
            }
            _ => {}
        }
    }
}

fn append_text(text: &[u8], format: TableFormat, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(text);
    if format == TableFormat::Csv {
        quote_if_needed(out, start);
    }
}

/// Puts the cell from `start` on in quotes, if it would be read as something else without.
fn quote_if_needed(out: &mut Vec<u8>, start: usize) {
    let cell = &out[start..];
    let has_blank_end = [cell.first(), cell.last()].iter().any(|end| matches!(end, None | Some(b' ')));
    // Ingest recognizes text with tabs by its tabs.
    if has_blank_end || cell.iter().any(|byte| matches!(byte, b',' | b'"' | b'\t' | b'\n' | b'\r')) {
        let cell = out.split_off(start);
        out.push(b'"');
        for byte in cell {
            out.push(byte);
            out.extend((byte == b'"').then_some(byte));
        }
        out.push(b'"');
    }
}

/// Replaces the separator after the last cell.
fn end_line(out: &mut [u8]) {
    if let Some(last) = out.last_mut() {
        *last = b'\n';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_would_be_read_as_something_else() {
        for (cell, is_quoted) in [
            ("plain", false),
            ("with blank", false),
            ("a,b", true),
            ("say \"a\"", true),
            ("a\tb", true),
            (" a", true),
            ("a ", true),
            ("", true),
            ("a\nb", true),
            // Comments end at the header.
            ("#a", false),
        ] {
            let mut out = Vec::new();
            append_text(cell.as_bytes(), TableFormat::Csv, &mut out);
            assert_eq!(out.starts_with(b"\""), is_quoted, "{cell:?}");
        }
    }
}
