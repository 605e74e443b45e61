//! The schema: what the features, classes and edge features of a store are called, and what became of each column of the user's table.
//!
//! The file `schema` is optional. It has no meta. Its payload is JSON:
//!
//! ```text
//! {"features":[{"name":"age","encoding":{"kind":"number","missing":{"mean":37.5}}},
//!              {"name":"country","encoding":{"kind":"category","values":["DE","FR"],"form":"one_hot"}}],
//!  "classes":["free","gold"]}
//! ```
//!
//! The columns together have as many dimensions as the store's features, in the same order. So the schema can encode
//! the next table as it did the first, and names tell whether two stores have the same features.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::{
    FormatError, Result,
    bytes::Fields,
    container::{self, FileKind},
    error::invalid_if,
};

/// Name of the file in a store.
pub const FILE: &str = "schema";

/// The most bytes of the name of a column. Names of dimensions repeat it, and a reader has to hold all of them.
pub const COLUMN_NAME_BYTES_MAX: usize = 255;

/// What the features, classes and edge features of a store are called.
///
/// ```
/// use grappa_formats::schema::{CategoryForm, Column, Encoding, Schema};
///
/// let country = Column {
///     name: "country".into(),
///     encoding: Encoding::Category { values: vec!["DE".into(), "FR".into()], form: CategoryForm::OneHot },
/// };
/// let schema = Schema {
///     features: vec![Column::number("age"), country],
///     classes: vec!["spam".into(), "ham".into()],
///     edge_features: vec![Column::number("amount")],
/// };
/// assert_eq!(schema.feature_names(), ["age", "country=DE", "country=FR", "country=other"]);
///
/// let (file, _) = schema.encode();
/// assert_eq!(Schema::decode(&file, 4, 2)?, schema);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The columns of the table that the features come from, in the order of their dimensions. Empty if features have
    /// no names.
    pub features: Vec<Column>,
    /// The name of each class. Empty if classes have no names.
    pub classes: Vec<String>,
    /// The columns of the table that the edge features come from, in the order of their dimensions. Empty if they have no
    /// names.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "edge_columns")]
    pub edge_features: Vec<Column>,
}

/// A column of a table of features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name in the table.
    pub name: String,
    /// The dimensions that it became.
    pub encoding: Encoding,
}

/// How the values of a column become dimensions of the features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Encoding {
    /// A number is its value: 1 dimension, and perhaps an indicator.
    Number {
        /// What a missing value becomes.
        missing: Missing,
    },
    /// False is 0 and true is 1: 1 dimension, and perhaps an indicator.
    Boolean {
        /// What a missing value becomes.
        missing: Missing,
    },
    /// One of a list of values. A value that is not in the list, and a missing one, is *other*.
    Category {
        /// The known values, all different.
        values: Vec<String>,
        /// How a value becomes dimensions.
        form: CategoryForm,
    },
    /// A date is the number of days since 1970-01-01 in UTC, with a fraction for the time of the day: 1 dimension, and
    /// perhaps an indicator.
    Date {
        /// What a missing value becomes, in days.
        missing: Missing,
    },
}

/// How one of a list of values becomes dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CategoryForm {
    /// A dimension for each value and a last one for others: 1 where the value is that, and else 0.
    OneHot,
    /// 1 dimension: the position of the value in the list, or the length of the list for others.
    Index,
}

/// What a missing value of a column becomes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// An error: the column has a value in each row.
    Refused,
    /// A constant that the user gave.
    Constant(f64),
    /// The mean of the values of the first table.
    Mean(f64),
    /// This value, and the column has a second dimension, the *indicator*: 1 where the value is missing, and else 0.
    Indicator(f64),
}

impl Schema {
    /// The name of each dimension of the features, such as `age`, `country=DE`, `country=other`, `income` and
    /// `income_missing`. All are different.
    pub fn feature_names(&self) -> Vec<String> {
        self.features.iter().flat_map(Column::dimensions).collect()
    }

    /// The same for edge features.
    pub fn edge_feature_names(&self) -> Vec<String> {
        self.edge_features.iter().flat_map(Column::dimensions).collect()
    }

    /// The types of edges, if they have one: the place of its number among the values of edge features, and the names. They are the first
    /// column that is the index of a category.
    pub fn edge_types(&self) -> Option<(usize, &[String])> {
        let mut place = 0;
        self.edge_features.iter().find_map(|column| match &column.encoding {
            Encoding::Category { values, form: CategoryForm::Index } => Some((place, &values[..])),
            encoding => {
                place += encoding.dim() as usize;
                None
            }
        })
    }

    /// Number of dimensions of the features. 0 if they have no names.
    pub fn dim(&self) -> u64 {
        self.features.iter().map(|column| column.encoding.dim()).sum()
    }

