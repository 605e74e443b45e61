//! Adjacency lists in memory: plain CSR.
//!
//! ```text
//! whole graph   heads         N + 1 numbers: where each list starts, and where the last one ends
//! partition     heads         two numbers per owned node, and where the last list ends: where its list starts, and
//!                             the number of its owned sources. If only owned sources are included, the second number
//!                             is its in-degree in the graph
//! both          sources       4 bytes each, or 8 in graphs of more than 2^32 nodes
//!               edge weights  4 bytes each, if there are any
//! whole graph   maxima        the largest weight of each list, 4 bytes each, if there are weights
//! ```

use std::sync::Arc;

use grappa_formats::{ChunkId, NodeId};
use grappa_io::{Result, prefetch::prefetch, progress::Progress};

use super::{
    adjacency::{AdjacencyLists, Degrees, Positions, weight_max},
    edge_filter::EdgeFilter,
    edge_times::EdgeTimes,
    list_starts::ListStarts,
    load::load,
    sources::Sources,
    spare::{ReturnedArena, SpareArenas},
    stream::OpenEngine,
};
use crate::partition::Owned;

/// Adjacency lists in memory.
#[derive(Debug)]
pub(super) struct Csr {
    heads: ReturnedArena,
    sources: ReturnedArena,
    edge_weights: ReturnedArena,
    /// The largest weight of each list of a whole graph; NaN if a weight is negative or not finite.
    weight_maxima: Vec<f32>,
    /// The first edge here of each owned chunk, and what makes it an edge of the store when it is added.
    chunk_shifts: Vec<(u64, u64)>,
    is_narrow: bool,
}

impl Csr {
    pub(super) fn bytes(filter: &EdgeFilter<'_>) -> u64 {
        let weight_bytes = if filter.edge_data.weights { size_of::<f32>() } else { 0 };
        let maxima = if filter.edge_data.weights && filter.is_whole() { 4 * filter.owned.nodes() } else { 0 };
        let times = if filter.edge_data.times { EdgeTimes::bytes(filter) } else { 0 };
        times
            + maxima
            + 8 * head_numbers(filter)
            + (source_bytes(filter.is_narrow()) + weight_bytes) as u64 * filter.edges()
    }

    /// Loads the lists, with sources of 32 or 64 bits. The engine that `open` returns reads them, and `threads` threads
    /// decode them. Takes memory from `spare`, and returns it there in the end.
    pub(super) fn load(
        filter: &EdgeFilter<'_>,
        is_narrow: bool,
        threads: usize,
        open: OpenEngine<'_>,
        spare: Option<&Arc<SpareArenas>>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let edges = filter.edges() as usize;
        let mut csr = Self {
            heads: ReturnedArena::new(8 * head_numbers(filter) as usize, spare)?,
            sources: ReturnedArena::new(source_bytes(is_narrow) * edges, spare)?,
            edge_weights: ReturnedArena::new(if filter.edge_data.weights { 4 * edges } else { 0 }, spare)?,
            weight_maxima: Vec::new(),
            chunk_shifts: chunk_shifts(filter),
            is_narrow,
        };
        let heads = csr.heads.values_mut();
        let (end, heads) = heads.split_last_mut().expect("heads include the end of the last list");
        *end = edges as u64;
        let edge_weights = csr.edge_weights.values_mut();
        match is_narrow {
            true => load::<u32>(filter, threads, open, progress, heads, csr.sources.values_mut(), edge_weights)?,
            false => load::<u64>(filter, threads, open, progress, heads, csr.sources.values_mut(), edge_weights)?,
        }
        if filter.edge_data.weights && filter.is_whole() {
            csr.weight_maxima = weight_maxima(csr.heads.values(), csr.edge_weights.values());
        }
        Ok(csr)
    }

    /// Where lists start.
    pub(super) fn starts(&self, filter: &EdgeFilter<'_>) -> ListStarts<'_> {
        ListStarts::new(self.heads.values(), numbers_per_list(filter) as usize)
    }

    /// The lists of a whole graph. They must have been loaded for one.
    pub(super) fn whole(&self) -> WholeCsr<'_> {
        WholeCsr {
            starts: self.heads.values(),
            sources: self.sources(),
            edge_weights: self.edge_weights.values(),
            weight_maxima: &self.weight_maxima,
        }
    }

