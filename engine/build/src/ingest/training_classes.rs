//! Checks that the training nodes have all classes.

use std::{fs, ops::Range};

use grappa_formats::{chunks::ChunkMap, splits};
use grappa_io::{Error, Result};
use roaring::RoaringTreemap;

use crate::ingest::{Run, stored_labels::StoredLabels};

/// Classes that a warning lists.
const CLASSES_SHOWN: usize = 5;
/// 1/CLASSES_SHARE of the budget is for the classes of one pass over the labels.
const CLASSES_SHARE: u64 = 4;

impl Run<'_> {
    /// Warns if a class has nodes, but none of them is a training node.
    pub(super) fn check_training_classes(&self, chunks: &ChunkMap, labels: &StoredLabels) -> Result<()> {
        let path = self.folder.path().join("splits/train.roaring");
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let train = splits::decode(&bytes, "train", chunks.nodes()).map_err(Error::format(&path))?;
        drop(bytes);
        self.progress.stage("checking the split", None);
        // One byte per class in each thread, and in their sum. Classes that do not fit take another pass over the labels.
        let classes_max = self.budget.memory / CLASSES_SHARE / (self.options.threads as u64 + 1);
        let classes_max = classes_max.clamp(1, u32::MAX.into()) as u32;
        let (mut first, mut missing) = (0, Missing::default());
        while first < labels.spec.classes {
            let classes = first..labels.spec.classes.min(first.saturating_add(classes_max));
            first = classes.end;
            let nodes = self.class_nodes(chunks, labels, &train, classes.clone())?;
            for (class, _) in classes.zip(nodes).filter(|(_, nodes)| *nodes == ClassNodes::Other) {
                missing.add(class);
            }
        }
        if missing.count > 0 {
            tracing::warn!("{}", self.without_training(&missing));
        }
        Ok(())
    }

    /// The nodes of each of `classes`.
    fn class_nodes(
        &self,
        chunks: &ChunkMap,
        labels: &StoredLabels,
        train: &RoaringTreemap,
        classes: Range<u32>,
    ) -> Result<Vec<ClassNodes>> {
        self.sum_chunks(
            chunks,
            || vec![ClassNodes::None; classes.len()],
            |chunk, nodes| {
                let first = chunks.range(chunk).start;
                labels.for_each(chunk, |row, label| {
                    let found = match train.contains(first + row) {
                        true => ClassNodes::Training,
                        false => ClassNodes::Other,
                    };
                    label.for_each_class(|class| {
                        if classes.contains(&class) {
                            let nodes = &mut nodes[(class - classes.start) as usize];
                            *nodes = found.max(*nodes);
                        }
                    });
                    Ok(())
                })
            },
            |nodes, part| {
                nodes
                    .iter_mut()
                    .zip(part)
                    .for_each(|(nodes, found)| *nodes = found.max(*nodes));
            },
        )
    }

    fn without_training(&self, missing: &Missing) -> String {
        let mut shown: Vec<_> = missing.first.iter().map(u32::to_string).collect();
        if missing.count > shown.len() {
            shown.push("...".to_owned());
        }
        let remedy = match self.options.random_split {
            None => "add some of their nodes to --train",
            Some(split) if split.stratify => "give train a larger share",
            Some(_) => "give --stratify, or train a larger share",
        };
        let noun = if missing.count == 1 { "class" } else { "classes" };
        format!(
            "no training node has {noun} {}: {} of the labelled classes cannot be learned; {remedy}",
            shown.join(", "),
            missing.count
        )
    }
}

/// The classes without training nodes.
#[derive(Debug, Default)]
struct Missing {
    count: usize,
    /// Those that a warning lists.
    first: Vec<u32>,
}

impl Missing {
    fn add(&mut self, class: u32) {
        self.count += 1;
        if self.first.len() < CLASSES_SHOWN {
            self.first.push(class);
        }
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
