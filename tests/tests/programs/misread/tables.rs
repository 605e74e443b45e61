//! The columns of tables of features and labels.

use grappa_tests::parquet::{Column, write_table};

use super::{Case, Run, read, refused};
use grappa_tests::files::memory_folder;

/// The edges of a triangle.
const E: (&str, &str) = ("e.txt", "0 1\n1 2\n2 0\n");
const EDGES: &str = "0>1&1>2&2>0";
/// The same between strings.
const S: (&str, &str) = ("e.txt", "ann bob\nbob cy\ncy ann\n");
const NAMED: &str = "ann>bob&bob>cy&cy>ann";

const X: &str = "--edges e.txt --features x.csv";
const XS: &str = "--edges e.txt --ids string --features x.csv";
const Y: &str = "--edges e.txt --labels y.csv";

/// Rows in another order than that of the ids.
const ROWS: &str = "0.5,5 1.5,10 2.5,20";

const IDS: &[Case] = &[
    read(
        &[E, ("x.csv", "user_id,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "ids user_id; features f0, f1",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "nid,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "ids nid",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "_id,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "ids _id",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", ":ID,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "ids :ID",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "vertex\tf0\tf1\n2\t2.5\t20\n0\t0.5\t5\n1\t1.5\t10\n")],
        X,
        "ids vertex",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "customerId,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "ids customerId",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "f0,f1,id\n2.5,20,2\n0.5,5,0\n1.5,10,1\n")],
        X,
        "ids id",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "f0;id;f1\n2.5;2;20\n0.5;0;5\n1.5;1;10\n")],
        X,
        "semicolons, with a header; ids id",
        EDGES,
    )
    .with_features(ROWS),
    // As pandas writes a table with its index.
    read(
        &[E, ("x.csv", ",f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "with a header",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", ",0,1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "with a header",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[S, ("x.csv", "name,f0,f1\ncy,2.5,20\nann,0.5,5\nbob,1.5,10\n")],
        XS,
        "ids name",
        NAMED,
    )
    .with_features(ROWS),
    read(
        &[S, ("x.csv", "f0,member,f1\n2.5,cy,20\n0.5,ann,5\n1.5,bob,10\n")],
        XS,
        "ids member",
        NAMED,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        "--edges e.txt --features x.csv --id 1",
        "ids 1",
        EDGES,
    )
    .with_features(ROWS),
    // A matrix is in the order of the ids.
    read(
        &[E, ("x.csv", "0.5,5\n1.5,10\n2.5,20\n")],
        X,
        "row k is the node",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "f0,f1\n0.5,5\n1.5,10\n2.5,20\n")],
        X,
        "row k is the node",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "pca_1 pca_2\n0.5 5\n1.5 10\n2.5 20\n")],
        X,
        "row k is the node",
        EDGES,
    )
    .with_features(ROWS),
    refused(
        &[E, ("x.csv", "customer,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n")],
        X,
        "x.csv:1: the ids of the rows may be in customer",
        "--id customer",
        EDGES,
    )
    .with_features(ROWS),
    refused(
        &[E, ("x.csv", "rank,f0\n2,2.5\n0,0.5\n1,1.5\n")],
        X,
        "may be in rank",
        "--id none",
        EDGES,
    )
    .with_features("2,2.5 0,0.5 1,1.5"),
    refused(
        &[E, ("x.csv", "user_id,item_id,f0\n2,7,2.5\n0,7,0.5\n1,7,1.5\n")],
        X,
        "several columns may have the ids",
        "--id user_id",
        "",
    ),
    refused(
        &[E, ("x.csv", "id,city_id,f0,f1\n2,7,2.5,20\n0,7,0.5,5\n1,7,1.5,10\n")],
        X,
        "city_id",
        "--features-from f0,f1",
        EDGES,
    )
    .with_features(ROWS),
    refused(
        &[
            E,
            ("x.csv", "id,city,f0,f1\n2,Rome,2.5,20\n0,Oslo,0.5,5\n1,Bonn,1.5,10\n"),
        ],
        X,
        "city",
        "--features-from f0,f1",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "kind,f0,f1\nred,0.5,5\nred,1.5,10\nblue,2.5,20\n")],
        X,
        "features kind, f0, f1; kind is one of blue, red, else other",
        EDGES,
    )
    .with_features("0,1,0,0.5,5 0,1,0,1.5,10 1,0,0,2.5,20"),
    // The only names are no ids.
    refused(
        &[E, ("x.csv", "member,city,f0\n2,Rome,2.5\n0,Oslo,0.5\n1,Bonn,1.5\n")],
        X,
        "x.csv:2: expected one node id",
        "if another column has the ids, give --id",
        "",
    ),
    refused(
        &[
            S,
            ("x.csv", "member,city,f0\ncy,Rome,2.5\nann,Oslo,0.5\nbob,Bonn,1.5\n"),
        ],
        XS,
        "several columns may have the ids",
        "--id member",
        "",
    ),
    refused(
        &[S, ("x.csv", "cy,2.5,20\nann,0.5,5\nbob,1.5,10\n")],
        XS,
        "found text in column 1",
        "--id 1",
        NAMED,
    )
    .with_features(ROWS),
    refused(
        &[E, ("x.csv", "grid,f0\n2,2.5\n0,0.5\n0,1.5\n")],
        X,
        "may be in grid",
        "--id none",
        EDGES,
    )
    .with_features("2,2.5 0,0.5 0,1.5"),
    refused(
        &[E, ("x.csv", "src,dst\n0,1\n1,2\n")],
        X,
        "columns of edges",
        "--edges",
        "",
    ),
    refused(
        &[E, ("x.csv", "id,f0\n2,1\n0,2\n1,3\n")],
        "--edges e.txt --features x.csv --id user",
        "no column user",
        "--id one of id, f0",
        "",
    ),
    refused(
        &[E, ("x.csv", "0.5;1,5\n1.5;2,5\n2.5;3,5\n")],
        X,
        "commas or by semicolons",
        "--table-separator semicolon",
        "",
    ),
];

