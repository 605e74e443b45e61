//! Tests of splits and other lists of ids.

use grappa_io::Position;

use super::*;

#[test]
fn splits_are_read_from_arrays_masks_and_text() {
    let folder = Folder::new();
    let limit = IdLimit::Nodes(10);
    let read = |path: PathBuf| read_split_ids(&path, limit);
    assert_eq!(
        read(folder.file("s.npy", npy("<i8", "(3,)", &le(&[7_i64, 0, 9], i64::to_le_bytes)))).unwrap(),
        [7, 0, 9]
    );
    assert_eq!(read(folder.file("s.npy", npy("<u2", "(2, 1)", &le(&[7_u16, 9], u16::to_le_bytes)))).unwrap(), [7, 9]);
    assert_eq!(read(folder.file("s.npy", npy("|b1", "(4,)", &[0, 1, 0, 1]))).unwrap(), [1, 3]);
    assert_eq!(read(folder.file("s.txt", "# ids\n7\r\n\n 0 \n9")).unwrap(), [7, 0, 9]);
    assert_eq!(read(folder.file("s.csv.gz", gzip(b"7\n0\n"))).unwrap(), [7, 0]);
    let mut mask = vec![0; 200_000];
    mask[199_999] = 1;
    let path = folder.file("s.npy", npy("|b1", "(200000,)", &mask));
    assert_eq!(read_split_ids(&path, IdLimit::Dense).unwrap(), [199_999]);

    let many: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    let path = folder.file("s.txt", many);
    assert_eq!(read_split_ids(&path, IdLimit::Dense).unwrap(), (0..100_000).collect::<Vec<_>>());
    let mut source = SplitSource::open(&path, IdKind::String, limit).unwrap();
    let (mut keys, mut count) = (Keys::default(), 0);
    while source.next_keys(&mut keys).unwrap() {
        assert_eq!(keys.get(0), count.to_string().as_bytes());
        assert_eq!(source.place(0).position, Position::Line(count + 1));
        count += keys.len() as u64;
    }
    assert_eq!(count, 100_000);
}

#[test]
fn strings_that_begin_like_comments_are_ids() {
    let folder = Folder::new();
    let path = folder.file("s.txt", "#news\n\n  a\n%1\n");
    let mut source = SplitSource::open(&path, IdKind::String, IdLimit::Sparse).unwrap();
    let mut keys = Keys::default();
    assert!(source.next_keys(&mut keys).unwrap());
    assert_eq!(keys.iter().collect::<Vec<_>>(), [b"#news".as_slice(), b"a", b"%1"]);
    assert_eq!(source.place(2).position, Position::Line(4));
}

#[test]
fn batches_of_long_strings_have_few_of_them() {
    let folder = Folder::new();
    let line = "x".repeat(60_000) + "\n";
    let path = folder.file("s.txt", line.repeat(300));
    let mut source = SplitSource::open(&path, IdKind::String, IdLimit::Sparse).unwrap();
    let (mut keys, mut counts) = (Keys::default(), Vec::new());
    while source.next_keys(&mut keys).unwrap() {
        counts.push(keys.len());
    }
    assert_eq!(counts.iter().sum::<usize>(), 300);
    assert!(counts.iter().all(|&count| count <= 70), "{counts:?}");
}

#[test]
fn lists_in_order_are_no_masks_and_arrays_tell_their_length() {
    let folder = Folder::new();
    let open = |path: &PathBuf| SplitSource::open_ordered(path, IdKind::Integer, IdLimit::Dense, &TableForm::default());
    let array = folder.file("a.npy", npy("<i8", "(2,)", &le(&[5_i64, 1], i64::to_le_bytes)));
    assert_eq!(open(&array).unwrap().ids(), Some(2));
    assert_eq!(open(&folder.file("a.txt", "5\n1\n")).unwrap().ids(), None);
    let mask = folder.file("m.npy", npy("|b1", "(2,)", &[1, 1]));
    assert_contains(&message(open(&mask)), &["m.npy", "integers of shape [N];", "bool"]);
    let split = SplitSource::open(&mask, IdKind::Integer, IdLimit::Dense).unwrap();
    assert_eq!(split.ids(), None);
}

#[test]
fn bad_splits_are_refused() {
    let folder = Folder::new();
    let read = |path: PathBuf| message(read_split_ids(&path, IdLimit::Nodes(10)));
    let array = |descr: &str, shape: &str, data: &[u8]| folder.file("s.npy", npy(descr, shape, data));
    assert_contains(
        &read(array("<i4", "(2,)", &le(&[1_i32, -2], i32::to_le_bytes))),
        &["s.npy at row 1", "-2", "negative"],
    );
    assert_contains(
        &read(array("<i8", "(2,)", &le(&[1_i64, 10], i64::to_le_bytes))),
        &["s.npy at row 1", "10", "number of nodes, 10"],
    );
    assert_contains(&read(array("<f2", "(1,)", &[0; 2])), &["float16", "astype('i8')"]);
    assert_contains(&read(array("<f8", "(1,)", &1.5_f64.to_le_bytes())), &["found 1.5", "fraction"]);
    assert_contains(&read(array("<f4", "(1,)", &f32::NAN.to_le_bytes())), &["found NaN", "missing"]);
    let large = 3e7_f32.to_le_bytes();
    assert_contains(&read(array("<f4", "(1,)", &large)), &["found 30000000", "rounded"]);
    assert_contains(&read(array("<i8", "(1, 2)", &[0; 16])), &["(1, 2)"]);
    assert_contains(&read(folder.file("s.txt", "1\n2 3\n")), &["s.txt:2", "\"2 3\""]);
    assert_contains(&read(folder.file("s.txt", "1\n\n-3\n")), &["s.txt:3", "negative"]);
    let path = array("<i8", "(1,)", &[0; 8]);
    assert_contains(&message(SplitSource::open(&path, IdKind::String, IdLimit::Dense)), &["s.npy", "--ids string"]);
    let mut source = SplitSource::open(folder.file("s.txt", b"a\n\xff\n"), IdKind::String, IdLimit::Dense).unwrap();
    assert_contains(&message(source.next_keys(&mut Keys::default())), &["s.txt:2", "UTF-8"]);
}

#[test]
fn masks_have_one_entry_per_node() {
    let folder = Folder::new();
    let mask =
        SplitSource::open(folder.file("s.npy", npy("|b1", "(4,)", &[0, 1, 0, 1])), IdKind::Integer, IdLimit::Nodes(10))
            .unwrap();
    assert!(mask.is_mask());
    mask.expect_rows(4, "more nodes").unwrap();
    for nodes in [3, 5] {
        let error = message(mask.expect_rows(nodes, "more nodes"));
        assert_contains(&error, &["s.npy", &format!("expected {nodes} rows"), "found 4"]);
    }
    // A list of ids may have any length.
    let list = folder.file("s.npy", npy("|u1", "(4,)", &[0, 1, 2, 3]));
    let list = SplitSource::open(&list, IdKind::Integer, IdLimit::Nodes(10)).unwrap();
    assert!(!list.is_mask());
    list.expect_rows(10, "more nodes").unwrap();
}
