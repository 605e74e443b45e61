//! The mapped labels and feature rows of a chunk's nodes.

use grappa_formats::{
    ChunkId,
    features::FeaturesMeta,
    labels::{Labels, LabelsMeta},
};
use grappa_io::{Error, Result, container::MappedPayload, map::Access, prefetch::prefetch};

use crate::{
    Store,
    checked::{CheckedFeatures, CheckedLabels},
    files,
};

/// The mapped labels of a chunk. The header was compared with the manifest; a block is compared with its checksum when it is first used.
#[derive(Debug)]
pub struct MappedLabels {
    meta: LabelsMeta,
    file: MappedPayload,
}

/// The mapped feature rows of a chunk, as [`MappedLabels`].
#[derive(Debug)]
pub struct MappedFeatures {
    meta: FeaturesMeta,
    file: MappedPayload,
}

impl Store {
    /// Maps the labels of a chunk. None if nodes have no labels.
    ///
    /// # Errors
    /// If there is no such chunk, or its file cannot be opened or belongs to other nodes.
    pub fn labels(&self, chunk: ChunkId, access: Access) -> Result<Option<MappedLabels>> {
        let span = self.span(chunk)?;
        if self.manifest().labels.is_none() {
            return Ok(None);
        }
        let file = self.file(&files::of_chunk(chunk, "labels"))?;
        let meta = LabelsMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        meta.span.expect(&span).map_err(Error::format(file.path()))?;
        Ok(Some(MappedLabels { meta, file: MappedPayload::new(&file, access)? }))
    }

    /// Maps the feature rows of a chunk for random access. None if features are not stored.
    ///
    /// # Errors
    /// As [`Store::labels`].
    pub fn features(&self, chunk: ChunkId) -> Result<Option<MappedFeatures>> {
        let span = self.span(chunk)?;
        if self.manifest().stored_features().is_none() {
            return Ok(None);
        }
        let file = self.file(&files::of_chunk(chunk, "features"))?;
        let meta = FeaturesMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        meta.span.expect(&span).map_err(Error::format(file.path()))?;
        Ok(Some(MappedFeatures { meta, file: MappedPayload::new(&file, Access::Random)? }))
    }
}

impl MappedLabels {
    /// The labels. It costs nothing, so it may be called for each node.
    #[inline]
    pub fn labels(&self) -> CheckedLabels<'_> {
        let labels = Labels::with_meta(self.meta, self.file.header().payload_offset, self.file.unchecked());
        CheckedLabels::new(labels, &self.file)
    }

    /// Prefetches the label of a row into the processor's cache.
    #[inline]
    pub fn prefetch(&self, row: u64) {
        prefetch(self.file.unchecked(), row as usize * self.meta.spec.row_bytes() as usize);
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Asks the system to read the labels into its cache.
    pub fn read_ahead(&self) {
        self.file.read_ahead();
    }
}

impl MappedFeatures {
    /// The feature rows.
    pub fn features(&self) -> CheckedFeatures<'_> {
        CheckedFeatures::new(&self.meta, &self.file)
    }
}
