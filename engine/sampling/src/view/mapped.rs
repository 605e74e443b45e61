//! Rows through the mappings of a store's files, decoded as they are sampled.
//!
//! What is sampled is in the page cache, or is read by a page fault. Pages that were touched count as memory of the process,
//! so when they may take more than the view's budget all of them are given back, and page faults find those again that the
//! page cache still has. Where the budget is far less than the files, most lines cost a page fault then.
//!
//! # What it costs
//! Three times what rows in memory cost: in R-MAT 22 with edge factor 16, fanouts 15,10,5, an edge takes 50 ns of one core
//! at 4.1 GHz, all in the page cache, where it takes 15.5 from memory. Of these, 11.5 are for drawing and relabelling,
//! whatever the view. The rest is
//!
//! - the same waiting for memory, a little more of it: a line of the directory for each destination, and often one of its
//!   exceptions; for each source a line of upper bits and one of low bits, some of which sources share. That makes 1.3 lines
//!   an edge instead of 1.2, and they are on small pages: with all files on huge pages it is 5 ns less. Lines are asked for
//!   ahead, in stages, as [`Rows`] says. An eighth of all loads of 8 bytes straddle two lines, so both ends are asked for;
//! - instructions: 280 for each destination to add up the sizes of the rows before it in its line, 5.1 edges a
//!   destination; 45 an edge to ask for lines; and to find a source, 90 in a row of up to 250 upper bits and 190 in longer
//!   ones, of which each waits for the one before. In the first level of the cache that alone is 4 + 3.5 + 7 to 14 ns.
//!
//! So it can't be as fast as from memory: seven tenths of that would leave 10.5 ns an edge, or 43 cycles, for those 200 to
//! 290 instructions. Selecting a bit in one instruction (PDEP) saves 2 to 4 ns, but takes hundreds of cycles on processors
//! before Zen 3; counting the ones of a line in one takes AVX-512.
//!
//! Keeping decoded rows in the view's budget does not pay either. Rows with many sources are drawn from more often, but no
//! more than in proportion: those with at least 512 have 43 % of the edges, and 32 % of the draws are from them. For seven
//! tenths, four fifths of all rows would have to be kept; who has that memory has it for [`ViewKind::Memory`].
//!
//! [`ViewKind::Memory`]: super::ViewKind::Memory
//!
//! # Sources that are not owned
//! A row of a file has its sources ascending, owned or not. The order of views puts the owned ones first: so a row is cut
//! where the runs of owned nodes begin and end, and the pieces are called *segments*, those of owned sources and then the
//! others. A position is found by counting through the segments. Where a row is cut is found by searching; in a short row,
//! which is decoded first.

use std::{
    cell::RefCell,
    hint::select_unpredictable,
    iter,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use grappa_formats::{
    ChunkId, NodeId,
    chunks::ChunkMap,
    rows::{Row, RowPlace},
};
use grappa_io::{
    Error, Result,
    map::{FaultMeter, ResidentLimit},
    prefetch::prefetch,
};
use grappa_storage::{CheckedAdjacency, CheckedWeights, Chunk};

use super::{
    kept::Kept,
    rows::{Degrees, Positions, Rows},
};
use crate::partition::Owned;

/// Rows of no more bytes than this are asked for whole, as soon as they are found.
const WHOLE_BYTES: u64 = 192;
/// Rows are read in pieces of up to so many bytes, also those that are shorter.
const PIECE_BYTES: u64 = 32;
/// How far beyond its last byte a row is read.
const BEYOND_BYTES: u64 = 7;
/// Rows with no more sources than so many for each run of owned nodes are decoded to be cut.
const DECODED_PER_RUN: u64 = 32;
const LINE_BYTES: u64 = 64;

/// The mapped chunks of a view.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Of each chunk of the store, its files; none if it is not owned.
    chunks: Arc<Chunks>,
    bytes: u64,
    memory: Arc<MappedMemory>,
}

/// Of each chunk of a store, its files, if they are there.
type Chunks = Vec<Option<Chunk>>;

