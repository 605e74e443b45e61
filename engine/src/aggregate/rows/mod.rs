//! One row of values for each node of a set.

mod growing;
mod scan;
mod states;
mod stored;

use std::ops::Range;

use grappa_formats::{ChunkId, NodeId, chunks::ChunkMap, features::FeatureLayout, manifest::FeatureDtype};
use grappa_io::{Result, workers};
use grappa_sampling::NodeSet;
use grappa_storage::{MappedChunks, Store};

pub use self::{
    growing::{GrowingRows, RowsWriter},
    scan::{RowScan, ScannedColumn, ScannedPart},
    states::StateRows,
    stored::{StoredRows, store_features},
};

/// Bytes of stored rows that are read at a time before they are decoded.
const READ_BYTES: usize = 1 << 20;
/// Reads that the system is asked for before they are needed.
const READS_AHEAD: usize = 16;
/// Rows that are at most this far apart are read together. Reading the bytes in between costs about as much as another read.
const GAP_BYTES: usize = 16 << 10;
/// Places of rows that are in memory at a time.
const PLACES: usize = 1 << 16;
/// Reading fewer rows takes less time than starting a thread.
const ROWS_PER_THREAD: usize = 1 << 10;

/// Rows of f32 in memory.
#[derive(Debug, Clone, Copy)]
pub struct RowValues<'a> {
    /// The numbers of all rows.
    pub values: &'a [f32],
    /// How many there are from the start of a row to the start of the next one.
    pub stride: usize,
}

impl<'a> RowValues<'a> {
    /// The first `width` values of the row at a position.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(self, position: u64, width: usize) -> &'a [f32] {
        &self.values[self.start(position)..][..width]
    }

    /// Where the row at a position starts.
    #[inline]
    pub(crate) fn start(self, position: u64) -> usize {
        position as usize * self.stride
    }
}

/// A row of values for each node of a [`NodeSet`], by position. Where nothing is said, it is the set of all nodes of a store.
pub trait NodeRows: Sync {
    /// Values in a row.
    fn width(&self) -> usize;

    /// Reads the rows at some positions into `out`, whose length is exactly theirs.
    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()>;

    /// How [`NodeRows::read_encoded`] encodes rows. By default they are f32 without padding.
    fn layout(&self) -> FeatureLayout {
        rows_of(self.width(), FeatureDtype::F32)
    }

    /// Reads the rows at some positions in their encoding. `out` has exactly their bytes, from a multiple of 4 on.
    fn read_encoded(&self, positions: Range<u64>, out: &mut [u8]) -> Result<()> {
        self.read(positions, bytemuck::cast_slice_mut(out))
    }

    /// Asks the system to read the rows at some positions into its cache, if they are in files.
    fn read_ahead(&self, _positions: Range<u64>) {}

    /// Number of bytes that are read from files for all rows. By default none.
    fn file_bytes(&self) -> u64 {
        0
    }

    /// All rows, if they are f32 in memory.
    fn in_memory(&self) -> Option<RowValues<'_>> {
        None
    }

    /// The files of the rows, if these are all rows of a store as they are in its files.
    fn stored(&self) -> Option<&StoredRows<'_>> {
        None
    }

    /// The end of the file with the row at a position. Rows of several files are not read together, because a slice may lack a file between
    /// them.
    fn file_end(&self, _position: u64) -> u64 {
        u64::MAX
    }
}

/// Reads the rows at ascending `positions` on `threads` threads into `out`, whose length is exactly theirs. Positions that are
/// close to each other are read together, with the rows between them.
///
/// # Errors
/// If files cannot be read.
pub fn read_each(rows: &dyn NodeRows, positions: &[u64], out: &mut [f32], threads: usize) -> Result<()> {
    let (width, layout) = (rows.width(), rows.layout());
    assert_eq!(out.len(), positions.len() * width, "room for the rows");
    in_parts(positions, out, width, threads, |positions, out| {
        if let Some(values) = rows.in_memory() {
            for (&position, out) in positions.iter().zip(out.chunks_exact_mut(width)) {
                out.copy_from_slice(values.row(position, width));
            }
            return Ok(());
        }
        let mut out = out.chunks_exact_mut(width);
        visit(rows, positions, |row| {
            layout.decode_row(row, out.next().expect("room for the rows"));
        })
    })
}

