//! The mapped adjacency lists of one chunk.

use std::{ops::Range, path::Path, sync::Arc};

use grappa_formats::{
    ChunkId, ChunkSpan, EdgePart, FormatError,
    edge_rows::{EdgeRows, EdgeRowsMeta},
    rows::{ChunkDegrees, Row, RowCodec, RowSizes, Rows, RowsMeta},
};
use grappa_io::{
    Error, Position, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
};

use crate::{
    Store,
    checked::{CheckedAdjacency, CheckedEdgeRows, check_lines},
    files,
    list_meta::{decode_pair, expect_adjacency},
};

/// Lists that are at most so far apart are read ahead together. The disk reads the bytes between them in the time of another read.
const GAP_BYTES: u64 = 16 << 10;
/// If at least one in this number of lists is wanted, all are read ahead without a look at each.
const DENSE_ROWS: u64 = 8;
/// If the directory has a wanted row for each page of it, on average, all of it is read ahead.
const PAGE_BYTES: u64 = 4 << 10;

/// The open files of a chunk's adjacency lists. Their headers were compared with the manifest and with each other.
#[derive(Debug)]
pub struct AdjacencyFiles {
    /// The encoded adjacency lists.
    pub edges: ContainerFile,
    /// The in-degrees, from which the place of each adjacency list follows.
    pub degrees: ContainerFile,
    /// The edge weights, and how they are laid out.
    pub weights: Option<(ContainerFile, EdgeRowsMeta)>,
    /// How the adjacency lists are laid out.
    pub meta: RowsMeta,
    /// Sizes of adjacency lists by degree.
    pub sizes: Arc<RowSizes>,
    /// The times of edges, as lists of positions on the [axis](Store::time_axis).
    pub times: Option<TimeFiles>,
}

/// The open files of the times of a chunk's edges.
#[derive(Debug)]
pub struct TimeFiles {
    /// The encoded lists of positions.
    pub times: ContainerFile,
    /// The length and the place of each list.
    pub degrees: ContainerFile,
    /// How the lists are laid out.
    pub meta: RowsMeta,
}

impl TimeFiles {
    /// Opens the times of the lists that `edges` describes.
    fn open(store: &Store, span: ChunkSpan, part: EdgePart, edges: &RowsMeta) -> Result<Option<Self>> {
        let Some(axis) = store.time_axis()? else { return Ok(None) };
        let [times, degrees] =
            [files::TIMES, files::TIME_DEGREES].map(|name| store.file(&files::of_chunk(span.chunk, &part.file(name))));
        let (times, degrees) = (times?, degrees?);
        let meta = decode_pair(&times, &degrees, "times")?;
        let (found, expected) = ((meta.codec, meta.edges), (RowCodec::EliasFano, edges.edges));
        expect_adjacency(&meta, span, axis.positions()).map_err(Error::format(times.path()))?;
        if found != expected {
            let problem =
                format!("expected {} times in Elias-Fano code, found {}; were files swapped?", expected.1, found.1);
            return Err(Error::format(times.path())(FormatError::invalid(64, problem)));
        }
        Ok(Some(Self { times, degrees, meta }))
    }
}

impl AdjacencyFiles {
    /// Opens the files of the chunk `span`. If `weights` is true, the graph must be weighted.
    pub fn open(store: &Store, span: ChunkSpan, weights: bool) -> Result<Self> {
        Self::open_part(store, span, EdgePart::Graph, weights)
    }

    fn open_part(store: &Store, span: ChunkSpan, part: EdgePart, weights: bool) -> Result<Self> {
        let edges = store.file(&files::of_chunk(span.chunk, &part.file("edges")))?;
        let degrees = store.file(&files::of_chunk(span.chunk, &part.file("degrees")))?;
        let meta = decode_pair(&edges, &degrees, "edges")?;
        expect_adjacency(&meta, span, store.source_nodes()).map_err(Error::format(edges.path()))?;
        if (meta.codec == RowCodec::ByTime) != store.is_timed() {
            let order = if store.is_timed() { "the order of time" } else { "ascending order" };
            let problem = format!("the sources of adjacency lists are not in {order}, as the manifest implies");
            return Err(Error::format(edges.path())(FormatError::invalid(64, problem)));
        }
        Ok(Self {
            times: TimeFiles::open(store, span, part, &meta)?,
            edges,
            degrees,
            weights: weights.then(|| edge_rows(store, span, &part.file("weights"))).transpose()?,
            sizes: store.row_sizes(meta.codec),
            meta,
        })
    }
}

