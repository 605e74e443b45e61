//! Schedules: the owners of each chunk in each super-epoch.
//!
//! Chunks are dealt like cards. The deck is shuffled, and each hand of K chunks goes to the K partitions in random
//! order, so the numbers of chunks of two bases differ by at most one. The result depends on the chunks of the store,
//! K, seed and super-epoch only, so any process can compute the assignment of any super-epoch of a run.
//!
//! `sweep` and `fixed` sort the shuffled deck by size. A hand then has chunks of similar size, and partitions have
//! similar work. Two chunks of one hand are never in the same base. This is harmless under `sweep`, where every two
//! bases meet. `shuffle` must bring any two chunks together with the same probability, so it does not sort.
//!
//! `local` deals no cards: a base is a run of chunks with neighboring numbers, which are neighbors in the graph if ingest put them
//! there. Runs have similar work.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use grappa_formats::{
    PartitionId,
    assignment::{Assignment, Owners},
    manifest::Manifest,
    random::scale,
};
use grappa_io::{Error, Result};
use grappa_synthetic::random::{Purpose, Source};

use crate::names::parse_names;

/// How partitions change between super-epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Bases stay. The variable part of each partition is the base of another one, the next one in each super-epoch.
    /// After K - 1 super-epochs each pair of partitions has met, and every edge was seen. This is the schedule of the
    /// paper.
    Sweep,
    /// New random bases in each super-epoch, without variable parts. Partitions have half the size.
    Shuffle,
    /// Super-epoch 0 of `Sweep`, for ever. For ablations: it differs from `Sweep` only in that nothing is
    /// repartitioned.
    Fixed,
    /// As `Sweep`, with bases of neighboring chunks, whatever the seed. For stores whose nodes are in the order of parts or communities.
    Local,
}

impl Schedule {
    /// All schedules.
    pub const ALL: [Self; 4] = [Self::Sweep, Self::Shuffle, Self::Fixed, Self::Local];

    /// The name in assignments and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Shuffle => "shuffle",
            Self::Fixed => "fixed",
            Self::Local => "local",
        }
    }
}

parse_names!(Schedule, "schedule", "sweep, shuffle, fixed and local");

/// Computes the assignment of a super-epoch, as generation `generation`. `sizes` is the work of each chunk of each node type
/// ([`ChunkTables::sizes`](super::ChunkTables::sizes)), which is balanced between partitions. Chunks that a slice lacks are in the base of
/// partition 0, as every chunk must be in one, but no partition owns them ([`Owned`](super::Owned)).
///
/// Takes time proportional to the table: microseconds for 64 chunks.
///
/// # Errors
/// If there are no partitions, or more partitions than the node type with most chunks has.
///
/// # Panics
/// If there are no chunks.
pub fn assignment(
    schedule: Schedule,
    sizes: &[Vec<Option<u64>>],
    partitions: u32,
    seed: u64,
    super_epoch: u64,
    generation: u64,
) -> Result<Assignment> {
    let most = sizes.iter().map(|sizes| sizes.iter().flatten().count()).max().unwrap_or(0);
    assert!(most > 0, "a store has at least one chunk");
    if partitions == 0 {
        return Err(Error::out_of_range("the number of partitions", "at least 1", 0));
    }
    if partitions as usize > most {
        return Err(too_few_chunks(most, partitions));
    }
    let mut owners = Vec::new();
    for sizes in sizes {
        let present: Vec<u64> = sizes.iter().copied().flatten().collect();
        let mut dealt = owners_of(schedule, &present, partitions, seed, super_epoch);
        owners.extend(sizes.iter().map(|size| match size {
            Some(_) => dealt.next().expect("an owner of each chunk"),
            None => ABSENT,
        }));
    }
    Ok(Assignment::from_owners(generation, partitions, schedule.name(), &owners))
}

pub(super) fn too_few_chunks(chunks: usize, partitions: u32) -> Error {
    Error::conflict(
        format!("the store has {chunks} chunks, and each of the {partitions} partitions needs at least one"),
        format!(
            "use at most {chunks} partitions, or create the store again with more --chunks (grappa-ingest, grappa-gen)"
        ),
    )
}

