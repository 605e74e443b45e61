//! Adjacency lists in mapped files of a store, decoded when they are sampled.
//!
//! Sampled lists come from the page cache, or a page fault reads them. Touched pages count as memory of the process.
//! When they may exceed the view's budget, all of them are released; later page faults find those that the page cache
//! still has. If the budget is much smaller than the files, most cache lines then cost a page fault.
//!
//! [`files`](super::files) has the mappings: it locates lists, prefetches them and checks their blocks.
//!
//! # Partitions
//! A list in a file has its sources ascending, owned or not, but views list owned sources first. So in a partition, each
//! list is split where the runs of owned nodes begin and end. The parts are called *segments*: first the segments of owned
//! sources, then the others. A position is found by counting through the segments. The borders are found by binary
//! search; short lists are decoded first. In the whole graph, positions in the file are positions in the list.
//!
//! ```text
//! owned nodes     10..20 and 50..60
//! list            3  12  15  40  51  70        in-degree 6, visible degree 3
//! segments        1..3  4..5  |  0..1  3..4  5..6
//! order of view   12  15  51  |  3  40  70
//! ```
//!
//! # Cost
//! Mapped lists cost three times as much as lists in memory. In R-MAT 22 with edge factor 16, fanouts 15,10,5 and
//! everything in the page cache, an edge takes 50 ns of one core at 4.1 GHz, against 15.5 ns from memory. Drawing and
//! relabelling take 11.5 ns of both. The rest is:
//!
//! - Waiting for memory, a little more than in memory: one line of the directory per destination, and often one of its
//!   exceptions; one line of upper bits and one of low bits per source. Sources share some of these lines. That is 1.3
//!   lines per edge instead of 1.2, on small pages; with all files on huge pages it takes 5 ns less. Lines are
//!   prefetched in stages (see [`AdjacencyLists`](super::adjacency::AdjacencyLists)). One in eight 8-byte loads
//!   straddles two lines, so both ends are prefetched.
//! - Instructions: 280 per destination (of 5.1 edges) to add up the sizes of the lists before it in its directory line;
//!   45 per edge to prefetch lines; and to find a source, 90 in a list of up to 250 upper bits and 190 in longer ones,
//!   each waiting for the one before. In the L1 cache this alone takes 4 + 3.5 + 7 to 14 ns.
//!
//! So mapped lists cannot be as fast as lists in memory. At 70 % of that speed, 10.5 ns (43 cycles) per edge would
//! remain for these 200 to 290 instructions. Selecting a bit with one instruction (PDEP) saves 2 to 4 ns, but takes
//! hundreds of cycles on processors before Zen 3. Counting the set bits of a line with one instruction needs AVX-512.
//!
//! A cache of decoded lists does not pay either. Lists with many sources are drawn from more often, but only in
//! proportion: those with at least 512 sources have 43 % of the edges and get 32 % of the draws. To reach 70 % of the
//! speed, 80 % of all lists would have to be cached. With that much memory,
//! [`ViewKind::Memory`](super::ViewKind::Memory) is possible.

use std::{iter, ops::Range};

use grappa_formats::{NodeId, rows::Row};
use grappa_io::Result;

use super::{
    adjacency::{AdjacencyLists, Degrees, Positions},
    files::{FileHead, FilePlace, Mapped, MappedFiles},
};
use crate::partition::Owned;

/// A list with at most this many sources per run of owned nodes is decoded before it is split.
const DECODED_PER_RUN: u64 = 32;

/// The mapped adjacency lists of owned nodes.
pub(crate) struct MappedLists<'a> {
    files: MappedFiles<'a>,
    /// The owned sources, by which lists are split; none if all nodes are owned.
    split_by: Option<&'a Owned>,
    keeps_halo: bool,
}

/// The place of a list, and how it is split if it is.
#[derive(Debug, Clone)]
pub(crate) struct SplitPlace {
    file: FilePlace,
    /// The number of owned sources.
    visible: u64,
    /// Its part of [`SplitLists::segments`].
    segments: Range<usize>,
    /// Where its sources start in [`SplitLists::decoded`], if it was decoded.
    decoded: Option<usize>,
}

