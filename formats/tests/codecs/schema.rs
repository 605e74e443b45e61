//! Names of dimensions, and what a schema must not say.

use grappa_formats::schema::{CategoryForm, Column, Encoding, Missing, Schema};

use crate::samples;

fn column(name: &str, encoding: Encoding) -> Column {
    Column { name: name.into(), encoding }
}

fn category(values: &[&str], form: CategoryForm) -> Encoding {
    Encoding::Category { values: values.iter().map(|&value| value.to_owned()).collect(), form }
}

/// Each row: an encoding, its JSON, and the names of its dimensions for the column `c`.
#[test]
fn encodings_have_their_json_and_their_dimensions() {
    use CategoryForm::{Index, OneHot};
    let number = |missing| Encoding::Number { missing };
    let table: [(Encoding, &str, &[&str]); 10] = grappa_skip::cases![
        number(Missing::Refused), r#"{"kind":"number","missing":"refused"}"#, &["c"];
        number(Missing::Constant(-0.5)), r#"{"kind":"number","missing":{"constant":-0.5}}"#, &["c"];
        number(Missing::Mean(0.1)), r#"{"kind":"number","missing":{"mean":0.1}}"#, &["c"];
        number(Missing::Indicator(0.0)), r#"{"kind":"number","missing":{"indicator":0.0}}"#, &["c", "c_missing"];
        Encoding::Boolean { missing: Missing::Refused, }, r#"{"kind":"boolean","missing":"refused"}"#, &["c"];
        Encoding::Date { missing: Missing::Indicator(19000.25), },
            r#"{"kind":"date","missing":{"indicator":19000.25}}"#, &["c", "c_missing"];
        category(&["DE", ""], OneHot), r#"{"kind":"category","values":["DE",""],"form":"one_hot"}"#,
            &["c=DE", "c=", "c=other"];
        category(&["other_", "other"], OneHot), r#"{"kind":"category","values":["other_","other"],"form":"one_hot"}"#,
            &["c=other_", "c=other", "c=other__"];
        category(&[], OneHot), r#"{"kind":"category","values":[],"form":"one_hot"}"#, &["c=other"];
        category(&["a", "b"], Index), r#"{"kind":"category","values":["a","b"],"form":"index"}"#, &["c"];
    ];
    for (encoding, json, names) in table {
        assert_eq!(serde_json::to_string(&encoding).unwrap(), json);
        assert_eq!(serde_json::from_str::<Encoding>(json).unwrap(), encoding);
        assert_eq!(encoding.dim(), names.len() as u64, "{json}");
        let schema = Schema { features: vec![Column::number("a"), column("c", encoding)], ..Schema::default() };
        assert_eq!(schema.feature_names()[1..], *names);
        let dim = schema.dim();
        assert_eq!(dim, 1 + names.len() as u64);
        assert_eq!(Schema::decode(&schema.encode().0, dim as u32, 0).unwrap(), schema);
    }
}

#[test]
fn names_are_there_and_different() {
    let missing = Missing::Indicator(0.0);
    let features = |columns: &[Column]| Schema { features: columns.to_vec(), ..Schema::default() };
    let classes =
        |names: &[&str]| Schema { classes: names.iter().map(|&name| name.to_owned()).collect(), ..Schema::default() };
    let number = Column::number;
    let twice = category(&["x", "y", "x"], CategoryForm::Index);
    for (schema, problem) in grappa_skip::cases![
        features(&[number("a"), number("")]), "column 1 of the features has an empty name";
        features(&[number(&"n".repeat(256))]),
            "a name of 256 bytes, and at most 255 are possible: nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...";
        features(&[number("a"), number("a")]), "two features have the name \"a\"";
        features(&[column("a", Encoding::Number { missing }), number("a_missing")]),
            "two features have the name \"a_missing\"";
        features(&[column("a", twice)]), "the column \"a\" of the features has the value \"x\" twice";
        features(&[column("a", Encoding::Date { missing: Missing::Mean(f64::NAN) })]),
            "the column \"a\" of the features replaces missing values by NaN";
        classes(&["x", ""]), "a class has an empty name";
        classes(&["x", "y", "x"]), "two classes have the name \"x\"";
    ] {
        let error = schema.check().unwrap_err().to_string();
        assert!(error.ends_with(problem), "{error}");
    }
}

#[test]
fn a_schema_is_of_the_features_and_classes_of_its_store() {
    let (file, _) = samples::schema().encode();
    assert!(Schema::decode(&file, 10, 2).is_ok());
    for (dim, classes, problem) in [
        (9, 2, "names for 10 dimensions of features, but the store has 9"),
        (10, 0, "names of 2 classes, but the store has 0"),
    ] {
        let error = Schema::decode(&file, dim, classes).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
        assert_eq!(error.offset(), 64);
    }
}
