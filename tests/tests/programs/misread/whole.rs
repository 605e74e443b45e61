//! A table with all kinds of columns, from files to the features, labels and splits of a store; and the next table, with its schema.

use std::{collections::BTreeSet, fs};

use grappa_engine::Store;
use grappa_formats::NodeId;
use grappa_tests::{
    files::memory_folder,
    parquet::{Column, write_table},
};

use super::{Graph, Run};

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

fn run() -> Run {
    let run = Run {
        folder: memory_folder(),
    };
    fs::write(run.path("e.csv"), "source,target\nann,bob\nbob,cy\ncy,dan\ndan,ann\n").unwrap();
    fs::write(run.path("users.csv"), USERS).unwrap();
    run
}

/// The ids of the nodes of a split.
fn split(store: &Store, name: &str) -> BTreeSet<String> {
    let nodes = store.split(name).unwrap().unwrap();
    let ids = nodes
        .iter()
        .map(|node| store.external_id(NodeId(node)).unwrap().to_string());
    ids.collect()
}

#[test]
fn a_mixed_table_becomes_features_labels_and_splits() {
    let run = run();
    let error = run.ingest(TABLE).unwrap_err();
    let expected = "missing values in plan (bob in line 5), income (dan in line 2)";
    assert!(error.contains(expected), "{error}");
    let graph = Graph {
        edges: EDGES,
        // Rows of ann, bob, cy and dan; plan=free, plan=gold, plan=other, since, active, income, income_missing.
        features: "1,0,0,1,1,10,0 0,0,1,-1,0,40,0 0,1,0,2.5,1,40,0 0,1,0,19723,0,30,1",
        labels: "1 -1 1 0",
    };
    let arguments = format!("{TABLE} --missing indicator");
    let says = "plan is one of free, gold, else other (one-hot), with other for missing values (1); since is a date";
    run.expect(&arguments, says, graph, "the first table");
    let store = Store::open(&run.path("out.grappa")).unwrap();
    for (name, nodes) in [("train", "ann"), ("val", "cy"), ("test", "dan")] {
        assert_eq!(split(&store, name), BTreeSet::from([nodes.to_owned()]), "{name}");
    }
    let schema = store.schema().unwrap();
    assert_eq!(
        schema.feature_names(),
        [
            "plan=free",
            "plan=gold",
            "plan=other",
            "since",
            "active",
            "income",
            "income_missing"
        ]
    );
    assert_eq!(schema.classes, ["high value", "low"]);
}

