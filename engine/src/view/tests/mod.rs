//! Tests of views.

pub mod graph;

use grappa_formats::{NodeId, rows::RowCodec};

use self::graph::{Graph, TestStore};
use super::{
    PartitionView,
    rows::{Positions, Rows, RowsIn},
};

/// All rows, as samplers see them.
fn rows_of(view: &PartitionView) -> Vec<Vec<u64>> {
    fn all(rows: &impl Rows, nodes: u64) -> Vec<Vec<u64>> {
        (0..nodes)
            .map(|node| {
                let mut place = rows.locate(NodeId(node));
                let degrees = rows.degrees(&mut place);
                let mut sources = Vec::new();
                rows.sources_at(&place, Positions::First(degrees.global), &mut sources);
                sources.into_iter().map(|source| source.0).collect()
            })
            .collect()
    }
    match view.rows() {
        RowsIn::Narrow(rows) => all(&rows, view.nodes()),
        RowsIn::Wide(rows) => all(&rows, view.nodes()),
    }
}

#[test]
fn a_whole_view_has_the_rows_of_the_graph() {
    for (graph, codec) in [
        (Graph::mixed(3000), "elias-fano"),
        (Graph::local(20_000), "gap"),
        (Graph::new(1, |_| vec![]), "elias-fano"),
    ] {
        for chunks in [1, 7] {
            let store = graph.store(chunks.min(graph.nodes() as u32));
            let found = match store
                .store
                .chunk(grappa_formats::ChunkId(0))
                .unwrap()
                .rows()
                .meta()
                .codec
            {
                RowCodec::EliasFano => "elias-fano",
                RowCodec::Gap(_) => "gap",
            };
            assert_eq!(found, codec, "the graph is not the example it should be");
            for threads in [1, 3] {
                let view = PartitionView::whole(&store.store, threads).unwrap();
                let expected: Vec<Vec<u64>> = (0..graph.nodes()).map(|node| graph.sources(node).collect()).collect();
                assert!(rows_of(&view) == expected, "{chunks} chunks, {threads} threads");
            }
        }
    }
}

#[test]
fn rows_that_disagree_with_the_manifest_are_an_error() {
    let store = || Graph::mixed(3000).store(3);
    // A degree is a byte of the directory, after the ten bytes at the start of a line.
    let change_degree = |store: TestStore, change: fn(u8) -> u8| {
        store.damaged("chunk-1/degrees", |bytes, payload| {
            let degree = &mut bytes[payload.start + 10 + 6];
            *degree = change(*degree);
        })
    };
    for change in [|_| 0, |degree| degree + 5] {
        let store = change_degree(store(), change);
        let error = PartitionView::whole(&store.store, 2).unwrap_err().to_string();
        assert!(
            error.contains("chunk-1/edges") || error.contains("chunk-2/edges"),
            "{error}"
        );
    }
}
