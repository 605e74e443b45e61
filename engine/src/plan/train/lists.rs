//! The number of partitions, and where their adjacency lists are: the choice that training makes, without a store.

use grappa_io::Result;
use grappa_sampling::{ListsBudget, NumberChoice, PartitionNumbers, PartitionSizes, view::ViewKind};

use super::Planner;

/// Chunks differ in size: the chunks of a partition may take this much more than the mean.
const UNEVEN: f64 = 1.01;

impl PartitionSizes for Planner<'_> {
    fn whole(&self) -> u64 {
        self.list_bytes(1.0, 1) as u64
    }

    fn all(&self, partitions: u32, _concurrent: u32, _enough: u64) -> Result<u64> {
        let partitions = partitions.into();
        Ok(self.list_bytes(self.copies(partitions), partitions) as u64)
    }

    fn two_groups(&self, partitions: u32, concurrent: u32, _enough: u64) -> Result<u64> {
        Ok(self.two_group_bytes(partitions.into(), concurrent.into()) as u64)
    }
}

impl Planner<'_> {
    /// The numbers of partitions, and where their adjacency lists are.
    pub(super) fn partitions(&self) -> Result<PartitionNumbers> {
        let options = self.options;
        let choice = NumberChoice {
            partitions: options.partitions,
            concurrent: options.concurrent,
            workers: 1,
            chunks: self.graph.chunks,
            budget: self.lists_budget(),
            has_halo_lists: options.expands_halo && self.sampled_fanouts().len() > 1,
        };
        choice.choose(self)
    }

    /// The memory that adjacency lists share with features.
    pub(super) fn lists_budget(&self) -> ListsBudget {
        ListsBudget { memory: self.machine.memory, feature_bytes: self.feature_bytes as u64 }
    }

    /// How many partitions own a node: a base and a variable part, as by default.
    pub(super) fn copies(&self, partitions: u64) -> f64 {
        if partitions > 1 { 2.0 } else { 1.0 }
    }

    /// Bytes of the lists of this share of the graph in memory.
    fn list_bytes(&self, share: f64, partitions: u64) -> f64 {
        let head_bytes = if partitions > 1 { 16.0 } else { 8.0 };
        share * (self.graph.nodes as f64 * head_bytes + self.graph.edges as f64 * self.source_bytes())
    }

    /// Bytes of a source of an edge in memory.
    pub(super) fn source_bytes(&self) -> f64 {
        if self.graph.nodes <= 1 << 32 { 4.0 } else { 8.0 }
    }

    /// Bytes of the lists of two groups, of partitions with the most chunks.
    fn two_group_bytes(&self, partitions: u64, concurrent: u64) -> f64 {
        let chunks = u64::from(self.graph.chunks).max(partitions);
        let share = chunks.div_ceil(partitions) as f64 / chunks as f64;
        let share = (2.0 * UNEVEN * concurrent as f64 * share).min(1.0);
        self.list_bytes(share * self.copies(partitions), partitions)
    }

    /// Bytes of the lists that are in memory at a time.
    pub(super) fn adjacency_in_memory(&self, partitions: u64, concurrent: u64, lists: ViewKind) -> f64 {
        let (budget, all) = (self.lists_budget(), self.list_bytes(self.copies(partitions), partitions));
        let mapped_max = budget.share() as f64;
        match lists {
            ViewKind::InTurn => self.two_group_bytes(partitions, concurrent),
            ViewKind::Mapped => mapped_max,
            ViewKind::Sweep => self.sweep_memory(),
            _ if budget.fits(all as u64) => all,
            // As mapped files they are smaller, and leave more to features.
            _ => all.min((self.graph.adjacency_bytes as f64).min(mapped_max)),
        }
    }
}
