//! Tests of columns of features that lose their differences as 32-bit floats.

use grappa_io::progress::Silent;

use super::{
    tables::{Column, features, some, table},
    *,
};

const ROWS: i32 = 200;

/// Values that are fine, Unix seconds of three minutes, and one number in all rows.
fn values() -> [Vec<f64>; 3] {
    let rows = || (0..ROWS).map(f64::from);
    [
        rows().map(|row| row / 4.0).collect(),
        rows().map(|row| 1.7e9 + row).collect(),
        rows().map(|_| 1e9 + 1.0).collect(),
    ]
}

/// Lines of these values after the text that `first` gives a row.
fn lines(first: impl Fn(usize) -> String) -> String {
    let [plain, seconds, constant] = values();
    let numbers = plain.iter().zip(&seconds).zip(&constant).enumerate();
    numbers.map(|(row, ((a, b), c))| format!("{}{a},{b:.1},{c}\n", first(row))).collect()
}

fn rows_npy() -> Vec<u8> {
    let [plain, seconds, constant] = values();
    let rows: Vec<f64> = plain.iter().zip(&seconds).zip(&constant).flat_map(|((&a, &b), &c)| [a, b, c]).collect();
    npy("<f8", &format!("({ROWS}, 3)"), &le(&rows, f64::to_le_bytes))
}

#[track_caller]
fn assert_warns(warnings: &[String], column: &str) {
    let [warning] = warnings else { panic!("expected one warning, found {warnings:?}") };
    assert_contains(
        warning,
        &[
            &format!("the values of {column}, from 1700000000 to 1700000199, lose up to 64 "),
            "subtract 1700000000 from all of them",
        ],
    );
}

#[test]
fn columns_of_nodes_that_lose_their_differences_are_named_in_every_format() {
    let folder = Folder::new();
    let [plain, seconds, constant] = values().map(|values| Column::F64(some(&values)));
    let parquet = table(&[("plain", plain), ("seconds", seconds), ("constant", constant)], 64);
    let with_header = format!("plain,seconds,constant\n{}", lines(|_| String::new()));
    // Text in a column, so that the table is encoded.
    let encoded = format!("word,plain,seconds,constant\n{}", lines(|row| format!("w{},", row % 3)));
    for (name, bytes, column) in [
        ("a.npy", rows_npy(), "1"),
        ("b.npz", npz(&[("x", rows_npy())], true, false), "1"),
        ("c.csv", lines(|_| String::new()).into_bytes(), "1"),
        ("d.csv", with_header.into_bytes(), "seconds"),
        ("e.csv", encoded.into_bytes(), "seconds"),
        ("f.parquet", parquet, "seconds"),
    ] {
        for at_once in [7, 1000] {
            let mut source = MatrixSource::open(folder.file(name, &bytes)).unwrap();
            source.fit(&EncodingOptions::default(), false, IdKind::Integer, &Silent).unwrap();
            features(&source, at_once).unwrap();
            assert_warns(&source.loss_warnings(), &format!("column {column}"));
        }
    }
}

#[test]
fn columns_of_edges_that_lose_their_differences_are_named() {
    let folder = Folder::new();
    let text = format!("src,dst,plain,seconds,constant\n{}", lines(|row| format!("{row},{},", row + 1)));
    let names = ["plain", "seconds", "constant"].map(str::to_owned);
    let ends = [0, 1].map(|first| Column::I64((first..i64::from(ROWS) + first).map(Some).collect()));
    let [plain, seconds, constant] = values().map(|values| Column::F64(some(&values)));
    let columns = ["src", "dst", "plain", "seconds", "constant"].into_iter();
    let columns: Vec<_> = columns.zip(ends.into_iter().chain([plain, seconds, constant])).collect();
    let files =
        [("a.csv", text.clone().into_bytes()), ("b.csv.gz", gzip(text.as_bytes())), ("c.parquet", table(&columns, 64))];
    for (name, bytes) in files {
        let options = EdgeSourceOptions {
            columns: EdgeColumnOptions { features: names.to_vec(), ..Default::default() },
            block_bytes: 500,
            ..Default::default()
        };
        let source = EdgeSource::open(&[folder.file(name, bytes)], options).unwrap();
        read(&source, 2).unwrap();
        assert_warns(&source.loss_warnings(), "edge feature seconds");
    }
    let ids: Vec<u64> = (0..2 * ROWS as u64).collect();
    let edges = folder.file("edges.npy", npy("<u8", &format!("({ROWS}, 2)"), &le(&ids, u64::to_le_bytes)));
    let options = EdgeSourceOptions {
        features: Some(folder.file("features.npy", rows_npy()).into()),
        block_bytes: 500,
        ..Default::default()
    };
    let source = EdgeSource::open(&[edges], options).unwrap();
    read(&source, 2).unwrap();
    // Features of edges are numbered from 1.
    assert_warns(&source.loss_warnings(), "edge feature 2");
}

#[test]
fn times_of_a_few_minutes_lose_their_differences_as_days() {
    let folder = Folder::new();
    let times =
        |minutes: i64| (0..i64::from(ROWS)).map(move |row| Some(1_700_000_000_000_000 + row * minutes * 60_000_000));
    for (minutes, are_lost) in [(1, true), (10_000, false)] {
        let path = folder.file("times.parquet", table(&[("seen", Column::Times(times(minutes).collect()))], 64));
        let mut source = MatrixSource::open(path).unwrap();
        source.fit(&EncodingOptions::default(), false, IdKind::Integer, &Silent).unwrap();
        features(&source, 1000).unwrap();
        let warnings = source.loss_warnings();
        assert_eq!(!warnings.is_empty(), are_lost, "{minutes} {warnings:?}");
        if are_lost {
            assert_contains(
                &warnings[0],
                &["the values of column seen (days since 1970), from 19675.9", "lose up to 0.0009"],
            );
        }
    }
}
