//! Why a line or row is not an edge.

use std::path::Path;

use grappa_formats::{dictionary::KEY_BYTES_MAX, time_axis::TimeUnit};
use grappa_io::{Error, Position};

use super::options::{EdgeSourceOptions, IdLimit, LimitSource};
use crate::{
    conversions::Conversion,
    messages::{read_ids_from_one, shown},
    separator::OpenQuote,
};

/// The names of both ends, for messages.
const END_NAMES: [&str; 2] = ["source", "target"];

/// A parsed line or field, or why it is bad.
pub(super) type Checked<T> = Result<T, BadEdge>;

/// Why a line or row is not an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadEdge {
    /// The number of columns differs from the first line's.
    Columns {
        /// Columns of the first line.
        expected: usize,
        /// Columns of this line.
        found: usize,
    },
    /// An id of no characters.
    EmptyId,
    /// A source of no characters.
    EmptySource,
    /// A target of no characters.
    EmptyTarget,
    /// A weight of no characters.
    EmptyWeight,
    /// A value in a last column that is empty in the first lines.
    LastColumn,
    /// An id longer than a dictionary accepts.
    LongId,
    /// An id that is not an integer.
    NotInteger,
    /// An id with a fraction.
    Decimal,
    /// A float that is too large to be exact.
    Rounded,
    /// An id with a plus sign.
    Plus,
    /// An id below zero.
    Negative,
    /// An id at or beyond the limit.
    TooLarge(IdLimit),
    /// A weight that is not a number.
    Weight,
    /// A weight that is NaN or infinite.
    WeightNotFinite,
    /// A weight that is not zero, but would be zero as a 32-bit float.
    WeightTooSmall,
    /// An edge feature of no characters. The features of an edge have numbers from 1.
    EmptyFeature(usize),
    /// An edge feature that is not a number.
    Feature(usize),
    /// An edge feature that is NaN or infinite.
    FeatureNotFinite(usize),
    /// An edge feature that is neither true nor false.
    FeatureNotBoolean(usize),
    /// An edge feature that is not a date.
    FeatureNotDate(usize),
    /// A missing time.
    NoTime,
    /// A time that is neither an integer nor a date.
    Time,
    /// A time with a fraction.
    TimeFraction,
    /// A time that does not fit 64 bits.
    TimeTooLarge,
    /// A date where times are integers without a unit.
    TimeIsDate,
    /// A date that is no multiple of the unit.
    TimeNotWhole(TimeUnit),
    /// A missing value in the column with the order of the edges.
    NoOrder,
    /// A value in this column that is neither a number nor a date.
    Order,
    /// A quoted field that does not end, or is followed by other text than a separator.
    Quote,
    /// A NUL byte.
    Nul,
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A key in a column (Parquet) that is not UTF-8.
    BinaryKey,
    /// A value in a column (Parquet) that is text, but not UTF-8.
    BinaryValue,
    /// A missing value in a column (Parquet).
    Null,
    /// A missing id.
    NullId,
    /// An edge of another relation.
    OtherRelation,
    /// A source, 0, or a target, 1, that is no node of its type.
    NotANode(usize),
    /// A comment after the first line of data.
    Comment,
    /// A comma, semicolon or bar where spaces separate the columns.
    OtherSeparator,
    /// A row or column that the matrix does not have. The number is its number of rows.
    OutsideMatrix(u64),
}

impl From<OpenQuote> for BadEdge {
    fn from(OpenQuote: OpenQuote) -> Self {
        Self::Quote
    }
}

impl BadEdge {
    /// The fault of a source, in column 0, or of a target.
    pub(super) fn of_end(self, column: usize) -> Self {
        match (self, column) {
            (Self::EmptyId, 0) => Self::EmptySource,
            (Self::EmptyId, _) => Self::EmptyTarget,
            (Self::TooLarge(IdLimit::OfType(_)), end) => Self::NotANode(end),
            (other, _) => other,
        }
    }

    /// Whether an end has no id.
    pub fn is_missing_id(self) -> bool {
        matches!(self, Self::NullId | Self::EmptyId | Self::EmptySource | Self::EmptyTarget)
    }