/// Asks the system to read the rows at ascending positions into its cache, as [`read_each`] will read them. So the disk is busy while the
/// caller computes.
pub fn read_each_ahead(rows: &dyn NodeRows, positions: &[u64]) {
    if rows.file_bytes() > 0 {
        ReadRuns::from_positions(rows, positions, READ_BYTES)
            .for_each(|(first, last, _)| rows.read_ahead(first..last + 1));
    }
}

/// As [`read_each`], but the rows stay encoded.
pub(crate) fn read_each_encoded(rows: &dyn NodeRows, positions: &[u64], out: &mut [u8], threads: usize) -> Result<()> {
    let stride = rows.layout().stride as usize;
    assert_eq!(out.len(), positions.len() * stride, "room for the rows");
    in_parts(positions, out, stride, threads, |positions, out| {
        let mut out = out.chunks_exact_mut(stride);
        visit(rows, positions, |row| {
            out.next().expect("room for the rows").copy_from_slice(row);
        })
    })
}

/// Calls `read` on each of `threads` threads with a part of the positions and of `out`, which has `row` items for a position.
fn in_parts<T: Send>(
    positions: &[u64],
    out: &mut [T],
    row: usize,
    threads: usize,
    read: impl Fn(&[u64], &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    if threads <= 1 || positions.len() < ROWS_PER_THREAD {
        return read(positions, out);
    }
    let part = positions.len().div_ceil(threads);
    let parts = positions.chunks(part).zip(out.chunks_mut(part * row));
    workers::each(parts, |(positions, out)| read(positions, out)).map(drop)
}

/// Calls `read` on each of `threads` threads with a part of successive positions from `first` on and of `out`, which has `row` items for a
/// position.
pub(super) fn in_ranges<T: Send>(
    first: u64,
    out: &mut [T],
    row: usize,
    threads: usize,
    read: impl Fn(Range<u64>, &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let part = (out.len() / row).div_ceil(threads).max(1);
    let parts = (first..).step_by(part).zip(out.chunks_mut(part * row));
    workers::each(parts, |(first, out)| read(first..first + (out.len() / row) as u64, out)).map(drop)
}

/// Passes the encoded row at each of the ascending positions to `each`.
fn visit(rows: &dyn NodeRows, positions: &[u64], mut each: impl FnMut(&[u8])) -> Result<()> {
    let stride = rows.layout().stride as usize;
    let mut bytes = Vec::<u32>::new();
    let (reads, mut ahead) =
        (ReadRuns::from_positions(rows, positions, READ_BYTES), ReadRuns::from_positions(rows, positions, READ_BYTES));
    let mut read_ahead = || {
        if let Some((first, last, _)) = ahead.next() {
            rows.read_ahead(first..last + 1);
        }
    };
    (0..READS_AHEAD).for_each(|_| read_ahead());
    for (first, last, run_rows) in reads {
        read_ahead();
        let count = (last - first + 1) as usize;
        bytes.resize(count * stride / size_of::<u32>(), 0);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut bytes);
        rows.read_encoded(first..last + 1, bytes)?;
        run_rows.iter().for_each(|position| each(&bytes[(position - first) as usize * stride..][..stride]));
    }
    Ok(())
}

/// Cuts ascending positions into runs that are read together: the first and the last position of each, and all of them.
struct ReadRuns<'a> {
    rows: &'a dyn NodeRows,
    positions: &'a [u64],
    gap: u64,
    most: u64,
}

impl<'a> ReadRuns<'a> {
    /// Runs of at most `bytes_max` bytes, or of one row.
    fn from_positions(rows: &'a dyn NodeRows, positions: &'a [u64], bytes_max: usize) -> Self {
        let stride = rows.layout().stride as usize;
        Self { rows, positions, gap: (GAP_BYTES / stride).max(1) as u64, most: (bytes_max / stride).max(1) as u64 }
    }
}

