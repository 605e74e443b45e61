//! Values of a table that have no place in the features: counted by column and kind, with the first few of each, so that one run
//! tells all of them.

use std::collections::{BTreeMap, BTreeSet};

use grappa_io::{Result, text::printable};

use super::options::TEXT_BYTES_MAX;
use crate::{
    columns::shell_list,
    messages::{in_shell, shown},
};

/// The first rows that a message has, of each column and kind.
const ROWS_SHOWN: usize = 3;
/// The first characters of a value that are kept. A message has fewer.
const CHARS_KEPT: usize = 100;
/// The columns that a message names, of each kind.
const COLUMNS_SHOWN: usize = 8;

/// What is wrong with a value, or with all values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A line has another number of columns, or an open quote.
    Line,
    Missing,
    /// A value is missing, and had no missing values in the first table.
    MissingLater,
    /// Text in a column of numbers.
    Text,
    /// Digits with a zero in front, in a column of numbers.
    Code,
    OtherNumber(&'static str),
    OtherDate,
    NotDate,
    NotBoolean,
    NotFinite,
    /// A column has more different texts than a category may have.
    ManyTexts(usize),
    /// A column has no value.
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    pub row: u64,
    /// The value. Empty if it is missing.
    pub value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub count: u64,
    first: Vec<Spot>,
}

impl Found {
    /// Counts a row. Rows come in their order.
    pub fn add(&mut self, row: u64, value: &str) {
        self.count += 1;
        if self.first.len() < ROWS_SHOWN {
            self.first.push(Spot { row, value: value.chars().take(CHARS_KEPT).collect() });
        }
    }

    pub fn and(mut self, other: &Self) -> Self {
        self.count += other.count;
        self.first.extend(other.first.iter().cloned());
        self.first.sort_by_key(|spot| spot.row);
        self.first.truncate(ROWS_SHOWN);
        self
    }
}

/// The names of columns and rows, for messages.
pub(crate) struct RowNames<'a> {
    /// All columns of features.
    pub columns: &'a [String],
    /// The id of a row. None if rows have no ids.
    pub id: &'a dyn Fn(u64) -> Result<Option<String>>,
    /// The place of a row: `line 3`.
    pub place: &'a dyn Fn(u64) -> String,
    /// Whether the columns are numbers only because their first rows are.
    pub is_assumed: bool,
    /// Whether these are columns of edges.
    pub are_edges: bool,
}

/// All problems of a table. The column of a line is the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Problems(BTreeMap<(Kind, usize), Found>);

impl Problems {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the only kind of problem is text in columns of numbers.
    pub fn are_texts_among_numbers(&self) -> bool {
        !self.is_empty() && self.0.keys().all(|(kind, _)| *kind == Kind::Text)
    }

    pub fn add(&mut self, kind: Kind, column: usize, row: u64, value: &str) {
        self.0.entry((kind, column)).or_default().add(row, value);
    }

    /// Adds the rows of a column.
    pub fn insert(&mut self, kind: Kind, column: usize, found: Found) {
        self.0.insert((kind, column), found);
    }

    /// Adds all of another set, whose rows come later.
    pub fn append(&mut self, other: Self) {
        for (key, found) in other.0 {
            let own = self.0.remove(&key).unwrap_or_default();
            self.0.insert(key, own.and(&found));
        }
    }

    /// The problems without missing values and numbers that are not finite.
    pub fn without_non_finite(&self) -> Self {
        let rest = self
            .0
            .iter()
            .filter(|((kind, _), _)| !matches!(kind, Kind::Missing | Kind::MissingLater | Kind::NotFinite));
        Self(rest.map(|(key, found)| (*key, found.clone())).collect())
    }

    /// The rows that a message has.
    pub fn rows_shown(&self) -> BTreeSet<u64> {
        self.0.values().flat_map(|found| &found.first).map(|spot| spot.row).collect()
    }

    /// The first row that has one.
    pub fn first_row(&self) -> Option<u64> {
        self.0.values().filter_map(|found| found.first.first()).map(|spot| spot.row).min()
    }

    /// The message: each kind with its columns, their rows, and the remedy.
    pub fn message(&self, names: &RowNames<'_>) -> Result<String> {
        let mut kinds: Vec<Kind> = self.0.keys().map(|&(kind, _)| kind).collect();
        kinds.dedup();
        let parts: Vec<String> = kinds.iter().map(|&kind| self.of_kind(kind, names)).collect::<Result<_>>()?;
        Ok(parts.join("; "))
    }

