//! How `--dedup` merges the values of parallel edges.

use std::{fmt, str::FromStr};

use grappa_io::{Error, Result};

/// How parallel edges become one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// Their sum, added in f64 and rounded once.
    Sum,
    /// Their mean, in the same way.
    Mean,
    /// The value of the first edge of the input.
    First,
    /// The value of the last edge of the input.
    Last,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
}

impl Merge {
    /// All ways.
    pub const ALL: [Self; 6] = [Self::Sum, Self::Mean, Self::First, Self::Last, Self::Min, Self::Max];

    /// The word in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::First => "first",
            Self::Last => "last",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    /// Whether it depends on the order of the input.
    pub(super) fn is_ordered(self) -> bool {
        matches!(self, Self::First | Self::Last)
    }
}

/// How parallel edges merge a column, or all columns that no other option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeOption {
    /// The column of features as the user calls it, `weight`, or the number of a feature in an array, from 1.
    pub column: Option<String>,
    /// How its values become one.
    pub how: Merge,
}

impl fmt::Display for MergeOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "{column}={}", self.how.name()),
            None => f.write_str(self.how.name()),
        }
    }
}

impl FromStr for MergeOption {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (column, name) = match text.rsplit_once('=') {
            Some((column, name)) => (Some(column.to_owned()), name),
            None => (None, text),
        };
        match Merge::ALL.into_iter().find(|how| how.name() == name) {
            Some(how) => Ok(Self { column, how }),
            None => Err(Error::UnknownName {
                kind: "way to merge values",
                name: name.to_owned(),
                known: "sum, mean, first, last, min and max",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_merging_are_read_back() {
        for text in ["sum", "amount=mean", "a=b=last"] {
            assert_eq!(text.parse::<MergeOption>().unwrap().to_string(), text);
        }
        let error = "amount=median".parse::<MergeOption>().unwrap_err().to_string();
        assert!(error.contains("median") && error.contains("sum, mean"), "{error}");
    }
}