    /// The fault in one clause, without the line and the remedy.
    pub fn reason(self) -> String {
        match self {
            Self::Columns { expected, found } => {
                let columns = match expected {
                    2 => " (source, target)",
                    3 => " (source, target, weight)",
                    _ => "",
                };
                format!("expected {expected} columns{columns}, found {found}")
            }
            Self::EmptyId => "a node id is empty".to_owned(),
            Self::EmptySource => "the source is empty".to_owned(),
            Self::EmptyTarget => "the target is empty".to_owned(),
            Self::EmptyWeight => "the weight is empty".to_owned(),
            Self::LastColumn => "the last column is empty in the first lines, and has a value here".to_owned(),
            Self::LongId => format!("a node id is longer than {KEY_BYTES_MAX} bytes"),
            Self::NotInteger => "a node id is not an integer".to_owned(),
            Self::Decimal => "a node id has a fraction".to_owned(),
            Self::Rounded => {
                "a node id is a float that is too large to be exact, so it may have been rounded".to_owned()
            }
            Self::Plus => "a node id has a plus sign".to_owned(),
            Self::Negative => "a node id is negative".to_owned(),
            Self::TooLarge(IdLimit::Dense) => "a node id is too large: dense ids are below 2^40".to_owned(),
            Self::TooLarge(IdLimit::Nodes(nodes) | IdLimit::OfType(nodes)) => {
                format!("a node id is not below the number of nodes, {nodes}")
            }
            Self::TooLarge(IdLimit::Sparse) => "a node id is too large: the largest sparse id is 2^64 - 2".to_owned(),
            Self::Weight => "the weight is not a number".to_owned(),
            Self::WeightNotFinite => "the weight is not finite, or too large for a 32-bit float".to_owned(),
            Self::WeightTooSmall => "the weight is so small that it would be 0 as a 32-bit float".to_owned(),
            Self::EmptyFeature(number) => format!("edge feature {number} is empty"),
            Self::Feature(number) => format!("edge feature {number} is not a number"),
            Self::FeatureNotFinite(number) => format!("edge feature {number} is not finite"),
            Self::FeatureNotBoolean(number) => format!("edge feature {number} is neither true nor false"),
            Self::FeatureNotDate(number) => format!("edge feature {number} is not a date such as 2024-02-29"),
            Self::NoTime => "the value of --time is missing".to_owned(),
            Self::Time => {
                "the value of --time is neither an integer nor a date such as 2024-02-29 or 2024-02-29T12:30Z"
                    .to_owned()
            }
            Self::TimeFraction => "the value of --time has a fraction, and times are integers".to_owned(),
            Self::TimeTooLarge => "the value of --time does not fit 64 bits in the unit of the store".to_owned(),
            Self::TimeIsDate => "the value of --time is a date, and others are integers".to_owned(),
            Self::TimeNotWhole(unit) => format!("the value of --time is not whole in the unit of the store, {unit}"),
            Self::NoOrder => "the value of --edge-split-by is missing".to_owned(),
            Self::Order => {
                "the value of --edge-split-by is neither a number nor a date such as 2024-02-29T12:30".to_owned()
            }
            Self::Quote => OpenQuote::REASON.to_owned(),
            Self::Nul => "the line holds a NUL byte".to_owned(),
            Self::NotUtf8 => "the line is not UTF-8".to_owned(),
            Self::BinaryKey => "a node id is not UTF-8".to_owned(),
            Self::BinaryValue => "a text is not UTF-8".to_owned(),
            Self::Null | Self::NullId => "a value is missing".to_owned(),
            Self::OtherRelation => "the edge is of another relation".to_owned(),
            Self::NotANode(end) => format!("the {} is no node of its type", END_NAMES[end]),
            Self::Comment => "a line begins as a comment does, after the first edge".to_owned(),
            Self::OtherSeparator => {
                "the columns are separated by spaces, but this line has a comma, semicolon or bar".to_owned()
            }
            Self::OutsideMatrix(rows) => {
                format!("a row or column is not from 1 to {rows}, as the size of the matrix says")
            }
        }
    }

    /// The command that mends a file with bad lines like `line`, and what it is for. None if there is no such command.
    fn repair(self, line: &[u8]) -> Option<(&'static str, Conversion)> {
        let is_split = matches!(self, Self::Columns { .. });
        if !is_split && !matches!(self, Self::NotInteger | Self::Quote) {
            return None;
        }
        let quotes = line.iter().filter(|&&byte| byte == b'"').count();
        let ends = [b",".as_slice(), b";", b"|"].iter().any(|end| line.trim_ascii_end().ends_with(end));
        if self == Self::Quote || is_split && quotes % 2 == 1 {
            Some(("line breaks in quotes, and quotes that are not doubled, are not read: ", Conversion::PlainFields))
        } else if has_odd_characters(line) {
            Some(("the line has blanks, digits or invisible characters that are not of ASCII: ", Conversion::PlainText))
        } else if is_split && ends {
            Some(("some lines end with separators: ", Conversion::TrimEnds))
        } else if has_decorated_integers(line) {
            Some(("to read only the integers of each line: ", Conversion::DigitsOnly))
        } else {
            None
        }
    }