/// How the lists of a group are split, and buffers.
#[derive(Debug, Default)]
pub(crate) struct SplitLists {
    /// The segments of each list, in the order of views, as ranges of positions in the file.
    segments: Vec<Range<u64>>,
    /// The sources of decoded lists.
    decoded: Vec<u64>,
    positions: Vec<u64>,
    sources: Vec<u64>,
}

impl<'a> MappedLists<'a> {
    pub(super) fn new(mapped: &'a Mapped, owned: &'a Owned, split_by: Option<&'a Owned>, keeps_halo: bool) -> Self {
        Self { files: MappedFiles::new(mapped, owned), split_by, keeps_halo }
    }
}

impl SplitLists {
    /// Splits a list into segments. Returns the number of owned sources.
    #[inline(never)]
    fn split(&mut self, list: &Row<'_>, owned: &Owned, place: &mut SplitPlace) -> u64 {
        let runs = owned.runs();
        let degree = list.degree();
        let first = self.segments.len();
        if degree > 0 {
            place.decoded = (degree <= DECODED_PER_RUN * runs.len() as u64).then_some(self.decoded.len());
            let search: &dyn Fn(u64) -> u64 = if let Some(start) = place.decoded {
                list.decode_into(&mut self.decoded);
                let sources = &self.decoded[start..];
                &move |node| sources.partition_point(|&source| source < node) as u64
            } else {
                &|node| list.lower_bound(node)
            };
            // The sources of a damaged list may not ascend, so the searches may disagree. The clamps keep segments in
            // order and in range.
            let mut end = 0;
            for run in runs {
                let start = search(run.start).clamp(end, degree);
                end = search(run.end).clamp(start, degree);
                if start < end {
                    self.segments.push(start..end);
                }
            }
        }
        let owned = self.segments.len();
        // The gaps between the segments of owned sources are the segments of the others.
        let mut before = 0;
        for at in first..owned {
            let segment = self.segments[at].clone();
            if before < segment.start {
                self.segments.push(before..segment.start);
            }
            before = segment.end;
        }
        if before < degree {
            self.segments.push(before..degree);
        }
        place.segments = first..self.segments.len();
        self.segments[first..owned].iter().map(|s| s.end - s.start).sum()
    }

    /// The positions in the file of the first `count` sources of a list.
    fn first(&self, place: &SplitPlace, mut count: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        self.segments[place.segments.clone()].iter().map(move |segment| {
            let included = count.min(segment.end - segment.start);
            count -= included;
            segment.start..segment.start + included
        })
    }

    /// Calls `each` with the position in the file of each of some positions.
    fn in_file(&self, place: &SplitPlace, positions: Positions<'_>, each: impl FnMut(u64)) {
        match positions {
            Positions::First(count) => self.first(place, count).flatten().for_each(each),
            Positions::Listed(positions) => {
                // Positions ascend, so one pass over the segments finds all of them. `before` is the number of sources
                // in earlier segments.
                let mut segments = self.segments[place.segments.clone()].iter();
                let (mut segment, mut before) = (0..0, 0);
                positions
                    .iter()
                    .map(|&position| {
                        while position - before >= segment.end - segment.start {
                            before += segment.end - segment.start;
                            segment = segments.next().expect("positions are below the in-degree").clone();
                        }
                        segment.start + position - before
                    })
                    .for_each(each);
            }
        }
    }

