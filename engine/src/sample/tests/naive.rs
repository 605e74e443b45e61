//! A sampler as simple as can be, where nothing is left to chance: all neighbours.

use std::collections::HashMap;

use grappa_formats::NodeId;

use crate::{
    sample::{Block, Minibatch},
    view::tests::graph::Graph,
};

/// The minibatch of `hops` hops with all neighbours.
pub fn all_neighbours(graph: &Graph, seeds: &[NodeId], hops: usize) -> Minibatch {
    let mut nodes = seeds.to_vec();
    let mut places: HashMap<NodeId, u32> = seeds.iter().copied().zip(0..).collect();
    let mut blocks = Vec::new();
    for _ in 0..hops {
        let mut block = Block {
            destinations: nodes.len(),
            offsets: vec![0],
            ..Block::default()
        };
        for destination in nodes.clone() {
            for source in graph.sources(destination.0).map(NodeId) {
                let next = nodes.len() as u32;
                let place = *places.entry(source).or_insert(next);
                if place == next {
                    nodes.push(source);
                }
                block.indices.push(place);
            }
            let degree = graph.rows[destination.0 as usize].len() as u64;
            block.offsets.push(block.indices.len() as u32);
            block.visible.push(degree);
            block.global.push(degree);
            block.halo.push(false);
        }
        block.sources = nodes.len();
        blocks.push(block);
    }
    Minibatch {
        nodes,
        seeds: seeds.len(),
        blocks,
    }
}
