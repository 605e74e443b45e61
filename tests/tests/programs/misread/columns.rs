//! Columns of tables of features that have other values than numbers, or look like one thing and are another.

use grappa_tests::parquet::{Column, write_table};

use super::{ExpectedGraph, IngestFolder, TRIANGLE, check_inputs};

const READ: &[&str] = &[
    "--edges e.txt --features x.csv",
    "x.csv: id,plan,a\n2,gold,3\n0,free,1\n1,free,2\n | plan is one of free, gold, else other (one-hot) \
     | 1,0,0,1 1,0,0,2 0,1,0,3",
    // Quoted, with the separator.
    "x.csv: id,city,a\n0,\"Paris, TX\",1\n1,\"Paris, TX\",2\n2,Rome,3\n | city is one of Paris, TX, Rome, else other \
     | 1,0,0,1 1,0,0,2 0,1,0,3",
    // Without ids, and without a header.
    "x.csv: plan\ta\nfree\t1\nfree\t2\nbest deal\t3\n | plan is one of best deal, free | 0,1,0,1 0,1,0,2 1,0,0,3",
    "x.csv: true,2024-01-01\nfalse,2024-01-01\ntrue,2024-01-03\n | 2 is a date | 1,19723 0,19723 1,19725",
    "x.csv: id,since\n0,1970-01-02\n1,1970-01-03T12:00:00Z\n2,1969-12-31\n | since is a date (days since 1970-01-01) \
     | 1 2.5 -1",
    "x.csv: id,active,a\n0,t,1\n1,f,2\n2,t,3\n | active is false or true | 1,1 0,2 1,3",
    "x.csv: id,active,a\n0,Yes,1\n1,no,2\n2,YES,3\n | active is false or true | 1,1 0,2 1,3",
    // Letters of two pairs are no booleans.
    "x.csv: id,kind,a\n0,n,1\n1,f,2\n2,n,3\n | kind is one of f, n, else other | 0,1,0,1 1,0,0,2 0,1,0,3",
    // Codes with zeros in front.
    "x.csv: id,zip,a\n0,02134,1\n1,02134,2\n2,10001,3\n | zip is one of 02134, 10001 | 1,0,0,1 1,0,0,2 0,1,0,3",
    // Numbers that only look like codes.
    "x.csv: id,x,a\n0,0.5,0\n1,00.5,-0\n2,0e1,1\n | ids id; features x, a | 0.5,0 0.5,-0 0,1",
    "x.csv: id,k,a\n0,x,1\n1,x,2\n2,x,3\n | k is one of x, else other | 1,0,1 1,0,2 1,0,3",
    "--edges e.txt --features x.csv --categories index",
    "x.csv: id,plan,a\n2,gold,3\n0,free,1\n1,free,2\n | (by index) | 0,1 0,2 1,3",
    "--edges e.txt --features x.csv --missing other",
    // `none` is a word, and `NA` is not.
    "x.csv: id,pool,a\n0,none,1\n1,none,2\n2,NA,3\n \
     | pool is one of none, else other (one-hot), with other for missing values (1) | 1,0,1 1,0,2 0,1,3",
    "--edges e.txt --features x.csv --features-from a,city --categories index",
    // All texts differ, but the user wants the column.
    "x.csv: id,city,a\n0,Rome,1\n1,Oslo,2\n2,Bonn,3\n | city is one of Bonn, Oslo, Rome | 1,2 2,1 3,0",
];

