//! Detects the columns, the separator and the header of a text file from its first lines.

use std::sync::Arc;

use grappa_io::{Error, Position, Result};
use memchr::memchr;

use super::{
    EdgeSourceOptions, HeaderLine, IdKind, IdLimit, TextBatch,
    column_names::{ColumnOrder, NamedColumns, has_no_numbers, names_other_than_weights, with_fields},
    fields::{Checked, KeySeparator, NumberFields, edge_of, is_comment, keys_of, trim},
};
use crate::{
    extent::{Compression, Extent},
    file::InputFile,
    line_reader::{LINE_BYTES_MAX, Lines},
    messages::shown,
};

/// The most lines to search for one that shows the columns.
const SNIFFED_LINES_MAX: usize = 1000;

/// Larger integers are not all exact as `f32`. Times in seconds are larger.
const EXACT_MAX: f32 = (1 << f32::MANTISSA_DIGITS) as f32;

/// The layout of a text file.
#[derive(Debug, Clone)]
pub(super) struct TextLayout {
    /// Offset of the first line with data, after a byte order mark, comments and a header.
    pub data_start: u64,
    pub weighted: bool,
    pub separator: KeySeparator,
    /// The order of the columns with ids.
    pub order: ColumnOrder,
    /// The first line, if the user should know how it is read.
    pub first_line: Option<FirstLine>,
}

/// A first line that may be meant in another way than it is read.
#[derive(Debug, Clone)]
pub(super) struct FirstLine {
    /// The number of the line, from 1.
    pub number: u64,
    /// The line, for messages.
    pub text: String,
    /// How it is read.
    pub read_as: ReadAs,
}

/// How a first line is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadAs {
    /// A header that may be an edge between strings.
    Header,
    /// An edge between strings that may be a header.
    Edge,
    /// A header that names the targets first.
    TargetsFirst,
    /// A header whose third column does not have the name of weights.
    OtherThanWeights,
    /// An edge with a weight that is too large for an exact `f32`.
    LargeWeight,
}

impl ReadAs {
    pub const ALL: [Self; 5] = [
        Self::Header,
        Self::Edge,
        Self::TargetsFirst,
        Self::OtherThanWeights,
        Self::LargeWeight,
    ];

    /// The message, after the line.
    pub fn message(self) -> &'static str {
        match self {
            Self::Header => "is read as a header, not as an edge; if it is an edge, give --header no",
            Self::Edge => {
                "is read as an edge; give --header yes if it has column names, or --header no to say that it has not"
            }
            Self::TargetsFirst => {
                "names the targets first, so edges go from the second column to the first; correct it if they do not, or give \
                 --header no if it is an edge"
            }
            Self::OtherThanWeights => {
                "names a third column, which is stored as edge weights; if it has none, leave it out: cut -f1,2 (CSV: cut -d, -f1,2)"
            }
            Self::LargeWeight => {
                "has a third column, which is stored as edge weights of type f32; if it has others, such as times, leave it out: \
                 cut -f1,2 (CSV: cut -d, -f1,2)"
            }
        }
    }
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
        let (mut order, mut first_line) = (ColumnOrder::SourceTarget, None);
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
            let is_first = data_start.is_none();
            let note = |read_as| FirstLine {
                number: line.number,
                text: shown(text),
                read_as,
            };
            if is_first {
                let named = with_fields(text, csv, strings, NamedColumns::find);
                let is_header = is_header(text, named.is_some(), csv, options);
                if strings && options.header == HeaderLine::Auto && named.is_some() {
                    first_line = Some(note(if is_header { ReadAs::Header } else { ReadAs::Edge }));
                }
                if is_header {
                    data_start = lines.offset().into();
                    if let Some(named) = named {
                        let wrong = || Error::input(file.path(), Position::Line(line.number), wrong_order(text));
                        order = named.order().ok_or_else(wrong)?;
                    }
                    if order == ColumnOrder::TargetSource {
                        first_line = Some(note(ReadAs::TargetsFirst));
                    }
                    if with_fields(text, csv, strings, names_other_than_weights) {
                        first_line.get_or_insert_with(|| note(ReadAs::OtherThanWeights));
                    }
                    continue;
                }
            }
            data_start.get_or_insert(line.offset + mark as u64);
            match sniff(text, csv, strings, options.id_limit) {
                Ok(sniffed) => {
                    let ambiguous = is_first && strings && options.header == HeaderLine::Auto;
                    if ambiguous && may_be_names(text, &sniffed) {
                        first_line = Some(note(ReadAs::Edge));
                    }
                    if sniffed.weight.is_some_and(|weight| weight.abs() > EXACT_MAX) {
                        first_line.get_or_insert_with(|| note(ReadAs::LargeWeight));
                    }
                    return Ok(Some(Self {
                        data_start: data_start.unwrap_or(0),
                        weighted: sniffed.columns == 3,
                        separator: sniffed.separator,
                        order,
                        first_line,
                    }));
                }
                Err(bad) => {
                    let position = Position::Line(line.number);
                    let message = |line: &[u8]| bad.message_of_file(line);
                    first_bad
                        .get_or_insert_with(|| bad.error(options, file.path(), position, &line.bytes[mark..], message));
                }
            }
            looked_at += 1;
            if looked_at == SNIFFED_LINES_MAX {
                break;
            }
        }
        match first_bad {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }
}

/// The columns and the separator of a data line.
struct Sniffed {
    /// 2, or 3 with a weight.
    columns: usize,
    separator: KeySeparator,
    /// The weight, between integer ids.
    weight: Option<f32>,
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
    let edge = if strings {
        keys_of(line, weighted, separator, false, &mut TextBatch::default())?;
        None
    } else {
        edge_of(line, weighted, limit)?
    };
    Ok(Sniffed {
        columns: if weighted { 3 } else { 2 },
        separator,
        weight: edge.map(|(_, _, weight)| weight),
    })
}

/// Whether `line`, the first one (trimmed, not a comment), is a header. `named`: it has known column names.
fn is_header(line: &[u8], named: bool, csv: bool, options: &EdgeSourceOptions) -> bool {
    match (options.header, options.ids) {
        (HeaderLine::Yes, _) => true,
        (HeaderLine::No, _) => false,
        (HeaderLine::Auto, IdKind::Integer) => named || csv && with_fields(line, csv, false, has_no_numbers),
        (HeaderLine::Auto, IdKind::String) => named && csv,
    }
}

/// Whether a line of string ids that is read as an edge may have column names instead.
fn may_be_names(line: &[u8], sniffed: &Sniffed) -> bool {
    // A third column is a number, and words that are separated by blanks rarely have a header. The usual names with digits are known.
    let has_digits = line.iter().any(u8::is_ascii_digit);
    sniffed.columns == 2 && sniffed.separator != KeySeparator::Blanks && !has_digits
}

/// The message about a header whose order of columns is not read.
fn wrong_order(line: &[u8]) -> String {
    format!(
        "the columns are {}, but expected source, target and, if edges have weights, a third column of weights; write the \
         columns in this order, or remove this line if its names are wrong",
        shown(line)
    )
}
