//! The data of halo nodes that `--halo auto` chooses.

use grappa_sampling::{
    NodeSet,
    policy::{HALO_NEIGHBORS, REPARTITION_EVERY, STATE_WORK, refresh_work_max},
    view::{EdgeData, HaloLists},
};

use super::{HaloData, Planner};

impl Planner<'_> {
    /// The choice of `--halo auto`, for an epoch of `minibatches`.
    pub(super) fn halo(&self, partitions: u64, seeds: f64, minibatches: u64) -> HaloData {
        let layers = self.options.fanouts.len();
        if partitions == 1 || !self.options.expands_halo {
            return HaloData::Nothing;
        }
        if self.options.preaggregated && layers > 2 && self.options.links.is_none() {
            let epoch = self.minibatch(seeds, partitions, HaloData::Nothing).work() * minibatches as f64;
            if self.refresh_work() <= refresh_work_max(REPARTITION_EVERY as f64 * epoch) {
                return HaloData::Embeddings;
            }
        }
        self.halo_lists(partitions)
    }

    /// The work of a refresh: inference for the in-neighbors that a training node has within reach of all layers but
    /// the last.
    fn refresh_work(&self) -> f64 {
        let hops = self.options.fanouts.len() - 1;
        let reached = self.reach.sample(self.train_nodes(), &vec![None; hops], 1.0);
        let inferred = &reached.hops[1..];
        inferred.iter().map(|hop| hop.edges + STATE_WORK * hop.sources).sum()
    }

    /// The sampled in-neighbors of halo nodes; nothing if no hop expands these, or if the memory is too small.
    fn halo_lists(&self, partitions: u64) -> HaloData {
        // The last hop reaches nodes that are not expanded.
        let hops = self.sampled_fanouts().len().saturating_sub(1);
        if hops == 0 {
            return HaloData::Nothing;
        }
        let reached = self.reach.sample(self.train_nodes(), &vec![None; hops], 1.0);
        let (nodes, listed) = (self.options.nodes, reached.nodes.ceil() as u64);
        let most = HaloLists::drawing_bytes_max(nodes, self.options.edges, listed, HALO_NEIGHBORS, EdgeData::default());
        // A set of nodes for each partition finds them.
        let sets = partitions.saturating_mul(NodeSet::bytes_of(nodes));
        if most.max(sets) > self.lists_budget().share() {
            return HaloData::Nothing;
        }
        let sources = reached.drawn(&self.reach, HALO_NEIGHBORS).ceil() as u64;
        HaloData::Lists {
            bytes: HaloLists::bytes_of(nodes, listed, sources, EdgeData::default()) as f64,
        }
    }
}