const REFUSED: &[&str] = &[
    "--edges e.txt --features x.csv",
    "x.csv: id,income,a\n0,\"1,200\",1\n1,900,2\n2,\"2,400\",3\n \
     | !separators of thousands or a decimal comma in income (\"1,200\" of 0 in line 2, \"2,400\" of 2 in line 4) \
     | --features-from a | 1 2 3",
    "x.csv: id,rate,a\n0,12%,1\n1,15%,2\n2,9.5%,3\n | !a percentage in rate | --features-from a | 1 2 3",
    "x.csv: id,price,a\n0,$12,1\n1,$12,2\n2,$9.50,3\n | !an amount with a currency in price | --features-from a \
     | 1 2 3",
    "x.csv: id,mask,a\n0,0xFF,1\n1,0xFF,2\n2,0x0A,3\n | !a number in base 16 in mask | --features-from a | 1 2 3",
    "x.csv: id,day,a\n0,01/02/2024,1\n1,03/02/2024,2\n2,01/02/2024,3\n \
     | !dates that may be read in two ways in day (\"01/02/2024\" of 0 in line 2 | --features-from a | 1 2 3",
    "x.csv: id,day,a\n0,2024-01-02,1\n1,2024-01-03,2\n2,soon,3\n \
     | !other values among dates in day (\"soon\" of 2 in line 4) | --features-from a | 1 2 3",
    "x.csv: id,age,a\n0,31,1\n1,28,2\n2,old,3\n | !text among numbers in age (\"old\" of 2 in line 4) \
     | --features-from a | 1 2 3",
    "x.csv: id,e,a\n0,,1\n1,,2\n2,NA,3\n | !no value in any row of e | --features-from a | 1 2 3",
    // Missing values: of numbers, of dates, and of categories.
    "x.csv: id,x,a\n0,,1\n1,1,2\n2,5,3\n | !missing values in x (0 in line 2) | --missing mean | 3,1 1,2 5,3",
    "x.csv: id,x,a\n0,NaN,1\n1,1,2\n2,5,\n | !missing values in x (0 in line 2), a (2 in line 4) \
     | --missing indicator | 3,1,1,0 1,0,2,0 5,0,1.5,1",
    "x.csv: id,x,a\n0,null,1\n1,1,2\n2,5,\n | !missing values in x (0 in line 2), a (2 in line 4) | --missing 0 \
     | 0,1 1,2 5,0",
    "x.csv: id,day,plan\n0,,free\n1,1970-01-03,\n2,1970-01-05,free\n \
     | !missing values in day (0 in line 2), plan (1 in line 3) | --missing mean | 3,1,0 2,0,1 4,1,0",
    // Several problems, told at once.
    "x.csv: id,x,day,plan,a\n0,,1.2.2024,free,1\n1,1,3.2.2024,free,2,9\n2,high,4.2.2024,,3\n0,1,2.2.2024,gold,4\n\
     5,2,1.2.2024,gold,5\n \
     | !lines that are no rows: 1, first line 3, expected 5 columns as in the first line, found 6 \
     | missing values in x (0 in line 2), plan (2 in line 4)",
    "x.csv: id,x,day,plan,a\n0,,1.2.2024,free,1\n1,1,3.2.2024,free,2,9\n2,high,4.2.2024,,3\n0,1,2.2.2024,gold,4\n\
     5,2,1.2.2024,gold,5\n \
     | !text among numbers in x (\"high\" of 2 in line 4) \
     | (\"1.2.2024\" of 0 in line 2, \"4.2.2024\" of 2 in line 4, \"2.2.2024\" of 0 in line 5 and 1 more)",
    "--edges e.txt --features x.csv --table-separator semicolon",
    "x.csv: id;x;a\n0;0,5;1\n1;1,5;2\n2;2,5;3\n | !decimal comma | --features-from a | 1 2 3",
    "--edges e.txt --features x.csv --categories-max 1",
    "x.csv: id,kind,a\n0,x,1\n1,y,2\n2,x,3\n \
     | !more than 1 different texts, or texts of more than 1024 bytes, in kind | --features-from a | 1 2 3",
    "--edges e.txt --features x.csv --missing income=0",
    "x.csv: id,x,a\n0,,1\n1,1,2\n2,5,3\n | !--missing names the column income | name one of x, a",
];

#[test]
fn columns_become_what_their_values_are() {
    check_inputs(Some(TRIANGLE), READ);
}

#[test]
fn columns_that_may_be_misread_are_refused_with_a_remedy() {
    check_inputs(Some(TRIANGLE), REFUSED);
}

