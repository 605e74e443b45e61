//! Where adjacency lists are, and how many partitions there are: decided from sizes and a budget alone.
//!
//! The manifest has the number of edges of each chunk, so sizes are known before anything is read. A run decides with
//! the sizes of its store, a plan with estimates ([`PartitionSizes`]).
//!
//! ```text
//! lists of all partitions    fit with the features, or take their share of memory     in memory
//! two groups of partitions   take at most half of memory (7/8 without features)       in memory in turn
//! else                                                                                mapped; resident pages take the share
//! ```
//!
//! A group has the partitions of a step. Numbers of partitions that are not given follow:
//!
//! ```text
//! lists of the whole graph fit, in memory or mapped    1 partition; all of a given number in each step
//! else                                                 the smallest number for which two groups fit: in turn
//! no number fits                                       1 partition, mapped
//! ```
//!
//! Mapped lists take about half as much as lists in memory. So lists that take at most half of memory stay in memory as
//! mapped files.
//!
//! Of several workers, each needs memory for the partitions that it serves alone. Instead of 1, the least number is the
//! number of workers, so that each has a partition in every step, and the numbers that are tried are its doubles.

use std::iter;

use grappa_io::{Error, Result, ledger::MemoryShare};

use crate::{
    policy::{LISTS, PARTITIONS_MAX},
    view::ViewKind,
};

const LISTS_ALONE: MemoryShare = MemoryShare::fraction(
    "adjacency lists",
    [7, 8],
    "two groups of partitions in turn take at most 7/8 without features, and minibatches the rest; chosen, not measured",
);
const LISTS_IN_TURN: MemoryShare = MemoryShare::one(
    "adjacency lists",
    2,
    "two groups of partitions in turn take at most 1/2, and feature rows the rest; chosen, not measured",
);
const READ_AHEAD: MemoryShare = MemoryShare::one(
    "adjacency lists",
    2,
    "mapped lists are read ahead if their files take at most 1/2, so that they stay beside features; chosen, not measured",
);

/// Minibatches that are in memory at a time: two windows of one, one that is assembled, and one at the consumer.
const MINIBATCHES: u64 = 4;
/// Bytes of a node of a minibatch besides its features: its number, degrees and edges.
const NODE_BYTES: u64 = 64;

/// Whether minibatches of the whole graph fit the memory for sure: those of at most `seeds` seeds in a graph of `nodes` nodes, if each node draws
/// all of its `fanouts` (none is all), and no two reach the same node. `row_bytes` is the size of a row of features.
pub fn holds_minibatches(
    seeds: u64,
    fanouts: impl IntoIterator<Item = Option<u32>>,
    nodes: u64,
    row_bytes: u64,
    memory: u64,
) -> bool {
    let drawn = fanouts.into_iter().map(|fanout| fanout.map_or(u64::MAX, u64::from));
    let reached = drawn.fold(seeds, |reached, fanout| reached.saturating_mul(fanout.saturating_add(1)));
    reached.min(nodes).saturating_mul(row_bytes + NODE_BYTES).saturating_mul(MINIBATCHES) <= memory
}

/// The memory that adjacency lists share with feature rows.
#[derive(Debug, Clone, Copy)]
pub struct ListsBudget {
    /// Bytes for adjacency lists, feature rows, buffers and samplers.
    pub memory: u64,
    /// Bytes of the stored features of all nodes.
    pub feature_bytes: u64,
}

/// Bytes of adjacency lists in memory.
#[derive(Debug, Clone, Copy)]
pub struct ListSizes {
    /// Of all partitions.
    pub all: u64,
    /// Of the two largest groups of partitions. None if all partitions take part in each step.
    pub two_groups: Option<u64>,
}

impl ListsBudget {
    /// The memory beside sampled in-neighbors of halo nodes.
    #[must_use]
    pub fn beside(self, halo_list_bytes: u64) -> Self {
        Self { memory: self.memory.saturating_sub(halo_list_bytes), ..self }
    }