    /// The lists of a partition. They must have been loaded for one.
    ///
    /// `has_halo` tells whether they have edges from halo nodes, `draws_halo` whether these are drawn, and `keeps_order` whether lists are in
    /// the order of the store.
    pub(super) fn partition<'a>(
        &'a self,
        owned: &'a Owned,
        [has_halo, draws_halo, keeps_order]: [bool; 3],
    ) -> PartitionCsr<'a> {
        PartitionCsr {
            owned,
            has_halo,
            draws_halo,
            keeps_order,
            chunk_shifts: &self.chunk_shifts,
            heads: self.heads.values(),
            sources: self.sources(),
            edge_weights: self.edge_weights.values(),
        }
    }

    /// The sources of all lists.
    pub(super) fn sources(&self) -> Sources<'_> {
        match self.is_narrow {
            true => Sources::Narrow(self.sources.values()),
            false => Sources::Wide(self.sources.values()),
        }
    }
}

/// See [`Csr::weight_maxima`]. `starts` has the start of each list, and the end of the last one.
fn weight_maxima(starts: &[u64], edge_weights: &[f32]) -> Vec<f32> {
    let lists = starts.windows(2);
    lists.map(|bounds| weight_max(&edge_weights[bounds[0] as usize..bounds[1] as usize])).collect()
}

/// See [`Csr::chunk_shifts`]. Empty if edges need no ids.
fn chunk_shifts(filter: &EdgeFilter<'_>) -> Vec<(u64, u64)> {
    if !filter.edge_data.ids {
        return Vec::new();
    }
    let (mut here, mut store) = (0, 0);
    let mut shifts = Vec::new();
    for (chunk, entry) in (0..).map(ChunkId).zip(&filter.store.manifest().chunks) {
        if filter.owned.owns(chunk) {
            shifts.push((here, store - here));
            here += entry.edges;
        }
        store += entry.edges;
    }
    shifts
}

fn source_bytes(is_narrow: bool) -> usize {
    if is_narrow { size_of::<u32>() } else { size_of::<u64>() }
}

/// The number of entries of [`Csr::heads`].
fn head_numbers(filter: &EdgeFilter<'_>) -> u64 {
    filter.owned.nodes() * numbers_per_list(filter) + 1
}

fn numbers_per_list(filter: &EdgeFilter<'_>) -> u64 {
    if filter.is_whole() { 1 } else { 2 }
}

/// The adjacency lists of all nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeCsr<'a> {
    starts: &'a [u64],
    sources: Sources<'a>,
    edge_weights: &'a [f32],
    /// Of each list; empty if there are no weights.
    weight_maxima: &'a [f32],
}

/// The adjacency lists of owned nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionCsr<'a> {
    owned: &'a Owned,
    has_halo: bool,
    draws_halo: bool,
    keeps_order: bool,
    chunk_shifts: &'a [(u64, u64)],
    heads: &'a [u64],
    sources: Sources<'a>,
    edge_weights: &'a [f32],
}

/// The place of a list of [`WholeCsr`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholePlace {
    start: usize,
    end: usize,
    /// None without weights.
    weight_max: Option<f32>,
}

/// The place of a list of [`PartitionCsr`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionPlace {
    start: usize,
    end: usize,
    degrees: Degrees,
}