    /// Appends the sources at `positions` of a list.
    #[inline(never)]
    fn sources_at(&mut self, list: &Row<'_>, place: &SplitPlace, positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        let mut in_file = std::mem::take(&mut self.positions);
        in_file.clear();
        self.in_file(place, positions, |position| in_file.push(position));
        if let Some(start) = place.decoded {
            let decoded = &self.decoded[start..];
            sources.extend(in_file.iter().map(|&position| NodeId(decoded[position as usize])));
        } else {
            // `get_many` takes ascending positions. They ascend among owned sources and among the others.
            let owned = match positions {
                Positions::First(count) => count.min(place.visible) as usize,
                Positions::Listed(positions) => positions.partition_point(|&position| position < place.visible),
            };
            self.sources.clear();
            list.get_many(&in_file[..owned], &mut self.sources);
            list.get_many(&in_file[owned..], &mut self.sources);
            sources.extend(self.sources.iter().copied().map(NodeId));
        }
        self.positions = in_file;
    }
}

impl AdjacencyLists for MappedLists<'_> {
    type Head = FileHead;
    type Place = SplitPlace;
    type GroupState = SplitLists;

    #[inline(always)]
    fn files(&self) -> Option<&MappedFiles<'_>> {
        Some(&self.files)
    }

    fn read_ahead_list(&self, place: &SplitPlace) {
        self.files.read_ahead_list(&place.file);
    }

    fn clear(split: &mut SplitLists) {
        split.segments.clear();
        split.decoded.clear();
    }

    #[inline(always)]
    fn head(&self, node: NodeId) -> FileHead {
        self.files.head(node)
    }

    #[inline(always)]
    fn prefetch_head(&self, head: FileHead) {
        self.files.prefetch_head(head);
    }

    #[inline(always)]
    fn locate(&self, head: FileHead) -> SplitPlace {
        SplitPlace { file: self.files.locate(head), visible: 0, segments: 0..0, decoded: None }
    }

    #[inline(always)]
    fn prefetch_list(&self, place: &SplitPlace) {
        self.files.prefetch_list(&place.file);
    }

    #[inline(always)]
    fn degrees(&self, place: &mut SplitPlace, split: &mut SplitLists) -> Degrees {
        let Some(list) = self.files.open(&place.file) else {
            return Degrees::HALO;
        };
        let global = list.degree();
        place.visible = self.split_by.map_or(global, |owned| split.split(&list, owned, place));
        let listed = if self.keeps_halo { global } else { place.visible };
        Degrees { visible: place.visible, global, listed, halo: false }
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &SplitPlace, positions: Positions<'_>) {
        // To split a list, `degrees` has touched all parts of it.
        if let (Positions::Listed(positions), None) = (positions, self.split_by) {
            self.files.prefetch_sources(&place.file, positions);
        }
    }

    #[inline(always)]
    fn sources_at(
        &self,
        place: &SplitPlace,
        split: &mut SplitLists,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    ) {
        let Some(list) = self.files.open(&place.file) else {
            return;
        };
        match positions {
            _ if self.split_by.is_some() => split.sources_at(&list, place, positions, sources),
            // Samplers ask for the first positions only if they take the whole list.
            Positions::First(_) => {
                split.sources.clear();
                list.decode_into(&mut split.sources);
                sources.extend(split.sources.iter().copied().map(NodeId));
            }
            Positions::Listed(positions) => list.get_many_as(positions, sources, NodeId),
        }
    }

    fn edge_weights(
        &self,
        place: &SplitPlace,
        split: &SplitLists,
        count: u64,
        edge_weights: &mut Vec<f32>,
    ) -> Result<()> {
        match self.split_by {
            Some(_) => self.files.edge_weights(&place.file, split.first(place, count), edge_weights),
            None => self.files.edge_weights(&place.file, iter::once(0..count), edge_weights),
        }
    }

    fn edge_ids(
        &self,
        place: &SplitPlace,
        split: &SplitLists,
        positions: Positions<'_>,
        ids: &mut Vec<u64>,
    ) -> Result<()> {
        let Some(edges) = self.files.edge_ids(&place.file)? else {
            return Ok(());
        };
        let push = |position| ids.push(edges.start + position);
        match self.split_by {
            Some(_) => split.in_file(place, positions, push),
            None => positions.for_each(push),
        }
        Ok(())
    }
}