    /// The remedy besides fixing the line or skipping it.
    fn remedy(self, line: &[u8], path: &Path) -> String {
        if let Some((why, conversion)) = self.repair(line) {
            return format!("{why}{}; otherwise ", conversion.command(path));
        }
        let remedy = match self {
            Self::NotInteger => "names need --ids string, a header line needs --header yes; otherwise ",
            Self::Negative => "arbitrary keys need --ids string; otherwise ",
            Self::EmptyFeature(_) | Self::Feature(_) | Self::Null | Self::NullId => {
                "if a column of --edge-features-from has missing values, text, dates or booleans, give --missing mean; otherwise "
            }
            Self::Plus => "an integer id is written as digits only; ",
            Self::TooLarge(IdLimit::Dense) => "large scattered ids need --ids sparse; otherwise ",
            Self::TooLarge(IdLimit::Nodes(nodes)) => {
                let remedy = read_ids_from_one(nodes);
                return format!("raise or omit --nodes; if ids count from 1, {remedy}, without --nodes; otherwise ");
            }
            Self::TooLarge(IdLimit::Sparse) => "arbitrary keys need --ids string; otherwise ",
            Self::Nul => {
                "a binary file needs --format (npy, u32, u64 or parquet), UTF-16 must become UTF-8; otherwise "
            }
            Self::NotUtf8 => {
                return format!(
                    "if the file is in Latin-1, convert it: {}; otherwise ",
                    Conversion::Latin1ToUtf8.command(path)
                );
            }
            Self::Columns { .. } => {
                "if the columns have another separator than was found, give --separator; otherwise "
            }
            Self::Comment => {
                let remove = Conversion::RemoveComments.command(path);
                return format!("comments are only read before the first edge: {remove}; otherwise ");
            }
            Self::OtherSeparator => {
                "give --separator spaces if they are in names, or --separator comma, semicolon or bar if they separate them; otherwise "
            }
            Self::TimeFraction => {
                "write it as an integer of a smaller unit, such as milliseconds with --time-unit ms, or round it; otherwise "
            }
            Self::TimeTooLarge => "choose a larger unit with --time-unit; otherwise ",
            Self::TimeIsDate => "give --time-unit s if integers count seconds since 1970, for example; otherwise ",
            Self::TimeNotWhole(_) => "choose a smaller unit, such as --time-unit s or ms; otherwise ",
            Self::EmptyWeight => "leave weights out with --weight none; otherwise ",
            Self::WeightTooSmall => {
                "multiply all weights by one number, so that the smallest are above 1e-37, or write 0; otherwise "
            }
            Self::LastColumn => "say which columns have the edges, such as --src 1 --dst 2; otherwise ",
            _ => "",
        };
        remedy.to_owned()
    }

    /// The whole message about `line`, a line like which all others of the file probably are.
    pub(super) fn message_of_file(self, line: &[u8], path: &Path) -> String {
        match self {
            // Line ends of old Macs make one line of many.
            _ if line.contains(&b'\r') => {
                let convert = Conversion::MacLineEnds.command(path);
                format!(
                    "lines end in \\r alone, as on old Macs, the first one starts {}; convert the file: {convert}",
                    shown(line)
                )
            }
            Self::Weight => {
                format!(
                    "the third column is not a weight: {}; give --src 1 --dst 2 to leave it out, or --src 1 --dst 3 for triples of subject, \
                     relation and object; write decimal commas as points: {}",
                    shown(line),
                    Conversion::DecimalCommas.command(path)
                )
            }
            _ => self.message(line, path),
        }
    }

    pub(super) fn message(self, line: &[u8], path: &Path) -> String {
        format!(
            "{}: {}; {}fix it, or leave it out with --on-bad-line skip",
            self.reason(),
            shown(line),
            self.remedy(line, path)
        )
    }