impl<'a> Iterator for ReadRuns<'a> {
    type Item = (u64, u64, &'a [u64]);

    fn next(&mut self) -> Option<Self::Item> {
        let &first = self.positions.first()?;
        let bound = self.rows.file_end(first).min(first.saturating_add(self.most));
        let mut end = 1;
        while let Some(&next) = self.positions.get(end)
            && next - self.positions[end - 1] <= self.gap
            && next < bound
        {
            end += 1;
        }
        let (run, rest) = self.positions.split_at(end);
        self.positions = rest;
        Some((first, run[end - 1], run))
    }
}

/// Reads the rows at successive positions of rows that are encoded, [`READ_BYTES`] at a time.
fn read_decoded(rows: &dyn NodeRows, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
    check_room(&positions, rows.width(), out);
    let (layout, width) = (rows.layout(), rows.width());
    let piece = (READ_BYTES / layout.stride as usize).max(1);
    let mut bytes = Vec::<u32>::new();
    for (values, first) in out.chunks_mut(piece * width).zip(positions.step_by(piece)) {
        let count = values.len() / width;
        bytes.resize(count * layout.stride as usize / size_of::<u32>(), 0);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut bytes);
        rows.read_encoded(first..first + count as u64, bytes)?;
        layout.decode_rows(bytes, values);
    }
    Ok(())
}

/// The layout of rows of `width` values. Rows of f32 follow each other without padding, so that they are a matrix.
fn rows_of(width: usize, dtype: FeatureDtype) -> FeatureLayout {
    let mut layout = FeatureLayout::new(dtype, width as u32);
    if dtype == FeatureDtype::F32 {
        layout.stride = layout.row_bytes() as u32;
    }
    layout
}

/// The rows of the nodes of a set, from rows of all nodes.
pub struct SelectedRows<'a> {
    /// The rows of all nodes.
    pub rows: &'a dyn NodeRows,
    /// The nodes whose rows these are.
    pub set: &'a NodeSet,
}

impl SelectedRows<'_> {
    /// Passes the places of the rows at some positions in the list of all nodes to `read`, [`PLACES`] at a time with their part of `out`.
    fn each_places<T>(
        &self,
        positions: Range<u64>,
        out: &mut [T],
        mut read: impl FnMut(&[u64], &mut [T]) -> Result<()>,
    ) -> Result<()> {
        let row = out.len() / (positions.end - positions.start).max(1) as usize;
        let mut nodes = Vec::new();
        for first in positions.clone().step_by(PLACES) {
            nodes.clear();
            self.set.nodes_at(first..positions.end.min(first + PLACES as u64), &mut nodes);
            let places: Vec<u64> = nodes.iter().map(|node| node.0).collect();
            let at = (first - positions.start) as usize * row;
            read(&places, &mut out[at..at + places.len() * row])?;
        }
        Ok(())
    }
}

impl NodeRows for SelectedRows<'_> {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
        if self.set.is_all() {
            return self.rows.read(positions, out);
        }
        self.each_places(positions, out, |places, out| read_each(self.rows, places, out, 1))
    }

    fn layout(&self) -> FeatureLayout {
        self.rows.layout()
    }

    fn read_encoded(&self, positions: Range<u64>, out: &mut [u8]) -> Result<()> {
        if self.set.is_all() {
            return self.rows.read_encoded(positions, out);
        }
        self.each_places(positions, out, |places, out| read_each_encoded(self.rows, places, out, 1))
    }

    fn file_bytes(&self) -> u64 {
        let row = u64::from(self.rows.layout().stride) + GAP_BYTES as u64;
        self.rows.file_bytes().min(self.set.len().saturating_mul(row))
    }

    fn in_memory(&self) -> Option<RowValues<'_>> {
        self.rows.in_memory().filter(|_| self.set.is_all())
    }
}

fn check_room(nodes: &Range<u64>, width: usize, out: &[f32]) {
    let values = (nodes.end - nodes.start) * width as u64;
    assert_eq!(out.len() as u64, values, "room for the rows");
}

/// Rows times 1 / sqrt(in-degree + 1) of their nodes, or with the sum of the weights of in-edges for the in-degree. GCN's symmetric
/// normalization with self-loops (Kipf and Welling, arXiv 1609.02907, eq. 2) is this factor, a sum, and the same factor again.
pub struct ScaledRows<'a> {
    rows: &'a dyn NodeRows,
    scale: Scale<'a>,
}

