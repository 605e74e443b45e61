//! Tests of edges in archives and Parquet files, and of OGB folders.

use std::sync::Arc;

use ::parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, Int32Type},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};
use grappa_formats::{dictionary::KEY_BYTES_MAX, features::ElementType};
use grappa_io::Position;

use super::{
    tables::{Column, table_of_groups},
    *,
};
use crate::ogb::OgbLayout;

#[test]
fn edges_in_archives_are_read_stored_and_deflated_and_beyond_four_gigabytes() {
    let folder = Folder::new();
    let sources: Vec<i64> = (0..5000).collect();
    let targets: Vec<i64> = (0..5000).map(|n| n * 31 % 977).collect();
    let expected: Vec<(u64, u64)> = sources.iter().zip(&targets).map(|(&u, &v)| (u as u64, v as u64)).collect();
    let halves = npy("<i8", "(2, 5000)", &le(&[sources.clone(), targets.clone()].concat(), i64::to_le_bytes));
    let pairs: Vec<i64> = sources.iter().zip(&targets).flat_map(|(&u, &v)| [u, v]).collect();
    let pairs = npy("<i8", "(5000, 2)", &le(&pairs, i64::to_le_bytes));
    let other = npy("<f4", "(1,)", &1_f32.to_le_bytes());
    for (edges, name) in [(halves, "edge_index"), (pairs, "edges")] {
        for (deflated, zip64) in [(false, false), (true, false), (false, true), (true, true)] {
            let path =
                folder.file("data.npz", npz(&[("node_feat", other.clone()), (name, edges.clone())], deflated, zip64));
            for block_bytes in [16, 1000, 1 << 20] {
                let options = EdgeSourceOptions { block_bytes, ..Default::default() };
                let source = EdgeSource::open(std::slice::from_ref(&path), options).unwrap();
                assert_eq!(source.edges_hint(), Some(5000));
                assert_eq!(read(&source, 3).unwrap().edges, expected);
            }
        }
    }
}

#[test]
fn an_edge_index_of_two_edges_has_its_sources_in_the_first_row() {
    let folder = Folder::new();
    let square = npy("<i8", "(2, 2)", &le(&[0_i64, 1, 2, 3], i64::to_le_bytes));
    for (name, expected, warnings) in [("edge_index", [(0, 2), (1, 3)], 0), ("edges", [(0, 1), (2, 3)], 1)] {
        let path = folder.file("square.npz", npz(&[(name, square.clone())], false, false));
        let source = EdgeSource::open(&[path], EdgeSourceOptions::default()).unwrap();
        assert_eq!(read(&source, 1).unwrap().edges, expected);
        assert_eq!(source.warnings().len(), warnings, "{name}");
    }
}

#[test]
fn archives_that_are_damaged_or_hold_no_edges_are_refused() {
    let folder = Folder::new();
    let open = |path: PathBuf| message(EdgeSource::open(&[path], EdgeSourceOptions::default()));
    let array = npy("<i8", "(1, 2)", &le(&[1_i64, 2], i64::to_le_bytes));
    let whole = npz(&[("a", array.clone()), ("b", array.clone())], false, false);
    assert_contains(&open(folder.file("e.npz", &whole)), &["e.npz", "edge_index or edges", "found a, b"]);
    let whole = npz(&[("edges", array)], false, true);
    for cut in 4..whole.len() {
        assert_contains(&open(folder.file("e.npz", &whole[..cut])), &["e.npz"]);
    }
    let mut deflated = npz(&[("edges", npy("<i8", "(4000, 2)", &vec![3; 64_000]))], true, false);
    deflated[100..120].fill(0xff);
    let path = folder.file("e.npz", deflated);
    let result = EdgeSource::open(&[path], EdgeSourceOptions::default()).and_then(|source| read(&source, 1));
    assert_contains(&message(result), &["e.npz", "member edges"]);
}

#[test]
fn no_flipped_byte_of_an_array_makes_a_reader_panic() {
    let folder = Folder::new();
    let array = npy("<i8", "(2, 2)", &le(&[1_i64, 2, 3, 4], i64::to_le_bytes));
    for at in 0..array.len() {
        for flip in [0xff, 0x01, 0x80] {
            let mut flipped = array.clone();
            flipped[at] ^= flip;
            let path = folder.file("e", flipped);
            // The format has no checksums, so any result but a panic is accepted.
            let _ = EdgeSource::open(&[path], EdgeSourceOptions::default()).and_then(|source| read(&source, 1));
        }
    }
}

