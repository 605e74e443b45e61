//! The sources of adjacency lists in memory: 32 or 64 bits each.
//!
//! Their width is matched once for each list, so samplers are compiled once for both.

use std::ops::Range;

use bytemuck::{AnyBitPattern, NoUninit};
use grappa_formats::NodeId;
use grappa_io::prefetch::prefetch;

use super::positions::Positions;

/// Sources take 32 bits in graphs of at most this many nodes.
pub(super) const NARROW_NODES_MAX: u64 = 1 << 32;

/// The maximum number of cache lines that are prefetched of a list that is read whole. The hardware prefetcher detects
/// the sequential reads of longer lists.
const PREFETCH_LINES_MAX: usize = 4;

/// The sources of all lists, one list after another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sources<'a> {
    /// All nodes fit 32 bits.
    Narrow(&'a [u32]),
    /// Some do not.
    Wide(&'a [u64]),
}

impl Sources<'_> {
    /// Prefetches the sources at `positions` of the list that starts at `start`.
    #[inline(always)]
    pub(super) fn prefetch(self, start: usize, positions: Positions<'_>) {
        match self {
            Self::Narrow(sources) => prefetch_at(sources, start, positions),
            Self::Wide(sources) => prefetch_at(sources, start, positions),
        }
    }

    /// A list of numbers.
    #[inline(always)]
    pub(super) fn list(self, list: Range<usize>) -> Self {
        match self {
            Self::Narrow(sources) => Self::Narrow(&sources[list]),
            Self::Wide(sources) => Self::Wide(&sources[list]),
        }
    }

    /// The number at an index.
    #[inline(always)]
    pub(super) fn get(self, index: usize) -> u64 {
        match self {
            Self::Narrow(sources) => sources[index].into(),
            Self::Wide(sources) => sources[index],
        }
    }

    /// The number of sources in an ascending part that are below the source at `at`.
    #[inline]
    pub(super) fn count_below(self, part: Range<usize>, at: usize) -> usize {
        match self {
            Self::Narrow(sources) => sources[part].partition_point(|&source| source < sources[at]),
            Self::Wide(sources) => sources[part].partition_point(|&source| source < sources[at]),
        }
    }

    /// Appends the sources at `positions` of a list.
    #[inline(always)]
    pub(super) fn append(self, list: Range<usize>, positions: Positions<'_>, out: &mut Vec<NodeId>) {
        match self {
            Self::Narrow(sources) => append_at(&sources[list], positions, out),
            Self::Wide(sources) => append_at(&sources[list], positions, out),
        }
    }
}

/// A source in memory: `u32` if all nodes fit, otherwise `u64`.
pub(super) trait Source: AnyBitPattern + NoUninit + Send + Sync + Into<u64> {
    fn from_u64(source: u64) -> Self;
}

impl Source for u32 {
    #[inline(always)]
    fn from_u64(source: u64) -> Self {
        source as Self
    }
}

impl Source for u64 {
    #[inline(always)]
    fn from_u64(source: u64) -> Self {
        source
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
        Positions::First(count) => sources.extend(list[..count as usize].iter().map(|&source| NodeId(source.into()))),
        Positions::Listed(positions) => {
            sources.extend(positions.iter().map(|&position| NodeId(list[position as usize].into())));
        }
    }
}
