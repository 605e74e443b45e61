//! Chooses the number of partitions, and how many take part in a step, for a memory budget.
//!
//! The manifest has the number of edges of each chunk, so the memory of any view is known before anything is read.
//!
//! ```text
//! the lists of the whole graph take at most their share of memory    1 partition; all of a given number in each step
//! else                                                               the smallest number for which two groups fit: views in turn
//! no number fits                                                     1 partition, in mapped files
//! ```
//!
//! Of several workers, each needs memory for the partitions that it serves alone. Instead of 1, the least number is that of the workers,
//! so that each has a partition in every step, and the numbers that are tried are its doubles.
//!
//! Adjacency lists and features that fit together are in memory. If features exceed it, lists may take half of the memory: as mapped files
//! they take at most half as much, which is the share of mapped pages.

#[cfg(test)]
mod tests;

use std::iter;

use grappa_io::Result;
use grappa_storage::Store;

use super::{
    LoaderOptions,
    open::{feature_bytes, groups},
};
use crate::{
    partition::{Owned, RepartitionOptions, Schedule, Share, assign, check_concurrent},
    policy::{HALO_LISTS_SHARE, PARTITIONS_MAX, lists_fit, lists_in_turn_max},
    view::{Halo, PartitionView, Turns, ViewKind, ViewOptions},
};

/// Partitions change from one super-epoch to the next, and their sizes with them. Sizes are computed for this many.
const SUPER_EPOCHS_MAX: u64 = 16;

/// Inputs of the choice of numbers, besides the options of the loader. Those have the number of partitions per step, if given, and the
/// number of workers.
#[derive(Debug, Clone)]
pub struct NumberOptions {
    /// The number of partitions, if it is given.
    pub partitions: Option<u32>,
    /// How partitions change.
    pub schedule: Schedule,
    /// Number of super-epochs.
    pub super_epochs: u64,
    /// Whether halo nodes may get sampled in-neighbors later ([`Loader::sample_halo_neighbors`](super::Loader::sample_halo_neighbors)).
    pub expands_halo: bool,
}

/// Numbers of partitions for a memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionNumbers {
    /// Number of partitions.
    pub partitions: u32,
    /// Number of partitions that take part in a step.
    pub concurrent: u32,
    /// Bytes of the adjacency lists of the whole graph in memory.
    pub whole_bytes: u64,
    /// Bytes of memory that those of a worker may take.
    pub room: u64,
    /// Where the adjacency lists are during training.
    pub lists: ListsPlace,
}

/// Where adjacency lists are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListsPlace {
    /// All are in memory, or in mapped files that stay in memory.
    Memory,
    /// Those of a step and of the next one are in memory, and take at most this many bytes of each worker.
    InTurn(u64),
    /// In mapped files that exceed the memory.
    Mapped(Remedy),
}

/// A change that would keep adjacency lists in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// This number of partitions.
    Partitions(u32),
    /// No number of partitions: this many bytes of memory.
    Memory(u64),
}

impl PartitionNumbers {
    /// Chooses the numbers that are not given.
    ///
    /// # Errors
    /// If a given number is 0 or exceeds the number of chunks.
    pub fn choose(store: &Store, loader: &LoaderOptions, options: &NumberOptions) -> Result<Self> {
        Sizes::new(store, loader, options).choose()
    }
}

struct Sizes<'a> {
    store: &'a Store,
    loader: &'a LoaderOptions,
    options: &'a NumberOptions,
    views: ViewOptions,
    feature_bytes: u64,
    whole_bytes: u64,
}

impl<'a> Sizes<'a> {
    fn new(store: &'a Store, loader: &'a LoaderOptions, options: &'a NumberOptions) -> Self {
        let views = ViewOptions {
            halo: loader.halo,
            halo_lists: None,
            edge_weights: loader.sampler.needs_edge_weights(),
            kind: ViewKind::InTurn,
            memory: loader.memory,
            threads: loader.threads,
            engine: loader.read_engine,
        };
        let whole = Owned::whole(store);
        Self {
            whole_bytes: PartitionView::bytes_in_memory(store, &whole, views.halo, views.edge_weights),
            feature_bytes: feature_bytes(store, loader),
            store,
            loader,
            options,
            views,
        }
    }