    /// Whether lists of these bytes are in memory all the time.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes.saturating_add(self.feature_bytes) <= self.memory || bytes <= self.share()
    }

    /// The most that resident pages of mapped lists may take, and the most that sampled in-neighbors of halo nodes may
    /// take.
    pub fn share(&self) -> u64 {
        LISTS.bytes(self.memory)
    }

    /// The most that lists in memory in turn may take. The rest is for feature rows.
    pub fn in_turn_max(&self) -> u64 {
        match self.feature_bytes {
            0 => LISTS_ALONE.bytes(self.memory),
            _ => LISTS_IN_TURN.bytes(self.memory),
        }
    }

    /// Mapped files of at most these bytes are read ahead.
    pub fn read_ahead_max(&self) -> u64 {
        READ_AHEAD.bytes(self.memory)
    }

    /// Where the lists are: `wanted`, or with [`ViewKind::Auto`] the first place in which they fit.
    ///
    /// # Errors
    /// If lists that should be in memory do not fit.
    pub fn place(&self, wanted: ViewKind, sizes: ListSizes) -> Result<ViewKind> {
        let in_turn = sizes.two_groups.filter(|_| wanted != ViewKind::Memory);
        let (place, bytes) = match (wanted, in_turn) {
            (ViewKind::Mapped | ViewKind::Sweep, _) => return Ok(ViewKind::Mapped),
            (ViewKind::Auto, _) if self.fits(sizes.all) => return Ok(ViewKind::Memory),
            (ViewKind::Auto, Some(bytes)) if bytes <= self.in_turn_max() => return Ok(ViewKind::InTurn),
            (ViewKind::Auto, _) => return Ok(ViewKind::Mapped),
            (_, Some(bytes)) => (ViewKind::InTurn, bytes),
            (_, None) => (ViewKind::Memory, sizes.all),
        };
        if bytes <= self.memory {
            return Ok(place);
        }
        let (operation, remedy) = match place {
            ViewKind::InTurn => (
                "the adjacency lists of the partitions of a step and of the next ones",
                "raise --memory, or use more partitions",
            ),
            _ => (
                "adjacency lists in memory",
                "raise --memory, or leave out --view memory to have the adjacency lists mapped",
            ),
        };
        Err(Error::Budget { operation: operation.into(), given: self.memory, least: bytes, remedy })
    }

    /// The memory in which lists of these bytes are in memory in turn, or stay in memory as mapped files, rounded up.
    fn memory_for(&self, bytes: u64, has_halo_lists: bool) -> u64 {
        let beside_halo_lists = match self.feature_bytes {
            0 => LISTS_ALONE.budget_of(bytes),
            _ => LISTS_IN_TURN.budget_of(bytes),
        };
        let memory = match has_halo_lists {
            true => LISTS.budget_beside(beside_halo_lists),
            false => beside_halo_lists,
        };
        // Shares are rounded down.
        memory.saturating_add(32)
    }
}

/// Sizes of adjacency lists in memory, as far as a worker serves their partitions.
pub trait PartitionSizes {
    /// Bytes of the lists of the whole graph.
    fn whole(&self) -> u64;

    /// Bytes of the lists of all partitions that a worker serves, at most. A result above `enough` need not be exact.
    ///
    /// # Errors
    /// If the store has too few chunks.
    fn all(&self, partitions: u32, concurrent: u32, enough: u64) -> Result<u64>;

    /// Bytes of the lists of the two largest groups that a worker serves, at most. A result above `enough` need not be
    /// exact.
    ///
    /// # Errors
    /// If the store has too few chunks.
    fn two_groups(&self, partitions: u32, concurrent: u32, enough: u64) -> Result<u64>;
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
    /// Bytes of memory that the lists of a worker may take.
    pub room: u64,
    /// Where the adjacency lists are during training.
    pub lists: ListsPlace,
}

