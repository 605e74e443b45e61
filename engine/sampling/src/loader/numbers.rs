//! Chooses the numbers of partitions of a store.

#[cfg(test)]
mod tests;

use grappa_formats::PartitionId;
use grappa_io::Result;
use grappa_storage::Graph;

use super::options::LoaderOptions;
use crate::{
    partition::{Owned, RepartitionOptions, Schedule, Share, assign, check_concurrent, groups},
    placement::{NumberChoice, PartitionNumbers, PartitionSizes},
    view::{Halo, Turns},
};

/// Partitions change from one super-epoch to the next, and their sizes with them. Sizes are computed for this many.
const SUPER_EPOCHS_MAX: u64 = 16;

/// Inputs of the choice of numbers, besides the options of the loader. Those have the number of partitions per step, if
/// given, and the number of workers.
#[derive(Debug, Clone)]
pub struct NumberOptions {
    /// The number of partitions, if it is given.
    pub partitions: Option<u32>,
    /// How partitions change.
    pub schedule: Schedule,
    /// Number of super-epochs.
    pub super_epochs: u64,
    /// Whether halo nodes may get sampled in-neighbors later
    /// ([`Loader::sample_halo_neighbors`](super::Loader::sample_halo_neighbors)).
    pub expands_halo: bool,
}

impl PartitionNumbers {
    /// Chooses the numbers that are not given.
    ///
    /// # Errors
    /// If a given number is 0 or exceeds the number of chunks.
    pub fn choose(graph: &Graph, loader: &LoaderOptions, options: &NumberOptions) -> Result<Self> {
        // Each partition needs a chunk of some type.
        let of_type = graph.node_types().iter().map(|store| store.present_chunks().count());
        let chunks = of_type.max().unwrap_or(0);
        let expands = options.expands_halo || loader.halo == Halo::Neighbors;
        let choice = NumberChoice {
            partitions: options.partitions,
            concurrent: loader.concurrent.map(|concurrent| concurrent as u32),
            workers: loader.share.workers(),
            chunks: chunks as u32,
            budget: loader.lists_budget(graph),
            has_halo_lists: expands && loader.minibatches.sampler.edges_from_seeds() > 1,
        };
        if let (None, Some(concurrent)) = (choice.partitions, choice.concurrent) {
            check_concurrent(chunks, concurrent)?;
        }
        choice.choose(&GraphSizes { graph, loader, options })
    }
}

/// The sizes of the adjacency lists of a graph.
struct GraphSizes<'a> {
    graph: &'a Graph,
    loader: &'a LoaderOptions,
    options: &'a NumberOptions,
}

impl PartitionSizes for GraphSizes<'_> {
    fn whole(&self) -> u64 {
        self.loader.list_bytes(self.graph, &Owned::whole_graph(self.graph))
    }

    fn all(&self, partitions: u32, concurrent: u32, enough: u64) -> Result<u64> {
        self.largest_share(partitions, concurrent, enough, |groups| {
            groups.iter().flatten().map(|owned| self.loader.list_bytes(self.graph, owned)).sum()
        })
    }

    fn two_groups(&self, partitions: u32, concurrent: u32, enough: u64) -> Result<u64> {
        if self.graph.has_types() {
            // They are not loaded in turn.
            return Ok(u64::MAX);
        }
        self.largest_share(partitions, concurrent, enough, |groups| {
            Turns::bytes_of(groups, |owned| self.loader.list_bytes(self.graph, owned))
        })
    }
}

impl GraphSizes<'_> {
    /// The most that `bytes_of` counts in any super-epoch for the groups of partitions that a worker serves. Once it
    /// exceeds `enough`, later super-epochs are not counted.
    fn largest_share(
        &self,
        partitions: u32,
        concurrent: u32,
        enough: u64,
        bytes_of: impl Fn(&[Vec<Owned>]) -> u64,
    ) -> Result<u64> {
        let different = match self.options.schedule {
            Schedule::Fixed => 1,
            Schedule::Sweep | Schedule::Local => u64::from(partitions.saturating_sub(1)).max(1),
            Schedule::Shuffle => u64::MAX,
        };
        let (count, concurrent) = (partitions as usize, concurrent as usize);
        let mut most = 0;
        for super_epoch in 0..self.options.super_epochs.clamp(1, SUPER_EPOCHS_MAX).min(different) {
            let options = RepartitionOptions {
                partitions,
                schedule: self.options.schedule,
                seed: self.loader.minibatches.seed,
                super_epoch: Some(super_epoch),
            };
            let assignment = assign(self.graph, &options, super_epoch + 1)?;
            let partitions = (0..assignment.partitions()).map(PartitionId);
            let owned: Vec<Owned> =
                partitions.map(|partition| Owned::of_graph(&assignment, self.graph, partition)).collect();
            for share in Share::each(self.loader.share.workers()) {
                let served = owned.iter().filter(|owned| share.serves(owned.partition(), count, concurrent));
                most = most.max(bytes_of(&groups(served, count, concurrent)));
            }
            if most > enough {
                break;
            }
        }
        Ok(most)
    }
}