    fn choose(&self) -> Result<PartitionNumbers> {
        let given = (self.options.partitions, self.loader.concurrent.map(|q| q as u32));
        let numbers = |partitions, concurrent, lists| PartitionNumbers {
            partitions,
            concurrent,
            whole_bytes: self.whole_bytes,
            room: self.room(partitions),
            lists,
        };
        let Some(partitions) = given.0 else {
            let concurrent = given.1.unwrap_or(self.least());
            check_concurrent(self.store.present_chunks().count(), concurrent)?;
            if self.all_fit(concurrent, concurrent)? {
                return Ok(numbers(concurrent, concurrent, ListsPlace::Memory));
            }
            return Ok(match self.smallest(concurrent)? {
                Some((partitions, bytes)) => numbers(partitions, concurrent, ListsPlace::InTurn(bytes)),
                None => numbers(concurrent, concurrent, ListsPlace::Mapped(self.remedy(concurrent)?)),
            });
        };
        let concurrent = given.1.unwrap_or(partitions);
        if self.all_fit(partitions, concurrent)? {
            return Ok(numbers(partitions, concurrent, ListsPlace::Memory));
        }
        let candidates = match given.1 {
            Some(concurrent) => vec![concurrent],
            None => doubles(self.least(), partitions.saturating_sub(1)).rev().collect(),
        };
        for concurrent in candidates.into_iter().filter(|&q| q < partitions) {
            let bytes = self.two_groups(partitions, concurrent)?;
            if bytes <= self.room(partitions) {
                return Ok(numbers(partitions, concurrent, ListsPlace::InTurn(bytes)));
            }
        }
        let remedy = self.remedy(given.1.unwrap_or(self.least()))?;
        Ok(numbers(partitions, concurrent, ListsPlace::Mapped(remedy)))
    }

    /// Whether the adjacency lists of all partitions that a worker serves fit.
    fn all_fit(&self, partitions: u32, concurrent: u32) -> Result<bool> {
        let (room, bytes) = match self.loader.share.workers() {
            1 => (self.room(1), self.whole_bytes),
            _ => {
                let all = |groups: &[Vec<Owned>]| groups.iter().flatten().map(|owned| self.bytes_of(owned)).sum();
                (self.room(partitions), self.largest_share(partitions, concurrent, all)?)
            }
        };
        Ok(lists_fit(bytes, self.feature_bytes, self.loader.memory) || bytes <= room)
    }

    fn bytes_of(&self, owned: &Owned) -> u64 {
        PartitionView::bytes_in_memory(self.store, owned, self.views.halo, self.views.edge_weights)
    }

    /// Bytes of memory that views may take.
    fn room(&self, partitions: u32) -> u64 {
        let memory = self.loader.memory;
        let halo_lists = match self.may_have_halo_lists() && partitions > 1 {
            true => memory / HALO_LISTS_SHARE,
            false => 0,
        };
        lists_in_turn_max(memory - halo_lists, self.feature_bytes)
    }

    fn may_have_halo_lists(&self) -> bool {
        let expands = self.options.expands_halo || self.loader.halo == Halo::Neighbors;
        expands && self.loader.sampler.edges_from_seeds() > 1
    }

    /// The smallest number of partitions of which two groups of `concurrent` fit, and the bytes of these.
    fn smallest(&self, concurrent: u32) -> Result<Option<(u32, u64)>> {
        for partitions in self.candidates().filter(|&partitions| partitions > concurrent) {
            let bytes = self.two_groups(partitions, concurrent)?;
            if bytes <= self.room(partitions) {
                return Ok(Some((partitions, bytes)));
            }
        }
        Ok(None)
    }

    /// The numbers of partitions that may be chosen, ascending.
    fn candidates(&self) -> impl DoubleEndedIterator<Item = u32> {
        let least = match self.loader.concurrent {
            Some(_) => 1,
            None => self.least(),
        };
        doubles(least, self.most())
    }

    /// The smallest number of partitions in which each worker has one, if the store has enough chunks.
    fn least(&self) -> u32 {
        self.loader.share.workers().min(self.most()).max(1)
    }

