//! The minibatches of an epoch of link prediction.

use std::sync::Arc;

use grappa_formats::{NodeId, PartitionId, permutation::Feistel};
use grappa_io::Result;
use grappa_storage::Store;

use super::{
    known::KnownEdges,
    negatives::{Candidates, Draw, DrawScratch, LinkSamples, Negatives},
    positives::Positives,
};
use crate::{
    feed::{BatchSource, Division},
    sample::{BatchKey, Minibatch, Sampler, Scratch},
    view::ViewSource,
};

/// The edges that a minibatch leaves out of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExcludedEdges {
    /// None.
    None,
    /// The positives of the minibatch.
    Positives,
    /// The positives and their reverses.
    WithReverses,
}

/// What is drawn for each minibatch, in all epochs.
#[derive(Debug)]
pub struct LinkTask {
    /// The store.
    pub store: Arc<Store>,
    /// Draws the neighborhoods.
    pub sampler: Arc<Sampler>,
    /// How many negatives there are.
    pub negatives: Negatives,
    /// Which nodes they are drawn from.
    pub candidates: Candidates,
    /// The true edges that are no negatives, beside the graph's. If none, negatives may be true edges.
    pub known: Option<KnownEdges>,
    /// The edges that messages do not use.
    pub excluded: ExcludedEdges,
    /// The maximum number of positives of a minibatch.
    pub batch: usize,
    /// How the positives are divided among minibatches.
    pub division: Division,
    /// The seed of the run.
    pub seed: u64,
    /// Whether each epoch visits the positives in a new random order.
    pub shuffle: bool,
}

impl LinkTask {
    /// The number of minibatches of an epoch with this number of positives.
    pub fn batches_of(&self, positives: u64) -> u64 {
        self.division.batches(positives, self.batch as u64)
    }
}

/// The positives of an epoch.
#[derive(Debug, Clone)]
pub struct LinkEpoch {
    /// The edges.
    pub positives: Arc<Positives>,
    /// The number of the epoch.
    pub epoch: u64,
}

/// The minibatches of an epoch.
#[derive(Debug)]
pub struct LinkBatches {
    task: Arc<LinkTask>,
    view: ViewSource,
    epoch: LinkEpoch,
}

/// The state of a thread that samples.
#[derive(Debug, Default)]
pub struct LinkScratch {
    sampler: Scratch,
    draw: DrawScratch,
    samples: LinkSamples,
    seeds: Vec<NodeId>,
    /// The excluded edges of the minibatch: source and destination, as indices of its nodes.
    excluded: Vec<(u32, u32)>,
}

impl LinkBatches {
    pub(crate) fn new(task: Arc<LinkTask>, view: ViewSource, epoch: LinkEpoch) -> Self {
        Self { task, view, epoch }
    }

    /// What is drawn.
    pub fn task(&self) -> &LinkTask {
        &self.task
    }

    /// The positives of the epoch.
    pub fn positives(&self) -> &Positives {
        &self.epoch.positives
    }

    /// The positives and negatives of minibatch `index`. The same that the minibatch was sampled for.
    ///
    /// # Errors
    /// If a source has an edge to nearly all candidates, or a file is damaged.
    pub fn samples(&self, index: u64, scratch: &mut LinkScratch) -> Result<LinkSamples> {
        self.draw(index, scratch)?;
        Ok(scratch.samples.clone())
    }

    #[cfg(test)]
    pub(super) fn view(&self) -> &ViewSource {
        &self.view
    }

    #[cfg(test)]
    pub(super) fn epoch(&self) -> &LinkEpoch {
        &self.epoch
    }

    fn key(&self, index: u64) -> BatchKey {
        BatchKey {
            seed: self.task.seed,
            epoch: self.epoch.epoch,
            partition: PartitionId(0),
            batch: index,
        }
    }

