//! Sampling from a partition.

use super::{naive::all_neighbors, *};

#[test]
fn all_neighbors_of_a_partition_equal_those_of_the_naive_sampler() {
    for graph in [Graph::mixed(900), Graph::local(900)] {
        let store = graph.store_with(vec![0, 300, 400, 700, 900], false);
        for chunks in [&[1][..], &[2, 0], &[0, 1, 2, 3]] {
            let owned = view::tests::owning(&store.store, chunks);
            let seeds = nodes(owned.runs().iter().cloned().flatten().step_by(29));
            for (halo, kind) in Halo::ALL.into_iter().flat_map(|halo| view::tests::KINDS.map(|kind| (halo, kind))) {
                let view = view::tests::view(&store.store, owned.clone(), halo, false, kind).unwrap();
                for text in ["-1", "-1,-1", "-1,-1,-1", "900,900"] {
                    let sampler = Sampler::uniform(fanouts(text), false);
                    let minibatch = sample(&sampler, &view, &seeds, 0).unwrap();
                    let expected = all_neighbors(&graph, &owned, halo, &seeds, sampler.hops());
                    assert!(minibatch == expected, "chunks {chunks:?}, {halo}, {kind}, {text}");
                }
            }
        }
    }
}

#[test]
fn halo_nodes_are_drawn_where_their_mode_allows() {
    let graph = Graph::mixed(3000);
    let store = graph.store(6);
    let owned = view::tests::owning(&store.store, &[1, 4]);
    let seeds = nodes(owned.runs().iter().cloned().flatten().step_by(7));
    for halo in Halo::ALL {
        let view = view::tests::view(&store.store, owned.clone(), halo, false, ViewKind::Memory).unwrap();
        let sampler = Sampler::uniform(fanouts("6,5,4"), false);
        let minibatch = sample(&sampler, &view, &seeds, 9).unwrap();
        check_valid(&minibatch, &graph, false);
        let is_halo = |index: usize| !owned.contains(minibatch.nodes[index]);
        // A view without lists of halo nodes does not expand them.
        let expected = halo != Halo::None;
        for (hop, block) in minibatch.blocks.iter().enumerate() {
            let drawn = block.indices.iter().any(|&source| is_halo(source as usize));
            assert_eq!(drawn, expected, "hop {hop}, {halo}");
            for destination in 0..block.destinations {
                let list: Vec<_> = graph.sources(minibatch.nodes[destination].0).collect();
                let visible = list.iter().filter(|&&source| owned.contains(NodeId(source))).count();
                assert_eq!(block.halo[destination], is_halo(destination));
                let (visible, global) = if is_halo(destination) { (0, 0) } else { (visible, list.len()) };
                assert_eq!(block.visible[destination], visible as u64);
                assert_eq!(block.global[destination], global as u64);
                let pool = if expected { global } else { visible };
                assert_eq!(block.edges_of(destination).len(), pool.min([6, 5, 4][hop]));
            }
        }
        let halo_destinations = minibatch.blocks.iter().any(|block| block.halo.contains(&true));
        assert_eq!(halo_destinations, expected);
    }
}

#[test]
fn every_neighbor_that_may_be_drawn_is_equally_likely() {
    // Node 0 has 12 owned and 28 other sources.
    let graph = Graph::new(60, |node| if node == 0 { (8..48).collect() } else { vec![] });
    let store = graph.store_with(vec![0, 20, 60], false);
    let owned = view::tests::owning(&store.store, &[0]);
    for (halo, first, pool) in [(Halo::Stop, 8, 40), (Halo::None, 8, 12)] {
        for kind in view::tests::KINDS {
            let view = view::tests::view(&store.store, owned.clone(), halo, false, kind).unwrap();
            let mut counts = vec![0; pool];
            for batch in 0..5000 {
                let minibatch = sample(&Sampler::uniform(fanouts("3"), false), &view, &nodes([0]), batch).unwrap();
                minibatch.nodes[1..].iter().for_each(|node| counts[(node.0 - first) as usize] += 1);
            }
            statistics::assert_uniform(&counts, &format!("{halo}, {kind}"));
        }
    }
}

#[test]
fn a_seed_that_is_not_owned_is_an_error() {
    let store = Graph::mixed(100).store(4);
    let owned = view::tests::owning(&store.store, &[1]);
    let view = view::tests::view(&store.store, owned, Halo::Stop, false, ViewKind::Memory).unwrap();
    let sampler = Sampler::uniform(fanouts("5"), false);
    let error = sample(&sampler, &view, &nodes([30, 60]), 0).unwrap_err().to_string();
    assert!(error.contains("seed 60 is not owned by partition 0"), "{error}");
}
