//! Which edges of a store a view contains.

use grappa_formats::{ChunkId, NodeId};
use grappa_io::{Error, Result};
use grappa_storage::Store;

use super::halo::Halo;
use crate::partition::Owned;

/// Selects the edges of a store that a view contains.
#[derive(Debug, Clone, Copy)]
pub(super) struct EdgeFilter<'a> {
    pub store: &'a Store,
    pub owned: &'a Owned,
    pub halo: Halo,
    pub edge_weights: bool,
}

impl EdgeFilter<'_> {
    /// Whether every node is owned.
    pub(super) fn is_whole(&self) -> bool {
        self.owned.nodes() == self.store.manifest().nodes
    }

    /// Whether edges from nodes that are not owned are included.
    pub(super) fn keeps_halo(&self) -> bool {
        self.halo != Halo::None
    }

    /// The number of included edges into the nodes of a chunk, from the manifest.
    pub(super) fn edges_of(&self, chunk: ChunkId) -> u64 {
        let entry = &self.store.manifest().chunks[chunk.0 as usize];
        if self.keeps_halo() {
            return entry.edges;
        }
        let buckets = (0..).map(ChunkId).zip(&entry.bucket_edges);
        buckets
            .filter(|&(j, _)| self.owned.owns(j))
            .map(|(_, edges)| edges)
            .sum()
    }

    /// The number of included edges.
    pub(super) fn edges(&self) -> u64 {
        self.owned.chunks().map(|chunk| self.edges_of(chunk)).sum()
    }

    /// Puts the adjacency list that begins at `start` into the order of views: owned sources first. Edge weights move
    /// with their sources. Halo sources are dropped if they are not included. Returns the number of owned sources.
    pub(super) fn arrange(
        &self,
        sources: &mut Vec<u64>,
        edge_weights: &mut Vec<f32>,
        start: usize,
        halo_edges: &mut HaloEdges,
    ) -> u64 {
        halo_edges.sources.clear();
        halo_edges.weights.clear();
        let mut next = start;
        for at in start..sources.len() {
            let source = sources[at];
            if self.owned.contains(NodeId(source)) {
                sources[next] = source;
                if self.edge_weights {
                    edge_weights[next] = edge_weights[at];
                }
                next += 1;
            } else {
                halo_edges.sources.push(source);
                if self.edge_weights {
                    halo_edges.weights.push(edge_weights[at]);
                }
            }
        }
        sources.truncate(next);
        edge_weights.truncate(next);
        if self.keeps_halo() {
            sources.append(&mut halo_edges.sources);
            edge_weights.append(&mut halo_edges.weights);
        }
        (next - start) as u64
    }

    /// Fails if the view needs edge weights and the store has none.
    pub(super) fn check(&self) -> Result<()> {
        if self.edge_weights && !self.store.manifest().weighted {
            return Err(Error::missing(
                "edge weights",
                self.store.path(),
                "sample uniformly, or ingest weighted edges",
            ));
        }
        Ok(())
    }
}

/// Buffer of [`EdgeFilter::arrange`] for the halo sources of one adjacency list.
#[derive(Debug, Default)]
pub(super) struct HaloEdges {
    sources: Vec<u64>,
    weights: Vec<f32>,
}
