//! A naive sampler that takes all neighbors, so nothing is random.

use std::collections::HashMap;

use grappa_formats::NodeId;

use crate::{
    partition::Owned,
    sample::{Block, Minibatch},
    view::{Halo, tests::graph::Graph},
};

/// The minibatch with all neighbors that a partition may draw.
pub fn all_neighbors(graph: &Graph, owned: &Owned, halo: Halo, seeds: &[NodeId], hops: usize) -> Minibatch {
    let mut nodes = seeds.to_vec();
    let mut indices: HashMap<NodeId, u32> = seeds.iter().copied().zip(0..).collect();
    let mut blocks = Vec::new();
    let draws_halo = halo != Halo::None;
    for _ in 0..hops {
        let mut block = Block { destinations: nodes.len(), offsets: vec![0], ..Block::default() };
        for destination in nodes.clone() {
            let is_owned = owned.contains(destination);
            let list: Vec<_> = graph.sources(destination.0).map(NodeId).filter(|_| is_owned).collect();
            let (visible, others): (Vec<_>, Vec<_>) = list.iter().partition(|&&source| owned.contains(source));
            block.visible.push(visible.len() as u64);
            block.global.push(list.len() as u64);
            block.halo.push(!is_owned);
            let drawn = visible.into_iter().chain(others.into_iter().filter(|_| draws_halo));
            for source in drawn {
                let next = nodes.len() as u32;
                let index = *indices.entry(source).or_insert(next);
                if index == next {
                    nodes.push(source);
                }
                block.indices.push(index);
            }
            block.offsets.push(block.indices.len() as u32);
        }
        block.sources = nodes.len();
        blocks.push(block);
    }
    Minibatch { nodes, seeds: seeds.len(), blocks, ..Minibatch::default() }
}