/// Opens the file `name` of a chunk, which has a row for each edge.
fn edge_rows(store: &Store, span: ChunkSpan, name: &str) -> Result<(ContainerFile, EdgeRowsMeta)> {
    let file = store.file(&files::of_chunk(span.chunk, name))?;
    let meta = EdgeRowsMeta::decode(file.header()).map_err(Error::format(file.path()))?;
    meta.span.expect(&span).map_err(Error::format(file.path()))?;
    Ok((file, meta))
}

/// The mapped in-degrees of a chunk whose adjacency lists a slice lacks.
#[derive(Debug)]
pub struct HaloDegrees {
    meta: RowsMeta,
    sizes: Arc<RowSizes>,
    file: MappedPayload,
}

impl HaloDegrees {
    /// Maps the in-degrees of a chunk that the store lacks. None if it has the chunk, or lacks these, too.
    ///
    /// # Errors
    /// If the file cannot be opened, or belongs to another chunk.
    ///
    /// # Panics
    /// If the graph has no such chunk.
    pub fn open(store: &Store, chunk: ChunkId) -> Result<Option<Self>> {
        if !store.manifest().chunks[chunk.0 as usize].halo_degrees {
            return Ok(None);
        }
        let file = store.file(&files::of_chunk(chunk, "degrees"))?;
        let meta = RowsMeta::decode(&file.header().meta).map_err(Error::format(file.path()))?;
        let span = ChunkSpan::for_chunk(store.chunks(), chunk);
        expect_adjacency(&meta, span, store.source_nodes()).map_err(Error::format(file.path()))?;
        let degrees =
            Self { sizes: store.row_sizes(meta.codec), file: MappedPayload::new(&file, Access::Random)?, meta };
        // `degree` expects the decoder to succeed, so it is tried once here.
        degrees.decoder().map_err(Error::format(file.path()))?;
        Ok(Some(degrees))
    }

    /// The in-degree of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn degree(&self, row: u64) -> Result<u64> {
        let degrees = self.decoder().expect("checked when opened");
        let directory = degrees.directory();
        check_lines(directory, &self.file, row, row)?;
        Ok(directory.degree(row))
    }

    fn decoder(&self) -> grappa_formats::Result<ChunkDegrees<'_>> {
        ChunkDegrees::new(&self.meta, &self.sizes, self.file.unchecked())
    }
}

/// The mapped adjacency lists of one chunk of a store, and the weights and features of its edges. Dropping it unmaps them.
///
/// The headers were compared with the manifest. A block of a payload is compared with its checksum when it is first used.
/// The decoded values are not checked further, but no value can cause unsafe behavior; `grappa-store verify` checks them.
#[derive(Debug)]
pub struct Chunk {
    span: ChunkSpan,
    rows_meta: RowsMeta,
    sizes: Arc<RowSizes>,
    edges: MappedPayload,
    degrees: MappedPayload,
    weights: Option<MappedPayload>,
    edge_features: Option<MappedPayload>,
    times: Option<MappedTimes>,
}

/// The mapped times of a chunk's edges.
#[derive(Debug)]
struct MappedTimes {
    meta: RowsMeta,
    sizes: RowSizes,
    times: MappedPayload,
    degrees: MappedPayload,
}

impl MappedTimes {
    fn new(files: &TimeFiles, access: Access) -> Result<Self> {
        let mapped = Self {
            meta: files.meta,
            sizes: RowSizes::from_meta(&files.meta),
            times: MappedPayload::new(&files.times, access)?,
            degrees: MappedPayload::new(&files.degrees, access)?,
        };
        mapped.try_rows().map_err(Error::format(files.times.path()))?;
        Ok(mapped)
    }

    fn try_rows(&self) -> grappa_formats::Result<Rows<'_>> {
        Rows::new(&self.meta, &self.sizes, self.times.unchecked(), self.degrees.unchecked())
    }

    /// The lists of positions.
    fn rows(&self) -> CheckedAdjacency<'_> {
        let rows = self.try_rows().expect("checked when opened");
        CheckedAdjacency { rows, edges: &self.times, degrees: &self.degrees }
    }

    fn release_rows(&self, first: u64, last: u64) {
        let rows = self.try_rows().expect("checked when opened");
        self.times.release(rows.locate(first).extent().start..rows.locate(last).extent().end);
        let (first, last) = (rows.directory_line(first), rows.directory_line(last));
        self.degrees.release(first.start as u64..last.end as u64);
    }
}

impl Store {
    /// Maps the adjacency lists of a chunk for random access.
    pub fn chunk(&self, chunk: ChunkId) -> Result<Chunk> {
        self.part(EdgePart::Graph, chunk)
    }

    /// Maps the adjacency lists of a chunk for sequential access.
    pub fn chunk_in_order(&self, chunk: ChunkId) -> Result<Chunk> {
        self.part_in_order(EdgePart::Graph, chunk)
    }

