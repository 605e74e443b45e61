//! Access to the mapped files of a chunk that checks checksums first.
//!
//! The decoders of `grappa_formats` trust their payload as far as that is safe. The types here hold a decoder and its files.
//! Before they decode, they compare the blocks that the call touches with their checksums. So damage is an error that names
//! the file and offset, and never wrong data. Each block is compared once, on its first use.
//!
//! A *row* in this module is the index of a node in its chunk. The *directory* is the file `degrees`, which locates the
//! adjacency list of a row; it consists of *lines* of [`LINE_ROWS`] rows with *exceptions* for large degrees.

use std::{ops::Range, path::Path};

use grappa_formats::{
    edge_rows::{ANCHOR_ROWS, EdgeRows, EdgeRowsMeta},
    rows::{LINE_BYTES, LINE_ROWS, Row, RowPlace, Rows, RowsMeta},
};
use grappa_io::{Error, Result, container::MappedPayload, prefetch::prefetch};

/// Number of rows that are checked before the first of them is decoded: whole lines of the directory.
const ROWS_AT_A_TIME: u64 = 64 * LINE_ROWS;
/// The maximum number of bytes of the exceptions of a line.
const EXCEPTIONS_BYTES: u64 = 6 * LINE_ROWS;

/// Checks the lines of the rows from `first` to `last`, and their exceptions.
pub(super) fn check_lines(rows: &Rows<'_>, degrees: &MappedPayload, first: u64, last: u64) -> Result<()> {
    assert!(last < rows.meta.rows, "row {last} of {}", rows.meta.rows);
    let [start, end] = [first, last].map(|row| row / LINE_ROWS * LINE_BYTES as u64);
    degrees.check(start..end + LINE_BYTES as u64)?;
    let [start, end] = [first, last].map(|row| rows.directory_touches(row) as u64);
    degrees.check(start..end + EXCEPTIONS_BYTES)
}

/// The adjacency lists of a chunk.
#[derive(Debug, Clone)]
pub struct CheckedAdjacency<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) edges: &'a MappedPayload,
    pub(super) degrees: &'a MappedPayload,
}

impl<'a> CheckedAdjacency<'a> {
    /// The metadata of the adjacency lists.
    pub fn meta(&self) -> &RowsMeta {
        &self.rows.meta
    }

    /// The number of rows: the nodes of the chunk.
    pub fn rows(&self) -> u64 {
        self.rows.meta.rows
    }

    /// The number of edges of all rows.
    pub fn edges(&self) -> u64 {
        self.rows.meta.edges
    }

    /// The adjacency list of a row: its sources, ascending, or in the order of time if edges have times.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: u64) -> Result<Row<'a>> {
        let place = self.locate(row)?;
        self.check_row(&place)?;
        Ok(self.rows.row_at(&place))
    }

    /// The bytes of a row's adjacency list in the payload of `edges`. Its first and last byte may be shared with other rows.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn extent(&self, row: u64) -> Result<Range<u64>> {
        Ok(self.locate(row)?.extent())
    }

    /// The in-degree of a row. With Elias-Fano coding, this does not touch the adjacency list.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn degree(&self, row: u64) -> Result<u64> {
        if self.has_degrees_in_rows() {
            return Ok(self.row(row)?.degree());
        }
        self.check_lines(row, row)?;
        Ok(self.rows.degree(row))
    }

    /// The adjacency lists of successive rows. Faster than [`CheckedAdjacency::row`] for each. After an error, the next items
    /// are undefined.
    ///
    /// # Panics
    /// If `rows` is out of range.
    pub fn range(&self, rows: Range<u64>) -> impl Iterator<Item = Result<Row<'a>>> + '_ {
        self.range_after(rows, Self::check_range)
    }

    /// The in-degrees of successive rows. Faster than [`CheckedAdjacency::degree`] for each; with Elias-Fano coding, it does not touch
    /// the adjacency lists either. After an error, the next items are undefined.
    ///
    /// # Panics
    /// If `rows` is out of range.
    pub fn degrees(&self, rows: Range<u64>) -> impl Iterator<Item = Result<u64>> + '_ {
        let rows = self.range_after(rows, Self::check_degrees);
        rows.map(|row| Ok(row?.degree()))
    }

    /// Successive rows, some at a time. `check` checks these before the first of them is decoded.
    fn range_after<'s>(
        &'s self,
        rows: Range<u64>,
        check: impl Fn(&Self, Range<u64>) -> Result<()> + 's,
    ) -> impl Iterator<Item = Result<Row<'a>>> + 's {
        assert!(rows.end <= self.rows(), "rows {rows:?} of {}", self.rows());
        let mut next = rows.start;
        let parts = std::iter::from_fn(move || {
            let end = rows.end.min((next / ROWS_AT_A_TIME + 1) * ROWS_AT_A_TIME);
            let part = next..end;
            next = end;
            (!part.is_empty()).then_some(part)
        });
        parts.flat_map(move |part| {
            let checked = check(self, part.clone());
            let rows = if checked.is_ok() { part } else { 0..0 };
            checked.err().map(Err).into_iter().chain(self.rows.range(rows).map(Ok))
        })
    }

    /// Checks everything that decoding successive rows touches.
    fn check_range(&self, rows: Range<u64>) -> Result<()> {
        let (first, last) = (rows.start, rows.end - 1);
        self.check_lines(first, last)?;
        let (start, end) = (self.rows.locate(first).extent().start, self.rows.locate(last).extent().end);
        self.edges.check(start..end)
    }

    fn check_lines(&self, first: u64, last: u64) -> Result<()> {
        check_lines(&self.rows, self.degrees, first, last)
    }

    /// Asks the system to read the directory's entry of a row into its cache.
    pub fn read_ahead_directory(&self, row: u64) {
        let line = self.rows.directory_line(row);
        self.degrees.read_ahead_part(line.start as u64..line.end as u64);
    }

    /// Asks the system to read an adjacency list into its cache.
    pub fn read_ahead_row(&self, place: &RowPlace) {
        self.edges.read_ahead_part(place.extent());
    }

    fn locate(&self, row: u64) -> Result<RowPlace> {
        self.check_lines(row, row)?;
        Ok(self.rows.locate(row))
    }

    /// Whether in-degrees are at the start of adjacency lists, and not in the directory.
    pub(super) fn has_degrees_in_rows(&self) -> bool {
        !self.meta().codec.has_degrees_in_directory()
    }

    /// Checks everything that reading the in-degrees of these rows touches.
    fn check_degrees(&self, rows: Range<u64>) -> Result<()> {
        if self.has_degrees_in_rows() {
            return self.check_range(rows);
        }
        self.check_lines(rows.start, rows.end - 1)
    }

    /// The decoder. Before a call of it, check what it touches: [`CheckedAdjacency::check_line`],
    /// [`CheckedAdjacency::check_exceptions`], [`CheckedAdjacency::check_row`]. The sampler does that for many rows at once, to
    /// overlap cache misses.
    pub fn unchecked(&self) -> &Rows<'a> {
        &self.rows
    }

    /// Checks the line of a row, which [`Rows::directory_touches`] reads.
    #[inline(always)]
    pub fn check_line(&self, row: u64) -> Result<()> {
        let start = row / LINE_ROWS * LINE_BYTES as u64;
        self.degrees.check(start..start + LINE_BYTES as u64)
    }

    /// Checks the exceptions of a row's line, which [`Rows::locate`] reads too. The line must have been checked.
    #[inline(always)]
    pub fn check_exceptions(&self, row: u64) -> Result<()> {
        let start = self.rows.directory_touches(row) as u64;
        self.degrees.check(start..start + EXCEPTIONS_BYTES)
    }

    /// Checks the adjacency list at a place.
    #[inline(always)]
    pub fn check_row(&self, place: &RowPlace) -> Result<()> {
        self.edges.check(place.extent())
    }
}

