//! Tests of sources of several files: blocks, weights, compression.

use grappa_io::progress::Silent;

use super::{
    tables::{Column, some, table},
    *,
};

#[test]
fn skipped_blocks_are_left_out_and_the_others_keep_their_numbers() {
    let folder = Folder::new();
    let text: String = (0..500).map(|n| format!("{n} {}\n", n * 7)).collect();
    let pairs = le(&(0..500).flat_map(|n| [n, n * 7]).collect::<Vec<u64>>(), u64::to_le_bytes);
    let paths =
        [folder.file("a.tsv", &text), folder.file("b.tsv.gz", gzip(text.as_bytes())), folder.file("c.u64", pairs)];
    let options = EdgeSourceOptions { block_bytes: 100, ..Default::default() };
    let blocks = |skip: &dyn Fn(BlockId) -> bool| {
        let source = EdgeSource::open(&paths, options.clone()).unwrap();
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        while let Some(block) = source.next_block(skip).unwrap() {
            let mut batch = EdgeBatch::default();
            block.parse(&mut batch, &mut |_| Ok(())).unwrap();
            bytes += block.input_bytes();
            blocks.push((block.id(), batch.sources));
        }
        (blocks, bytes, source.total_bytes())
    };
    let (all, bytes, total) = blocks(&|_| false);
    assert_eq!(bytes, total);
    assert_eq!(all.iter().map(|(_, sources)| sources.len()).sum::<usize>(), 1500);
    let skipped = |id: BlockId| id.block % 3 != 1;
    let (some, bytes, _) = blocks(&skipped);
    assert!(bytes <= total);
    assert_eq!(some, all.into_iter().filter(|&(id, _)| !skipped(id)).collect::<Vec<_>>());
}

#[test]
fn reads_past_the_page_cache_give_the_same_edges() {
    let folder = Folder::new();
    let numbers: Vec<u64> = (0..4000).map(|n| n * n % 1009).collect();
    let text: String = numbers.iter().map(|n| format!("{n} {}\n", n * 7)).collect();
    let paths = [
        folder.file("a.tsv", &text),
        folder.file("b.tsv.gz", gzip(text.as_bytes())),
        folder.file("c.u64", le(&numbers, u64::to_le_bytes)),
        folder.file("d.npy", npy("<u8", "(2, 2000)", &le(&numbers, u64::to_le_bytes))),
    ];
    for block_bytes in [1000, 10_000, 1 << 20] {
        let open = || EdgeSource::open(&paths, skipping(block_bytes)).unwrap();
        let (cached, direct) = (open(), open());
        if !direct.read_past_cache() {
            grappa_skip::skip!("the file system of temporary files refuses O_DIRECT");
        }
        assert_eq!(read(&cached, 1).unwrap(), read(&direct, 2).unwrap());
    }
}

#[test]
fn weights_of_their_own_go_with_the_rows_of_all_files() {
    let folder = Folder::new();
    let a = folder.file("a.u64", le(&[1_u64, 2, 3, 4], u64::to_le_bytes));
    let b = folder.file("b.npy", npy("<i4", "(3, 2)", &le(&[5_i32, 6, 7, -8, 9, 10], i32::to_le_bytes)));
    let weights = |numbers: &[f32]| {
        let shape = format!("({},)", numbers.len());
        Some(folder.file("w.npy", npy("<f4", &shape, &le(numbers, f32::to_le_bytes))).into())
    };
    for block_bytes in [1, 50, 1 << 20] {
        let options = EdgeSourceOptions { weights: weights(&[0.1, 0.2, 0.3, 0.4, 0.5]), ..skipping(block_bytes) };
        let source = EdgeSource::open(&[a.clone(), b.clone()], options).unwrap();
        assert!(source.weighted());
        let read = read(&source, 2).unwrap();
        assert_eq!(read.edges, [(1, 2), (3, 4), (5, 6), (9, 10)]);
        assert_eq!(read.values, [0.1, 0.2, 0.3, 0.5]);
    }
    let open = |paths: &[PathBuf], weights| {
        let options = EdgeSourceOptions { weights, ..Default::default() };
        read(&EdgeSource::open(paths, options)?, 1)
    };
    let error = message(open(&[a.clone(), b.clone()], weights(&[1.0; 4])));
    assert_contains(&error, &["w.npy", "expected 5 weights", "found 4"]);
    let error = message(open(std::slice::from_ref(&a), weights(&[1.0, f32::INFINITY])));
    assert_contains(&error, &["a.u64 at row 1", "weight is not finite"]);
    let text = folder.file("c.tsv", "1 2\n");
    assert_contains(&message(open(&[text], weights(&[1.0]))), &["c.tsv", "third column"]);
    let text = folder.file("c.tsv", "1 2 3\n");
    assert_contains(&message(open(&[text], weights(&[1.0]))), &["c.tsv", "omit --weights"]);
}

