//! Compressed adjacency lists of a chunk, with random access to each list.
//!
//! A *row* is the adjacency list of one destination node: the ids of its in-neighbors, its *sources*, in ascending
//! order unless edges have times. Parallel edges repeat a source. A chunk has one row per node, in two container files. `edges` has the rows,
//! packed bit after bit. `degrees` has the directory: it gives the start and the number of sources of each row, in
//! about 9.5 bits per node. The layout is specified in `formats/spec/rows.md`.
//!
//! In a chunk without times there are two codecs, and [`choose_codec`] chooses one. [`RowCodec::EliasFano`] is for graphs in random
//! order. It is a little above the information bound, and has random access inside rows. [`RowCodec::Gap`] is for
//! graphs whose order has locality. It makes them several times smaller, at half the speed of access.
//! [`RowCodec::ByTime`] is for edges with times: sources are in the order of time, so those until a time are a prefix.
//!
//! Reading a row costs a cache miss for its line of the directory and one for the row. To read many rows, process them
//! in groups and prefetch each step for the whole group: first [`Rows::directory_line`], then
//! [`Rows::directory_touches`]. Then call [`Rows::locate`] and prefetch [`RowPlace::extent`] if it is short, otherwise
//! its first [`RowPlace::head_bytes`]. Then open the rows with [`Rows::row_at`] and prefetch [`Row::touches`].
//!
//! Damaged bytes never panic, and never give a source outside the universe. But sources may be wrong; [`Rows::check`]
//! detects that. A damaged row whose bits cannot be in the payload is empty.

mod bits;
mod check;
mod choose;
mod degrees;
mod directory;
mod elias_fano;
mod encode;
mod gap;
mod meta;
mod ones;
#[cfg(test)]
mod tests;

use std::{
    mem::{self, Discriminant},
    ops::Range,
};

pub use self::{
    bits::PADDING_BYTES,
    check::{RowsPart, RowsProblem},
    choose::choose_codec,
    degrees::{ChunkDegrees, DegreesEncoder},
    directory::{LINE_BYTES, LINE_ROWS},
    encode::{RowsEncoder, RowsTail},
    gap::GapCode,
    meta::{RowCodec, RowsMeta},
};
use self::{
    directory::{Directory, RowEntry, SizeTable},
    elias_fano::{EliasFanoRow, Shape, Upper},
    gap::{GapRow, Walker},
};
use crate::{FormatError, Result};

/// The rows of a chunk, in place: the payloads of its files `edges` and `degrees`, in memory or mapped.
///
/// ```
/// use grappa_formats::rows::{RowCodec, RowSizes, Rows, RowsEncoder};
///
/// // The in-neighbors of nodes 0, 1 and 2 of a graph with 1000 nodes.
/// let mut encoder = RowsEncoder::new(RowCodec::EliasFano, 1000, 0);
/// for sources in [&[2, 7, 999][..], &[], &[0, 0, 5]] {
///     encoder.push(sources);
/// }
/// let mut edges = encoder.take_bytes();
/// let tail = encoder.finish();
/// edges.extend(tail.edges_payload_rest);
///
/// let sizes = RowSizes::from_meta(&tail.meta);
/// let rows = Rows::new(&tail.meta, &sizes, &edges, &tail.degrees_payload)?;
/// assert_eq!((rows.meta.rows, rows.meta.edges, rows.degree(2)), (3, 6, 3));
/// assert_eq!(rows.row(0).iter().collect::<Vec<_>>(), [2, 7, 999]);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rows<'a> {
    /// Codec, number of rows and edges, and other properties of the rows.
    pub meta: RowsMeta,
    source_max: u64,
    /// The payload of `edges`, or a part of it.
    payload: &'a [u8],
    /// The range of bits of the payload in that part that rows may use.
    bits: Range<u64>,
    directory: Directory<'a>,
}

/// The sizes of short rows, needed to locate a row: a table of 1 KiB. Files with the same kind of codec and number of
/// nodes share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSizes {
    codec: Discriminant<RowCodec>,
    source_max: u64,
    table: SizeTable,
}

impl RowSizes {
    /// The sizes for files with this meta. Takes a microsecond.
    pub fn from_meta(meta: &RowsMeta) -> Self {
        Self::new(meta.codec, meta.universe)
    }

