//! What the user says about missing values and categories.

use std::{fmt, str::FromStr};

use grappa_formats::schema::{CategoryForm, Schema};

/// The longest value of a category, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 10;

/// How the columns of a table of features become numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EncodingOptions {
    /// What missing values become.
    pub missing: MissingOptions,
    /// The form of categories. None is one-hot.
    pub categories: Option<CategoryForm>,
    /// The most values of a category. None is [`Self::CATEGORIES_MAX`].
    pub categories_max: Option<u32>,
    /// The schema of another table. Its columns are read, and encoded as it says.
    pub schema: Option<Schema>,
    /// Whether to read tables of numbers, too, before their rows are written, to count missing values.
    pub examine: bool,
}

impl EncodingOptions {
    /// The most values of a category, unless an option says another number.
    pub const CATEGORIES_MAX: u32 = 100;

    /// Whether any option was given, so that a table must be examined though its first rows are numbers.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    pub(crate) fn values_max(&self) -> usize {
        self.categories_max.unwrap_or(Self::CATEGORIES_MAX) as usize
    }
}

/// What missing values become, for all columns or for one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MissingOptions(pub Vec<MissingOption>);

/// What missing values become. On the command line `mean`, `indicator`, `other` or a number, perhaps after `COLUMN=`.
#[derive(Debug, Clone, PartialEq)]
pub struct MissingOption {
    /// The column. None is all columns without an option of their own.
    pub column: Option<String>,
    /// The replacement.
    pub by: Replacement,
}

/// The replacement of a missing value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replacement {
    /// The mean of the column.
    Mean,
    /// The mean, and a second dimension that is 1 where the value is missing.
    Indicator,
    /// The value *other* of a category.
    Other,
    /// A number.
    Constant(f64),
}

impl Replacement {
    /// The words of the command line, apart from numbers.
    pub const WORDS: [&str; 3] = ["mean", "indicator", "other"];
}

impl MissingOptions {
    /// The replacement of missing values of a column.
    pub(crate) fn replacement(&self, column: &str) -> Option<Replacement> {
        let own = self.0.iter().find(|option| option.column.as_deref() == Some(column));
        let all = self.0.iter().find(|option| option.column.is_none());
        own.or(all).map(|option| option.by)
    }

    /// The options for all columns, and for columns that are none of `others`.
    pub fn without(&self, others: &[String]) -> Self {
        let is_other = |option: &MissingOption| option.column.as_ref().is_some_and(|column| others.contains(column));
        Self(self.0.iter().filter(|option| !is_other(option)).cloned().collect())
    }

    /// The columns with an option of their own.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|option| option.column.as_deref())
    }
}

impl FromStr for MissingOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (column, by) = match text.rsplit_once('=') {
            Some((column, by)) => (Some(column.to_owned()), by),
            None => (None, text),
        };
        let by = match by {
            "mean" => Replacement::Mean,
            "indicator" => Replacement::Indicator,
            "other" => Replacement::Other,
            number => match number.parse::<f32>() {
                Ok(number) if number.is_finite() => Replacement::Constant(number.into()),
                _ => {
                    return Err("expected `mean`, `indicator`, `other` or a number, perhaps after `COLUMN=`".to_owned());
                }
            },
        };
        Ok(Self { column, by })
    }
}

impl fmt::Display for MissingOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = &self.column {
            write!(f, "{column}=")?;
        }
        match self.by {
            Replacement::Mean => f.write_str("mean"),
            Replacement::Indicator => f.write_str("indicator"),
            Replacement::Other => f.write_str("other"),
            Replacement::Constant(number) => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_for_one_column_or_for_all() {
        let options = ["mean", "income=0", "a=b=indicator", "city=other"].map(|text| text.parse().unwrap());
        let options = MissingOptions(options.to_vec());
        for (column, expected) in [
            ("age", Replacement::Mean),
            ("income", Replacement::Constant(0.0)),
            ("a=b", Replacement::Indicator),
            ("city", Replacement::Other),
        ] {
            assert_eq!(options.replacement(column), Some(expected), "{column}");
        }
        let shown: Vec<_> = options.0.iter().map(MissingOption::to_string).collect();
        assert_eq!(shown, ["mean", "income=0", "a=b=indicator", "city=other"]);
        for text in ["", "income=", "median", "nan"] {
            assert!(text.parse::<MissingOption>().is_err(), "{text}");
        }
    }
}
