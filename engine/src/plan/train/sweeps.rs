//! Swept minibatches: passes over the adjacency lists, and the scratch files between them.

use grappa_sampling::{
    PartitionNumbers, halo_neighbors_fit, holds_minibatches,
    policy::{SEEDS_OF_A_STEP, SWEEPS},
    view::ViewKind,
};

use super::{PAGE_BYTES, Planner, VALUE, estimate::StagePlan};
use crate::plan::minibatch::Minibatch;

/// Bytes in scratch files of a destination, an edge and a node of a minibatch: pairs, drawn edges, and blocks with their nodes (2026-12-01,
/// sweeps).
const DESTINATION_BYTES: f64 = 8.0;
const EDGE_BYTES: f64 = 8.0;
const NODE_BYTES: f64 = 5.0;

impl Planner<'_> {
    /// Where adjacency lists are, with `numbers` of partitions, and whether minibatches are swept instead: as `--sampling` says, or as training
    /// chooses.
    pub(super) fn place(&self, numbers: &PartitionNumbers) -> ViewKind {
        let sweeps = self.options.sweeps.unwrap_or_else(|| {
            let may_sweep =
                self.options.expands_halo && self.options.partitions.is_none_or(|partitions| partitions == 1);
            may_sweep && self.holds_minibatches() && numbers.lacks_edges(|| self.expands_all_halo_nodes())
        });
        if sweeps { ViewKind::Sweep } else { numbers.lists.kind() }
    }

    /// Whether minibatches of the whole graph fit the memory for sure.
    fn holds_minibatches(&self) -> bool {
        let ends = self.options.links.map_or(1, |_| 4);
        let seeds = self.options.batch.unwrap_or(SEEDS_OF_A_STEP as u64) * ends;
        let row_bytes = u64::from(self.graph.features.0) * VALUE as u64;
        holds_minibatches(
            seeds,
            self.sampled_fanouts().iter().copied(),
            self.graph.nodes,
            row_bytes,
            self.machine.memory,
        )
    }

    /// Whether halo nodes can draw as in the whole graph.
    fn expands_all_halo_nodes(&self) -> bool {
        let (draws, sizes) = self.halo_draws();
        self.model.preaggregated
            || self.model.fanouts.len() == 1
            || halo_neighbors_fit(draws, &[sizes], self.lists_budget().share())
    }

    /// The sweeps of an epoch of this many minibatches. Scratch files are all bytes that are written; they are read once.
    pub(super) fn sweeps(&self, minibatch: &Minibatch, minibatches: f64) -> StagePlan {
        let lists = self.graph.adjacency_bytes as f64;
        // Each pass reads the pages of the lists that it draws from, or all.
        let read_by = |destinations: f64| (destinations * minibatches * PAGE_BYTES).min(lists);
        let destinations: f64 = minibatch.hops.iter().map(|hop| hop.destinations).sum();
        let of_minibatch =
            DESTINATION_BYTES * destinations + EDGE_BYTES * minibatch.edges() + NODE_BYTES * minibatch.nodes;
        let lists_read: f64 = minibatch.hops.iter().map(|hop| read_by(hop.destinations)).sum();
        let scratch = of_minibatch * minibatches;
        let edges = minibatch.edges() * minibatches;
        self.stage(lists_read + scratch, scratch, edges * self.machine.rates.sweep_edge_ns * 1e-9 / self.threads)
    }

    /// Bytes of memory of sweeps and of the mapped lists that they read.
    pub(super) fn sweep_memory(&self) -> f64 {
        self.lists_budget().share() as f64 + SWEEPS.bytes(self.machine.memory) as f64
    }
}
