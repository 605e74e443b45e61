//! Neighbors drawn by edge weight.

use std::{cell::RefCell, collections::HashMap};

use super::*;

/// A graph where node 0 has in-edges of these weights, from nodes 1, 2, ...
fn star(edge_weights: &[f32], kind: ViewKind) -> PartitionView {
    let mut graph = Graph::new(edge_weights.len() as u64 + 1, |_| vec![]);
    graph.lists[0] = (1..).zip(edge_weights.iter().copied()).collect();
    let store = graph.store_with(vec![0, 1, graph.nodes()], true);
    view::tests::whole(&store.store, true, kind).unwrap()
}

/// The positions that were drawn for node 0.
fn drawn(sampler: &Sampler, view: &PartitionView, batch: u64) -> Vec<usize> {
    let minibatch = sample(sampler, view, &nodes([0]), batch).unwrap();
    let sources = minibatch.blocks[0].indices.iter();
    sources.map(|&i| minibatch.nodes[i as usize].0 as usize - 1).collect()
}

#[test]
fn draws_without_replacement_equal_successive_draws() {
    let weights = [4.0, 1.0, 0.0, 2.5, 0.5];
    let total: f32 = weights.iter().sum();
    // The probability of each set of two, from the definition.
    let mut expected = HashMap::new();
    for (i, first) in weights.iter().enumerate() {
        for (j, second) in weights.iter().enumerate().filter(|&(j, _)| j != i) {
            let probability = f64::from(first / total * second / (total - first));
            *expected.entry([i.min(j), i.max(j)]).or_insert(0.0) += probability;
        }
    }
    expected.retain(|_, probability| *probability > 0.0);
    let draws = 20_000;
    // Longer lists are drawn from by rejection; with many zeros, some draws are left for the end.
    let cases = [0, 5, 500].into_iter().flat_map(|zeros| view::tests::KINDS.map(|kind| (zeros, kind)));
    for (zeros, kind) in cases {
        let view = star(&[&weights[..], &vec![0.0; zeros]].concat(), kind);
        let sampler = Sampler::by_weight(fanouts("2"), false);
        let mut counts = HashMap::new();
        for batch in 0..draws {
            let drawn: [usize; 2] = drawn(&sampler, &view, batch).try_into().unwrap();
            *counts.entry(drawn).or_insert(0) += 1;
        }
        assert!(counts.keys().all(|set| expected.contains_key(set)), "{counts:?}");
        let (counts, expected): (Vec<_>, Vec<_>) = expected
            .iter()
            .map(|(set, probability)| (counts.get(set).copied().unwrap_or(0), probability * draws as f64))
            .unzip();
        statistics::assert_fits(&counts, &expected, "two of four");
    }
}

#[test]
fn draws_with_replacement_are_proportional_to_weights() {
    let weights = [0.0, 3.0, 1.0, 0.0, 8.0, 0.25, 0.0];
    let total: f32 = weights.iter().sum();
    let sampler = Sampler::by_weight(fanouts("6"), true);
    for zeros in [0, 20, 600] {
        let weights = [&weights[..], &vec![0.0; zeros]].concat();
        let view = star(&weights, ViewKind::Memory);
        let mut counts = vec![0; weights.len()];
        for batch in 0..10_000 {
            let drawn = drawn(&sampler, &view, batch);
            assert_eq!(drawn.len(), 6);
            drawn.iter().for_each(|&position| counts[position] += 1);
        }
        let (counts, expected): (Vec<_>, Vec<_>) = (counts.iter().zip(weights))
            .filter(|&(&count, weight)| weight > 0.0 || count > 0)
            .map(|(&count, weight)| (count, f64::from(weight / total) * 60_000.0))
            .unzip();
        statistics::assert_fits(&counts, &expected, "six draws");
    }
}

#[test]
fn draws_by_rejection_do_not_depend_on_the_kind_of_view() {
    let weights: Vec<f32> = (0..300).map(|i| ((i * i) % 37) as f32 / 9.0).collect();
    for (text, replace) in [("5", false), ("12", true), ("60", false)] {
        let sampler = Sampler::by_weight(fanouts(text), replace).with_edge_weights();
        let [first, others @ ..] = view::tests::KINDS.map(|kind| {
            let view = star(&weights, kind);
            let batches = (0..50).map(|batch| sample(&sampler, &view, &nodes([0]), batch).unwrap());
            batches.collect::<Vec<_>>()
        });
        assert!(others.iter().all(|other| *other == first), "{text} {replace}");
        let found = first.iter().flat_map(|minibatch| &minibatch.blocks[0].edge_weights);
        assert!(found.clone().count() > 0 && found.clone().all(|weight| *weight > 0.0));
    }
}

