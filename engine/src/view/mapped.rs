//! Rows through the mappings of a store's files, decoded as they are sampled.
//!
//! What is sampled is in the page cache, or is read by a page fault: memory of its own the view has none to speak of.
//!
//! # Sources that are not owned
//! A row of a file has its sources ascending, owned or not. The order of views puts the owned ones first: so a row is cut
//! where the runs of owned nodes begin and end, and the pieces are called *segments*, those of owned sources and then the
//! others. A position is found by counting through the segments. Where a row is cut is found by searching; in a short row,
//! which is decoded first.

use std::{iter, ops::Range, path::PathBuf};

use grappa_formats::{
    ChunkId, NodeId,
    chunks::ChunkMap,
    rows::{Row, RowPlace, Rows as FileRows},
    weights::Weights,
};

use super::{
    kept::Kept,
    rows::{Degrees, Positions, Rows},
};
use crate::{
    Error, Result,
    io::prefetch::prefetch,
    partition::Owned,
    store::{Chunk, files},
};

/// Rows of no more bytes than this are asked for whole, as soon as they are found.
const WHOLE_BYTES: u64 = 256;
/// Rows with no more sources than so many for each run of owned nodes are decoded to be cut.
const DECODED_PER_RUN: u64 = 32;
const LINE_BYTES: usize = 64;

/// The mapped chunks of a view.
#[derive(Debug)]
pub(super) struct Mapped {
    store: PathBuf,
    /// Of each chunk of the store, its files; none if it is not owned.
    chunks: Vec<Option<Chunk>>,
}

impl Mapped {
    /// Maps the chunks that are owned.
    pub(super) fn open(kept: &Kept<'_>) -> Result<Self> {
        let open = |chunk| kept.owned.owns(chunk).then(|| kept.store.chunk(chunk)).transpose();
        let chunks = (0..kept.store.chunks().chunks()).map(ChunkId).map(open);
        Ok(Self {
            store: kept.store.path().to_owned(),
            chunks: chunks.collect::<Result<_>>()?,
        })
    }

    /// The rows, if they are of the whole graph.
    pub(super) fn whole<'a>(&'a self, owned: &'a Owned) -> MappedWhole<'a> {
        MappedWhole(self.files(owned))
    }

    /// The rows, if they are of a partition.
    pub(super) fn part<'a>(&'a self, owned: &'a Owned) -> MappedPart<'a> {
        MappedPart {
            files: self.files(owned),
            owned,
        }
    }

    fn files<'a>(&'a self, owned: &'a Owned) -> Files<'a> {
        let of_chunk = |chunk: &'a Chunk| ChunkFiles {
            first: chunk.span().first_node.0,
            rows: chunk.rows(),
            weights: chunk.weights(),
        };
        Files {
            mapped: self,
            map: owned.chunk_map(),
            chunks: self.chunks.iter().map(|chunk| chunk.as_ref().map(of_chunk)).collect(),
        }
    }
}

/// The files of all chunks, ready to be read.
struct Files<'a> {
    mapped: &'a Mapped,
    map: &'a ChunkMap,
    chunks: Vec<Option<ChunkFiles<'a>>>,
}

struct ChunkFiles<'a> {
    first: u64,
    rows: FileRows<'a>,
    weights: Option<Weights<'a>>,
}

/// Where to look for a row: the chunk and the row in it.
type Head = Option<(u32, u64)>;

/// Where a row is.
pub(crate) struct MappedPlace<'a> {
    chunk: u32,
    /// None if it is not owned.
    found: Option<RowPlace>,
    /// Known once its degrees were asked for.
    row: Option<Row<'a>>,
    /// How many of its sources are owned.
    visible: u64,
    /// Its segments, among those that are noted.
    segments: Range<usize>,
    /// Where its sources start among those that are noted, if it was decoded.
    decoded: Option<usize>,
}

impl<'a> Files<'a> {
    #[inline(always)]
    fn head(&self, node: NodeId) -> Head {
        let chunk = self.map.chunk_of(node).0;
        let files = self.chunks[chunk as usize].as_ref()?;
        let row = node.0 - files.first;
        prefetch(files.rows.degrees_payload(), files.rows.directory_line(row).start);
        Some((chunk, row))
    }

