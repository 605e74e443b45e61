//! Detects the columns, the separator and the header of a text file from its first lines.

use std::sync::Arc;

use grappa_io::{Error, Position, Result};
use memchr::memchr;

use super::{
    EdgeSourceOptions, IdKind, IdLimit, TextBatch,
    fields::{Checked, KeySeparator, NumberFields, edge_of, is_comment, keys_of, trim, unquoted},
};
use crate::{
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{LINE_BYTES_MAX, Lines},
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
            if looked_at == 0 && data_start.is_none() && is_header(text, csv, strings) {
                data_start = lines.offset().into();
                continue;
            }
            data_start.get_or_insert(line.offset + mark as u64);
            match sniff(text, csv, strings, options.id_limit) {
                Ok(sniffed) => {
                    return Ok(Some(Self {
                        data_start: data_start.unwrap_or(0),
                        weighted: sniffed.columns == 3,
                        separator: sniffed.separator,
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

/// Whether `line` (trimmed, not a comment) is a header: its first two fields are known column names, or, in CSV, no field is
/// a number.
fn is_header(line: &[u8], csv: bool, strings: bool) -> bool {
    let fields: Vec<&[u8]> = NumberFields { rest: Some(line) }.collect();
    if fields.len() < 2 {
        return false;
    }
    let is_one_of = |field: &[u8], names: &[&str]| {
        let field = unquoted(field);
        names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes()))
    };
    if is_one_of(fields[0], &SOURCE_NAMES) && is_one_of(fields[1], &TARGET_NAMES) {
        return true;
    }
    csv && !strings
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
