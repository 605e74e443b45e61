//! Mapped adjacency lists of a partition.
//!
//! A list in a file has its sources ascending, owned or not, but views list owned sources first. So each list is split
//! where the runs of owned nodes begin and end. The parts are called *segments*: first the segments of owned sources, then the
//! others. A position is found by counting through the segments. The borders are found by binary search; short lists
//! are decoded first.
//!
//! ```text
//! owned nodes     10..20 and 50..60
//! list            3  12  15  40  51  70        in-degree 6, visible degree 3
//! segments        1..3  4..5  |  0..1  3..4  5..6
//! order of view   12  15  51  |  3  40  70
//! ```

use std::ops::Range;

use grappa_formats::{NodeId, rows::Row};
use grappa_io::Result;

use crate::{
    partition::Owned,
    view::{
        adjacency::{AdjacencyLists, Degrees, Positions},
        files::{FileHead, FilePlace, Mapped, MappedFiles},
    },
};

/// A list with at most this many sources per run of owned nodes is decoded before it is split.
const DECODED_PER_RUN: u64 = 32;

/// The mapped adjacency lists of owned nodes.
pub(crate) struct MappedPartition<'a> {
    files: MappedFiles<'a>,
    owned: &'a Owned,
    keeps_halo: bool,
}

/// The place of a list, and how it is split.
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

impl<'a> MappedPartition<'a> {
    pub(in crate::view) fn new(mapped: &'a Mapped, owned: &'a Owned, keeps_halo: bool) -> Self {
        Self { files: MappedFiles::new(mapped, owned), owned, keeps_halo }
    }

    /// Splits a list into segments. Returns the number of owned sources.
    fn split(&self, list: &Row<'_>, place: &mut SplitPlace, split: &mut SplitLists) -> u64 {
        let runs = self.owned.runs();
        let degree = list.degree();
        let first = split.segments.len();
        if degree > 0 {
            place.decoded = (degree <= DECODED_PER_RUN * runs.len() as u64).then_some(split.decoded.len());
            let search: &dyn Fn(u64) -> u64 = if let Some(start) = place.decoded {
                list.decode_into(&mut split.decoded);
                let sources = &split.decoded[start..];
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
                    split.segments.push(start..end);
                }
            }
        }
        let owned = split.segments.len();
        // The gaps between the segments of owned sources are the segments of the others.
        let mut before = 0;
        for at in first..owned {
            let segment = split.segments[at].clone();
            if before < segment.start {
                split.segments.push(before..segment.start);
            }
            before = segment.end;
        }
        if before < degree {
            split.segments.push(before..degree);
        }
        place.segments = first..split.segments.len();
        split.segments[first..owned].iter().map(|s| s.end - s.start).sum()
    }
}

impl SplitLists {
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
}

impl AdjacencyLists for MappedPartition<'_> {
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

    fn degrees(&self, place: &mut SplitPlace, split: &mut SplitLists) -> Degrees {
        let Some(list) = self.files.open(&place.file) else {
            return Degrees::HALO;
        };
        place.visible = self.split(&list, place, split);
        Degrees {
            visible: place.visible,
            global: list.degree(),
            listed: if self.keeps_halo { list.degree() } else { place.visible },
            halo: false,
        }
    }

    fn prefetch_sources(&self, _: &SplitPlace, _: Positions<'_>) {
        // `degrees` has split the list, which touched all parts of it.
    }

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
        let mut in_file = std::mem::take(&mut split.positions);
        in_file.clear();
        split.in_file(place, positions, |position| in_file.push(position));
        if let Some(start) = place.decoded {
            let decoded = &split.decoded[start..];
            sources.extend(in_file.iter().map(|&position| NodeId(decoded[position as usize])));
        } else {
            // `get_many` takes ascending positions. They ascend among owned sources and among the others.
            let owned = match positions {
                Positions::First(count) => count.min(place.visible) as usize,
                Positions::Listed(positions) => positions.partition_point(|&position| position < place.visible),
            };
            split.sources.clear();
            list.get_many(&in_file[..owned], &mut split.sources);
            list.get_many(&in_file[owned..], &mut split.sources);
            sources.extend(split.sources.iter().copied().map(NodeId));
        }
        split.positions = in_file;
    }

    fn edge_weights(
        &self,
        place: &SplitPlace,
        split: &SplitLists,
        count: u64,
        edge_weights: &mut Vec<f32>,
    ) -> Result<()> {
        self.files.edge_weights(&place.file, split.first(place, count), edge_weights)
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
        split.in_file(place, positions, |position| ids.push(edges.start + position));
        Ok(())
    }
}
