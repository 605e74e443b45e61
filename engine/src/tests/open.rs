use std::fs;

use grappa_formats::{
    ChunkId, NodeId,
    manifest::{ExternalIds, PermutationSpec},
};
use grappa_io::{map::Access, progress::Silent};
use grappa_storage::{ExternalId, Store};

use super::sample::{NODES, Sample, in_folder};
use crate::info::info;

fn open_error(path: &std::path::Path) -> String {
    Store::open(path).unwrap_err().to_string()
}

#[test]
fn a_store_gives_back_what_was_written() {
    let (_folder, store) = in_folder(|folder| Store::open(&Sample::ALL_PARTS.write(folder)).unwrap());
    for chunk in store.present_chunks() {
        let (labels, features) =
            (store.labels(chunk, Access::Random).unwrap().unwrap(), store.features(chunk).unwrap().unwrap());
        let chunk = store.chunk(chunk).unwrap();
        let (rows, weights) = (chunk.rows(), chunk.weights().unwrap());
        let edge_features = chunk.edge_features().unwrap();
        for row in 0..rows.rows() {
            let node = chunk.span().first_node.0 + row;
            let sources: Vec<_> = rows.row(row).unwrap().iter().collect();
            assert_eq!(sources, Sample::sources(node));
            let mut found = vec![0.0; sources.len()];
            weights.copy(weights.range(row, &rows).unwrap(), &mut found).unwrap();
            let expected: Vec<_> = sources.iter().map(|&source| Sample::weight(node, source)).collect();
            assert_eq!(found, expected);
            let mut found = vec![0.0; 2 * sources.len()];
            let range = edge_features.range(row, &rows).unwrap();
            edge_features.copy(range, &mut found).unwrap();
            let of_edges = sources.iter().flat_map(|&source| Sample::edge_features(node, source));
            assert_eq!(found, of_edges.collect::<Vec<_>>());
            assert_eq!(labels.single(row).unwrap(), Sample::class(node));
            let mut values = [0.0; 5];
            features.meta().layout.decode_row(features.row(row).unwrap(), &mut values);
            for (i, value) in (0..).zip(values) {
                assert!((value - Sample::feature(node, i)).abs() < 0.11, "{value} of node {node}");
            }
        }
    }
    let train = store.split("train").unwrap().unwrap();
    assert_eq!(train.iter().collect::<Vec<_>>(), (0..NODES).step_by(5).collect::<Vec<_>>());
    assert_eq!(store.assignment().partitions(), 1);
}

#[test]
fn every_node_has_an_external_id_and_finds_the_way_back() {
    for ids in [ExternalIds::Dense, ExternalIds::Sparse, ExternalIds::String] {
        for permutation in [PermutationSpec::Identity, PermutationSpec::Feistel(3), PermutationSpec::Table] {
            let folder = tempfile::tempdir().unwrap();
            let sample = Sample { ids, permutation, ..Sample::ALL_PARTS };
            let store = Store::open(&sample.write(folder.path())).unwrap();
            for node in (0..NODES).map(NodeId) {
                let id = store.external_id(node).unwrap();
                assert_eq!(store.node(&id).unwrap(), Some(node), "{id}");
            }
            if permutation == PermutationSpec::Table {
                let expected = match ids {
                    ExternalIds::Dense => ExternalId::Integer(20),
                    ExternalIds::Sparse => ExternalId::Integer(Sample::sparse_id(20)),
                    ExternalIds::String => ExternalId::String(Sample::string_id(20).into()),
                };
                let node = NodeId(Sample::table_node(20));
                assert_eq!(store.external_id(node).unwrap(), expected);
            }
            assert_eq!(store.node(&ExternalId::Integer(u64::MAX)).unwrap(), None);
            assert_eq!(store.node(&ExternalId::String(b"node".to_vec())).unwrap(), None);
        }
    }
}

#[test]
fn paths_without_a_store_have_distinct_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert!(open_error(&path.join("none.grappa")).contains("no such store"));
    assert!(open_error(path).contains("has no file `manifest`"));
    fs::write(path.join("file"), "x").unwrap();
    assert!(open_error(&path.join("file")).contains("this is a file"));
    fs::create_dir(path.join("half.grappa.partial")).unwrap();
    for name in ["half.grappa", "half.grappa.partial"] {
        let error = open_error(&path.join(name));
        assert!(error.contains("not finished") && error.contains("--resume"), "{error}");
    }
}