    /// Maps the edges of a part whose destinations are in a chunk, as adjacency lists, for sequential access.
    ///
    /// # Errors
    /// If the store lacks the part or the chunk, or a file cannot be opened.
    pub fn part_in_order(&self, part: EdgePart, chunk: ChunkId) -> Result<Chunk> {
        self.expect_part(part)?;
        Chunk::open(self, self.span(chunk)?, part, Access::Sequential)
    }

    /// As [`Store::part_in_order`], for random access.
    ///
    /// # Errors
    /// As [`Store::part_in_order`].
    pub fn part(&self, part: EdgePart, chunk: ChunkId) -> Result<Chunk> {
        self.expect_part(part)?;
        Chunk::open(self, self.span(chunk)?, part, Access::Random)
    }

    /// Number of edges of a part.
    ///
    /// # Errors
    /// If the store lacks the part, or a file cannot be opened.
    pub fn part_edges(&self, part: EdgePart) -> Result<u64> {
        self.expect_part(part)?;
        if part == EdgePart::Graph {
            return Ok(self.manifest().edges);
        }
        self.present_chunks()
            .map(|chunk| Ok(AdjacencyFiles::open_part(self, self.span(chunk)?, part, false)?.meta.edges))
            .sum()
    }

    fn expect_part(&self, part: EdgePart) -> Result<()> {
        if part == EdgePart::Graph || self.manifest().held_out().contains(&part) {
            return Ok(());
        }
        Err(Error::missing(
            format!("edges for {part}"),
            self.path(),
            "ingest with --edge-split, such as --edge-split 80/10/10",
        ))
    }
}

impl Chunk {
    fn open(store: &Store, span: ChunkSpan, part: EdgePart, access: Access) -> Result<Self> {
        let AdjacencyFiles { edges, degrees, weights, meta: rows_meta, sizes, times } =
            AdjacencyFiles::open_part(store, span, part, store.manifest().weighted)?;
        let features = store.edge_features();
        let features = features.map(|_| Ok(edge_rows(store, span, &part.file(files::EDGE_FEATURES))?.0));
        let features = features.transpose()?;
        let chunk = Self {
            span,
            rows_meta,
            sizes,
            edges: MappedPayload::new(&edges, access)?,
            degrees: MappedPayload::new(&degrees, access)?,
            weights: weights.map(|(file, _)| MappedPayload::new(&file, access)).transpose()?,
            edge_features: features.map(|file| MappedPayload::new(&file, access)).transpose()?,
            times: times.map(|files| MappedTimes::new(&files, access)).transpose()?,
        };
        // The accessors below expect the decoders to succeed, so they are tried once here.
        chunk.try_rows().map_err(Error::format(edges.path()))?;
        for file in chunk.edge_files() {
            EdgeRows::new(file.header(), file.unchecked()).map_err(Error::format(file.path()))?;
        }
        Ok(chunk)
    }

    /// The nodes of the chunk.
    pub fn span(&self) -> ChunkSpan {
        self.span
    }

    /// The path of the file with the adjacency lists, for errors.
    pub fn path(&self) -> &Path {
        self.edges.path()
    }