    fn draw(&self, index: u64, scratch: &mut LinkScratch) -> Result<()> {
        let LinkScratch { draw, samples, .. } = scratch;
        let (positives, key) = (&self.epoch.positives, self.key(index));
        let shuffle = Feistel::new(positives.len(), key.shuffle());
        let task = &self.task;
        let indices = task
            .division
            .share(positives.len(), task.batch as u64, index, self.batches());
        samples.indices.clear();
        samples.indices.extend(indices.map(|index| match self.task.shuffle {
            true => shuffle.forward(index),
            false => index,
        }));
        samples.positives.clear();
        let edges = positives.edges();
        samples
            .positives
            .extend(samples.indices.iter().map(|&index| edges[index as usize]));
        Draw {
            store: &self.task.store,
            view: &*self.view.get()?,
            negatives: self.task.negatives,
            candidates: &self.task.candidates,
            known: self.task.known.as_ref(),
            key,
        }
        .draw(draw, samples)
    }
}

/// The place of a node among the seeds of a minibatch of links, which ascend.
///
/// # Panics
/// If it is no seed.
pub(super) fn place_of(seeds: &[NodeId], node: NodeId) -> u32 {
    seeds.binary_search(&node).expect("both ends of a link are seeds") as u32
}

impl LinkSamples {
    /// Source and destination of a pair, as indices of the nodes of its minibatch.
    ///
    /// # Panics
    /// If the minibatch has not these samples.
    pub fn local(&self, minibatch: &Minibatch, (source, target): (NodeId, NodeId)) -> (u32, u32) {
        let seeds = &minibatch.nodes[..minibatch.seeds];
        (place_of(seeds, source), place_of(seeds, target))
    }
}

impl BatchSource for LinkBatches {
    type Scratch = LinkScratch;

    fn batches(&self) -> u64 {
        self.task.batches_of(self.epoch.positives.len())
    }

    fn nodes_max(&self) -> u64 {
        self.view.nodes()
    }

    fn bytes(&self) -> u64 {
        let known = self.task.known.as_ref().map_or(0, KnownEdges::bytes);
        self.epoch.positives.bytes() + known + self.task.candidates.bytes()
    }

    fn nodes_min(&self) -> u64 {
        1
    }

    fn scratch(&self) -> Self::Scratch {
        Self::Scratch::default()
    }

    fn scratch_bytes(&self, scratch: &Self::Scratch, nodes: usize) -> u64 {
        let LinkSamples {
            indices,
            positives,
            negatives,
            is_negative,
        } = &scratch.samples;
        let pairs = positives.capacity() + negatives.capacity() + is_negative.capacity();
        // Negatives are drawn and looked up in lists as long as the pairs.
        let samples = indices.capacity() * size_of::<u64>() + 3 * pairs * size_of::<(NodeId, NodeId)>();
        let seeds = scratch.seeds.capacity() * size_of::<NodeId>();
        scratch.sampler.bytes(nodes) + (samples + seeds) as u64
    }

    fn sample(&self, index: u64, scratch: &mut Self::Scratch, out: &mut Minibatch) -> Result<()> {
        self.draw(index, scratch)?;
        let LinkScratch {
            sampler,
            samples,
            seeds,
            excluded,
            ..
        } = scratch;
        seeds.clear();
        for &(source, target) in samples.positives.iter().chain(&samples.negatives) {
            seeds.extend([source, target]);
        }
        seeds.sort_unstable();
        seeds.dedup();
        let view = self.view.get()?;
        self.task.sampler.sample(&view, seeds, self.key(index), sampler, out)?;
        excluded.clear();
        for &(source, target) in &samples.positives {
            let (source, target) = (place_of(seeds, source), place_of(seeds, target));
            match self.task.excluded {
                ExcludedEdges::None => break,
                ExcludedEdges::Positives => excluded.push((source, target)),
                ExcludedEdges::WithReverses => excluded.extend([(source, target), (target, source)]),
            }
        }
        excluded.sort_unstable();
        // Both ends are seeds, so a node is never reached through removed edges only.
        let seeds = seeds.len() as u32;
        for block in &mut out.blocks {
            block.retain(|source, target| {
                source >= seeds || target >= seeds || excluded.binary_search(&(source, target)).is_err()
            });
        }
        Ok(())
    }
}