/// The memory that views share whose rows are mapped.
#[derive(Debug, Default)]
pub(super) struct MappedMemory {
    limit: ResidentLimit,
    views: Mutex<Vec<Weak<Chunks>>>,
}

impl MappedMemory {
    fn add(&self, chunks: &Arc<Chunks>, bytes: u64, limit: u64) {
        self.limit.add(bytes, limit);
        self.lock().push(Arc::downgrade(chunks));
    }

    /// Gives all pages back if they are more than they may be.
    fn keep(&self, faults: &FaultMeter) {
        self.limit.keep(faults, || {
            let views = self.lock();
            let views = views.iter().filter_map(Weak::upgrade);
            views.for_each(|chunks| chunks.iter().flatten().for_each(Chunk::release_all_rows));
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Chunks>>> {
        // Whatever panicked, the list is as it was.
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mapped {
    /// Maps the chunks that are owned. Their pages may take `bytes`, and those of all views that share the `memory` what these may
    /// all together.
    pub(super) fn open(kept: &Kept<'_>, bytes: u64, memory: &Arc<MappedMemory>) -> Result<Self> {
        let open = |chunk| kept.owned.owns(chunk).then(|| kept.store.chunk(chunk)).transpose();
        let chunks = (0..kept.store.chunks().chunks()).map(ChunkId).map(open);
        let chunks: Arc<Chunks> = Arc::new(chunks.collect::<Result<_>>()?);
        let files = chunks.iter().flatten().map(|chunk| chunk.row_bytes(kept.weights)).sum();
        memory.add(&chunks, files, bytes);
        Ok(Self {
            chunks,
            bytes: bytes.min(files),
            memory: memory.clone(),
        })
    }

    /// Bytes that its pages may take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the files that rows are read from.
    pub(super) fn file_bytes(&self, weights: bool) -> u64 {
        self.chunks.iter().flatten().map(|chunk| chunk.row_bytes(weights)).sum()
    }

    /// Has the system begin to read these files.
    pub(super) fn read_ahead(&self, weights: bool) {
        self.chunks.iter().flatten().for_each(|chunk| chunk.read_ahead(weights));
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
            faults: FaultMeter::start(),
            damage: RefCell::new(None),
            chunks: self.chunks.iter().map(|chunk| chunk.as_ref().map(of_chunk)).collect(),
        }
    }
}

/// The files of all chunks, ready to be read.
struct Files<'a> {
    mapped: &'a Mapped,
    map: &'a ChunkMap,
    faults: FaultMeter,
    /// The first damage that was met since it was last asked for.
    damage: RefCell<Option<Error>>,
    chunks: Vec<Option<ChunkFiles<'a>>>,
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        self.keep_memory();
    }
}

struct ChunkFiles<'a> {
    first: u64,
    rows: CheckedAdjacency<'a>,
    weights: Option<CheckedWeights<'a>>,
}

/// Where to look for a row: the chunk and the row in it.
type Head = Option<(u32, u64)>;

/// Where a row is; none if it is not owned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePlace(Option<(u32, RowPlace)>);

impl<'a> Files<'a> {
    fn keep_memory(&self) {
        self.mapped.memory.keep(&self.faults);
    }

    #[inline(always)]
    fn head(&self, node: NodeId) -> Head {
        let chunk = self.map.chunk_of(node).0;
        let files = self.chunks[chunk as usize].as_ref()?;
        let row = node.0 - files.first;
        let rows = files.rows.unchecked();
        prefetch(rows.degrees_payload(), rows.directory_line(row).start);
        self.note(files.rows.check_line(row));
        Some((chunk, row))
    }

    #[inline(always)]
    fn prefetch_head(&self, head: Head) {
        if let Some((chunk, row)) = head {
            let checked = &self.of(chunk).rows;
            let rows = checked.unchecked();
            prefetch(rows.degrees_payload(), rows.directory_touches(row));
            self.note(checked.check_exceptions(row));
        }
    }

