//! Tests of tables that are folders of Parquet files.

use grappa_formats::{manifest::LabelKind, time_axis::TimeUnit};
use grappa_io::Position;

use super::{
    tables::{Column, features, integers, labels, some, strings, table},
    *,
};

/// Rows of a table: an id, two features and a label each.
fn part(ids: &[i64]) -> Vec<u8> {
    let feature = |value: fn(i64) -> f32| Column::F32(ids.iter().map(|&id| Some(value(id))).collect());
    let columns = [
        ("id", Column::I64(some(ids))),
        ("a", feature(|id| id as f32)),
        ("b", feature(|id| -id as f32)),
        ("label", Column::I64(ids.iter().map(|&id| Some(id % 3)).collect())),
    ];
    table(&columns, 2)
}

/// A table of nine rows in three parts with rows, and some that have none.
fn folder_of_parts(folder: &Folder) -> PathBuf {
    folder.file("nodes/_SUCCESS", "");
    folder.file("nodes/.part-0.parquet.crc", "crc");
    folder.file("nodes/part-0.parquet", part(&[]));
    folder.file("nodes/part-1.parquet", part(&[7, 3, 9]));
    folder.file("nodes/part-2.parquet", part(&[]));
    folder.file("nodes/part-9.parquet", part(&[4]));
    folder.file("nodes/part-10.parquet", part(&[0, 8, 6, 5, 1]));
    folder.0.path().join("nodes")
}

const IDS: [u64; 9] = [7, 3, 9, 4, 0, 8, 6, 5, 1];

#[test]
fn the_rows_of_a_folder_are_those_of_its_files() {
    let folder = Folder::new();
    let nodes = folder_of_parts(&folder);
    let source = MatrixSource::open(&nodes).unwrap();
    assert_eq!((source.rows(), source.dim(), source.has_ids()), (Some(9), 2, true));
    assert_contains(&source.reading().to_string(), &["nodes and 2 more: ", "left out: label"]);
    let expected: Vec<f32> = IDS.iter().flat_map(|&id| [id as f32, -(id as f32)]).collect();
    for at_once in [1, 2, 3, 4, 5, 50] {
        assert_eq!(features(&source, at_once).unwrap(), expected, "{at_once} at once");
    }
    let mut rows = Vec::new();
    for first in [8, 2, 4, 3, 0] {
        source.read_rows(first, 2, &mut rows).unwrap();
        let first = first as usize * 2;
        assert_eq!(rows, expected[first..expected.len().min(first + 4)], "from {first} on");
    }
    assert_eq!(integers(&nodes).unwrap(), IDS);
    let classes: Vec<_> = IDS.iter().map(|&id| Some(vec![id as u32 % 3])).collect();
    assert_eq!(labels(&nodes, 4).unwrap(), classes);
    let place = source.place(5);
    assert_eq!((place.path, place.position), (&*nodes.join("part-10.parquet"), Position::Row(1)));
    let mut list = SplitSource::open_ordered(&nodes, IdKind::Integer, IdLimit::Sparse, &TableForm::default()).unwrap();
    assert_eq!((list.ids(), list.path()), (Some(9), &*nodes));
    let (mut ids, mut read) = (Vec::new(), 0);
    while list.next_ids(&mut ids).unwrap() {
        for index in 0..ids.len() {
            let place = source.place(read + index as u64);
            assert_eq!(list.place(index), place, "errors about an id and a feature name the same place");
        }
        read += ids.len() as u64;
    }
    assert_eq!(read, 9);
}

#[test]
fn a_mistake_is_named_with_the_file_of_the_folder() {
    let folder = Folder::new();
    let nodes = folder_of_parts(&folder);
    let nan = [("id", Column::I64(some(&[20, 21]))), ("a", Column::F32(vec![Some(1.0), None]))];
    folder.file("nan/part-0.parquet", table(&[("id", Column::I64(some(&[1]))), ("a", Column::F32(some(&[1.0])))], 9));
    folder.file("nan/part-1.parquet", table(&nan, 9));
    let source = MatrixSource::open(folder.0.path().join("nan")).unwrap();
    features(&source, 2).unwrap();
    assert_contains(
        &message(source.check_values(false, &|row| Ok(row.to_string()))),
        &["nan/part-1.parquet at row 1", "missing values in a (2 in row 1 of "],
    );

    for (bytes, parts) in [
        (table(&[("id", Column::I64(some(&[1])))], 9), &["part-11.parquet", "columns of features"][..]),
        (
            table(
                &[("id", Column::I64(some(&[1]))), ("b", Column::F32(some(&[1.0]))), ("a", Column::F32(some(&[1.0])))],
                9,
            ),
            &["part-11.parquet", "column 0 is b, but column 0 is a in", "part-1.parquet"],
        ),
        (
            table(&[("id", Column::I64(some(&[1]))), ("a", Column::F32(some(&[1.0])))], 9),
            &["part-11.parquet", "there are 1 columns, but column 1 is b in"],
        ),
        (
            table(&[("a", Column::F32(some(&[1.0]))), ("b", Column::F32(some(&[1.0])))], 9),
            &["part-11.parquet", "there are no ids, but some in"],
        ),
        (b"id,a,b\n1,2,3\n".to_vec(), &["part-11.parquet", "must be Parquet"]),
    ] {
        folder.file("nodes/part-11.parquet", bytes);
        assert_contains(&message(MatrixSource::open(&nodes)), parts);
    }
    let names =
        [("node_id", Column::I64(some(&[1]))), ("a", Column::F32(some(&[1.0]))), ("b", Column::F32(some(&[1.0])))];
    folder.file("nodes/part-11.parquet", table(&names, 9));
    assert_contains(&message(integers(&nodes)), &["part-11.parquet", "column of ids is node_id, and id in"]);

    let lists = |length: usize| table(&[("x", Column::Lists(vec![Some(vec![Some(1.0); length]); 2]))], 9);
    folder.file("lists/part-0.parquet", lists(3));
    folder.file("lists/part-1.parquet", lists(4));
    let error = message(MatrixSource::open(folder.0.path().join("lists")));
    assert_contains(&error, &["part-1.parquet", "lists have 4 numbers, but 3 numbers in"]);

    folder.file("none/part-0.parquet", part(&[]));
    let error = message(MatrixSource::open(folder.0.path().join("none")));
    assert_contains(&error, &["none: ", "at least one row"]);
}

