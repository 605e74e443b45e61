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
    /// The classes that it is known to be in.
    Partial(Vec<u32>),
    /// Numbers.
    Targets,
}

impl Label<'_> {
    /// Calls `each` with every class.
    pub fn for_each_class(&self, each: impl FnMut(u32)) {
        match self {
            Self::Single(class) => Some(*class).into_iter().for_each(each),
            Self::Multi(classes) => classes.iter().for_each(each),
            Self::Partial(classes) => classes.iter().copied().for_each(each),
            Self::Targets => {}
        }
    }
}

impl StoredLabels {
    /// Calls `each` with the row and the label of each labelled node of a chunk.
    pub fn for_each(&self, chunk: ChunkId, mut each: impl FnMut(u64, Label<'_>) -> Result<()>) -> Result<()> {
        let mapped = self.mapped(chunk)?;
        let labels = labels(&mapped)?;
        for row in 0..labels.meta.span.rows {
            if let Some(label) = self.label(&labels, &mapped, row)? {
                each(row, label)?;
            }
        }
        Ok(())
    }

    /// Calls `each` with each of some rows of a chunk that has no label.
    pub fn unlabelled(&self, chunk: ChunkId, rows: impl Iterator<Item = u64>, mut each: impl FnMut(u64)) -> Result<()> {
        let mapped = self.mapped(chunk)?;
        let labels = labels(&mapped)?;
        for row in rows {
            if self.label(&labels, &mapped, row)?.is_none() {
                each(row);
            }
        }
        Ok(())
    }

    fn mapped(&self, chunk: ChunkId) -> Result<MappedPayload> {
        let path = self.store.join(files::of_chunk(chunk, "labels"));
        MappedPayload::new(&ContainerFile::open(&path, FileKind::LABELS)?, Access::Sequential)
    }

    fn label<'a>(&self, labels: &Labels<'a>, file: &MappedPayload, row: u64) -> Result<Option<Label<'a>>> {
        Ok(match self.spec.kind {
            LabelKind::Single => labels.single(row).map_err(Error::format(file.path()))?.map(Label::Single),
            LabelKind::Multi => labels.multi(row).map(Label::Multi),
            LabelKind::Partial | LabelKind::Targets => {
                let values = labels.values(row);
                let has_label = values.clone().any(|value| !value.is_nan());
                has_label.then(|| match self.spec.kind {
                    LabelKind::Partial => {
                        let classes = (0..).zip(values).filter(|(_, value)| *value == 1.0);
                        Label::Partial(classes.map(|(class, _)| class).collect())
                    }
                    _ => Label::Targets,
                })
            }
        })
    }
}

fn labels(mapped: &MappedPayload) -> Result<Labels<'_>> {
    Labels::new(mapped.header(), mapped.get(0..mapped.bytes())?).map_err(Error::format(mapped.path()))
}
