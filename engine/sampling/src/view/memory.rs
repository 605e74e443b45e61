//! Rows in memory: plain CSR.
//!
//! ```text
//! whole graph   heads    starts: N + 1 numbers, where each row starts and where the last one ends
//! partition     heads    for each owned node: where its row starts; how many of its sources are owned, or, where no
//!                        others are kept, how many sources it has in the graph. And where the last row ends
//! both          sources  4 bytes each, or 8 in graphs of more than 2^32 nodes
//!               weights  4 bytes each, if there are any
//! ```

use std::marker::PhantomData;

use bytemuck::{AnyBitPattern, NoUninit};
use grappa_formats::NodeId;
use grappa_io::{Result, arena::Arena, prefetch::prefetch, progress::Progress};

use super::{
    kept::Kept,
    load::load,
    rows::{Degrees, Positions, Rows},
    stream::OpenEngine,
};
use crate::partition::Owned;

/// How many cache lines of a short row are asked for; of a longer one that is read whole, the processor sees that.
const LINES: usize = 4;

/// A source in memory: `u32` where that is enough, else `u64`.
pub(crate) trait Source: AnyBitPattern + NoUninit + Send + Sync {
    /// From a node.
    fn from_node(node: u64) -> Self;
    /// As a node.
    fn node(self) -> NodeId;
}

impl Source for u32 {
    #[inline(always)]
    fn from_node(node: u64) -> Self {
        node as Self
    }

    #[inline(always)]
    fn node(self) -> NodeId {
        NodeId(self.into())
    }
}

impl Source for u64 {
    #[inline(always)]
    fn from_node(node: u64) -> Self {
        node
    }

    #[inline(always)]
    fn node(self) -> NodeId {
        NodeId(self)
    }
}

/// Rows in memory.
#[derive(Debug)]
pub(super) struct Csr<S> {
    heads: Arena,
    sources: Arena,
    weights: Arena,
    source: PhantomData<S>,
}

impl<S: Source> Csr<S> {
    /// How many bytes the rows take.
    pub(super) fn bytes(kept: &Kept<'_>) -> u64 {
        let weight_bytes = if kept.weights { size_of::<f32>() } else { 0 };
        8 * heads(kept) + (size_of::<S>() + weight_bytes) as u64 * kept.edges()
    }

    /// The rows of a store, read by the engine that `open` gives, and decoded by `threads` threads.
    pub(super) fn load(kept: &Kept<'_>, threads: usize, open: OpenEngine<'_>, progress: &dyn Progress) -> Result<Self> {
        let edges = kept.edges() as usize;
        let mut csr = Self {
            heads: Arena::new(8 * heads(kept) as usize)?,
            sources: Arena::new(size_of::<S>() * edges)?,
            weights: Arena::new(if kept.weights { 4 * edges } else { 0 })?,
            source: PhantomData,
        };
        let heads = csr.heads.values_mut();
        let (end, heads) = heads.split_last_mut().expect("there is always an end");
        *end = edges as u64;
        let (sources, weights) = (csr.sources.values_mut(), csr.weights.values_mut());
        load::<S>(kept, threads, open, progress, heads, sources, weights)?;
        Ok(csr)
    }

    /// The rows, if they are of the whole graph.
    pub(super) fn whole(&self) -> WholeRows<'_, S> {
        WholeRows {
            starts: self.heads.values(),
            sources: self.sources.values(),
            weights: self.weights.values(),
        }
    }

    /// The rows, if they are of a partition.
    pub(super) fn part<'a>(&'a self, owned: &'a Owned, keeps_halo: bool) -> PartRows<'a, S> {
        PartRows {
            owned,
            keeps_halo,
            heads: self.heads.values(),
            sources: self.sources.values(),
            weights: self.weights.values(),
        }
    }
}

/// How many numbers the heads of rows are.
fn heads(kept: &Kept<'_>) -> u64 {
    kept.owned.nodes() * if kept.is_whole() { 1 } else { 2 } + 1
}

