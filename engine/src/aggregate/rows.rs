//! One row of values for each node: stored features, procedural features, or states in a scratch file.

use std::{
    fs::File,
    num::NonZeroU64,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
};

use grappa_formats::{
    ChunkId, NodeId,
    features::{FeatureLayout, FeaturesMeta},
    manifest::{FeatureDtype, FeatureSource},
};
use grappa_io::{Error, Position, Result, arena::Arena, container::ClosedFile, unnamed::unnamed_file, workers};
use grappa_storage::{Chunk, Store, aggregates::Aggregates, files, no_features};
use grappa_synthetic::{Features, Generator, Recipe};
use rustix::fs::{Advice, fadvise};

use super::NodeSet;

/// Bytes of stored rows that are read at a time before they are decoded.
const READ_BYTES: usize = 1 << 20;
/// Rows that are at most this far apart are read together. Reading the bytes in between costs about as much as another read.
const GAP_BYTES: usize = 16 << 10;
/// Reading fewer rows takes less time than starting a thread.
const ROWS_PER_THREAD: usize = 1 << 10;

/// A row of values for each node of a [`NodeSet`], by position. Where nothing is said, it is the set of all nodes of a store.
pub trait NodeRows: Sync {
    /// Values in a row.
    fn width(&self) -> usize;

    /// Reads the rows at some positions into `out`, whose length is exactly theirs.
    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()>;

    /// All rows, if they are in memory.
    fn in_memory(&self) -> Option<&[f32]> {
        None
    }
}

/// Reads the rows at ascending `positions` on `threads` threads into `out`, whose length is exactly theirs. Positions that are
/// close to each other are read together, with the rows between them.
///
/// # Errors
/// If files cannot be read.
pub fn read_each(rows: &dyn NodeRows, positions: &[u64], out: &mut [f32], threads: usize) -> Result<()> {
    let width = rows.width();
    assert_eq!(out.len(), positions.len() * width, "room for the rows");
    if threads <= 1 || positions.len() < ROWS_PER_THREAD {
        return read_some(rows, positions, out);
    }
    let part = positions.len().div_ceil(threads);
    thread::scope(|scope| {
        let readers: Vec<_> = positions
            .chunks(part)
            .zip(out.chunks_mut(part * width))
            .map(|(positions, out)| workers::spawn(scope, move || read_some(rows, positions, out)))
            .collect::<Result<_>>()?;
        readers.into_iter().try_for_each(workers::join)
    })
}

fn read_some(rows: &dyn NodeRows, positions: &[u64], out: &mut [f32]) -> Result<()> {
    let width = rows.width();
    if let Some(values) = rows.in_memory() {
        for (position, out) in positions.iter().zip(out.chunks_exact_mut(width)) {
            out.copy_from_slice(&values[*position as usize * width..][..width]);
        }
        return Ok(());
    }
    let row_bytes = 4 * width.max(1);
    let (gap, most) = (
        (GAP_BYTES / row_bytes).max(1) as u64,
        (READ_BYTES / row_bytes).max(1) as u64,
    );
    let mut values = Vec::new();
    let (mut start, mut out) = (0, out);
    while let Some(&first) = positions.get(start) {
        let mut end = start + 1;
        while let Some(&next) = positions.get(end)
            && next - positions[end - 1] <= gap
            && next - first < most
        {
            end += 1;
        }
        let last = positions[end - 1];
        let (now, rest) = out.split_at_mut((end - start) * width);
        if last - first == (end - start - 1) as u64 {
            rows.read(first..last + 1, now)?;
        } else {
            values.resize((last - first + 1) as usize * width, 0.0);
            rows.read(first..last + 1, &mut values)?;
            for (position, out) in positions[start..end].iter().zip(now.chunks_exact_mut(width)) {
                out.copy_from_slice(&values[(position - first) as usize * width..][..width]);
            }
        }
        (start, out) = (end, rest);
    }
    Ok(())
}

/// The rows of the nodes of a set, from rows of all nodes.
pub struct SelectedRows<'a> {
    /// The rows of all nodes.
    pub rows: &'a dyn NodeRows,
    /// The nodes whose rows these are.
    pub set: &'a NodeSet,
}

