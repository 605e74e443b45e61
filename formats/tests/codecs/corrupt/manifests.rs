//! Manifests.

use grappa_formats::{
    graph::GraphManifest,
    manifest::{ArchivedManifest, ChunkEntry, FileEntry, Manifest, Sources},
};

use super::*;

/// Asserts that a manifest with this change of its parts is refused.
#[track_caller]
fn refused(change: impl FnOnce(&mut Manifest), message: &str) {
    let mut manifest = samples::manifest();
    change(&mut manifest);
    expect(Manifest::decode(&manifest.encode()).map(drop), 64, message);
}

#[test]
fn an_invalid_archive_is_refused() {
    let root = Parts::from_file(&golden::bytes("manifest")).payload.len() - size_of::<ArchivedManifest>();
    let name = "manifest";
    let invalid = "the manifest's archive is invalid";
    changed(name, |p| p.payload.truncate(100), 64, invalid);
    changed(name, |p| p.payload.clear(), 64, invalid);
    // The pointer of `chunk_starts`, its length, the tag of `ids.permutation`, the bytes of `writer`.
    changed(name, |p| p.put(root + 24, i32::MIN.to_le_bytes()), 64, invalid);
    changed(name, |p| p.put(root + 24, 0i32.to_le_bytes()), 64, invalid);
    changed(name, |p| p.put(root + 28, u32::MAX.to_le_bytes()), 64, invalid);
    changed(name, |p| p.payload[root + 48] = 3, 64, invalid);
    changed(name, |p| p.payload[0] = 0xff, 64, invalid);
}

#[test]
fn parts_that_disagree_are_refused() {
    refused(|m| m.nodes = 6, "6 nodes in 2 chunks, but the chunk starts say 5 in 2");
    refused(|m| drop(m.chunks.pop()), "5 nodes in 1 chunks");
    refused(|m| m.chunk_starts[0] = 1, "chunk starts must begin with 0");
    refused(|m| m.chunk_starts[1] = 6, "chunk 1 has a negative size");
    refused(|m| m.edges = 8, "8 edges, but the chunks have 7");
    refused(|m| m.chunks[0].edges = 4, "the edge buckets of chunk 0 do not add up");
    refused(|m| m.chunks[0].bucket_edges = vec![u64::MAX, 4], "the edge buckets of chunk 0 do not add up");
    refused(|m| m.chunks[1].bucket_edges.push(0), "the edge buckets of chunk 1 do not add up");
    refused(|m| m.chunks[1].present = false, "the edge buckets of chunk 1 do not add up");
    refused(|m| m.chunks[1].halo = true, "chunk 1 has features for halo nodes");
    refused(
        |m| {
            m.chunks[1] = ChunkEntry::absent(true);
            m.edges = 3;
            m.features = None;
        },
        "chunk 1 has features for halo nodes",
    );
    refused(|m| m.chunks[1].halo_degrees = true, "chunk 1 has in-degrees for halo nodes, but no features");
    let most = ChunkEntry {
        present: true,
        halo: false,
        halo_degrees: false,
        edges: u64::MAX,
        bucket_edges: vec![u64::MAX, 0],
    };
    refused(|m| m.chunks[1] = most, "overflow 64 bits");
    refused(|m| m.features.as_mut().unwrap().row_stride = 4, "at least 6, not 4");
    refused(|m| m.features.as_mut().unwrap().dim = 0, "rows have 0 values");
    refused(|m| m.labels.as_mut().unwrap().classes = 0, "labels of 0 classes");
    refused(|m| m.splits[0].name = "../train".into(), "only train, val and test are known");
    refused(|m| m.files.reverse(), "the files are not sorted by path");
    refused(|m| m.files[1] = m.files[0].clone(), "the files are not sorted by path");
}

#[test]
fn paths_that_leave_the_store_are_refused() {
    for path in ["../other", "/etc/passwd", "chunk-0/../../x", "chunk-0//edges", "./x", "", "x/"] {
        let file = FileEntry { path: path.into(), bytes: 0, digest: 0 };
        refused(|m| m.files = vec![file], "leads out of the store");
    }
}

/// Asserts that a graph with this change is refused.
#[track_caller]
fn graph(change: impl FnOnce(&mut GraphManifest), message: &str) {
    let mut graph = samples::graph();
    change(&mut graph);
    expect(GraphManifest::decode(&graph.encode()).map(drop), 64, message);
}

#[test]
fn types_and_relations_of_a_graph_agree() {
    graph(|g| g.node_types.clear(), "at least one node type");
    graph(|g| g.node_types[1].name = "author".into(), "two node types are named \"author\"");
    graph(|g| g.node_types[0].name.clear(), "node type 0 has no name");
    graph(|g| g.relations[0].name.clear(), "relation 0 has no name");
    graph(|g| g.relations[1].source = 2, "relation 1 joins types that the graph does not have");
    graph(|g| g.relations.push(g.relations[0].clone()), "two relations are named author:writes:paper");
    graph(|g| g.relations[1].reverse_of = Some(1), "relation 1 is the reverse of one between other types");
    graph(|g| g.relations[1].reverse_of = Some(9), "relation 1 is the reverse of one between other types");
}

#[test]
fn members_have_edges_or_nodes() {
    let refused = |manifest: Manifest, message| expect(Manifest::decode(&manifest.encode()).map(drop), 64, message);
    let (of_type, relation) = (samples::type_manifest(), samples::relation_manifest());
    refused(Manifest { edges: 7, ..of_type.clone() }, "7 edges, but the chunks have 0");
    let counted = vec![ChunkEntry::of_buckets(vec![1, 2]), ChunkEntry::of_buckets(vec![4, 0])];
    refused(Manifest { chunks: counted.clone(), ..of_type }, "do not add up");
    refused(Manifest { chunks: counted, ..relation.clone() }, "do not add up");
    refused(Manifest { sources: Sources::Type(vec![1, 2]), ..relation.clone() }, "chunk starts must begin with 0");
    refused(Manifest { splits: samples::manifest().splits, ..relation }, "a relation has features, labels or splits");
}