impl PartitionNumbers {
    /// Whether minibatches would lack edges of the whole graph, or be read at random places, so that sweeps are better: lists are not in memory,
    /// and `expands_all` tells that halo nodes cannot draw as in the whole graph.
    pub fn lacks_edges(&self, expands_all: impl FnOnce() -> bool) -> bool {
        match self.lists {
            ListsPlace::Memory => false,
            ListsPlace::Mapped(_) if self.partitions == 1 => true,
            ListsPlace::InTurn(_) | ListsPlace::Mapped(_) => !expands_all(),
        }
    }
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

impl ListsPlace {
    /// The kind of views that has the lists there.
    pub fn kind(self) -> ViewKind {
        match self {
            Self::Memory => ViewKind::Memory,
            Self::InTurn(_) => ViewKind::InTurn,
            Self::Mapped(_) => ViewKind::Mapped,
        }
    }
}

/// A change that would keep adjacency lists in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// This number of partitions.
    Partitions(u32),
    /// No number of partitions: this many bytes of memory.
    Memory(u64),
}

/// The choice of numbers of partitions.
#[derive(Debug, Clone, Copy)]
pub struct NumberChoice {
    /// The number of partitions, if it is given.
    pub partitions: Option<u32>,
    /// The number of partitions of a step, if it is given.
    pub concurrent: Option<u32>,
    /// The number of workers that divide the partitions.
    pub workers: u32,
    /// The number of chunks. There are no more partitions.
    pub chunks: u32,
    /// The memory of a worker.
    pub budget: ListsBudget,
    /// Whether several partitions may have sampled in-neighbors of halo nodes.
    pub has_halo_lists: bool,
}

impl NumberChoice {
    /// Chooses the numbers that are not given.
    ///
    /// # Errors
    /// If `sizes` has none for a number of partitions.
    pub fn choose(&self, sizes: &impl PartitionSizes) -> Result<PartitionNumbers> {
        let least = self.concurrent.unwrap_or(self.least());
        let partitions = self.partitions.unwrap_or(least);
        let concurrent = self.concurrent.unwrap_or(partitions);
        if self.all_fit(sizes, partitions, concurrent)? {
            return Ok(self.numbers(sizes, partitions, concurrent, ListsPlace::Memory));
        }
        let in_turn = match (self.partitions, self.concurrent) {
            (None, _) => self.smallest(sizes, concurrent)?,
            (Some(_), Some(_)) => self.first_fitting(sizes, iter::once((partitions, concurrent)))?,
            (Some(_), None) => {
                let fewer = doubles(self.least(), partitions.saturating_sub(1)).rev();
                self.first_fitting(sizes, fewer.map(|concurrent| (partitions, concurrent)))?
            }
        };
        if let Some((partitions, concurrent, bytes)) = in_turn {
            return Ok(self.numbers(sizes, partitions, concurrent, ListsPlace::InTurn(bytes)));
        }
        let remedy = self.remedy(sizes, least)?;
        Ok(self.numbers(sizes, partitions, concurrent, ListsPlace::Mapped(remedy)))
    }

    fn numbers(
        &self,
        sizes: &impl PartitionSizes,
        partitions: u32,
        concurrent: u32,
        lists: ListsPlace,
    ) -> PartitionNumbers {
        PartitionNumbers { partitions, concurrent, whole_bytes: sizes.whole(), room: self.room(partitions), lists }
    }

    /// Whether the lists of all partitions that a worker serves fit, in memory or mapped.
    fn all_fit(&self, sizes: &impl PartitionSizes, partitions: u32, concurrent: u32) -> Result<bool> {
        let (room, bytes) = match self.workers {
            1 => (self.room(1), sizes.whole()),
            _ => {
                let bytes = sizes.all(partitions, concurrent, self.budget.memory)?;
                (self.room(partitions), bytes)
            }
        };
        Ok(self.budget.fits(bytes) || bytes <= room)
    }

    /// Bytes that lists in memory in turn may take, beside sampled in-neighbors of halo nodes.
    fn room(&self, partitions: u32) -> u64 {
        let halo_lists = match self.has_halo_lists && partitions > 1 {
            true => self.budget.share(),
            false => 0,
        };
        self.budget.beside(halo_lists).in_turn_max()
    }

    /// The first numbers of partitions, in all and in a step, with which two groups fit, and the bytes of two groups.
    fn first_fitting(
        &self,
        sizes: &impl PartitionSizes,
        numbers: impl Iterator<Item = (u32, u32)>,
    ) -> Result<Option<(u32, u32, u64)>> {
        for (partitions, concurrent) in numbers.filter(|(partitions, concurrent)| partitions > concurrent) {
            let bytes = sizes.two_groups(partitions, concurrent, self.budget.memory)?;
            if bytes <= self.room(partitions) {
                return Ok(Some((partitions, concurrent, bytes)));
            }
        }
        Ok(None)
    }