impl NodeRows for SelectedRows<'_> {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
        if self.set.is_all() {
            return self.rows.read(positions, out);
        }
        let mut nodes = Vec::new();
        self.set.nodes_at(positions, &mut nodes);
        let nodes: Vec<u64> = nodes.into_iter().map(|node| node.0).collect();
        read_each(self.rows, &nodes, out, 1)
    }

    fn in_memory(&self) -> Option<&[f32]> {
        self.rows.in_memory().filter(|_| self.set.is_all())
    }
}

/// Rows in memory.
#[derive(Debug)]
pub struct MemoryRows {
    arena: Arena,
    values: usize,
    width: usize,
}

impl MemoryRows {
    /// Makes `rows` rows of `width` zeros.
    ///
    /// # Errors
    /// If the system refuses so much memory.
    pub fn new(rows: u64, width: usize) -> Result<Self> {
        let values = rows as usize * width;
        Ok(Self {
            arena: Arena::new(values * size_of::<f32>())?,
            values,
            width,
        })
    }

    /// All values, row after row.
    pub fn values(&self) -> &[f32] {
        &self.arena.values()[..self.values]
    }

    /// All values, row after row.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.arena.values_mut()[..self.values]
    }
}

impl NodeRows for MemoryRows {
    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
        check_room(&positions, self.width, out);
        out.copy_from_slice(&self.values()[positions.start as usize * self.width..][..out.len()]);
        Ok(())
    }

    fn in_memory(&self) -> Option<&[f32]> {
        Some(self.values())
    }
}

/// The features of a store, stored or procedural.
pub struct StoreFeatures<'a> {
    store: &'a Store,
    width: usize,
    source: Source<'a>,
}

enum Source<'a> {
    Stored(StoredRows<'a>),
    Procedural(Features),
}

/// Rows in one file for each chunk.
pub(crate) struct StoredRows<'a> {
    store: &'a Store,
    files: Vec<ClosedFile>,
    layout: FeatureLayout,
}

impl<'a> StoredRows<'a> {
    /// Rows in `files`, one file for each chunk of `store`. The caller has checked their headers.
    pub fn new(store: &'a Store, files: Vec<ClosedFile>, layout: FeatureLayout) -> Self {
        Self { store, files, layout }
    }
}

impl NodeRows for StoredRows<'_> {
    fn width(&self) -> usize {
        self.layout.dim as usize
    }

    fn read(&self, nodes: Range<u64>, mut out: &mut [f32]) -> Result<()> {
        check_room(&nodes, self.width(), out);
        let (stride, width) = (self.layout.stride as usize, self.width());
        let piece = (READ_BYTES / stride).max(1);
        let mut bytes = Vec::new();
        for (chunk, rows) in pieces(self.store, nodes) {
            let file = self.files[chunk.0 as usize].open()?;
            for first in rows.clone().step_by(piece) {
                let count = piece.min((rows.end - first) as usize);
                bytes.resize(count * stride, 0);
                file.read_at(&mut bytes, first * stride as u64)?;
                let (now, rest) = out.split_at_mut(count * width);
                self.layout.decode_rows(&bytes, now);
                out = rest;
            }
        }
        Ok(())
    }
}

/// The pre-aggregated features of a store.
pub struct AggregateRows<'a>(StoredRows<'a>);

impl<'a> AggregateRows<'a> {
    /// The rows of `aggregates`, which were opened from `store`.
    pub fn new(store: &'a Store, aggregates: Aggregates) -> Self {
        let layout = aggregates.layout();
        Self(StoredRows::new(store, aggregates.into_files(), layout))
    }
}

impl NodeRows for AggregateRows<'_> {
    fn width(&self) -> usize {
        self.0.width()
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        self.0.read(nodes, out)
    }
}

fn check_room(nodes: &Range<u64>, width: usize, out: &[f32]) {
    let values = (nodes.end - nodes.start) * width as u64;
    assert_eq!(out.len() as u64, values, "room for the rows");
}

