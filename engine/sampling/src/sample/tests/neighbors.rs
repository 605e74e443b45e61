//! Uniform neighbor sampling.

use std::collections::{BTreeSet, HashMap};

use super::{naive::all_neighbors, statistics::assert_uniform, *};

/// A graph where node 0 has in-edges from all `d` other nodes.
fn star(d: u64) -> Graph {
    Graph::new(d + 1, |node| if node == 0 { (1..=d).collect() } else { vec![] })
}

#[test]
fn all_neighbors_equal_those_of_the_naive_sampler() {
    for graph in [Graph::mixed(800), Graph::local(800)] {
        let view = whole(&graph, 3);
        for fanouts in ["-1", "-1,-1", "1000,-1,800"] {
            for replace in [false, true] {
                let fanouts: Fanouts = fanouts.parse().unwrap();
                if replace && fanouts.at(0).is_some() {
                    continue;
                }
                let sampler = Sampler::uniform(fanouts.clone(), replace);
                let seeds = nodes([3, 700, 0, 1, 2, 4, 44]);
                let minibatch = sample(&sampler, &view, &seeds, 0).unwrap();
                assert_eq!(minibatch, all_neighbors(&graph, view.owned(), Halo::Stop, &seeds, fanouts.hops()));
                check_valid(&minibatch, &graph, replace);
            }
        }
    }
}

#[test]
fn samples_are_valid_and_as_large_as_the_fanouts_say() {
    let graph = Graph::mixed(4000);
    let view = whole(&graph, 5);
    for (text, replace) in [("15,10,5", false), ("3,-1", false), ("20,20", true), ("100,2", false), ("1", true)] {
        let sampler = Sampler::uniform(fanouts(text), replace);
        let minibatch = sample(&sampler, &view, &nodes((0..4000).step_by(13)), 3).unwrap();
        check_valid(&minibatch, &graph, replace);
        for (hop, block) in minibatch.blocks.iter().enumerate() {
            for destination in 0..block.destinations {
                let degree = graph.lists[minibatch.nodes[destination].0 as usize].len();
                let expected = match fanouts(text).at(hop) {
                    None => degree,
                    Some(fanout) if replace && degree > 0 => fanout as usize,
                    Some(fanout) => degree.min(fanout as usize),
                };
                assert_eq!(block.edges_of(destination).len(), expected);
                let degrees = [block.visible[destination], block.global[destination]];
                assert_eq!(degrees, [degree as u64; 2]);
                assert!(!block.halo[destination]);
            }
        }
    }
}

#[test]
fn every_set_of_neighbors_is_as_likely_as_any_other() {
    let view = whole(&star(7), 2);
    let sampler = Sampler::uniform(fanouts("3"), false);
    let mut counts = HashMap::new();
    for batch in 0..20_000 {
        let minibatch = sample(&sampler, &view, &nodes([0]), batch).unwrap();
        *counts.entry(minibatch.nodes).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 35);
    assert_uniform(&counts.into_values().collect::<Vec<_>>(), "sets of 3 of 7");
}

#[test]
fn draws_with_replacement_are_independent() {
    let view = whole(&star(4), 1);
    let sampler = Sampler::uniform(fanouts("3"), true);
    // Three draws from four neighbors have 64 ordered outcomes. They are counted without their order.
    let mut counts = HashMap::new();
    let batches = 20_000;
    for batch in 0..batches {
        let minibatch = sample(&sampler, &view, &nodes([0]), batch).unwrap();
        let mut drawn: Vec<_> = minibatch.blocks[0].indices.iter().map(|&i| minibatch.nodes[i as usize].0).collect();
        assert_eq!(drawn.len(), 3);
        drawn.sort_unstable();
        *counts.entry(drawn).or_insert(0) += 1;
    }
    let (counts, expected): (Vec<_>, Vec<_>) = counts
        .iter()
        .map(|(drawn, &count)| {
            let orders = match drawn.iter().collect::<std::collections::HashSet<_>>().len() {
                1 => 1.0,
                2 => 3.0,
                _ => 6.0,
            };
            (count, batches as f64 * orders / 64.0)
        })
        .unzip();
    statistics::assert_fits(&counts, &expected, "three draws of four");
}

