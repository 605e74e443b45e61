//! Tests of features and labels.

use super::*;

fn matrix(path: &Path, piece: usize) -> Result<(Vec<f32>, MatrixSource)> {
    let source = MatrixSource::open(path)?;
    let (mut all, mut rows) = (Vec::new(), Vec::new());
    let mut first = 0;
    loop {
        let read = source.read_rows(first, piece, &mut rows)?;
        assert_eq!(rows.len(), read * source.dim());
        all.extend_from_slice(&rows);
        first += read as u64;
        if read < piece {
            return Ok((all, source));
        }
    }
}

#[test]
fn matrices_of_every_type_are_read_as_f32() {
    let folder = Folder::new();
    let numbers = [1_i8, 2, 3, 4, 5, 100];
    let cases: [(&str, Vec<u8>); 12] = [
        ("|b1", vec![1; 6]),
        ("|i1", le(&numbers, i8::to_le_bytes)),
        ("|u1", le(&numbers, i8::to_le_bytes)),
        ("<i2", le(&numbers, |n| i16::from(n).to_le_bytes())),
        ("<u2", le(&numbers, |n| i16::from(n).to_le_bytes())),
        ("<i4", le(&numbers, |n| i32::from(n).to_le_bytes())),
        ("<u4", le(&numbers, |n| i32::from(n).to_le_bytes())),
        ("<i8", le(&numbers, |n| i64::from(n).to_le_bytes())),
        ("<u8", le(&numbers, |n| i64::from(n).to_le_bytes())),
        ("<f2", le(&[0x3c00_u16, 0x4000, 0x4200, 0x4400, 0x4500, 0x5640], u16::to_le_bytes)),
        ("<f4", le(&numbers, |n| f32::from(n).to_le_bytes())),
        ("<f8", le(&numbers, |n| f64::from(n).to_le_bytes())),
    ];
    for (descr, data) in cases {
        let expected = if descr == "|b1" { vec![1.0; 6] } else { vec![1.0, 2.0, 3.0, 4.0, 5.0, 100.0] };
        let file = npy(descr, "(3, 2)", &data);
        for path in [
            folder.file("f.npy", &file),
            folder.file("stored.npz", npz(&[("node_feat", file.clone()), ("x", vec![])], false, true)),
            folder.file("deflated.npz", npz(&[("anything", file.clone())], true, false)),
        ] {
            for piece in [1, 2, 10] {
                let (all, source) = matrix(&path, piece).unwrap();
                assert_eq!(all, expected);
                assert_eq!((source.rows(), source.dim(), source.non_finite()), (Some(3), 2, None));
                source.check_values(false, &|row| Ok(row.to_string())).unwrap();
                // Reading backwards is always allowed, though not always cheap.
                let mut rows = Vec::new();
                assert_eq!(source.read_rows(1, 1, &mut rows).unwrap(), 1);
                assert_eq!(rows, expected[2..4]);
                assert_eq!(source.read_rows(2, 9, &mut rows).unwrap(), 1);
                assert_eq!(rows, expected[4..]);
            }
        }
    }
    let (all, source) =
        matrix(&folder.file("one.npy", npy("<f4", "(2,)", &le(&[7_f32, 8.0], f32::to_le_bytes))), 5).unwrap();
    assert_eq!((all, source.dim()), (vec![7.0, 8.0], 1));
}

#[test]
fn text_matrices_are_read_with_and_without_header_and_compression() {
    let folder = Folder::new();
    for text in ["1,2\n3.5,-4e1\n", "a,b\r\n1, 2\r\n3.5,-40\r\n", "\u{feff}1 2\n3.5\t -40"] {
        for path in [
            folder.file("f.csv", text),
            folder.file("f.csv.gz", gzip(text.as_bytes())),
            folder.file("f.zst", zstd(text.as_bytes())),
        ] {
            for piece in [1, 5] {
                let (all, source) = matrix(&path, piece).unwrap();
                assert_eq!(all, [1.0, 2.0, 3.5, -40.0]);
                assert!(source.is_sequential());
                let mut rows = Vec::new();
                source.read_rows(0, 1, &mut rows).unwrap();
                assert_eq!(rows, [1.0, 2.0]);
                source.read_rows(1, 1, &mut rows).unwrap();
                assert_eq!(rows, [3.5, -40.0]);
            }
        }
    }
    for (text, parts) in [
        ("1,2\n3\n", ["f.csv:2", "expected 2 numbers as in the first row, found 1"]),
        ("1,2\n3,x\n", ["f.csv:2", "expected a number, found \"x\""]),
        ("1,2\n\n3,4\n", ["f.csv:2", "expected 2 numbers"]),
        ("\n1,2\n", ["f.csv:1", "blank line"]),
        ("a,b\n", ["f.csv", "no rows"]),
        ("", ["f.csv", "empty"]),
    ] {
        assert_contains(&message(matrix(&folder.file("f.csv", text), 10)), &parts);
    }
    let path = folder.file("f.csv", b"1,2\n\xff,3\n");
    assert_contains(&message(matrix(&path, 10)), &["f.csv:2", "other bytes"]);
}