impl<'a> StoreFeatures<'a> {
    /// Opens the feature files of all chunks.
    ///
    /// # Errors
    /// If the store has no features, is a slice, or its files are damaged.
    pub fn open(store: &'a Store) -> Result<Self> {
        let unlike = |what: &str| Error::input(store.path(), Position::Whole, what);
        let manifest = store.manifest();
        let Some(spec) = &manifest.features else {
            return Err(no_features(store.path()));
        };
        if !manifest.is_whole() {
            return Err(unlike(
                "the store is a slice of its graph, and features of other chunks are missing",
            ));
        }
        let source = match &spec.source {
            FeatureSource::Procedural => {
                let generator = Generator::new(Recipe::from_json(&manifest.generator)?)?;
                Source::Procedural(generator.features(spec.dim as usize))
            }
            FeatureSource::Stored => {
                let open = |chunk: ChunkId| {
                    let file = store.file(&files::of_chunk(chunk, "features"))?;
                    let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(file.path()))?;
                    meta.span
                        .expect(&store.span(chunk)?)
                        .map_err(Error::format(file.path()))?;
                    file.close()
                };
                let layout = FeatureLayout {
                    dtype: spec.dtype,
                    dim: spec.dim,
                    stride: spec.row_stride,
                };
                let files = store.present_chunks().map(open).collect::<Result<_>>()?;
                Source::Stored(StoredRows::new(store, files, layout))
            }
        };
        Ok(Self {
            store,
            width: spec.dim as usize,
            source,
        })
    }
}

impl NodeRows for StoreFeatures<'_> {
    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        check_room(&nodes, self.width, out);
        match &self.source {
            Source::Procedural(features) => {
                for (node, row) in nodes.zip(out.chunks_exact_mut(self.width)) {
                    features.row(self.store.ids().dense_id(NodeId(node))?.0, row);
                }
                Ok(())
            }
            Source::Stored(rows) => rows.read(nodes, out),
        }
    }
}

/// Rows times 1 / sqrt(in-degree + 1) of their nodes. GCN's symmetric normalisation with self-loops (Kipf and Welling, arXiv
/// 1609.02907, eq. 2) is this factor, a sum, and the same factor again.
pub struct ScaledRows<'a> {
    rows: &'a dyn NodeRows,
    store: &'a Store,
    chunks: Vec<Chunk>,
}

impl<'a> ScaledRows<'a> {
    /// Scales `rows` by the degrees of the nodes of `store`.
    pub fn new(rows: &'a dyn NodeRows, store: &'a Store) -> Result<Self> {
        let chunks = store
            .present_chunks()
            .map(|chunk| store.chunk(chunk))
            .collect::<Result<_>>()?;
        Ok(Self { rows, store, chunks })
    }

    /// The factor of a node with `degree` in-edges.
    pub fn factor(degree: u64) -> f32 {
        ((degree + 1) as f32).sqrt().recip()
    }
}

impl NodeRows for ScaledRows<'_> {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        self.rows.read(nodes.clone(), out)?;
        let mut values = out.chunks_exact_mut(self.width());
        for (chunk, rows) in pieces(self.store, nodes) {
            for (row, values) in self.chunks[chunk.0 as usize].rows().range(rows).zip(&mut values) {
                let factor = Self::factor(row?.degree());
                values.iter_mut().for_each(|value| *value *= factor);
            }
        }
        Ok(())
    }
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
}

/// Rows in an unnamed scratch file, which disappears when it is dropped: hidden states between two layers.
#[derive(Debug)]
pub struct ScratchRows {
    file: File,
    /// The folder that contains it, for errors.
    folder: PathBuf,
    nodes: u64,
    layout: FeatureLayout,
}

impl ScratchRows {
    /// Space for `nodes` rows of `width` values, in a new file in `folder`. Rows that nobody writes are zeros.
    pub fn create(folder: &Path, nodes: u64, width: usize) -> Result<Self> {
        Self::create_as(folder, nodes, width, FeatureDtype::F32)
    }

