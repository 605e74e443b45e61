//! The positives of an epoch.

use grappa_formats::{ChunkId, EdgePart, NodeId, permutation::Feistel, random, rows::Row};
use grappa_io::{
    Error, Result,
    progress::{Progress, check_stopped},
};
use grappa_storage::{Chunk, Store};

use super::end_times::EndTimes;
use crate::NodeSet;

/// Adjacency lists whose pages stay in memory while edges are read.
const RELEASE_ROWS: u64 = 1 << 18;

/// The edges of a part of a store that are asked about.
///
/// With destinations, these are the edges to one of them. An undirected graph does not keep the direction of the file. So an edge of it that
/// has one end among the destinations is an edge to this end, whatever direction is stored.
#[derive(Debug, Clone, Copy)]
pub struct PartEdges<'a> {
    /// The store.
    pub store: &'a Store,
    /// The part.
    pub part: EdgePart,
    /// The nodes that destinations are among; none for all nodes.
    pub destinations: Option<&'a NodeSet>,
    /// The times that edges are within, if they are asked about with their times.
    pub times: Option<TimeRange>,
    /// The times of the ends of edges, which are the times of edges that have none of their own.
    pub ends: Option<&'a EndTimes>,
}

/// A range of times, with both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The first time.
    pub first: i64,
    /// The last time.
    pub last: i64,
}

impl TimeRange {
    /// All times.
    pub const ALL: Self = Self { first: i64::MIN, last: i64::MAX };

    /// Whether a time is within the range.
    pub fn contains(self, time: i64) -> bool {
        self.first <= time && time <= self.last
    }
}

/// An edge of a part.
#[derive(Debug, Clone, Copy)]
struct PartEdge {
    source: NodeId,
    target: NodeId,
    /// 0 unless edges are asked about with their times.
    time: i64,
}

impl<'a> PartEdges<'a> {
    /// All edges of a part, without their times.
    pub fn all(store: &'a Store, part: EdgePart) -> Self {
        Self { store, part, destinations: None, times: None, ends: None }
    }

    /// All edges of a part with their times, if they have times.
    pub fn timed(store: &'a Store, part: EdgePart) -> Self {
        Self { times: store.is_timed().then_some(TimeRange::ALL), ..Self::all(store, part) }
    }

    /// Whether some stored edges are not asked about in their stored direction.
    fn is_chosen(&self) -> bool {
        let is_within_all = self.times.is_none_or(|times| times == TimeRange::ALL);
        self.has_both_directions() || self.destinations.is_some() || !is_within_all
    }

    /// Whether the part has each edge in both directions, and one direction counts.
    fn has_both_directions(&self) -> bool {
        self.part == EdgePart::Graph && self.store.manifest().edge_options.undirected
    }

    /// The edge that a stored edge stands for, if it counts.
    fn asked(&self, source: NodeId, target: NodeId) -> Option<(NodeId, NodeId)> {
        let is_counted = || !self.has_both_directions() || is_counted(source, target);
        let Some(among) = self.destinations else {
            return is_counted().then_some((source, target));
        };
        if !self.store.manifest().edge_options.undirected {
            // Sources may have another type.
            return among.contains(target).then_some((source, target));
        }
        match (among.contains(source), among.contains(target)) {
            (true, true) => is_counted().then_some((source, target)),
            (false, true) => Some((source, target)),
            // An edge that is held out of an undirected graph is stored in one direction.
            (true, false) if self.part != EdgePart::Graph => Some((target, source)),
            (_, false) => None,
        }
    }

    /// Reads the edges to nodes of some chunks, in the order of the stored ones: by destination, then by source.
    fn for_each(&self, chunks: &[ChunkId], progress: &dyn Progress, mut each: impl FnMut(PartEdge)) -> Result<()> {
        let mut each = |source, target, time| {
            if let Some((source, target)) = self.asked(source, target) {
                each(PartEdge { source, target, time });
            }
        };
        match (self.times, self.ends) {
            (Some(times), Some(ends)) if !self.store.is_timed() => {
                for_each_edge(self.store, self.part, chunks, progress, |source, target| {
                    let time = ends.of_link(source, target).expect("an end with times");
                    if times.contains(time) {
                        each(source, target, time);
                    }
                })
            }
            (Some(times), _) => for_each_timed_edge(self.store, self.part, chunks, progress, |source, target, time| {
                if times.contains(time) {
                    each(source, target, time);
                }
            }),
            (None, _) => {
                for_each_edge(self.store, self.part, chunks, progress, |source, target| each(source, target, 0))
            }
        }
    }