impl AdjacencyLists for WholeCsr<'_> {
    type Head = usize;
    type Place = WholePlace;
    type GroupState = ();

    #[inline(always)]
    fn head(&self, node: NodeId) -> usize {
        let head = node.0 as usize;
        prefetch(self.starts, head);
        // The end is the next number. One in eight is in the next cache line.
        prefetch(self.starts, head + 1);
        if !self.weight_maxima.is_empty() {
            prefetch(self.weight_maxima, head);
        }
        head
    }

    #[inline(always)]
    fn locate(&self, head: usize) -> WholePlace {
        WholePlace {
            start: self.starts[head] as usize,
            end: self.starts[head + 1] as usize,
            weight_max: self.weight_maxima.get(head).copied(),
        }
    }

    #[inline(always)]
    fn degrees(&self, place: &mut WholePlace, (): &mut ()) -> Degrees {
        let degree = (place.end - place.start) as u64;
        Degrees { visible: degree, global: degree, listed: degree, halo: false }
    }

    #[inline(always)]
    fn first_edge(&self, place: &WholePlace) -> Option<usize> {
        Some(place.start)
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &WholePlace, positions: Positions<'_>) {
        self.sources.prefetch(place.start, positions);
    }

    #[inline(always)]
    fn sources_at(&self, place: &WholePlace, (): &mut (), positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        self.sources.append(place.start..place.end, positions, sources);
    }

    fn edge_weights(&self, place: &WholePlace, (): &(), count: u64, edge_weights: &mut Vec<f32>) -> Result<()> {
        edge_weights.extend_from_slice(&self.edge_weights[place.start..][..count as usize]);
        Ok(())
    }

    #[inline(always)]
    fn weights_in_memory(&self, place: &WholePlace) -> Option<(&[f32], f32)> {
        place.weight_max.map(|max| (&self.edge_weights[place.start..place.end], max))
    }

    fn edge_ids(&self, place: &WholePlace, (): &(), positions: Positions<'_>, ids: &mut Vec<u64>) -> Result<()> {
        positions.for_each(|position| ids.push(place.start as u64 + position));
        Ok(())
    }
}

impl AdjacencyLists for PartitionCsr<'_> {
    type Head = Option<usize>;
    type Place = PartitionPlace;
    type GroupState = ();

    #[inline(always)]
    fn head(&self, node: NodeId) -> Option<usize> {
        let head = 2 * self.owned.local(node)?.0 as usize;
        prefetch(self.heads, head);
        // The end is the start of the next list, which may be in the next cache line.
        prefetch(self.heads, head + 2);
        Some(head)
    }

    #[inline(always)]
    fn locate(&self, head: Option<usize>) -> PartitionPlace {
        let Some(head) = head else {
            return PartitionPlace { start: 0, end: 0, degrees: Degrees::HALO };
        };
        let (start, count, end) = (self.heads[head], self.heads[head + 1], self.heads[head + 2]);
        // The length of the list is one of the two degrees. The stored number is the other.
        let (visible, global) = if self.has_halo { (count, end - start) } else { (end - start, count) };
        PartitionPlace {
            start: start as usize,
            end: end as usize,
            degrees: Degrees {
                visible,
                global,
                listed: if self.draws_halo { end - start } else { visible },
                halo: false,
            },
        }
    }

    #[inline(always)]
    fn degrees(&self, place: &mut PartitionPlace, (): &mut ()) -> Degrees {
        place.degrees
    }

    #[inline(always)]
    fn first_edge(&self, place: &PartitionPlace) -> Option<usize> {
        Some(place.start)
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &PartitionPlace, positions: Positions<'_>) {
        self.sources.prefetch(place.start, positions);
    }

    #[inline(always)]
    fn sources_at(&self, place: &PartitionPlace, (): &mut (), positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        self.sources.append(place.start..place.end, positions, sources);
    }

    fn edge_weights(&self, place: &PartitionPlace, (): &(), count: u64, edge_weights: &mut Vec<f32>) -> Result<()> {
        edge_weights.extend_from_slice(&self.edge_weights[place.start..][..count as usize]);
        Ok(())
    }

    fn edge_ids(&self, place: &PartitionPlace, (): &(), positions: Positions<'_>, ids: &mut Vec<u64>) -> Result<()> {
        let PartitionPlace { start, end, degrees } = *place;
        let chunk = self.chunk_shifts.partition_point(|&(first, _)| first <= start as u64).saturating_sub(1);
        let first = start as u64 + self.chunk_shifts.get(chunk).map_or(0, |&(_, shift)| shift);
        if self.keeps_order {
            positions.for_each(|position| ids.push(first + position));
            return Ok(());
        }
        let visible = start + degrees.visible as usize;
        // In the store, sources ascend. Here the owned ones come first: this number of the others is before an owned one.
        positions.for_each(|position| {
            let at = start + position as usize;
            let place = if at < visible {
                at - start + self.sources.count_below(visible..end, at)
            } else {
                at - visible + self.sources.count_below(start..visible, at)
            };
            ids.push(first + place as u64);
        });
        Ok(())
    }
}