    /// Remembers damage. Damaged rows are safe to decode, so the stages of a group go on, and whoever began it asks
    /// [`Files::take_damage`] before it believes a row.
    #[inline(always)]
    fn note(&self, checked: Result<()>) {
        if let Err(error) = checked {
            self.remember(error);
        }
    }

    #[cold]
    fn remember(&self, error: Error) {
        self.damage.borrow_mut().get_or_insert(error);
    }

    /// Fails if something was damaged of what was located since the last call.
    #[inline(always)]
    fn take_damage(&self) -> Result<()> {
        match self.damage.take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    #[inline(always)]
    fn of(&self, chunk: u32) -> &ChunkFiles<'a> {
        self.chunks[chunk as usize]
            .as_ref()
            .expect("the chunk of a row that was found")
    }

    #[inline(always)]
    fn locate(&self, head: Head) -> FilePlace {
        FilePlace(head.map(|(chunk, row)| (chunk, self.of(chunk).rows.unchecked().locate(row))))
    }

    #[inline(always)]
    fn prefetch_row(&self, place: &FilePlace) {
        let Some((chunk, found)) = &place.0 else { return };
        let rows = &self.of(*chunk).rows;
        self.note(rows.check_row(found));
        let payload = rows.unchecked().edges_payload();
        let extent = found.extent();
        // Always as many lines as the longest of these rows has: the last one more than once, rather than a branch that
        // no processor could predict.
        let length = extent.end - extent.start;
        let last = select_unpredictable(length <= WHOLE_BYTES, length.max(PIECE_BYTES), found.head_bytes());
        let last = last + BEYOND_BYTES;
        for line in 0..=WHOLE_BYTES / LINE_BYTES {
            let byte = extent.start + last.min(line * LINE_BYTES);
            prefetch(payload, byte as usize);
        }
    }

    /// Opens a row; none if it is not owned.
    #[inline(always)]
    fn open(&self, place: &FilePlace) -> Option<Row<'a>> {
        let (chunk, found) = &place.0?;
        Some(self.of(*chunk).rows.unchecked().row_at(found))
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &FilePlace, positions: &[u64]) {
        let Some((chunk, found)) = &place.0 else { return };
        let extent = found.extent();
        if extent.end - extent.start <= WHOLE_BYTES {
            return; // asked for whole
        }
        let rows = self.of(*chunk).rows.unchecked();
        let (row, payload) = (rows.row_at(found), rows.edges_payload());
        for &position in positions {
            for byte in row.touches(position) {
                prefetch(payload, byte as usize);
            }
        }
    }

    /// Appends the weights of edges of a row, by their positions in the file.
    fn weights(&self, place: &FilePlace, edges: impl Iterator<Item = Range<u64>>, out: &mut Vec<f32>) -> Result<()> {
        let Some((chunk, found)) = place.0 else {
            return Ok(());
        };
        let files = self.of(chunk);
        let weights = files.weights.as_ref().expect("the view has weights");
        let all = weights.range(found.row(), &files.rows)?;
        for edges in edges {
            let start = out.len();
            out.resize(start + (edges.end - edges.start) as usize, 0.0);
            weights.copy(all.start + edges.start..all.start + edges.end, &mut out[start..])?;
        }
        Ok(())
    }
}

/// The mapped rows of all nodes.
pub(crate) struct MappedWhole<'a>(Files<'a>);