/// The numbers that rows are scaled by.
enum Scale<'a> {
    Degrees(MappedChunks),
    WeightSums(&'a [f32]),
}

impl<'a> ScaledRows<'a> {
    /// Scales `rows` by the degrees of the nodes of `store`.
    pub fn new(rows: &'a dyn NodeRows, store: &'a Store) -> Result<Self> {
        Ok(Self { rows, scale: Scale::Degrees(MappedChunks::open(store)?) })
    }

    /// Scales `rows` by the sums of the weights of each node's in-edges.
    pub fn by_weights(rows: &'a dyn NodeRows, sums: &'a [f32]) -> Self {
        Self { rows, scale: Scale::WeightSums(sums) }
    }

    /// The factor of a node with `degree` in-edges.
    pub fn factor(degree: u64) -> f32 {
        ((degree + 1) as f32).sqrt().recip()
    }

    /// The factor of a node whose in-edges have weights with this sum.
    pub fn weighted_factor(sum: f32) -> f32 {
        (sum + 1.0).sqrt().recip()
    }
}

impl NodeRows for ScaledRows<'_> {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        self.rows.read(nodes.clone(), out)?;
        let mut values = out.chunks_exact_mut(self.width());
        let chunks = match &self.scale {
            Scale::Degrees(chunks) => chunks,
            Scale::WeightSums(sums) => {
                let sums = &sums[nodes.start as usize..nodes.end as usize];
                sums.iter().zip(values).for_each(|(&sum, values)| scale(values, Self::weighted_factor(sum)));
                return Ok(());
            }
        };
        for (chunk, rows) in pieces(chunks.map(), nodes) {
            let adjacency = chunks[chunk].rows();
            for (degree, values) in adjacency.degrees(rows.clone()).zip(&mut values) {
                scale(values, Self::factor(degree?));
            }
            chunks.release_rows(chunk, rows);
        }
        Ok(())
    }

    fn read_ahead(&self, nodes: Range<u64>) {
        self.rows.read_ahead(nodes);
    }

    fn file_bytes(&self) -> u64 {
        self.rows.file_bytes()
    }

    fn file_end(&self, node: u64) -> u64 {
        self.rows.file_end(node)
    }
}

fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|value| *value *= factor);
}

/// The concatenation of two rows of each node.
pub struct Beside<'a>(pub &'a dyn NodeRows, pub &'a dyn NodeRows);

impl NodeRows for Beside<'_> {
    fn width(&self) -> usize {
        self.0.width() + self.1.width()
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        check_room(&nodes, self.width(), out);
        let piece = (READ_BYTES / 4 / self.width()).max(1);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for (out, first) in out.chunks_mut(piece * self.width()).zip(nodes.clone().step_by(piece)) {
            let nodes = first..(first + piece as u64).min(nodes.end);
            for (rows, values) in [(self.0, &mut one), (self.1, &mut other)] {
                values.resize((nodes.end - nodes.start) as usize * rows.width(), 0.0);
                rows.read(nodes.clone(), values)?;
            }
            let rows = out.chunks_exact_mut(self.width());
            let parts = one.chunks_exact(self.0.width()).zip(other.chunks_exact(self.1.width()));
            for (out, (one, other)) in rows.zip(parts) {
                let (first, second) = out.split_at_mut(one.len());
                first.copy_from_slice(one);
                second.copy_from_slice(other);
            }
        }
        Ok(())
    }

    fn file_end(&self, node: u64) -> u64 {
        self.0.file_end(node).min(self.1.file_end(node))
    }
}

/// Cuts a range of nodes at the boundaries of chunks: each chunk, and the range of rows in it.
pub(crate) fn pieces(map: &ChunkMap, nodes: Range<u64>) -> impl Iterator<Item = (ChunkId, Range<u64>)> + '_ {
    let mut at = nodes.start;
    std::iter::from_fn(move || {
        (at < nodes.end).then(|| {
            let chunk = map.chunk_of(NodeId(at));
            let range = map.range(chunk);
            let end = range.end.min(nodes.end);
            let rows = at - range.start..end - range.start;
            at = end;
            (chunk, rows)
        })
    })
}