#[test]
fn features_of_their_own_follow_the_weights_of_all_files() {
    let folder = Folder::new();
    let a = folder.file("a.u64", le(&[1_u64, 2, 3, 4], u64::to_le_bytes));
    let b = folder.file("b.npy", npy("<i4", "(3, 2)", &le(&[5_i32, 6, 7, -8, 9, 10], i32::to_le_bytes)));
    let weights = folder.file("w.npy", npy("<f4", "(5,)", &le(&[0.1, 0.2, 0.3, 0.4, 0.5], f32::to_le_bytes)));
    let numbers = le(&[1_i16, -1, 2, -2, 3, -3, 4, -4, 5, -5], i16::to_le_bytes);
    let by_column = le(&[1_i16, 2, 3, 4, 5, -1, -2, -3, -4, -5], i16::to_le_bytes);
    let rows = folder.file("rows.npy", npy("<i2", "(5, 2)", &numbers));
    let header = "{'descr': '<i2', 'fortran_order': True, 'shape': (5, 2), }";
    let fortran = npy_of(1, header, &by_column);
    for features in [rows, folder.file("columns.npy", fortran)] {
        for block_bytes in [1, 50, 1 << 20] {
            let options = |weights: Option<Input>| EdgeSourceOptions {
                weights,
                features: Some((&features).into()),
                ..skipping(block_bytes)
            };
            let source = EdgeSource::open(&[a.clone(), b.clone()], options(Some((&weights).into()))).unwrap();
            assert_eq!((source.weighted(), source.features()), (true, 2));
            let expected = [0.1, 1.0, -1.0, 0.2, 2.0, -2.0, 0.3, 3.0, -3.0, 0.5, 5.0, -5.0];
            assert_eq!(read(&source, 2).unwrap().values, expected);
            let source = EdgeSource::open(&[a.clone(), b.clone()], options(None)).unwrap();
            assert_eq!((source.weighted(), source.features()), (false, 2));
            assert_eq!(read(&source, 2).unwrap().values, [1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 5.0, -5.0]);
        }
    }
    let refused = |edges: &Path, features: Vec<u8>| {
        let options = EdgeSourceOptions { features: Some(folder.file("f.npy", features).into()), ..Default::default() };
        message(EdgeSource::open(&[edges.to_owned()], options).and_then(|source| read(&source, 1)))
    };
    let ones = |shape: &str, count| npy("<f4", shape, &le(&vec![1.0; count], f32::to_le_bytes));
    assert_contains(&refused(&a, ones("(3,)", 3)), &["f.npy", "expected 2 rows", "found 3"]);
    assert_contains(&refused(&a, ones("(2, 0)", 0)), &["f.npy", "[E, d]", "(2, 0)"]);
    let infinite = npy("<f4", "(2, 2)", &le(&[0.0, 1.0, 2.0, f32::INFINITY], f32::to_le_bytes));
    assert_contains(&refused(&a, infinite), &["a.u64 at row 1", "edge feature 2 is not finite"]);
    let text = folder.file("c.tsv", "1 2\n3 4\n");
    assert_contains(&refused(&text, ones("(2,)", 2)), &["c.tsv", "--edge-features-from"]);
}

