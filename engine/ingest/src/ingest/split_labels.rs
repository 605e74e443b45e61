//! Checks splits against labels: nodes without a label, and classes without training nodes.

use std::{fs, ops::Range};

use grappa_formats::{NodeId, chunks::ChunkMap, manifest::SplitEntry, splits};
use grappa_io::{Error, Result, ledger::MemoryShare, text};
use grappa_storage::files;
use roaring::RoaringTreemap;

use crate::{
    ids::IdMap,
    ingest::{job::IngestJob, node_ingest::SplitFile, shares::RandomSplit, stored_labels::StoredLabels},
};

/// Classes that a warning lists.
const CLASSES_SHOWN: usize = 5;
/// The classes of one pass over the labels.
const CLASSES: MemoryShare = MemoryShare::one(
    "classes of labels",
    4,
    "a byte for each class in each thread; classes that exceed 1/4 need another pass over the labels; chosen, not measured",
);

/// Warns about nodes of splits that have no label.
pub fn warn_of_unlabelled(
    job: &IngestJob<'_>,
    listed: &[SplitFile],
    entries: &[SplitEntry],
    chunks: &ChunkMap,
    labels: &StoredLabels,
    ids: &IdMap,
) -> Result<()> {
    job.progress.stage("checking the split", None);
    for SplitFile { name, ids: input } in
        listed.iter().filter(|split| entries.iter().any(|entry| entry.name == split.name))
    {
        let set = written_split(job, name, chunks.nodes())?;
        let unlabelled = job.sum_chunks(
            chunks,
            Unlabelled::default,
            |chunk, unlabelled| {
                let range = chunks.range(chunk);
                let mut nodes = RoaringTreemap::new();
                nodes.insert_range(range.clone());
                nodes &= &set;
                let rows = nodes.iter().map(|node| node - range.start);
                labels.unlabelled(chunk, rows, |row| {
                    unlabelled.count += 1;
                    unlabelled.first.get_or_insert(range.start + row);
                })
            },
            Unlabelled::add,
        )?;
        if let Some(first) = unlabelled.first {
            let (effect, remedy) = match *name {
                "train" => ("training stops when it meets one", "leave them out of the split, or label them"),
                _ => ("scores are those of the others", "label them, if they should count"),
            };
            tracing::warn!(
                "{}: {} of {} nodes have no label, for example {}: {effect}; {remedy}",
                input,
                unlabelled.count,
                set.len(),
                text::printable(&ids.external(NodeId(first))?),
            );
        }
    }
    Ok(())
}

/// The nodes of a split whose file is written.
fn written_split(job: &IngestJob<'_>, name: &str, nodes: u64) -> Result<RoaringTreemap> {
    let path = job.store.path().join(files::split(name));
    let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
    splits::decode(&bytes, name, nodes).map_err(Error::format(&path))
}

/// Warns if a class has nodes, but none of them is a training node.
pub fn warn_of_untrained_classes(job: &IngestJob<'_>, chunks: &ChunkMap, labels: &StoredLabels) -> Result<()> {
    let train = written_split(job, "train", chunks.nodes())?;
    job.progress.stage("checking the split", None);
    // One byte per class in each thread, and in their sum. Classes that do not fit take another pass over the labels.
    let classes_max = CLASSES.bytes(job.budget.memory) / (job.resources.threads as u64 + 1);
    let classes_max = classes_max.clamp(1, u32::MAX.into()) as u32;
    let (mut first, mut count, mut shown) = (0, 0, Vec::new());
    while first < labels.spec.classes {
        let classes = first..labels.spec.classes.min(first.saturating_add(classes_max));
        first = classes.end;
        let nodes = class_nodes(job, chunks, labels, &train, classes.clone())?;
        for (class, _) in classes.zip(nodes).filter(|(_, nodes)| *nodes == ClassNodes::Other) {
            count += 1;
            if shown.len() < CLASSES_SHOWN {
                shown.push(class);
            }
        }
    }
    if count > 0 {
        tracing::warn!("{}", untrained(count, &shown, job.nodes.splits.random));
    }
    Ok(())
}

/// The nodes of each of `classes`.
fn class_nodes(
    job: &IngestJob<'_>,
    chunks: &ChunkMap,
    labels: &StoredLabels,
    train: &RoaringTreemap,
    classes: Range<u32>,
) -> Result<Vec<ClassNodes>> {
    job.sum_chunks(
        chunks,
        || vec![ClassNodes::None; classes.len()],
        |chunk, nodes| {
            let first = chunks.range(chunk).start;
            labels.for_each(chunk, |row, of_node| {
                let found = match train.contains(first + row) {
                    true => ClassNodes::Training,
                    false => ClassNodes::Other,
                };
                for class in of_node.iter().filter(|class| classes.contains(class)) {
                    let nodes = &mut nodes[(class - classes.start) as usize];
                    *nodes = found.max(*nodes);
                }
                Ok(())
            })
        },
        |nodes, part| {
            nodes.iter_mut().zip(part).for_each(|(nodes, found)| *nodes = found.max(*nodes));
        },
    )
}

/// The nodes of a split that have no label.
#[derive(Debug, Default)]
struct Unlabelled {
    count: u64,
    first: Option<u64>,
}

impl Unlabelled {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.into_iter().chain(other.first).min();
    }
}

/// The warning about `count` classes without training nodes, which begin with `first`.
fn untrained(count: usize, first: &[u32], split: Option<RandomSplit>) -> String {
    let mut shown: Vec<_> = first.iter().map(u32::to_string).collect();
    if count > shown.len() {
        shown.push("...".to_owned());
    }
    let remedy = match split {
        None => "add some of their nodes to --train",
        Some(split) if split.stratify => "give train a larger share",
        Some(_) => "give --stratify, or train a larger share",
    };
    let noun = if count == 1 { "class" } else { "classes" };
    format!(
        "no training node has {noun} {}: {count} of the labelled classes cannot be learned; {remedy}",
        shown.join(", ")
    )
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