const LABELS: &[Case] = &[
    read(
        &[E, ("x.csv", "f0,f1,label\n0.5,5,1\n1.5,10,0\n2.5,20,1\n")],
        X,
        "left out: label",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "Class,f0,f1\n1,0.5,5\n0,1.5,10\n1,2.5,20\n")],
        X,
        "left out: Class",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "f0,f1,train_mask\n0.5,5,1\n1.5,10,0\n2.5,20,0\n")],
        X,
        "left out: train_mask",
        EDGES,
    )
    .with_features(ROWS),
    read(
        &[E, ("x.csv", "id,f0,f1,fraud\n2,2.5,20,1\n0,0.5,5,0\n1,1.5,10,1\n")],
        "--edges e.txt --features x.csv --labels x.csv --label fraud",
        "labels fraud",
        EDGES,
    )
    .with_features(ROWS)
    .with_labels("0 1 1"),
    read(
        &[E, ("y.csv", "user_id,label\n2,5\n0,3\n1,4\n")],
        Y,
        "ids user_id; labels label",
        EDGES,
    )
    .with_labels("3 4 5"),
    read(
        &[E, ("y.csv", "label,user_id\n5,2\n3,0\n4,1\n")],
        Y,
        "ids user_id; labels label",
        EDGES,
    )
    .with_labels("3 4 5"),
    read(
        &[E, ("y.csv", "id,age,label\n2,50,5\n0,51,3\n1,52,4\n")],
        Y,
        "left out: age",
        EDGES,
    )
    .with_labels("3 4 5"),
    read(&[E, ("y.csv", "3\n4\n5\n")], Y, "row k is the node", EDGES).with_labels("3 4 5"),
    refused(
        &[E, ("x.csv", "f0,f1,y_true\n0.5,5,1\n1.5,10,0\n2.5,20,1\n")],
        X,
        "y_true",
        "--features-from f0,f1",
        EDGES,
    )
    .with_features(ROWS),
    refused(
        &[E, ("x.csv", "f0,f1,category\n0.5,5,1\n1.5,10,0\n2.5,20,1\n")],
        X,
        "category",
        "--features-from f0,f1",
        EDGES,
    )
    .with_features(ROWS),
    refused(
        &[E, ("y.csv", "customer,label\n2,5\n0,3\n1,4\n")],
        Y,
        "may be in customer",
        "--id customer",
        EDGES,
    )
    .with_labels("3 4 5"),
    refused(&[E, ("y.csv", "2,5\n0,3\n1,4\n")], Y, "zeros and ones", "--id 1", EDGES).with_labels("3 4 5"),
];

