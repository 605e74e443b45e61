//! The number of partitions, and where their adjacency lists are: the choice that training makes, without a store.

use grappa_sampling::adjacency_bytes_max;

use super::{PlannedLists, Planner};

/// The largest number of partitions that is chosen.
const PARTITIONS_MAX: u64 = 1024;
/// Chunks differ in size: those of a partition may take this much more than the mean.
const UNEVEN: f64 = 1.01;
/// Mapped pages take at most 1/MAPPED_SHARE of the memory.
const MAPPED_SHARE: f64 = 4.0;
/// 1/HALO_SHARE of the memory is left for sampled in-neighbors of halo nodes.
pub(super) const HALO_SHARE: u64 = 4;

impl Planner<'_> {
    /// Number of partitions, of those in a step, and where their adjacency lists are.
    pub(super) fn partitions(&self) -> (u64, u64, PlannedLists) {
        let options = self.options;
        let room_of = |memory: u64| adjacency_bytes_max(memory, self.feature_bytes as u64) as f64;
        let room = room_of(options.memory);
        let whole = self.list_bytes(1.0, 1);
        let fits = whole <= room || whole + self.feature_bytes <= options.memory as f64;
        if fits {
            let partitions = options.partitions.or(options.concurrent).unwrap_or(1);
            return (
                partitions,
                options.concurrent.unwrap_or(partitions),
                PlannedLists::Memory,
            );
        }
        // Partitions may get in-neighbors of halo nodes.
        let room = match options.expands_halo && self.sampled_fanouts().len() > 1 {
            true => room_of(options.memory - options.memory / HALO_SHARE),
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
        let most = u64::from(options.chunks).min(PARTITIONS_MAX);
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

    /// Bytes of the lists that are in memory at a time.
    pub(super) fn adjacency_in_memory(&self, partitions: u64, concurrent: u64, lists: PlannedLists) -> f64 {
        let all = |share: f64| self.list_bytes(share * self.copies(partitions), partitions);
        match lists {
            // As mapped files they are smaller, and leave more to features.
            PlannedLists::Memory => {
                let (lists, memory) = (all(1.0), self.options.memory as f64);
                match lists + self.feature_bytes <= memory || lists <= memory / MAPPED_SHARE {
                    true => lists,
                    false => lists.min((self.options.adjacency_bytes as f64).min(memory / MAPPED_SHARE)),
                }
            }
            PlannedLists::Mapped => self.options.memory as f64 / MAPPED_SHARE,
            PlannedLists::InTurn => {
                let chunks = u64::from(self.options.chunks).max(partitions);
                // Two groups, of partitions with the most chunks.
                let share = chunks.div_ceil(partitions) as f64 / chunks as f64;
                all((2.0 * UNEVEN * concurrent as f64 * share).min(1.0))
            }
        }
    }
}