/// The rows of all nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeRows<'a, S> {
    starts: &'a [u64],
    sources: &'a [S],
    weights: &'a [f32],
}

/// The rows of owned nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartRows<'a, S> {
    owned: &'a Owned,
    keeps_halo: bool,
    heads: &'a [u64],
    sources: &'a [S],
    weights: &'a [f32],
}

/// Where a row of a whole graph is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholePlace {
    start: usize,
    end: usize,
}

/// Where a row of a partition is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartPlace {
    start: usize,
    end: usize,
    degrees: Degrees,
}

impl<S: Source> Rows for WholeRows<'_, S> {
    type Head = usize;
    type Place = WholePlace;
    type Notes = ();

    #[inline(always)]
    fn clear((): &mut ()) {}

    #[inline(always)]
    fn head(&self, node: NodeId) -> usize {
        let head = node.0 as usize;
        prefetch(self.starts, head);
        // In one of eight cases, it is in the next line.
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

    fn weights(&self, place: &WholePlace, (): &(), count: u64, weights: &mut Vec<f32>) -> Result<()> {
        weights.extend_from_slice(&self.weights[place.start..][..count as usize]);
        Ok(())
    }
}

impl<S: Source> Rows for PartRows<'_, S> {
    type Head = Option<usize>;
    type Place = PartPlace;
    type Notes = ();

    #[inline(always)]
    fn clear((): &mut ()) {}

    #[inline(always)]
    fn head(&self, node: NodeId) -> Option<usize> {
        let head = 2 * self.owned.local(node)?.0 as usize;
        prefetch(self.heads, head);
        prefetch(self.heads, head + 2);
        Some(head)
    }

    #[inline(always)]
    fn locate(&self, head: Option<usize>) -> PartPlace {
        let Some(head) = head else {
            return PartPlace {
                start: 0,
                end: 0,
                degrees: Degrees::HALO,
            };
        };
        let (start, count, end) = (self.heads[head], self.heads[head + 1], self.heads[head + 2]);
        let (visible, global) = if self.keeps_halo {
            (count, end - start)
        } else {
            (end - start, count)
        };
        PartPlace {
            start: start as usize,
            end: end as usize,
            degrees: Degrees {
                visible,
                global,
                halo: false,
            },
        }
    }

    #[inline(always)]
    fn degrees(&self, place: &mut PartPlace, (): &mut ()) -> Degrees {
        place.degrees
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &PartPlace, positions: Positions<'_>) {
        prefetch_at(self.sources, place.start, positions);
    }

    #[inline(always)]
    fn sources_at(&self, place: &PartPlace, (): &mut (), positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        append_at(&self.sources[place.start..place.end], positions, sources);
    }

    fn weights(&self, place: &PartPlace, (): &(), count: u64, weights: &mut Vec<f32>) -> Result<()> {
        weights.extend_from_slice(&self.weights[place.start..][..count as usize]);
        Ok(())
    }
}

/// Asks for sources of the row that starts at `start`.
#[inline(always)]
fn prefetch_at<S>(sources: &[S], start: usize, positions: Positions<'_>) {
    match positions {
        Positions::First(0) => {}
        Positions::First(count) => {
            let in_line = 64 / size_of::<S>();
            for at in (0..count as usize).step_by(in_line).take(LINES) {
                prefetch(sources, start + at);
            }
            prefetch(sources, start + count as usize - 1);
        }
        Positions::These(positions) => {
            for &position in positions {
                prefetch(sources, start + position as usize);
            }
        }
    }
}

/// Appends sources of a row.
#[inline(always)]
fn append_at<S: Source>(row: &[S], positions: Positions<'_>, sources: &mut Vec<NodeId>) {
    match positions {
        Positions::First(count) => sources.extend(row[..count as usize].iter().map(|&source| source.node())),
        Positions::These(positions) => {
            sources.extend(positions.iter().map(|&position| row[position as usize].node()));
        }
    }
}