#[test]
fn ids_and_labels_of_tables_are_not_features() {
    [IDS, LABELS].into_iter().flatten().for_each(Case::check);
}

#[test]
fn tables_in_parquet_follow_the_same_rules() {
    let folder = memory_folder();
    std::fs::write(folder.path().join("e.txt"), E.1).unwrap();
    let run = Run { folder };
    let ids = Column::Integers(&[2, 0, 1]);
    let (f0, f1) = (Column::Floats(&[2.5, 0.5, 1.5]), Column::Floats(&[20.0, 5.0, 10.0]));
    let graph = super::Graph {
        edges: EDGES,
        features: ROWS,
        labels: "",
    };
    let arguments = "--edges e.txt --features x.parquet";
    for (columns, refused, remedy) in [
        (&[("user_id", ids), ("f0", f0), ("f1", f1)][..], "", ""),
        (&[("f0", f0), ("f1", f1), ("nid", ids)], "", ""),
        (&[("id", ids), ("f0", f0), ("f1", f1), ("label", ids)], "", ""),
        (
            &[("customer", ids), ("f0", f0), ("f1", f1)],
            "may be in customer",
            "--id customer",
        ),
        (
            &[("id", ids), ("f0", f0), ("f1", f1), ("y_true", ids)],
            "y_true",
            "--features-from f0,f1",
        ),
        (
            &[("id", ids), ("shop_id", ids), ("f0", f0), ("f1", f1)],
            "shop_id",
            "--features-from f0,f1",
        ),
    ] {
        write_table(&run.path("x.parquet"), columns, 2);
        let context = format!("{columns:?}");
        if refused.is_empty() {
            run.expect(arguments, "", graph, &context);
            continue;
        }
        let error = run.ingest(arguments).unwrap_err();
        assert!(error.contains(refused) && error.contains(remedy), "{error}\n{context}");
        run.expect(&format!("{arguments} {remedy}"), "", graph, &context);
    }
}

#[test]
fn columns_of_edges_in_parquet_are_named_or_refused() {
    let run = Run {
        folder: memory_folder(),
    };
    let (a, b) = (Column::Integers(&[0, 1, 2]), Column::Integers(&[1, 2, 0]));
    let graph = super::Graph {
        edges: EDGES,
        features: "",
        labels: "",
    };
    let arguments = "--edges e.parquet";
    for (columns, refused, remedy) in [
        (&[("src", a), ("dst", b)][..], "", ""),
        (&[("to", b), ("from", a)], "", ""),
        (
            &[("buyer", a), ("seller", b)],
            "no two columns",
            "--src buyer --dst seller",
        ),
        (
            &[("tail", a), ("head", b)],
            "from tail to head",
            "--src tail --dst head",
        ),
        (&[("src", a), ("dst", b), ("time", a)], "time", "--src src --dst dst"),
        (
            &[("time", a), ("x", a), ("y", b)],
            "there are time, x, y",
            "--src x --dst y",
        ),
    ] {
        write_table(&run.path("e.parquet"), columns, 2);
        let context = format!("{columns:?}");
        if !refused.is_empty() {
            let error = run.ingest(arguments).unwrap_err();
            assert!(error.contains(refused), "{error}\n{context}");
        }
        run.expect(&format!("{arguments} {remedy}"), "", graph, &context);
    }
}