#[test]
fn values_after_the_first_rows_are_refused_with_all_their_rows() {
    const X: &str = "--edges e.txt --features x.csv";
    let folder = IngestFolder::new();
    let rows = 400;
    let edges: String = (0..rows).map(|row| format!("{row} {}\n", (row + 1) % rows)).collect();
    folder.write("e.txt", edges);
    let table = |odd: fn(usize) -> Option<&'static str>| {
        let lines = (0..rows).map(|row| match odd(row) {
            Some(odd) => format!("{row},{odd},7\n"),
            None => format!("{row},{}.5,7\n", row % 9),
        });
        format!("id,x,a\n{}", lines.collect::<String>())
    };
    let rare = table(|row| match row {
        200 | 300..310 => Some(""),
        250 => Some("much"),
        260 => Some("02139"),
        _ => None,
    });
    folder.write("x.csv", rare);
    let parts = [
        "x.csv:202: missing values in x (200 in line 202, 300 in line 302, 301 in line 303 and 8 more)",
        "text among numbers in x (\"much\" of 250 in line 252)",
        "these are codes and no numbers: give --categories one-hot to read them as categories",
    ];
    folder.expect_error(X, &parts, "");
    // The remedy for a category whose first values are numbers.
    folder.write("x.csv", table(|row| Some(if row < 150 { "5" } else { ["red", "green"][row % 2] })));
    folder.expect_error(X, &["give --categories one-hot if it is a category"], "");
    let said = folder.ingest(&format!("{X} --categories one-hot")).unwrap();
    assert!(said.contains("x is one of 5, green, red, else other"), "{said}");
}

#[test]
fn columns_of_parquet_become_what_their_types_say() {
    const X: &str = "--edges e.txt --features x.parquet";
    let folder = IngestFolder::new();
    folder.write(TRIANGLE.0, TRIANGLE.1);
    let write = |columns: &[(&str, Column<'_>)]| write_table(&folder.path("x.parquet"), columns, 2);
    let graph = |features| ExpectedGraph::new(TRIANGLE.2, features, "");
    let strings = |values: [&str; 3]| values.map(str::to_owned);
    let (plan, zip) = (strings(["gold", "free", "free"]), strings(["10001", "94103", "94103"]));
    let (plan, zip) = (("plan", Column::Strings(&plan)), ("zip", Column::Strings(&zip)));
    let (id, a) = (("id", Column::Integers(&[2, 0, 1])), ("a", Column::Floats(&[3.0, 1.0, 2.0])));
    let (flag, day) = (("flag", Column::Booleans(&[true, false, true])), ("day", Column::Dates(&[19_723, 0, -1])));
    let moment = ("at", Column::Milliseconds(&[43_200_000, 0, 86_400_000]));
    let dates = "flag is false or true (0, 1); day is a date";
    for (columns, says, features) in grappa_skip::cases![
        &[id, plan, a][..], "plan is one of free, gold", "1,0,0,1 1,0,0,2 0,1,0,3";
        // The type says that these are no numbers.
        &[id, zip, a], "zip is one of 10001, 94103", "0,1,0,1 0,1,0,2 1,0,0,3";
        &[flag, id, day, moment], dates, "0,0,0 1,-1,1 1,19723,0.5";
    ] {
        write(columns);
        folder.expect(X, says, graph(features), &format!("{columns:?}"));
    }
    // Ids that are strings of digits.
    write(&[("id", Column::Strings(&strings(["2", "0", "1"]))), a]);
    folder.expect_error(X, &["strings need --ids string"], "");
    folder.expect(&format!("{X} --ids string"), "ids id", graph("1 2 3"), "string ids");
    write(&[id, ("city", Column::Strings(&strings(["Rome", "Oslo", "Bonn"]))), a]);
    folder.expect_error(X, &["not all columns are clearly features: city"], "");
    // A folder whose second part has all-different texts.
    std::fs::create_dir(folder.path("x")).unwrap();
    write_table(&folder.path("x/part.0.parquet"), &[id, plan, a], 2);
    let later = ["red".to_owned()];
    let later = [("id", Column::Integers(&[3])), ("plan", Column::Strings(&later)), ("a", Column::Floats(&[4.0]))];
    write_table(&folder.path("x/part.1.parquet"), &later, 2);
    let features = "1,0,0,0,1 1,0,0,0,2 0,1,0,0,3 0,0,1,0,4";
    let x = "--edges e.txt --nodes 4 --features x";
    folder.expect(x, "plan is one of free, gold, red", graph(features), "a folder");
}
