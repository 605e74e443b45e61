//! Slices without the edges from other chunks.

use std::path::Path;

use grappa_formats::{ChunkId, NodeId, aggregates::AggregateKind};
use grappa_io::{container::ClosedFile, progress::Silent};
use grappa_storage::{Store, aggregates::Aggregates};

use super::{
    aggregates::OPTIONS,
    sample::{CHUNKS, NODES, Sample},
};
use crate::{
    derive::preaggregate::preaggregate,
    place::{PlaceOptions, Placed, SliceEdges, place},
    verify::verify,
};

fn options(out: &Path, edges: SliceEdges) -> PlaceOptions {
    PlaceOptions {
        chunks: vec![0..=0, 2..=2],
        edges,
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
    let [of_store, of_slice] =
        [&store, &slice].map(|store| Aggregates::open(store, AggregateKind::Mean).unwrap().unwrap());
    for (chunk, (expected, found)) in of_store.files().iter().zip(of_slice.files()).enumerate() {
        let payload = |file: &Option<ClosedFile>| {
            let file = file.as_ref()?.open().unwrap();
            Some(file.read_payload().unwrap())
        };
        let expected = payload(expected).filter(|_| chunk != 1);
        assert_eq!(payload(found), expected, "chunk {chunk}");
    }
}