    /// Reads the edges with some numbers in the order of [`PartEdges::for_each`]. The numbers ascend. If all stored edges are asked about,
    /// skips edges without reading them.
    fn for_each_numbered(
        &self,
        chunks: &[ChunkId],
        numbers: &[u64],
        progress: &dyn Progress,
        mut each: impl FnMut(PartEdge),
    ) -> Result<()> {
        let mut numbers = numbers.iter().copied().peekable();
        let mut number = 0;
        if self.is_chosen() {
            return self.for_each(chunks, progress, |edge| {
                if numbers.next_if_eq(&number).is_some() {
                    each(edge);
                }
                number += 1;
            });
        }
        let axis = self.times.and(self.store.time_axis()?);
        for &chunk in chunks {
            check_stopped(progress)?;
            let lists = self.store.part(self.part, chunk)?;
            let (rows, first) = (lists.rows(), lists.span().first_node.0);
            for (row, degree) in (0..).zip(rows.degrees(0..rows.rows())) {
                let end = number + degree?;
                while let Some(of_row) = numbers.next_if(|&next| next < end) {
                    let place = of_row - number;
                    let sources = rows.row(row)?;
                    let (source, target) = (NodeId(sources.get(place)), NodeId(first + row));
                    let time = match (axis, self.times.and(self.ends)) {
                        (Some(axis), _) => {
                            lists.times_of(row, sources.degree())?.map_or(0, |times| axis.time(times.get(place)))
                        }
                        (None, Some(ends)) => ends.of_link(source, target).expect("an end with times"),
                        (None, None) => 0,
                    };
                    each(PartEdge { source, target, time });
                }
                number = end;
            }
            lists.release_all_rows();
        }
        Ok(())
    }
}

/// Edges in an order: source and destination of each. 16 bytes each, and 24 with their times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Positives {
    edges: Vec<(NodeId, NodeId)>,
    /// The time of each edge, if edges have times.
    times: Vec<i64>,
    /// The number of each edge among all edges of its part, if these are some of them.
    numbers: Vec<u64>,
    /// The first edge of each group, if they are in groups.
    groups: Vec<u64>,
}

impl Positives {
    /// These edges.
    pub fn list(edges: Vec<(NodeId, NodeId)>) -> Self {
        Self { edges, ..Self::default() }
    }

    /// These edges, each at its time, in the unit of the store.
    ///
    /// # Panics
    /// If there are not as many times as edges.
    pub fn at_times(edges: Vec<(NodeId, NodeId)>, times: Vec<i64>) -> Self {
        assert_eq!(edges.len(), times.len(), "a time for each edge");
        Self { edges, times, ..Self::default() }
    }

    /// The same edges in groups. A minibatch samples the ends of a group together. `groups` are the indices of the first edge of each, and
    /// ascend from 0. Edges of a group have the same time.
    ///
    /// # Panics
    /// If edges have no times.
    #[must_use]
    pub fn in_groups(self, groups: Vec<u64>) -> Self {
        assert!(self.times.len() == self.edges.len(), "edges with times");
        Self { groups, ..self }
    }

    /// The edges of a part of the store that are asked about, by destination; in an undirected graph, each once. If `sample` is a number and
    /// a key, this number of edges, drawn by the key without replacement. They have at most `memory` bytes.
    ///
    /// # Errors
    /// If the store lacks the part, the edges need more memory, a file is damaged, or `progress` asks to stop.
    pub fn of_part(
        edges: PartEdges<'_>,
        sample: Option<(u64, u64)>,
        memory: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        // Fails if the store lacks the part.
        edges.store.part_edges(edges.part)?;
        let chunks: Vec<ChunkId> = edges.store.present_chunks().collect();
        let count = Self::count(edges, &chunks, progress)?;
        Self::of_chunks(edges, &chunks, count, sample, memory, progress)
    }

    /// As [`Positives::of_part`], the edges to nodes of some chunks. There are `count` of them, as [`Positives::count`] tells.
    ///
    /// # Errors
    /// As [`Positives::of_part`].
    pub fn of_chunks(
        edges: PartEdges<'_>,
        chunks: &[ChunkId],
        count: u64,
        sample: Option<(u64, u64)>,
        memory: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let sample = sample.filter(|&(wanted, _)| wanted < count);
        let wanted = sample.map_or(count, |(wanted, _)| wanted);
        let bytes_of_edge = 16 + 8 * u64::from(sample.is_some()) + 8 * u64::from(edges.times.is_some());
        if wanted.saturating_mul(bytes_of_edge) > memory {
            return Err(Error::Budget {
                operation: format!("a list of {wanted} edges"),
                given: memory,
                least: wanted.saturating_mul(bytes_of_edge),
                remedy: "raise the memory, or sample fewer edges in each epoch",
            });
        }
        let numbers = sample.map_or_else(Vec::new, |(wanted, key)| drawn_numbers(count, wanted, key));
        let mut found = Self { edges: Vec::with_capacity(wanted as usize), ..Self::default() };
        let has_times = edges.times.is_some();
        found.times.reserve_exact(if has_times { wanted as usize } else { 0 });
        let each = |PartEdge { source, target, time }| {
            found.edges.push((source, target));
            if has_times {
                found.times.push(time);
            }
        };
        match sample {
            None => edges.for_each(chunks, progress, each)?,
            Some(_) => edges.for_each_numbered(chunks, &numbers, progress, each)?,
        }
        Ok(Self { numbers, ..found })
    }

