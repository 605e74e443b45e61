//! A sampler as simple as can be, where nothing is left to chance: all neighbours.

use std::collections::HashMap;

use grappa_formats::NodeId;

use crate::{
    partition::Owned,
    sample::{Block, Minibatch},
    view::{Halo, tests::graph::Graph},
};

/// The minibatch of `hops` hops with all neighbours that a partition may draw.
pub fn all_neighbours(graph: &Graph, owned: &Owned, halo: Halo, seeds: &[NodeId], hops: usize) -> Minibatch {
    let mut nodes = seeds.to_vec();
    let mut places: HashMap<NodeId, u32> = seeds.iter().copied().zip(0..).collect();
    let mut blocks = Vec::new();
    for hop in 0..hops {
        let draws_halo = match halo {
            Halo::Features => hop == hops - 1,
            Halo::Stop => true,
            Halo::None => false,
        };
        let mut block = Block {
            destinations: nodes.len(),
            offsets: vec![0],
            ..Block::default()
        };
        for destination in nodes.clone() {
            let is_owned = owned.contains(destination);
            let row: Vec<_> = graph.sources(destination.0).map(NodeId).filter(|_| is_owned).collect();
            let (visible, others): (Vec<_>, Vec<_>) = row.iter().partition(|&&source| owned.contains(source));
            block.visible.push(visible.len() as u64);
            block.global.push(row.len() as u64);
            block.halo.push(!is_owned);
            let drawn = visible.into_iter().chain(others.into_iter().filter(|_| draws_halo));
            for source in drawn {
                let next = nodes.len() as u32;
                let place = *places.entry(source).or_insert(next);
                if place == next {
                    nodes.push(source);
                }
                block.indices.push(place);
            }
            block.offsets.push(block.indices.len() as u32);
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