    #[inline(always)]
    fn of(&self, chunk: u32) -> &ChunkFiles<'a> {
        self.chunks[chunk as usize]
            .as_ref()
            .expect("the chunk of a row that was found")
    }

    #[inline(always)]
    fn locate(&self, head: Head) -> MappedPlace<'a> {
        let found = head.map(|(chunk, row)| {
            let rows = &self.of(chunk).rows;
            let found = rows.locate(row);
            let extent = found.extent();
            prefetch(rows.edges_payload(), extent.start as usize);
            if extent.end - extent.start <= WHOLE_BYTES {
                for byte in (extent.start as usize..extent.end as usize).step_by(LINE_BYTES).skip(1) {
                    prefetch(rows.edges_payload(), byte);
                }
                prefetch(rows.edges_payload(), extent.end.saturating_sub(1) as usize);
            }
            found
        });
        MappedPlace {
            chunk: head.map_or(0, |(chunk, _)| chunk),
            found,
            row: None,
            visible: 0,
            segments: 0..0,
            decoded: None,
        }
    }

    /// Opens a row; none if it is not owned.
    #[inline(always)]
    fn open(&self, place: &mut MappedPlace<'a>) -> Option<Row<'a>> {
        let found = place.found?;
        place.row = Some(self.of(place.chunk).rows.row_at(&found));
        place.row
    }

    #[inline(always)]
    fn prefetch(&self, place: &MappedPlace<'a>, position: u64) {
        if let Some(row) = &place.row {
            let payload = self.of(place.chunk).rows.edges_payload();
            for byte in row.touches(position) {
                prefetch(payload, byte as usize);
            }
        }
    }

    /// Appends the weights of edges of a row, by their positions in the file.
    fn weights(
        &self,
        place: &MappedPlace<'a>,
        edges: impl Iterator<Item = Range<u64>>,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let Some(found) = &place.found else {
            return Ok(());
        };
        let files = self.of(place.chunk);
        let weights = files.weights.as_ref().expect("the view has weights");
        let all = weights.range(found.row(), |row| files.rows.degree(row)).map_err(|e| {
            let file = files::of_chunk(ChunkId(place.chunk), "weights");
            Error::format(self.mapped.store.join(file))(e)
        })?;
        for edges in edges {
            let start = out.len();
            out.resize(start + (edges.end - edges.start) as usize, 0.0);
            weights.copy(all.start + edges.start..all.start + edges.end, &mut out[start..]);
        }
        Ok(())
    }
}

/// The mapped rows of all nodes.
pub(crate) struct MappedWhole<'a>(Files<'a>);

impl<'a> Rows for MappedWhole<'a> {
    type Head = Head;
    type Place = MappedPlace<'a>;
    type Notes = Vec<u64>;

    #[inline(always)]
    fn clear(_: &mut Vec<u64>) {}

    #[inline(always)]
    fn head(&self, node: NodeId) -> Head {
        self.0.head(node)
    }

    #[inline(always)]
    fn locate(&self, head: Head) -> MappedPlace<'a> {
        self.0.locate(head)
    }

    #[inline(always)]
    fn degrees(&self, place: &mut MappedPlace<'a>, _: &mut Vec<u64>) -> Degrees {
        let degree = self.0.open(place).map_or(0, |row| row.degree());
        Degrees {
            visible: degree,
            global: degree,
            halo: false,
        }
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &MappedPlace<'a>, positions: Positions<'_>) {
        if let Positions::These(positions) = positions
            && place.is_long()
        {
            positions.iter().for_each(|&position| self.0.prefetch(place, position));
        }
    }

    #[inline(always)]
    fn sources_at(
        &self,
        place: &MappedPlace<'a>,
        buffer: &mut Vec<u64>,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    ) {
        let Some(row) = &place.row else { return };
        buffer.clear();
        match positions {
            Positions::First(_) => row.decode_into(buffer),
            Positions::These(positions) => row.get_many(positions, buffer),
        }
        sources.extend(buffer.iter().copied().map(NodeId));
    }

    fn weights(&self, place: &MappedPlace<'a>, _: &Vec<u64>, count: u64, weights: &mut Vec<f32>) -> Result<()> {
        self.0.weights(place, iter::once(0..count), weights)
    }
}

impl MappedPlace<'_> {
    /// Whether the row was not asked for whole when it was found.
    fn is_long(&self) -> bool {
        self.found.is_some_and(|found| {
            let extent = found.extent();
            extent.end - extent.start > WHOLE_BYTES
        })
    }
}

/// The mapped rows of owned nodes.
pub(crate) struct MappedPart<'a> {
    files: Files<'a>,
    owned: &'a Owned,
}

/// What is kept of the rows of a group, and room to read them.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    /// Where owned and other sources are in rows: ranges of positions in the file, for each row in the order of views.
    segments: Vec<Range<u64>>,
    /// The sources of rows that were decoded.
    decoded: Vec<u64>,
    positions: Vec<u64>,
    sources: Vec<u64>,
}