#[test]
fn edges_of_weight_zero_are_never_drawn() {
    for (weights, left) in [(&[0.0, 1.0, 0.0, 2.0][..], 2), (&[0.0; 3], 0), (&[], 0)] {
        let view = star(weights, ViewKind::Mapped);
        for (text, replace, expected) in [
            ("-1", false, left),
            ("3", false, left),
            ("1", false, left.min(1)),
            ("5", true, if left > 0 { 5 } else { 0 }),
        ] {
            let drawn = drawn(&Sampler::by_weight(fanouts(text), replace), &view, 0);
            assert_eq!(drawn.len(), expected, "{text} of {weights:?}");
            assert!(drawn.iter().all(|&position| weights[position] > 0.0));
        }
    }
}

#[test]
fn extreme_weights_are_drawn_in_proportion() {
    // Times to the first event are tiny or infinite, but their order is right.
    let weights = [f32::MAX, f32::MIN_POSITIVE, 1.0, f32::from_bits(1)];
    let view = star(&weights, ViewKind::Memory);
    let sampler = Sampler::by_weight(fanouts("1"), false);
    assert!((0..1000).all(|batch| drawn(&sampler, &view, batch) == [0]));
    let sampler = Sampler::by_weight(fanouts("2"), false);
    assert!((0..1000).all(|batch| drawn(&sampler, &view, batch) == [0, 2]));
}

#[test]
fn negative_infinite_and_nan_weights_are_errors() {
    for weight in [-1.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN] {
        let view = star(&[1.0, weight, 2.0], ViewKind::Memory);
        for replace in [false, true] {
            let sampler = Sampler::by_weight(fanouts("2"), replace);
            let error = sample(&sampler, &view, &nodes([0]), 0).unwrap_err().to_string();
            assert!(error.contains("an edge to node 0 has weight"), "{error}");
        }
        // Uniform sampling ignores weights.
        sample(&Sampler::uniform(fanouts("2"), false), &view, &nodes([0]), 0).unwrap();
    }
}

#[test]
#[should_panic(expected = "a view with edge weights")]
fn a_view_without_edge_weights_is_the_callers_mistake() {
    let view = whole(&Graph::mixed(100), 1);
    let _ = sample(&Sampler::by_weight(fanouts("2"), false), &view, &nodes([0]), 0);
}

#[test]
fn blocks_keep_the_weights_of_drawn_edges() {
    let weights = [4.0, 1.0, 0.5, 2.5, 8.0];
    for kind in view::tests::KINDS {
        let view = star(&weights, kind);
        for (text, replace) in [("-1", false), ("3", false), ("4", true)] {
            for sampler in [Sampler::uniform(fanouts(text), replace), Sampler::by_weight(fanouts(text), replace)] {
                for batch in 0..20 {
                    let minibatch = sample(&sampler.clone().with_edge_weights(), &view, &nodes([0]), batch).unwrap();
                    let drawn = drawn(&sampler, &view, batch);
                    let expected: Vec<_> = drawn.iter().map(|&position| weights[position]).collect();
                    assert_eq!(minibatch.blocks[0].edge_weights, expected, "{text} {replace} {kind:?}");
                }
            }
        }
    }
}

#[test]
fn the_positions_that_are_prefetched_are_tried_first() {
    use crate::sample::{random, weighted};
    for (degree, k) in [(100, 1), (100, 7), (1 << 33, 64)] {
        let (mut first, mut drawn) = (Vec::new(), Vec::new());
        weighted::first_tries(random::draws(5), degree, k, |at| first.push(at));
        let tried = RefCell::new(Vec::new());
        let weight = |at| {
            tried.borrow_mut().push(at);
            0.0
        };
        weighted::by_rejection(&mut random::draws(5), (degree, k, false), 1.0, weight, &mut drawn);
        assert_eq!(tried.into_inner()[..first.len()], first, "{k} of {degree}");
        assert!(first.len() as u32 >= k.min(32) && drawn.is_empty());
    }
}