    /// The smallest number of partitions with which two groups of `concurrent` fit.
    fn smallest(&self, sizes: &impl PartitionSizes, concurrent: u32) -> Result<Option<(u32, u32, u64)>> {
        self.first_fitting(sizes, self.candidates().map(|partitions| (partitions, concurrent)))
    }

    /// The numbers of partitions that may be chosen, ascending.
    fn candidates(&self) -> impl DoubleEndedIterator<Item = u32> {
        let least = match self.concurrent {
            Some(_) => 1,
            None => self.least(),
        };
        doubles(least, self.most())
    }

    /// The smallest number of partitions in which each worker has one, if the store has enough chunks.
    fn least(&self) -> u32 {
        self.workers.min(self.most()).max(1)
    }

    /// The largest number of partitions that may be chosen.
    fn most(&self) -> u32 {
        self.chunks.min(PARTITIONS_MAX)
    }

    /// The smallest number of partitions with which two groups of `concurrent` fit, or a budget in which the largest
    /// number fits.
    fn remedy(&self, sizes: &impl PartitionSizes, concurrent: u32) -> Result<Remedy> {
        if let Some((partitions, ..)) = self.smallest(sizes, concurrent)? {
            return Ok(Remedy::Partitions(partitions));
        }
        let whole = sizes.whole();
        let with_features = whole.saturating_add(self.budget.feature_bytes);
        let whole = self.budget.memory_for(whole, false).min(with_features);
        let most = self.candidates().next_back().unwrap_or(1);
        let in_turn = match most > concurrent {
            true => {
                let bytes = sizes.two_groups(most, concurrent, u64::MAX)?;
                self.budget.memory_for(bytes, self.has_halo_lists)
            }
            false => u64::MAX,
        };
        Ok(Remedy::Memory(whole.min(in_turn)))
    }
}

/// `least`, its double, and so on up to `most`.
fn doubles(least: u32, most: u32) -> impl DoubleEndedIterator<Item = u32> {
    let doubles = iter::successors(Some(least), |number| number.checked_mul(2));
    doubles.take_while(|&number| number <= most).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_decides_where_adjacency_lists_are() {
        use ViewKind::{Auto, InTurn, Mapped, Memory};
        let place = |wanted, memory, feature_bytes, all, two_groups| {
            ListsBudget { memory, feature_bytes }.place(wanted, ListSizes { all, two_groups })
        };
        for (wanted, memory, features, two_groups, expected) in [
            (Auto, 100, 0, None, Memory),
            (Auto, 99, 0, None, Mapped),
            // With features: everything, or a quarter.
            (Auto, 150, 50, None, Memory),
            (Auto, 149, 50, None, Mapped),
            (Auto, 400, 10_000, None, Memory),
            (Auto, 396, 10_000, None, Mapped),
            // In turn: 7/8 without features, half with features.
            (Auto, 80, 0, Some(70), InTurn),
            (Auto, 80, 0, Some(71), Mapped),
            (Auto, 80, 1, Some(40), InTurn),
            (Auto, 80, 1, Some(41), Mapped),
            (Mapped, 1000, 0, Some(1), Mapped),
            (Memory, 100, 10_000, Some(1), Memory),
            (InTurn, 70, 10_000, Some(70), InTurn),
            (InTurn, 100, 10_000, None, Memory),
        ] {
            let found = place(wanted, memory, features, 100, two_groups).unwrap();
            assert_eq!(found, expected, "{wanted}, {memory} with {features}, {two_groups:?}");
        }
        for (wanted, memory, two_groups, needed) in
            [(Memory, 99, Some(1), 100), (InTurn, 69, Some(70), 70), (InTurn, 99, None, 100)]
        {
            let error = place(wanted, memory, 0, 100, two_groups).unwrap_err();
            assert!(matches!(error, Error::Budget { least, .. } if least == needed), "{error}");
        }
    }
}
