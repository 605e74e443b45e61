//! How an input file is read: its format, and the roles of its columns.

use std::{fmt, path::PathBuf};

use grappa_formats::schema::{CategoryForm, Column, Encoding, Missing};
use grappa_io::text::printable;

use crate::{messages::in_shell, separator::Separator};

/// The most names of columns in one line.
const NAMES_MAX: usize = 6;

/// How an input file is read, or several that are read in the same way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// The first file.
    pub file: PathBuf,
    /// The number of files after it.
    pub more_files: usize,
    /// What it has: edges, features or labels.
    pub content: &'static str,
    /// Its format.
    pub format: &'static str,
    /// What separates the columns of text.
    pub separator: Option<Separator>,
    /// Whether the first line has the names of the columns.
    pub header: bool,
    /// Comments before the data, which are not read.
    pub comments: u64,
    /// The roles of columns and their names, or their numbers, from 1.
    pub columns: Vec<(&'static str, String)>,
    /// What the columns of features become, if they have names.
    pub encodings: Vec<ColumnReading>,
    /// The columns that are not read.
    pub left_out: Vec<String>,
    /// Whether rows belong to nodes by their order. None if it is a list of edges.
    pub by_position: Option<bool>,
}

/// What a column of features becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnReading {
    /// The column and its encoding.
    pub column: Column,
    /// The number of missing values. None if they were not counted before the rows are read.
    pub missing: Option<u64>,
}

impl ColumnReading {
    /// Whether it is a column of numbers without missing values, which needs no word.
    fn is_plain(&self) -> bool {
        self.column.encoding == (Encoding::Number { missing: Missing::Refused })
    }

    /// What a missing value becomes. None if there must be none.
    pub fn replacement(&self) -> Option<String> {
        match &self.column.encoding {
            Encoding::Number { missing } | Encoding::Boolean { missing } | Encoding::Date { missing } => {
                match missing {
                    Missing::Refused => None,
                    Missing::Constant(value) => Some(value.to_string()),
                    Missing::Mean(mean) => Some(format!("the mean {mean}")),
                    Missing::Indicator(mean) => Some(format!("the mean {mean} and an indicator")),
                }
            }
            Encoding::Category { .. } => Some("other".to_owned()),
        }
    }
}

impl fmt::Display for ColumnReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is ", printable(&self.column.name))?;
        match &self.column.encoding {
            Encoding::Number { .. } => write!(f, "a number")?,
            Encoding::Boolean { .. } => write!(f, "false or true (0, 1)")?,
            Encoding::Date { .. } => write!(f, "a date (days since 1970-01-01)")?,
            Encoding::Category { values, form } => {
                let shown: Vec<_> = values.iter().take(NAMES_MAX).map(|value| printable(value)).collect();
                let form = match form {
                    CategoryForm::OneHot => "one-hot",
                    CategoryForm::Index => "by index",
                };
                write!(f, "one of {}{}, else other ({form})", shown.join(", "), and_more(values.len()))?;
            }
        }
        if let (Some(missing @ 1..), Some(replacement)) = (self.missing, self.replacement()) {
            write!(f, ", with {replacement} for missing values ({missing})")?;
        }
        Ok(())
    }
}

impl Reading {
    /// Whether another file is read in the same way.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.content, self.format, self.separator, self.header)
            == (other.content, other.format, other.separator, other.header)
            && (&self.columns, &self.left_out, self.by_position) == (&other.columns, &other.left_out, other.by_position)
    }

    /// Adds a file that is read in the same way.
    pub(crate) fn add(&mut self, other: &Self) {
        self.more_files += 1;
        self.comments += other.comments;
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.content, printable(&self.file.display().to_string()))?;
        if self.more_files > 0 {
            write!(f, " and {} more", self.more_files)?;
        }
        write!(f, ": {}", self.format)?;
        if let Some(separator) = self.separator {
            write!(f, " separated by {}", separator.plural())?;
        }
        if self.header {
            write!(f, ", with a header")?;
        }
        if self.comments > 0 {
            let lines = if self.comments == 1 { "line" } else { "lines" };
            write!(f, ", {} comment {lines} not read", self.comments)?;
        }
        let mut last = "";
        for (role, name) in self.columns.iter().take(NAMES_MAX) {
            let between = if *role == last { ", " } else { "; " };
            let role = if *role == last { "" } else { role };
            write!(f, "{between}{role}{}{}", if role.is_empty() { "" } else { " " }, printable(name))?;
            last = if role.is_empty() { last } else { role };
        }
        f.write_str(&and_more(self.columns.len()))?;
        let encoded: Vec<&ColumnReading> = self.encodings.iter().filter(|column| !column.is_plain()).collect();
        for column in encoded.iter().take(NAMES_MAX) {
            write!(f, "; {column}")?;
        }
        if encoded.len() > NAMES_MAX {
            write!(f, "; {} more such columns", encoded.len() - NAMES_MAX)?;
        }
        if self.by_position == Some(true) {
            write!(f, "; row k is the node with the k-th smallest id")?;
        }
        if !self.left_out.is_empty() {
            let names: Vec<_> = self.left_out.iter().take(NAMES_MAX).map(|name| printable(name)).collect();
            write!(f, "; left out: {}{}", names.join(", "), and_more(self.left_out.len()))?;
            if self.content == "edges" && self.columns.iter().all(|(role, _)| *role != "weight") {
                write!(f, " (--weight={} takes the weight of each edge from it)", in_shell(&self.left_out[0]))?;
            }
        }
        Ok(())
    }
}

/// The end of a list of names that shows the first of `count` only.
fn and_more(count: usize) -> String {
    match count.saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}