#[test]
fn rows_of_text_may_be_long() {
    let folder = Folder::new();
    let row = vec!["0.25"; 300_000].join(",");
    let path = folder.file("f.csv", format!("{row}\n{row}\n"));
    let (all, source) = matrix(&path, 10).unwrap();
    assert_eq!((all.len(), source.dim()), (600_000, 300_000));
}

#[test]
fn a_deflated_array_that_claims_the_impossible_reserves_no_memory() {
    let folder = Folder::new();
    let header = npy("<f4", "(4294967296, 16384)", &[]);
    let mut archive = npz(&[("x", header.clone())], true, true);
    // Write the false size of the array into the directory too.
    let claim = (1_u64 << 48) + header.len() as u64;
    let at = memchr::memmem::find(&archive, b"PK\x01\x02").unwrap() + 46 + "x.npy".len() + 10;
    archive[at..at + 8].copy_from_slice(&claim.to_le_bytes());
    assert_contains(&message(MatrixSource::open(folder.file("f.npz", archive))), &["f.npz", "damaged"]);
}

#[test]
fn a_matrix_with_another_number_of_rows_is_refused() {
    let folder = Folder::new();
    let array = folder.file("f.npy", npy("<f4", "(3, 1)", &[0; 12]));
    assert_contains(
        &message(MatrixSource::open(&array).unwrap().expect_rows(4, "fewer rows")),
        &["f.npy", "expected 4 rows", "found 3", "incomplete"],
    );
    assert_contains(
        &message(MatrixSource::open(&array).unwrap().expect_rows(2, "fewer rows")),
        &["found 3; fewer rows"],
    );
    MatrixSource::open(&array).unwrap().expect_rows(3, "fewer rows").unwrap();
    let text = folder.file("f.csv", "1\n2\n3\n");
    for piece in [1, 2, 3, 10] {
        let read = |nodes: u64| {
            let mut source = MatrixSource::open(&text)?;
            source.expect_rows(nodes, "fewer rows")?;
            let mut rows = Vec::new();
            let mut first = 0;
            while first < nodes {
                first += source.read_rows(first, piece.min((nodes - first) as usize), &mut rows)? as u64;
            }
            Ok(first)
        };
        assert_eq!(read(3).unwrap(), 3);
        assert_contains(&message(read(4)), &["f.csv", "expected 4 rows", "found 3"]);
        assert_contains(&message(read(2)), &["f.csv", "expected 2 rows", "found more", "fewer rows"]);
    }
}

#[test]
fn numbers_that_are_not_finite_are_counted_and_the_first_is_named() {
    let folder = Folder::new();
    let mut numbers = vec![0.0_f64; 9000];
    for (at, number) in [(100, f64::NAN), (4097, f64::INFINITY), (8999, 1e300), (8000, f64::NEG_INFINITY)] {
        numbers[at] = number;
    }
    let path = folder.file("f.npy", npy("<f8", "(3000, 3)", &le(&numbers, f64::to_le_bytes)));
    for piece in [7, 10_000] {
        let (_, source) = matrix(&path, piece).unwrap();
        assert_eq!(source.non_finite(), Some(NonFinite { count: 4, row: 33, column: 1 }));
        assert_contains(
            &message(source.check_values(false, &|row| Ok(row.to_string()))),
            &["f.npy at row 33", "column 1", "3 more", "--allow-nan"],
        );
    }
}