/// Rows of a Parquet file: source, target, weight. None is a missing value.
type Rows<'a> = &'a [(Option<i64>, Option<i64>, Option<f64>)];

/// Writes row groups of three columns, beside an index of pandas. Sources have 64 bits, targets 32.
fn parquet_file(names: [&str; 3], groups: &[Rows<'_>], compression: Compression) -> Vec<u8> {
    let rows = groups.concat();
    let columns = [
        ("__index_level_0__", Column::Text(vec![None; rows.len()])),
        (names[0], Column::I64(rows.iter().map(|row| row.0).collect())),
        (names[1], Column::I32(rows.iter().map(|row| row.1.map(|id| id as i32)).collect())),
        (names[2], Column::F64(rows.iter().map(|row| row.2).collect())),
    ];
    let mut end = 0;
    let groups = groups.iter().map(|rows| {
        end += rows.len();
        end - rows.len()..end
    });
    table_of_groups(&columns, &groups.collect::<Vec<_>>(), compression)
}

#[test]
fn parquet_is_read_under_every_codec_and_block_size() {
    let folder = Folder::new();
    let rows: Vec<_> = (0..100).map(|n| (Some(n), Some(n * 3), Some(n as f64 / 2.0))).collect();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4_RAW,
    ];
    for codec in codecs {
        let file = parquet_file(["src", "dst", "weight"], &[&rows[..60], &[], &rows[60..]], codec);
        let path = folder.file("edges.parquet", file);
        for block_bytes in [16, 200, 1 << 20] {
            let options = EdgeSourceOptions { block_bytes, ..Default::default() };
            let source = EdgeSource::open(std::slice::from_ref(&path), options).unwrap();
            assert_eq!((source.edges_hint(), source.weighted()), (Some(100), true));
            let read = read(&source, 2).unwrap();
            assert_eq!(read.edges, (0..100).map(|n| (n, n * 3)).collect::<Vec<_>>());
            assert_eq!(read.values, (0..100).map(|n| n as f32 / 2.0).collect::<Vec<_>>());
        }
    }
}

#[test]
fn parquet_columns_are_found_by_name_or_named_by_the_user() {
    let folder = Folder::new();
    let rows = [(Some(1), Some(2), Some(0.5))];
    let open = |names, columns| {
        let path = folder.file("edges.parquet", parquet_file(names, &[&rows], Compression::SNAPPY));
        let options = EdgeSourceOptions { columns, ..Default::default() };
        EdgeSource::open(&[path], options)
    };
    let named = EdgeColumnOptions { source: Some("b".to_owned()), target: Some("a".to_owned()), ..Default::default() };
    let weighted_by_score = EdgeColumnOptions { weight: Some("score".to_owned()), ..Default::default() };
    for (names, columns, edge, weighted) in grappa_skip::cases![
        ["to", "From", "Weight"], EdgeColumnOptions::default(), (2, 1), true;
        ["target_id", "source_id", "score"], weighted_by_score, (2, 1), true;
        ["a", "b", "c"], named, (2, 1), false;
    ] {
        let source = open(names, columns).unwrap();
        assert_eq!(source.weighted(), weighted);
        assert_eq!(read(&source, 1).unwrap().edges, [edge]);
        assert_eq!(source.warnings(), [""; 0]);
    }
    let error = message(open(["a", "b", "c"], EdgeColumnOptions::default()));
    assert_contains(&error, &["edges.parquet", "--src a --dst b", "there are a, b, c"]);
}

