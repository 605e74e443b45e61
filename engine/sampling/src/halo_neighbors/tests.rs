//! Tests of `halo_neighbors`.

use std::{collections::BTreeSet, sync::Arc};

use grappa_io::progress::Silent;
use grappa_storage::Store;

use super::*;
use crate::{
    Loader, LoaderOptions, Seeds,
    feed::{BatchSource, MinibatchOptions, RowOptions},
    partition::{RepartitionOptions, Schedule, assign},
    sample::{Minibatch, RandomWalks, Sampler, tests::statistics::assert_uniform},
    view::{
        Halo, ViewKind,
        tests::graph::{Graph, TestStore},
    },
};

const PARTITIONS: u32 = 3;

fn options(sampler: Sampler) -> LoaderOptions {
    LoaderOptions {
        rows: RowOptions::default(),
        halo: Halo::Neighbors,
        memory: 256 << 20,
        threads: 2,
        ..LoaderOptions::new(MinibatchOptions { batch: 64, ..MinibatchOptions::new(sampler) })
    }
}

fn shared(store: &TestStore) -> Arc<Store> {
    Arc::new(Store::open(store.store.path()).unwrap())
}

/// A loader whose partitions are open.
fn opened(store: &Arc<Store>, options: LoaderOptions, partitions: u32, super_epoch: u64) -> Result<Loader> {
    let repartition =
        RepartitionOptions { partitions, schedule: Schedule::Shuffle, seed: 5, super_epoch: Some(super_epoch) };
    let assignment = assign(store.manifest(), &repartition, super_epoch + 1)?;
    let mut loader = Loader::new(store, options);
    loader.partition(&assignment, &Seeds::All, &Silent)?;
    Ok(loader)
}

fn minibatches(loader: &Loader) -> Vec<Minibatch> {
    let batches = loader.all_batches(0);
    let mut scratch = Default::default();
    let sampled = (0..batches.batches()).map(|index| {
        let mut minibatch = Minibatch::default();
        batches.sample(index, &mut scratch, std::slice::from_mut(&mut minibatch)).unwrap();
        minibatch
    });
    sampled.collect()
}

/// The edges of each hop of each seed, as pairs of nodes with their multiplicity.
fn edges(minibatch: &Minibatch) -> Vec<Vec<(NodeId, NodeId)>> {
    let edges_of = |block: &crate::sample::Block| {
        let to = |destination: usize| {
            let sources = &block.indices[block.edges_of(destination)];
            let pair = move |&source: &u32| (minibatch.nodes[destination], minibatch.nodes[source as usize]);
            sources.iter().map(pair)
        };
        let mut edges: Vec<_> = (0..block.destinations).flat_map(to).collect();
        edges.sort_unstable();
        edges
    };
    minibatch.blocks.iter().map(edges_of).collect()
}

#[test]
fn with_all_in_neighbors_minibatches_are_those_of_the_whole_graph() {
    let graph = Graph::mixed(600);
    let kept = graph.store(9);
    let store = shared(&kept);
    for hops in ["-1", "-1,-1", "-1,-1,-1"] {
        for view in [ViewKind::Memory, ViewKind::Mapped] {
            let options = LoaderOptions {
                // More than there are, which takes no more memory than all edges.
                halo_neighbors: Some(u32::MAX),
                memory: 4 << 20,
                view,
                ..options(Sampler::uniform(hops.parse().unwrap(), false))
            };
            let loader = opened(&store, options, PARTITIONS, 0).unwrap();
            let mut seeds = 0;
            for minibatch in minibatches(&loader) {
                assert!(minibatch.blocks.iter().all(|block| !block.halo.contains(&true)));
                seeds += minibatch.seeds;
                // From the definition, hop by hop.
                let mut reached: BTreeSet<NodeId> = minibatch.nodes[..minibatch.seeds].iter().copied().collect();
                for (hop, found) in edges(&minibatch).into_iter().enumerate() {
                    let to = |node: &NodeId| {
                        let node = *node;
                        graph.sources(node.0).map(move |source| (node, NodeId(source)))
                    };
                    let mut expected: Vec<_> = reached.iter().flat_map(to).collect();
                    expected.sort_unstable();
                    assert!(found == expected, "hop {hop} of {hops}, {view:?}");
                    reached.extend(expected.iter().map(|(_, source)| *source));
                    let block = &minibatch.blocks[hop];
                    let degree = |&node: &NodeId| graph.sources(node.0).count() as u64;
                    let degrees: Vec<_> = minibatch.nodes[..block.destinations].iter().map(degree).collect();
                    assert_eq!(block.global, degrees);
                }
            }
            assert_eq!(seeds, 600);
        }
    }
}

