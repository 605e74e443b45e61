//! The number of partitions, and where their adjacency lists are: the choice that training makes, without a store.

use grappa_sampling::policy::{HALO_LISTS_SHARE, LISTS_SHARE, PARTITIONS_MAX, lists_fit, lists_in_turn_max};

use super::{PlannedLists, Planner};

/// Chunks differ in size: those of a partition may take this much more than the mean.
const UNEVEN: f64 = 1.01;

impl Planner<'_> {
    /// Number of partitions, of those in a step, and where their adjacency lists are.
    pub(super) fn partitions(&self) -> (u64, u64, PlannedLists) {
        let options = self.options;
        let room_of = |memory: u64| lists_in_turn_max(memory, self.feature_bytes as u64) as f64;
        let room = room_of(options.memory);
        let whole = self.list_bytes(1.0, 1);
        if whole <= room || lists_fit(whole as u64, self.feature_bytes as u64, options.memory) {
            let partitions = options.partitions.or(options.concurrent).unwrap_or(1);
            return (
                partitions,
                options.concurrent.unwrap_or(partitions),
                PlannedLists::Memory,
            );
        }
        // Partitions may get in-neighbors of halo nodes.
        let room = match options.expands_halo && self.sampled_fanouts().len() > 1 {
            true => room_of(options.memory - options.memory / HALO_LISTS_SHARE),
            false => room,
        };
        let two_groups =
            |partitions: u64, concurrent: u64| self.adjacency_in_memory(partitions, concurrent, PlannedLists::InTurn);
        if let Some(partitions) = options.partitions {
            let concurrent = options.concurrent.unwrap_or_else(|| {
                let powers = (0..=partitions.ilog2()).map(|bit| 1 << bit);
                let fits = |&concurrent: &u64| concurrent < partitions && two_groups(partitions, concurrent) <= room;
                let mut fitting = powers.filter(fits);
                fitting.next_back().unwrap_or(partitions)
            });
            let lists = match concurrent < partitions && two_groups(partitions, concurrent) <= room {
                true => PlannedLists::InTurn,
                false => PlannedLists::Mapped,
            };
            return (partitions, concurrent, lists);
        }
        let concurrent = options.concurrent.unwrap_or(1);
        let most = u64::from(options.chunks).min(PARTITIONS_MAX.into());
        let mut powers = (1..=most.ilog2()).map(|bit| 1 << bit);
        match powers.find(|&partitions| partitions > concurrent && two_groups(partitions, concurrent) <= room) {
            Some(partitions) => (partitions, concurrent, PlannedLists::InTurn),
            None => (concurrent, concurrent, PlannedLists::Mapped),
        }
    }

    /// How many partitions own a node: a base and a variable part, as by default.
    pub(super) fn copies(&self, partitions: u64) -> f64 {
        if partitions > 1 { 2.0 } else { 1.0 }
    }

    /// Bytes of the lists of this share of the graph in memory.
    fn list_bytes(&self, share: f64, partitions: u64) -> f64 {
        let head_bytes = if partitions > 1 { 16.0 } else { 8.0 };
        share * (self.options.nodes as f64 * head_bytes + self.options.edges as f64 * self.source_bytes())
    }

    /// Bytes of a source of an edge in memory.
    pub(super) fn source_bytes(&self) -> f64 {
        if self.options.nodes <= 1 << 32 { 4.0 } else { 8.0 }
    }

    /// Bytes of memory that mapped pages of lists may take.
    fn mapped_bytes_max(&self) -> f64 {
        (self.options.memory / LISTS_SHARE) as f64
    }

    /// Bytes of the lists that are in memory at a time.
    pub(super) fn adjacency_in_memory(&self, partitions: u64, concurrent: u64, lists: PlannedLists) -> f64 {
        let all = |share: f64| self.list_bytes(share * self.copies(partitions), partitions);
        match lists {
            // As mapped files they are smaller, and leave more to features.
            PlannedLists::Memory => {
                let lists = all(1.0);
                match lists_fit(lists as u64, self.feature_bytes as u64, self.options.memory) {
                    true => lists,
                    false => lists.min((self.options.adjacency_bytes as f64).min(self.mapped_bytes_max())),
                }
            }
            PlannedLists::Mapped => self.mapped_bytes_max(),
            PlannedLists::InTurn => {
                let chunks = u64::from(self.options.chunks).max(partitions);
                // Two groups, of partitions with the most chunks.
                let share = chunks.div_ceil(partitions) as f64 / chunks as f64;
                all((2.0 * UNEVEN * concurrent as f64 * share).min(1.0))
            }
        }
    }
}
