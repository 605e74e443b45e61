//! Columns of tables of features that have other values than numbers, or look like one thing and are another.

use std::fs;

use grappa_tests::{
    files::memory_folder,
    parquet::{Column, write_table},
};

use super::{Case, Graph, Run, read, refused};

/// The edges of a triangle.
const E: (&str, &str) = ("e.txt", "0 1\n1 2\n2 0\n");
const EDGES: &str = "0>1&1>2&2>0";
const X: &str = "--edges e.txt --features x.csv";

/// A table with problems of all kinds.
const MIXED: &str = "\
id,x,day,plan,a
0,,1.2.2024,free,1
1,1,3.2.2024,free,2,9
2,high,4.2.2024,,3
0,1,2.2.2024,gold,4
5,2,1.2.2024,gold,5
";

const READ: &[Case] = &[
    read(
        &[E, ("x.csv", "id,plan,a\n2,gold,3\n0,free,1\n1,free,2\n")],
        X,
        "plan is one of free, gold, else other (one-hot)",
        EDGES,
    )
    .with_features("1,0,0,1 1,0,0,2 0,1,0,3"),
    read(
        &[E, ("x.csv", "id,plan,a\n2,gold,3\n0,free,1\n1,free,2\n")],
        "--edges e.txt --features x.csv --categories index",
        "(by index)",
        EDGES,
    )
    .with_features("0,1 0,2 1,3"),
    // Quoted, with the separator.
    read(
        &[
            E,
            ("x.csv", "id,city,a\n0,\"Paris, TX\",1\n1,\"Paris, TX\",2\n2,Rome,3\n"),
        ],
        X,
        "city is one of Paris, TX, Rome, else other",
        EDGES,
    )
    .with_features("1,0,0,1 1,0,0,2 0,1,0,3"),
    // Without ids, and without a header.
    read(
        &[E, ("x.csv", "plan\ta\nfree\t1\nfree\t2\nbest deal\t3\n")],
        X,
        "plan is one of best deal, free",
        EDGES,
    )
    .with_features("0,1,0,1 0,1,0,2 1,0,0,3"),
    read(
        &[E, ("x.csv", "true,2024-01-01\nfalse,2024-01-01\ntrue,2024-01-03\n")],
        X,
        "2 is a date",
        EDGES,
    )
    .with_features("1,19723 0,19723 1,19725"),
    read(
        &[
            E,
            (
                "x.csv",
                "id,since\n0,1970-01-02\n1,1970-01-03T12:00:00Z\n2,1969-12-31\n",
            ),
        ],
        X,
        "since is a date (days since 1970-01-01)",
        EDGES,
    )
    .with_features("1 2.5 -1"),
    read(
        &[E, ("x.csv", "id,active,a\n0,t,1\n1,f,2\n2,t,3\n")],
        X,
        "active is false or true",
        EDGES,
    )
    .with_features("1,1 0,2 1,3"),
    read(
        &[E, ("x.csv", "id,active,a\n0,Yes,1\n1,no,2\n2,YES,3\n")],
        X,
        "active is false or true",
        EDGES,
    )
    .with_features("1,1 0,2 1,3"),
    // Letters of two pairs are no booleans.
    read(
        &[E, ("x.csv", "id,kind,a\n0,n,1\n1,f,2\n2,n,3\n")],
        X,
        "kind is one of f, n, else other",
        EDGES,
    )
    .with_features("0,1,0,1 1,0,0,2 0,1,0,3"),
    // Codes with zeros in front.
    read(
        &[E, ("x.csv", "id,zip,a\n0,02134,1\n1,02134,2\n2,10001,3\n")],
        X,
        "zip is one of 02134, 10001",
        EDGES,
    )
    .with_features("1,0,0,1 1,0,0,2 0,1,0,3"),
    // Numbers that only look like codes.
    read(
        &[E, ("x.csv", "id,x,a\n0,0.5,0\n1,00.5,-0\n2,0e1,1\n")],
        X,
        "ids id; features x, a",
        EDGES,
    )
    .with_features("0.5,0 0.5,-0 0,1"),
    read(
        &[E, ("x.csv", "id,k,a\n0,x,1\n1,x,2\n2,x,3\n")],
        X,
        "k is one of x, else other",
        EDGES,
    )
    .with_features("1,0,1 1,0,2 1,0,3"),
    // `none` is a word, and `NA` is not.
    read(
        &[E, ("x.csv", "id,pool,a\n0,none,1\n1,none,2\n2,NA,3\n")],
        "--edges e.txt --features x.csv --missing other",
        "pool is one of none, else other (one-hot), with other for missing values (1)",
        EDGES,
    )
    .with_features("1,0,1 1,0,2 0,1,3"),
    // All texts differ, but the user wants the column.
    read(
        &[E, ("x.csv", "id,city,a\n0,Rome,1\n1,Oslo,2\n2,Bonn,3\n")],
        "--edges e.txt --features x.csv --features-from a,city --categories index",
        "city is one of Bonn, Oslo, Rome",
        EDGES,
    )
    .with_features("1,2 2,1 3,0"),
];