#[test]
fn columns_of_features_are_read_in_the_order_of_the_option() {
    let folder = Folder::new();
    let options = |features: &[&str], ids| EdgeSourceOptions {
        columns: EdgeColumnOptions {
            features: features.iter().map(|&name| name.to_owned()).collect(),
            ..Default::default()
        },
        ends: EndIds::both(ids, IdLimit::Dense),
        ..skipping(1 << 20)
    };
    let text = "src,amount,dst,hour,weight\n1,2.5,2,7,0.5\n3,,4,8,1\n5,x,6,9,1\n7,1e9,8,10,2\n";
    let path = folder.file("a.csv", text);
    let source = fitted(&path, options(&["hour", "amount"], IdKind::Integer)).unwrap();
    assert_eq!(source.feature_columns(), ["hour", "amount"].map(grappa_formats::schema::Column::number));
    let found = read(&source, 1).unwrap();
    assert_eq!(found.edges, [(1, 2), (7, 8)]);
    assert_eq!(found.values, [0.5, 7.0, 2.5, 2.0, 10.0, 1e9]);
    let reasons: Vec<_> = found.rejected.iter().map(|reject| reject.reason.reason()).collect();
    assert_eq!(reasons, ["edge feature 2 is empty", "edge feature 2 is not a number"]);
    let roles = &source.readings()[0].columns;
    let roles: Vec<_> = roles.iter().map(|(role, name)| format!("{role} {name}")).collect();
    assert_eq!(roles, ["source src", "target dst", "weight weight", "feature hour", "feature amount"]);

    // Names as ids, and columns without names.
    let path = folder.file("b.tsv", "a\tb\t1\t-1\nc\td\t2\tnan\ne\tf\t3\t-3\n");
    let source = fitted(&path, options(&["4", "3"], IdKind::String)).unwrap();
    assert!(!source.weighted());
    let (mut batch, mut rejected) = (TextBatch::default(), Vec::new());
    let block = source.next_block(&|_| false).unwrap().unwrap();
    block
        .parse_text(&mut batch, &mut |reject| {
            rejected.push(reject.reason);
            Ok(())
        })
        .unwrap();
    assert_eq!((batch.sources.len(), batch.values), (2, vec![-1.0, 1.0, -3.0, 3.0]));
    assert_eq!(rejected, [BadEdge::EmptyFeature(1)]);
}

/// A source whose columns of features were examined.
fn fitted(path: &Path, options: EdgeSourceOptions) -> Result<EdgeSource> {
    let paths = [path.to_owned()];
    let encoded = EdgeSource::open(&paths, options.clone())?.fit(&EncodingOptions::default(), &Silent)?;
    EdgeSource::open(&paths, EdgeSourceOptions { encoded, ..options })
}

#[test]
fn features_and_the_order_of_edges_have_the_types_of_tables() {
    let folder = Folder::new();
    let text = "src,dst,at,kind,big,ok\n1,2,2024-01-02,buy,7,true\n3,4,2024-01-01T12:00,view,8,false\n5,6,2024-01-03,buy,9,true\n";
    let days = |days: i64, hours: i64| Some((days * 24 + hours) * 3_600_000_000);
    let columns = [
        ("src", Column::I64(some(&[1, 3, 5]))),
        ("dst", Column::I64(some(&[2, 4, 6]))),
        ("at", Column::Times(vec![days(19_724, 0), days(19_723, 12), days(19_725, 0)])),
        ("kind", Column::Text(some(&["buy", "view", "buy"]))),
        ("big", Column::I64(some(&[7, 8, 9]))),
        ("ok", Column::Bool(some(&[true, false, true]))),
    ];
    let parquet = folder.file("a.parquet", table(&columns, 2));
    let paths = [folder.file("a.csv", text), folder.file("b.csv.gz", gzip(text.as_bytes())), parquet];
    for path in paths {
        let options = |features: &[&str], order: Option<&str>, block_bytes| EdgeSourceOptions {
            columns: EdgeColumnOptions {
                source: Some("src".to_owned()),
                target: Some("dst".to_owned()),
                features: features.iter().map(|&name| name.to_owned()).collect(),
                order: order.map(str::to_owned),
                ..Default::default()
            },
            block_bytes,
            ..Default::default()
        };
        for block_bytes in [40, 1 << 20] {
            let source = fitted(&path, options(&["ok", "kind", "at"], Some("at"), block_bytes)).unwrap();
            let dims: Vec<_> = source.feature_columns().iter().flat_map(|column| column.dimensions()).collect();
            assert_eq!(dims, ["ok", "kind=buy", "kind=view", "kind=other", "at"]);
            let found = read(&source, 2).unwrap();
            assert_eq!(found.edges, [(1, 2), (3, 4), (5, 6)]);
            let expected =
                [[1.0, 1.0, 0.0, 0.0, 19_724.0], [0.0, 0.0, 1.0, 0.0, 19_723.5], [1.0, 1.0, 0.0, 0.0, 19_725.0]];
            assert_eq!(found.values, expected.concat());
            assert_eq!(found.order, [19_724.0, 19_723.5, 19_725.0]);
            // A column that is no feature.
            let source = fitted(&path, options(&[], Some("big"), block_bytes)).unwrap();
            let found = read(&source, 1).unwrap();
            assert_eq!((found.values, found.order), (Vec::new(), vec![7.0, 8.0, 9.0]));
            let refused =
                message(fitted(&path, options(&[], Some("kind"), block_bytes)).and_then(|source| read(&source, 1)));
            assert_contains(&refused, &["--edge-split-by is neither a number nor a date"]);
        }
    }
    let mixed = folder.file("mixed.csv", "src,dst,at\n1,2,2024-01-02\n3,4,2024\n");
    let options = EdgeSourceOptions {
        columns: EdgeColumnOptions { order: Some("at".to_owned()), ..Default::default() },
        ..Default::default()
    };
    let refused = message(EdgeSource::open(&[mixed], options).and_then(|source| read(&source, 1)));
    assert_contains(&refused, &["mixed.csv", "has both numbers and dates"]);
}

