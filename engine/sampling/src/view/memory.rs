//! Adjacency lists in memory: plain CSR.
//!
//! ```text
//! whole graph   heads         N + 1 numbers: where each list starts, and where the last one ends
//! partition     heads         two numbers per owned node, and where the last list ends: where its list starts, and
//!                             the number of its owned sources. If only owned sources are included, the second number
//!                             is its in-degree in the graph
//! both          sources       4 bytes each, or 8 in graphs of more than 2^32 nodes
//!               edge weights  4 bytes each, if there are any
//! ```

use std::{marker::PhantomData, sync::Arc};

use bytemuck::{AnyBitPattern, NoUninit};
use grappa_formats::NodeId;
use grappa_io::{Result, prefetch::prefetch, progress::Progress};

use super::{
    adjacency::{AdjacencyLists, Degrees, Positions},
    edge_filter::EdgeFilter,
    load::load,
    spare::{ReturnedArena, SpareArenas},
    stream::OpenEngine,
};
use crate::partition::Owned;

/// The maximum number of cache lines that are prefetched of a list that is read whole. The hardware prefetcher detects
/// the sequential reads of longer lists.
const PREFETCH_LINES_MAX: usize = 4;

/// A source in memory: `u32` if all nodes fit, otherwise `u64`.
pub(crate) trait Source: AnyBitPattern + NoUninit + Send + Sync {
    /// Stores a node.
    fn from_node(node: NodeId) -> Self;
    /// The stored node.
    fn node(self) -> NodeId;
}

impl Source for u32 {
    #[inline(always)]
    fn from_node(node: NodeId) -> Self {
        node.0 as Self
    }

    #[inline(always)]
    fn node(self) -> NodeId {
        NodeId(self.into())
    }
}

impl Source for u64 {
    #[inline(always)]
    fn from_node(node: NodeId) -> Self {
        node.0
    }

    #[inline(always)]
    fn node(self) -> NodeId {
        NodeId(self)
    }
}

/// Adjacency lists in memory.
#[derive(Debug)]
pub(super) struct Csr<S> {
    heads: ReturnedArena,
    sources: ReturnedArena,
    edge_weights: ReturnedArena,
    source: PhantomData<S>,
}

impl<S: Source> Csr<S> {
    /// The number of bytes that the lists take.
    pub(super) fn bytes(filter: &EdgeFilter<'_>) -> u64 {
        let weight_bytes = if filter.edge_weights { size_of::<f32>() } else { 0 };
        8 * head_numbers(filter) + (size_of::<S>() + weight_bytes) as u64 * filter.edges()
    }

    /// Loads the lists. The engine that `open` returns reads them, and `threads` threads decode them. Takes memory from `spare`, and
    /// returns it there in the end.
    pub(super) fn load(
        filter: &EdgeFilter<'_>,
        threads: usize,
        open: OpenEngine<'_>,
        spare: Option<&Arc<SpareArenas>>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let edges = filter.edges() as usize;
        let mut csr = Self {
            heads: ReturnedArena::new(8 * head_numbers(filter) as usize, spare)?,
            sources: ReturnedArena::new(size_of::<S>() * edges, spare)?,
            edge_weights: ReturnedArena::new(if filter.edge_weights { 4 * edges } else { 0 }, spare)?,
            source: PhantomData,
        };
        let heads = csr.heads.values_mut();
        let (end, heads) = heads.split_last_mut().expect("heads include the end of the last list");
        *end = edges as u64;
        let (sources, edge_weights) = (csr.sources.values_mut(), csr.edge_weights.values_mut());
        load::<S>(filter, threads, open, progress, heads, sources, edge_weights)?;
        Ok(csr)
    }

    /// The lists of a whole graph. They must have been loaded for one.
    pub(super) fn whole(&self) -> WholeCsr<'_, S> {
        WholeCsr {
            starts: self.heads.values(),
            sources: self.sources.values(),
            edge_weights: self.edge_weights.values(),
        }
    }

    /// The lists of a partition. They must have been loaded for one.
    pub(super) fn partition<'a>(&'a self, owned: &'a Owned, keeps_halo: bool) -> PartitionCsr<'a, S> {
        PartitionCsr {
            owned,
            keeps_halo,
            heads: self.heads.values(),
            sources: self.sources.values(),
            edge_weights: self.edge_weights.values(),
        }
    }
}

/// The number of entries of [`Csr::heads`].
fn head_numbers(filter: &EdgeFilter<'_>) -> u64 {
    filter.owned.nodes() * if filter.is_whole() { 1 } else { 2 } + 1
}

/// The adjacency lists of all nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeCsr<'a, S> {
    starts: &'a [u64],
    sources: &'a [S],
    edge_weights: &'a [f32],
}