#[test]
fn the_number_of_a_row_may_be_either_end() {
    let folder = Folder::new();
    let paths = [("a.parquet", [5, 7, 5]), ("b.parquet", [8, 9, 8])].map(|(name, keys)| {
        let rows = keys.map(|key| (Some(key), Some(1), Some(0.5)));
        folder.file(name, parquet_file(["key", "other", "more"], &[&rows[..2], &rows[2..]], Compression::SNAPPY))
    });
    let key = || Some("key".to_owned());
    let ends = [
        EdgeColumnOptions { row_end: Some(EdgeEnd::Source), target: key(), ..Default::default() },
        EdgeColumnOptions { row_end: Some(EdgeEnd::Target), source: key(), ..Default::default() },
    ];
    let rows_first = [(0, 5), (1, 7), (2, 5), (3, 8), (4, 9), (5, 8)];
    for (columns, is_source) in ends.into_iter().zip([true, false]) {
        let expected = rows_first.map(|(row, key)| if is_source { (row, key) } else { (key, row) });
        for block_bytes in [16, 32, 1 << 20] {
            let options = EdgeSourceOptions { columns: columns.clone(), block_bytes, ..Default::default() };
            let source = EdgeSource::open(&paths, options).unwrap();
            assert_eq!(read(&source, 1).unwrap().edges, expected);
            let role = if is_source { "target key" } else { "source key" };
            assert_contains(&source.readings()[0].to_string(), &[&format!("Parquet; {role}; left out")]);
        }
        let columns = EdgeColumnOptions { source: None, target: None, ..columns };
        let error = message(EdgeSource::open(&paths, EdgeSourceOptions { columns, ..Default::default() }));
        assert_contains(&error, &["a.parquet", if is_source { "give --dst" } else { "give --src" }]);
    }
}

#[test]
fn bad_parquet_rows_are_errors_or_rejects() {
    let folder = Folder::new();
    let rows = [
        (Some(1), Some(2), Some(0.5)),
        (None, Some(2), Some(0.5)),
        (Some(3), None, Some(0.5)),
        (Some(4), Some(-5), Some(0.5)),
        (Some(5), Some(6), Some(f64::NAN)),
        (Some(1 << 40), Some(6), Some(0.5)),
        (Some(7), Some(8), Some(1.5)),
        (Some(9), Some(10), None),
    ];
    let file = parquet_file(["src", "dst", "weight"], &[&rows[..3], &rows[3..]], Compression::SNAPPY);
    let path = folder.file("edges.parquet", file);
    assert_contains(
        &message(read_path(&path, EdgeSourceOptions::default())),
        &["edges.parquet at row 1: a value is missing", "--on-bad-line skip"],
    );
    for block_bytes in [16, 32, 1 << 20] {
        let read = read_path(&path, skipping(block_bytes)).unwrap();
        assert_eq!(read.edges, [(1, 2), (7, 8)]);
        assert_eq!(read.values, [0.5, 1.5]);
        let bad: Vec<_> = read.rejected.iter().map(|reject| (reject.position, reject.reason)).collect();
        let expected = [
            (1, BadEdge::NullId),
            (2, BadEdge::NullId),
            (3, BadEdge::Negative),
            (4, BadEdge::WeightNotFinite),
            (5, BadEdge::TooLarge(IdLimit::Dense)),
            (7, BadEdge::Null),
        ];
        assert_eq!(bad, expected.map(|(row, reason)| (Position::Row(row), reason)));
    }
}

/// Parquet stores unsigned integers in signed ones of the same size.
#[test]
fn unsigned_parquet_weights_are_not_negative() {
    let folder = Folder::new();
    let schema = "message edges { required int32 src; required int32 dst; required int32 weight (uint_32); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for values in [[0, 1], [1, 2], [5, 3_000_000_000_u32.cast_signed()]] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let path = folder.file("edges.parquet", file);
    let source = EdgeSource::open(&[path], EdgeSourceOptions::default()).unwrap();
    let mut batch = EdgeBatch::default();
    source.next_block(&|_| false).unwrap().unwrap().parse(&mut batch, &mut |_| Ok(())).unwrap();
    assert_eq!(batch.values, [5.0, 3e9]);
}

