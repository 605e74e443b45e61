//! Compares samplers with a naive implementation and with the distributions that they promise.

mod apart;
mod damage;
mod join;
mod kinds;
mod naive;
mod neighbors;
mod partitions;
pub(crate) mod statistics;
mod time;
mod walks;
mod weighted;

use grappa_formats::{NodeId, PartitionId};
use grappa_io::Result;

use super::{BatchKey, Fanouts, Minibatch, RandomWalks, Sampler, Scratch};
use crate::view::{self, Halo, PartitionView, ViewKind, tests::graph::Graph};

fn key(batch: u64) -> BatchKey {
    BatchKey { seed: 7, epoch: 2, partition: PartitionId(0), batch }
}

fn fanouts(text: &str) -> Fanouts {
    text.parse().unwrap()
}

fn nodes(nodes: impl IntoIterator<Item = u64>) -> Vec<NodeId> {
    nodes.into_iter().map(NodeId).collect()
}

fn sample(sampler: &Sampler, view: &PartitionView, seeds: &[NodeId], batch: u64) -> Result<Minibatch> {
    let mut out = Minibatch::default();
    sampler.sample(view, seeds, key(batch), &mut Scratch::default(), &mut out)?;
    Ok(out)
}

fn whole(graph: &Graph, chunks: u32) -> PartitionView {
    view::tests::whole(&graph.store(chunks).store, false, ViewKind::Memory).unwrap()
}

/// Checks what holds for every minibatch: blocks fit each other, nodes are unique, and every edge is in the graph.
/// Without replacement no edge is drawn more often than it exists.
fn check_valid(minibatch: &Minibatch, graph: &Graph, replace: bool) {
    let mut unique: Vec<_> = minibatch.nodes.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), minibatch.nodes.len(), "nodes are unique");
    let mut destinations = minibatch.seeds;
    for block in &minibatch.blocks {
        assert_eq!(block.destinations, destinations);
        assert_eq!(block.offsets.len(), destinations + 1);
        assert_eq!([block.offsets[0], block.offsets[destinations]], [0, block.indices.len() as u32]);
        assert!(block.indices.iter().all(|&index| (index as usize) < block.sources));
        for lengths in [block.visible.len(), block.global.len(), block.halo.len()] {
            assert_eq!(lengths, destinations);
        }
        for destination in 0..destinations {
            let mut list: Vec<_> = graph.sources(minibatch.nodes[destination].0).collect();
            for &index in &block.indices[block.edges_of(destination)] {
                let source = minibatch.nodes[index as usize].0;
                let at = list.iter().position(|&s| s == source);
                let at = at.unwrap_or_else(|| panic!("no edge from {source}, or it was drawn too often"));
                if !replace {
                    list.swap_remove(at);
                }
            }
        }
        destinations = block.sources;
    }
    assert_eq!(destinations, minibatch.nodes.len());
}