/// Checks that `chunks` chunks suffice for the partitions of a step.
///
/// # Errors
/// If there are fewer.
pub fn check_concurrent(chunks: usize, concurrent: u32) -> Result<()> {
    if concurrent as usize <= chunks {
        return Ok(());
    }
    Err(Error::conflict(
        format!(
            "the store has {chunks} chunk(s), and {concurrent} partitions are to be in a step, each of one chunk or more"
        ),
        format!("give --concurrent {chunks} or less, or create the store again with more --chunks"),
    ))
}

/// The owners in an assignment of a chunk that nobody owns.
pub(super) const ABSENT: Owners = Owners { base: PartitionId(0), variable: None };

/// Divides chunks of these sizes among the partitions of a super-epoch.
pub(super) fn owners_of(
    schedule: Schedule,
    sizes: &[u64],
    partitions: u32,
    seed: u64,
    super_epoch: u64,
) -> impl Iterator<Item = Owners> {
    let bases = match schedule {
        Schedule::Shuffle => deal(sizes, false, partitions, seed, super_epoch),
        Schedule::Sweep | Schedule::Fixed => deal(sizes, true, partitions, seed, 0),
        Schedule::Local => runs(sizes, partitions),
    };
    // The variable part of partition p is the base of partition p + distance.
    let distance = match schedule {
        _ if partitions == 1 => None,
        Schedule::Sweep | Schedule::Local => Some(1 + (super_epoch % u64::from(partitions - 1)) as u32),
        Schedule::Fixed => Some(1),
        Schedule::Shuffle => None,
    };
    bases
        .into_iter()
        .map(move |base| Owners { base, variable: distance.map(|distance| before(base, distance, partitions)) })
}

/// The work of each chunk, estimated from the manifest: its nodes plus its edges. None for chunks that a slice lacks.
pub fn chunk_sizes(manifest: &Manifest) -> Vec<Option<u64>> {
    manifest
        .chunk_starts
        .windows(2)
        .zip(&manifest.chunks)
        .map(|(ends, chunk)| chunk.present.then(|| (ends[1] - ends[0]).saturating_add(chunk.edges)))
        .collect()
}

/// Partition `p - distance`, modulo the number of partitions.
fn before(p: PartitionId, distance: u32, partitions: u32) -> PartitionId {
    // `p + partitions - distance` could overflow.
    PartitionId(if p.0 >= distance { p.0 - distance } else { partitions - (distance - p.0) })
}

/// Divides the chunks into runs of similar work. Each partition has one if there are at least as many chunks.
pub(super) fn runs(sizes: &[u64], partitions: u32) -> Vec<PartitionId> {
    let total: u128 = sizes.iter().map(|&size| u128::from(size)).sum();
    let (mut before, mut partition) = (0_u128, 0);
    let mut runs = Vec::with_capacity(sizes.len());
    for (chunk, &size) in sizes.iter().enumerate() {
        let (left, wanting) = (sizes.len() - chunk, (partitions - 1 - partition) as usize);
        // The chunk belongs to the run that has its middle.
        let is_filled =
            (2 * before + u128::from(size)) * u128::from(partitions) >= 2 * total * u128::from(partition + 1);
        if wanting > 0 && chunk > 0 && (is_filled || left == wanting) {
            partition += 1;
        }
        runs.push(PartitionId(partition));
        before += u128::from(size);
    }
    runs
}

/// Deals each chunk to a partition. If `balanced`, each hand has chunks of similar size.
fn deal(sizes: &[u64], balanced: bool, partitions: u32, seed: u64, super_epoch: u64) -> Vec<PartitionId> {
    let mut random = Source::new(seed, Purpose::Grouping).stream(super_epoch);
    let mut shuffle = |cards: &mut [u32]| {
        for i in (1..cards.len()).rev() {
            cards.swap(i, scale(random.next_number(), i as u64 + 1) as usize);
        }
    };
    let mut deck: Vec<u32> = (0..sizes.len() as u32).collect();
    shuffle(&mut deck);
    if balanced {
        // The sort is stable: chunks of equal size stay in random order.
        deck.sort_by_key(|&chunk| Reverse(sizes[chunk as usize]));
    }
    let mut players: Vec<u32> = (0..partitions).collect();
    let mut dealt = vec![PartitionId(0); sizes.len()];
    for hand in deck.chunks(partitions as usize) {
        shuffle(&mut players);
        for (&chunk, &player) in hand.iter().zip(&players) {
            dealt[chunk as usize] = PartitionId(player);
        }
    }
    dealt
}
