//! The features of a store, and its pre-aggregated features, in files or in the memory of a feed.

use std::ops::Range;

use grappa_formats::{
    ChunkId, ChunkSpan, NodeId,
    features::{FeatureLayout, FeaturesMeta},
    manifest::FeatureSource,
};
use grappa_io::{
    Error, Result,
    container::{ClosedFile, ContainerFile},
};
use grappa_sampling::feed::ResidentRows;
use grappa_storage::{Store, aggregates::Aggregates, files, no_features};
use grappa_synthetic::{Features, Generator, Recipe};

use super::{NodeRows, READ_BYTES, RowValues, check_room, pieces, read_decoded};

/// Rows in one file for each chunk.
pub struct StoredRows<'a> {
    store: &'a Store,
    files: Vec<Option<ClosedFile>>,
    layout: FeatureLayout,
    content: RowContent,
}

/// The meaning of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowContent {
    Features,
    Aggregates {
        /// Whether the features of its node follow each row.
        with_features: bool,
    },
    /// Rows that no store has.
    Other,
}

impl<'a> StoredRows<'a> {
    /// Rows in `files`, one file for each chunk of `store`, none for those whose rows a slice lacks. The caller has checked their headers.
    pub(crate) fn new(store: &'a Store, files: Vec<Option<ClosedFile>>, layout: FeatureLayout) -> Self {
        Self { store, files, layout, content: RowContent::Other }
    }

    /// The pre-aggregated features `aggregates`, which were opened from `store`.
    pub fn of_aggregates(store: &'a Store, aggregates: Aggregates) -> Self {
        Self {
            store,
            layout: aggregates.layout(),
            content: RowContent::Aggregates { with_features: aggregates.with_features() },
            files: aggregates.into_files(),
        }
    }
}

impl StoredRows<'_> {
    /// The files by chunk; none for those whose rows a slice lacks.
    pub(super) fn files(&self) -> &[Option<ClosedFile>] {
        &self.files
    }

    /// The offset in a row at which `others` has these rows, if it has them.
    pub(super) fn offset_in(&self, others: &StoredRows<'_>) -> Option<usize> {
        let are_beside = self.content == RowContent::Features
            && others.content == RowContent::Aggregates { with_features: true }
            && self.store.path() == others.store.path();
        are_beside.then(|| others.layout.features_offset())
    }

    /// The chunk of a node, and the index of its row there.
    ///
    /// # Errors
    /// If a slice lacks the row.
    pub(super) fn place(&self, node: u64) -> Result<(ChunkId, u64)> {
        let chunks = self.store.chunks();
        let chunk = chunks.chunk_of(NodeId(node));
        self.store.feature_span(chunk)?;
        Ok((chunk, node - chunks.range(chunk).start))
    }

    /// Calls `visit` for each chunk that has some of the nodes: with its file, and their bytes in it.
    fn each_file(
        &self,
        nodes: Range<u64>,
        mut visit: impl FnMut(ContainerFile, Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let stride = u64::from(self.layout.stride);
        for (chunk, rows) in pieces(self.store.chunks(), nodes) {
            // The error for rows that a slice lacks.
            self.store.feature_span(chunk)?;
            let file = self.files[chunk.0 as usize].as_ref().expect("the rows are there");
            visit(file.open()?, rows.start * stride..rows.end * stride)?;
        }
        Ok(())
    }
}

impl NodeRows for StoredRows<'_> {
    fn width(&self) -> usize {
        self.layout.dim as usize
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        read_decoded(self, nodes, out)
    }

    fn layout(&self) -> FeatureLayout {
        self.layout
    }

    fn read_encoded(&self, nodes: Range<u64>, mut out: &mut [u8]) -> Result<()> {
        self.each_file(nodes, |file, part| {
            for start in part.clone().step_by(READ_BYTES) {
                let (now, rest) = std::mem::take(&mut out).split_at_mut(READ_BYTES.min((part.end - start) as usize));
                file.read_at(now, start)?;
                out = rest;
            }
            Ok(())
        })
    }

    fn read_ahead(&self, nodes: Range<u64>) {
        // Reading ahead only saves time. Whoever reads the rows gets the error.
        let _ = self.each_file(nodes, |file, part| {
            file.read_ahead(part);
            Ok(())
        });
    }

    fn file_bytes(&self) -> u64 {
        self.store.feature_nodes() * u64::from(self.layout.stride)
    }

    fn file_end(&self, node: u64) -> u64 {
        let chunks = self.store.chunks();
        chunks.range(chunks.chunk_of(NodeId(node))).end
    }

    fn stored(&self) -> Option<&StoredRows<'_>> {
        Some(self)
    }
}

/// Opens the features of a store: the files of all chunks, or of those whose feature rows a slice has. Procedural features are computed.
///
/// # Errors
/// If the store has no features, or its files are damaged.
pub fn store_features(store: &Store) -> Result<Box<dyn NodeRows + '_>> {
    let manifest = store.manifest();
    let Some(spec) = &manifest.features else {
        return Err(no_features(store.path()));
    };
    if spec.source == FeatureSource::Procedural {
        let features = Generator::new(Recipe::from_json(&manifest.generator)?)?.features(spec.dim as usize);
        return Ok(Box::new(ProceduralRows { store, width: spec.dim as usize, features }));
    }
    let mut files: Vec<Option<ClosedFile>> = Vec::new();
    files.resize_with(store.chunks().chunks() as usize, || None);
    for chunk in store.feature_chunks() {
        let file = store.file(&files::of_chunk(chunk, "features"))?;
        let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        meta.span.expect(&ChunkSpan::for_chunk(store.chunks(), chunk)).map_err(Error::format(file.path()))?;
        files[chunk.0 as usize] = Some(file.close());
    }
    let layout = FeatureLayout { dtype: spec.dtype, dim: spec.dim, stride: spec.row_stride };
    Ok(Box::new(StoredRows { store, files, layout, content: RowContent::Features }))
}

/// The features of a generated graph.
struct ProceduralRows<'a> {
    store: &'a Store,
    width: usize,
    features: Features,
}

impl NodeRows for ProceduralRows<'_> {
    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        check_room(&nodes, self.width, out);
        for (node, row) in nodes.zip(out.chunks_exact_mut(self.width)) {
            self.features.row(self.store.ids().dense_id(NodeId(node))?.0, row);
        }
        Ok(())
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

    fn in_memory(&self) -> Option<RowValues<'_>> {
        let (values, stride) = self.values()?;
        Some(RowValues { values, stride })
    }
}
