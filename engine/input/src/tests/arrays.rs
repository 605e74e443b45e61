//! Tests of edge lists in arrays and raw pairs.

use grappa_io::Position;

use super::*;

#[test]
fn every_integer_type_and_both_orientations_of_npy_are_read() {
    let folder = Folder::new();
    let numbers = [1_u32, 2, 3, 4, 5, 1 << 30];
    let edges = [(1, 2), (3, 4), (5, 1 << 30)];
    let turned = [1_u32, 3, 5, 2, 4, 1 << 30];
    for (descr, pairs, halves) in grappa_skip::cases![
        "<i4", le(&numbers, u32::to_le_bytes), le(&turned, u32::to_le_bytes);
        "<u4", le(&numbers, u32::to_le_bytes), le(&turned, u32::to_le_bytes);
        "<i8", le(&numbers, |n| u64::from(n).to_le_bytes()), le(&turned, |n| u64::from(n).to_le_bytes());
        "<u8", le(&numbers, |n| u64::from(n).to_le_bytes()), le(&turned, |n| u64::from(n).to_le_bytes());
    ] {
        for block_bytes in [1, 20, 1 << 20] {
            let options = EdgeSourceOptions { block_bytes, ..Default::default() };
            let path = folder.file("pairs.npy", npy(descr, "(3, 2)", &pairs));
            let source = EdgeSource::open(&[path], options.clone()).unwrap();
            assert_eq!(source.edges_hint(), Some(3));
            assert_eq!(read(&source, 2).unwrap().edges, edges);
            let path = folder.file("halves", npy(descr, "(2, 3)", &halves));
            assert_eq!(read_path(&path, options).unwrap().edges, edges);
        }
    }
    // Versions, spacing and quoting of other writers.
    let data = le(&numbers, u32::to_le_bytes);
    for file in [
        npy_of(2, "{\"descr\":\"<u4\",\"fortran_order\":False,\"shape\":(3,2)}", &data),
        npy_of(3, "{'shape': (3L, 2L), 'fortran_order': False, 'descr': '<u4'}", &data),
    ] {
        let path = folder.file("pairs.npy", file);
        assert_eq!(read_path(&path, EdgeSourceOptions::default()).unwrap().edges, edges);
    }
    // Shape [2, 2] is ambiguous. Its rows are read as edges.
    let path = folder.file("two.npy", npy("<u4", "(2, 2)", &data[..16]));
    assert_eq!(read_path(&path, EdgeSourceOptions::default()).unwrap().edges, [(1, 2), (3, 4)]);
}

#[test]
fn raw_pairs_are_read() {
    let folder = Folder::new();
    let small = folder.file("a.u32", le(&[1_u32, u32::MAX, 3, 4], u32::to_le_bytes));
    let large = folder.file("b.bin", le(&[1_u64, 1 << 39, 3, 4], u64::to_le_bytes));
    let options = EdgeSourceOptions::default();
    assert_eq!(read_path(&small, options.clone()).unwrap().edges, [(1, u64::from(u32::MAX)), (3, 4)]);
    let options = EdgeSourceOptions { format: EdgeFormat::U64, ..options };
    assert_eq!(read_path(&large, options).unwrap().edges, [(1, 1 << 39), (3, 4)]);
}

