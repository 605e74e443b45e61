//! Detects the columns, the separator and the header of a text file from its first lines.

use std::sync::Arc;

use grappa_io::{Error, Position, Result};
use memchr::memchr;

use super::{
    EdgeSourceOptions, HeaderLine, IdKind, IdLimit, TextBatch,
    fields::{Checked, KeySeparator, NumberFields, edge_of, is_comment, keys_of, trim, unquoted},
};
use crate::{
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{LINE_BYTES_MAX, Lines},
    messages::shown,
};

/// The most lines to search for one that shows the columns.
const SNIFFED_LINES_MAX: usize = 1000;

/// The layout of a text file.
#[derive(Debug, Clone)]
pub(super) struct TextLayout {
    /// Offset of the first line with data, after a byte order mark, comments and a header.
    pub data_start: u64,
    pub weighted: bool,
    pub separator: KeySeparator,
    /// The first line, if it has column names that are valid string ids too.
    pub column_names: Option<ColumnNames>,
}

/// A first line that may be a header or an edge.
#[derive(Debug, Clone)]
pub(super) struct ColumnNames {
    /// The number of the line, from 1.
    pub number: u64,
    /// The line, for messages.
    pub text: String,
    /// How it is read.
    pub is_header: bool,
}

impl TextLayout {
    /// Reads up to the first well-formed edge. None if there are only comments.
    pub fn sniff(
        file: &Arc<InputFile>,
        compression: Compression,
        csv: bool,
        options: &EdgeSourceOptions,
    ) -> Result<Option<Self>> {
        let strings = options.ids == IdKind::String;
        let stream = Extent::whole(file, compression).stream()?;
        let mut lines = Lines::new(stream, LINE_BYTES_MAX);
        let (mut data_start, mut looked_at) = (None, 0);
        let mut column_names = None;
        let mut first_bad = None;
        while let Some(line) = lines.next_line()? {
            let mark = if line.number == 1 && line.bytes.starts_with(b"\xef\xbb\xbf") {
                3
            } else {
                0
            };
            let text = trim(&line.bytes[mark..]);
            if is_comment(text) {
                continue;
            }
            if data_start.is_none() {
                let is_header = is_header(text, csv, options);
                if strings && options.header == HeaderLine::Auto && has_column_names(text) {
                    column_names = Some(ColumnNames {
                        number: line.number,
                        text: shown(text),
                        is_header,
                    });
                }
                if is_header {
                    data_start = lines.offset().into();
                    continue;
                }
            }
            data_start.get_or_insert(line.offset + mark as u64);
            match sniff(text, csv, strings, options.id_limit) {
                Ok(sniffed) => {
                    return Ok(Some(Self {
                        data_start: data_start.unwrap_or(0),
                        weighted: sniffed.columns == 3,
                        separator: sniffed.separator,
                        column_names,
                    }));
                }
                Err(bad) => {
                    let message = bad.message(&line.bytes[mark..]);
                    first_bad.get_or_insert((line.number, message));
                }
            }
            looked_at += 1;
            if looked_at == SNIFFED_LINES_MAX {
                break;
            }
        }
        match first_bad {
            Some((line, message)) => Err(Error::input(file.path(), Position::Line(line), message)),
            None => Ok(None),
        }
    }
}

/// The columns and the separator of a data line.
struct Sniffed {
    /// 2, or 3 with a weight.
    columns: usize,
    separator: KeySeparator,
}

/// Detects columns and separator from a data line. An error says why it is bad with either number of columns.
fn sniff(line: &[u8], csv: bool, strings: bool, limit: IdLimit) -> Checked<Sniffed> {
    let separator = if csv {
        KeySeparator::Comma
    } else if memchr(b'\t', line).is_some() {
        KeySeparator::Tab
    } else {
        KeySeparator::Blanks
    };
    let columns = if strings {
        separator.fields(line)?.len()
    } else {
        NumberFields { rest: Some(line) }.count()
    };
    let weighted = columns >= 3;
    if strings {
        keys_of(line, weighted, separator, false, &mut TextBatch::default())?;
    } else {
        edge_of(line, weighted, limit)?;
    }
    Ok(Sniffed {
        columns: if weighted { 3 } else { 2 },
        separator,
    })
}

/// Whether `line`, the first one (trimmed, not a comment), is a header.
fn is_header(line: &[u8], csv: bool, options: &EdgeSourceOptions) -> bool {
    match (options.header, options.ids) {
        (HeaderLine::Yes, _) => true,
        (HeaderLine::No, _) => false,
        (HeaderLine::Auto, IdKind::Integer) => has_column_names(line) || csv && has_no_numbers(line),
        (HeaderLine::Auto, IdKind::String) => csv && has_column_names(line),
    }
}

/// Whether the first two fields of a line are known column names.
fn has_column_names(line: &[u8]) -> bool {
    let is_one_of = |field: Option<&[u8]>, names: &[&str]| {
        let field = field.map(unquoted).unwrap_or_default();
        names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes()))
    };
    let mut fields = NumberFields { rest: Some(line) };
    is_one_of(fields.next(), &SOURCE_NAMES) && is_one_of(fields.next(), &TARGET_NAMES)
}

/// Whether a line has at least two fields, and no field is a number.
fn has_no_numbers(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = NumberFields { rest: Some(line) }.collect();
    fields.len() >= 2
        && fields
            .iter()
            .all(|field| std::str::from_utf8(unquoted(field)).is_ok_and(|text| text.parse::<f64>().is_err()))
        && fields.iter().take(2).all(|field| !field.is_empty())
}

/// Names for the column of sources, the most specific first.
pub(super) const SOURCE_NAMES: [&str; 10] = [
    "source",
    "src",
    "from",
    "source_id",
    "src_id",
    "from_id",
    "u",
    "head",
    "subject",
    "start",
];

/// Names for the column of targets.
pub(super) const TARGET_NAMES: [&str; 11] = [
    "target",
    "dst",
    "dest",
    "to",
    "target_id",
    "dst_id",
    "to_id",
    "v",
    "tail",
    "object",
    "end",
];