    /// The sizes for files in a code, with any parameters of it, of a graph of `universe` nodes.
    pub fn new(codec: RowCodec, universe: u64) -> Self {
        let source_max = universe.saturating_sub(1);
        let table = directory::sizes(|number| codec.row_bits(number, source_max));
        Self { codec: mem::discriminant(&codec), source_max, table }
    }
}

impl<'a> Rows<'a> {
    /// The rows in these payloads. Checks only that the lengths match the meta; takes some nanoseconds.
    ///
    /// # Panics
    /// If the sizes are for other files.
    pub fn new(
        meta: &RowsMeta,
        sizes: &'a RowSizes,
        edges_payload: &'a [u8],
        degrees_payload: &'a [u8],
    ) -> Result<Self> {
        FormatError::expect_length("the rows", meta.edges_payload_bytes(), edges_payload.len() as u64)?;
        Self::part(meta, sizes, 0, edges_payload, degrees_payload)
    }

    /// Rows with only a part of the payload of `edges`, from byte `first` of it on. A row is in the part if the part
    /// has its [`RowPlace::extent`] and [`PADDING_BYTES`] after it. Rows outside the part can be located, and are
    /// empty.
    ///
    /// # Panics
    /// If the sizes are for other files, or the part is not within the payload.
    pub fn part(
        meta: &RowsMeta,
        sizes: &'a RowSizes,
        first: u64,
        part: &'a [u8],
        degrees_payload: &'a [u8],
    ) -> Result<Self> {
        let source_max = meta.universe.saturating_sub(1);
        assert!((sizes.codec, sizes.source_max) == (mem::discriminant(&meta.codec), source_max), "sizes of other rows");
        let end = first + part.len() as u64;
        assert!(end <= meta.edges_payload_bytes(), "bytes {first}..{end} of {}", meta.edges_payload_bytes());
        let padding = end.saturating_sub(PADDING_BYTES as u64).max(first);
        Ok(Self {
            meta: *meta,
            source_max,
            payload: part,
            bits: 8 * first..meta.edge_bits.min(8 * padding),
            directory: Directory::new(degrees_payload, meta.rows, meta.exceptions, &sizes.table)?,
        })
    }

    /// The number of sources of a row. The directory has it, except in gap code, where the row starts with it.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn degree(&self, row: u64) -> u64 {
        assert!(row < self.meta.rows, "row {row} of {}", self.meta.rows);
        match self.meta.codec {
            RowCodec::EliasFano | RowCodec::ByTime => self.directory.code(row),
            RowCodec::Gap(_) => self.row(row).degree(),
        }
    }

    /// Where a row is. Needs the row's line of the directory; the row itself is not touched.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn locate(&self, row: u64) -> RowPlace {
        assert!(row < self.meta.rows, "row {row} of {}", self.meta.rows);
        self.place(row, self.directory.place(row, |code| self.exception_bits(code)))
    }

    #[inline(always)]
    fn place(&self, row: u64, place: RowEntry) -> RowPlace {
        RowPlace { row, place, shape: self.meta.codec.shape(place.code, self.source_max) }
    }

    /// The row at a place that [`Rows::locate`] of these rows returned.
    #[inline(always)]
    pub fn row_at(&self, place: &RowPlace) -> Row<'a> {
        let RowPlace { row, place, shape } = *place;
        let start = place.start.saturating_sub(self.bits.start);
        let end = start + place.bits;
        let damaged = place.start < self.bits.start || place.start + place.bits > self.bits.end;
        Row(match self.meta.codec {
            codec @ (RowCodec::EliasFano | RowCodec::ByTime) => {
                let damaged = damaged || place.code > self.meta.edges;
                let degree = if damaged { 0 } else { place.code };
                let row = EliasFanoRow::new(self.payload, start, degree, shape, self.source_max);
                if codec == RowCodec::ByTime { RowIn::ByTime(row) } else { RowIn::EliasFano(row) }
            }
            RowCodec::Gap(code) => {
                let end = if damaged { start } else { end };
                let node = self.meta.first_node + row;
                let (source_max, edges) = (self.source_max, self.meta.edges);
                RowIn::Gap(GapRow::new(self.payload, code, node, source_max, edges, start, end))
            }
        })
    }

    /// A row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&self, row: u64) -> Row<'a> {
        self.row_at(&self.locate(row))
    }

    /// Successive rows, faster than with [`Rows::row`].
    ///
    /// # Panics
    /// If the range ends beyond the last row.
    pub fn range(&self, rows: Range<u64>) -> impl Iterator<Item = Row<'a>> + '_ {
        assert!(rows.end <= self.meta.rows, "rows {rows:?} of {}", self.meta.rows);
        rows.clone()
            .zip(self.directory.places(rows, |code| self.exception_bits(code)))
            .map(|(row, place)| self.row_at(&self.place(row, place)))
    }

    /// The payload of `edges`, or the part of it that is in memory.
    pub fn edges_payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The payload of `degrees`.
    pub fn degrees_payload(&self) -> &'a [u8] {
        self.directory.payload
    }

    /// Byte range of a row's line in the payload of `degrees`. Prefetch it before [`Rows::locate`].
    #[inline]
    pub fn directory_line(&self, row: u64) -> Range<usize> {
        let at = (row / LINE_ROWS) as usize * LINE_BYTES;
        at..at + LINE_BYTES
    }

    /// Another byte in the payload of `degrees` that [`Rows::locate`] of a row touches, if an earlier row in the line
    /// is long. Prefetch it when the line is in the cache. It may be beyond the end.
    #[inline(always)]
    pub fn directory_touches(&self, row: u64) -> usize {
        self.directory.exceptions_at(row)
    }

    /// The size of a row whose code is too large for the table.
    fn exception_bits(&self, code: u64) -> u64 {
        self.meta.codec.row_bits(code, self.source_max)
    }
}

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    row: u64,
    place: RowEntry,
    /// Its layout, except in gap code.
    shape: Shape,
}

