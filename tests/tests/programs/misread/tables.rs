//! The columns of tables of features and labels.

use grappa_tests::parquet::{Column, write_table};

use super::{ExpectedGraph, IngestFolder, SharedFile, TRIANGLE, check_inputs};

/// A triangle of strings.
const NAMED_TRIANGLE: SharedFile = ("e.txt", "ann bob\nbob cy\ncy ann\n", "ann>bob&bob>cy&cy>ann");

const IDS: &[&str] = &[
    "--edges e.txt --features x.csv",
    "x.csv: user_id,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | ids user_id; features f0, f1 | 0.5,5 1.5,10 2.5,20",
    "x.csv: nid,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | ids nid | 0.5,5 1.5,10 2.5,20",
    "x.csv: _id,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | ids _id | 0.5,5 1.5,10 2.5,20",
    "x.csv: :ID,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | ids :ID | 0.5,5 1.5,10 2.5,20",
    "x.csv: vertex\tf0\tf1\n2\t2.5\t20\n0\t0.5\t5\n1\t1.5\t10\n | ids vertex | 0.5,5 1.5,10 2.5,20",
    "x.csv: customerId,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | ids customerId | 0.5,5 1.5,10 2.5,20",
    "x.csv: f0,f1,id\n2.5,20,2\n0.5,5,0\n1.5,10,1\n | ids id | 0.5,5 1.5,10 2.5,20",
    "x.csv: f0;id;f1\n2.5;2;20\n0.5;0;5\n1.5;1;10\n | semicolons, with a header; ids id | 0.5,5 1.5,10 2.5,20",
    // As pandas writes a table with its index.
    "x.csv: ,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | with a header | 0.5,5 1.5,10 2.5,20",
    "x.csv: ,0,1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | with a header | 0.5,5 1.5,10 2.5,20",
    // A matrix is in the order of the ids.
    "x.csv: 0.5,5\n1.5,10\n2.5,20\n | row k is the node | 0.5,5 1.5,10 2.5,20",
    "x.csv: f0,f1\n0.5,5\n1.5,10\n2.5,20\n | row k is the node | 0.5,5 1.5,10 2.5,20",
    "x.csv: pca_1 pca_2\n0.5 5\n1.5 10\n2.5 20\n | row k is the node | 0.5,5 1.5,10 2.5,20",
    "x.csv: customer,f0,f1\n2,2.5,20\n0,0.5,5\n1,1.5,10\n | !x.csv:1: the ids of the rows may be in customer \
     | --id customer | 0.5,5 1.5,10 2.5,20",
    "x.csv: rank,f0\n2,2.5\n0,0.5\n1,1.5\n | !may be in rank | --id none | 2,2.5 0,0.5 1,1.5",
    "x.csv: user_id,item_id,f0\n2,7,2.5\n0,7,0.5\n1,7,1.5\n | !several columns may have the ids | --id user_id",
    "x.csv: id,city_id,f0,f1\n2,7,2.5,20\n0,7,0.5,5\n1,7,1.5,10\n | !city_id | --features-from f0,f1 \
     | 0.5,5 1.5,10 2.5,20",
    "x.csv: id,city,f0,f1\n2,Rome,2.5,20\n0,Oslo,0.5,5\n1,Bonn,1.5,10\n | !city | --features-from f0,f1 \
     | 0.5,5 1.5,10 2.5,20",
    "x.csv: kind,f0,f1\nred,0.5,5\nred,1.5,10\nblue,2.5,20\n \
     | features kind, f0, f1; kind is one of blue, red, else other | 0,1,0,0.5,5 0,1,0,1.5,10 1,0,0,2.5,20",
    // The only names are no ids.
    "x.csv: member,city,f0\n2,Rome,2.5\n0,Oslo,0.5\n1,Bonn,1.5\n | !x.csv:2: expected one node id \
     | if another column has the ids, give --id",
    "x.csv: grid,f0\n2,2.5\n0,0.5\n0,1.5\n | !may be in grid | --id none | 2,2.5 0,0.5 0,1.5",
    "x.csv: src,dst\n0,1\n1,2\n | !columns of edges | --edges",
    "x.csv: 0.5;1,5\n1.5;2,5\n2.5;3,5\n | !commas or by semicolons | --table-separator semicolon",
    "--edges e.txt --features x.csv --id 1",
    "x.csv: 2,2.5,20\n0,0.5,5\n1,1.5,10\n | ids 1 | 0.5,5 1.5,10 2.5,20",
    "--edges e.txt --features x.csv --id user",
    "x.csv: id,f0\n2,1\n0,2\n1,3\n | !no column user | --id one of id, f0",
];

const NAMED_IDS: &[&str] = &[
    "--edges e.txt --ids string --features x.csv",
    "x.csv: name,f0,f1\ncy,2.5,20\nann,0.5,5\nbob,1.5,10\n | ids name | 0.5,5 1.5,10 2.5,20",
    "x.csv: f0,member,f1\n2.5,cy,20\n0.5,ann,5\n1.5,bob,10\n | ids member | 0.5,5 1.5,10 2.5,20",
    "x.csv: member,city,f0\ncy,Rome,2.5\nann,Oslo,0.5\nbob,Bonn,1.5\n | !several columns may have the ids \
     | --id member",
    "x.csv: cy,2.5,20\nann,0.5,5\nbob,1.5,10\n | !found text in column 1 | --id 1 | 0.5,5 1.5,10 2.5,20",
];

