//! A table with all kinds of columns, from files to the features, labels and splits of a store; and the next table,
//! with its schema.

use std::{collections::BTreeSet, fs};

use grappa_engine::Store;
use grappa_formats::NodeId;
use grappa_tests::parquet::{Column, write_table};

use super::{ExpectedGraph, IngestFolder};

const EDGES: &str = "ann>bob&bob>cy&cy>dan&dan>ann";

const USERS: &str = "\
segment,name,plan,since,active,income,fold
\"high value\",dan,gold,2024-01-01,no,,TEST
low,ann,free,1970-01-02,yes,10,train
low,cy,gold,1970-01-03T12:00,yes,40,Validation
,bob,,1969-12-31,no,40,
";

const TABLE: &str =
    "--edges e.csv --ids string --features users.csv --labels users.csv --label segment --split-column fold";

fn folder() -> IngestFolder {
    let folder = IngestFolder::new();
    folder.write("e.csv", "source,target\nann,bob\nbob,cy\ncy,dan\ndan,ann\n");
    folder.write("users.csv", USERS);
    folder
}

/// The ids of the nodes of a split.
fn split(store: &Store, name: &str) -> BTreeSet<String> {
    let nodes = store.split(name).unwrap().unwrap();
    let ids = nodes.iter().map(|node| store.external_id(NodeId(node)).unwrap().to_string());
    ids.collect()
}

#[test]
fn a_mixed_table_becomes_features_labels_and_splits() {
    let folder = folder();
    folder.expect_error(TABLE, &["missing values in plan (bob in line 5), income (dan in line 2)"], "");
    // Rows of ann, bob, cy and dan; plan=free, plan=gold, plan=other, since, active, income, income_missing.
    let features = "1,0,0,1,1,10,0 0,0,1,-1,0,40,0 0,1,0,2.5,1,40,0 0,1,0,19723,0,30,1";
    let graph = ExpectedGraph::new(EDGES, features, "1 -1 1 0");
    let says = "plan is one of free, gold, else other (one-hot), with other for missing values (1); since is a date";
    folder.expect(&format!("{TABLE} --missing indicator"), says, graph, "the first table");
    let store = folder.store();
    for (name, nodes) in [("train", "ann"), ("val", "cy"), ("test", "dan")] {
        assert_eq!(split(&store, name), BTreeSet::from([nodes.to_owned()]), "{name}");
    }
    let schema = store.schema().unwrap();
    let names = schema.feature_names().join(" ");
    assert_eq!(names, "plan=free plan=gold plan=other since active income income_missing");
    assert_eq!(schema.classes, ["high value", "low"]);
}

#[test]
fn the_next_table_gets_the_schema_of_the_first() {
    let folder = folder();
    let options = "--missing income=indicator,plan=other";
    folder.ingest(&format!("{TABLE} {options}")).unwrap();
    fs::rename(folder.path("out.grappa"), folder.path("first.grappa")).unwrap();
    // Another order, a new plan, and a column more.
    let next = "\
extra,income,active,name,since,plan,segment
1,7,no,ann,2024-01-01,silver,low
1,,yes,bob,2024-01-02,gold,
1,9,yes,cy,2024-01-03,free,high value
1,9,,dan,2024-01-03,,low
";
    folder.write("next.csv", next);
    let arguments =
        "--edges e.csv --ids string --schema-of first.grappa --features next.csv --labels next.csv --label segment";
    folder.expect_error(arguments, &["missing values in active (dan in line 5), which had"], "");
    let next = next.replace("1,9,,dan", "1,9,no,dan");
    folder.write("next.csv", &next);
    let features = "0,0,1,19723,0,7,0 0,1,0,19724,1,30,1 1,0,0,19725,1,9,0 0,0,1,19725,0,9,0";
    let graph = ExpectedGraph::new(EDGES, features, "1 -1 0 1");
    folder.expect(arguments, "left out: extra", graph, "the next table");
    let first = Store::open(&folder.path("first.grappa")).unwrap();
    assert_eq!(folder.store().schema().unwrap(), first.schema().unwrap());
    // The same from Parquet, with types.
    let [names, plans, segments] = ["ann,bob,cy,dan", "silver,gold,free,", "low,,high value,low"].map(super::names);
    let columns = [
        ("income", Column::Floats(&[7.0, f32::NAN, 9.0, 9.0])),
        ("name", Column::Strings(&names)),
        ("active", Column::Booleans(&[false, true, true, false])),
        ("segment", Column::Strings(&segments)),
        ("since", Column::Dates(&[19_723, 19_724, 19_725, 19_725])),
        ("plan", Column::Strings(&plans)),
    ];
    write_table(&folder.path("next.parquet"), &columns, 3);
    folder.expect(&arguments.replace("next.csv", "next.parquet"), "", graph, "Parquet");
    for (from, to, error) in grappa_skip::cases![
        "income,active", "inc,act", "lacks 2 of the 4 columns of --schema-of: active, income";
        ",low", ",medium", "the class \"medium\"";
        ",low", ",medium", "--schema-of does not have";
        "2024-01-02", "soon", "other values among dates in since (\"soon\" of bob in line 3)";
        "1,7", "1,many", "text among numbers in income (\"many\" of ann in line 2)";
    ] {
        folder.write("next.csv", next.replace(from, to));
        folder.expect_error(arguments, &[error], to);
    }
}