impl RowPlace {
    /// Which row it is.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// The bytes in the payload of `edges` that contain the row. Prefetch them before [`Rows::row_at`]. In a damaged
    /// file, they may be beyond the end.
    #[inline]
    pub fn extent(&self) -> Range<u64> {
        self.place.start / 8..(self.place.start + self.place.bits).div_ceil(8)
    }

    /// Number of bytes at the start of the row that a lookup of any source reads first. Prefetch them in a long row
    /// before [`Row::touches`], which reads them.
    #[inline]
    pub fn head_bytes(&self) -> u64 {
        self.shape.head_bits(self.place.code).div_ceil(8)
    }
}

/// The size in bits of a row in Elias-Fano code. It depends only on `degree` and on `source_max`, the largest possible
/// source.
pub fn elias_fano_bits(degree: u64, source_max: u64) -> u64 {
    Shape::for_degree(degree, source_max).row_bits(degree)
}

/// The sources of one node, compressed.
///
/// ```
/// use grappa_formats::rows::{RowCodec, RowSizes, Rows, RowsEncoder};
///
/// # let mut encoder = RowsEncoder::new(RowCodec::EliasFano, 1000, 0);
/// # encoder.push(&[2, 7, 7, 999]);
/// # let mut edges = encoder.take_bytes();
/// # let tail = encoder.finish();
/// # edges.extend(tail.edges_payload_rest);
/// # let sizes = RowSizes::from_meta(&tail.meta);
/// # let rows = Rows::new(&tail.meta, &sizes, &edges, &tail.degrees_payload)?;
/// let row = rows.row(0); // 2, 7, 7, 999
/// assert_eq!((row.degree(), row.get(1)), (4, 7));
/// assert_eq!(row.lower_bound(8), 3); // sources below 8
/// let mut picked = Vec::new();
/// row.get_many(&[0, 3], &mut picked);
/// assert_eq!(picked, [2, 999]);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Row<'a>(RowIn<'a>);

