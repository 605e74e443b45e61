//! Searches for the edges that draws limited by time may have.
//!
//! Adjacency lists are in the order of time, so the edges that a draw may have are a range of positions: those until a time, and since an
//! earlier one if draws have a window. Both ends are searches in the list of times, or in the list of sources if these have times.
//!
//! As adjacency lists, searched lists are read in stages for a whole [`Group`](TimeGroup) of destinations, so that many cache misses are in
//! flight at once. Searches in memory take one step in each list of the group in turn.

use std::{hint::select_unpredictable, ops::Range};

use grappa_formats::{NodeId, time_axis::TimeAxis};
use grappa_io::{Result, prefetch::prefetch};
use grappa_storage::NodeTimes;

use super::{
    files::{FileHead, FilePlace, MappedFiles},
    positions::Positions,
    sources::{Source, Sources},
    time_load::disagrees,
};

/// Which times the edges of a draw may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    /// No edge is later.
    pub time: i64,
    /// Whether edges at this time count.
    pub equal: bool,
    /// If given, no edge is earlier by more than this.
    pub window: Option<i64>,
}

/// The lists of times of a view, or its adjacency lists if sources have times, ready to be read by one thread.
///
/// ```text
/// for the group: heads
/// for the group: locate
/// for the group: search
/// for each of the group, after positions were drawn: prefetch
/// for each of the group: times
/// ```
pub(crate) struct TimeLists<'a> {
    scale: TimeScale<'a>,
    lists: Lists<'a>,
}

/// What the numbers in searched lists stand for. They ascend with time.
#[derive(Clone, Copy)]
pub(super) enum TimeScale<'a> {
    /// Positions of edges on an axis.
    Axis(&'a TimeAxis),
    /// Sources that have times.
    Nodes(&'a NodeTimes),
}

impl TimeScale<'_> {
    /// The numbers that are within a limit.
    fn within(self, TimeLimit { time, equal, window }: TimeLimit) -> Range<u64> {
        let until = match (self, equal) {
            (Self::Axis(axis), true) => axis.not_later(time),
            (Self::Nodes(nodes), true) => nodes.not_later(time),
            (_, false) => self.earlier(time),
        };
        window.map_or(0, |window| self.earlier(time.saturating_sub(window)))..until
    }

    /// The numbers of times before `time` are those below this one.
    fn earlier(self, time: i64) -> u64 {
        match self {
            Self::Axis(axis) => axis.earlier(time),
            Self::Nodes(nodes) => nodes.earlier(time),
        }
    }

    fn time(self, number: u64) -> i64 {
        match self {
            Self::Axis(axis) => axis.time(number),
            Self::Nodes(nodes) => nodes.time(NodeId(number)),
        }
    }
}

enum Lists<'a> {
    Memory(Sources<'a>),
    Mapped(MappedFiles<'a>),
}

/// A list of a group that is searched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchedList {
    /// Its first edge in memory; none if lists are mapped.
    pub first_edge: Option<usize>,
    /// Its number of edges.
    pub degree: u64,
    pub limit: TimeLimit,
}

/// The lists of times of a group of destinations. Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct TimeGroup {
    heads: Vec<FileHead>,
    places: Vec<FilePlace>,
    lists: Vec<ListPart>,
    /// The lists in memory whose search is not done.
    active: Vec<usize>,
    /// For each list, the positions that are within its limit.
    pub within: Vec<Range<u64>>,
}

/// A list in memory, and the part of it that a search has left.
#[derive(Debug, Clone, Copy)]
struct ListPart {
    first: usize,
    /// The first edge that is left, and the number of edges that are.
    at: usize,
    left: usize,
    degree: usize,
    /// The numbers that are searched.
    since: u64,
    until: u64,
}

impl<'a> TimeLists<'a> {
    /// The lists in memory: the numbers of all edges.
    pub(super) fn in_memory(scale: TimeScale<'a>, numbers: Sources<'a>) -> Self {
        Self { scale, lists: Lists::Memory(numbers) }
    }

    /// The lists in mapped files.
    pub(super) fn mapped(scale: TimeScale<'a>, files: MappedFiles<'a>) -> Self {
        Self { scale, lists: Lists::Mapped(files) }
    }

    /// Begins a group of `nodes`: prefetches, or reads ahead, where the lists of mapped times are.
    pub fn heads(&self, nodes: impl Iterator<Item = NodeId> + Clone, on_disk: bool, group: &mut TimeGroup) {
        group.heads.clear();
        let Lists::Mapped(files) = &self.lists else { return };
        if on_disk {
            nodes.clone().for_each(|node| files.read_ahead_head(node));
        }
        group.heads.extend(nodes.map(|node| files.head(node)));
        group.heads.iter().for_each(|&head| files.prefetch_head(head));
    }

    /// Locates the mapped lists, and prefetches the part that a search reads first.
    ///
    /// # Errors
    /// If a list is damaged.
    pub fn locate(&self, on_disk: bool, group: &mut TimeGroup) -> Result<()> {
        group.places.clear();
        let Lists::Mapped(files) = &self.lists else { return Ok(()) };
        group.places.extend(group.heads.iter().map(|&head| files.locate(head)));
        if on_disk {
            group.places.iter().for_each(|place| files.read_ahead_list(place));
        }
        group.places.iter().for_each(|place| files.prefetch_list(place));
        files.take_damage()
    }

