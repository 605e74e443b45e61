//! Rows in memory: plain CSR.

use std::marker::PhantomData;

use bytemuck::{AnyBitPattern, NoUninit};
use grappa_formats::NodeId;

use super::{
    load::load,
    rows::{Degrees, Positions, Rows},
};
use crate::{
    Result,
    io::{arena::Arena, prefetch::prefetch},
    store::Store,
};

/// How many cache lines of a short row are asked for; of a longer one that is read whole, the processor sees that.
const LINES: usize = 4;

/// A source in memory: `u32` where that is enough, else `u64`.
pub(super) trait Source: AnyBitPattern + NoUninit + Send + Sync {
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

/// The rows of all nodes.
#[derive(Debug)]
pub(super) struct Csr<S> {
    /// Where each row starts, and where the last one ends.
    starts: Arena,
    /// The sources of all rows.
    sources: Arena,
    source: PhantomData<S>,
}

impl<S: Source> Csr<S> {
    /// The rows of a store, decoded by `threads` threads.
    pub(super) fn load(store: &Store, threads: usize) -> Result<Self> {
        let (nodes, edges) = (store.manifest().nodes, store.manifest().edges);
        let mut starts = Arena::new(8 * (nodes as usize + 1))?;
        let mut sources = Arena::new(size_of::<S>() * edges as usize)?;
        let (last, rows) = starts
            .values_mut()
            .split_last_mut()
            .expect("there is one more than nodes");
        load::<S>(store, threads, rows, sources.values_mut())?;
        *last = edges;
        Ok(Self {
            starts,
            sources,
            source: PhantomData,
        })
    }

    /// To read from.
    pub(super) fn rows(&self) -> CsrRows<'_, S> {
        CsrRows {
            starts: self.starts.values(),
            sources: self.sources.values(),
        }
    }
}

/// The rows of all nodes, to read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CsrRows<'a, S> {
    starts: &'a [u64],
    sources: &'a [S],
}

/// Where a row is in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CsrPlace {
    start: usize,
    end: usize,
}

impl<S: Source> Rows for CsrRows<'_, S> {
    type Place = CsrPlace;

    #[inline(always)]
    fn prefetch_head(&self, node: NodeId) {
        prefetch(self.starts, node.0 as usize);
        // In one of eight cases, it is in the next line.
        prefetch(self.starts, node.0 as usize + 1);
    }

    #[inline(always)]
    fn locate(&self, node: NodeId) -> CsrPlace {
        CsrPlace {
            start: self.starts[node.0 as usize] as usize,
            end: self.starts[node.0 as usize + 1] as usize,
        }
    }

    #[inline(always)]
    fn prefetch_row(&self, _: &CsrPlace) {}

    #[inline(always)]
    fn degrees(&self, place: &mut CsrPlace) -> Degrees {
        let degree = (place.end - place.start) as u64;
        Degrees {
            visible: degree,
            global: degree,
            halo: false,
        }
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &CsrPlace, positions: Positions<'_>) {
        match positions {
            Positions::First(0) => {}
            Positions::First(count) => {
                let in_line = 64 / size_of::<S>();
                for at in (0..count as usize).step_by(in_line).take(LINES) {
                    prefetch(self.sources, place.start + at);
                }
                prefetch(self.sources, place.start + count as usize - 1);
            }
            Positions::These(positions) => {
                for &position in positions {
                    prefetch(self.sources, place.start + position as usize);
                }
            }
        }
    }

    #[inline(always)]
    fn sources_at(&self, place: &CsrPlace, positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        let row = &self.sources[place.start..place.end];
        match positions {
            Positions::First(count) => sources.extend(row[..count as usize].iter().map(|&source| source.node())),
            Positions::These(positions) => {
                sources.extend(positions.iter().map(|&position| row[position as usize].node()));
            }
        }
    }
}