impl Rows for MappedWhole<'_> {
    type Head = Head;
    type Place = FilePlace;
    type Notes = Vec<u64>;

    #[inline(always)]
    fn keep_memory(&self) {
        self.0.keep_memory();
    }

    #[inline(always)]
    fn clear(_: &mut Vec<u64>) {}

    #[inline(always)]
    fn head(&self, node: NodeId) -> Head {
        self.0.head(node)
    }

    #[inline(always)]
    fn prefetch_head(&self, head: Head) {
        self.0.prefetch_head(head);
    }

    #[inline(always)]
    fn locate(&self, head: Head) -> FilePlace {
        self.0.locate(head)
    }

    #[inline(always)]
    fn prefetch_row(&self, place: &FilePlace) {
        self.0.prefetch_row(place);
    }

    #[inline(always)]
    fn take_damage(&self) -> Result<()> {
        self.0.take_damage()
    }

    #[inline(always)]
    fn degrees(&self, place: &mut FilePlace, _: &mut Vec<u64>) -> Degrees {
        let degree = self.0.open(place).map_or(0, |row| row.degree());
        Degrees {
            visible: degree,
            global: degree,
            halo: false,
        }
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &FilePlace, positions: Positions<'_>) {
        if let Positions::These(positions) = positions {
            self.0.prefetch_sources(place, positions);
        }
    }

    #[inline(always)]
    fn sources_at(
        &self,
        place: &FilePlace,
        buffer: &mut Vec<u64>,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    ) {
        let Some(row) = self.0.open(place) else { return };
        match positions {
            Positions::First(_) => {
                buffer.clear();
                row.decode_into(buffer);
                sources.extend(buffer.iter().copied().map(NodeId));
            }
            Positions::These(positions) => row.get_many_as(positions, sources, NodeId),
        }
    }

    fn weights(&self, place: &FilePlace, _: &Vec<u64>, count: u64, weights: &mut Vec<f32>) -> Result<()> {
        self.0.weights(place, iter::once(0..count), weights)
    }
}

/// The mapped rows of owned nodes.
pub(crate) struct MappedPart<'a> {
    files: Files<'a>,
    owned: &'a Owned,
}

/// Where a row of a partition is.
#[derive(Debug, Clone)]
pub(crate) struct PartPlace {
    file: FilePlace,
    /// How many of its sources are owned.
    visible: u64,
    /// Its segments, among those that are noted.
    segments: Range<usize>,
    /// Where its sources start among those that are noted, if it was decoded.
    decoded: Option<usize>,
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
    fn cut(&self, row: &Row<'_>, place: &mut PartPlace, cuts: &mut Cuts) -> u64 {
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
    fn first(&self, place: &PartPlace, mut count: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        self.segments[place.segments.clone()].iter().map(move |segment| {
            let taken = count.min(segment.end - segment.start);
            count -= taken;
            segment.start..segment.start + taken
        })
    }
}

impl Rows for MappedPart<'_> {
    type Head = Head;
    type Place = PartPlace;
    type Notes = Cuts;

    #[inline(always)]
    fn keep_memory(&self) {
        self.files.keep_memory();
    }

    fn clear(cuts: &mut Cuts) {
        cuts.segments.clear();
        cuts.decoded.clear();
    }

    #[inline(always)]
    fn head(&self, node: NodeId) -> Head {
        self.files.head(node)
    }

    #[inline(always)]
    fn prefetch_head(&self, head: Head) {
        self.files.prefetch_head(head);
    }

    #[inline(always)]
    fn locate(&self, head: Head) -> PartPlace {
        PartPlace {
            file: self.files.locate(head),
            visible: 0,
            segments: 0..0,
            decoded: None,
        }
    }

    #[inline(always)]
    fn prefetch_row(&self, place: &PartPlace) {
        self.files.prefetch_row(&place.file);
    }

    #[inline(always)]
    fn take_damage(&self) -> Result<()> {
        self.files.take_damage()
    }

    fn degrees(&self, place: &mut PartPlace, cuts: &mut Cuts) -> Degrees {
        let Some(row) = self.files.open(&place.file) else {
            return Degrees::HALO;
        };
        place.visible = self.cut(&row, place, cuts);
        Degrees {
            visible: place.visible,
            global: row.degree(),
            halo: false,
        }
    }

    fn prefetch_sources(&self, _: &PartPlace, _: Positions<'_>) {
        // Cutting a row touched it all over.
    }

    fn sources_at(&self, place: &PartPlace, cuts: &mut Cuts, positions: Positions<'_>, sources: &mut Vec<NodeId>) {
        let Some(row) = self.files.open(&place.file) else {
            return;
        };
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

    fn weights(&self, place: &PartPlace, cuts: &Cuts, count: u64, weights: &mut Vec<f32>) -> Result<()> {
        self.files.weights(&place.file, cuts.first(place, count), weights)
    }
}