    /// Searches the positions of each list that are within its limit, for [`TimeGroup::within`]. The limits of a group differ in time only.
    ///
    /// # Errors
    /// If lists of times have other lengths than the adjacency lists.
    pub fn search(&self, lists: impl Iterator<Item = SearchedList>, group: &mut TimeGroup) -> Result<()> {
        let TimeGroup { places, lists: parts, active, within, .. } = group;
        within.clear();
        // Destinations that follow each other often have the same time.
        let (mut known, mut range) = (None, 0..0);
        let mut positions = |limit: TimeLimit| {
            if known != Some(limit.time) {
                (known, range) = (Some(limit.time), self.scale.within(limit));
            }
            range.clone()
        };
        match &self.lists {
            Lists::Mapped(files) => {
                for (place, SearchedList { degree, limit, .. }) in places.iter().zip(lists) {
                    let Range { start: since, end: until } = positions(limit);
                    let Some(times) = files.open(place) else {
                        // A halo node.
                        within.push(0..0);
                        continue;
                    };
                    if times.degree() != degree {
                        return Err(disagrees(files.chunk_of(place)));
                    }
                    let end = times.lower_bound(until);
                    let start = if since == 0 { 0 } else { times.lower_bound(since) };
                    within.push(start.min(end)..end);
                }
            }
            Lists::Memory(decoded) => {
                parts.clear();
                parts.extend(lists.map(|SearchedList { first_edge, degree, limit }| {
                    let (first, degree) = (first_edge.expect("lists are in memory"), degree as usize);
                    let Range { start: since, end: until } = positions(limit);
                    ListPart { first, at: first, left: degree, degree, since, until }
                }));
                match decoded {
                    Sources::Narrow(decoded) => search_all(decoded, parts, active, within),
                    Sources::Wide(decoded) => search_all(decoded, parts, active, within),
                }
            }
        }
        Ok(())
    }

    /// Prefetches the times at some positions of a list, by its index in the group.
    pub fn prefetch(&self, index: usize, positions: Positions<'_>, group: &TimeGroup) {
        match &self.lists {
            Lists::Memory(decoded) => decoded.prefetch(group.lists[index].first, positions),
            Lists::Mapped(files) => {
                if let Positions::Listed(positions) = positions {
                    files.prefetch_sources(&group.places[index], positions);
                }
            }
        }
    }

    /// Appends the times of the edges at some positions of a list, by its index in the group.
    pub fn times(&self, index: usize, positions: Positions<'_>, group: &TimeGroup, times: &mut Vec<i64>) {
        match &self.lists {
            Lists::Memory(decoded) => {
                let ListPart { first, degree, .. } = group.lists[index];
                let list = decoded.list(first..first + degree);
                positions.for_each(|position| times.push(self.scale.time(list.get(position as usize))));
            }
            Lists::Mapped(files) => {
                let Some(list) = files.open(&group.places[index]) else { return };
                positions.for_each(|position| times.push(self.scale.time(list.get(position))));
            }
        }
    }
}

impl TimeGroup {
    pub fn bytes(&self) -> u64 {
        let Self { heads, places, lists, active, within } = self;
        let bytes = heads.capacity() * size_of::<FileHead>()
            + places.capacity() * size_of::<FilePlace>()
            + lists.capacity() * size_of::<ListPart>()
            + active.capacity() * size_of::<usize>()
            + within.capacity() * size_of::<Range<u64>>();
        bytes as u64
    }
}

/// Searches the ends of the ranges within the limits, and then the starts, if there are any.
fn search_all<S: Source>(decoded: &[S], lists: &mut [ListPart], active: &mut Vec<usize>, within: &mut Vec<Range<u64>>) {
    search_until(decoded, lists, active, |list| list.until);
    within.extend(lists.iter().map(|list| 0..(list.at - list.first) as u64));
    if lists.iter().all(|list| list.since == 0) {
        return;
    }
    for list in &mut *lists {
        (list.at, list.left) = (list.first, list.degree);
    }
    search_until(decoded, lists, active, |list| list.since);
    for (within, list) in within.iter_mut().zip(lists) {
        within.start = ((list.at - list.first) as u64).min(within.end);
    }
}

/// Lets each list begin at its first number that is at least `bound`.
///
/// ```text
/// while a list has more than one edge left:
///     for each such list: keep the upper half if the bound is in it, otherwise the lower one; prefetch the next middle
/// for each list: skip the last edge if it is below the bound
/// ```
fn search_until<S: Source>(
    decoded: &[S],
    lists: &mut [ListPart],
    active: &mut Vec<usize>,
    bound: impl Fn(&ListPart) -> u64,
) {
    active.clear();
    active.extend((0..lists.len()).filter(|&index| lists[index].left > 1));
    for &index in &*active {
        prefetch(decoded, lists[index].at + lists[index].left / 2 - 1);
    }
    while !active.is_empty() {
        // Which half it is and whether a list is done cannot be predicted, so neither is a branch.
        let mut kept = 0;
        for number in 0..active.len() {
            let index = active[number];
            let list = &mut lists[index];
            let half = list.left / 2;
            let middle: u64 = decoded[list.at + half - 1].into();
            list.at += select_unpredictable(middle < bound(list), half, 0);
            list.left -= half;
            prefetch(decoded, list.at + (list.left / 2).saturating_sub(1));
            active[kept] = index;
            kept += usize::from(list.left > 1);
        }
        active.truncate(kept);
    }
    for list in lists {
        if list.left == 1 {
            let last: u64 = decoded[list.at].into();
            list.at += usize::from(last < bound(list));
        }
    }
}
