//! Tests of tables of nodes, in text and Parquet, with columns of ids, features and labels.

use std::{ops::Range, sync::Arc};

use ::parquet::{
    basic::Compression,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type},
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::parser::parse_message_type,
};
use grappa_formats::{features::ElementType, manifest::LabelKind};
use grappa_io::Position;

use super::*;

/// The values of a column. None is a missing value.
pub(super) enum Column {
    I32(Vec<Option<i32>>),
    I64(Vec<Option<i64>>),
    F32(Vec<Option<f32>>),
    F64(Vec<Option<f64>>),
    /// Microseconds since 1970-01-01.
    Times(Vec<Option<i64>>),
    Bool(Vec<Option<bool>>),
    Text(Vec<Option<&'static str>>),
    /// Lists that may be missing, of values that may be missing.
    Lists(Vec<Option<Vec<Option<f64>>>>),
}

pub(super) fn some<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    values.iter().copied().map(Some).collect()
}

fn put<T: DataType>(column: &mut SerializedColumnWriter<'_>, values: impl Iterator<Item = Option<T::T>>) {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    column.typed::<T>().write_batch(&present, Some(&levels), None).unwrap();
}

impl Column {
    fn described(&self, name: &str) -> String {
        let (kind, logical) = match self {
            Self::I32(_) => ("int32", ""),
            Self::I64(_) => ("int64", ""),
            Self::F32(_) => ("float", ""),
            Self::F64(_) => ("double", ""),
            Self::Times(_) => ("int64", "(TIMESTAMP(MICROS,true))"),
            Self::Bool(_) => ("boolean", ""),
            Self::Text(_) => ("binary", "(utf8)"),
            Self::Lists(_) => {
                return format!(
                    "optional group {name} (list) {{ repeated group list {{ optional double element; }} }}"
                );
            }
        };
        format!("optional {kind} {name} {logical};")
    }