    /// The message about an end that is no node of its type. `shown` is its id, or the line.
    pub(super) fn not_a_node(options: &EdgeSourceOptions, end: usize, shown: &str) -> String {
        let (name, node_type) = (END_NAMES[end], &options.ends[end].node_type);
        let nodes = node_type
            .as_ref()
            .map_or_else(String::new, |node_type| format!(" of type {}: {}", node_type.name, node_type.listed_in));
        format!(
            "the {name} {shown} is no node{nodes}; add or correct it, or leave such edges out with --on-bad-line skip"
        )
    }

    /// The error about `line`, at a position of the file `edges`. It has `message`, unless another file is to blame.
    pub(super) fn error(
        self,
        options: &EdgeSourceOptions,
        edges: &Path,
        position: Position,
        line: &[u8],
        message: String,
    ) -> Error {
        let limits = options.ends.iter().filter(|end| self == Self::TooLarge(end.limit));
        match (self, limits.flat_map(|end| &end.limited_by).next()) {
            (Self::TooLarge(IdLimit::Nodes(nodes)), Some(source)) => {
                too_few_nodes(source, nodes, edges, position, line)
            }
            _ => Error::input(edges, position, message),
        }
    }
}

/// The error about a file that knows fewer nodes than the edges name.
fn too_few_nodes(source: &LimitSource, nodes: u64, edges: &Path, position: Position, line: &[u8]) -> Error {
    let ids = line.split(|byte| !byte.is_ascii_digit()).filter(|id| !id.is_empty());
    let ids = ids.take(2).filter_map(|id| std::str::from_utf8(id).ok()?.parse::<u64>().ok());
    let at = format!("{}{position}", edges.display());
    let ids_max = ids.max();
    let (named, needed) = match ids_max.filter(|&id| id >= nodes) {
        Some(id) => (format!("the edges name node {id} ({at})"), format!(", at least {}", id + 1)),
        None => (format!("the edges name a node beyond them ({at})"), String::new()),
    };
    let (LimitSource::Rows(file) | LimitSource::Count(file)) = source;
    let problem = match source {
        LimitSource::Rows(_) => {
            let from_one = match ids_max == Some(nodes) {
                true => format!("; if ids count from 1, {}", read_ids_from_one(nodes)),
                false => String::new(),
            };
            format!("this file has {nodes} rows, but {named}: it needs one row per node{needed}{from_one}")
        }
        LimitSource::Count(_) => format!(
            "this file says that there are {nodes} nodes, but {named}; fix the number, or leave such edges out with --on-bad-line skip"
        ),
    };
    Error::input(file, Position::Whole, problem)
}

/// Whether there are blanks or digits beyond ASCII, controls, or characters without width.
fn has_odd_characters(line: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(line) else {
        return false;
    };
    text.chars().any(|c| match c {
        '\t' | '\r' => false,
        '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => true,
        c if c.is_ascii() => c.is_control(),
        c => c.is_whitespace() || c.is_numeric() || c.is_control(),
    })
}

/// Whether a line has two or three integers among arrows, brackets and colons.
fn has_decorated_integers(line: &[u8]) -> bool {
    let numbers = line.split(|byte| !byte.is_ascii_digit());
    let count = numbers.filter(|digits| !digits.is_empty()).count();
    (2..=3).contains(&count)
        && line.iter().all(|byte| byte.is_ascii_digit() || b"()[]{}<>-=:;,| \t\r'\"".contains(byte))
        && line.iter().any(|byte| b"()[]{}<>=:'".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_command_that_mends_its_file() {
        let (split, id, quote) = (BadEdge::Columns { expected: 2, found: 1 }, BadEdge::NotInteger, BadEdge::Quote);
        for (bad, line, expected) in [
            (split, "\"a", Some(Conversion::PlainFields)),
            (quote, "\"a\"b\",c", Some(Conversion::PlainFields)),
            (split, "0\u{a0}1", Some(Conversion::PlainText)),
            (id, "\u{200b}0 1", Some(Conversion::PlainText)),
            (id, "\u{ff10} 1", Some(Conversion::PlainText)),
            (split, "0\u{b}1", Some(Conversion::PlainText)),
            (split, "0,1, ", Some(Conversion::TrimEnds)),
            (split, "0->1", Some(Conversion::DigitsOnly)),
            (id, "(0, 1)", Some(Conversion::DigitsOnly)),
            (split, "0::1::5", Some(Conversion::DigitsOnly)),
            (id, "a b", None),
            (id, "1_000 2", None),
            (split, "J\u{fc}rgen", None),
        ] {
            assert_eq!(bad.repair(line.as_bytes()).map(|(_, conversion)| conversion), expected, "{line}");
        }
    }
}