#[test]
fn draws_depend_on_each_part_of_the_key_and_on_hop_and_destination() {
    // Each seed has a thousand neighbors, so two samples of 20 are almost never equal.
    let graph = Graph::new(1002, |node| if node < 2 { (0..1002).collect() } else { vec![] });
    let view = whole(&graph, 1);
    let sampler = Sampler::uniform(fanouts("20,20"), false);
    let seeds = nodes([0, 1]);
    let base = key(5);
    let mut samples = Vec::new();
    for key in [
        base,
        BatchKey { seed: 8, ..base },
        BatchKey { epoch: 3, ..base },
        BatchKey { partition: PartitionId(1), ..base },
        BatchKey { batch: 6, ..base },
    ] {
        let mut minibatch = Minibatch::default();
        sampler.sample(&view, &seeds, key, &mut Scratch::default(), &mut minibatch).unwrap();
        for block in &minibatch.blocks {
            for seed in 0..2 {
                let drawn = &block.indices[block.edges_of(seed)];
                samples.push(drawn.iter().map(|&i| minibatch.nodes[i as usize]).collect::<Vec<_>>());
            }
        }
    }
    let all = samples.len();
    samples.sort();
    samples.dedup();
    assert_eq!(samples.len(), all);
}

#[test]
fn scratch_and_buffer_carry_nothing_from_batch_to_batch() {
    let graph = Graph::mixed(2000);
    let other = Graph::local(900);
    let (view, other_view) = (whole(&graph, 3), whole(&other, 2));
    let (mut scratch, mut out) = (Scratch::default(), Minibatch::default());
    let deep = Sampler::uniform(fanouts("15,10,5"), false);
    let wide = Sampler::uniform(fanouts("-1,-1"), false);
    for batch in 0..50 {
        let seeds = nodes((0..20).map(|i| (batch * 20 + i) * 7 % 900));
        for (view, sampler) in [(&view, &deep), (&other_view, &wide), (&view, &wide)] {
            sampler.sample(view, &seeds, key(batch), &mut scratch, &mut out).unwrap();
            assert_eq!(out, sample(sampler, view, &seeds, batch).unwrap());
        }
        // A batch with a repeated seed and one that fails leave nothing behind either.
        let twice = [seeds.clone(), nodes([seeds[3].0])].concat();
        deep.sample(&view, &twice, key(batch), &mut scratch, &mut out).unwrap();
        let beyond = [seeds.clone(), nodes([2000])].concat();
        assert!(deep.sample(&view, &beyond, key(batch), &mut scratch, &mut out).is_err());
    }
}

#[test]
fn no_seeds_make_an_empty_minibatch() {
    let view = whole(&Graph::mixed(100), 1);
    let minibatch = sample(&Sampler::uniform(fanouts("5,5"), false), &view, &[], 0).unwrap();
    assert_eq!((minibatch.nodes.len(), minibatch.seeds, minibatch.edges()), (0, 0, 0));
    assert_eq!(minibatch.blocks.len(), 2);
    assert!(minibatch.blocks.iter().all(|block| block.offsets == [0]));
}

#[test]
fn without_hops_a_minibatch_is_its_seeds() {
    let view = whole(&Graph::mixed(100), 1);
    let none = fanouts("5").without_last();
    assert_eq!((none.hops(), fanouts("5,3").without_last()), (0, fanouts("5")));
    let seeds = nodes([7, 3, 99]);
    let minibatch = sample(&Sampler::uniform(none, false), &view, &seeds, 0).unwrap();
    assert_eq!((&minibatch.nodes, minibatch.seeds, minibatch.blocks.len()), (&seeds, 3, 0));
}