    fn rows(&self) -> usize {
        match self {
            Self::I32(values) => values.len(),
            Self::I64(values) | Self::Times(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Lists(values) => values.len(),
        }
    }

    fn write(&self, rows: Range<usize>, column: &mut SerializedColumnWriter<'_>) {
        match self {
            Self::I32(values) => put::<Int32Type>(column, values[rows].iter().copied()),
            Self::I64(values) | Self::Times(values) => put::<Int64Type>(column, values[rows].iter().copied()),
            Self::F32(values) => put::<FloatType>(column, values[rows].iter().copied()),
            Self::F64(values) => put::<DoubleType>(column, values[rows].iter().copied()),
            Self::Bool(values) => put::<BoolType>(column, values[rows].iter().copied()),
            Self::Text(values) => {
                put::<ByteArrayType>(column, values[rows].iter().map(|text| text.map(ByteArray::from)));
            }
            Self::Lists(values) => {
                let (mut present, mut levels, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
                for list in &values[rows] {
                    let slots = match list {
                        None => vec![(0, None)],
                        Some(list) if list.is_empty() => vec![(1, None)],
                        Some(list) => list.iter().map(|value| (2 + i16::from(value.is_some()), *value)).collect(),
                    };
                    for (at, (level, value)) in slots.into_iter().enumerate() {
                        levels.push(level);
                        repeats.push(i16::from(at > 0));
                        present.extend(value);
                    }
                }
                column.typed::<DoubleType>().write_batch(&present, Some(&levels), Some(&repeats)).unwrap();
            }
        }
    }
}

/// A Parquet file with row groups of `group_rows`.
pub(super) fn table(columns: &[(&str, Column)], group_rows: usize) -> Vec<u8> {
    let rows = columns[0].1.rows();
    let groups: Vec<_> = (0..rows).step_by(group_rows).map(|first| first..rows.min(first + group_rows)).collect();
    table_of_groups(columns, &groups, Compression::SNAPPY)
}

/// A Parquet file with these row groups, and pages of a few rows.
pub(super) fn table_of_groups(
    columns: &[(&str, Column)],
    groups: &[Range<usize>],
    compression: Compression,
) -> Vec<u8> {
    let fields: String = columns.iter().map(|(name, column)| column.described(name)).collect();
    let schema = Arc::new(parse_message_type(&format!("message nodes {{ {fields} }}")).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_row_count_limit(3)
        .set_write_batch_size(2)
        .build();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::new(properties)).unwrap();
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        for (_, values) in columns {
            let mut column = group.next_column().unwrap().unwrap();
            values.write(rows.clone(), &mut column);
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    file
}

/// Reads all rows, some at a time.
pub(super) fn features(source: &MatrixSource, at_once: usize) -> Result<Vec<f32>> {
    let (mut all, mut some, mut rows) = (Vec::new(), Vec::new(), 0);
    loop {
        let read = source.read_rows(rows, at_once, &mut some)?;
        all.extend_from_slice(&some);
        rows += read as u64;
        if read < at_once {
            return Ok(all);
        }
    }
}

pub(super) fn labels(path: &Path, at_once: usize) -> Result<Vec<Option<Vec<u32>>>> {
    let (source, mut all, mut batch) = (LabelSource::open(path)?, Vec::new(), LabelBatch::default());
    loop {
        let read = source.read_rows(all.len() as u64, at_once, &mut batch)?;
        all.extend((0..read).map(|row| batch.get(row).map(<[u32]>::to_vec)));
        if read < at_once {
            return Ok(all);
        }
    }
}

pub(super) fn integers(path: &Path) -> Result<Vec<u64>> {
    let mut source = SplitSource::open_table(path, IdKind::Integer, IdLimit::Sparse, &TableForm::default())?;
    let (mut all, mut some) = (Vec::new(), Vec::new());
    while source.next_ids(&mut some)? {
        all.extend_from_slice(&some);
    }
    Ok(all)
}

pub(super) fn strings(path: &Path) -> Result<Vec<String>> {
    let mut source = SplitSource::open_table(path, IdKind::String, IdLimit::Sparse, &TableForm::default())?;
    let (mut all, mut some) = (Vec::new(), Keys::default());
    while source.next_keys(&mut some)? {
        all.extend(some.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()));
    }
    Ok(all)
}

#[test]
fn columns_of_numbers_are_features() {
    let folder = Folder::new();
    let ids: Vec<i64> = (0..11).map(|k| 100 - k).collect();
    let columns = [
        ("a", Column::F32((0..11).map(|k| Some(k as f32 / 2.0)).collect())),
        ("node_id", Column::I64(some(&ids))),
        ("b", Column::I32((0..11).map(|k| (k % 4 > 0).then_some(-k)).collect())),
        ("label", Column::I64(some(&[3; 11]))),
        ("c", Column::Bool((0..11).map(|k| Some(k % 2 == 0)).collect())),
        ("d", Column::F64(some(&[0.1; 11]))),
    ];
    for group_rows in [1, 4, 100] {
        let path = folder.file("x.parquet", table(&columns, group_rows));
        let source = MatrixSource::open(&path).unwrap();
        assert_eq!(
            (source.rows(), source.dim(), source.has_ids(), source.dtype()),
            (Some(11), 4, true, ElementType::F32)
        );
        assert_eq!(source.reading().left_out, ["label"]);
        assert!(source.is_sequential() && source.held_bytes() > 0);
        let expected: Vec<f32> = (0..11)
            .flat_map(|k| {
                let b = if k % 4 > 0 { -k as f32 } else { f32::NAN };
                [k as f32 / 2.0, b, (k % 2 == 0).into(), 0.1]
            })
            .collect();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for at_once in [1, 3, 4, 50] {
            assert_eq!(bits(&features(&source, at_once).unwrap()), bits(&expected));
        }
        let mut some = Vec::new();
        source.read_rows(9, 1, &mut some).unwrap();
        assert_eq!(bits(&some), bits(&expected[36..40]), "going ahead");
        source.read_rows(2, 2, &mut some).unwrap();
        assert_eq!(bits(&some), bits(&expected[8..16]), "going back");
        // A missing number is not finite. It is counted whenever it is read.
        assert!(source.non_finite().unwrap().count > 0);
        assert_eq!(integers(&path).unwrap(), (90..=100).rev().collect::<Vec<u64>>());
        let found = labels(&path, 4).unwrap();
        assert_eq!(found, vec![Some(vec![3]); 11], "the column label");
    }
}

#[test]
fn a_column_of_lists_is_a_matrix() {
    let folder = Folder::new();
    let list = |row: i32| Some((0..3).map(|at| Some(f64::from(row * 3 + at))).collect::<Vec<_>>());
    let rows: Vec<_> = (0..10).map(list).collect();
    let names = ["ape", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "imp", "jay"];
    for group_rows in [1, 4, 100] {
        let columns = [("id", Column::Text(some(&names))), ("x", Column::Lists(rows.clone()))];
        let path = folder.file("x.parquet", table(&columns, group_rows));
        let source = MatrixSource::open(&path).unwrap();
        assert_eq!((source.rows(), source.dim(), source.dtype()), (Some(10), 3, ElementType::F64));
        for at_once in [1, 3, 50] {
            assert_eq!(features(&source, at_once).unwrap(), (0..30).map(|k| k as f32).collect::<Vec<_>>());
        }
        assert_eq!(strings(&path).unwrap(), names);
    }
    let open = |rows: Vec<Option<Vec<Option<f64>>>>| {
        let path = folder.file("l.parquet", table(&[("x", Column::Lists(rows))], 4));
        features(&MatrixSource::open(&path)?, 3)
    };
    // A value may be missing, a list may not.
    let mut missing = rows.clone();
    missing[5].as_mut().unwrap()[1] = None;
    assert!(open(missing).unwrap()[16].is_nan());
    for (row, wrong, found) in [
        (7, None, "found 0"),
        (7, Some(vec![]), "found 0"),
        (9, Some(vec![Some(1.0)]), "found 1"),
        (1, Some(vec![None; 4]), "found 4"),
    ] {
        let mut rows = rows.clone();
        rows[row] = wrong;
        let place = format!("l.parquet at row {row}");
        assert_contains(&message(open(rows)), &[&place, "list of 3 numbers in column x", found]);
    }
    let mut rows = rows;
    rows[0] = None;
    assert_contains(&message(open(rows)), &["l.parquet at row 0", "list of numbers", "found none"]);
}

#[test]
fn labels_in_tables_may_be_missing() {
    let folder = Folder::new();
    let columns =
        [("id", Column::I64(some(&[4, 2, 0, 9]))), ("y", Column::F64(vec![Some(2.0), None, Some(-1.0), Some(0.0)]))];
    let path = folder.file("y.parquet", table(&columns, 3));
    let expected = [Some(vec![2]), None, None, Some(vec![0])];
    assert_eq!(labels(&path, 3).unwrap(), expected);
    let text = "id\tx\tlabel\n4\t7\t2\n2\t7\t\n0\t7\t-1\n9\t7\t0\n";
    assert_eq!(labels(&folder.file("y.tsv", text), 3).unwrap(), expected);

    let sets = [
        ("id", Column::I64(some(&[4, 2, 0]))),
        ("music", Column::Bool(vec![Some(true), None, Some(false)])),
        ("art", Column::Bool(vec![Some(true), None, Some(true)])),
    ];
    let path = folder.file("y.parquet", table(&sets, 3));
    let source = LabelSource::open(&path).unwrap();
    assert_eq!((source.kind(), source.classes()), (LabelKind::Multi, Some(2)));
    assert_eq!(labels(&path, 2).unwrap(), [Some(vec![0, 1]), None, Some(vec![1])]);

    let unnamed =
        [("id", Column::I64(some(&[4, 2]))), ("kind", Column::I64(some(&[3, 1]))), ("x", Column::I64(some(&[0, 0])))];
    let error = message(labels(&folder.file("y.parquet", table(&unnamed, 3)), 2));
    assert_contains(&error, &["y.parquet at row 0", "found 3 in column 0", "give --label"]);

    let half = [("class", Column::F64(some(&[0.0, 1.5])))];
    let error = message(labels(&folder.file("y.parquet", table(&half, 3)), 2));
    assert_contains(&error, &["y.parquet at row 1", "class", "1.5"]);
}

/// The classes of all rows after a first pass that collected the names, and these names.
fn named(path: &Path, form: &TableForm) -> Result<(Vec<Option<u32>>, Vec<String>)> {
    let source = LabelSource::open_with(path, form, LabelType::Classes)?;
    let mut batch = LabelBatch::default();
    let read = |batch: &mut LabelBatch| {
        let (mut classes, mut rows) = (Vec::new(), 0);
        while source.read_rows(rows, 2, batch)? > 0 {
            classes.extend((0..batch.len()).map(|row| batch.get(row).map(|classes| classes[0])));
            rows += batch.len() as u64;
        }
        Ok(classes)
    };
    read(&mut batch)?;
    source.all_were_read();
    Ok((read(&mut batch)?, source.class_names()))
}

#[test]
fn names_of_classes_are_numbered_in_their_order() {
    let folder = Folder::new();
    let label = |name: &str| TableForm {
        columns: TableOptions { label: vec![name.to_owned()], ..TableOptions::default() },
        ..TableForm::default()
    };
    let plans = [Some("gold"), Some(""), None, Some("free tier"), Some("gold"), Some("NaN"), Some("-1")];
    let nodes = || Column::I64(some(&[6, 5, 4, 3, 2, 1, 0]));
    let plan = || Column::Text(plans.to_vec());
    let two = table(&[("id", nodes()), ("plan", plan()), ("x", nodes())], 3);
    let parts = folder.0.path().join("parts");
    std::fs::create_dir(&parts).unwrap();
    let part = |rows: Range<i64>, plans: &[Option<&'static str>]| {
        let ids: Vec<i64> = rows.collect();
        table(&[("id", Column::I64(some(&ids))), ("plan", Column::Text(plans.to_vec()))], 2)
    };
    std::fs::write(parts.join("0.parquet"), part(0..2, &plans[..2])).unwrap();
    std::fs::write(parts.join("1.parquet"), part(2..7, &plans[2..])).unwrap();
    let quoted = "id,plan,x\n6,gold,1\n5,,1\n4,\"\",2\n3,\"free tier\",2\n2,gold,0\n1,nan,0\n0,-1,0\n";
    for (path, form) in grappa_skip::cases![
        folder.file("y.parquet", &two), label("plan");
        parts, TableForm::default();
        folder.file("y.csv", quoted), label("plan");
        folder.file("y.tsv", "plan\tid\ngold\t6\n\t5\n\t4\nfree tier\t3\ngold\t2\n\t1\nnan\t0\n"), label("plan");
        folder.file("y.txt", "plan\ngold\n\n\n\"free tier\"\ngold\n\nnan\n"),
            TableForm { separator: Some(Separator::Comma), ..label("plan") };
    ] {
        let (classes, names) = named(&path, &form).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let expected = [Some(1), None, None, Some(0), Some(1), None, None];
        assert_eq!(classes, expected, "{}", path.display());
        assert_eq!(names, ["free tier", "gold"], "{}", path.display());
    }
    // Integers are no names in text. In Parquet, what is stored as text is.
    let (classes, names) = named(&folder.file("y.csv", "id,plan\n0,7\n1,3\n"), &label("plan")).unwrap();
    assert_eq!((classes, names.len()), (vec![Some(7), Some(3)], 0));
    let digits = [("id", Column::I64(some(&[0, 1]))), ("plan", Column::Text(some(&["7", "3"])))];
    let (classes, names) = named(&folder.file("y.parquet", table(&digits, 9)), &label("plan")).unwrap();
    assert_eq!((classes, names), (vec![Some(1), Some(0)], vec!["3".to_owned(), "7".to_owned()]));
    // Columns of sets name the classes.
    let sets = LabelSource::open(folder.file("y.csv", "id,music,art\n0,1,0\n")).unwrap();
    assert_eq!(sets.class_names(), ["music", "art"]);
    assert!(LabelSource::open(folder.file("y.csv", "1,0\n0,0\n")).unwrap().class_names().is_empty());
}

#[test]
fn a_column_with_names_and_numbers_is_refused() {
    let folder = Folder::new();
    for (text, parts) in grappa_skip::cases![
        "id,label\n0,gold\n1,3\n", ["y.csv:3", "the number \"3\"", "are names"];
        "id,label\n0,3\n1,gold\n", ["y.csv:3", "the name \"gold\"", "are numbers"];
        "id,label\n0,\n1,0\n2,?\n", ["y.csv:4", "the name \"?\"", "leave the label empty"];
        "id,a,b\n0,0,gold\n", ["y.csv", "which column has the labels", "--label"];
        "id,a,b\n0,0,1\n1,0,1\n2,0,gold\n", ["y.csv:4", "zeros and ones", "\"gold\""];
    ] {
        let error = message(named(&folder.file("y.csv", text), &TableForm::default()));
        assert_contains(&error, &parts);
    }
}

#[test]
fn features_have_the_names_of_their_columns() {
    let folder = Folder::new();
    let numbers = || Column::F64(some(&[0.5, 1.5]));
    let columns = [("age", numbers()), ("id", Column::I64(some(&[1, 0]))), ("income", numbers())];
    let lists = Column::Lists(vec![Some(vec![Some(1.0), Some(2.0)]); 2]);
    let lists = table(&[("id", Column::I64(some(&[1, 0]))), ("vector", lists)], 9);
    for (path, names) in grappa_skip::cases![
        folder.file("x.parquet", table(&columns, 9)), &["age", "income"][..];
        folder.file("lists.parquet", lists), &[];
        folder.file("x.csv", "age,id,income\n1,2,3\n4,5,6\n"), &["age", "income"];
        folder.file("f.csv", "f0,f1\n1,2\n"), &["f0", "f1"];
        folder.file("m.csv", "1,2\n3,4\n"), &[];
    ] {
        let source = MatrixSource::open(&path).unwrap();
        let found: Vec<_> = source.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(found, names, "{}", path.display());
    }
}

#[test]
fn labels_are_left_out_of_the_features_of_text() {
    let folder = Folder::new();
    let path = folder.file("x.csv", "id,Label,a,b\nn1,2,0.5,1\nn0,0,2,3\n");
    let source = MatrixSource::open(&path).unwrap();
    assert_eq!(source.dim(), 2);
    assert_eq!(features(&source, 1).unwrap(), [0.5, 1.0, 2.0, 3.0]);
    assert_contains(&source.reading().to_string(), &["x.csv", "left out: Label"]);
    assert_eq!(strings(&path).unwrap(), ["n1", "n0"]);
    assert_eq!(labels(&path, 5).unwrap(), [Some(vec![2]), Some(vec![0])]);
    let only = folder.file("x.csv", "id,label\nn1,2\n");
    assert_contains(&message(MatrixSource::open(&only)), &["x.csv:1", "features beside the ids", "no such column"]);
}

#[test]
fn ids_are_found_by_name_or_alone() {
    let folder = Folder::new();
    let pandas = [("a", Column::I64(some(&[1, 2]))), ("__index_level_0__", Column::I64(some(&[7, 5])))];
    assert_eq!(integers(&folder.file("a.parquet", table(&pandas, 9))).unwrap(), [7, 5]);
    let alone = [("user", Column::Text(some(&["u", "v"])))];
    let alone = folder.file("b.parquet", table(&alone, 1));
    assert_eq!(strings(&alone).unwrap(), ["u", "v"]);
    let mut source = SplitSource::open_ordered(&alone, IdKind::String, IdLimit::Sparse, &TableForm::default()).unwrap();
    assert_eq!(source.ids(), Some(2));
    assert!(source.next_keys(&mut Keys::default()).unwrap());
    assert_eq!(source.place(0).position, Position::Row(0));

    let open = |columns: &[(&str, Column)]| {
        let path = folder.file("c.parquet", table(columns, 9));
        integers(&path)
    };
    for (columns, parts) in grappa_skip::cases![
        &[("id", Column::Text(some(&["u"])))][..], &["integers in column id", "--ids string"][..];
        &[("a", Column::I64(some(&[1]))), ("b", Column::I64(some(&[1])))],
            &["or only one", "give --id with one of a (Int64), b (Int64)"];
        &[("id", Column::I64(vec![Some(1), None]))], &["at row 1", "node id in column id", "missing"];
        &[("id", Column::I64(vec![Some(1), Some(-2)]))], &["at row 1", "-2", "negative"];
    ] {
        assert_contains(&message(open(columns)), &[&["c.parquet"], parts].concat());
    }
    let empty = [("id", Column::Text(some(&["u", ""])))];
    let error = message(strings(&folder.file("d.parquet", table(&empty, 9))));
    assert_contains(&error, &["d.parquet at row 1", "node id"]);
}

#[test]
fn columns_without_numbers_are_refused_by_name() {
    let folder = Folder::new();
    let open = |columns: &[(&str, Column)]| MatrixSource::open(folder.file("x.parquet", table(columns, 9)));
    let numbers = || Column::F32(some(&[1.0]));
    for (columns, parts) in grappa_skip::cases![
        &[("id", Column::I64(some(&[1]))), ("city", Column::Text(some(&["a"])))][..],
            &["not all columns are clearly features: city", "--features-from"][..];
        &[("a", numbers()), ("x", Column::Lists(vec![Some(vec![Some(1.0)])]))],
            &["column x has lists", "1 more", "--features-from x"];
        &[("id", Column::I64(some(&[1])))], &["columns of features, found none"];
        &[("a", Column::F32(vec![]))], &["at least one row"];
    ] {
        assert_contains(&message(open(columns)), &[&["x.parquet"], parts].concat());
    }
}

#[test]
fn tables_that_are_cut_or_flipped_do_not_make_a_reader_panic() {
    let folder = Folder::new();
    let columns =
        [("id", Column::I64(some(&[4, 2, 0, 9, 5]))), ("x", Column::Lists(vec![Some(vec![Some(0.5); 2]); 5]))];
    let whole = table(&columns, 3);
    for cut in 4..whole.len() {
        let path = folder.file("x.parquet", &whole[..cut]);
        assert_contains(&message(MatrixSource::open(&path)), &["x.parquet"]);
    }
    for at in 4..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0xff;
        let path = folder.file("x.parquet", flipped);
        let _ = MatrixSource::open(&path).and_then(|source| features(&source, 2));
        let _ = integers(&path);
    }
}
