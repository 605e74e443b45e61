//! Whether an assignment is one that a repartitioning of a store makes.
//!
//! An assignment does not name its store, and one with as many chunks is valid for any store. But chunks are dealt by
//! their sizes, which differ between stores. So an assignment that was copied from another store is noticed unless the
//! sizes of its chunks have the same order, and then it serves as well as one of this store.

use std::cmp::Reverse;

use grappa_formats::{ChunkId, PartitionId, assignment::Assignment};

use super::{
    schedule::{Schedule, runs},
    tables::ChunkTables,
};

/// How `assignment` differs from all that a repartitioning of a graph with these chunks makes. None if it does not, or if its schedule is
/// unknown. Both have the same number of chunks.
pub fn foreign<'a>(assignment: &Assignment, tables: impl Into<ChunkTables<'a>>) -> Option<String> {
    let partitions = assignment.partitions();
    if assignment.generation() == 0 {
        let is_whole = *assignment == Assignment::whole(assignment.chunks());
        return (!is_whole).then(|| "generation 0 is no partition of all chunks".to_owned());
    }
    let (mut first, mut present_of_types, mut absent) = (0, Vec::new(), Vec::new());
    for sizes in tables.into().sizes() {
        let chunks = (first..).map(ChunkId).zip(&sizes);
        let present: Vec<_> = chunks.clone().filter_map(|(chunk, size)| Some((chunk, (*size)?))).collect();
        absent.extend(chunks.filter(|(_, size)| size.is_none()).map(|(chunk, _)| chunk));
        present_of_types.push(present);
        first += sizes.len() as u32;
    }
    let owned = absent.iter().find(|&&chunk| {
        let owners = assignment.owners(chunk);
        owners.base != Some(PartitionId(0)) || owners.variable.is_some()
    });
    if let Some(chunk) = owned {
        return Some(format!("a partition owns chunk {chunk}, which this store lacks"));
    }
    let most = present_of_types.iter().map(Vec::len).max().unwrap_or(0);
    if partitions as usize > most {
        return Some(format!("{partitions} partitions share {most} chunks"));
    }
    let schedule: Schedule = assignment.schedule().parse().ok()?;
    present_of_types.into_iter().find_map(|mut present| {
        let uneven = match schedule {
            Schedule::Local => not_in_runs(assignment, &present),
            Schedule::Shuffle => uneven(assignment, &present, schedule),
            Schedule::Sweep | Schedule::Fixed => {
                present.sort_by_key(|&(_, size)| Reverse(size));
                uneven(assignment, &present, schedule)
            }
        };
        uneven.or_else(|| unmatched(assignment, &present, schedule))
    })
}

/// The first chunks, in order of their sizes, that are not dealt evenly to the bases. With [`Schedule::Shuffle`], all
/// chunks are.
fn uneven(assignment: &Assignment, present: &[(ChunkId, u64)], schedule: Schedule) -> Option<String> {
    let partitions = assignment.partitions() as usize;
    let mut dealt = vec![0; partitions];
    for (number, &(chunk, size)) in (1..).zip(present) {
        let base = assignment.owners(chunk).base?;
        dealt[base.0 as usize] += 1;
        // Chunks of the same size are dealt in any order.
        let next = present.get(number).map(|&(_, size)| size);
        if next == Some(size) || (schedule == Schedule::Shuffle && next.is_some()) {
            continue;
        }
        let least = number / partitions;
        if dealt.iter().any(|&chunks| chunks < least || chunks > least + 1) {
            return Some(format!("partitions do not have equal shares of the {number} largest chunks of this store"));
        }
    }
    None
}

/// The first chunk that is not in the run of chunks that [`Schedule::Local`] puts it into.
fn not_in_runs(assignment: &Assignment, present: &[(ChunkId, u64)]) -> Option<String> {
    let sizes: Vec<u64> = present.iter().map(|&(_, size)| size).collect();
    let other = present
        .iter()
        .zip(runs(&sizes, assignment.partitions()))
        .find(|(chunk, partition)| assignment.owners(chunk.0).base != Some(*partition))?;
    Some(format!("chunk {} is in another base than its neighbors", other.0.0))
}

/// Why the variable parts do not follow the schedule: the base of another partition, at the same distance for all.
fn unmatched(assignment: &Assignment, present: &[(ChunkId, u64)], schedule: Schedule) -> Option<String> {
    let partitions = assignment.partitions();
    let first = distance(assignment, present.first()?.0);
    let fits = match schedule {
        _ if partitions == 1 => first.is_none(),
        Schedule::Shuffle => first.is_none(),
        Schedule::Fixed => first == Some(1),
        Schedule::Sweep | Schedule::Local => first.is_some(),
    };
    match present.iter().find(|chunk| distance(assignment, chunk.0) != first) {
        None if fits => None,
        other => {
            let (chunk, _) = other.unwrap_or(&present[0]);
            Some(format!("chunk {chunk} has another variable part than the schedule {schedule} gives"))
        }
    }
}

/// The distance from the variable part of a chunk to its base, modulo the number of partitions.
fn distance(assignment: &Assignment, chunk: ChunkId) -> Option<u64> {
    let (owners, partitions) = (assignment.owners(chunk), u64::from(assignment.partitions()));
    let (base, variable) = (owners.base?.0, owners.variable?.0);
    Some((u64::from(base) + partitions - u64::from(variable)) % partitions)
}
