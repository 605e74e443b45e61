//! Looks up whether edges exist.

use grappa_formats::NodeId;
use grappa_io::{Result, heap};

use super::group::{DrawnPositions, GROUP, Group, GroupScratch};
use crate::view::{
    PartitionView, ViewLists,
    adjacency::{AdjacencyLists, Positions},
};

/// Lists of at most this many sources are read as a whole. In longer ones, a binary search reads single positions.
const READ_MAX: u64 = 64;

/// Reusable memory for lookups.
#[derive(Debug, Default)]
pub(crate) struct FindScratch(GroupScratch);

/// Sets `found` to whether the view has each edge, given its source and destination. The view owns the destinations.
pub(crate) fn find_edges(
    view: &PartitionView,
    edges: &[(NodeId, NodeId)],
    scratch: &mut FindScratch,
    found: &mut Vec<bool>,
) -> Result<()> {
    let FindScratch(scratch) = scratch;
    found.clear();
    heap::reserve(found, edges.len(), "edges to look up")?;
    // In the order of time, a search is not possible.
    let read_max = if view.is_by_time() { u64::MAX } else { READ_MAX };
    match &view.lists() {
        ViewLists::Whole(lists) => find(lists, edges, read_max, scratch, found),
        ViewLists::Partition(lists) => find(lists, edges, read_max, scratch, found),
        ViewLists::Mapped(lists) => find(lists, edges, read_max, scratch, found),
        ViewLists::Halo(lists) => find(lists, edges, read_max, scratch, found),
        ViewLists::MappedHalo(lists) => find(lists, edges, read_max, scratch, found),
    }
}

fn find<A: AdjacencyLists>(
    lists: &A,
    edges: &[(NodeId, NodeId)],
    read_max: u64,
    scratch: &mut GroupScratch,
    found: &mut Vec<bool>,
) -> Result<()> {
    let group = &mut Group::new(lists, None, scratch);
    for part in edges.chunks(GROUP) {
        group.locate(part.iter().map(|&(_, target)| target))?;
        let mut owned = [0; GROUP];
        for (index, owned) in owned.iter_mut().enumerate().take(part.len()) {
            let degrees = group.degrees(index);
            *owned = degrees.visible.min(degrees.listed);
            group.record(DrawnPositions::First(degrees.listed));
        }
        for (index, &(source, _)) in part.iter().enumerate() {
            let DrawnPositions::First(listed) = group.scratch.drawn[index] else {
                unreachable!("all positions are recorded")
            };
            found.push(match listed <= read_max {
                true => is_among(group, index, source),
                false => is_found(group, index, [owned[index], listed], source),
            });
        }
    }
    Ok(())
}

/// Whether a list has a source. Reads all of it.
fn is_among<A: AdjacencyLists>(group: &mut Group<'_, A>, index: usize, source: NodeId) -> bool {
    group.scratch.sources.clear();
    group.read(index);
    group.scratch.sources.contains(&source)
}

/// The same by binary search. Positions before `ends[0]` have the owned sources, ascending, and those before `ends[1]` the others.
fn is_found<A: AdjacencyLists>(group: &mut Group<'_, A>, index: usize, ends: [u64; 2], source: NodeId) -> bool {
    [0..ends[0], ends[0]..ends[1]].into_iter().any(|mut range| {
        while !range.is_empty() {
            let middle = range.start + (range.end - range.start) / 2;
            group.scratch.sources.clear();
            group.lists.sources_at(
                &group.places[index],
                &mut group.state,
                Positions::Listed(&[middle]),
                &mut group.scratch.sources,
            );
            match group.scratch.sources[0].cmp(&source) {
                std::cmp::Ordering::Less => range.start = middle + 1,
                std::cmp::Ordering::Greater => range.end = middle,
                std::cmp::Ordering::Equal => return true,
            }
        }
        false
    })
}