impl MappedPart<'_> {
    /// Cuts a row into segments. Returns how many sources are in those that are owned.
    fn cut(&self, row: &Row<'_>, place: &mut MappedPlace<'_>, cuts: &mut Cuts) -> u64 {
        let runs = self.owned.runs();
        let degree = row.degree();
        let first = cuts.segments.len();
        if degree > 0 {
            place.decoded = (degree <= DECODED_PER_RUN * runs.len() as u64).then_some(cuts.decoded.len());
            let search: &dyn Fn(u64) -> u64 = if let Some(start) = place.decoded {
                row.decode_into(&mut cuts.decoded);
                let sources = &cuts.decoded[start..];
                &move |node| sources.partition_point(|&source| source < node) as u64
            } else {
                &|node| row.lower_bound(node)
            };
            // Of a damaged row, whose sources need not ascend, segments must follow each other all the same.
            let mut end = 0;
            for run in runs {
                let start = search(run.start).clamp(end, degree);
                end = search(run.end).clamp(start, degree);
                if start < end {
                    cuts.segments.push(start..end);
                }
            }
        }
        let owned = cuts.segments.len();
        let mut before = 0;
        for at in first..owned {
            let segment = cuts.segments[at].clone();
            if before < segment.start {
                cuts.segments.push(before..segment.start);
            }
            before = segment.end;
        }
        if before < degree {
            cuts.segments.push(before..degree);
        }
        place.segments = first..cuts.segments.len();
        cuts.segments[first..owned].iter().map(|s| s.end - s.start).sum()
    }
}

impl Cuts {
    /// Positions in the file of the first `count` sources of a row.
    fn first(&self, place: &MappedPlace<'_>, mut count: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        self.segments[place.segments.clone()].iter().map(move |segment| {
            let taken = count.min(segment.end - segment.start);
            count -= taken;
            segment.start..segment.start + taken
        })
    }
}

impl<'a> Rows for MappedPart<'a> {
    type Head = Head;
    type Place = MappedPlace<'a>;
    type Notes = Cuts;

    fn clear(cuts: &mut Cuts) {
        cuts.segments.clear();
        cuts.decoded.clear();
    }

    #[inline(always)]
    fn head(&self, node: NodeId) -> Head {
        self.files.head(node)
    }

    #[inline(always)]
    fn locate(&self, head: Head) -> MappedPlace<'a> {
        self.files.locate(head)
    }

    fn degrees(&self, place: &mut MappedPlace<'a>, cuts: &mut Cuts) -> Degrees {
        let Some(row) = self.files.open(place) else {
            return Degrees::HALO;
        };
        place.visible = self.cut(&row, place, cuts);
        Degrees {
            visible: place.visible,
            global: row.degree(),
            halo: false,
        }
    }

    fn prefetch_sources(&self, _: &MappedPlace<'a>, _: Positions<'_>) {
        // Cutting a row touched it all over.
    }

    fn sources_at(
        &self,
        place: &MappedPlace<'a>,
        cuts: &mut Cuts,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    ) {
        let Some(row) = &place.row else { return };
        let mut in_file = std::mem::take(&mut cuts.positions);
        in_file.clear();
        match positions {
            Positions::First(count) => in_file.extend(cuts.first(place, count).flatten()),
            Positions::These(positions) => {
                let mut segments = cuts.segments[place.segments.clone()].iter();
                let (mut segment, mut before) = (0..0, 0);
                for &position in positions {
                    while position - before >= segment.end - segment.start {
                        before += segment.end - segment.start;
                        segment = segments.next().expect("positions are of sources").clone();
                    }
                    in_file.push(segment.start + position - before);
                }
            }
        }
        if let Some(start) = place.decoded {
            let decoded = &cuts.decoded[start..];
            sources.extend(in_file.iter().map(|&position| NodeId(decoded[position as usize])));
        } else {
            // Ascending among the owned and among the others.
            let owned = match positions {
                Positions::First(count) => count.min(place.visible) as usize,
                Positions::These(positions) => positions.partition_point(|&position| position < place.visible),
            };
            cuts.sources.clear();
            row.get_many(&in_file[..owned], &mut cuts.sources);
            row.get_many(&in_file[owned..], &mut cuts.sources);
            sources.extend(cuts.sources.iter().copied().map(NodeId));
        }
        cuts.positions = in_file;
    }

    fn weights(&self, place: &MappedPlace<'a>, cuts: &Cuts, count: u64, weights: &mut Vec<f32>) -> Result<()> {
        self.files.weights(place, cuts.first(place, count), weights)
    }
}