    /// Whether nothing has a name. Then a store needs no schema.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty() && self.classes.is_empty() && self.edge_features.is_empty()
    }

    /// Checks that names are there, not too long, and different, and that values are finite.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] with the name that is wrong. Its offset is 0.
    pub fn check(&self) -> Result<()> {
        for (kind, columns) in [("features", &self.features), ("edge features", &self.edge_features)] {
            for (i, Column { name, encoding }) in columns.iter().enumerate() {
                invalid_if!(name.is_empty(), 0, "column {i} of the {kind} has an empty name");
                invalid_if!(
                    name.len() > COLUMN_NAME_BYTES_MAX,
                    0,
                    "a column of the {kind} has a name of {} bytes, and at most {COLUMN_NAME_BYTES_MAX} are possible: \
                     {name:.40}...",
                    name.len()
                );
                if let Some(problem) = encoding.problem() {
                    return Err(FormatError::invalid(0, format!("the column {name:?} of the {kind} {problem}")));
                }
            }
        }
        invalid_if!(self.classes.iter().any(String::is_empty), 0, "a class has an empty name");
        for (kind, names) in [
            ("features", &self.feature_names()),
            ("classes", &self.classes),
            ("edge features", &self.edge_feature_names()),
        ] {
            if let Some(name) = first_twice(names) {
                return Err(FormatError::invalid(0, format!("two {kind} have the name {name:?}")));
            }
        }
        Ok(())
    }

    /// Encodes the file `schema`. Returns its bytes and its digest.
    ///
    /// # Panics
    /// If [`Schema::check`] fails.
    pub fn encode(&self) -> (Vec<u8>, u64) {
        self.check().expect("the caller made a valid schema");
        let payload =
            serde_json::to_vec(self).expect("a schema is plain data with finite numbers, which JSON can express");
        container::encode_file(FileKind::SCHEMA, Vec::new(), &payload)
    }

    /// Decodes and fully checks the file `schema` of a store whose features have `dim` dimensions and whose labels have
    /// `classes` classes. Either is 0 if the store has none.
    pub fn decode(file: &[u8], dim: u32, classes: u32) -> Result<Self> {
        let (header, payload) = container::decode_file(file, FileKind::SCHEMA)?;
        Fields::from_header(&header, 0)?;
        let at = header.payload_offset;
        let schema: Self = serde_json::from_slice(payload)
            .map_err(|e| FormatError::invalid(at, format!("the schema's JSON is invalid: {e}")))?;
        schema.check().map_err(|error| error.moved_to(at))?;
        invalid_if!(schema.is_empty(), at, "the schema names nothing");
        let (named_dim, named_classes) = (schema.dim(), schema.classes.len() as u64);
        invalid_if!(
            !schema.features.is_empty() && named_dim != u64::from(dim),
            at,
            "the schema has names for {named_dim} dimensions of features, but the store has {dim}"
        );
        invalid_if!(
            named_classes > 0 && named_classes != u64::from(classes),
            at,
            "the schema has names of {named_classes} classes, but the store has {classes}"
        );
        Ok(schema)
    }
}

impl Column {
    /// A column of numbers without missing values.
    pub fn number(name: impl Into<String>) -> Self {
        let missing = Missing::Refused;
        Self { name: name.into(), encoding: Encoding::Number { missing } }
    }

    /// The names of its dimensions.
    pub fn dimensions(&self) -> Vec<String> {
        let name = &self.name;
        if let Encoding::Category { values, form: CategoryForm::OneHot } = &self.encoding {
            return values.iter().chain([&others_name(values)]).map(|value| format!("{name}={value}")).collect();
        }
        let indicator = self.encoding.has_indicator().then(|| format!("{name}_missing"));
        [name.clone()].into_iter().chain(indicator).collect()
    }
}

impl Encoding {
    /// Number of dimensions.
    pub fn dim(&self) -> u64 {
        match self {
            Self::Category { values, form: CategoryForm::OneHot } => values.len() as u64 + 1,
            _ => 1 + u64::from(self.has_indicator()),
        }
    }

    /// What a missing value becomes. None for categories, which have a place for it.
    pub fn missing(&self) -> Option<Missing> {
        match *self {
            Self::Number { missing } | Self::Boolean { missing } | Self::Date { missing } => Some(missing),
            Self::Category { .. } => None,
        }
    }

    fn has_indicator(&self) -> bool {
        self.missing().is_some_and(Missing::has_indicator)
    }

    /// What is wrong with it, as the rest of a sentence about its column.
    fn problem(&self) -> Option<String> {
        if let Self::Category { values, .. } = self {
            return first_twice(values).map(|value| format!("has the value {value:?} twice"));
        }
        let value = self.missing()?.value().filter(|value| !value.is_finite())?;
        Some(format!("replaces missing values by {value}"))
    }
}

impl Missing {
    /// What a missing value becomes. None if missing values are refused.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Refused => None,
            Self::Constant(value) | Self::Mean(value) | Self::Indicator(value) => Some(value),
        }
    }

    /// Whether the column has a second dimension.
    pub fn has_indicator(self) -> bool {
        matches!(self, Self::Indicator(_))
    }
}

/// The JSON of the columns of edge features. A column of numbers without missing values is its name alone, as all were in
/// earlier stores.
mod edge_columns {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Column;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum EdgeColumn<'a> {
        Number(Cow<'a, str>),
        Encoded(Cow<'a, Column>),
    }

    pub fn serialize<S: Serializer>(columns: &[Column], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(columns.iter().map(|column| match *column == Column::number(&column.name) {
            true => EdgeColumn::Number(column.name.as_str().into()),
            false => EdgeColumn::Encoded(Cow::Borrowed(column)),
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Column>, D::Error> {
        let columns = Vec::<EdgeColumn<'static>>::deserialize(deserializer)?;
        Ok(columns
            .into_iter()
            .map(|column| match column {
                EdgeColumn::Number(name) => Column::number(name),
                EdgeColumn::Encoded(column) => column.into_owned(),
            })
            .collect())
    }
}

/// The name of other values: `other`, with as many `_` after it as it takes to be none of the values.
fn others_name(values: &[String]) -> String {
    let mut name = "other".to_owned();
    while values.contains(&name) {
        name.push('_');
    }
    name
}

/// The first name that is there before.
fn first_twice(names: &[String]) -> Option<&String> {
    let mut seen = HashSet::new();
    names.iter().find(|name| !seen.insert(name.as_str()))
}