#[test]
fn splits_come_from_a_column_or_from_masks() {
    let folder = folder();
    folder.write("d.txt", "0 1\n1 2\n2 3\n3 0\n");
    folder.write("by_id.csv", "part,id,x\nvalid,3,1\ntrain,0,1\nnone,2,2\nTrain,1,1\n");
    let in_order = "part;x\ntrain;1\ntrain;1\n;2\nval;3\n";
    folder.write("in_order.csv", in_order);
    folder.write("masks.csv", "id,x,train_mask,val_mask\n3,1,0,1\n0,1,1,0\n2,2,0,0\n1,1,true,false\n");
    let (id, x) = (("id", Column::Integers(&[3, 0, 2, 1])), ("x", Column::Floats(&[1.0, 1.0, 2.0, 1.0])));
    let parts = super::names("val,train,,train");
    write_table(&folder.path("t.parquet"), &[id, x, ("part", Column::Strings(&parts))], 3);
    let is_train = ("is_train", Column::Booleans(&[false, true, false, true]));
    let is_val = ("is_val", Column::Booleans(&[true, false, false, false]));
    write_table(&folder.path("m.parquet"), &[id, x, is_train, is_val], 3);
    for arguments in [
        "--features by_id.csv --split-column part",
        "--labels by_id.csv --label x --split-column part",
        "--features in_order.csv --split-column part",
        "--features masks.csv --split-column train_mask,val_mask",
        "--features t.parquet --split-column part",
        "--features m.parquet --split-column is_train,is_val",
    ] {
        let said = folder.ingest(&format!("--edges d.txt {arguments}")).expect(arguments);
        assert!(said.contains("splits from"), "{said}");
        let store = folder.store();
        assert_eq!(split(&store, "train"), ["0", "1"].map(str::to_owned).into(), "{arguments}");
        assert_eq!(split(&store, "val"), ["3".to_owned()].into(), "{arguments}");
        assert_eq!(store.split("test").unwrap(), None);
        // The column is no feature.
        if let Some(features) = &store.manifest().features {
            assert_eq!(features.dim, 1, "{arguments}");
        }
    }
    let expected = "x.csv:5: expected train, val, valid, validation, test or nothing";
    for (from, to, part) in [
        ("\nval", "\nlater", expected),
        ("part;x", "set;x", "no column part; give --split-column one of set, x"),
        ("train;1\ntrain;1\n;2\nval;3", ";1\n;1\n;2\n;3", "no node is in a split"),
        ("val;3", "val;3\ntrain;7", "more"),
    ] {
        folder.write("x.csv", in_order.replace(from, to));
        folder.expect_error("--edges d.txt --features x.csv --split-column part", &[part], to);
    }
    folder.write("masks.csv", "id,x,train_mask,val_mask\n0,1,1,1\n1,1,0,0\n2,1,0,0\n3,1,0,0\n");
    let arguments = "--edges d.txt --features masks.csv --split-column train_mask,val_mask";
    folder.expect_error(arguments, &["masks.csv:2: the node is in the masks of train and val"], "");
}
