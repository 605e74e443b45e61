//! The mapped labels and feature rows of a chunk's nodes. Each block is compared with its checksum when it is first used.

use grappa_formats::{
    ChunkId,
    features::FeaturesMeta,
    labels::{ClassSet, Labels, LabelsMeta},
};
use grappa_io::{
    Error, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
    prefetch::prefetch,
};

use crate::{Store, files};

/// The mapped labels of a chunk.
#[derive(Debug)]
pub struct MappedLabels {
    meta: LabelsMeta,
    file: MappedPayload,
}

/// The mapped feature rows of a chunk.
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
        let labels = MappedLabels::open(&self.file(&files::of_chunk(chunk, "labels"))?, access)?;
        labels.meta.span.expect(&span).map_err(Error::format(labels.file.path()))?;
        Ok(Some(labels))
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
    /// Maps the labels in `file`.
    ///
    /// # Errors
    /// If they are damaged where that shows without a look at each.
    pub fn open(file: &ContainerFile, access: Access) -> Result<Self> {
        let meta = LabelsMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        Ok(Self { meta, file: MappedPayload::new(file, access)? })
    }

    /// The metadata of the file.
    pub fn meta(&self) -> &LabelsMeta {
        &self.meta
    }

    /// The class of a row, if it has one.
    ///
    /// # Panics
    /// If there is no such row, or labels are no single classes.
    #[inline]
    pub fn single(&self, row: u64) -> Result<Option<u32>> {
        self.checked(row)?.single(row).map_err(Error::format(self.file.path()))
    }

    /// The set of classes of a row, if it is labelled.
    ///
    /// # Panics
    /// If there is no such row, or labels are no sets of known classes.
    #[inline]
    pub fn multi(&self, row: u64) -> Result<Option<ClassSet<'_>>> {
        Ok(self.checked(row)?.multi(row))
    }

    /// The value of each class or target of a row, NaN for one that is missing. Values of classes are 0 and 1.
    ///
    /// # Errors
    /// If a target is infinite, or the row is damaged.
    ///
    /// # Panics
    /// If there is no such row, or labels are single classes or sets of known classes.
    pub fn values(&self, row: u64) -> Result<impl Iterator<Item = f32> + Clone + '_> {
        let labels = self.checked(row)?;
        labels.check_values(row).map_err(Error::format(self.file.path()))?;
        Ok(labels.values(row))
    }

    /// The decoder, after a check of the bytes of a row.
    #[inline]
    fn checked(&self, row: u64) -> Result<Labels<'_>> {
        let width = u64::from(self.meta.spec.row_bytes());
        self.file.check(row * width..(row + 1) * width)?;
        Ok(Labels::with_meta(self.meta, self.file.header().payload_offset, self.file.unchecked()))
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
    /// The metadata of the file. Its layout decodes feature rows.
    pub fn meta(&self) -> &FeaturesMeta {
        &self.meta
    }

    /// The encoded feature row of a row of the chunk, without padding.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&self, row: u64) -> Result<&[u8]> {
        let start = self.meta.row_offset(row);
        self.file.get(start..start + self.meta.layout.row_bytes() as u64)
    }
}