    /// The largest number of partitions that may be chosen.
    fn most(&self) -> u32 {
        (self.store.present_chunks().count() as u32).min(PARTITIONS_MAX)
    }

    /// Bytes of the two largest groups of partitions of a worker in any super-epoch.
    fn two_groups(&self, partitions: u32, concurrent: u32) -> Result<u64> {
        self.largest_share(partitions, concurrent, |groups| {
            Turns::bytes_of(self.store, groups, &self.views)
        })
    }

    /// The most that `bytes_of` counts in any super-epoch for the groups of partitions that a worker serves. Once it exceeds the memory,
    /// later super-epochs are not counted.
    fn largest_share(&self, partitions: u32, concurrent: u32, bytes_of: impl Fn(&[Vec<Owned>]) -> u64) -> Result<u64> {
        let different = match self.options.schedule {
            Schedule::Fixed => 1,
            Schedule::Sweep => u64::from(partitions.saturating_sub(1)).max(1),
            Schedule::Shuffle => u64::MAX,
        };
        let (count, concurrent) = (partitions as usize, concurrent as usize);
        let mut most = 0;
        for super_epoch in 0..self.options.super_epochs.clamp(1, SUPER_EPOCHS_MAX).min(different) {
            let options = RepartitionOptions {
                partitions,
                schedule: self.options.schedule,
                seed: self.loader.seed,
                super_epoch: Some(super_epoch),
            };
            let assignment = assign(self.store.manifest(), &options, super_epoch + 1)?;
            let owned = Owned::all(&assignment, self.store);
            let of_share = |share: Share| {
                let is_served = |owned: &&Owned| share.serves(owned.partition(), count, concurrent);
                bytes_of(&groups(owned.iter().filter(is_served), count, concurrent))
            };
            let largest = Share::each(self.loader.share.workers()).map(of_share).max();
            most = most.max(largest.unwrap_or(0));
            if most > self.loader.memory {
                break;
            }
        }
        Ok(most)
    }

    /// The smallest number of partitions of which two groups of `concurrent` fit, or a budget in which the largest number fits.
    fn remedy(&self, concurrent: u32) -> Result<Remedy> {
        if let Some((partitions, _)) = self.smallest(concurrent)? {
            return Ok(Remedy::Partitions(partitions));
        }
        // The inverse of `room`, rounded up.
        let budget_of = |bytes: u64, has_halo_lists: bool| {
            let beside_lists = match self.feature_bytes {
                0 => bytes.saturating_mul(8).div_ceil(7),
                _ => bytes.saturating_mul(2),
            };
            let with_lists = match has_halo_lists {
                true => beside_lists
                    .saturating_mul(HALO_LISTS_SHARE)
                    .div_ceil(HALO_LISTS_SHARE - 1),
                false => beside_lists,
            };
            // Shares are rounded down.
            with_lists.saturating_add(HALO_LISTS_SHARE * 8)
        };
        let whole = budget_of(self.whole_bytes, false).min(self.whole_bytes.saturating_add(self.feature_bytes));
        let most = self.candidates().next_back().unwrap_or(1);
        let in_turn = match most > concurrent {
            true => budget_of(self.two_groups_at_most(most, concurrent)?, self.may_have_halo_lists()),
            false => u64::MAX,
        };
        Ok(Remedy::Memory(whole.min(in_turn)))
    }

    /// [`Sizes::two_groups`], of all super-epochs.
    fn two_groups_at_most(&self, partitions: u32, concurrent: u32) -> Result<u64> {
        let unlimited = LoaderOptions {
            memory: u64::MAX,
            ..self.loader.clone()
        };
        Sizes::new(self.store, &unlimited, self.options).two_groups(partitions, concurrent)
    }
}

/// `least`, its double, and so on up to `most`.
fn doubles(least: u32, most: u32) -> impl DoubleEndedIterator<Item = u32> {
    let doubles = iter::successors(Some(least), |number| number.checked_mul(2));
    doubles
        .take_while(|&number| number <= most)
        .collect::<Vec<_>>()
        .into_iter()
}
