//! Joined minibatches have the nodes and edges of their parts, and no others.

use super::*;
use crate::{
    sample::{Block, Join, JoinScratch},
    shape::GraphShape,
};

/// The nodes of each part in the order of the joined minibatch: seeds of all parts, then what the first hop added.
fn order(parts: &[Minibatch]) -> Vec<(usize, usize)> {
    let hops = parts[0].blocks.len();
    let end = |part: &Minibatch, level: usize| match level {
        0 => part.seeds,
        _ => part.blocks[level - 1].sources,
    };
    let mut order = Vec::new();
    for level in 0..=hops {
        for (number, part) in parts.iter().enumerate() {
            let begin = if level == 0 { 0 } else { end(part, level - 1) };
            order.extend((begin..end(part, level)).map(|node| (number, node)));
        }
    }
    order
}

fn check_joined(parts: &[Minibatch], join: Join, joined: &Minibatch) {
    let order = order(parts);
    let node = |(part, at): (usize, usize)| parts[part].nodes[at];
    assert_eq!(joined.seeds, parts.iter().map(|part| part.seeds).sum::<usize>());
    // Each node once, in the order in which they are first in the parts; or each node of each part.
    let mut expected: Vec<NodeId> = Vec::new();
    for node in order.iter().copied().map(node) {
        if join == Join::Apart || !expected.contains(&node) {
            expected.push(node);
        }
    }
    assert_eq!(joined.nodes, expected);
    let hops = joined.blocks.len();
    for (hop, block) in joined.blocks.iter().enumerate() {
        let is_last = hop + 1 == hops && join == Join::SharedInput;
        let sum = |count: fn(&Block) -> usize| parts.iter().map(|part| count(&part.blocks[hop])).sum::<usize>();
        assert_eq!(block.destinations, sum(|block| block.destinations));
        let sources = if is_last { expected.len() } else { sum(|block| block.sources) };
        assert_eq!(block.sources, sources);
        assert_eq!(block.offsets.len(), block.destinations + 1);
        assert_eq!(block.indices.len(), sum(|block| block.indices.len()));
        assert!(block.own.is_empty() || is_last && block.own.len() == block.destinations);
        for (destination, &(part, at)) in order[..block.destinations].iter().enumerate() {
            assert_eq!(joined.destination(destination), parts[part].nodes[at]);
            let own = &parts[part].blocks[hop];
            let sources = block.indices[block.edges_of(destination)].iter();
            let expected = own.indices[own.edges_of(at)].iter();
            let expected: Vec<(usize, usize)> = expected.map(|&source| (part, source as usize)).collect();
            match is_last {
                true => {
                    let sources: Vec<NodeId> = sources.map(|&source| joined.nodes[source as usize]).collect();
                    let expected: Vec<NodeId> = expected.into_iter().map(node).collect();
                    assert_eq!(sources, expected, "last hop, destination {at} of part {part}");
                }
                false => {
                    let sources: Vec<(usize, usize)> = sources.map(|&source| order[source as usize]).collect();
                    assert_eq!(sources, expected, "hop {hop}, destination {at} of part {part}");
                }
            }
            if !block.edge_weights.is_empty() {
                assert_eq!(block.edge_weights[block.edges_of(destination)], own.edge_weights[own.edges_of(at)]);
            }
            assert_eq!(
                (block.visible[destination], block.global[destination], block.halo[destination]),
                (own.visible[at], own.global[at], own.halo[at])
            );
        }
    }
}

#[test]
fn a_joined_minibatch_has_the_edges_of_its_parts_and_no_others() {
    let graph = Graph::mixed(200);
    let view = whole(&graph, 4);
    let walks = RandomWalks { hops: 2, walks: 5, steps: 3, termination: 0.3, neighbors: 4 };
    let samplers = [
        Sampler::uniform(fanouts("3"), false),
        Sampler::uniform(fanouts("4,3,2"), false),
        Sampler::uniform(fanouts("4,-1"), true),
        Sampler::random_walks(walks).unwrap(),
    ];
    let (mut tables, mut scratch, mut joined) = (Scratch::default(), JoinScratch::default(), Minibatch::default());
    let mut join = |parts: &[Minibatch], how, out: &mut Minibatch| {
        let shape = GraphShape::untyped(graph.nodes());
        Minibatch::join(parts, how, &shape, &mut tables, &mut scratch, std::slice::from_mut(out)).unwrap();
        check_joined(parts, how, out);
    };
    for sampler in &samplers {
        // Parts of different sizes, with nodes in common; the joined minibatch is filled again and again.
        let parts: Vec<Minibatch> = [0..20, 20..21, 30..70, 7..7, 90..100]
            .into_iter()
            .zip(0..)
            .map(|(seeds, batch)| sample(sampler, &view, &nodes(seeds), batch).unwrap())
            .collect();
        for count in [1, 2, 5] {
            join(&parts[..count], Join::Apart, &mut joined);
            assert!(joined.blocks.last().unwrap().own.is_empty());
            let of_part = |number: u32| joined.parts.iter().filter(|&&part| part == number).count();
            let expected = |number: u32| if count == 1 { 0 } else { parts[number as usize].nodes.len() };
            assert!((0..count as u32).all(|number| of_part(number) == expected(number)), "the part of each node");
            join(&parts[..count], Join::SharedInput, &mut joined);
            let is_prefix = joined.blocks.last().unwrap().own.is_empty();
            assert_eq!(is_prefix, count == 1 || sampler.hops() == 1, "{count} parts share destinations");
        }
        for how in [Join::SharedInput, Join::Apart] {
            join(&parts[..1], how, &mut joined);
            assert_eq!(joined, parts[0], "a part alone stays as it is");
        }
    }
}
