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

/// A partition with its seed nodes.
#[derive(Debug, Clone)]
pub struct Seeded {
    /// The adjacency lists that the partition sees.
    pub view: Arc<PartitionView>,
    /// Distinct nodes that the partition owns.
    pub seeds: Arc<SeedNodes>,
}

/// Options of an epoch.
#[derive(Debug, Clone)]
pub struct EpochOptions {
    /// The sampler.
    pub sampler: Arc<Sampler>,
    /// The maximum number of seeds of a batch.
    pub batch: usize,
    /// Number of partitions that take part in a step.
    pub concurrent: usize,
    /// The seed of the run.
    pub seed: u64,
    /// The number of the epoch.
    pub epoch: u64,
    /// Whether to shuffle the seeds, differently in each epoch. If not, they are in ascending order.
    pub shuffle: bool,
}

/// The step and partition of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlace {
    /// The step, from 0.
    pub step: u64,
    /// The partition.
    pub partition: PartitionId,
    /// The index of the step in its group of partitions.
    pub batch: u64,
}

/// The minibatches of an epoch, in training order.
///
/// The partitions form groups of `concurrent` partitions. The first group trains until all its partitions have used all
/// their seeds, then the next group does. In each step, every partition of the group has one batch
/// (none, if it has fewer seeds than there are steps).
///
/// A group has as many steps as its largest partition needs. Each partition divides its seeds evenly among these steps,
/// so no partition runs out of batches. It also means that no step has only a few seeds. Gradients of few seeds are
/// mostly noise, and optimizers that divide by the size of gradients, such as Adam, take full steps along it.
#[derive(Debug)]
pub struct PartitionBatches {
    parts: Vec<Seeded>,
    options: EpochOptions,
    places: Vec<BatchPlace>,
    /// For each partition, the number of steps that its seeds are divided among.
    steps_of_partition: Vec<u64>,
    nodes_max: u64,
}

impl PartitionBatches {
    /// The batches of an epoch over `parts`. The first is partition 0.
    ///
    /// # Panics
    /// If `options.batch` or `options.concurrent` is 0.
    pub fn new(parts: Vec<Seeded>, options: EpochOptions) -> Self {
        assert!(options.batch > 0 && options.concurrent > 0, "{options:?}");
        let batches = |part: &Seeded| part.seeds.len().div_ceil(options.batch as u64);
        let (mut places, mut steps_of_partition) = (Vec::new(), Vec::new());
        let (mut first_step, mut first_partition) = (0, 0);
        for group in parts.chunks(options.concurrent) {
            let steps = group.iter().map(batches).max().unwrap_or(0);
            for batch in 0..steps {
                for (partition, part) in (first_partition..).zip(group) {
                    if !seeds_of_batch(part.seeds.len(), batch, steps).is_empty() {
                        places.push(BatchPlace {
                            step: first_step + batch,
                            partition: PartitionId(partition),
                            batch,
                        });
                    }
                }
            }
            steps_of_partition.extend(group.iter().map(|_| steps));
            first_step += steps;
            first_partition += group.len() as u32;
        }
        let nodes_max = parts.iter().map(|part| part.view.nodes()).max().unwrap_or(0);
        Self {
            parts,
            options,
            places,
            steps_of_partition,
            nodes_max,
        }
    }

    /// Average number of seeds per step.
    pub fn seeds_per_step(&self) -> f64 {
        let seeds: u64 = self.parts.iter().map(|part| part.seeds.len()).sum();
        seeds as f64 / self.steps().max(1) as f64
    }

    /// Keeps only the first `batches` batches.
    #[must_use]
    pub fn first(mut self, batches: u64) -> Self {
        self.places.truncate(usize::try_from(batches).unwrap_or(usize::MAX));
        self
    }

    /// Removes the steps before `step`. The steps, seeds and random draws of the other batches do not change.
    #[must_use]
    pub fn from_step(mut self, step: u64) -> Self {
        self.places.retain(|place| place.step >= step);
        self
    }

    /// The step and partition of each batch.
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
        let indices = seeds_of_batch(seeds.len(), place.batch, self.steps_of_partition[partition]);
        out.clear();
        if self.options.shuffle {
            // A keyed permutation is computed, so the shuffled order takes no memory.
            let shuffle = Feistel::new(seeds.len(), self.key(place).shuffle());
            out.extend(indices.map(|index| seeds.get(shuffle.forward(index))));
        } else {
            out.extend(indices.map(|index| seeds.get(index)));
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

/// The seeds of batch `batch`, as indices, if `seeds` seeds are divided among `batches` batches. The sizes of two
/// batches differ by at most one.
fn seeds_of_batch(seeds: u64, batch: u64, batches: u64) -> Range<u64> {
    // The product may exceed 64 bits.
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
        // Partitions may share a list of seeds. It is counted once.
        let lists: BTreeMap<_, _> = self
            .parts
            .iter()
            .map(|part| (Arc::as_ptr(&part.seeds), &part.seeds))
            .collect();
        let lists: u64 = lists.values().map(|seeds| seeds.bytes()).sum();
        lists + (self.places.capacity() * size_of::<BatchPlace>()) as u64
    }

    fn nodes_min(&self) -> u64 {
        // The batches of a partition differ by at most one seed.
        let seeds = |place: &BatchPlace| {
            let partition = place.partition.0 as usize;
            self.parts[partition].seeds.len() / self.steps_of_partition[partition].max(1)
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
