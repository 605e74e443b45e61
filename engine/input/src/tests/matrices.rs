//! Tests of sparse matrices of SciPy, as edges and as features.

use super::{nodes::csr, *};

/// An archive of the matrix [[0, 2, 0], [0, 0, 0], [1, 0, 7]] in a format. In coo, 7 is 3 + 4.
fn matrix(format: &str, prefix: &str, deflated: bool) -> Vec<u8> {
    let int32 = |numbers: &[i32]| npy("<i4", &format!("({},)", numbers.len()), &le(numbers, i32::to_le_bytes));
    let floats = |numbers: &[f64]| npy("<f8", &format!("({},)", numbers.len()), &le(numbers, f64::to_le_bytes));
    let mut members = match format {
        "csr" => {
            vec![("indices", int32(&[1, 2, 0])), ("indptr", int32(&[0, 1, 1, 3])), ("data", floats(&[2.0, 7.0, 1.0]))]
        }
        "csc" => {
            vec![("indices", int32(&[2, 0, 2])), ("indptr", int32(&[0, 1, 2, 3])), ("data", floats(&[1.0, 2.0, 7.0]))]
        }
        _ => {
            vec![("row", int32(&[2, 0, 2, 2])), ("col", int32(&[2, 1, 0, 2])), ("data", floats(&[3.0, 2.0, 1.0, 4.0]))]
        }
    };
    members.push(("shape", npy("<i8", "(2,)", &le(&[3_i64, 3], i64::to_le_bytes))));
    if prefix.is_empty() {
        members.push(("format", npy("|S3", "()", format.as_bytes())));
    }
    let members: Vec<_> = members.into_iter().map(|(name, bytes)| (format!("{prefix}{name}"), bytes)).collect();
    let members: Vec<_> = members.iter().map(|(name, bytes)| (&**name, bytes.clone())).collect();
    npz(&members, deflated, false)
}

#[test]
fn the_entries_of_a_matrix_are_edges_from_row_to_column() {
    let folder = Folder::new();
    for (format, prefix) in [("csr", ""), ("csr", "adj_"), ("csc", ""), ("coo", "")] {
        for deflated in [false, true] {
            let path = folder.file("a.npz", matrix(format, prefix, deflated));
            for block_bytes in [1, 1 << 20] {
                let options = EdgeSourceOptions { block_bytes, ..Default::default() };
                let source = EdgeSource::open(std::slice::from_ref(&path), options.clone()).unwrap();
                assert_eq!(source.stated_nodes(), Some(3));
                let all = read(&source, 2).unwrap();
                source.check().unwrap();
                let mut edges: Vec<_> = all.edges.iter().zip(&all.values).map(|(&edge, &w)| (edge, w as u32)).collect();
                edges.sort();
                let expected = match format {
                    "coo" => vec![((0, 1), 2), ((2, 0), 1), ((2, 2), 3), ((2, 2), 4)],
                    _ => vec![((0, 1), 2), ((2, 0), 1), ((2, 2), 7)],
                };
                assert_eq!(edges, expected, "{format} {prefix} {deflated}");
                let columns = EdgeColumnOptions { weight: Some("none".to_owned()), ..Default::default() };
                let source = EdgeSource::open(std::slice::from_ref(&path), EdgeSourceOptions { columns, ..options });
                assert!(!source.unwrap().weighted());
            }
        }
    }
}