const REFUSED: &[Case] = &[
    refused(
        &[E, ("x.csv", "id,income,a\n0,\"1,200\",1\n1,900,2\n2,\"2,400\",3\n")],
        X,
        "separators of thousands or a decimal comma in income (\"1,200\" of 0 in line 2, \"2,400\" of 2 in line 4)",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id;x;a\n0;0,5;1\n1;1,5;2\n2;2,5;3\n")],
        "--edges e.txt --features x.csv --table-separator semicolon",
        "decimal comma",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id,rate,a\n0,12%,1\n1,15%,2\n2,9.5%,3\n")],
        X,
        "a percentage in rate",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id,price,a\n0,$12,1\n1,$12,2\n2,$9.50,3\n")],
        X,
        "an amount with a currency in price",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id,mask,a\n0,0xFF,1\n1,0xFF,2\n2,0x0A,3\n")],
        X,
        "a number in base 16 in mask",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[
            E,
            ("x.csv", "id,day,a\n0,01/02/2024,1\n1,03/02/2024,2\n2,01/02/2024,3\n"),
        ],
        X,
        "dates that may be read in two ways in day (\"01/02/2024\" of 0 in line 2",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id,day,a\n0,2024-01-02,1\n1,2024-01-03,2\n2,soon,3\n")],
        X,
        "other values among dates in day (\"soon\" of 2 in line 4)",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id,age,a\n0,31,1\n1,28,2\n2,old,3\n")],
        X,
        "text among numbers in age (\"old\" of 2 in line 4)",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id,e,a\n0,,1\n1,,2\n2,NA,3\n")],
        X,
        "no value in any row of e",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    refused(
        &[E, ("x.csv", "id,kind,a\n0,x,1\n1,y,2\n2,x,3\n")],
        "--edges e.txt --features x.csv --categories-max 1",
        "more than 1 different texts, or texts of more than 1024 bytes, in kind",
        "--features-from a",
        EDGES,
    )
    .with_features("1 2 3"),
    // Missing values: of numbers, of dates, and of categories.
    refused(
        &[E, ("x.csv", "id,x,a\n0,,1\n1,1,2\n2,5,3\n")],
        X,
        "missing values in x (0 in line 2)",
        "--missing mean",
        EDGES,
    )
    .with_features("3,1 1,2 5,3"),
    refused(
        &[E, ("x.csv", "id,x,a\n0,NaN,1\n1,1,2\n2,5,\n")],
        X,
        "missing values in x (0 in line 2), a (2 in line 4)",
        "--missing indicator",
        EDGES,
    )
    .with_features("3,1,1,0 1,0,2,0 5,0,1.5,1"),
    refused(
        &[E, ("x.csv", "id,x,a\n0,null,1\n1,1,2\n2,5,\n")],
        X,
        "missing values in x (0 in line 2), a (2 in line 4)",
        "--missing 0",
        EDGES,
    )
    .with_features("0,1 1,2 5,0"),
    refused(
        &[E, ("x.csv", "id,day,plan\n0,,free\n1,1970-01-03,\n2,1970-01-05,free\n")],
        X,
        "missing values in day (0 in line 2), plan (1 in line 3)",
        "--missing mean",
        EDGES,
    )
    .with_features("3,1,0 2,0,1 4,1,0"),
    refused(
        &[E, ("x.csv", "id,x,a\n0,,1\n1,1,2\n2,5,3\n")],
        "--edges e.txt --features x.csv --missing income=0",
        "--missing names the column income",
        "name one of x, a",
        "",
    ),
    // Several problems, told at once.
    refused(
        &[E, ("x.csv", MIXED)],
        X,
        "lines that are no rows: 1, first line 3, expected 5 columns as in the first line, found 6",
        "missing values in x (0 in line 2), plan (2 in line 4)",
        "",
    ),
    refused(
        &[E, ("x.csv", MIXED)],
        X,
        "text among numbers in x (\"high\" of 2 in line 4)",
        "(\"1.2.2024\" of 0 in line 2, \"4.2.2024\" of 2 in line 4, \"2.2.2024\" of 0 in line 5 and 1 more)",
        "",
    ),
];

#[test]
fn columns_become_what_their_values_are() {
    READ.iter().for_each(Case::check);
}

#[test]
fn columns_that_may_be_misread_are_refused_with_a_remedy() {
    REFUSED.iter().for_each(Case::check);
}

#[test]
fn values_after_the_first_rows_are_refused_with_all_their_rows() {
    let run = Run {
        folder: memory_folder(),
    };
    let rows = 400;
    let edges: String = (0..rows).map(|row| format!("{row} {}\n", (row + 1) % rows)).collect();
    fs::write(run.path("e.txt"), edges).unwrap();
    let write = |odd: &dyn Fn(usize) -> Option<&'static str>| {
        let lines = (0..rows).map(|row| match odd(row) {
            Some(odd) => format!("{row},{odd},7\n"),
            None => format!("{row},{}.5,7\n", row % 9),
        });
        fs::write(run.path("x.csv"), format!("id,x,a\n{}", lines.collect::<String>())).unwrap();
    };
    write(&|row| match row {
        200 | 300..310 => Some(""),
        250 => Some("much"),
        260 => Some("02139"),
        _ => None,
    });
    let error = run.ingest(X).unwrap_err();
    for part in [
        "x.csv:202: missing values in x (200 in line 202, 300 in line 302, 301 in line 303 and 8 more)",
        "text among numbers in x (\"much\" of 250 in line 252)",
        "these are codes and no numbers: give --categories one-hot to read them as categories",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    // The remedy for a category whose first values are numbers.
    write(&|row| match row {
        150.. => Some(["red", "green"][row % 2]),
        _ => Some("5"),
    });
    let error = run.ingest(X).unwrap_err();
    assert!(
        error.contains("give --categories one-hot if it is a category"),
        "{error}"
    );
    let said = run.ingest(&format!("{X} --categories one-hot")).unwrap();
    assert!(said.contains("x is one of 5, green, red, else other"), "{said}");
}

#[test]
fn columns_of_parquet_become_what_their_types_say() {
    let run = Run {
        folder: memory_folder(),
    };
    fs::write(run.path("e.txt"), E.1).unwrap();
    let strings = |values: [&str; 3]| values.map(str::to_owned);
    let (plan, zip, city) = (
        strings(["gold", "free", "free"]),
        strings(["10001", "94103", "94103"]),
        strings(["Rome", "Oslo", "Bonn"]),
    );
    let (plan, zip, city) = (Column::Strings(&plan), Column::Strings(&zip), Column::Strings(&city));
    let (id, a) = (Column::Integers(&[2, 0, 1]), Column::Floats(&[3.0, 1.0, 2.0]));
    let (flag, day) = (Column::Booleans(&[true, false, true]), Column::Dates(&[19_723, 0, -1]));
    let moment = Column::Milliseconds(&[43_200_000, 0, 86_400_000]);
    for (columns, says, features) in [
        (
            &[("id", id), ("plan", plan), ("a", a)][..],
            "plan is one of free, gold",
            "1,0,0,1 1,0,0,2 0,1,0,3",
        ),
        // The type says that these are no numbers.
        (
            &[("id", id), ("zip", zip), ("a", a)],
            "zip is one of 10001, 94103",
            "0,1,0,1 0,1,0,2 1,0,0,3",
        ),
        (
            &[("flag", flag), ("id", id), ("day", day), ("at", moment)],
            "flag is false or true (0, 1); day is a date",
            "0,0,0 1,-1,1 1,19723,0.5",
        ),
    ] {
        write_table(&run.path("x.parquet"), columns, 2);
        let graph = Graph {
            edges: EDGES,
            features,
            labels: "",
        };
        run.expect(
            "--edges e.txt --features x.parquet",
            says,
            graph,
            &format!("{columns:?}"),
        );
    }
    // Ids that are strings of digits.
    let ids = strings(["2", "0", "1"]);
    write_table(&run.path("x.parquet"), &[("id", Column::Strings(&ids)), ("a", a)], 2);
    let error = run.ingest("--edges e.txt --features x.parquet").unwrap_err();
    assert!(error.contains("strings need --ids string"), "{error}");
    run.expect(
        "--edges e.txt --features x.parquet --ids string",
        "ids id",
        Graph {
            edges: EDGES,
            features: "1 2 3",
            labels: "",
        },
        "string ids",
    );
    write_table(&run.path("x.parquet"), &[("id", id), ("city", city), ("a", a)], 2);
    let error = run.ingest("--edges e.txt --features x.parquet").unwrap_err();
    assert!(error.contains("not all columns are clearly features: city"), "{error}");
    // A folder whose second part has all-different texts.
    let path = run.path("x");
    fs::create_dir(&path).unwrap();
    let (plans, later) = (strings(["gold", "free", "free"]), ["red".to_owned()]);
    let parts = [
        (&[2_i64, 0, 1][..], &plans[..], &[3.0_f32, 1.0, 2.0][..]),
        (&[3], &later, &[4.0]),
    ];
    for (part, (ids, plans, a)) in parts.into_iter().enumerate() {
        write_table(
            &path.join(format!("part.{part}.parquet")),
            &[
                ("id", Column::Integers(ids)),
                ("plan", Column::Strings(plans)),
                ("a", Column::Floats(a)),
            ],
            2,
        );
    }
    run.expect(
        "--edges e.txt --nodes 4 --features x",
        "plan is one of free, gold, red",
        Graph {
            edges: EDGES,
            features: "1,0,0,0,1 1,0,0,0,2 0,1,0,0,3 0,0,1,0,4",
            labels: "",
        },
        "a folder",
    );
}