#[test]
fn parquet_strings_are_keys() {
    let folder = Folder::new();
    let schema = "message edges { required binary src (utf8); optional binary dst (utf8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let (longest, longer) = ("l".repeat(KEY_BYTES_MAX), "l".repeat(KEY_BYTES_MAX + 1));
    let keys = ["x", "y", "", "zé", &longer, &longest].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&keys, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let keys = ["one", "three", "four", "five", "six"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&keys, Some(&[1, 0, 1, 1, 1, 1]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let path = folder.file("edges.parquet", file);
    for block_bytes in [16, 1 << 20] {
        let options = EdgeSourceOptions { ends: EndIds::both(IdKind::String, IdLimit::Dense), ..skipping(block_bytes) };
        let source = EdgeSource::open(std::slice::from_ref(&path), options).unwrap();
        let mut batch = TextBatch::default();
        let (mut edges, mut rejected) = (Vec::new(), Vec::new());
        while let Some(block) = source.next_block(&|_| false).unwrap() {
            let mut on_reject = |reject: Reject| {
                rejected.push((reject.position, reject.reason));
                Ok(())
            };
            block.parse_text(&mut batch, &mut on_reject).unwrap();
            let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
            edges.extend(batch.sources.iter().zip(batch.targets.iter()).map(|(u, v)| (text(u), text(v))));
        }
        let expected = [("x", "one"), ("zé", "four"), (longest.as_str(), "six")];
        assert_eq!(edges, expected.map(|(u, v)| (u.to_owned(), v.to_owned())));
        let expected = [(1, BadEdge::NullId), (2, BadEdge::EmptySource), (4, BadEdge::LongId)];
        assert_eq!(rejected, expected.map(|(row, reason)| (Position::Row(row), reason)));
    }
    let error = message(EdgeSource::open(&[path], EdgeSourceOptions::default()));
    assert_contains(&error, &["edges.parquet", "integers in column src (Utf8)", "--ids string"]);
}

#[test]
fn parquet_that_is_truncated_flipped_or_of_other_types_is_an_error() {
    let folder = Folder::new();
    let rows: Vec<_> = (0..40).map(|n| (Some(n), Some(n + 1), Some(0.5))).collect();
    for codec in [Compression::UNCOMPRESSED, Compression::ZSTD(ZstdLevel::default())] {
        let whole = parquet_file(["src", "dst", "weight"], &[&rows[..20], &rows[20..]], codec);
        for cut in (4..whole.len()).step_by(13) {
            let path = folder.file("edges.parquet", &whole[..cut]);
            assert_contains(&message(EdgeSource::open(&[path], EdgeSourceOptions::default())), &["edges.parquet"]);
        }
        for (at, flip) in (4..whole.len()).zip([0xff, 0x01, 0x80, 0x10, 0x02].into_iter().cycle()) {
            let mut flipped = whole.clone();
            flipped[at] ^= flip;
            let path = folder.file("edges.parquet", flipped);
            // Any result but a panic is accepted.
            let _ = EdgeSource::open(&[path], skipping(1 << 10)).and_then(|source| read(&source, 1));
        }
    }
    let strings = EdgeSourceOptions { ends: EndIds::both(IdKind::String, IdLimit::Dense), ..Default::default() };
    let path = folder.file("edges.parquet", parquet_file(["src", "dst", "weight"], &[&rows], Compression::SNAPPY));
    assert_contains(&message(EdgeSource::open(&[path], strings)), &["expected strings", "src (Int64)"]);
}

#[test]
fn an_ogb_folder_of_text_is_discovered() {
    let folder = Folder::new();
    let gz = |name: &str, text: &str| folder.file(name, gzip(text.as_bytes()));
    let edges = gz("raw/edge.csv.gz", "0,1\n2,1\n");
    let nodes = gz("raw/num-node-list.csv.gz", "4\n");
    let features = gz("raw/node-feat.csv.gz", "0.5,1\n1,1\n2,nan\n-1e-3,4\n");
    let labels = gz("raw/node-label.csv.gz", "3\nnan\n\n0\n");
    let train = gz("split/time/train.csv.gz", "0\n3\n");
    let valid = gz("split/time/valid.csv.gz", "1\n");
    let test = gz("split/time/test.csv.gz", "2\n");
    let layout = ogb::discover(folder.0.path(), true).unwrap();
    let expected = OgbLayout {
        edges: vec![edges],
        nodes: Some(4),
        nodes_file: Some(nodes),
        features: Some(features.clone()),
        labels: Some(labels.clone()),
        train: Some(train.clone()),
        valid: Some(valid),
        test: Some(test),
    };
    assert_eq!(layout, expected);
    let source = EdgeSource::open(&layout.edges, EdgeSourceOptions::default()).unwrap();
    assert_eq!(read(&source, 1).unwrap().edges, [(0, 1), (2, 1)]);
    let mut matrix = MatrixSource::open(&features).unwrap();
    matrix.expect_rows(4, "fewer rows").unwrap();
    let mut numbers = Vec::new();
    assert_eq!(matrix.read_rows(0, 10, &mut numbers).unwrap(), 4);
    assert_eq!(numbers[6..], [-0.001, 4.0]);
    assert_eq!(matrix.non_finite(), Some(NonFinite { count: 1, row: 2, column: 1 }));
    let mut source = LabelSource::open(&labels).unwrap();
    source.expect_rows(4, "fewer rows").unwrap();
    let mut batch = LabelBatch::default();
    assert_eq!(source.read_rows(0, 10, &mut batch).unwrap(), 4);
    assert_eq!((0..4).map(|row| batch.get(row)).collect::<Vec<_>>(), [Some(&[3][..]), None, None, Some(&[0])]);
    assert_eq!(read_split_ids(&train, IdLimit::Nodes(4)).unwrap(), [0, 3]);

    std::fs::rename(folder.0.path().join("split/time/valid.csv.gz"), folder.0.path().join("split/time/val.csv.gz"))
        .unwrap();
    assert_contains(
        &message(ogb::discover(folder.0.path(), true)),
        &["split/time", "valid.csv.gz is missing", "rename or add it"],
    );
    gz("split/random/train.csv.gz", "0\n");
    assert_contains(&message(ogb::discover(folder.0.path(), true)), &["several splits (random, time)", "--train"]);
    gz("raw/num-node-list.csv.gz", "4\n5\n");
    std::fs::remove_dir_all(folder.0.path().join("split")).unwrap();
    assert_contains(&message(ogb::discover(folder.0.path(), true)), &["num-node-list.csv.gz", "several graphs"]);
}

#[test]
fn an_ogb_folder_of_archives_is_discovered() {
    let folder = Folder::new();
    let data = npz(
        &grappa_skip::cases![
            "edge_index", npy("<i8", "(2, 3)", &le(&[0_i64, 1, 2, 3, 3, 3], i64::to_le_bytes));
            "node_feat", npy("<f2", "(4, 2)", &le(&[0x3c00_u16; 8], u16::to_le_bytes));
            "num_nodes_list", npy("<i8", "(1,)", &4_i64.to_le_bytes());
            "num_edges_list", npy("<i8", "(1,)", &3_i64.to_le_bytes());
        ],
        true,
        true,
    );
    let data = folder.file("raw/data.npz", data);
    let labels = npy("<f4", "(4, 1)", &le(&[f32::NAN, 7.0, 0.0, f32::NAN], f32::to_le_bytes));
    let labels = folder.file("raw/node-label.npz", npz(&[("node_label", labels)], true, false));
    let layout = ogb::discover(folder.0.path(), true).unwrap();
    assert_eq!((layout.nodes, &layout.edges), (Some(4), &vec![data.clone()]));
    assert_eq!((layout.features.as_ref(), layout.labels.as_ref()), (Some(&data), Some(&labels)));
    let source = EdgeSource::open(&layout.edges, EdgeSourceOptions::default()).unwrap();
    assert_eq!(read(&source, 2).unwrap().edges, [(0, 3), (1, 3), (2, 3)]);
    let mut numbers = Vec::new();
    let matrix = MatrixSource::open(&data).unwrap();
    assert_eq!((matrix.rows(), matrix.dim(), matrix.dtype()), (Some(4), 2, ElementType::F16));
    assert_eq!(matrix.read_rows(0, 4, &mut numbers).unwrap(), 4);
    assert_eq!(numbers, [1.0; 8]);
    let mut batch = LabelBatch::default();
    LabelSource::open(&labels).unwrap().read_rows(0, 4, &mut batch).unwrap();
    assert_eq!((0..4).map(|row| batch.get(row)).collect::<Vec<_>>(), [None, Some(&[7][..]), Some(&[0]), None]);
}

#[test]
fn folders_that_are_no_dataset_are_refused() {
    let folder = Folder::new();
    assert_contains(&message(ogb::discover(folder.0.path(), true)), &["raw/edge.csv.gz or raw/data.npz", "--edges"]);
    assert_contains(&message(ogb::discover(&folder.0.path().join("absent"), true)), &["absent", "read the folder"]);
    folder.file("raw/triplet-type-list.csv.gz", "");
    assert_contains(&message(ogb::discover(folder.0.path(), true)), &["several types"]);
}
