//! Why a line or row is not an edge.

use std::path::Path;

use grappa_formats::dictionary::KEY_BYTES_MAX;
use grappa_io::{Error, Position};

use super::{
    options::{EdgeSourceOptions, IdLimit, LimitSource},
    repair::{Symptom, repair_of},
};
use crate::{
    conversions::Conversion,
    messages::{read_ids_from_one, shown},
    separator::OpenQuote,
};

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
    /// An edge feature of no characters. The features of an edge have numbers from 1.
    EmptyFeature(usize),
    /// An edge feature that is not a number.
    Feature(usize),
    /// An edge feature that is NaN or infinite.
    FeatureNotFinite(usize),
    /// A quoted field that does not end, or is followed by other text than a separator.
    Quote,
    /// A NUL byte.
    Nul,
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A key in a column (Parquet) that is not UTF-8.
    BinaryKey,
    /// A missing value in a column (Parquet).
    Null,
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
            (other, _) => other,
        }
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
            Self::TooLarge(IdLimit::Nodes(nodes)) => {
                format!("a node id is not below the number of nodes, {nodes}")
            }
            Self::TooLarge(IdLimit::Sparse) => "a node id is too large: the largest sparse id is 2^64 - 2".to_owned(),
            Self::Weight => "the weight is not a number".to_owned(),
            Self::WeightNotFinite => "the weight is not finite".to_owned(),
            Self::EmptyFeature(number) => format!("edge feature {number} is empty"),
            Self::Feature(number) => format!("edge feature {number} is not a number"),
            Self::FeatureNotFinite(number) => format!("edge feature {number} is not finite"),
            Self::Quote => OpenQuote::REASON.to_owned(),
            Self::Nul => "the line holds a NUL byte".to_owned(),
            Self::NotUtf8 => "the line is not UTF-8".to_owned(),
            Self::BinaryKey => "a node id is not UTF-8".to_owned(),
            Self::Null => "a value is missing".to_owned(),
            Self::Comment => "a line begins as a comment does, after the first edge".to_owned(),
            Self::OtherSeparator => {
                "the columns are separated by spaces, but this line has a comma, semicolon or bar".to_owned()
            }
            Self::OutsideMatrix(rows) => {
                format!("a row or column is not from 1 to {rows}, as the size of the matrix says")
            }
        }
    }

    /// The remedy besides fixing the line or skipping it.
    fn remedy(self, line: &[u8], path: &Path) -> String {
        let symptom = match self {
            Self::Columns { .. } => Some(Symptom::Columns),
            Self::NotInteger => Some(Symptom::Id),
            Self::Quote => Some(Symptom::Quote),
            _ => None,
        };
        if let Some((why, conversion)) = symptom.and_then(|symptom| repair_of(symptom, line)) {
            return format!("{why}{}; otherwise ", conversion.command(path));
        }
        let remedy = match self {
            Self::NotInteger => "names need --ids string, a header line needs --header yes; otherwise ",
            Self::Negative => "arbitrary keys need --ids string; otherwise ",
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
            Self::EmptyWeight => "leave weights out with --weight none; otherwise ",
            Self::LastColumn => "say which columns have the edges, such as --src 1 --dst 2; otherwise ",
            Self::OutsideMatrix(_)
            | Self::EmptyId
            | Self::EmptySource
            | Self::EmptyTarget
            | Self::LongId
            | Self::Decimal
            | Self::Rounded
            | Self::Weight
            | Self::WeightNotFinite
            | Self::EmptyFeature(_)
            | Self::Feature(_)
            | Self::FeatureNotFinite(_)
            | Self::Quote
            | Self::BinaryKey
            | Self::Null => "",
        };
        remedy.to_owned()
    }

    /// The whole message about `line`, a line like which all others of the file probably are.
    pub(super) fn message_of_file(self, line: &[u8], path: &Path) -> String {
        match self {
            _ if has_old_line_ends(line) => {
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

    /// The whole message about `line`.
    pub(super) fn message(self, line: &[u8], path: &Path) -> String {
        format!(
            "{}: {}; {}fix it, or leave it out with --on-bad-line skip",
            self.reason(),
            shown(line),
            self.remedy(line, path)
        )
    }

    /// The error about `line`, at a position of the file `edges`. `message` is the whole message, unless another file is to blame.
    pub(super) fn error(
        self,
        options: &EdgeSourceOptions,
        edges: &Path,
        position: Position,
        line: &[u8],
        message: impl FnOnce(&[u8]) -> String,
    ) -> Error {
        match (self, &options.limited_by) {
            (Self::TooLarge(IdLimit::Nodes(nodes)), Some(source)) => {
                too_few_nodes(source, nodes, edges, position, line)
            }
            _ => Error::input(edges, position, message(line)),
        }
    }
}

/// Whether what was read as a line, without the line end that it may have, contains line ends of old Macs.
fn has_old_line_ends(line: &[u8]) -> bool {
    line.contains(&b'\r')
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
    let (file, what) = match source {
        LimitSource::Rows(file) => {
            let from_one = match ids_max {
                Some(id) if id == nodes => {
                    let remedy = read_ids_from_one(nodes);
                    format!("; if ids count from 1, {remedy}")
                }
                _ => String::new(),
            };
            let what = format!("this file has {nodes} rows, but {named}: it needs one row per node{needed}{from_one}");
            (file, what)
        }
        LimitSource::Count(file) => {
            let what = format!(
                "this file says that there are {nodes} nodes, but {named}; fix the number, or leave such edges out with \
                 --on-bad-line skip"
            );
            (file, what)
        }
    };
    Error::input(file, Position::Whole, what)
}
