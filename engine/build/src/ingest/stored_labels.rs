//! The labels of the unfinished store, read back in the order of its nodes.

use std::path::PathBuf;

use grappa_formats::{
    ChunkId,
    container::FileKind,
    labels::{ClassSet, Labels},
    manifest::{LabelKind, LabelSpec},
};
use grappa_io::{
    Error, Result,
    container::{ContainerFile, MappedPayload},
    map::Access,
};
use grappa_storage::files;

/// The labels of the unfinished store in the folder `store`.
pub struct StoredLabels {
    /// The folder.
    pub store: PathBuf,
    /// Number of classes and kind of label.
    pub spec: LabelSpec,
}

/// The label of a node.
pub enum Label<'a> {
    /// Its class.
    Single(u32),
    /// Its classes.
    Multi(ClassSet<'a>),
}

impl Label<'_> {
    /// Calls `each` with every class.
    pub fn for_each_class(&self, each: impl FnMut(u32)) {
        match self {
            Self::Single(class) => Some(*class).into_iter().for_each(each),
            Self::Multi(classes) => classes.iter().for_each(each),
        }
    }
}

impl StoredLabels {
    /// Calls `each` with the row and the label of each labelled node of a chunk.
    pub fn for_each(&self, chunk: ChunkId, mut each: impl FnMut(u64, Label<'_>) -> Result<()>) -> Result<()> {
        let path = self.store.join(files::of_chunk(chunk, "labels"));
        let mapped = MappedPayload::new(&ContainerFile::open(&path, FileKind::LABELS)?, Access::Sequential)?;
        let labels = Labels::new(mapped.header(), mapped.get(0..mapped.bytes())?).map_err(Error::format(&path))?;
        for row in 0..labels.meta().span.rows {
            let label = match self.spec.kind {
                LabelKind::Single => labels.single(row).map_err(Error::format(&path))?.map(Label::Single),
                LabelKind::Multi => labels.multi(row).map(Label::Multi),
            };
            if let Some(label) = label {
                each(row, label)?;
            }
        }
        Ok(())
    }
}
