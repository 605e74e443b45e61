//! Parts that are sampled together have the minibatch that joins the minibatches of the parts.

use std::sync::Arc;

use grappa_io::progress::Silent;

use super::*;
use crate::{
    partition::Owned,
    sample::{Join, JoinScratch, SeedParts},
    view::{GraphLists, GraphView, ViewOptions, tests::types::TypedGraph},
};

/// A part: the seeds of each type, and a time if the sampler has times.
pub(super) type Part = (Vec<Vec<u64>>, Option<i64>);

/// Checks that parts are the same together and one by one.
pub(super) fn check_parts(sampler: &Sampler, lists: &GraphLists<'_>, parts: &[Part], context: &str) {
    let types = lists.shape.types();
    let (mut scratch, mut seeds) = (Scratch::default(), SeedParts::default());
    seeds.begin(types);
    let mut single = vec![Minibatch::default(); types * parts.len()];
    for ((number, (of_types, time)), out) in (0..).zip(parts).zip(single.chunks_mut(types)) {
        for (node_type, of_type) in of_types.iter().enumerate() {
            of_type.iter().for_each(|&seed| seeds.push_seed(node_type, NodeId(seed)));
        }
        seeds.push_part(key(number), *time);
        let of_types: Vec<_> = of_types.iter().map(|of_type| nodes(of_type.iter().copied())).collect();
        if time.is_none() {
            sampler.sample_types(lists, &of_types, key(number), &mut scratch, out).unwrap();
            continue;
        }
        let mut alone = SeedParts::default();
        alone.begin(types);
        for (node_type, of_type) in of_types.iter().enumerate() {
            of_type.iter().for_each(|&seed| alone.push_seed(node_type, seed));
        }
        alone.push_part(key(number), *time);
        sampler.sample_parts(lists, &alone, &mut scratch, out).unwrap();
    }
    let [mut together, mut joined] = [(); 2].map(|()| vec![Minibatch::default(); types]);
    let join_scratch = &mut JoinScratch::default();
    Minibatch::join(&single, Join::Apart, lists.shape, &mut scratch, join_scratch, &mut joined).unwrap();
    // Twice, so that nothing is left of an earlier minibatch.
    for _ in 0..2 {
        sampler.sample_parts(lists, &seeds, &mut scratch, &mut together).unwrap();
        assert!(together == joined, "{context}");
        let times: Vec<i64> = parts.iter().filter_map(|part| part.1).collect();
        assert!(together.iter().all(|of_type| of_type.part_times == times), "{context}");
    }
}

#[test]
fn parts_are_the_same_together_and_one_by_one() {
    let (_folder, graph) = TypedGraph::library().write();
    let options = ViewOptions { threads: 2, ..ViewOptions::default() };
    let parts: Vec<Part> = (0..150)
        .map(|number| {
            let repeated = vec![number; (number % 3) as usize];
            let seeds = vec![(number * 4..number * 4 + number % 5).collect(), repeated, vec![number % 40]];
            (seeds, None)
        })
        .collect();
    for mapped_bytes_max in [None, Some(u64::MAX)] {
        let options = ViewOptions { mapped_bytes_max, ..options.clone() };
        let view = GraphView::open(&graph, Owned::whole_graph(&graph), &options, &Arc::default(), &Silent).unwrap();
        for text in ["3", "4,3,2", "4,-1"] {
            for replace in [false, true] {
                let sampler = Sampler::uniform(fanouts(text), replace);
                for sampler in [sampler.clone().drawing_once(), sampler] {
                    for count in [1, 2, 150] {
                        let context = format!("{count} parts, {sampler:?}, {mapped_bytes_max:?}");
                        check_parts(&sampler, &view.lists(), &parts[..count], &context);
                    }
                }
            }
        }
    }
}

#[test]
fn random_walks_of_parts_are_those_of_each_part() {
    let graph = Graph::mixed(200);
    let view = whole(&graph, 4);
    let shape = crate::shape::GraphShape::untyped(graph.nodes());
    let lists = GraphLists { shape: &shape, views: vec![&view] };
    let walks = RandomWalks { hops: 2, walks: 5, steps: 3, termination: 0.3, neighbors: 4 };
    let parts: Vec<Part> = (0..50).map(|number| (vec![vec![number, 2 * number + 1]], None)).collect();
    check_parts(&Sampler::random_walks(walks).unwrap(), &lists, &parts, "walks");
}
