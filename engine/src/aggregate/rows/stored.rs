//! The features of a store, and its pre-aggregated features, in files or in the memory of a feed.

use std::ops::Range;

use grappa_formats::{
    ChunkId, NodeId,
    features::{FeatureLayout, FeaturesMeta},
    manifest::FeatureSource,
};
use grappa_io::{Error, Result, container::ClosedFile};
use grappa_sampling::feed::ResidentRows;
use grappa_storage::{Store, aggregates::Aggregates, files, no_features};
use grappa_synthetic::{Features, Generator, Recipe};

use super::{NodeRows, READ_BYTES, check_room, pieces};

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
    files: Vec<Option<ClosedFile>>,
    layout: FeatureLayout,
}

impl<'a> StoredRows<'a> {
    /// Rows in `files`, one file for each chunk of `store`, none for those that a slice lacks. The caller has checked their headers.
    pub fn new(store: &'a Store, files: Vec<Option<ClosedFile>>, layout: FeatureLayout) -> Self {
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
        for (chunk, rows) in pieces(self.store.chunks(), nodes) {
            // The error for a chunk that a slice lacks.
            self.store.span(chunk)?;
            let file = self.files[chunk.0 as usize]
                .as_ref()
                .expect("the chunk is there")
                .open()?;
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
        let files = aggregates.into_files().into_iter().map(Some).collect();
        Self(StoredRows::new(store, files, layout))
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

impl<'a> StoreFeatures<'a> {
    /// Opens the feature files of all chunks. In a slice, the stored features of other chunks cannot be read.
    ///
    /// # Errors
    /// If the store has no features, or its files are damaged.
    pub fn open(store: &'a Store) -> Result<Self> {
        let manifest = store.manifest();
        let Some(spec) = &manifest.features else {
            return Err(no_features(store.path()));
        };
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
                let chunks = (0..store.chunks().chunks()).map(ChunkId);
                let files = chunks.map(|chunk| store.is_present(chunk).then(|| open(chunk)).transpose());
                let files = files.collect::<Result<_>>()?;
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

impl NodeRows for ResidentRows {
    fn width(&self) -> usize {
        self.width()
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        self.read(nodes, out);
        Ok(())
    }

    fn in_memory(&self) -> Option<&[f32]> {
        self.values()
    }
}