#[test]
fn arrays_that_are_no_features_are_refused() {
    let folder = Folder::new();
    let open = |file: Vec<u8>| message(MatrixSource::open(folder.file("f.npy", file)));
    assert_contains(&open(npy("<f4", "(1, 2, 2)", &[0; 16])), &["f.npy", "[N, D]", "(1, 2, 2)"]);
    assert_contains(&open(npy("<f4", "(0, 2)", &[])), &["f.npy", "found 0 by 2"]);
    assert_contains(&open(npy("<f4", "(2, 0)", &[])), &["f.npy", "found 2 by 0"]);
    assert_contains(&open(npy("<c8", "(2, 1)", &[0; 16])), &["'<c8'", "a.real"]);
    let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }";
    let packed = npz(&[("x", npy_of(1, fortran, &[0; 16]))], true, false);
    assert_contains(&open(packed), &["Fortran", "ascontiguousarray"]);
    assert_contains(&open(npy("<f4", "(2, 2)", &[0; 15])), &["found 143", "truncated"]);
}

/// A CSR archive of the matrix [[0, 2, 0], [0, 0, 0], [1, 0, 7]], in which 7 is 3 + 4.
pub(super) fn csr(format: Option<&str>, deflated: bool, change: impl Fn(&mut Vec<(&str, Vec<u8>)>)) -> Vec<u8> {
    let mut members = vec![
        ("indices", npy("<i4", "(4,)", &le(&[1_i32, 0, 2, 2], i32::to_le_bytes))),
        ("indptr", npy("<i8", "(4,)", &le(&[0_i64, 1, 1, 4], i64::to_le_bytes))),
        ("data", npy("<f4", "(4,)", &le(&[2_f32, 1.0, 3.0, 4.0], f32::to_le_bytes))),
        ("shape", npy("<i8", "(2,)", &le(&[3_i64, 3], i64::to_le_bytes))),
    ];
    if let Some(format) = format {
        members.push(("format", npy("|S3", "()", format.as_bytes())));
    }
    change(&mut members);
    npz(&members, deflated, false)
}

#[test]
fn sparse_matrices_are_read_row_by_row() {
    let folder = Folder::new();
    for deflated in [false, true] {
        for format in [None, Some("csr")] {
            let path = folder.file("f.npz", csr(format, deflated, |_| {}));
            for piece in [1, 2, 10] {
                let (all, source) = matrix(&path, piece).unwrap();
                assert_eq!(all, [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 7.0]);
                assert_eq!((source.rows(), source.dim(), source.is_sequential()), (Some(3), 3, deflated));
                let mut rows = Vec::new();
                source.read_rows(2, 1, &mut rows).unwrap();
                assert_eq!(rows, [1.0, 0.0, 7.0]);
            }
        }
    }
}

#[test]
fn sparse_matrices_that_do_not_fit_together_are_refused() {
    let folder = Folder::new();
    let read = |archive: Vec<u8>| message(matrix(&folder.file("f.npz", archive), 10));
    let with = |name: &'static str, array: Vec<u8>| {
        csr(None, true, move |members| {
            members.retain(|member| member.0 != name);
            members.push((name, array.clone()));
        })
    };
    assert_contains(&read(csr(Some("bsr"), true, |_| {})), &["f.npz", "\"bsr\"", "tocsr()"]);
    assert_contains(&read(csr(None, true, |members| members[3].0 = "form")), &["found indices, indptr, data, form"]);
    let indptr = |ends: [i64; 4]| with("indptr", npy("<i8", "(4,)", &le(&ends, i64::to_le_bytes)));
    for ends in [[0, 2, 1, 4], [-1, 1, 1, 4], [0, 1, 1, 5]] {
        assert_contains(&read(indptr(ends)), &["f.npz: ", "member indptr"]);
    }
    // Entries before the first row, and after the last one.
    for ends in [[1, 1, 1, 4], [0, 1, 1, 3]] {
        assert_contains(&read(indptr(ends)), &["f.npz: ", "member indptr", "from 0 to 4"]);
    }
    let short = npy("<i8", "(3,)", &le(&[0_i64, 1, 4], i64::to_le_bytes));
    assert_contains(&read(with("indptr", short)), &["member indptr", "3 + 1 entries"]);
    for column in [3, -1] {
        let indices = npy("<i4", "(4,)", &le(&[1_i32, 0, column, 2], i32::to_le_bytes));
        assert_contains(&read(with("indices", indices)), &["f.npz at row 2", &column.to_string()]);
    }
    let data = npy("<f4", "(3,)", &[0; 12]);
    assert_contains(&read(with("data", data)), &["member data", "4 entries"]);
    let shape = npy("<i8", "(2,)", &le(&[3_i64, -3], i64::to_le_bytes));
    assert_contains(&read(with("shape", shape)), &["member shape", "negative"]);
}

