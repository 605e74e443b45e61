//! The minibatches of an epoch over the partitions of a graph.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use grappa_formats::{NodeId, PartitionId, permutation::Feistel};
use grappa_io::Result;

use super::source::BatchSource;
use crate::{
    partition::SeedNodes,
    sample::{BatchKey, Minibatch, Sampler, Scratch},
    view::PartitionView,
};

/// A partition, and the nodes in it to train on.
#[derive(Debug, Clone)]
pub struct Seeded {
    /// What it sees.
    pub view: Arc<PartitionView>,
    /// Nodes that the view owns, each once.
    pub seeds: Arc<SeedNodes>,
}

/// How an epoch goes.
#[derive(Debug, Clone)]
pub struct EpochOptions {
    /// How neighbours are drawn.
    pub sampler: Arc<Sampler>,
    /// The most seeds in a batch.
    pub batch: usize,
    /// Partitions that take part in a step.
    pub concurrent: usize,
    /// The seed of the run.
    pub seed: u64,
    /// The number of the epoch.
    pub epoch: u64,
    /// Whether seeds are in random order, another one each epoch; else they are in theirs.
    pub shuffle: bool,
}

/// Where a batch is in its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlace {
    /// The step that it takes part in, from 0.
    pub step: u64,
    /// Its partition.
    pub partition: PartitionId,
    /// Its number among the steps of its group of partitions.
    pub batch: u64,
}

/// The minibatches of an epoch, in the order in which they are trained on.
///
/// The first `concurrent` partitions take part in each step until all of them have had all their seeds; then the next ones
/// do. Each partition divides its seeds evenly among the steps of its group, of which there are as many as the partition
/// with the most seeds needs: so nobody runs out of batches, and no step has but a few seeds, whose noise an optimizer that
/// divides by the size of gradients would follow as far as the mean of many. (A partition with fewer seeds than steps has
/// no batch in some of them.)
#[derive(Debug)]
pub struct PartitionBatches {
    parts: Vec<Seeded>,
    options: EpochOptions,
    places: Vec<BatchPlace>,
    /// Of each partition, how many batches its seeds are divided into.
    divisions: Vec<u64>,
    nodes_max: u64,
}

impl PartitionBatches {
    /// The batches of an epoch over `parts`, of which the first is partition 0.
    ///
    /// # Panics
    /// If batches have no seeds or steps no partitions.
    pub fn new(parts: Vec<Seeded>, options: EpochOptions) -> Self {
        assert!(options.batch > 0 && options.concurrent > 0, "{options:?}");
        let batches = |part: &Seeded| part.seeds.len().div_ceil(options.batch as u64);
        let (mut places, mut divisions) = (Vec::new(), Vec::new());
        let (mut first_step, mut first_partition) = (0, 0);
        for group in parts.chunks(options.concurrent) {
            let steps = group.iter().map(batches).max().unwrap_or(0);
            for batch in 0..steps {
                for (partition, part) in (first_partition..).zip(group) {
                    if !numbers(part.seeds.len(), batch, steps).is_empty() {
                        places.push(BatchPlace {
                            step: first_step + batch,
                            partition: PartitionId(partition),
                            batch,
                        });
                    }
                }
            }
            divisions.extend(group.iter().map(|_| steps));
            first_step += steps;
            first_partition += group.len() as u32;
        }
        let nodes_max = parts.iter().map(|part| part.view.nodes()).max().unwrap_or(0);
        Self {
            parts,
            options,
            places,
            divisions,
            nodes_max,
        }
    }

    /// Seeds of a step, on average over the epoch.
    pub fn seeds_per_step(&self) -> f64 {
        let seeds: u64 = self.parts.iter().map(|part| part.seeds.len()).sum();
        seeds as f64 / self.steps().max(1) as f64
    }

    /// Leaves out all but the first `batches`.
    #[must_use]
    pub fn first(mut self, batches: u64) -> Self {
        self.places.truncate(usize::try_from(batches).unwrap_or(usize::MAX));
        self
    }

    /// Leaves out the steps before `step`, which were taken before: places, seeds and draws of the others stay.
    #[must_use]
    pub fn from_step(mut self, step: u64) -> Self {
        self.places.retain(|place| place.step >= step);
        self
    }

    /// Where each batch is.
    pub fn places(&self) -> &[BatchPlace] {
        &self.places
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.places.last().map_or(0, |place| place.step + 1)
    }

    /// The seeds of a batch.
    fn seeds(&self, place: BatchPlace, out: &mut Vec<NodeId>) {
        let partition = place.partition.0 as usize;
        let seeds = &self.parts[partition].seeds;
        let numbers = numbers(seeds.len(), place.batch, self.divisions[partition]);
        out.clear();
        if self.options.shuffle {
            let shuffle = Feistel::new(seeds.len(), self.key(place).shuffle());
            out.extend(numbers.map(|number| seeds.get(shuffle.forward(number))));
        } else {
            out.extend(numbers.map(|number| seeds.get(number)));
        }
    }

    fn key(&self, place: BatchPlace) -> BatchKey {
        BatchKey {
            seed: self.options.seed,
            epoch: self.options.epoch,
            partition: place.partition,
            batch: place.batch,
        }
    }
}

/// Which of `seeds` seeds are in a batch of `batches`.
fn numbers(seeds: u64, batch: u64, batches: u64) -> Range<u64> {
    let start = |batch: u64| (u128::from(seeds) * u128::from(batch) / u128::from(batches)) as u64;
    start(batch)..start(batch + 1)
}

impl BatchSource for PartitionBatches {
    type Scratch = (Scratch, Vec<NodeId>);

    fn batches(&self) -> u64 {
        self.places.len() as u64
    }

    fn nodes_max(&self) -> u64 {
        self.nodes_max
    }

    fn bytes(&self) -> u64 {
        // Partitions may share a list.
        let lists: BTreeMap<_, _> = self
            .parts
            .iter()
            .map(|part| (Arc::as_ptr(&part.seeds), &part.seeds))
            .collect();
        let lists: u64 = lists.values().map(|seeds| seeds.bytes()).sum();
        lists + (self.places.capacity() * size_of::<BatchPlace>()) as u64
    }

    fn nodes_min(&self) -> u64 {
        // The batches of a partition differ by one seed at most.
        let seeds = |place: &BatchPlace| {
            let partition = place.partition.0 as usize;
            self.parts[partition].seeds.len() / self.divisions[partition].max(1)
        };
        self.places.iter().map(seeds).max().unwrap_or(0)
    }

    fn scratch(&self) -> Self::Scratch {
        Self::Scratch::default()
    }

    fn scratch_bytes(&self, (scratch, seeds): &Self::Scratch, nodes: usize) -> u64 {
        scratch.bytes(nodes) + (seeds.capacity() * size_of::<NodeId>()) as u64
    }

    fn sample(&self, index: u64, (scratch, seeds): &mut Self::Scratch, out: &mut Minibatch) -> Result<()> {
        let place = self.places[index as usize];
        self.seeds(place, seeds);
        let view = &self.parts[place.partition.0 as usize].view;
        self.options.sampler.sample(view, seeds, self.key(place), scratch, out)
    }
}