const LABELS: &[&str] = &[
    "--edges e.txt --features x.csv",
    "x.csv: f0,f1,label\n0.5,5,1\n1.5,10,0\n2.5,20,1\n | left out: label | 0.5,5 1.5,10 2.5,20",
    "x.csv: Class,f0,f1\n1,0.5,5\n0,1.5,10\n1,2.5,20\n | left out: Class | 0.5,5 1.5,10 2.5,20",
    "x.csv: f0,f1,train_mask\n0.5,5,1\n1.5,10,0\n2.5,20,0\n | left out: train_mask | 0.5,5 1.5,10 2.5,20",
    "x.csv: f0,f1,y_true\n0.5,5,1\n1.5,10,0\n2.5,20,1\n | !y_true | --features-from f0,f1 | 0.5,5 1.5,10 2.5,20",
    "x.csv: f0,f1,category\n0.5,5,1\n1.5,10,0\n2.5,20,1\n | !category | --features-from f0,f1 | 0.5,5 1.5,10 2.5,20",
    "--edges e.txt --features x.csv --labels x.csv --label fraud",
    "x.csv: id,f0,f1,fraud\n2,2.5,20,1\n0,0.5,5,0\n1,1.5,10,1\n | labels fraud | 0.5,5 1.5,10 2.5,20 | 0 1 1",
    "--edges e.txt --labels y.csv",
    "y.csv: user_id,label\n2,5\n0,3\n1,4\n | ids user_id; labels label |  | 3 4 5",
    "y.csv: label,user_id\n5,2\n3,0\n4,1\n | ids user_id; labels label |  | 3 4 5",
    "y.csv: id,age,label\n2,50,5\n0,51,3\n1,52,4\n | left out: age |  | 3 4 5",
    "y.csv: 3\n4\n5\n | row k is the node |  | 3 4 5",
    "y.csv: customer,label\n2,5\n0,3\n1,4\n | !may be in customer | --id customer |  | 3 4 5",
    "y.csv: 2,5\n0,3\n1,4\n | !zeros and ones | --id 1 |  | 3 4 5",
];

#[test]
fn ids_and_labels_of_tables_are_not_features() {
    check_inputs(Some(TRIANGLE), IDS);
    check_inputs(Some(NAMED_TRIANGLE), NAMED_IDS);
    check_inputs(Some(TRIANGLE), LABELS);
}

/// Reads a table of these columns, or checks that it is refused and reads it with the remedy.
fn check_table(
    folder: &IngestFolder,
    file: &str,
    columns: &[(&str, Column<'_>)],
    expected: [&str; 3],
    features: &'static str,
) {
    let [arguments, refused, remedy] = expected;
    write_table(&folder.path(file), columns, 2);
    let context = format!("{columns:?}");
    if !refused.is_empty() {
        folder.expect_error(arguments, &[refused], &context);
    }
    let graph = ExpectedGraph::new(TRIANGLE.2, features, "");
    folder.expect(&format!("{arguments} {remedy}"), "", graph, &context);
}

#[test]
fn tables_in_parquet_follow_the_same_rules() {
    let folder = IngestFolder::new();
    folder.write(TRIANGLE.0, TRIANGLE.1);
    let ids = Column::Integers(&[2, 0, 1]);
    let f0 = ("f0", Column::Floats(&[2.5, 0.5, 1.5]));
    let f1 = ("f1", Column::Floats(&[20.0, 5.0, 10.0]));
    for (columns, refused, remedy) in grappa_skip::cases![
        &[("user_id", ids), f0, f1][..], "", "";
        &[f0, f1, ("nid", ids)], "", "";
        &[("id", ids), f0, f1, ("label", ids)], "", "";
        &[("customer", ids), f0, f1], "may be in customer && --id customer", "--id customer";
        &[("id", ids), f0, f1, ("y_true", ids)], "y_true", "--features-from f0,f1";
        &[("id", ids), ("shop_id", ids), f0, f1], "shop_id", "--features-from f0,f1";
    ] {
        let expected = ["--edges e.txt --features x.parquet", refused, remedy];
        check_table(&folder, "x.parquet", columns, expected, "0.5,5 1.5,10 2.5,20");
    }
}

#[test]
fn columns_of_edges_in_parquet_are_named_or_refused() {
    let folder = IngestFolder::new();
    let (a, b) = (Column::Integers(&[0, 1, 2]), Column::Integers(&[1, 2, 0]));
    for (columns, refused, remedy) in grappa_skip::cases![
        &[("src", a), ("dst", b)][..], "", "";
        &[("to", b), ("from", a)], "", "";
        &[("buyer", a), ("seller", b)], "no two columns", "--src buyer --dst seller";
        &[("tail", a), ("head", b)], "from tail to head", "--src tail --dst head";
        &[("src", a), ("dst", b), ("time", a)], "time", "--src src --dst dst";
        &[("time", a), ("x", a), ("y", b)], "there are time, x, y", "--src x --dst y";
    ] {
        check_table(&folder, "e.parquet", columns, ["--edges e.parquet", refused, remedy], "");
    }
}