#[derive(Debug, Clone, Copy)]
enum RowIn<'a> {
    EliasFano(EliasFanoRow<'a>),
    /// Sources that are stored whole, in the order of time.
    ByTime(EliasFanoRow<'a>),
    Gap(GapRow<'a>),
}

impl<'a> Row<'a> {
    /// A row without sources.
    pub fn empty() -> Self {
        Self(RowIn::EliasFano(EliasFanoRow::new(&[], 0, 0, Shape::default(), 0)))
    }

    /// The number of sources.
    #[inline]
    pub fn degree(&self) -> u64 {
        match &self.0 {
            RowIn::EliasFano(row) | RowIn::ByTime(row) => row.degree(),
            RowIn::Gap(row) => row.degree(),
        }
    }

    /// Whether there are no sources.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.degree() == 0
    }

    /// Source number `k` of the row.
    ///
    /// # Panics
    /// If there is no such source.
    #[inline]
    pub fn get(&self, k: u64) -> u64 {
        assert!(k < self.degree(), "source {k} of {}", self.degree());
        match &self.0 {
            RowIn::EliasFano(row) | RowIn::ByTime(row) => row.get(k),
            RowIn::Gap(row) => row.get(k),
        }
    }

    /// Some bytes of the payload of `edges` that reading source number `k` certainly or probably touches. Prefetch them
    /// in long rows. A byte may be listed twice, and may be beyond the end. Reads the head of the row.
    #[inline]
    pub fn touches(&self, k: u64) -> [u64; 4] {
        match &self.0 {
            RowIn::EliasFano(row) | RowIn::ByTime(row) => row.touches(k),
            RowIn::Gap(row) => row.touches(k),
        }
    }

    /// Appends the sources at `positions` to `out`. Positions ascend and may repeat.
    ///
    /// # Panics
    /// If a position is not below the degree; in gap code also if positions do not ascend.
    #[inline(always)]
    pub fn get_many(&self, positions: &[u64], out: &mut Vec<u64>) {
        self.get_many_as(positions, out, |source| source);
    }

    /// As [`Row::get_many`], but appends `make(source)` for each source.
    #[inline(always)]
    pub fn get_many_as<T: Copy>(&self, positions: &[u64], out: &mut Vec<T>, make: impl Fn(u64) -> T) {
        let largest = positions.iter().fold(0, |largest, &k| largest.max(k));
        assert!(largest < self.degree() || positions.is_empty(), "positions {positions:?} of {}", self.degree());
        match &self.0 {
            RowIn::EliasFano(row) | RowIn::ByTime(row) => row.get_many(positions, out, make),
            RowIn::Gap(row) => {
                assert!(positions.is_sorted(), "positions {positions:?}");
                row.get_many(positions, out, make);
            }
        }
    }

    /// Appends all sources to `out`.
    #[inline]
    pub fn decode_into(&self, out: &mut Vec<u64>) {
        match &self.0 {
            RowIn::EliasFano(row) | RowIn::ByTime(row) => row.decode_into(out),
            RowIn::Gap(row) => row.decode_into(out),
        }
    }

    /// The sources, one by one.
    #[inline]
    pub fn iter(&self) -> RowIter<'a> {
        let sources = match &self.0 {
            RowIn::EliasFano(row) | RowIn::ByTime(row) => Sources::EliasFano(*row, row.upper()),
            RowIn::Gap(row) => Sources::Gap((!self.is_empty()).then(|| row.walker(0))),
        };
        RowIter { sources, positions: 0..self.degree() }
    }

    /// Whether the sources are in the order of time. Otherwise they ascend.
    #[inline]
    pub fn is_by_time(&self) -> bool {
        matches!(self.0, RowIn::ByTime(_))
    }

    /// The index of the first source that is at least `node`; the degree if there is none. Clips a row to a chunk.
    ///
    /// # Panics
    /// If sources are in the order of time.
    #[inline]
    pub fn lower_bound(&self, node: u64) -> u64 {
        match &self.0 {
            RowIn::EliasFano(row) => row.lower_bound(node),
            RowIn::ByTime(_) => panic!("a search for source {node} in a row whose sources do not ascend"),
            RowIn::Gap(row) => row.lower_bound(node),
        }
    }
}

/// The sources of a row, one by one.
#[derive(Debug, Clone)]
pub struct RowIter<'a> {
    sources: Sources<'a>,
    /// Of the sources that were not read.
    positions: Range<u64>,
}

#[derive(Debug, Clone)]
enum Sources<'a> {
    EliasFano(EliasFanoRow<'a>, Upper<'a>),
    /// `None` for an empty row.
    Gap(Option<Walker<'a>>),
}

impl Iterator for RowIter<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let k = self.positions.next()?;
        match &mut self.sources {
            Sources::EliasFano(row, upper) => Some(row.next(upper, k)),
            Sources::Gap(walker) => {
                let walker = walker.as_mut()?;
                walker.advance_to(k);
                Some(walker.source)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.positions.size_hint()
    }
}

impl ExactSizeIterator for RowIter<'_> {}
