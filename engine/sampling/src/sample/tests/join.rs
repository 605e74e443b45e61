//! Joined minibatches have the nodes and edges of their parts, and no others.

use super::*;
use crate::sample::Block;

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

fn check_joined(parts: &[Minibatch], joined: &Minibatch) {
    let order = order(parts);
    assert_eq!(joined.nodes.len(), order.len());
    assert_eq!(joined.seeds, parts.iter().map(|part| part.seeds).sum::<usize>());
    let origins = order.iter().map(|&(part, at)| (part, at as u64));
    assert_eq!(joined.origins(), origins.collect::<Vec<_>>());
    for (node, &(part, at)) in joined.nodes.iter().zip(&order) {
        assert_eq!(*node, parts[part].nodes[at]);
    }
    for (hop, block) in joined.blocks.iter().enumerate() {
        let sum = |count: fn(&Block) -> usize| parts.iter().map(|part| count(&part.blocks[hop])).sum::<usize>();
        assert_eq!(block.destinations, sum(|block| block.destinations));
        assert_eq!(block.sources, sum(|block| block.sources));
        assert_eq!(block.offsets.len(), block.destinations + 1);
        assert_eq!(block.indices.len(), sum(|block| block.indices.len()));
        for (destination, &(part, at)) in order[..block.destinations].iter().enumerate() {
            let own = &parts[part].blocks[hop];
            let sources = block.indices[block.edges_of(destination)].iter();
            let sources: Vec<(usize, usize)> = sources.map(|&source| order[source as usize]).collect();
            let expected = own.indices[own.edges_of(at)].iter();
            let expected: Vec<(usize, usize)> = expected.map(|&source| (part, source as usize)).collect();
            assert_eq!(sources, expected, "hop {hop}, destination {at} of part {part}");
            if !block.edge_weights.is_empty() {
                assert_eq!(
                    block.edge_weights[block.edges_of(destination)],
                    own.edge_weights[own.edges_of(at)]
                );
            }
            assert_eq!(
                (
                    block.visible[destination],
                    block.global[destination],
                    block.halo[destination]
                ),
                (own.visible[at], own.global[at], own.halo[at])
            );
        }
    }
}

#[test]
fn a_joined_minibatch_has_the_edges_of_its_parts_and_no_others() {
    let graph = Graph::mixed(200);
    let view = whole(&graph, 4);
    let walks = RandomWalks {
        hops: 2,
        walks: 5,
        steps: 3,
        termination: 0.3,
        neighbors: 4,
    };
    let samplers = [
        Sampler::uniform(fanouts("3"), false),
        Sampler::uniform(fanouts("4,3,2"), false),
        Sampler::uniform(fanouts("4,-1"), true),
        Sampler::random_walks(walks).unwrap(),
    ];
    let (mut places, mut joined) = (Vec::new(), Minibatch::default());
    for sampler in &samplers {
        // Parts of different sizes, with nodes in common; the joined minibatch is filled again and again.
        let parts: Vec<Minibatch> = [0..20, 20..21, 10..50, 7..7, 90..100]
            .into_iter()
            .zip(0..)
            .map(|(seeds, batch)| sample(sampler, &view, &nodes(seeds), batch).unwrap())
            .collect();
        for count in [1, 2, 5] {
            Minibatch::join(&parts[..count], &mut places, &mut joined).unwrap();
            check_joined(&parts[..count], &joined);
        }
        Minibatch::join(&parts[..1], &mut places, &mut joined).unwrap();
        assert_eq!(joined, parts[0], "a part alone stays as it is");
    }
}