fn labels(path: &Path, piece: usize) -> Result<Vec<Option<Vec<u32>>>> {
    let source = LabelSource::open(path)?;
    let (mut all, mut batch) = (Vec::new(), LabelBatch::default());
    loop {
        let read = source.read_rows(all.len() as u64, piece, &mut batch)?;
        assert_eq!(batch.len(), read);
        all.extend((0..read).map(|row| batch.get(row).map(<[u32]>::to_vec)));
        if read < piece {
            return Ok(all);
        }
    }
}

#[test]
fn single_labels_of_every_kind_are_read() {
    let folder = Folder::new();
    let expected = [Some(vec![3]), None, Some(vec![0]), Some(vec![100])];
    let arrays = [
        npy("|i1", "(4,)", &le(&[3_i8, -1, 0, 100], i8::to_le_bytes)),
        npy("<i2", "(4, 1)", &le(&[3_i16, -7, 0, 100], i16::to_le_bytes)),
        npy("<i4", "(4,)", &le(&[3_i32, -1, 0, 100], i32::to_le_bytes)),
        npy("<i8", "(4,)", &le(&[3_i64, i64::MIN, 0, 100], i64::to_le_bytes)),
        npy("<f4", "(4, 1)", &le(&[3_f32, f32::NAN, 0.0, 100.0], f32::to_le_bytes)),
        npy("<f8", "(4,)", &le(&[3_f64, -1.0, 0.0, 100.0], f64::to_le_bytes)),
    ];
    for array in arrays {
        for path in
            [folder.file("l.npy", &array), folder.file("l.npz", npz(&[("node_label", array.clone())], true, false))]
        {
            for piece in [1, 3, 10] {
                assert_eq!(labels(&path, piece).unwrap(), expected);
            }
        }
    }
    for text in ["3\n\n0\n100\n", "label\n3\nnan\n0.0\n100", "3\n-1\n0\n100\n"] {
        let path = folder.file("l.csv.gz", gzip(text.as_bytes()));
        for piece in [1, 3, 10] {
            assert_eq!(labels(&path, piece).unwrap(), expected);
        }
    }
    let unsigned = folder.file("l.npy", npy("|u1", "(3,)", &[3, 255, 0]));
    assert_eq!(labels(&unsigned, 10).unwrap(), [Some(vec![3]), Some(vec![255]), Some(vec![0])]);
}

#[test]
fn sets_of_labels_are_read() {
    let folder = Folder::new();
    let expected = [Some(vec![0, 2]), Some(vec![]), None];
    for array in [
        npy("<f4", "(3, 3)", &le(&[1.0, 0.0, 1.0, 0.0, 0.0, 0.0, f32::NAN, f32::NAN, f32::NAN], f32::to_le_bytes)),
        npy("|i1", "(3, 3)", &le(&[1_i8, 0, 1, 0, 0, 0, -1, -1, -1], i8::to_le_bytes)),
    ] {
        let path = folder.file("l.npy", array);
        assert_eq!(labels(&path, 2).unwrap(), expected);
        let source = LabelSource::open(&path).unwrap();
        assert_eq!((source.kind(), source.classes()), (grappa_formats::manifest::LabelKind::Multi, Some(3)));
    }
    assert_eq!(labels(&folder.file("l.csv", "1,0,1\n0,0,0\n,nan,\n"), 2).unwrap(), expected);
    let path = folder.file("l.npy", npy("|b1", "(2, 2)", &[0, 1, 1, 1]));
    assert_eq!(labels(&path, 9).unwrap(), [Some(vec![1]), Some(vec![0, 1])]);
}

#[test]
fn bad_labels_are_refused() {
    let folder = Folder::new();
    let array = |file: Vec<u8>| message(labels(&folder.file("l.npy", file), 10));
    assert_contains(&array(npy("<f4", "(2,)", &le(&[1.0_f32, 1.5], f32::to_le_bytes))), &["l.npy at row 1", "1.5"]);
    assert_contains(
        &array(npy("<i8", "(2,)", &le(&[1_i64, 1 << 40], i64::to_le_bytes))),
        &["l.npy at row 1", "1099511627776"],
    );
    assert_contains(
        &array(npy("|u1", "(2, 2)", &[0, 1, 2, 0])),
        &["l.npy at row 1", "zeros and ones", "found 2 in column 0"],
    );
    let half = le(&[1.0, f32::NAN], f32::to_le_bytes);
    assert_contains(&array(npy("<f4", "(1, 2)", &half)), &["l.npy at row 0", "column 1 is missing"]);
    assert_contains(&array(npy("<f4", "(1, 2, 1)", &[0; 8])), &["[N, K]", "(1, 2, 1)"]);
    let text = |text: &str| message(labels(&folder.file("l.csv", text), 10));
    assert_contains(&text("1\ncat\n"), &["l.csv:2", "the name \"cat\"", "are numbers"]);
    assert_contains(&text("1,0\n1\n"), &["l.csv:2", "expected 2"]);
    let mut source = LabelSource::open(folder.file("l.npy", npy("|i1", "(3,)", &[0; 3]))).unwrap();
    assert_contains(&message(source.expect_rows(4, "fewer rows")), &["l.npy", "expected 4 rows", "found 3"]);
}