#[test]
fn a_seed_that_does_not_exist_is_an_error() {
    let view = whole(&Graph::mixed(100), 1);
    let sampler = Sampler::uniform(fanouts("5"), false);
    let error = sample(&sampler, &view, &nodes([5, 100]), 0).unwrap_err().to_string();
    assert!(error.contains("seed 100"), "{error}");
}

#[test]
fn a_repeated_seed_draws_as_often_as_it_is_given_and_its_first_place_is_the_source() {
    let graph = Graph::mixed(2000);
    let view = whole(&graph, 1);
    let seeds = nodes([9, 5, 8, 5, 9, 9]);
    for fanout in [-1, 2] {
        let sampler = Sampler::uniform(Fanouts::new(&[fanout, fanout]).unwrap(), false).drawing_once();
        let found = sample(&sampler, &view, &seeds, 0).unwrap();
        assert_eq!((&found.nodes[..6], found.seeds), (&seeds[..], 6));
        let [others, distinct] =
            [&found.nodes[6..], &found.nodes[..3]].map(|nodes| BTreeSet::from_iter(nodes.to_vec()));
        assert!(others.len() == found.nodes.len() - 6 && others.is_disjoint(&distinct));
        for block in &found.blocks {
            assert!(block.indices.iter().all(|index| ![3, 4, 5].contains(index)), "an edge from a repeated seed");
        }
        for (destination, seed) in seeds.iter().enumerate() {
            let edges = found.blocks[0].edges_of(destination);
            let degree = graph.sources(seed.0).count();
            assert_eq!(edges.len(), if fanout == -1 { degree } else { degree.min(2) });
            let drawn = found.blocks[0].indices[edges].iter().map(|&index| found.nodes[index as usize].0);
            assert!(drawn.collect::<Vec<_>>().iter().all(|&source| graph.sources(seed.0).any(|other| other == source)));
        }
    }
}

#[test]
fn a_hop_with_the_fanout_0_draws_nothing() {
    let graph = Graph::mixed(2000);
    let view = whole(&graph, 1);
    let seeds = nodes(0..40);
    for replace in [false, true] {
        let one = sample(&Sampler::uniform(Fanouts::new(&[3]).unwrap(), replace), &view, &seeds, 0).unwrap();
        let two = sample(&Sampler::uniform(Fanouts::new(&[3, 0]).unwrap(), replace), &view, &seeds, 0).unwrap();
        assert_eq!((&one.nodes, &one.blocks[0]), (&two.nodes, &two.blocks[0]));
        let last = &two.blocks[1];
        assert_eq!((last.sources, last.destinations, last.indices.len()), (one.nodes.len(), one.nodes.len(), 0));
        assert_eq!(last.global[0], graph.sources(0).count() as u64);
    }
}

#[test]
fn hubs_give_large_samples() {
    // Node 0 has all nodes as sources. Node 1 has 300 000 edges from two sources.
    let graph = Graph::new(200_000, |node| match node {
        0 => (0..200_000).collect(),
        1 => (0..300_000).map(|k| k % 2).collect(),
        _ => vec![],
    });
    let view = whole(&graph, 1);
    for (text, replace, edges) in [
        ("100000", false, 200_000),
        ("1000", false, 2000),
        ("190000", false, 380_000),
        ("250000", true, 500_000),
        ("-1", false, 500_000),
    ] {
        let sampler = Sampler::uniform(fanouts(text), replace);
        let minibatch = sample(&sampler, &view, &nodes([1, 0]), 0).unwrap();
        assert_eq!(minibatch.edges(), edges);
        let block = &minibatch.blocks[0];
        if !replace {
            let mut drawn = block.indices[block.edges_of(1)].to_vec();
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), block.edges_of(1).len(), "each source of the second seed occurs once");
        }
    }
}