    fn of_kind(&self, kind: Kind, names: &RowNames<'_>) -> Result<String> {
        let found: Vec<(usize, &Found)> = self
            .0
            .iter()
            .filter(|((problem_kind, _), _)| *problem_kind == kind)
            .map(|((_, column), found)| (*column, found))
            .collect();
        let mut columns = Vec::new();
        for &(column, found) in found.iter().take(COLUMNS_SHOWN) {
            columns.push(self.of_column(kind, column, found, names)?);
        }
        if found.len() > COLUMNS_SHOWN {
            columns.push(format!("{} more columns", found.len() - COLUMNS_SHOWN));
        }
        let columns = columns.join(", ");
        let without = self.without_columns(kind, names);
        Ok(match kind {
            Kind::Line => format!("lines that are no rows: {columns}: correct them, or remove them"),
            Kind::Missing => format!(
                "missing values in {columns}: give --missing mean, --missing indicator, or a number such as --missing 0, or for one \
                 column --missing {}; {}",
                in_shell(&format!("{}=0", names.columns[found[0].0])),
                if names.are_edges {
                    "--on-bad-line skip leaves such edges out"
                } else {
                    "--allow-nan keeps missing numbers as NaN"
                }
            ),
            Kind::MissingLater => format!(
                "missing values in {columns}, which had none in the table of the schema: fill them in, or build the other store again \
                 with --missing mean"
            ),
            Kind::Text => format!(
                "text among numbers in {columns}: correct the values{}, or leave the column out: {without}",
                if names.is_assumed {
                    ", or give --categories one-hot if it is a category whose first values are numbers"
                } else {
                    ""
                },
            ),
            Kind::Code => format!(
                "digits with a zero in front in {columns}, so these are codes and no numbers: {}, or leave the column out: {without}",
                if names.is_assumed {
                    "give --categories one-hot to read them as categories"
                } else {
                    "write them as numbers"
                },
            ),
            Kind::OtherNumber(notation) => format!(
                "{notation} in {columns}: write numbers such as 1234.5 without signs and separators, or leave the column out: {without}",
            ),
            Kind::OtherDate => format!(
                "dates that may be read in two ways in {columns}: 01/02/2024 is in January or in February; write dates as 2024-02-01, or \
                 leave the column out: {without}",
            ),
            Kind::NotDate => {
                format!("other values among dates in {columns}: correct them, or leave the column out: {without}")
            }
            Kind::NotBoolean => {
                format!("expected true or false in {columns}: correct the values, or leave the column out: {without}")
            }
            Kind::NotFinite => format!(
                "infinite numbers, or numbers beyond 32-bit floats, in {columns}: correct them, or {}",
                if names.are_edges {
                    "leave such edges out with --on-bad-line skip"
                } else {
                    "accept them with --allow-nan"
                }
            ),
            Kind::ManyTexts(max) => format!(
                "more than {max} different texts, or texts of more than {TEXT_BYTES_MAX} bytes, in {columns}: leave the column out: {without}; or \
                 give --categories-max with the number of its texts, if it is a category",
            ),
            Kind::Empty => format!("no value in any row of {columns}: leave the column out: {without}"),
        })
    }

    fn of_column(&self, kind: Kind, column: usize, found: &Found, names: &RowNames<'_>) -> Result<String> {
        if kind == Kind::Empty {
            return Ok(printable(&names.columns[column]).into_owned());
        }
        if kind == Kind::Line {
            let lines = found.first.iter().map(|spot| format!("{}, {}", (names.place)(spot.row), spot.value));
            return Ok(format!("{}, first {}", found.count, lines.collect::<Vec<_>>().join("; ")));
        }
        let rows: Vec<String> = found.first.iter().map(|spot| names.spot(spot)).collect::<Result<_>>()?;
        let more = match found.count - rows.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let column = printable(&names.columns[column]);
        Ok(format!("{column} ({}{more})", rows.join(", ")))
    }

    /// The option that leaves out the columns with a problem of this kind.
    fn without_columns(&self, kind: Kind, names: &RowNames<'_>) -> String {
        let rest: Vec<&str> = (0..names.columns.len())
            .filter(|&column| !self.0.contains_key(&(kind, column)))
            .map(|column| names.columns[column].as_str())
            .collect();
        match (rest.is_empty(), names.are_edges) {
            (true, false) => "omit --features".to_owned(),
            (true, true) => "omit --edge-features-from".to_owned(),
            (false, false) => format!("--features-from {}", shell_list(&rest)),
            (false, true) => format!("--edge-features-from {}", shell_list(&rest)),
        }
    }
}

impl RowNames<'_> {
    /// A row with its value: `"old" of ann in line 3`.
    fn spot(&self, spot: &Spot) -> Result<String> {
        let place = (self.place)(spot.row);
        let id = (self.id)(spot.row)?;
        let row = match id {
            Some(id) => format!("{} in {place}", printable(&id)),
            None => place,
        };
        Ok(match spot.value.is_empty() {
            true => row,
            false => format!("{} of {row}", shown(spot.value.as_bytes())),
        })
    }
}