    /// The same with values that are rounded to another type.
    pub fn create_as(folder: &Path, nodes: u64, width: usize, dtype: FeatureDtype) -> Result<Self> {
        let file = unnamed_file(folder)?;
        let mut layout = FeatureLayout::new(dtype, width as u32);
        if dtype == FeatureDtype::F32 {
            layout.stride = layout.row_bytes() as u32;
        }
        file.set_len(nodes * u64::from(layout.stride))
            .map_err(Error::io("make room for a scratch file in", folder))?;
        Ok(Self {
            file,
            folder: folder.to_owned(),
            nodes,
            layout,
        })
    }

    /// Writes the rows from node `first` on.
    ///
    /// # Panics
    /// If `rows` are not whole rows, or more than there is space for.
    pub fn write(&self, first: u64, rows: &[f32]) -> Result<()> {
        let width = self.width();
        assert!(
            rows.len().is_multiple_of(width) && first + (rows.len() / width) as u64 <= self.nodes,
            "{} values from row {first} of {}",
            rows.len(),
            self.nodes
        );
        let write = |first: u64, bytes: &[u8]| {
            let at = first * u64::from(self.layout.stride);
            self.file
                .write_all_at(bytes, at)
                .map_err(Error::io("write a scratch file in", &self.folder))
        };
        if self.layout.dtype == FeatureDtype::F32 {
            return write(first, bytemuck::cast_slice(rows));
        }
        let stride = self.layout.stride as usize;
        let piece = (READ_BYTES / stride).max(1);
        let mut bytes = Vec::new();
        for (values, first) in rows.chunks(piece * width).zip((first..).step_by(piece)) {
            bytes.resize(values.len() / width * stride, 0);
            self.layout.encode_rows(values, &mut bytes);
            write(first, &bytes)?;
        }
        Ok(())
    }

    /// Reads the rows of some nodes, in any order, into `out`, whose length is exactly theirs.
    pub fn read_each(&self, nodes: &[NodeId], out: &mut [f32]) -> Result<()> {
        let width = self.width();
        assert_eq!(out.len(), nodes.len() * width, "room for the rows");
        let mut bytes = vec![0; self.layout.row_bytes()];
        for (node, row) in nodes.iter().zip(out.chunks_exact_mut(width)) {
            self.read_at(node.0, &mut bytes)?;
            self.layout.decode_row(&bytes, row);
        }
        Ok(())
    }

    /// Asks the system to read the rows of some nodes ahead.
    pub fn read_ahead(&self, nodes: &[NodeId]) {
        let stride = u64::from(self.layout.stride);
        for node in nodes {
            // Reading ahead only saves time, so failures do not matter.
            let _ = fadvise(&self.file, node.0 * stride, NonZeroU64::new(stride), Advice::WillNeed);
        }
    }

    fn read_at(&self, first: u64, bytes: &mut [u8]) -> Result<()> {
        let at = first * u64::from(self.layout.stride);
        self.file
            .read_exact_at(bytes, at)
            .map_err(Error::io("read a scratch file in", &self.folder))
    }
}

impl NodeRows for ScratchRows {
    fn width(&self) -> usize {
        self.layout.dim as usize
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        check_room(&nodes, self.width(), out);
        if self.layout.dtype == FeatureDtype::F32 {
            return self.read_at(nodes.start, bytemuck::cast_slice_mut(out));
        }
        let stride = self.layout.stride as usize;
        let piece = (READ_BYTES / stride).max(1);
        let mut bytes = Vec::new();
        for (values, first) in out.chunks_mut(piece * self.width()).zip(nodes.step_by(piece)) {
            bytes.resize(values.len() / self.width() * stride, 0);
            self.read_at(first, &mut bytes)?;
            self.layout.decode_rows(&bytes, values);
        }
        Ok(())
    }
}

/// Cuts a range of nodes at the boundaries of chunks: each chunk, and the range of rows in it.
pub(crate) fn pieces(store: &Store, nodes: Range<u64>) -> impl Iterator<Item = (ChunkId, Range<u64>)> + '_ {
    let mut at = nodes.start;
    std::iter::from_fn(move || {
        (at < nodes.end).then(|| {
            let chunk = store.chunks().chunk_of(NodeId(at));
            let range = store.chunks().range(chunk);
            let end = range.end.min(nodes.end);
            let rows = at - range.start..end - range.start;
            at = end;
            (chunk, rows)
        })
    })
}