#[test]
fn real_node_arrays_are_read() {
    for (name, file, nodes, dim, classes, train) in [
        ("bundled", "features.npz", 2708, 1433, 7, 140),
        ("cora", "features.npy", 2708, 1433, 7, 140),
        ("amazon-computers", "features.npy", 13_752, 767, 10, 8251),
        ("coauthor-cs", "features_csr.npz", 18_333, 6805, 15, 10_999),
        ("debian-bookworm", "features.npy", 63_436, 128, 53, 38_033),
    ] {
        let folder = match name {
            "bundled" => cora(),
            _ => match real_data(name) {
                Some(folder) => folder,
                None => continue,
            },
        };
        let mut source = MatrixSource::open(folder.join(file)).unwrap();
        source.expect_rows(nodes, "fewer rows").unwrap();
        assert_eq!(source.dim(), dim, "{name}");
        let (mut first, mut rows, mut non_zero) = (0, Vec::new(), 0);
        while first < nodes {
            first += source.read_rows(first, 1000, &mut rows).unwrap() as u64;
            non_zero += rows.iter().filter(|&&number| number != 0.0).count();
        }
        source.check_values(false, &|row| Ok(row.to_string())).unwrap();
        match name {
            "bundled" => assert_eq!(non_zero, 49_216),
            "coauthor-cs" => assert_eq!(non_zero, 1_092_079),
            _ => {}
        }
        let labels = labels(&folder.join("labels.npy"), 1000).unwrap();
        assert_eq!(labels.len() as u64, nodes);
        assert_eq!(labels.iter().flatten().map(|classes| classes[0]).max(), Some(classes - 1), "{name}");
        let ids = read_split_ids(&folder.join("train.npy"), IdLimit::Nodes(nodes)).unwrap();
        assert_eq!(ids.len(), train, "{name}");
    }
}

#[test]
fn sets_of_one_class_each_are_seen_as_one_hot() {
    let folder = Folder::new();
    let read = |text: &str| {
        let source = LabelSource::open(folder.file("l.txt", text)).unwrap();
        let mut batch = LabelBatch::default();
        for first in 0..4 {
            source.read_rows(first, 1, &mut batch).unwrap();
        }
        source.is_one_hot()
    };
    assert!(read("0 1\n1 0\n-1 -1\n1 0\n"));
    assert!(!read("0 1\n1 0\n1 1\n1 0\n"));
    assert!(!read("0 1\n0 0\n1 0\n1 0\n"));
    assert!(!read("0\n1\n1\n1\n"));
}

#[test]
fn node_data_in_other_formats_is_refused_with_the_remedy() {
    let folder = Folder::new();
    let archive = folder.file("s.npz", npz(&[("ids", npy("|u1", "(1,)", &[0]))], false, false));
    assert_contains(
        &message(SplitSource::open(&archive, IdKind::Integer, IdLimit::Dense)),
        &["s.npz", "not read from a .npz archive", "np.save"],
    );
    let named = MatrixSource::open(folder.file("x.csv", "name,a,b\nuser_0,1,2\nuser_1,3,4\n")).unwrap();
    assert!(named.has_ids() && named.dim() == 2);
    let named = MatrixSource::open(folder.file("x.csv", "user_0,1,2\nuser_1,3,4\n"));
    assert_contains(&message(named), &["x.csv:1", "text in column 1", "give --id 1"]);
    // In another column, a word is not an id.
    let words = MatrixSource::open(folder.file("x.csv", "1,2\n3,four\n")).unwrap();
    let error = message(words.read_rows(0, 2, &mut Vec::new()));
    assert!(error.contains("four") && !error.contains("header"), "{error}");
}
