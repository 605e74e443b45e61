//! Which edges of a store a view contains.

use std::ops::Range;

use grappa_formats::{ChunkId, NodeId};
use grappa_io::{Error, Result};
use grappa_storage::{Relation, Store};

use super::{halo::Halo, sources::NARROW_NODES_MAX};
use crate::partition::Owned;

/// In a list with at least this number of sources for each run of owned nodes, the ends of runs are searched. In
/// shorter lists, each source is looked up.
const LONG_LIST: usize = 8;

/// What a view has of its edges, besides their sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EdgeData {
    /// The weights of edges.
    pub weights: bool,
    /// The ids of edges: their places in the store.
    pub ids: bool,
    /// The times of edges, or of their sources.
    pub times: bool,
}

impl EdgeData {
    /// As much of it as the edges of a relation have. They have times if their sources have some.
    pub(crate) fn available_in(self, Relation { edges, sources, .. }: Relation<'_>) -> Self {
        Self {
            weights: self.weights && edges.manifest().weighted,
            ids: self.ids && edges.has_edge_data(),
            times: self.times && (edges.is_timed() || sources.has_node_times()),
        }
    }
}

/// Selects the edges of a store that a view contains.
#[derive(Debug, Clone, Copy)]
pub(super) struct EdgeFilter<'a> {
    pub store: &'a Store,
    /// The destinations that are included.
    pub owned: &'a Owned,
    /// The sources that the partition owns: the same nodes, unless they have another type.
    pub sources: &'a Owned,
    pub halo: Halo,
    pub edge_data: EdgeData,
}

impl EdgeFilter<'_> {
    pub(super) fn is_whole(&self) -> bool {
        self.owned.nodes() == self.store.manifest().nodes && self.sources.nodes() == self.store.source_nodes()
    }

    /// Whether sources take 32 bits in memory.
    pub(super) fn is_narrow(&self) -> bool {
        self.store.source_nodes() <= NARROW_NODES_MAX
    }

    /// Whether lists stay in the order of the store, the order of time. Otherwise owned sources come first.
    pub(super) fn keeps_order(&self) -> bool {
        self.edge_data.times || self.store.is_timed()
    }

    /// Whether edges from nodes that are not owned are included. Without them, the place of an edge in the store is unknown.
    pub(super) fn keeps_halo(&self) -> bool {
        self.halo != Halo::None || self.edge_data.ids
    }

    /// The number of included edges into the nodes of a chunk, from the manifest.
    pub(super) fn edges_of(&self, chunk: ChunkId) -> u64 {
        let entry = &self.store.manifest().chunks[chunk.0 as usize];
        if self.keeps_halo() {
            return entry.edges;
        }
        let buckets = (0..).map(ChunkId).zip(&entry.bucket_edges);
        buckets.filter(|&(j, _)| self.sources.owns(j)).map(|(_, edges)| edges).sum()
    }

    pub(super) fn edges(&self) -> u64 {
        self.owned.chunks().map(|chunk| self.edges_of(chunk)).sum()
    }

    /// Puts the adjacency list that begins at `start` into the order of views: owned sources first. Edge weights move
    /// with their sources. Halo sources are dropped if they are not included. Lists in the order of time stay as they are. Returns the number
    /// of owned sources.
    pub(super) fn arrange(
        &self,
        sources: &mut Vec<u64>,
        edge_weights: &mut Vec<f32>,
        start: usize,
        scratch: &mut ArrangeScratch,
    ) -> u64 {
        if self.keeps_order() {
            return sources[start..].iter().filter(|&&source| self.sources.contains(NodeId(source))).count() as u64;
        }
        let ArrangeScratch { owned, sources: moved_sources, edge_weights: moved_weights } = scratch;
        self.find_owned(&sources[start..], owned);
        let visible = owned.iter().map(Range::len).sum::<usize>();
        put_first(&mut sources[start..], owned, moved_sources);
        if self.edge_data.weights {
            put_first(&mut edge_weights[start..], owned, moved_weights);
        }
        if !self.keeps_halo() {
            sources.truncate(start + visible);
            edge_weights.truncate(start + visible);
        }
        visible as u64
    }

    /// Finds the owned sources in a list, which ascends: ranges of positions.
    fn find_owned(&self, list: &[u64], found: &mut Vec<Range<usize>>) {
        found.clear();
        let runs = self.sources.runs();
        if list.len() >= LONG_LIST * runs.len() {
            let mut from = 0;
            for run in runs {
                let begin = from + list[from..].partition_point(|&source| source < run.start);
                from = begin + list[begin..].partition_point(|&source| source < run.end);
                if begin < from {
                    found.push(begin..from);
                }
            }
            return;
        }
        for (at, &source) in list.iter().enumerate() {
            if self.sources.contains(NodeId(source)) {
                match found.last_mut() {
                    Some(last) if last.end == at => last.end += 1,
                    _ => found.push(at..at + 1),
                }
            }
        }
    }

    /// Fails if the store lacks what the view needs of edges.
    pub(super) fn check(&self) -> Result<()> {
        if self.keeps_order() && !self.is_whole() && self.halo != Halo::Stop {
            return Err(Error::conflict(
                format!(
                    "{}: halo is {}, and partitions of a graph with times sample the lists of the graph alone",
                    self.store.path().display(),
                    self.halo.name()
                ),
                "use halo stop",
            ));
        }
        if self.edge_data.ids && !self.store.has_edge_data() {
            return Err(Error::missing(
                "edge weights or edge features, so edges have no ids,",
                self.store.path(),
                "ingest edges with weights or features",
            ));
        }
        if self.edge_data.weights && !self.store.manifest().weighted {
            return Err(Error::missing(
                "edge weights",
                self.store.path(),
                "sample uniformly, or ingest weighted edges",
            ));
        }
        Ok(())
    }
}

/// Memory of [`EdgeFilter::arrange`].
#[derive(Debug, Default)]
pub(super) struct ArrangeScratch {
    /// The positions of owned sources in a list.
    owned: Vec<Range<usize>>,
    sources: Vec<u64>,
    edge_weights: Vec<f32>,
}

/// Moves the values at ascending ranges of positions to the front. The others follow; both keep their order.
fn put_first<T: Copy>(values: &mut [T], ranges: &[Range<usize>], moved: &mut Vec<T>) {
    moved.clear();
    ranges.iter().for_each(|range| moved.extend_from_slice(&values[range.clone()]));
    // From the last range to the first: what is before it moves right by all that it and later ranges leave.
    let mut left = 0;
    for (index, range) in ranges.iter().enumerate().rev() {
        let before = index.checked_sub(1).map_or(0, |index| ranges[index].end);
        left += range.len();
        values.copy_within(before..range.start, before + left);
    }
    values[..moved.len()].copy_from_slice(moved);
}
