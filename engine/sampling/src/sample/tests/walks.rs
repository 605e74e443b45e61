//! Neighborhoods by random walks.

use std::collections::HashMap;

use super::*;

const WALKS: RandomWalks = RandomWalks { hops: 1, walks: 8, steps: 3, termination: 0.25, neighbors: 1000 };

/// A small graph with a dead end (3), a self-loop (2) and parallel edges (1).
fn small() -> Graph {
    let lists = [vec![1, 2, 3], vec![0, 0, 2], vec![2, 0], vec![], vec![0, 1]];
    Graph::new(5, |node| lists[node as usize].clone())
}

/// The mean number of visits of a walk from `seed` to each node, computed from the definition.
fn expected_visits(graph: &Graph, seed: usize, walks: &RandomWalks) -> Vec<f64> {
    let nodes = graph.lists.len();
    let mut visits = vec![0.0; nodes];
    let mut at = vec![0.0; nodes];
    at[seed] = 1.0;
    for step in 0..walks.steps {
        let goes_on = if step == 0 { 1.0 } else { 1.0 - walks.termination };
        let mut next = vec![0.0; nodes];
        for (node, probability) in at.iter().enumerate() {
            let degree = graph.lists[node].len() as f64;
            for source in graph.sources(node as u64) {
                next[source as usize] += probability * goes_on / degree;
            }
        }
        visits.iter_mut().zip(&next).for_each(|(visits, next)| *visits += next);
        at = next;
    }
    visits
}

/// The neighbors of the first seed and their visits.
fn visits(minibatch: &Minibatch) -> HashMap<u64, f32> {
    let block = &minibatch.blocks[0];
    let edges = block.edges_of(0);
    let sources = block.indices[edges.clone()].iter().map(|&i| minibatch.nodes[i as usize].0);
    sources.zip(block.edge_weights[edges].iter().copied()).collect()
}

#[test]
fn visits_have_the_expected_frequency() {
    let graph = small();
    for kind in view::tests::KINDS {
        let view = view::tests::whole(&graph.store(2).store, false, kind).unwrap();
        for (seed, steps, termination) in [(0, 3, 0.25), (1, 4, 0.0), (4, 2, 0.9), (2, 1, 0.5), (0, 5, 1.0)] {
            let walks = RandomWalks { steps, termination, ..WALKS };
            let sampler = Sampler::random_walks(walks).unwrap();
            let batches = 3000;
            let mut found = [0.0; 5];
            for batch in 0..batches {
                let minibatch = sample(&sampler, &view, &nodes([seed]), batch).unwrap();
                for (node, visits) in visits(&minibatch) {
                    found[node as usize] += f64::from(visits);
                }
            }
            let all = (batches * u64::from(walks.walks)) as f64;
            for (node, expected) in expected_visits(&graph, seed as usize, &walks).iter().enumerate() {
                // One walk visits a node between 0 and `steps` times. The slack is at least five standard deviations of
                // the mean.
                let slack = 5.0 * f64::from(steps) * (expected.min(1.0) / all).sqrt();
                let mean = found[node] / all;
                assert!((mean - expected).abs() <= slack, "{seed} to {node}: {mean}, expected {expected}");
            }
        }
    }
}

#[test]
fn the_most_visited_nodes_are_kept_and_ties_go_to_smaller_ids() {
    let graph = Graph::mixed(500);
    let view = whole(&graph, 2);
    let seeds = nodes((0..500).step_by(3));
    let all = sample(&Sampler::random_walks(WALKS).unwrap(), &view, &seeds, 3).unwrap();
    let few = RandomWalks { neighbors: 4, ..WALKS };
    let few = sample(&Sampler::random_walks(few).unwrap(), &view, &seeds, 3).unwrap();
    let neighbors = |minibatch: &Minibatch, seed: usize| -> Vec<(f32, u64)> {
        let block = &minibatch.blocks[0];
        let edges = block.edges_of(seed);
        let sources = block.indices[edges.clone()].iter().map(|&i| minibatch.nodes[i as usize].0);
        block.edge_weights[edges].iter().copied().zip(sources).collect()
    };
    let mut ties = 0;
    for seed in 0..seeds.len() {
        let all = neighbors(&all, seed);
        assert!(all.is_sorted_by(|a, b| a.0 > b.0 || a.0 == b.0 && a.1 < b.1));
        assert_eq!(neighbors(&few, seed), all[..all.len().min(4)]);
        ties += usize::from(all.len() > 4 && all[3].0 == all[4].0);
    }
    assert!(ties > 0, "the graph has no ties");
}

#[test]
fn blocks_of_walks_fit_each_other() {
    let graph = Graph::mixed(2000);
    let view = whole(&graph, 3);
    let walks = RandomWalks { hops: 3, walks: 100, neighbors: 5, ..WALKS };
    let minibatch = sample(&Sampler::random_walks(walks).unwrap(), &view, &nodes((0..2000).step_by(41)), 0).unwrap();
    let mut destinations = minibatch.seeds;
    for block in &minibatch.blocks {
        assert_eq!(block.destinations, destinations);
        assert_eq!(block.edge_weights.len(), block.indices.len());
        assert!(block.indices.iter().all(|&index| (index as usize) < block.sources));
        for destination in 0..destinations {
            let node = minibatch.nodes[destination].0 as usize;
            let edges = block.edges_of(destination);
            assert!(edges.len() <= 5);
            assert_eq!(edges.is_empty(), graph.lists[node].is_empty());
            assert_eq!(block.global[destination], graph.lists[node].len() as u64);
            let visits: f32 = block.edge_weights[edges].iter().sum();
            assert!(visits <= 300.0);
        }
        destinations = block.sources;
    }
    assert_eq!(destinations, minibatch.nodes.len());
}

#[test]
fn walks_end_at_halo_nodes_and_step_to_them_if_the_mode_allows_it() {
    // A path: the only source of node i is i + 1. Nodes from 10 on are not owned.
    let graph = Graph::new(20, |node| if node < 19 { vec![node + 1] } else { vec![] });
    let store = graph.store_with(vec![0, 10, 20], false);
    let owned = view::tests::owning(&store.store, &[0]);
    let walks = RandomWalks { steps: 4, termination: 0.0, ..WALKS };
    let sampler = Sampler::random_walks(walks).unwrap();
    for (halo, visited) in [(Halo::Stop, vec![8, 9, 10]), (Halo::None, vec![8, 9])] {
        let view = view::tests::view(&store.store, owned.clone(), halo, false, ViewKind::Memory).unwrap();
        let minibatch = sample(&sampler, &view, &nodes([7]), 0).unwrap();
        let expected: HashMap<u64, f32> = visited.into_iter().map(|node| (node, 8.0)).collect();
        assert_eq!(visits(&minibatch), expected, "{halo}");
    }
}

#[test]
fn walks_with_invalid_numbers_are_errors() {
    for walks in [
        RandomWalks { hops: 0, ..WALKS },
        RandomWalks { walks: 0, ..WALKS },
        RandomWalks { steps: 0, ..WALKS },
        RandomWalks { neighbors: 0, ..WALKS },
        RandomWalks { termination: 1.5, ..WALKS },
        RandomWalks { termination: f64::NAN, ..WALKS },
    ] {
        assert!(Sampler::random_walks(walks).unwrap_err().to_string().contains("random walks"));
    }
}
