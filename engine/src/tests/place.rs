//! Slices without the edges from other chunks, and with the features of the chunks that these come from.

use std::{fs, path::Path};

use grappa_formats::{ChunkId, NodeId, aggregates::AggregateKind, rows::RowCodec};
use grappa_io::{Result, container::ClosedFile, progress::Silent};
use grappa_storage::{Graph, MappedChunks, Store, aggregates::Aggregates};

use super::{
    aggregates::OPTIONS,
    sample::{CHUNKS, DIM, NODES, Sample, in_folder},
};
use crate::{
    aggregate::store_features,
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
        replace: false,
    }
}

fn place_store(store: &Store, options: &PlaceOptions, progress: &Silent) -> Result<Placed> {
    place(&Graph::open(store.path()).unwrap(), options, progress)
}

/// A store with weights and pre-aggregated features.
fn whole(folder: &Path) -> Store {
    let store = Store::open(&Sample::ALL_PARTS.write(folder)).unwrap();
    preaggregate(&store, &OPTIONS, &Silent).unwrap();
    store
}

fn problems(store: &Path) -> Vec<String> {
    let report = verify(store, 2, &Silent).unwrap();
    report.problems.into_iter().map(|problem| problem.description).collect()
}

#[test]
fn a_slice_keeps_the_edges_between_its_chunks_and_all_aggregates_of_its_nodes() {
    let (folder, store) = in_folder(whole);
    let path = folder.path().join("slice");
    let placed: Placed = place_store(&store, &options(&path, SliceEdges::Inside), &Silent).unwrap();
    assert_eq!(problems(&path), [""; 0]);

    let slice = Store::open(&path).unwrap();
    assert!(slice.missing_features().is_empty());
    assert_eq!(slice.schema().unwrap(), store.schema().unwrap());
    assert_eq!(slice.manifest().graph_digest(), store.manifest().graph_digest());
    let is_present = |node| slice.is_present(store.chunks().chunk_of(NodeId(node)));
    let (mut kept, mut left_out) = (0, 0);
    for chunk in [0, 2].map(ChunkId) {
        let files = slice.chunk(chunk).unwrap();
        let (rows, weights) = (files.rows(), files.weights().unwrap());
        for (row, node) in store.chunks().range(chunk).enumerate() {
            let (inside, outside): (Vec<u64>, Vec<u64>) =
                Sample::sources(node).into_iter().partition(|&source| is_present(source));
            let found: Vec<u64> = rows.row(row as u64).unwrap().iter().collect();
            assert_eq!(found, inside, "node {node}");
            let mut found = vec![0.0; inside.len()];
            weights.copy(weights.range(row as u64, &rows).unwrap(), &mut found).unwrap();
            let expected: Vec<f32> = inside.iter().map(|&source| Sample::weight(node, source)).collect();
            assert_eq!(found, expected, "node {node}");
            let features = files.edge_features().unwrap();
            let mut found = vec![0.0; 2 * inside.len()];
            features.copy(features.range(row as u64, &rows).unwrap(), &mut found).unwrap();
            let expected = inside.iter().flat_map(|&source| Sample::edge_features(node, source));
            assert_eq!(found, expected.collect::<Vec<f32>>(), "node {node}");
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
    let (folder, store) = in_folder(whole);
    let path = folder.path().join("slice");
    let placed = place_store(&store, &options(&path, SliceEdges::All), &Silent).unwrap();
    assert_eq!((placed.chunks_present, placed.chunks_halo), (CHUNKS - 1, 1));
    assert_eq!(placed.edges_left_out, 0);
    assert_eq!(problems(&path), [""; 0]);

    let slice = Store::open(&path).unwrap();
    let described = info(&slice, 2, &Silent).unwrap();
    assert_eq!((described.chunks_present, described.chunks_halo), (CHUNKS - 1, 1));
    assert!(slice.missing_features().is_empty());
    assert_eq!(slice.missing_sources(), [ChunkId(1)]);
    assert!(slice.missing_degrees().is_empty());
    assert_eq!(described.chunks_halo_degrees, 1);
    assert_same_degrees(&slice, &store);
    assert!(!slice.is_present(ChunkId(1)));
    assert!(slice.chunk(ChunkId(1)).is_err());
    assert_eq!(aggregates(&slice), aggregates(&store));
    let rows = |store: &Store| {
        let mut rows = vec![0.0; NODES as usize * DIM as usize];
        store_features(store).unwrap().read(0..NODES, &mut rows).unwrap();
        rows
    };
    assert_eq!(rows(&slice), rows(&store));

    // A slice of the slice has what it has.
    let part = folder.path().join("part");
    let of_part = PlaceOptions { chunks: vec![2..=2], ..options(&part, SliceEdges::All) };
    let placed = place_store(&slice, &of_part, &Silent).unwrap();
    assert_eq!((placed.chunks_present, placed.chunks_halo), (1, 2));
    assert_eq!(placed.chunks_halo_degrees, 2);
    assert_eq!(problems(&part), [""; 0]);
    let part = Store::open(&part).unwrap();
    assert_eq!(rows(&part), rows(&store));
    assert_same_degrees(&part, &store);
}

/// All nodes have the same in-degrees.
fn assert_same_degrees(slice: &Store, store: &Store) {
    let [of_slice, of_store] = [slice, store].map(|store| {
        let chunks = MappedChunks::open(store).unwrap();
        let degrees = (0..NODES).map(|node| chunks.in_degree(NodeId(node)).unwrap());
        degrees.collect::<Vec<u64>>()
    });
    assert_eq!(of_slice, of_store);
    assert!(of_store.iter().any(|&degree| degree > 0));
}

#[test]
fn in_degrees_that_are_in_adjacency_lists_are_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let local = Sample { local: true, ..Sample::ALL_PARTS };
    let store = Store::open(&local.write(folder.path())).unwrap();
    let codec = |chunk| store.chunk(ChunkId(chunk)).unwrap().rows().meta().codec;
    assert!((0..CHUNKS).all(|chunk| matches!(codec(chunk), RowCodec::Gap(_))));
    let path = folder.path().join("slice");
    let last = PlaceOptions { chunks: vec![2..=2], ..options(&path, SliceEdges::All) };
    let placed = place_store(&store, &last, &Silent).unwrap();
    assert_eq!((placed.chunks_present, placed.chunks_halo), (1, 1));
    assert_eq!(problems(&path), [""; 0]);
    let slice = Store::open(&path).unwrap();
    assert_eq!(slice.missing_sources(), [ChunkId(1)]);
    // Nothing is known of the nodes of chunk 0, which have no edges into the slice.
    let chunks = MappedChunks::open(&slice).unwrap();
    let of_store = MappedChunks::open(&store).unwrap();
    for node in (0..NODES).map(NodeId) {
        let known = store.chunks().chunk_of(node) != ChunkId(0);
        let expected = of_store.in_degree(node).unwrap();
        assert_eq!(chunks.in_degree(node).unwrap(), if known { expected } else { 0 });
    }
    // Many at once: successive nodes, across chunks, and others.
    let mut degrees = Vec::new();
    for kept in [|_| true, |node| node % 3 == 0, |node| node > 5 && node % 7 != 0] as [fn(u64) -> bool; 3] {
        let nodes: Vec<NodeId> = (0..NODES).filter(|&node| kept(node)).map(NodeId).collect();
        for mapped in [&chunks, &of_store] {
            mapped.degrees(&nodes, &mut degrees).unwrap();
            let one_by_one: Vec<u64> = nodes.iter().map(|node| mapped.degree(*node).unwrap()).collect();
            assert_eq!(degrees, one_by_one);
        }
    }
}

#[test]
fn damage_to_features_and_in_degrees_of_halo_nodes_is_found() {
    let (folder, store) = in_folder(whole);
    for name in ["features", "degrees"] {
        let path = folder.path().join(format!("slice-{name}"));
        let copied = PlaceOptions { copy: true, ..options(&path, SliceEdges::All) };
        place_store(&store, &copied, &Silent).unwrap();
        let file = path.join("chunk-1").join(name);
        let mut bytes = fs::read(&file).unwrap();
        // The last byte of features, and a byte of a line of the directory.
        let at = grappa_forge::payload_of(&file);
        let at = if name == "features" { at.end - 1 } else { at.start + 12 } as usize;
        bytes[at] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(problems(&path).len(), 1, "{name}");
        if name == "degrees" {
            let chunks = MappedChunks::open(&Store::open(&path).unwrap()).unwrap();
            let error = chunks.in_degree(NodeId(50)).unwrap_err().to_string();
            assert!(error.contains("chunk-1/degrees"), "{error}");
        }
        fs::remove_file(&file).unwrap();
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("chunk-1/{name}")), "{error}");
    }
}

