//! One row of values for each node: stored features, procedural features, or states in a scratch file.

use std::{
    fs::File,
    num::NonZeroU64,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::{
    ChunkId, NodeId,
    features::{FeatureLayout, FeaturesMeta},
    manifest::{FeatureDtype, FeatureSource},
};
use grappa_io::{Error, Position, Result, container::ClosedFile, unnamed::unnamed_file};
use grappa_storage::{Chunk, Store, aggregates::Aggregates, files, no_features};
use grappa_synthetic::{Features, Generator, Recipe};
use rustix::fs::{Advice, fadvise};

/// Bytes of stored rows that are read at a time before they are decoded.
const READ_BYTES: usize = 1 << 20;

/// A row of values for each node of a store.
pub trait NodeRows: Sync {
    /// Values in a row.
    fn width(&self) -> usize;

    /// Reads the rows of `nodes` into `out`, whose length is exactly theirs.
    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()>;
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
