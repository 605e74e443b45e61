//! Whether a store has the features and the classes of a run, by their names.
//!
//! A run keeps the schema of its store. If a store or the run has no names, nothing is known about the order of columns, and
//! the user is told.

use std::collections::{HashMap, HashSet};

use grappa_formats::schema::{CategoryForm, Column, Encoding, Schema};
use grappa_io::text::{first_names, printable};

/// The option of ingest that takes the schema of a store.
const SCHEMA_OF: &str = "--schema-of STORE, and the store that the run was trained on for STORE";
/// The most columns that a command in an error has.
const COLUMNS_SHOWN_MAX: usize = 100;

/// The features or classes of a store, compared with a run's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// Neither has names.
    Unnamed,
    /// Only one of them has names.
    OneUnnamed,
    /// Both have the same names in the same order.
    Same,
    /// Both have the same names. Has the position in the store of each of the run.
    Reordered(Vec<usize>),
    /// There are other names.
    Other {
        /// Names of the run that the store lacks.
        missing: Vec<String>,
        /// Names of the store that the run lacks.
        new: Vec<String>,
    },
    /// Both have the same names, but the values of this feature mean something else.
    Encoded(String),
}

impl Match {
    /// Compares the names of a store with a run's. The names of each are different.
    pub fn from_names(run: &[String], store: &[String]) -> Self {
        match (run.is_empty(), store.is_empty()) {
            (true, true) => return Self::Unnamed,
            (false, false) => {}
            _ => return Self::OneUnnamed,
        }
        if run == store {
            return Self::Same;
        }
        let positions: HashMap<&String, usize> = store.iter().zip(0..).collect();
        let order: Option<Vec<usize>> = run.iter().map(|name| positions.get(name).copied()).collect();
        if let Some(order) = order.filter(|order| order.len() == store.len()) {
            return Self::Reordered(order);
        }
        let known: HashSet<&String> = run.iter().collect();
        Self::Other {
            missing: run.iter().filter(|name| !positions.contains_key(name)).cloned().collect(),
            new: store.iter().filter(|name| !known.contains(name)).cloned().collect(),
        }
    }

    /// Compares the features.
    pub fn of_features(run: &Schema, store: &Schema) -> Self {
        let matched = Self::from_names(&run.feature_names(), &store.feature_names());
        if !matches!(matched, Self::Same | Self::Reordered(_)) {
            return matched;
        }
        let meanings: HashMap<String, Meaning<'_>> = Meaning::of_all(store).collect();
        match Meaning::of_all(run).find(|(name, meaning)| meanings.get(name) != Some(meaning)) {
            Some((name, _)) => Self::Encoded(name),
            None => matched,
        }
    }

    /// Whether the features or classes are known to be others, apart from their order.
    pub fn is_other(&self) -> bool {
        matches!(self, Self::Other { .. } | Self::Encoded(_))
    }

    /// How names differ, for messages: `the store lacks age and has height, which the run lacks`.
    pub fn difference(&self) -> String {
        match self {
            Self::Other { missing, new } => match (missing.is_empty(), new.is_empty()) {
                (false, true) => format!("the store lacks {}", first_names(missing)),
                (true, false) => format!("the store also has {}", first_names(new)),
                _ => format!(
                    "the store lacks {}, and has {}, which the run lacks",
                    first_names(missing),
                    first_names(new)
                ),
            },
            Self::Encoded(column) => format!("the values of {} are encoded in another way", printable(column)),
            Self::Reordered(_) => "they are the same ones in another order".to_owned(),
            Self::Unnamed | Self::OneUnnamed | Self::Same => "nothing is known to differ".to_owned(),
        }
    }
}

/// What the values of a feature say, beside its name. What missing values become may differ.
#[derive(Debug, PartialEq, Eq)]
enum Meaning<'a> {
    /// A number, or 0 or 1. The name of a one-hot feature has the category, so an exported table means the same.
    Value,
    /// Days since 1970-01-01.
    Days,
    /// The position of a category in this list.
    Position(&'a [String]),
}

impl<'a> Meaning<'a> {
    /// The features of a schema in order, with their names.
    fn of_all(schema: &'a Schema) -> impl Iterator<Item = (String, Self)> {
        schema.features.iter().flat_map(|column| {
            let names = column.dimensions().into_iter().enumerate();
            names.map(|(dimension, name)| (name, Self::from_encoding(&column.encoding, dimension)))
        })
    }

    fn from_encoding(encoding: &'a Encoding, dimension: usize) -> Self {
        match encoding {
            Encoding::Date { .. } if dimension == 0 => Self::Days,
            Encoding::Category { values, form: CategoryForm::Index } => Self::Position(values),
            _ => Self::Value,
        }
    }
}