    /// The adjacency lists of its nodes. Takes some nanoseconds, so call it once and not per node.
    pub fn rows(&self) -> CheckedAdjacency<'_> {
        CheckedAdjacency { rows: self.unchecked_rows(), edges: &self.edges, degrees: &self.degrees }
    }

    /// The weights of its edges, if the graph is weighted.
    pub fn weights(&self) -> Option<CheckedEdgeRows<'_>> {
        self.weights.as_ref().map(checked_rows)
    }

    /// The times of its edges, if edges have times: for each adjacency list the positions on the [axis](Store::time_axis), ascending.
    pub fn times(&self) -> Option<CheckedAdjacency<'_>> {
        self.times.as_ref().map(MappedTimes::rows)
    }

    /// The positions on the axis of the edges of a list, which has `degree` edges. None if edges have no times.
    ///
    /// # Errors
    /// If the file of times is damaged, or has another number of times.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn times_of(&self, row: u64, degree: u64) -> Result<Option<Row<'_>>> {
        let Some(times) = self.times() else { return Ok(None) };
        let times = times.row(row)?;
        if times.degree() != degree {
            let problem =
                "the adjacency lists have more or fewer edges than times; find the damage with `grappa-store verify`";
            return Err(Error::input(self.path(), Position::Whole, problem));
        }
        Ok(Some(times))
    }

    /// The features of its edges, if edges have features.
    pub fn edge_features(&self) -> Option<CheckedEdgeRows<'_>> {
        self.edge_features.as_ref().map(checked_rows)
    }

    /// Total length of the file of edge features in bytes; 0 without.
    pub fn edge_feature_bytes(&self) -> u64 {
        self.edge_features.as_ref().map_or(0, MappedPayload::bytes)
    }

    /// Asks the system to read all edge features into its cache.
    pub fn read_ahead_edge_features(&self) {
        self.edge_features.iter().for_each(MappedPayload::read_ahead);
    }

    fn edge_files(&self) -> impl Iterator<Item = &MappedPayload> {
        self.weights.iter().chain(&self.edge_features)
    }

    fn unchecked_rows(&self) -> Rows<'_> {
        self.try_rows().expect("checked when opened")
    }

    /// Releases the memory of adjacency lists that were read, and of the weights and features of their edges. A pass over a large chunk
    /// calls it from time to time.
    ///
    /// # Panics
    /// If `released` is out of range.
    pub fn release_rows(&self, released: Range<u64>) {
        let rows = self.unchecked_rows();
        if released.is_empty() {
            return;
        }
        let (first, last) = (released.start, released.end - 1);
        self.edges.release(rows.locate(first).extent().start..rows.locate(last).extent().end);
        for file in self.edge_files().map(checked_rows) {
            // Whoever reads the values reports damage.
            if let (Ok(first), Ok(last)) = (file.range(first, &self.rows()), file.range(last, &self.rows())) {
                file.release(first.start..last.end);
            }
        }
        self.times.iter().for_each(|times| times.release_rows(first, last));
        let (first, last) = (rows.directory_line(first), rows.directory_line(last));
        self.degrees.release(first.start as u64..last.end as u64);
    }

    /// Asks the system to read the adjacency lists of some ascending rows into its cache. A pass over many lists that are not adjacent
    /// calls it some time before it reads them; otherwise each is a page fault of its own.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn read_ahead_rows(&self, rows: impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + Clone) {
        if PAGE_BYTES * rows.len() as u64 >= self.degrees.bytes() {
            self.degrees.read_ahead();
        }
        // A damaged directory may give any place. Whoever reads the list compares checksums.
        let lists = self.unchecked_rows();
        let extent = |row| lists.locate(row).extent();
        if let Some((first, last)) = rows.clone().next().zip(rows.clone().next_back())
            && (last - first) / DENSE_ROWS <= rows.len() as u64
        {
            return self.edges.read_ahead_part(extent(first).start..extent(last).end);
        }
        let mut pending = 0..0u64;
        for next in rows.map(extent) {
            if (pending.start..pending.end.saturating_add(GAP_BYTES)).contains(&next.start) {
                pending.end = next.end.max(pending.end);
            } else {
                self.edges.read_ahead_part(pending);
                pending = next;
            }
        }
        self.edges.read_ahead_part(pending);
    }

    /// Asks the system to read the in-degrees of some ascending rows into its cache.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn read_ahead_degrees(&self, rows: impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + Clone) {
        if self.rows().has_degrees_in_rows() {
            return self.read_ahead_rows(rows);
        }
        let lists = self.unchecked_rows();
        if let Some((first, last)) = rows.clone().next().zip(rows.clone().next_back()) {
            let lines = lists.directory_line(first).start..lists.directory_line(last).end;
            self.degrees.read_ahead_part(lines.start as u64..lines.end as u64);
        }
    }

    /// Asks the system to read the files of adjacency lists, and of weights and times if these are true, into its cache.
    pub fn read_ahead(&self, weights: bool, times: bool) {
        self.row_files(weights, times).for_each(|file| file.read_ahead());
    }

    /// Releases the memory of all adjacency lists, weights and edge features that were read.
    pub fn release_all_rows(&self) {
        let features = self.edge_features.iter();
        self.row_files(true, true).chain(features).for_each(|file| file.release_all());
    }

    /// Total length of the files of adjacency lists, and of weights and times if these are true, in bytes.
    pub fn row_bytes(&self, weights: bool, times: bool) -> u64 {
        self.row_files(weights, times).map(|file| file.bytes()).sum()
    }

    fn row_files(&self, weights: bool, times: bool) -> impl Iterator<Item = &MappedPayload> {
        let weights = self.weights.iter().filter(move |_| weights);
        let times = self.times.iter().filter(move |_| times).flat_map(|files| [&files.times, &files.degrees]);
        [&self.degrees, &self.edges].into_iter().chain(weights).chain(times)
    }

    fn try_rows(&self) -> grappa_formats::Result<Rows<'_>> {
        Rows::new(&self.rows_meta, &self.sizes, self.edges.unchecked(), self.degrees.unchecked())
    }
}

fn checked_rows(file: &MappedPayload) -> CheckedEdgeRows<'_> {
    let rows = EdgeRows::new(file.header(), file.unchecked()).expect("checked when opened");
    CheckedEdgeRows { rows, file }
}
