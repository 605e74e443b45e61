//! Random splits: exact shares of the nodes, or of the nodes of each class, without a list of nodes in memory.
//!
//! Each node has a *key*, a pseudo-random function of the seed and its dense id. No two nodes have the same key. Nodes with
//! small keys are training nodes, those with larger keys are validation nodes, then test nodes, then nodes of no split. So
//! a split is three sets of nodes between *cuts*, and drawing it means to find the keys at two ranks, or at three if nodes
//! are in no split:
//!
//! ```text
//! count the nodes of each class
//! while a cut is not known: each cut has a range of keys that it lies in, at first all keys
//!     for each node: count its key in a histogram of the range of each cut of its class
//!     for each cut: go on with the part of the range that its rank lies in
//! for each split: collect the nodes between its cuts
//! ```
//!
//! This is a radix selection. Two rounds suffice for a histogram of 2^16 counts and 10^9 nodes. Without classes, all nodes
//! are in one.
//!
//! The split depends on dense ids, labels, shares and seed only: not on the node permutation or the chunks.
//!
//! Cost: a pass over the labels and permutation per round and per split. Memory: the histograms, of at most 1/4 of the
//! budget, the counts and cuts of the classes, of at most 1/2, and the set of one split with its encoding, 3 bits per node.

mod cut;

use std::ops::Range;

use grappa_formats::{
    ChunkId,
    chunks::ChunkMap,
    manifest::{FileEntry, SplitEntry},
    random::{combine, draw_at},
};
use grappa_io::{Error, Result};
use grappa_storage::NodePermutation;
use roaring::RoaringTreemap;

use self::cut::Cut;
use crate::ingest::{job::IngestJob, shares::RandomSplit, stored_labels::StoredLabels};

/// The splits, in the order of the manifest and of the shares.
const SPLITS: [&str; 3] = ["train", "val", "test"];
/// Separates the keys from other draws with the same seed.
const PURPOSE: u64 = u64::from_be_bytes(*b"split\0\0\0");
/// Nodes whose dense ids are looked up together.
const BLOCK_NODES: u64 = 4096;
/// The most bits of a key that one round tells.
const ROUND_BITS_MAX: u32 = 16;

/// Draws the splits and writes a file with the nodes of each.
pub fn write(
    job: &IngestJob<'_>,
    split: RandomSplit,
    chunks: &ChunkMap,
    permutation: &NodePermutation,
    labels: Option<&StoredLabels>,
) -> Result<(Vec<SplitEntry>, Vec<FileEntry>)> {
    let population = Population { job, split, chunks, permutation, labels, key: combine(PURPOSE, split.seed) };
    let memory = RandomSplit::memory(chunks.nodes());
    if memory > job.budget.memory {
        return Err(population.too_small(format!("a split of {} nodes", chunks.nodes()), memory));
    }
    job.progress.stage("drawing the split", None);
    population.check_classes()?;
    let sizes = population.class_sizes()?;
    let cuts = population.find_cuts(&sizes)?;
    let (mut entries, mut files) = (Vec::new(), Vec::new());
    for (index, name) in SPLITS.into_iter().enumerate() {
        if split.shares.fractions()[index] == 0.0 {
            continue;
        }
        let set = population.split_set(&cuts, index)?;
        if set.is_empty() {
            let nodes: u64 = sizes.iter().sum();
            return Err(Error::conflict(
                format!("a split of {nodes} nodes into {} leaves none for {name}", split.shares),
                match name {
                    "train" => "give it a larger share",
                    _ => "give it a larger share, or 0",
                },
            ));
        }
        let (entry, file) = job.store.write_split(name, chunks.nodes(), &set)?;
        entries.push(entry);
        files.push(file);
    }
    Ok((entries, files))
}

/// The nodes to split.
struct Population<'a> {
    job: &'a IngestJob<'a>,
    split: RandomSplit,
    chunks: &'a ChunkMap,
    permutation: &'a NodePermutation,
    /// If there are any, only labelled nodes are split.
    labels: Option<&'a StoredLabels>,
    key: u64,
}

