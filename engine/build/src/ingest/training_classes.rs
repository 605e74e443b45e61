//! Checks that the training nodes have all classes.

use std::fs;

use grappa_formats::{chunks::ChunkMap, splits};
use grappa_io::{Error, Result};

use crate::ingest::{Run, stored_labels::StoredLabels};

/// Classes that a warning lists.
const CLASSES_SHOWN: usize = 5;

impl Run<'_> {
    /// Warns if a class has nodes, but none of them is a training node.
    pub(super) fn check_training_classes(&self, chunks: &ChunkMap, labels: &StoredLabels) -> Result<()> {
        let path = self.folder.path().join("splits/train.roaring");
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let train = splits::decode(&bytes, "train", chunks.nodes()).map_err(Error::format(&path))?;
        drop(bytes);
        self.progress.stage("checking the split", None);
        let missing = self.sum_chunks(
            chunks,
            || vec![ClassNodes::None; labels.spec.classes as usize],
            |chunk, classes| {
                let first = chunks.range(chunk).start;
                labels.for_each(chunk, |row, label| {
                    let found = match train.contains(first + row) {
                        true => ClassNodes::Training,
                        false => ClassNodes::Other,
                    };
                    label.for_each_class(|class| classes[class as usize] = classes[class as usize].max(found));
                    Ok(())
                })
            },
            |classes, part| {
                classes
                    .iter_mut()
                    .zip(part)
                    .for_each(|(class, found)| *class = found.max(*class))
            },
        )?;
        let missing: Vec<_> = (0..labels.spec.classes)
            .filter(|&class| missing[class as usize] == ClassNodes::Other)
            .collect();
        if !missing.is_empty() {
            tracing::warn!("{}", self.without_training(&missing));
        }
        Ok(())
    }

    fn without_training(&self, classes: &[u32]) -> String {
        let mut shown: Vec<_> = classes.iter().take(CLASSES_SHOWN).map(u32::to_string).collect();
        if classes.len() > shown.len() {
            shown.push("...".to_owned());
        }
        let remedy = match self.options.random_split {
            None => "add some of their nodes to --train",
            Some(split) if split.stratify => "give train a larger share",
            Some(_) => "give --stratify, or train a larger share",
        };
        let noun = if classes.len() == 1 { "class" } else { "classes" };
        format!(
            "no training node has {noun} {}: {} of the labelled classes cannot be learned; {remedy}",
            shown.join(", "),
            classes.len()
        )
    }
}

/// The nodes of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClassNodes {
    /// There are none.
    None,
    /// None is a training node.
    Other,
    /// Some are training nodes.
    Training,
}