/// How to ingest a table so that it has the features of a run.
pub fn remedy(run: &Schema) -> String {
    // Other encodings depend on the table that they were fitted to.
    let is_fitted = run.features.iter().any(|column| *column != Column::number(&column.name));
    let columns: Vec<&str> = run.features.iter().map(|column| column.name.as_str()).collect();
    // A name with a comma cannot be in a list that commas separate.
    let is_list = columns.len() <= COLUMNS_SHOWN_MAX && columns.iter().all(|name| !name.contains(','));
    let list = shlex::try_quote(&columns.join(",")).map(|list| list.into_owned());
    let option = match list.ok().filter(|_| is_list && !is_fitted) {
        Some(list) => format!("--features-from {list}"),
        None => SCHEMA_OF.to_owned(),
    };
    format!("ingest a table that has the run's columns with grappa-ingest ... {option}")
}

/// How to ingest labels so that they have the classes of a run.
pub fn remedy_for_classes() -> String {
    format!("ingest the labels with grappa-ingest ... {SCHEMA_OF}")
}

#[cfg(test)]
mod tests {
    use grappa_formats::schema::Missing;

    use super::*;

    #[test]
    fn names_are_compared_by_their_order_and_as_sets() {
        let other = |missing: &[&str], new: &[&str]| Match::Other { missing: names(missing), new: names(new) };
        for (run, store, expected) in [
            (&[][..], &[][..], Match::Unnamed),
            (&["a"], &[], Match::OneUnnamed),
            (&[], &["a"], Match::OneUnnamed),
            (&["a", "b"], &["a", "b"], Match::Same),
            (&["a", "b", "c"], &["b", "c", "a"], Match::Reordered(vec![2, 0, 1])),
            (&["a", "b"], &["b", "a", "c"], other(&[], &["c"])),
            (&["a", "b"], &["b"], other(&["a"], &[])),
            (&["a", "b"], &["b", "c"], other(&["a"], &["c"])),
        ] {
            assert_eq!(Match::from_names(&names(run), &names(store)), expected, "{run:?} {store:?}");
        }
    }

    #[test]
    fn an_exported_table_has_the_categories_of_its_store() {
        let missing = Missing::Indicator(1.0);
        let categories = Encoding::Category { values: names(&["DE", "FR"]), form: CategoryForm::OneHot };
        let column = |name: &str, encoding| Column { name: name.into(), encoding };
        let store = Schema {
            features: vec![column("country", categories), column("income", Encoding::Number { missing })],
            ..Schema::default()
        };
        let exported =
            Schema { features: store.feature_names().into_iter().map(Column::number).collect(), ..Schema::default() };
        assert_eq!(Match::of_features(&store, &exported), Match::Same);
        assert_eq!(Match::of_features(&exported, &store), Match::Same);
    }

    #[test]
    fn columns_of_the_same_name_must_have_the_same_meaning() {
        let index = |values: &[&str]| Encoding::Category { values: names(values), form: CategoryForm::Index };
        let column_meaning =
            |encoding| Schema { features: vec![Column { name: "c".into(), encoding }], ..Schema::default() };
        let missing = Missing::Refused;
        let mean = Missing::Mean(0.5);
        for (run, store, is_same) in [
            (index(&["a", "b"]), index(&["a", "b"]), true),
            (index(&["a", "b"]), index(&["b", "a"]), false),
            (index(&["a"]), Encoding::Number { missing }, false),
            (Encoding::Number { missing }, Encoding::Number { missing: mean }, true),
            (Encoding::Boolean { missing }, Encoding::Number { missing }, true),
            (Encoding::Date { missing }, Encoding::Date { missing: mean }, true),
            (Encoding::Date { missing }, Encoding::Number { missing }, false),
        ] {
            let (run, store) = (column_meaning(run), column_meaning(store));
            let matched = Match::of_features(&run, &store);
            assert_eq!(matched == Match::Same, is_same, "{run:?} {store:?}");
            assert_eq!(matched.is_other(), !is_same);
        }
    }

    #[test]
    fn a_difference_names_what_is_missing_and_what_is_new() {
        let difference = |run: &[&str], store: &[&str]| Match::from_names(&names(run), &names(store)).difference();
        assert_eq!(difference(&["a", "b"], &["a"]), "the store lacks b");
        assert_eq!(difference(&["a"], &["a", "b"]), "the store also has b");
        assert_eq!(difference(&["a", "b"], &["a", "c"]), "the store lacks b, and has c, which the run lacks");
    }

    #[test]
    fn the_remedy_has_the_columns_of_the_run() {
        let run = |columns: &[&str]| Schema {
            features: columns.iter().copied().map(Column::number).collect(),
            ..Schema::default()
        };
        assert!(remedy(&run(&["age", "net income"])).ends_with("--features-from 'age,net income'"));
        assert!(remedy(&run(&["a,b", "c"])).contains("--schema-of STORE"));
        let mut fitted = run(&["age"]);
        fitted.features[0].encoding = Encoding::Number { missing: Missing::Mean(37.5) };
        assert!(remedy(&fitted).contains("--schema-of STORE"));
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }
}