#[test]
fn a_part_that_changes_while_it_is_read_is_refused() {
    let folder = Folder::new();
    let nodes = folder_of_parts(&folder);
    let source = MatrixSource::open(&nodes).unwrap();
    folder.file("nodes/part-9.parquet", part(&[4, 2]));
    assert_contains(&message(features(&source, 3)), &["part-9.parquet", "changed", "start again"]);
}

#[test]
fn a_folder_of_strings_is_read_in_its_order() {
    let folder = Folder::new();
    folder.file("ids/a.parquet", table(&[("id", Column::Text(some(&["u", "v"])))], 1));
    folder.file("ids/b.parquet", table(&[("id", Column::Text(vec![]))], 1));
    folder.file("ids/c.parquet", table(&[("id", Column::Text(some(&["w"])))], 1));
    assert_eq!(strings(&folder.0.path().join("ids")).unwrap(), ["u", "v", "w"]);
}

#[test]
fn rows_of_files_without_a_column_have_no_values() {
    let folder = Folder::new();
    let times = |days: &[i64]| Column::Times(days.iter().map(|day| Some(day * 86_400_000_000)).collect());
    let rows = |name: &str, days: &[i64], label: Option<Column>| {
        let columns = [("at", times(days))].into_iter().chain(label.map(|label| ("y", label)));
        folder.file(name, table(&columns.collect::<Vec<_>>(), 2))
    };
    let files = vec![
        rows("train.parquet", &[5, 4, 3], Some(Column::I64(vec![Some(1), None, Some(0)]))),
        rows("empty.parquet", &[], None),
        rows("test.parquet", &[7, 9], None),
        rows("last.parquet", &[2], Some(Column::F64(some(&[2.0])))),
    ];
    let input = Input::from(TableParts { name: folder.0.path().join("task"), files: files.clone() });
    let columns = TableOptions { id: vec!["none".to_owned()], label: vec!["y".to_owned()], ..Default::default() };
    let form = TableForm { columns, ..TableForm::default() };
    let source = LabelSource::open_with(&input, &form, LabelType::Classes).unwrap();
    assert_eq!(
        (source.rows(), source.kind(), source.path()),
        (Some(6), LabelKind::Single, &*folder.0.path().join("task"))
    );
    let expected = [Some(&[1][..]), None, Some(&[0]), None, None, Some(&[2])];
    for at_once in [1, 2, 4, 9] {
        let (mut row, mut batch) = (0, LabelBatch::default());
        while source.read_rows(row as u64, at_once, &mut batch).unwrap() > 0 {
            for index in 0..batch.len() {
                assert_eq!(batch.get(index), expected[row + index], "row {} of {at_once} at once", row + index);
            }
            row += batch.len();
        }
        assert_eq!(row, 6);
    }
    let place = source.place(4);
    assert_eq!((place.path, place.position), (&*files[2], Position::Row(1)));
    // All of them have times.
    let columns = TableOptions {
        time: Some(TimeColumn { column: "at".to_owned(), unit: Some(TimeUnit::Days) }),
        ..Default::default()
    };
    let timed = TableForm { columns, ..TableForm::default() };
    let mut read = Vec::new();
    let source = NodeTimeSource::open(&input, &timed).unwrap().unwrap();
    assert_eq!(source.read_rows(0, 9, &mut read).unwrap(), 6);
    assert_eq!(read, [5, 4, 3, 7, 9, 2]);
    // A row without a time is named.
    let columns = [("y", Column::I64(some(&[1]))), ("z", Column::I64(some(&[1])))];
    let files = vec![files[0].clone(), folder.file("late.parquet", table(&columns, 9))];
    let input = Input::from(TableParts { name: "task".into(), files });
    let source = NodeTimeSource::open(&input, &timed).unwrap().unwrap();
    assert_contains(
        &message(source.read_rows(0, 9, &mut read)),
        &["late.parquet at row 0", "each node of a type with times has one"],
    );
    // The files of a folder all have the same columns.
    let error = message(LabelSource::open_with(folder.0.path().to_owned(), &form, LabelType::Classes));
    assert_contains(&error, &["empty.parquet"]);
}