/// The adjacency lists of owned nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionCsr<'a, S> {
    owned: &'a Owned,
    keeps_halo: bool,
    heads: &'a [u64],
    sources: &'a [S],
    edge_weights: &'a [f32],
}

/// The place of a list of [`WholeCsr`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholePlace {
    start: usize,
    end: usize,
}

/// The place of a list of [`PartitionCsr`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionPlace {
    start: usize,
    end: usize,
    degrees: Degrees,
}

impl<S: Source> AdjacencyLists for WholeCsr<'_, S> {
    type Head = usize;
    type Place = WholePlace;
    type GroupState = ();

    #[inline(always)]
    fn clear((): &mut ()) {}

    #[inline(always)]
    fn head(&self, node: NodeId) -> usize {
        let head = node.0 as usize;
        prefetch(self.starts, head);
        // The end is the next number. One in eight is in the next cache line.
        prefetch(self.starts, head + 1);
        head
    }

    #[inline(always)]
    fn locate(&self, head: usize) -> WholePlace {
        WholePlace {
            start: self.starts[head] as usize,
            end: self.starts[head + 1] as usize,
        }
    }

    #[inline(always)]
    fn degrees(&self, place: &mut WholePlace, (): &mut ()) -> Degrees {
        let degree = (place.end - place.start) as u64;
        Degrees {
            visible: degree,
            global: degree,
            listed: degree,
            halo: false,
        }
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &WholePlace, positions: Positions<'_>) {
        prefetch_at(self.sources, place.start, positions);
    }

    #[inline(always)]
    fn sources_at(&self, place: &WholePlace, (): &mut (), positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        append_at(&self.sources[place.start..place.end], positions, sources);
    }

    fn edge_weights(&self, place: &WholePlace, (): &(), count: u64, edge_weights: &mut Vec<f32>) -> Result<()> {
        edge_weights.extend_from_slice(&self.edge_weights[place.start..][..count as usize]);
        Ok(())
    }
}

impl<S: Source> AdjacencyLists for PartitionCsr<'_, S> {
    type Head = Option<usize>;
    type Place = PartitionPlace;
    type GroupState = ();

    #[inline(always)]
    fn clear((): &mut ()) {}

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
            return PartitionPlace {
                start: 0,
                end: 0,
                degrees: Degrees::HALO,
            };
        };
        let (start, count, end) = (self.heads[head], self.heads[head + 1], self.heads[head + 2]);
        // The length of the list is one of the two degrees. The stored number is the other.
        let (visible, global) = if self.keeps_halo {
            (count, end - start)
        } else {
            (end - start, count)
        };
        PartitionPlace {
            start: start as usize,
            end: end as usize,
            degrees: Degrees {
                visible,
                global,
                listed: end - start,
                halo: false,
            },
        }
    }

    #[inline(always)]
    fn degrees(&self, place: &mut PartitionPlace, (): &mut ()) -> Degrees {
        place.degrees
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &PartitionPlace, positions: Positions<'_>) {
        prefetch_at(self.sources, place.start, positions);
    }

    #[inline(always)]
    fn sources_at(&self, place: &PartitionPlace, (): &mut (), positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        append_at(&self.sources[place.start..place.end], positions, sources);
    }

    fn edge_weights(&self, place: &PartitionPlace, (): &(), count: u64, edge_weights: &mut Vec<f32>) -> Result<()> {
        edge_weights.extend_from_slice(&self.edge_weights[place.start..][..count as usize]);
        Ok(())
    }
}

/// Prefetches the sources at `positions` of the list that starts at `start`.
#[inline(always)]
fn prefetch_at<S>(sources: &[S], start: usize, positions: Positions<'_>) {
    match positions {
        Positions::First(0) => {}
        Positions::First(count) => {
            let in_line = 64 / size_of::<S>();
            for at in (0..count as usize).step_by(in_line).take(PREFETCH_LINES_MAX) {
                prefetch(sources, start + at);
            }
            // Lists do not start at cache lines, so the last source may be in one line more.
            prefetch(sources, start + count as usize - 1);
        }
        Positions::Listed(positions) => {
            for &position in positions {
                prefetch(sources, start + position as usize);
            }
        }
    }
}

/// Appends the sources at `positions` of a list.
#[inline(always)]
fn append_at<S: Source>(list: &[S], positions: Positions<'_>, sources: &mut Vec<NodeId>) {
    match positions {
        Positions::First(count) => sources.extend(list[..count as usize].iter().map(|&source| source.node())),
        Positions::Listed(positions) => {
            sources.extend(positions.iter().map(|&position| list[position as usize].node()));
        }
    }
}