#[test]
fn all_problems_of_columns_of_edges_are_told_at_once() {
    let folder = Folder::new();
    let rows: String =
        (0..50).map(|row| format!("{row},{},{row}.5,{}\n", row + 1, if row == 7 { "" } else { "2" })).collect();
    let text = format!("src,dst,amount,hour\n{rows}60,61,,x\n");
    let path = folder.file("a.csv", &text);
    let options = |on_bad_line| EdgeSourceOptions {
        columns: EdgeColumnOptions { features: vec!["amount".to_owned(), "hour".to_owned()], ..Default::default() },
        on_bad_line,
        ..Default::default()
    };
    let refused = message(fitted(&path, options(OnBadLine::Fail)));
    assert_contains(
        &refused,
        &[
            "a.csv:9",
            "missing values in amount (line 52)",
            "--missing mean",
            "text among numbers in hour (\"x\" of line 52)",
        ],
    );
    let source = fitted(&path, options(OnBadLine::Skip)).unwrap();
    let found = read(&source, 2).unwrap();
    assert_eq!((found.edges.len(), found.rejected.len()), (49, 2));
}

#[test]
fn files_must_agree_on_having_weights() {
    let folder = Folder::new();
    let paths = [folder.file("a.tsv", "1 2 0.5\n"), folder.file("b.tsv", "1 2\n")];
    let error = message(EdgeSource::open(&paths, EdgeSourceOptions::default()));
    assert_contains(&error, &["b.tsv: edges here have no weight", "a.tsv have one"]);
}

#[test]
fn empty_missing_and_odd_inputs_are_refused() {
    let folder = Folder::new();
    let open = |paths: &[PathBuf]| EdgeSource::open(paths, EdgeSourceOptions::default());
    let empty = folder.file("empty.tsv", "");
    let comments = folder.file("comments.tsv", "# nothing\n\n");
    let no_rows = folder.file("none.npy", npy("<i8", "(0, 2)", &[]));
    for path in [&empty, &comments, &no_rows] {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_contains(&message(open(std::slice::from_ref(path))), &[name, "no edges"]);
    }
    // Cluster programs write empty files among others.
    let some = folder.file("some.tsv", "1 2\n");
    let rows = folder.file("some.npy", npy("<i4", "(1, 2)", &[0; 8]));
    assert_eq!(open(&[no_rows, rows]).unwrap().edges_hint(), Some(1));
    let source = open(&[empty.clone(), some, comments]).unwrap();
    assert_eq!(read(&source, 1).unwrap().edges, [(1, 2)]);
    assert_contains(&message(open(&[folder.0.path().join("absent")])), &["cannot open", "absent"]);
    assert_contains(&message(open(&[folder.0.path().to_owned()])), &["a folder, not a file"]);
    assert_contains(&message(open(&["/dev/null".into()])), &["/dev/null", "a device"]);
    assert_contains(&message(open(&[])), &["--edges"]);
}