impl Population<'_> {
    /// The number of classes that are split separately.
    fn classes(&self) -> usize {
        match self.labels {
            Some(labels) if self.split.stratify => labels.spec.classes as usize,
            _ => 1,
        }
    }

    /// The number of cuts per class: between the splits, and below the nodes of no split.
    fn cuts(&self) -> usize {
        if self.split.shares.are_whole() { 2 } else { 3 }
    }

    /// Calls `each` with the node, class and key of each node of a chunk that is split.
    fn for_each(&self, chunk: ChunkId, mut each: impl FnMut(u64, usize, u64)) -> Result<()> {
        let range = self.chunks.range(chunk);
        let mut keys = NodeKeys::new(self, range.clone());
        let Some(labels) = self.labels else {
            return range.into_iter().try_for_each(|node| {
                each(node, 0, keys.key_of(node)?);
                Ok(())
            });
        };
        labels.for_each(chunk, |row, classes| {
            // Only single classes are stratified.
            let class = if self.split.stratify { classes[0] as usize } else { 0 };
            let node = range.start + row;
            each(node, class, keys.key_of(node)?);
            Ok(())
        })
    }

    /// Fails if the counts and cuts of the classes do not fit in half of the budget.
    fn check_classes(&self) -> Result<()> {
        let (classes, cuts) = (self.classes() as u64, self.cuts() as u64);
        // The count of each thread, and their sum. The cuts, with the place of the histogram and the entry among open cuts.
        let cut_bytes = size_of::<Cut>() + size_of::<Option<usize>>() + size_of::<usize>();
        let class_bytes = (self.job.resources.threads as u64 + 1) * 8 + cuts * cut_bytes as u64;
        let least = 2 * classes * class_bytes;
        if least > self.job.budget.memory {
            // If all classes have nodes, a round needs two counts for each of their cuts.
            let least = least.max(2 * cuts * classes * self.budget_per_count());
            return Err(self.too_small(format!("a split of {classes} classes"), least));
        }
        Ok(())
    }

    /// The number of nodes of each class.
    fn class_sizes(&self) -> Result<Vec<u64>> {
        if self.labels.is_none() {
            return Ok(vec![self.chunks.nodes()]);
        }
        self.job.sum_chunks(
            self.chunks,
            || vec![0; self.classes()],
            |chunk, sizes| self.for_each(chunk, |_, class, _| sizes[class] += 1),
            |sum, part| add_counts(sum, part),
        )
    }

    /// The cuts of each class, one class after another.
    fn find_cuts(&self, sizes: &[u64]) -> Result<Vec<Cut>> {
        let per_class = self.cuts();
        let cuts = sizes.iter().flat_map(|&size| {
            let [train, val, test] = self.split.shares.divide(size);
            let ranks = [train, train + val, train + val + test];
            ranks.into_iter().take(per_class).map(Cut::above)
        });
        let mut cuts: Vec<_> = cuts.collect();
        loop {
            let open: Vec<_> = (0..cuts.len()).filter(|&cut| matches!(cuts[cut], Cut::Within { .. })).collect();
            if open.is_empty() {
                return Ok(cuts);
            }
            let round_bits = self.round_bits(open.len() as u64, sizes)?;
            // The place of each open cut's histogram.
            let mut places = vec![None; cuts.len()];
            for (place, &cut) in open.iter().enumerate() {
                places[cut] = Some(place << round_bits);
            }
            let counts = self.job.sum_chunks(
                self.chunks,
                || vec![0; open.len() << round_bits],
                |chunk, counts| {
                    self.for_each(chunk, |_, class, key| {
                        for cut in per_class * class..per_class * (class + 1) {
                            if let (Some(place), Some(digit)) = (places[cut], cuts[cut].digit(key, round_bits)) {
                                counts[place + digit] += 1;
                            }
                        }
                    })
                },
                |sum, part| add_counts(sum, part),
            )?;
            for (histogram, cut) in counts.chunks_exact(1 << round_bits).zip(open) {
                cuts[cut].narrow(histogram);
            }
        }
    }

    /// The bits of keys that a round tells for each of `open` cuts of classes of these sizes: as many as the memory permits, but
    /// not more counts than nodes.
    fn round_bits(&self, open: u64, sizes: &[u64]) -> Result<u32> {
        let counts_max = self.job.budget.memory / self.budget_per_count();
        let least = 2 * open * self.budget_per_count();
        if self.job.budget.memory < least {
            return Err(self.too_small(format!("a split of {} classes", sizes.len()), least));
        }
        let counts = counts_max.min(sizes.iter().sum()) / open;
        Ok(counts.checked_ilog2().unwrap_or(0).clamp(1, ROUND_BITS_MAX))
    }

    /// Bytes of the budget per count of a histogram: one in each thread and one in their sum, in a quarter of the budget.
    fn budget_per_count(&self) -> u64 {
        (self.job.resources.threads as u64 + 1) * 8 * 4
    }

    fn too_small(&self, operation: String, least: u64) -> Error {
        let remedy = "raise --memory, or omit --split";
        self.job.budget.too_small(operation, least, remedy)
    }

    /// The nodes of the split `index`, between the cuts of their classes.
    fn split_set(&self, cuts: &[Cut], index: usize) -> Result<RoaringTreemap> {
        let per_class = self.cuts();
        self.job.sum_chunks(
            self.chunks,
            RoaringTreemap::new,
            |chunk, set| {
                self.for_each(chunk, |node, class, key| {
                    let cuts = &cuts[per_class * class..][..per_class];
                    if cuts.iter().filter(|cut| cut.is_at_most(key)).count() == index {
                        set.insert(node);
                    }
                })
            },
            |set, part| *set |= part,
        )
    }
}

/// The keys of ascending nodes.
struct NodeKeys<'a> {
    population: &'a Population<'a>,
    end: u64,
    block: Range<u64>,
    dense_ids: Vec<u64>,
}

impl<'a> NodeKeys<'a> {
    fn new(population: &'a Population<'a>, nodes: Range<u64>) -> Self {
        Self { population, end: nodes.end, block: nodes.start..nodes.start, dense_ids: Vec::new() }
    }

    fn key_of(&mut self, node: u64) -> Result<u64> {
        if !self.block.contains(&node) {
            self.block = node..(node + BLOCK_NODES).min(self.end);
            self.population.permutation.dense_ids(self.block.clone(), &mut self.dense_ids)?;
        }
        let id = self.dense_ids[(node - self.block.start) as usize];
        Ok(draw_at(self.population.key, id))
    }
}

fn add_counts(sum: &mut [u64], part: Vec<u64>) {
    sum.iter_mut().zip(part).for_each(|(sum, count)| *sum += count);
}