    /// The number of edges of [`Positives::of_chunks`] without a sample. Reads all edges of an undirected graph, or if destinations are given.
    ///
    /// # Errors
    /// If the store lacks the part, a file is damaged, or `progress` asks to stop.
    pub fn count(edges: PartEdges<'_>, chunks: &[ChunkId], progress: &dyn Progress) -> Result<u64> {
        let mut count = 0;
        match edges.is_chosen() {
            true => edges.for_each(chunks, progress, |_| count += 1)?,
            false => {
                for &chunk in chunks {
                    count += edges.store.part_in_order(edges.part, chunk)?.rows().edges();
                }
            }
        }
        Ok(count)
    }

    /// The edges at some indices, which may repeat, in this order.
    ///
    /// # Panics
    /// If there is no such edge.
    #[must_use]
    pub fn at(&self, indices: impl Iterator<Item = u64>) -> Self {
        let mut found = Self::default();
        for index in indices {
            found.edges.push(self.edges[index as usize]);
            found.times.extend(self.time(index));
            found.numbers.push(self.number(index));
        }
        found
    }

    /// Number of edges.
    pub fn len(&self) -> u64 {
        self.edges.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// The edges, in order.
    pub fn edges(&self) -> &[(NodeId, NodeId)] {
        &self.edges
    }

    /// The edges, in order.
    pub fn into_edges(self) -> Vec<(NodeId, NodeId)> {
        self.edges
    }

    /// The times of edges, in order; empty if they have none.
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// The time of an edge, if edges have times.
    pub fn time(&self, index: u64) -> Option<i64> {
        self.times.get(index as usize).copied()
    }

    /// The group of an edge: without groups, each edge is one.
    pub fn group(&self, index: u64) -> u64 {
        match &self.groups[..] {
            [] => index,
            groups => groups.partition_point(|&first| first <= index) as u64,
        }
    }

    /// The number of an edge: its index, or its number among all edges, if these are some of them.
    pub fn number(&self, index: u64) -> u64 {
        self.numbers.get(index as usize).copied().unwrap_or(index)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        let words = self.times.capacity() + self.numbers.capacity() + self.groups.capacity();
        (self.edges.capacity() * size_of::<(NodeId, NodeId)>() + words * size_of::<u64>()) as u64
    }
}

/// `wanted` of the numbers below `edges`, ascending.
fn drawn_numbers(edges: u64, wanted: u64, key: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..wanted).collect();
    Feistel::new(edges, key).inverse_all(&mut numbers);
    numbers.sort_unstable();
    numbers
}

/// Reads the edges of a part to nodes of some chunks, by destination, then by source.
pub(super) fn for_each_edge(
    store: &Store,
    part: EdgePart,
    chunks: &[ChunkId],
    progress: &dyn Progress,
    mut each: impl FnMut(NodeId, NodeId),
) -> Result<()> {
    for_each_list(store, part, chunks, progress, |_, _, target, sources| {
        sources.iter().for_each(|source| each(NodeId(source), target));
        Ok(())
    })
}

/// Reads the edges of a part with their times, by destination, then by time.
fn for_each_timed_edge(
    store: &Store,
    part: EdgePart,
    chunks: &[ChunkId],
    progress: &dyn Progress,
    mut each: impl FnMut(NodeId, NodeId, i64),
) -> Result<()> {
    let axis = store.time_axis()?.expect("a store with times");
    for_each_list(store, part, chunks, progress, |lists, row, target, sources| {
        let times = lists.times_of(row, sources.degree())?.expect("edges have times");
        let edges = sources.iter().zip(times.iter());
        edges.for_each(|(source, position)| each(NodeId(source), target, axis.time(position)));
        Ok(())
    })
}

/// Reads the adjacency lists of a part for nodes of some chunks. `each` gets the chunk, the row in it, its node and its list.
fn for_each_list(
    store: &Store,
    part: EdgePart,
    chunks: &[ChunkId],
    progress: &dyn Progress,
    mut each: impl FnMut(&Chunk, u64, NodeId, Row<'_>) -> Result<()>,
) -> Result<()> {
    for &chunk in chunks {
        let lists = store.part_in_order(part, chunk)?;
        let (rows, first) = (lists.rows(), lists.span().first_node.0);
        for start in (0..rows.rows()).step_by(RELEASE_ROWS as usize) {
            check_stopped(progress)?;
            let range = start..rows.rows().min(start + RELEASE_ROWS);
            for (row, sources) in range.clone().zip(rows.range(range.clone())) {
                each(&lists, row, NodeId(first + row), sources?)?;
            }
            lists.release_rows(range);
        }
    }
    Ok(())
}

/// Whether an edge of an undirected graph counts in this direction. It is a random one, so that partitions with small node numbers get no fewer
/// edges than others.
fn is_counted(source: NodeId, target: NodeId) -> bool {
    let (low, high) = (source.min(target), source.max(target));
    let ascends = random::combine(random::hash(low.0), high.0) & 1 == 0;
    source == target || (source == low) == ascends
}