#[test]
fn truncated_and_damaged_compressed_files_are_named() {
    let folder = Folder::new();
    let text: String = (0..200_000).map(|n: u64| format!("{} {}\n", n * 7919 % 99_991, n * 104_729 % 65_537)).collect();
    for (name, packed, kind) in [("a.gz", gzip(text.as_bytes()), "gzip"), ("a.zst", zstd(text.as_bytes()), "Zstandard")]
    {
        let options = EdgeSourceOptions { block_bytes: 1 << 16, ..Default::default() };
        let whole = folder.file(name, &packed);
        assert_eq!(read_path(&whole, options.clone()).unwrap().edges.len(), 200_000);
        for cut in [packed.len() - 1, packed.len() - 9, packed.len() / 2] {
            let path = folder.file(name, &packed[..cut]);
            assert_contains(&message(read_path(&path, options.clone())), &[name, kind, "ends too early", "truncated"]);
        }
        let mut damaged = packed.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0xa5);
        let path = folder.file(name, &damaged);
        // Damaged data may unpack to a bad line before its checksum is verified.
        assert_contains(&message(read_path(&path, options)), &[name]);
    }
}

#[test]
fn several_compressed_files_are_read_by_several_threads() {
    let folder = Folder::new();
    let mut expected = Vec::new();
    let paths: Vec<_> = (0..5_u64)
        .map(|file| {
            let text: String = (0..3000).map(|n| format!("{file} {n}\n")).collect();
            expected.extend((0..3000).map(|n| (file, n)));
            folder.file(&format!("{file}.gz"), gzip(text.as_bytes()))
        })
        .collect();
    let options = EdgeSourceOptions { block_bytes: 1000, ..Default::default() };
    let source = EdgeSource::open(&paths, options).unwrap();
    assert_eq!(read(&source, 4).unwrap().edges, expected);
}

#[test]
fn real_edge_lists_agree_in_text_and_array() {
    // The bundled graph exists only as text, so its array is written here.
    let text = std::fs::read_to_string(cora().join("edges.tsv")).unwrap();
    let ids: Vec<i64> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.split('\t').map(|id| id.parse().unwrap()))
        .collect();
    let folder = Folder::new();
    let array = folder.file("edges.npy", npy("<i8", "(5278, 2)", &le(&ids, i64::to_le_bytes)));
    let array = EdgeSource::open(&[array], skipping(1 << 12)).unwrap();
    let array = read(&array, 2).unwrap();
    assert_eq!(array.edges.len(), 5278);
    let text = EdgeSource::open(&[cora().join("edges.tsv")], skipping(1 << 12)).unwrap();
    assert_eq!(read(&text, 2).unwrap().edges, array.edges);

    for (name, count) in [("debian-bookworm", 321_812), ("wordnet", 361_638)] {
        let Some(data) = real_data(name) else { continue };
        let options = EdgeSourceOptions { block_bytes: 1 << 16, ..Default::default() };
        let array = EdgeSource::open(&[data.join("edges.npy")], options.clone()).unwrap();
        let array = read(&array, 2).unwrap();
        assert_eq!(array.edges.len(), count);
        let text = EdgeSource::open(&[data.join("edges.tsv.gz")], options).unwrap();
        assert_eq!(read(&text, 2).unwrap(), array);
    }
}

#[test]
fn weights_that_would_become_zero_are_refused() {
    let folder = Folder::new();
    for (weight, is_kept) in [
        ("0", true),
        ("0.0", true),
        ("-0e5", true),
        ("1e-37", true),
        ("1e-300", false),
        ("-1e-300", false),
        ("4e-60", false),
        ("0.00000000000000000000000000000000000000000000000000001", false),
        ("1e39", false),
    ] {
        // Plain lines, and lines with another order of columns.
        for text in [format!("1 2 {weight}\n"), format!("weight,src,dst\n{weight},1,2\n")] {
            let path = folder.file("w.txt", &text);
            let found = EdgeSource::open(&[path], EdgeSourceOptions::default()).and_then(|source| read(&source, 1));
            match is_kept {
                true => assert_eq!(found.unwrap().edges, [(1, 2)], "{text}"),
                false => assert_contains(&message(found), &["w.txt:", "weight is", "32-bit float"]),
            }
        }
        let edges = folder.file("e.u64", le(&[1_u64, 2], u64::to_le_bytes));
        let numbers = le(&[weight.parse::<f64>().unwrap()], f64::to_le_bytes);
        let weights = Some(folder.file("w.npy", npy("<f8", "(1,)", &numbers)).into());
        let options = EdgeSourceOptions { weights, ..Default::default() };
        let found = EdgeSource::open(&[edges], options).and_then(|source| read(&source, 1));
        match is_kept {
            true => assert_eq!(found.unwrap().edges, [(1, 2)], "{weight}"),
            false => assert_contains(&message(found), &["e.u64 at row 0", "weight is", "32-bit float"]),
        }
    }
}
