//! Which of a store's edges a view keeps.

use grappa_formats::{ChunkId, NodeId};
use grappa_io::{Error, Result};
use grappa_storage::Store;

use super::halo::Halo;
use crate::partition::Owned;

/// The part of a store that a view keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    pub store: &'a Store,
    pub owned: &'a Owned,
    pub halo: Halo,
    pub weights: bool,
}

impl Kept<'_> {
    /// Whether every node is owned.
    pub(super) fn is_whole(&self) -> bool {
        self.owned.nodes() == self.store.manifest().nodes
    }

    /// Whether sources that are not owned are kept.
    pub(super) fn keeps_halo(&self) -> bool {
        self.halo != Halo::None
    }

    /// The edges that are kept of a chunk's rows, as the manifest says.
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

    /// The edges that are kept.
    pub(super) fn edges(&self) -> u64 {
        self.owned.chunks().map(|chunk| self.edges_of(chunk)).sum()
    }

    /// Puts the sources of a row, and their weights if there are any, into the order of views: those that are owned first.
    /// Drops the others if they are not kept. Returns how many are owned.
    pub(super) fn arrange(
        &self,
        sources: &mut Vec<u64>,
        weights: &mut Vec<f32>,
        start: usize,
        aside: &mut Aside,
    ) -> u64 {
        aside.sources.clear();
        aside.weights.clear();
        let mut next = start;
        for at in start..sources.len() {
            let source = sources[at];
            if self.owned.contains(NodeId(source)) {
                sources[next] = source;
                if self.weights {
                    weights[next] = weights[at];
                }
                next += 1;
            } else {
                aside.sources.push(source);
                if self.weights {
                    aside.weights.push(weights[at]);
                }
            }
        }
        sources.truncate(next);
        weights.truncate(next);
        if self.keeps_halo() {
            sources.append(&mut aside.sources);
            weights.append(&mut aside.weights);
        }
        (next - start) as u64
    }

    /// Fails if the view is to have weights and the store has none.
    pub(super) fn check(&self) -> Result<()> {
        if self.weights && !self.store.manifest().weighted {
            return Err(Error::missing(
                "edge weights",
                self.store.path(),
                "sample uniformly, or ingest weighted edges",
            ));
        }
        Ok(())
    }
}

/// Room for the sources of a row that are not owned.
#[derive(Debug, Default)]
pub(super) struct Aside {
    sources: Vec<u64>,
    weights: Vec<f32>,
}
