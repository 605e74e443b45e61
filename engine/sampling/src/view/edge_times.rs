//! The times of edges, by which draws are limited.
//!
//! Adjacency lists are in the order of time, so the edges that a draw may have are a range of positions: those until a time, and since an
//! earlier one if draws have a window. Both ends are searches in the list of times. A view in memory has these lists decoded, beside the
//! sources: 4 bytes an edge, or 8 if the axis has more than 2^32 points. A mapped view decodes what a search reads.
//!
//! As adjacency lists, lists of times are read in stages for a whole [`Group`](TimeGroup) of destinations, so that many cache misses are in
//! flight at once. Searches in memory take one step in each list of the group in turn.

use std::{hint::select_unpredictable, ops::Range, sync::Arc};

use grappa_formats::{NodeId, time_axis::TimeAxis};
use grappa_io::{Result, prefetch::prefetch, progress::Progress};
use grappa_storage::Store;

use super::{
    files::{FileHead, FilePlace, MappedFiles},
    positions::Positions,
    sources::{NARROW_NODES_MAX, Source, Sources},
    spare::ReturnedArena,
    time_load::{disagrees, load},
};

/// The times of all edges of a view.
#[derive(Debug)]
pub(crate) struct EdgeTimes {
    axis: Arc<TimeAxis>,
    /// The positions of the edges of all lists on the axis. None if they are in mapped files.
    decoded: Option<ReturnedArena>,
}

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

impl TimeLimit {
    /// The positions on an axis that are within the limit.
    fn positions(self, axis: &TimeAxis) -> Range<u64> {
        let end = if self.equal { axis.not_later(self.time) } else { axis.earlier(self.time) };
        self.window.map_or(0, |window| axis.earlier(self.time.saturating_sub(window)))..end
    }
}

/// Whether positions take 32 bits in memory.
fn is_narrow(axis: &TimeAxis) -> bool {
    axis.positions() <= NARROW_NODES_MAX
}

impl EdgeTimes {
    /// The times of a store, in its mapped files. None if its edges have none.
    ///
    /// # Errors
    /// If the axis cannot be read.
    pub fn mapped(store: &Store) -> Result<Option<Self>> {
        Ok(store.time_axis()?.map(|axis| Self { axis: axis.clone(), decoded: None }))
    }

    /// Loads the times of a store into memory. None if its edges have none. `starts` has the first edge of each adjacency list, and the
    /// end of the last one.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged, there is not enough memory, and [`Error::Stopped`](grappa_io::Error::Stopped) if `progress` asks to stop.
    pub fn load(store: &Store, starts: &[u64], threads: usize, progress: &dyn Progress) -> Result<Option<Self>> {
        let Some(axis) = store.time_axis()? else { return Ok(None) };
        let mut decoded = ReturnedArena::new(Self::bytes(store) as usize, None)?;
        match is_narrow(axis) {
            true => load::<u32>(store, starts, threads, progress, decoded.values_mut())?,
            false => load::<u64>(store, starts, threads, progress, decoded.values_mut())?,
        }
        Ok(Some(Self { axis: axis.clone(), decoded: Some(decoded) }))
    }

    /// The bytes that the times of a store take in memory. Reads the axis; if that is damaged, the view is not opened.
    pub fn bytes(store: &Store) -> u64 {
        let is_narrow = store.time_axis().ok().flatten().is_some_and(|axis| is_narrow(axis));
        let bytes = if is_narrow { size_of::<u32>() } else { size_of::<u64>() };
        bytes as u64 * store.manifest().edges
    }

    /// The lists of times, ready to be read by one thread. `files` opens the mapped ones.
    pub fn lists<'a>(&'a self, files: impl FnOnce() -> MappedFiles<'a>) -> TimeLists<'a> {
        let lists = match &self.decoded {
            Some(decoded) if is_narrow(&self.axis) => Lists::Memory(Sources::Narrow(decoded.values())),
            Some(decoded) => Lists::Memory(Sources::Wide(decoded.values())),
            None => Lists::Mapped(files()),
        };
        TimeLists { axis: &self.axis, lists }
    }
}

/// The lists of times of a view, ready to be read by one thread.
///
/// ```text
/// for the group: heads
/// for the group: locate
/// for the group: search
/// for each of the group, after positions were drawn: prefetch
/// for each of the group: times
/// ```
pub(crate) struct TimeLists<'a> {
    axis: &'a TimeAxis,
    lists: Lists<'a>,
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
    /// The positions on the axis that are searched.
    since: u64,
    until: u64,
}

impl TimeLists<'_> {
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
                (known, range) = (Some(limit.time), limit.positions(self.axis));
            }
            range.clone()
        };
        match &self.lists {
            Lists::Mapped(files) => {
                for (place, SearchedList { degree, limit, .. }) in places.iter().zip(lists) {
                    let Range { start: since, end: until } = positions(limit);
                    let times = files.open(place).expect("a view with times has all lists");
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
                positions.for_each(|position| times.push(self.axis.time(list.get(position as usize))));
            }
            Lists::Mapped(files) => {
                let list = files.open(&group.places[index]).expect("a view with times has all lists");
                positions.for_each(|position| times.push(self.axis.time(list.get(position))));
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

/// Lets each list begin at its first position on the axis that is at least `bound`.
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