#[test]
fn compressed_rows_are_found_across_pieces() {
    let folder = Folder::new();
    // Row k has k % 3 entries, all in column k % 7. There are more rows than are read at once.
    let rows: Vec<i64> = (0..100_000).collect();
    let ends = rows.iter().scan(0, |end, row| {
        *end += row % 3;
        Some(*end)
    });
    let starts: Vec<i64> = std::iter::once(0).chain(ends).collect();
    let expected: Vec<(u64, u64)> =
        rows.iter().flat_map(|&row| std::iter::repeat_n((row as u64, row as u64 % 7), (row % 3) as usize)).collect();
    let columns: Vec<i64> = expected.iter().map(|&(_, column)| column as i64).collect();
    let array = |numbers: &[i64]| npy("<i8", &format!("({},)", numbers.len()), &le(numbers, i64::to_le_bytes));
    for deflated in [false, true] {
        let members = grappa_skip::cases![
            "indptr", array(&starts);
            "indices", array(&columns);
            "data", npy("|b1", &format!("({},)", columns.len()), &vec![1; columns.len()]);
            "shape", array(&[100_000, 100_000]);
        ];
        let path = folder.file("a.npz", npz(&members, deflated, false));
        let options = EdgeSourceOptions { block_bytes: 10_000, ..Default::default() };
        let read = read_path(&path, options).unwrap();
        assert!(read.edges == expected);
        // Values that are bool are no weights.
        assert!(read.values.is_empty());
    }
}

#[test]
fn a_matrix_in_any_format_has_features() {
    let folder = Folder::new();
    for (format, prefix) in [("csr", ""), ("csr", "attr_"), ("csc", ""), ("coo", "")] {
        for deflated in [false, true] {
            let path = folder.file("x.npz", matrix(format, prefix, deflated));
            let source = MatrixSource::open(&path).unwrap();
            assert_eq!((source.rows(), source.dim()), (Some(3), 3));
            assert_eq!(source.held_bytes() > 0, format == "csc" || format == "coo");
            for count in [1, 2, 3] {
                let (mut all, mut some) = (Vec::new(), Vec::new());
                for first in (0..3).step_by(count) {
                    source.read_rows(first, count, &mut some).unwrap();
                    all.extend_from_slice(&some);
                }
                source.check().unwrap();
                assert_eq!(all, [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 7.0], "{format} {prefix}");
            }
        }
    }
}

#[test]
fn a_matrix_that_is_no_graph_or_damaged_is_refused() {
    let folder = Folder::new();
    let edges = |archive: Vec<u8>| message(read_path(&folder.file("a.npz", archive), EdgeSourceOptions::default()));
    let with = |name: &'static str, array: Vec<u8>| {
        csr(None, true, move |members| {
            members.retain(|member| member.0 != name);
            members.push((name, array.clone()));
        })
    };
    let shape = |rows: i64, columns: i64| npy("<i8", "(2,)", &le(&[rows, columns], i64::to_le_bytes));
    assert_contains(&edges(with("shape", shape(3, 4))), &["3 rows and 4 columns", "sp.bmat", "a.npz"]);
    assert_contains(&edges(csr(Some("dia"), true, |_| {})), &["\"dia\"", "tocsr()"]);
    for ends in [[0, 2, 1, 4], [-1, 1, 1, 4], [1, 1, 1, 4], [0, 1, 1, 5], [0, 1, 1, 3]] {
        let array = npy("<i8", "(4,)", &le(&ends, i64::to_le_bytes));
        assert_contains(&edges(with("indptr", array)), &["member indptr", "from 0 to 4", "damaged"]);
    }
    for column in [3, -1] {
        let indices = npy("<i4", "(4,)", &le(&[1, 0, column, 2], i32::to_le_bytes));
        assert_contains(
            &edges(with("indices", indices)),
            &["member indices", &format!("element 2 is {column}"), "0 to 2"],
        );
    }
}

#[test]
fn a_large_matrix_must_have_its_entries_by_row_to_be_read_as_features() {
    let folder = Folder::new();
    let entries = (1 << 20) + 1;
    let zeros = npy("<i4", &format!("({entries},)"), &vec![0; 4 * entries]);
    let members = [
        ("row", zeros.clone()),
        ("col", zeros),
        ("data", npy("|b1", &format!("({entries},)"), &vec![1; entries])),
        ("shape", npy("<i8", "(2,)", &le(&[3_i64, 3], i64::to_le_bytes))),
    ];
    let path = folder.file("x.npz", npz(&members, false, false));
    let error = message(MatrixSource::open(&path));
    assert_contains(&error, &["x.npz: ", "more than 1048576 entries", "tocsr()"]);
}