#[test]
fn the_next_table_gets_the_schema_of_the_first() {
    let run = run();
    run.ingest(&format!("{TABLE} --missing income=indicator,plan=other"))
        .unwrap();
    fs::rename(run.path("out.grappa"), run.path("first.grappa")).unwrap();
    // Another order, a new plan, and a column more.
    let next = "\
extra,income,active,name,since,plan,segment
1,7,no,ann,2024-01-01,silver,low
1,,yes,bob,2024-01-02,gold,
1,9,yes,cy,2024-01-03,free,high value
1,9,,dan,2024-01-03,,low
";
    fs::write(run.path("next.csv"), next).unwrap();
    let arguments =
        "--edges e.csv --ids string --schema-of first.grappa --features next.csv --labels next.csv --label segment";
    let error = run.ingest(arguments).unwrap_err();
    assert!(
        error.contains("missing values in active (dan in line 5), which had"),
        "{error}"
    );
    fs::write(run.path("next.csv"), next.replace("1,9,,dan", "1,9,no,dan")).unwrap();
    let graph = Graph {
        edges: EDGES,
        features: "0,0,1,19723,0,7,0 0,1,0,19724,1,30,1 1,0,0,19725,1,9,0 0,0,1,19725,0,9,0",
        labels: "1 -1 0 1",
    };
    run.expect(arguments, "left out: extra", graph, "the next table");
    let schema = |name: &str| Store::open(&run.path(name)).unwrap().schema().unwrap();
    assert_eq!(schema("out.grappa"), schema("first.grappa"));
    // The same from Parquet, with types.
    let strings = |values: [&str; 4]| values.map(str::to_owned);
    let (names, plans, segments) = (
        strings(["ann", "bob", "cy", "dan"]),
        strings(["silver", "gold", "free", ""]),
        strings(["low", "", "high value", "low"]),
    );
    write_table(
        &run.path("next.parquet"),
        &[
            ("income", Column::Floats(&[7.0, f32::NAN, 9.0, 9.0])),
            ("name", Column::Strings(&names)),
            ("active", Column::Booleans(&[false, true, true, false])),
            ("segment", Column::Strings(&segments)),
            ("since", Column::Dates(&[19_723, 19_724, 19_725, 19_725])),
            ("plan", Column::Strings(&plans)),
        ],
        3,
    );
    run.expect(&arguments.replace("next.csv", "next.parquet"), "", graph, "Parquet");
    for (from, to, parts) in [
        (
            "income,active",
            "inc,act",
            &["lacks 2 of the 4 columns of --schema-of: active, income"][..],
        ),
        (
            ",low",
            ",medium",
            &["the class \"medium\"", "--schema-of does not have"],
        ),
        (
            "2024-01-02",
            "soon",
            &["other values among dates in since (\"soon\" of bob in line 3)"],
        ),
        (
            "1,7",
            "1,many",
            &["text among numbers in income (\"many\" of ann in line 2)"],
        ),
    ] {
        let text = next.replace("1,9,,dan", "1,9,no,dan").replace(from, to);
        fs::write(run.path("next.csv"), text).unwrap();
        let error = run.ingest(arguments).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}

#[test]
fn splits_come_from_a_column_or_from_masks() {
    let run = run();
    fs::write(run.path("d.txt"), "0 1\n1 2\n2 3\n3 0\n").unwrap();
    fs::write(
        run.path("by_id.csv"),
        "part,id,x\nvalid,3,1\ntrain,0,1\nnone,2,2\nTrain,1,1\n",
    )
    .unwrap();
    fs::write(run.path("in_order.csv"), "part;x\ntrain;1\ntrain;1\n;2\nval;3\n").unwrap();
    let masks = "id,x,train_mask,val_mask\n3,1,0,1\n0,1,1,0\n2,2,0,0\n1,1,true,false\n";
    fs::write(run.path("masks.csv"), masks).unwrap();
    let (ids, x) = (Column::Integers(&[3, 0, 2, 1]), Column::Floats(&[1.0, 1.0, 2.0, 1.0]));
    let parts = ["val", "train", "", "train"].map(str::to_owned);
    let table = [("id", ids), ("x", x), ("part", Column::Strings(&parts))];
    write_table(&run.path("t.parquet"), &table, 3);
    let masks = [
        ("id", ids),
        ("x", x),
        ("is_train", Column::Booleans(&[false, true, false, true])),
        ("is_val", Column::Booleans(&[true, false, false, false])),
    ];
    write_table(&run.path("m.parquet"), &masks, 3);
    let ordered = "--edges d.txt --features in_order.csv --split-column part";
    for arguments in [
        "--edges d.txt --features by_id.csv --split-column part",
        "--edges d.txt --labels by_id.csv --label x --split-column part",
        ordered,
        "--edges d.txt --features masks.csv --split-column train_mask,val_mask",
        "--edges d.txt --features t.parquet --split-column part",
        "--edges d.txt --features m.parquet --split-column is_train,is_val",
    ] {
        let said = run
            .ingest(arguments)
            .unwrap_or_else(|error| panic!("{error}: {arguments}"));
        assert!(said.contains("splits from"), "{said}");
        let store = Store::open(&run.path("out.grappa")).unwrap();
        let nodes = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(split(&store, "train"), nodes(&["0", "1"]), "{arguments}");
        assert_eq!(split(&store, "val"), nodes(&["3"]), "{arguments}");
        assert_eq!(store.split("test").unwrap(), None);
        // The column is no feature.
        if let Some(features) = &store.manifest().features {
            assert_eq!(features.dim, 1, "{arguments}");
        }
    }
    for (from, to, part) in [
        (
            "\nval",
            "\nlater",
            "x.csv:5: expected train, val, valid, validation, test or nothing",
        ),
        ("part;x", "set;x", "no column part; give --split-column one of set, x"),
        ("train;1\ntrain;1\n;2\nval;3", ";1\n;1\n;2\n;3", "no node is in a split"),
        ("val;3", "val;3\ntrain;7", "more"),
    ] {
        let text = fs::read_to_string(run.path("in_order.csv")).unwrap().replace(from, to);
        fs::write(run.path("x.csv"), text).unwrap();
        let error = run.ingest(&ordered.replace("in_order", "x")).unwrap_err();
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    fs::write(
        run.path("masks.csv"),
        "id,x,train_mask,val_mask\n0,1,1,1\n1,1,0,0\n2,1,0,0\n3,1,0,0\n",
    )
    .unwrap();
    let error = run
        .ingest("--edges d.txt --features masks.csv --split-column train_mask,val_mask")
        .unwrap_err();
    assert!(
        error.contains("masks.csv:2: the node is in the masks of train and val"),
        "{error}"
    );
}
