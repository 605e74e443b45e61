//! The labels of the unfinished store, read back in the order of its nodes.

use std::path::PathBuf;

use grappa_formats::{
    ChunkId,
    container::FileKind,
    manifest::{LabelKind, LabelSpec},
};
use grappa_io::{Result, container::ContainerFile, map::Access};
use grappa_storage::{MappedLabels, files};

/// The labels of the unfinished store in the folder `store`.
pub struct StoredLabels {
    pub store: PathBuf,
    pub spec: LabelSpec,
}

impl StoredLabels {
    /// Calls `each` with the row of each labelled node of a chunk and the classes that the node is known to be in. Targets are no classes.
    pub fn for_each(&self, chunk: ChunkId, mut each: impl FnMut(u64, &[u32]) -> Result<()>) -> Result<()> {
        let (labels, mut classes) = (self.mapped(chunk)?, Vec::new());
        for row in 0..labels.meta().span.rows {
            if self.read(&labels, row, &mut classes)? {
                each(row, &classes)?;
            }
        }
        Ok(())
    }

    /// Calls `each` with each of some rows of a chunk that has no label.
    pub fn unlabelled(&self, chunk: ChunkId, rows: impl Iterator<Item = u64>, mut each: impl FnMut(u64)) -> Result<()> {
        let (labels, mut classes) = (self.mapped(chunk)?, Vec::new());
        for row in rows {
            if !self.read(&labels, row, &mut classes)? {
                each(row);
            }
        }
        Ok(())
    }

    fn mapped(&self, chunk: ChunkId) -> Result<MappedLabels> {
        let path = self.store.join(files::of_chunk(chunk, "labels"));
        MappedLabels::open(&ContainerFile::open(&path, FileKind::LABELS)?, Access::Sequential)
    }

    /// Replaces the contents of `classes` with the classes of a row. False if it has no label.
    fn read(&self, labels: &MappedLabels, row: u64, classes: &mut Vec<u32>) -> Result<bool> {
        classes.clear();
        Ok(match self.spec.kind {
            LabelKind::Single => {
                classes.extend(labels.single(row)?);
                !classes.is_empty()
            }
            LabelKind::Multi => labels.multi(row)?.map(|set| classes.extend(set.iter())).is_some(),
            LabelKind::Partial => {
                let mut known = (0..).zip(labels.values(row)?).filter(|(_, value)| !value.is_nan()).peekable();
                let has_label = known.peek().is_some();
                classes.extend(known.filter(|(_, value)| *value == 1.0).map(|(class, _)| class));
                has_label
            }
            LabelKind::Targets => labels.values(row)?.any(|value| !value.is_nan()),
        })
    }
}