/// The rows of a chunk's edges: weights, or edge features.
#[derive(Debug, Clone, Copy)]
pub struct CheckedEdgeRows<'a> {
    pub(super) rows: EdgeRows<'a>,
    pub(super) file: &'a MappedPayload,
}

impl<'a> CheckedEdgeRows<'a> {
    /// The metadata of the file.
    pub fn meta(&self) -> &EdgeRowsMeta {
        &self.rows.meta
    }

    /// The indices of a row's edges in the chunk. `rows` are the adjacency lists of the same chunk.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn range(&self, row: u64, rows: &CheckedAdjacency<'_>) -> Result<Range<u64>> {
        let anchor = row / ANCHOR_ROWS;
        let anchors = self.meta().place_of_anchors();
        let entry = anchors.start + 8 * anchor;
        self.file.check(entry..entry + 8)?;
        rows.check_degrees(anchor * ANCHOR_ROWS..row + 1)?;
        self.rows.range(row, |row| rows.unchecked().degree(row)).map_err(Error::format(self.path()))
    }

    /// Asks the system to read the rows of `edges` into its cache.
    pub fn read_ahead(&self, edges: Range<u64>) {
        self.file.read_ahead_part(self.meta().place_of(edges));
    }

    /// Releases the memory of the rows of `edges`.
    pub(super) fn release(&self, edges: Range<u64>) {
        let Range { start, end } = self.meta().place_of(edges);
        self.file.release(start..end);
    }

    /// Prefetches the row of an edge.
    ///
    /// # Panics
    /// If there is no such edge.
    #[inline]
    pub fn prefetch(&self, edge: u64) {
        let row = self.rows.rows(edge..edge + 1);
        for byte in (0..row.len()).step_by(64) {
            prefetch(row, byte);
        }
        // Rows do not start at cache lines.
        prefetch(row, row.len() - 1);
    }

    /// The encoded rows of `edges`, each with its padding.
    ///
    /// # Panics
    /// If `edges` is out of range.
    #[inline]
    pub fn encoded(&self, edges: Range<u64>) -> Result<&'a [u8]> {
        self.file.check(self.meta().place_of(edges.clone()))?;
        Ok(self.rows.rows(edges))
    }

    /// Decodes the rows of `edges` to `out`.
    ///
    /// # Panics
    /// If `edges` is out of range, or `out` has another length.
    #[inline]
    pub fn copy(&self, edges: Range<u64>, out: &mut [f32]) -> Result<()> {
        self.file.check(self.meta().place_of(edges.clone()))?;
        self.rows.copy(edges, out);
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &'a Path {
        self.file.path()
    }
}