#[test]
fn files_that_are_missing_cut_or_swapped_are_found_at_open() {
    let (_folder, path) = in_folder(|folder| Sample::ALL_PARTS.write(folder));
    let store = Store::open(&path).unwrap();
    let mut files: Vec<_> = store.manifest().files.iter().map(|file| file.path.clone()).collect();
    files.extend(["assignments/0".into(), "assignments/CURRENT".into()]);
    for file in &files {
        let whole = path.join(file);
        let bytes = fs::read(&whole).unwrap();
        fs::remove_file(&whole).unwrap();
        let error = open_error(&path);
        assert!(error.contains(file) && error.contains("missing"), "{error}");
        for cut in [bytes.len() - 1, 70, 10, 0] {
            if cut < bytes.len() {
                fs::write(&whole, &bytes[..cut]).unwrap();
                let error = open_error(&path);
                assert!(error.contains(file), "{file} cut at {cut}: {error}");
            }
        }
        fs::write(&whole, &bytes).unwrap();
    }
    for name in ["edges", "degrees", "weights", "features", "labels"] {
        let (a, b) = (path.join("chunk-0").join(name), path.join("chunk-1").join(name));
        let swap = || {
            let bytes = fs::read(&a).unwrap();
            fs::copy(&b, &a).unwrap();
            fs::write(&b, bytes).unwrap();
        };
        swap();
        let error = open_error(&path);
        assert!(error.contains("chunk-0") && error.contains(name), "{error}");
        swap();
    }
    Store::open(&path).unwrap();
}

#[test]
fn a_newer_store_says_which_program_reads_it() {
    let (_folder, path) = in_folder(|folder| Sample::ALL_PARTS.write(folder));
    let manifest = path.join("manifest");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[12] = 9;
    fs::write(&manifest, bytes).unwrap();
    let error = open_error(&path);
    assert!(error.contains("manifest: format version 9 is newer"), "{error}");
}

#[test]
fn a_chunk_that_a_slice_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let slice = Sample { without: Some(1), ..Sample::ALL_PARTS };
    let store = Store::open(&slice.write(folder.path())).unwrap();
    assert_eq!(store.present_chunks().collect::<Vec<_>>(), [ChunkId(0), ChunkId(2)]);
    let error = store.chunk(ChunkId(1)).unwrap_err().to_string();
    assert!(error.contains("not chunk 1") && error.contains("--only-chunks"), "{error}");
    let error = store.chunk(ChunkId(3)).unwrap_err().to_string();
    assert!(error.contains("there is no chunk 3; the store has 3"), "{error}");
}

#[test]
fn the_description_counts_what_is_there() {
    let (_folder, path) = in_folder(|folder| Sample::ALL_PARTS.write(folder));
    let store = Store::open(&path).unwrap();
    let info = info(&store, 2, &Silent).unwrap();

    let degrees: Vec<_> = (0..NODES).map(|node| Sample::sources(node).len() as u64).collect();
    assert_eq!((info.nodes, info.edges), (NODES, degrees.iter().sum()));
    assert_eq!(Some(info.degree_max), degrees.iter().copied().max());
    for bucket in &info.degree_histogram {
        let nodes = degrees.iter().filter(|d| (bucket.from..=bucket.to).contains(d)).count();
        assert_eq!(bucket.nodes, nodes as u64, "{bucket:?}");
    }
    assert_eq!(info.degree_histogram.iter().map(|b| b.nodes).sum::<u64>(), NODES);
    assert_eq!(info.splits.val, Some(30));
    assert_eq!((info.classes, info.labels), (Some(4), Some("single")));
    assert_eq!(info.feature_names, ["f0", "f1", "f2", "f3", "f4"]);
    assert_eq!(info.class_names, ["red", "green", "blue", "none"]);

    let folders = ["", "chunk-0", "chunk-1", "chunk-2", "ids", "splits", "assignments"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(path.join(folder)).unwrap());
    let lengths = files.map(|file| file.unwrap().metadata().unwrap()).filter(|m| m.is_file());
    assert_eq!(info.bytes.total, lengths.map(|m| m.len()).sum::<u64>());
}