#[test]
fn in_degrees_of_another_chunk_or_in_another_encoding_are_found() {
    let (folder, store) = in_folder(|folder| Store::open(&Sample::ALL_PARTS.write(folder)).unwrap());
    let copied = |name: &str| {
        let path = folder.path().join(name);
        let options = PlaceOptions { copy: true, ..options(&path, SliceEdges::All) };
        place_store(&store, &options, &Silent).unwrap();
        path
    };
    // Their checksums are right.
    let path = copied("changed");
    grappa_forge::rewrite(&path, "chunk-1/degrees", None, |payload| payload[0] ^= 1);
    let found = problems(&path);
    assert!(found.len() == 1 && found[0].contains("not the encoding"), "{found:?}");

    let path = copied("swapped");
    let file = path.join("chunk-1/degrees");
    fs::copy(store.path().join("chunk-0/degrees"), &file).unwrap();
    grappa_forge::rewrite(&path, "chunk-1/degrees", None, |_| {});
    let found = problems(&path);
    assert!(found.len() == 1 && found[0].contains("were files swapped?"), "{found:?}");
    let error = MappedChunks::open(&Store::open(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("were files swapped?"), "{error}");
}

#[test]
fn chunks_and_features_that_cannot_be_placed_are_refused() {
    let (folder, store) = in_folder(whole);
    let inside = PlaceOptions { halo_features: true, ..options(&folder.path().join("inside"), SliceEdges::Inside) };
    let error = place_store(&store, &inside, &Silent).unwrap_err().to_string();
    assert!(error.contains("--edges inside"), "{error}");

    let everything =
        PlaceOptions { chunks: vec![0..=u32::MAX], ..options(&folder.path().join("everything"), SliceEdges::All) };
    let error = place_store(&store, &everything, &Silent).unwrap_err().to_string();
    assert!(error.contains("there is no chunk 4294967295"), "{error}");

    // A slice without them cannot give them on.
    let path = folder.path().join("slice");
    let without = PlaceOptions { halo_features: false, ..options(&path, SliceEdges::All) };
    place_store(&store, &without, &Silent).unwrap();
    let of_slice = PlaceOptions { chunks: vec![2..=2], ..options(&folder.path().join("part"), SliceEdges::All) };
    let error = place_store(&Store::open(&path).unwrap(), &of_slice, &Silent).unwrap_err().to_string();
    assert!(error.contains("only the features of the chunks 0, 2, not chunk 1"), "{error}");
}
