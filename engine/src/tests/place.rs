//! Slices without the edges from other chunks, and with the features of the chunks that these come from.

use std::{fs, path::Path};

use grappa_formats::{ChunkId, NodeId, aggregates::AggregateKind};
use grappa_io::{container::ClosedFile, progress::Silent};
use grappa_storage::{Store, aggregates::Aggregates};

use super::{
    aggregates::OPTIONS,
    sample::{CHUNKS, DIM, NODES, Sample},
};
use crate::{
    aggregate::{NodeRows, StoreFeatures},
    derive::preaggregate::preaggregate,
    info::info,
    place::{PlaceOptions, Placed, SliceEdges, place},
    verify::verify,
};

fn options(out: &Path, edges: SliceEdges) -> PlaceOptions {
    PlaceOptions {
        chunks: vec![0..=0, 2..=2],
        edges,
        halo_features: edges == SliceEdges::All,
        out: out.to_owned(),
        copy: false,
        threads: 2,
        resume: false,
    }
}

/// A store with weights and pre-aggregated features.
fn whole(folder: &Path) -> Store {
    let store = Store::open(&Sample::ALL_PARTS.write(folder)).unwrap();
    preaggregate(&store, &OPTIONS, &Silent).unwrap();
    store
}

fn problems(store: &Path) -> Vec<String> {
    let report = verify(store, 2, &Silent).unwrap();
    report.problems.into_iter().map(|problem| problem.what).collect()
}

#[test]
fn a_slice_keeps_the_edges_between_its_chunks_and_all_aggregates_of_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let store = whole(folder.path());
    let path = folder.path().join("slice");
    let placed: Placed = place(&store, &options(&path, SliceEdges::Inside), &Silent).unwrap();
    assert_eq!(problems(&path), [""; 0]);

    let slice = Store::open(&path).unwrap();
    assert!(slice.missing_features().is_empty());
    let is_present = |node| slice.is_present(store.chunks().chunk_of(NodeId(node)));
    let (mut kept, mut left_out) = (0, 0);
    for chunk in [0, 2].map(ChunkId) {
        let files = slice.chunk(chunk).unwrap();
        let (rows, weights) = (files.rows(), files.weights().unwrap());
        for (row, node) in store.chunks().range(chunk).enumerate() {
            let (inside, outside): (Vec<u64>, Vec<u64>) = Sample::sources(node)
                .into_iter()
                .partition(|&source| is_present(source));
            let found: Vec<u64> = rows.row(row as u64).unwrap().iter().collect();
            assert_eq!(found, inside, "node {node}");
            let mut found = vec![0.0; inside.len()];
            weights
                .copy(weights.range(row as u64, &rows).unwrap(), &mut found)
                .unwrap();
            let expected: Vec<f32> = inside.iter().map(|&source| Sample::weight(node, source)).collect();
            assert_eq!(found, expected, "node {node}");
            kept += inside.len() as u64;
            left_out += outside.len() as u64;
        }
    }
    assert_eq!((placed.edges, placed.edges_left_out), (kept, left_out));
    assert_eq!((placed.nodes, placed.chunks_present), (NODES, CHUNKS - 1));

    assert_eq!(placed.aggregates, ["mean"]);
    let [of_store, of_slice] = [&store, &slice].map(aggregates);
    assert_eq!(of_slice, [of_store[0].clone(), None, of_store[2].clone()]);
}

/// The payload of each file of pre-aggregated features.
fn aggregates(store: &Store) -> Vec<Option<Vec<u8>>> {
    let opened = Aggregates::open(store, AggregateKind::Mean).unwrap().unwrap();
    let payload = |file: &Option<ClosedFile>| Some(file.as_ref()?.open().unwrap().read_payload().unwrap());
    opened.files().iter().map(payload).collect()
}

#[test]
fn a_slice_with_halo_features_has_the_feature_rows_of_all_sources() {
    let folder = tempfile::tempdir().unwrap();
    let store = whole(folder.path());
    let path = folder.path().join("slice");
    let placed = place(&store, &options(&path, SliceEdges::All), &Silent).unwrap();
    assert_eq!((placed.chunks_present, placed.chunks_halo), (CHUNKS - 1, 1));
    assert_eq!(placed.edges_left_out, 0);
    assert_eq!(problems(&path), [""; 0]);

    let slice = Store::open(&path).unwrap();
    let described = info(&slice, 2, &Silent).unwrap();
    assert_eq!((described.chunks_present, described.chunks_halo), (CHUNKS - 1, 1));
    assert!(slice.missing_features().is_empty());
    assert_eq!(slice.missing_sources(), [ChunkId(1)]);
    assert!(!slice.is_present(ChunkId(1)));
    assert!(slice.chunk(ChunkId(1)).is_err());
    assert_eq!(aggregates(&slice), aggregates(&store));
    let rows = |store: &Store| {
        let mut rows = vec![0.0; NODES as usize * DIM as usize];
        StoreFeatures::open(store).unwrap().read(0..NODES, &mut rows).unwrap();
        rows
    };
    assert_eq!(rows(&slice), rows(&store));

    // A slice of the slice has what it has.
    let part = folder.path().join("part");
    let of_part = PlaceOptions {
        chunks: vec![2..=2],
        ..options(&part, SliceEdges::All)
    };
    let placed = place(&slice, &of_part, &Silent).unwrap();
    assert_eq!((placed.chunks_present, placed.chunks_halo), (1, 2));
    assert_eq!(problems(&part), [""; 0]);
    assert_eq!(rows(&Store::open(&part).unwrap()), rows(&store));
}

#[test]
fn damage_to_halo_features_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = whole(folder.path());
    let path = folder.path().join("slice");
    let copied = PlaceOptions {
        copy: true,
        ..options(&path, SliceEdges::All)
    };
    place(&store, &copied, &Silent).unwrap();
    let features = path.join("chunk-1/features");
    let mut bytes = fs::read(&features).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&features, &bytes).unwrap();
    assert_eq!(problems(&path).len(), 1);
    fs::remove_file(&features).unwrap();
    assert!(Store::open(&path).unwrap_err().to_string().contains("chunk-1/features"));
}

#[test]
fn chunks_and_features_that_cannot_be_placed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = whole(folder.path());
    let inside = PlaceOptions {
        halo_features: true,
        ..options(&folder.path().join("inside"), SliceEdges::Inside)
    };
    let error = place(&store, &inside, &Silent).unwrap_err().to_string();
    assert!(error.contains("--edges inside"), "{error}");

    let everything = PlaceOptions {
        chunks: vec![0..=u32::MAX],
        ..options(&folder.path().join("everything"), SliceEdges::All)
    };
    let error = place(&store, &everything, &Silent).unwrap_err().to_string();
    assert!(error.contains("there is no chunk 4294967295"), "{error}");

    // A slice without them cannot give them on.
    let path = folder.path().join("slice");
    let without = PlaceOptions {
        halo_features: false,
        ..options(&path, SliceEdges::All)
    };
    place(&store, &without, &Silent).unwrap();
    let of_slice = PlaceOptions {
        chunks: vec![2..=2],
        ..options(&folder.path().join("part"), SliceEdges::All)
    };
    let error = place(&Store::open(&path).unwrap(), &of_slice, &Silent)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("only the features of the chunks 0, 2, not chunk 1"),
        "{error}"
    );
}