#[test]
fn arrays_that_are_no_edges_are_refused_with_a_remedy() {
    let folder = Folder::new();
    let data = le(&[1_u64, 2, 3, 4], u64::to_le_bytes);
    let records = "{'descr': [('u', '<i8'), ('v', '<i8')], 'fortran_order': False, 'shape': (2,), }";
    let mut wrong_version = npy("<i8", "(2, 2)", &data);
    wrong_version[6] = 9;
    let mut long_header = npy("<i8", "(2, 2)", &data);
    long_header[8] = 0xff;
    let cases: [(Vec<u8>, &[&str]); 14] = grappa_skip::cases![
        npy("<i8", "(4,)", &data), &["a.npy: ", "[E, 2] or [2, E]", "(4,)"];
        npy("<i4", "(2, 4)", &data)[..100].to_vec(), &["within its .npy header", "truncated"];
        npy("<i8", "(1, 4)", &data), &["(1, 4)", "--weights"];
        npy("<f2", "(8, 2)", &data), &["found float16", "astype(float)"];
        npy("|b1", "(2, 16)", &data), &["found bool"];
        npy("<i2", "(4, 4)", &data), &["adjacency matrix", "argwhere"];
        npy("|O", "(2, 2)", &data), &["object", "allow_pickle"];
        npy("<U2", "(2, 2)", &data), &["'<U2'", "writerows"];
        npy_of(1, records, &data), &["named fields", "dtype.names"];
        npy("<i8", "(3, 2)", &data), &["takes 176 bytes", "found 160", "truncated"];
        npy("<i8", "(1, 2)", &data), &["takes 144 bytes", "found 160", "appended"];
        npy("<i8", "(9223372036854775807, 2)", &data), &["more than 2^64"];
        wrong_version, &["version 9"];
        long_header, &["within its .npy header"];
    ];
    for (file, parts) in cases {
        let path = folder.file("a.npy", file);
        let error = message(EdgeSource::open(&[path], EdgeSourceOptions::default()));
        assert_contains(&error, parts);
        assert_contains(&error, &["a.npy"]);
    }
    for dictionary in
        ["", "{", "{'descr'", "{'descr': 3}", "{'shape': (1, 2)}", "{'shape': (x,)}", "{'fortran_order': 1}", "nope"]
    {
        let path = folder.file("a.npy", npy_of(1, dictionary, &data));
        assert_contains(
            &message(EdgeSource::open(&[path], EdgeSourceOptions::default())),
            &["a.npy at offset 10", "header cannot be read"],
        );
    }
    let path = folder.file("a.npy", "1 2\n");
    assert_contains(&message(EdgeSource::open(&[path], EdgeSourceOptions::default())), &["it is text", "--format tsv"]);
}

#[test]
fn bad_rows_of_arrays_are_errors_or_rejects() {
    let folder = Folder::new();
    let data = le(&[1_i64, 2, 3, -4, 5, 6], i64::to_le_bytes);
    let path = folder.file("a.npy", npy("<i8", "(3, 2)", &data));
    for id_limit in [IdLimit::Dense, IdLimit::Sparse] {
        let options = EdgeSourceOptions { ends: EndIds::both(IdKind::Integer, id_limit), ..Default::default() };
        assert_contains(&message(read_path(&path, options.clone())), &["a.npy at row 1", "negative", "3\\t-4"]);
        let options = EdgeSourceOptions { on_bad_line: OnBadLine::Skip, block_bytes: 16, ..options };
        let read = read_path(&path, options).unwrap();
        assert_eq!(read.edges, [(1, 2), (5, 6)]);
        assert_eq!(read.rejected[0].position, Position::Row(1));
    }
    let options = EdgeSourceOptions { ends: EndIds::both(IdKind::Integer, IdLimit::Nodes(6)), ..Default::default() };
    let path = folder.file("b.u64", le(&[1_u64, 2, 3, 6], u64::to_le_bytes));
    assert_contains(&message(read_path(&path, options)), &["b.u64 at row 1", "number of nodes, 6"]);
}

#[test]
fn binary_files_in_the_wrong_place_are_recognized() {
    let folder = Folder::new();
    let pairs = le(&[1_u64, 2, 3, 4], u64::to_le_bytes);
    let open = |path: PathBuf, options| message(EdgeSource::open(&[path], options));
    let default = EdgeSourceOptions::default;
    assert_contains(&open(folder.file("a.bin", &pairs), default()), &["NUL byte", "--format"]);
    assert_contains(&open(folder.file("a.u64", &pairs[..24]), default()), &["at offset 16", "8 bytes are left over"]);
    assert_contains(&open(folder.file("a.u32", &pairs[..12]), default()), &["at offset 8", "4 bytes are left over"]);
    let packed = folder.file("a.npy.gz", gzip(&npy("<u8", "(2, 2)", &pairs)));
    assert_contains(&open(packed, default()), &["gzip -dc"]);
    let strings = EdgeSourceOptions { ends: EndIds::both(IdKind::String, IdLimit::Dense), ..default() };
    assert_contains(&open(folder.file("a.u64", &pairs), strings), &["--ids string"]);
}

#[test]
fn an_array_of_strings_is_refused_as_one_and_not_as_integers() {
    let folder = Folder::new();
    let path = folder.file("e.npy", npy("<U1", "(2, 2)", &[b'a', 0, 0, 0].repeat(4)));
    for ids in [IdKind::Integer, IdKind::String] {
        let options = EdgeSourceOptions { ends: EndIds::both(ids, IdLimit::Dense), ..Default::default() };
        let error = EdgeSource::open(std::slice::from_ref(&path), options).err().unwrap().to_string();
        assert_contains(&error, &["e.npy", "strings (dtype '<U1')", "NEW.csv"]);
        assert!(!error.contains("integers"), "{error}");
    }
}
