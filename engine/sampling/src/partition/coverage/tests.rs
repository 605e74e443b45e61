//! Counts equal a naive count, for any budget.

use std::{collections::BTreeSet, sync::Arc};

use grappa_formats::{ChunkId, NodeId, PartitionId};
use grappa_io::progress::Silent;
use grappa_storage::Store;

use super::{
    count::{count, passes},
    *,
};
use crate::partition::{
    Owned, Schedule, report,
    schedule::{assignment, chunk_sizes},
    tests::{slice_of, store_of},
};

fn expected(store: &Store, owned: &Owned) -> (Coverage, u64) {
    let (mut found, mut halo, mut edges_seen) =
        (Coverage { halo_nodes: 0, by_relation: vec![Histogram::default()] }, BTreeSet::<NodeId>::new(), 0);
    for chunk in owned.chunks() {
        let chunk = store.chunk(chunk).unwrap();
        for sources in chunk.rows().range(0..chunk.rows().rows()) {
            let sources: Vec<_> = sources.unwrap().iter().map(NodeId).collect();
            let seen = sources.iter().filter(|&&source| owned.contains(source)).count();
            halo.extend(sources.iter().filter(|&&source| !owned.contains(source)));
            let histogram = &mut found.by_relation[0];
            *match (seen, sources.len()) {
                (_, 0) => &mut histogram.no_in_edges,
                (0, _) => &mut histogram.zero,
                (seen, all) if seen == all => &mut histogram.one,
                (seen, all) => &mut histogram.tenths[(1..10).rfind(|n| n * all <= 10 * seen).unwrap_or(0)],
            } += 1;
            edges_seen += seen as u64;
        }
    }
    found.halo_nodes = halo.len() as u64;
    (found, edges_seen)
}

#[test]
fn counts_equal_a_naive_count_with_any_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(store_of(folder.path(), 12));
    let graph = Graph::from_store(&store);
    let sizes = chunk_sizes(store.manifest());
    for (schedule, partitions) in [
        (Schedule::Sweep, 5),
        (Schedule::Sweep, 2),
        (Schedule::Shuffle, 12),
        (Schedule::Fixed, 1),
        (Schedule::Local, 5),
    ] {
        let assignment = assignment(schedule, std::slice::from_ref(&sizes), partitions, 1, 3, 1).unwrap();
        let reports = report(store.manifest(), &assignment);
        let expected: Vec<_> = (0..partitions)
            .map(|partition| {
                let owned = Owned::new(&assignment, &store, PartitionId(partition));
                let (coverage, visible) = expected(&store, &owned);
                let report = &reports[partition as usize];
                let ids = |chunks: &[ChunkId]| chunks.iter().map(|chunk| chunk.0).collect::<Vec<_>>();
                assert_eq!(
                    (ids(owned.base()), ids(owned.variable())),
                    (report.base_chunks.clone(), report.variable_chunks.clone())
                );
                let edges: u64 = owned.chunks().map(|chunk| store.manifest().chunks[chunk.0 as usize].edges).sum();
                assert_eq!(
                    (report.nodes, report.visible_edges, report.cut_edges),
                    (owned.nodes(), visible, edges - visible)
                );
                coverage
            })
            .collect();
        // A bitmap of 512 nodes takes 64 bytes. So there is memory for the bitmaps of all partitions, of two, of one, and for
        // a range of sources only.
        for (memory, count_of_passes) in
            [(1 << 20, 1), (128, partitions.div_ceil(2)), (64, partitions), (24, 3 * partitions)]
        {
            let passes = passes(store.manifest().nodes, partitions, memory);
            assert_eq!(passes.len(), count_of_passes as usize);
            for threads in [1, 3] {
                let counted = count(&graph, &assignment, &passes, threads, &Silent).unwrap();
                assert_eq!(counted, expected, "{schedule}, {partitions} partitions, {memory} bytes");
            }
        }
    }
}

#[test]
fn a_slice_is_counted_without_its_absent_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let slice = Arc::new(slice_of(folder.path(), 7, 2..=3));
    let options = CoverageOptions { memory: 1 << 20, threads: 2 };
    let counted = coverage(&Graph::from_store(&slice), slice.assignment(), &options, &Silent).unwrap();
    // Nodes of absent chunks are halo nodes.
    let (naive, visible) = expected(&slice, &Owned::whole(&slice));
    assert_eq!(counted, [naive]);
    assert!(counted[0].halo_nodes > 0 && visible < slice.manifest().edges, "{counted:?}");
}

#[test]
fn too_little_memory_is_an_error_that_names_enough() {
    let folder = tempfile::tempdir().unwrap();
    let graph = Graph::from_store(&Arc::new(store_of(folder.path(), 4)));
    let options = CoverageOptions { memory: 100, threads: 1 };
    let error = coverage(&graph, graph.assignment(), &options, &Silent).unwrap_err();
    assert!(error.to_string().contains("at least 1 MiB"), "{error}");
}