#[test]
fn a_halo_node_has_a_few_of_its_in_neighbors_and_others_after_a_repartition() {
    let graph = Graph::mixed(600);
    let kept = graph.store(9);
    let store = shared(&kept);
    let drawn = |threads, super_epoch| {
        let options = LoaderOptions {
            halo_neighbors: Some(4),
            threads,
            ..options(Sampler::uniform("5,5,5".parse().unwrap(), false))
        };
        let loader = opened(&store, options, PARTITIONS, super_epoch).unwrap();
        loader.halo_lists().unwrap().clone()
    };
    let GraphHaloLists { relations, given } = drawn(1, 0);
    let first = &relations[0];
    let (mut nodes, mut differ) = (0, 0);
    let [again, later] = [drawn(3, 0), drawn(1, 1)].map(|lists| lists.relations[0].clone());
    for node in first.nodes().iter() {
        let sources = |lists: &HaloLists| lists.sources(node).map(|source| source.0).collect::<Vec<_>>();
        let (drawn, all) = (sources(first), graph.sources(node.0).collect::<Vec<_>>());
        assert_eq!(drawn.len(), all.len().min(4));
        let mut left = all.iter();
        assert!(drawn.iter().all(|source| left.any(|other| other == source)), "{drawn:?} of {all:?}");
        assert_eq!(drawn, sources(&again), "for any number of threads");
        nodes += 1;
        differ += u64::from(all.len() > 8 && later.nodes().contains(node) && drawn != sources(&later));
    }
    assert!(nodes > 100 && differ > 50, "{differ} of {nodes}");
    // Three partitions, each without a third of the nodes, and up to 4 in-neighbors of each of these.
    assert!(given.listed > nodes && given.listed <= 3 * 400 * 5, "{given:?}");
    assert!(given.rows[0] > 0 && given.rows[0] <= 3 * 400, "{given:?}");
}

#[test]
fn every_in_neighbor_is_equally_likely() {
    let graph = Graph::new(60, |node| if node == 0 { (8..48).collect() } else { vec![] });
    let store = graph.store(4);
    let chunks = MappedChunks::open(&store.store).unwrap();
    let mut counts = vec![0; 40];
    for seed in 0..4000 {
        let neighbors = HaloRelation {
            ends: RelationEnds { source: 0, destination: 0 },
            chunks: &chunks,
            sizes: HaloSizes { nodes: 60, sources: 60, edges: 40, edge_data: EdgeData::default() },
            first_edges: &[],
            per_node: 3,
            seed,
        };
        let lists = neighbors.lists_of(NodeSet::from_members(60, [NodeId(0), NodeId(1)]), 1, &Silent).unwrap();
        assert_eq!(lists.sources(NodeId(1)).count(), 0);
        lists.sources(NodeId(0)).for_each(|source| counts[source.0 as usize - 8] += 1);
    }
    assert_uniform(&counts, "3 of 40");
}

#[test]
fn random_walks_go_on_at_halo_nodes() {
    // A ring, so that a walk of many steps leaves any partition.
    let graph = Graph::new(300, |node| vec![(node + 1) % 300]);
    let kept = graph.store(9);
    let store = shared(&kept);
    let walks = RandomWalks { hops: 2, walks: 1, steps: 40, termination: 0.0, neighbors: 1000 };
    let loader = opened(&store, options(Sampler::random_walks(walks).unwrap()), PARTITIONS, 0).unwrap();
    for minibatch in minibatches(&loader) {
        for block in &minibatch.blocks {
            assert!((0..block.destinations).all(|destination| block.edges_of(destination).len() == 40));
        }
    }
}

#[test]
fn draws_by_weight_and_too_little_memory_are_refused() {
    let kept = Graph::mixed(600).store(9);
    let store = shared(&kept);
    let refused = |options, partitions| opened(&store, options, partitions, 0).map(|_| ()).unwrap_err().to_string();
    let by_weight = Sampler::by_weight("5,5".parse().unwrap(), false);
    assert!(refused(options(by_weight), PARTITIONS).contains("not drawn by edge weight"));
    let small = LoaderOptions { memory: 16 << 10, ..options(Sampler::uniform("5,5".parse().unwrap(), false)) };
    let error = refused(small.clone(), PARTITIONS);
    assert!(error.contains("in-neighbors of halo nodes"), "{error}");
    // One partition has no halo nodes, so nothing is drawn.
    opened(&store, small, 1, 0).unwrap();
}

#[test]
fn the_number_of_in_neighbors_follows_from_draws_degrees_and_memory() {
    let draws =
        |per_draw, nodes, edges| (per_draw, HaloSizes { nodes, sources: nodes, edges, edge_data: EdgeData::default() });
    for (draws, memory, expected) in [
        (draws(Some(10), 1000, 35_000), 1 << 30, 100..=100),
        (draws(Some(15), 1000, 35_000), 1 << 30, 150..=150),
        // All in-neighbors are drawn, so all are wanted.
        (draws(None, 1000, 35_000), 1 << 30, u32::MAX..=u32::MAX),
        (draws(Some(0), 1000, 35_000), 1 << 30, 10..=10),
        // 8 bytes for each of 50 in-neighbors of 10^6 nodes are 400 MB: a quarter of them fits in half of 256 MiB.
        (draws(Some(10), 1_000_000, 50_000_000), 256 << 20, 11..=16),
        (draws(Some(10), 1_000_000, 50_000_000), 1 << 20, 10..=10),
    ] {
        let (per_draw, sizes) = draws;
        let found = halo_neighbors_auto(per_draw, &[sizes], memory);
        assert!(expected.contains(&found), "{draws:?} in {memory}: {found}");
    }
}
