//! The minibatches of an epoch over the partitions of a graph.

mod source;

use std::{ops::Range, sync::Arc};

use grappa_formats::{PartitionId, permutation::Feistel, random};
use grappa_io::Result;

use super::{
    part::{Division, Part, Seeded},
    source::BatchSource,
};
use crate::{
    links::{LinkScratch, LinkTask, Positives, TimedPositives},
    partition::Share,
    sample::{BatchKey, Join, JoinScratch, Minibatch, Sampler, Scratch, SeedParts},
    shape::GraphShape,
    sweep::{Sweeps, SweptScratch},
    view::{OpenView, Turns, ViewSource},
};

/// Options of minibatches.
#[derive(Debug, Clone)]
pub struct MinibatchOptions {
    /// The sampler.
    pub sampler: Arc<Sampler>,
    /// The maximum number of seeds of a minibatch.
    pub batch: usize,
    /// How the seeds of a partition are divided among batches.
    pub division: Division,
    /// How the minibatches of a step are joined into one block-diagonal batch, if they are; see [`Minibatch::join`].
    pub join_steps: Option<Join>,
    /// The random seed.
    pub seed: u64,
    /// Whether to shuffle the seeds, differently in each epoch. If not, they are in ascending order.
    pub shuffle: bool,
    /// The maximum number of steps of an epoch. None: an epoch uses all seeds.
    pub steps_max: Option<u64>,
    /// The seeds of each partition that this worker takes, of several workers that see the same partitions. The order of
    /// an epoch is dealt out to them in turn, and its first seeds are there again until all have as many.
    pub seed_share: Share,
    /// Whether each seed, or each group of positives, is sampled as a minibatch of its own; these are joined [apart](Join::Apart) then. Links
    /// are, if and only if the sampler needs times.
    pub disjoint: bool,
    /// Whether a seed draws the same neighbors in every batch and epoch. Minibatches of seeds that are sampled apart can.
    pub keyed_by_seed: bool,
    /// What is drawn for minibatches of links; none if minibatches are of nodes. Minibatches of links have positives instead of seeds, and the
    /// ends of all pairs are the seeds that are sampled.
    pub links: Option<Arc<LinkTask>>,
}

impl MinibatchOptions {
    /// Minibatches of 1024 seeds in random order, drawn by `sampler`.
    pub fn new(sampler: Sampler) -> Self {
        Self {
            sampler: Arc::new(sampler),
            batch: 1024,
            division: Division::Even,
            join_steps: None,
            seed: 1,
            shuffle: true,
            steps_max: None,
            seed_share: Share::ALL,
            disjoint: false,
            keyed_by_seed: false,
            links: None,
        }
    }

    /// The number of seeds that this worker takes of a partition with `seeds` seeds.
    fn dealt(&self, seeds: u64) -> u64 {
        seeds.div_ceil(u64::from(self.seed_share.workers()))
    }

    /// The number of batches of a partition.
    fn batches_of(&self, part: &Part) -> u64 {
        match part.listed_batches() {
            Some(ends) => ends.len() as u64,
            None => self.division.batches(self.dealt(part.seeds()), self.batch as u64),
        }
    }

    /// The seeds of batch `batch` of a partition, as indices, if its group has `steps` steps.
    fn seeds_of(&self, part: &Part, batch: u64, steps: u64) -> Range<u64> {
        match part.listed_batches() {
            Some(ends) => {
                let end_of = |batch: u64| ends[..ends.len().min(batch as usize)].last().copied().unwrap_or(0);
                end_of(batch)..end_of(batch + 1)
            }
            None => self.division.share(self.dealt(part.seeds()), self.batch as u64, batch, steps),
        }
    }

    /// The place in the order of an epoch, which has `seeds` seeds, of the seed that is dealt to this worker as number `index`.
    fn place_of_dealt(&self, index: u64, seeds: u64) -> u64 {
        let place = u128::from(index) * u128::from(self.seed_share.workers()) + u128::from(self.seed_share.worker());
        (place % u128::from(seeds)) as u64
    }

    /// A random number of the run and an epoch.
    fn of_epoch(&self, epoch: u64) -> u64 {
        random::combine(random::hash(self.seed), epoch)
    }
}

/// The step and partition of a minibatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlace {
    /// The step, from 0.
    pub step: u64,
    /// The partition.
    pub partition: PartitionId,
    /// The index of the step in its group of partitions.
    pub batch: u64,
    /// Whether it is a minibatch of another step, whose loss does not count here; see
    /// [`PartitionBatches::in_every_step`].
    pub repeats: bool,
}

/// The sampler state of a thread.
#[derive(Debug, Default)]
pub struct EpochScratch {
    sampler: Scratch,
    seeds: SeedParts,
    links: LinkScratch,
    /// The minibatches of a step, before they are joined: for each, a minibatch of each node type.
    parts: Vec<Minibatch>,
    swept: SweptScratch,
    join: JoinScratch,
    /// Nodes of the batch, which the parts may share.
    nodes: usize,
}

/// The batches of an epoch, in training order.
///
/// The partitions form groups of `concurrent` partitions. A group trains until all its partitions have used all their
/// seeds, then the next group does. If seeds are shuffled, so are the groups. In each step, every partition of the
/// group has one minibatch (none, if it has fewer seeds than there are steps). A batch is one minibatch, or all
/// minibatches of a step if [`MinibatchOptions::join_steps`] is set. Both have the same seeds and random draws.
///
/// A group has as many steps as its largest partition needs. Each partition divides its seeds evenly among these steps
/// ([`Division::Even`]), so no partition runs out of batches. It also means that no step has only a few seeds. Gradients of few seeds are
/// mostly noise, and optimizers that divide by the size of gradients, such as Adam, take full steps along it.
///
/// With [`MinibatchOptions::steps_max`], each group takes its share of the steps, the first ones of the same division. If
/// seeds are shuffled, these are other seeds in each epoch.
///
/// If several workers divide the partitions, the batches of all partitions can be counted on each worker. Only those
/// that are [served](PartitionBatches::served) there can be sampled.
#[derive(Debug)]
pub struct PartitionBatches {
    parts: Vec<Part>,
    options: MinibatchOptions,
    /// Number of partitions that take part in a step.
    concurrent: usize,
    epoch: u64,
    /// The step and partition of each minibatch.
    places: Vec<BatchPlace>,
    /// The first minibatch of each batch, then the number of minibatches.
    starts: Vec<usize>,
    /// For each partition, the number of steps that its seeds are divided among.
    steps_of_partition: Vec<u64>,
    /// The shape of the graph of the partitions that are served here.
    shape: GraphShape,
    /// The sweeps that sample the minibatches, if they are swept.
    sweeps: Option<Arc<Sweeps>>,
}

impl PartitionBatches {
    /// The batches of epoch `epoch` over `parts`; `concurrent` partitions take part in a step. The first part is partition 0.
    ///
    /// # Panics
    /// If `options.batch` or `concurrent` is 0, [`MinibatchOptions::disjoint`] is given with a shared input, or with links without times, or is
    /// not given and the sampler needs times.
    pub fn new(parts: Vec<Part>, options: MinibatchOptions, concurrent: usize, epoch: u64) -> Self {
        assert!(options.batch > 0 && concurrent > 0, "{options:?}, {concurrent} in a step");
        let may_be_apart = options.links.is_none() || options.sampler.needs_times();
        let joins_apart = may_be_apart && options.join_steps != Some(Join::SharedInput);
        assert!(!options.disjoint || joins_apart, "disjoint: {options:?}");
        assert!(options.disjoint || !options.sampler.needs_times(), "seeds with times: {options:?}");
        let groups: Vec<&[Part]> = parts.chunks(concurrent).collect();
        let steps: Vec<u64> =
            groups.iter().map(|group| group.iter().map(|part| options.batches_of(part)).max().unwrap_or(0)).collect();
        let taken = shares(&steps, &options, epoch);
        let (mut places, mut first_step) = (Vec::new(), 0);
        for number in order(groups.len(), &options, epoch) {
            let (group, steps, taken) = (groups[number], steps[number], taken[number]);
            let first_partition = (number * concurrent) as u32;
            for batch in 0..taken {
                for (partition, part) in (first_partition..).zip(group) {
                    if !options.seeds_of(part, batch, steps).is_empty() {
                        places.push(BatchPlace {
                            step: first_step + batch,
                            partition: PartitionId(partition),
                            batch,
                            repeats: false,
                        });
                    }
                }
            }
            first_step += taken;
        }
        let steps_of_partition = (0..parts.len()).map(|part| steps[part / concurrent]).collect();
        let shape = parts.iter().find_map(Part::served).map(|part| part.view.shape());
        Self {
            parts,
            starts: starts(&places, options.join_steps.is_some()),
            options,
            concurrent,
            epoch,
            places,
            steps_of_partition,
            shape: shape.unwrap_or_else(|| GraphShape::untyped(0)),
            sweeps: None,
        }
    }

    /// The same batches, sampled by sweeps.
    ///
    /// # Panics
    /// If there are several partitions: sweeps are over the whole graph.
    #[must_use]
    pub(crate) fn swept(self, sweeps: Option<Arc<Sweeps>>) -> Self {
        assert!(sweeps.is_none() || self.parts.len() == 1, "sweeps over {} partitions", self.parts.len());
        Self { sweeps, ..self }
    }

    /// Number of seeds of all minibatches.
    pub fn seeds_of_all(&self) -> u64 {
        self.places.iter().map(|&place| self.seeds_of(place) as u64).sum()
    }

    /// Number of seeds of the partitions that a worker serves.
    pub fn seeds_of_worker(&self, share: Share) -> u64 {
        let (count, concurrent) = (self.parts.len(), self.concurrent);
        let served = (0..).map(PartitionId).zip(&self.parts);
        let served = served.filter(|&(partition, _)| share.serves(partition, count, concurrent));
        served.map(|(_, part)| part.seeds()).sum()
    }

    /// Average number of seeds per step.
    pub fn seeds_per_step(&self) -> f64 {
        self.seeds_of_all() as f64 / self.steps().max(1) as f64
    }

    /// Keeps only the first `batches` batches.
    #[must_use]
    pub fn first(mut self, batches: u64) -> Self {
        let batches = usize::try_from(batches).unwrap_or(usize::MAX);
        self.starts.truncate(batches.saturating_add(1));
        self.places.truncate(self.starts.last().copied().unwrap_or(0));
        self
    }

    /// Removes the steps before `step`. The steps, seeds and random draws of the other batches do not change.
    #[must_use]
    pub fn from_step(mut self, step: u64) -> Self {
        self.places.retain(|place| place.step >= step);
        self.with_starts()
    }

    /// Keeps only the minibatches of the partitions that this worker serves. It has no batch in a step in which these
    /// have none.
    #[must_use]
    pub fn served(mut self) -> Self {
        let parts = &self.parts;
        self.places.retain(|place| parts[place.partition.0 as usize].served().is_some());
        self.with_starts()
    }

    /// Fills the steps in which this worker has no minibatch, of `steps` in all: one of another step is there again, and
    /// its loss has the weight 0. So workers that wait for each other in each step all have a batch, however many seeds
    /// their partitions have. Nothing changes if the worker has no minibatch at all.
    #[must_use]
    pub fn in_every_step(mut self, steps: u64) -> Self {
        let Some(&first) = self.places.first() else { return self };
        let mut places = Vec::with_capacity(self.places.len());
        let mut of_steps = self.places.chunk_by(|a, b| a.step == b.step).peekable();
        let mut last = first;
        for step in 0..steps {
            match of_steps.next_if(|places| places[0].step == step) {
                Some(of_step) => {
                    places.extend_from_slice(of_step);
                    last = of_step[0];
                }
                None => places.push(BatchPlace { step, repeats: true, ..last }),
            }
        }
        self.places = places;
        self.with_starts()
    }

    fn with_starts(mut self) -> Self {
        self.starts = starts(&self.places, self.options.join_steps.is_some());
        self
    }

    /// The factor for the mean loss of the seeds of batch `index`, if `workers` workers take the mean of their gradients
    /// in each step. The sum of their losses then counts all seeds alike: it is divided by `seeds_per_step`, the mean
    /// number of seeds of a step of all workers ([`PartitionBatches::seeds_per_step`]).
    ///
    /// The mean over the seeds of a step alone would give the seeds of a small step, and their noise, a larger weight.
    pub fn loss_weight(&self, index: u64, seeds_per_step: f64, workers: u32) -> f64 {
        let counted = self.places(index).iter().filter(|place| !place.repeats);
        let seeds: usize = counted.map(|&place| self.seeds_of(place)).sum();
        seeds as f64 * f64::from(workers) / seeds_per_step
    }

    /// Keeps only the share of one of several workers that all serve the same partitions: consecutive batches, which
    /// stay the same.
    #[must_use]
    pub fn of_share(mut self, share: Share) -> Self {
        let range = share.range(self.batches());
        let starts = &self.starts[range.start as usize..=range.end as usize];
        self.places = self.places[starts[0]..starts[starts.len() - 1]].to_vec();
        self.starts = starts.iter().map(|start| start - starts[0]).collect();
        self
    }

    /// The step and partition of each minibatch of a batch.
    pub fn places(&self, index: u64) -> &[BatchPlace] {
        &self.places[self.starts[index as usize]..self.starts[index as usize + 1]]
    }

    /// Number of seeds of a minibatch.
    pub fn seeds_of(&self, place: BatchPlace) -> usize {
        let indices = self.indices(place);
        (indices.end - indices.start) as usize
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.places.last().map_or(0, |place| place.step + 1)
    }

    /// The seeds or positives of batch `index`, as indices of the seeds of their partition, in the order of the minibatch.
    pub fn seed_indices(&self, index: u64, out: &mut Vec<u64>) {
        out.clear();
        for &place in self.places(index) {
            self.in_order(place, |index| out.push(index));
        }
    }

    /// The positives of the partition of a minibatch of links.
    ///
    /// # Panics
    /// If minibatches are of nodes, or another worker serves the partition.
    pub fn positives(&self, place: BatchPlace) -> &Arc<Positives> {
        let positives = self.part(place).positives.as_ref();
        positives.expect("minibatches of links have positives")
    }

    /// Calls `each` with the seeds of a minibatch, as indices of the seeds of its partition.
    fn in_order(&self, place: BatchPlace, each: impl FnMut(u64)) {
        let seeds = self.parts[place.partition.0 as usize].seeds();
        let indices = self.indices(place).map(|index| self.options.place_of_dealt(index, seeds));
        match self.options.shuffle {
            // A keyed permutation is computed, so the shuffled order takes no memory.
            true => {
                let shuffle = Feistel::new(seeds, self.key(place).shuffle());
                indices.map(|index| shuffle.forward(index)).for_each(each);
            }
            false => indices.for_each(each),
        }
    }

    /// The seeds of a minibatch, as indices of the seeds of its partition.
    fn indices(&self, place: BatchPlace) -> Range<u64> {
        let partition = place.partition.0 as usize;
        self.options.seeds_of(&self.parts[partition], place.batch, self.steps_of_partition[partition])
    }

    /// Samples the minibatch of each node type.
    fn sample_part(
        &self,
        place: BatchPlace,
        sampling: &mut Scratch,
        seeds: &mut SeedParts,
        links: &mut LinkScratch,
        out: &mut [Minibatch],
    ) -> Result<()> {
        let view = self.part(place).view.open()?;
        let (lists, sampler) = (view.lists(), &self.options.sampler);
        self.list_seeds(place, &view, seeds, links)?;
        match self.options.disjoint {
            true => sampler.sample_parts(&lists, seeds, sampling, out)?,
            false => sampler.sample_types(&lists, seeds.seeds(), self.key(place), sampling, out)?,
        }
        self.put_pairs(links, out)
    }

    /// Makes a sampled minibatch one of links, if minibatches are of links. Its seeds were listed last.
    fn put_pairs(&self, links: &mut LinkScratch, out: &mut [Minibatch]) -> Result<()> {
        let Some(task) = &self.options.links else { return Ok(()) };
        task.put_pairs(&self.options.sampler, &self.shape, links, out)
    }

    /// Lists the seeds of a minibatch, by part. Draws the pairs of a minibatch of links.
    fn list_seeds(
        &self,
        place: BatchPlace,
        view: &OpenView,
        seeds: &mut SeedParts,
        links: &mut LinkScratch,
    ) -> Result<()> {
        let (part, key, options) = (self.part(place), self.key(place), &self.options);
        match (&options.links, &part.positives) {
            (Some(task), Some(positives)) => {
                let count = self.seeds_of(place);
                let mut edges = Vec::with_capacity(count);
                if !options.disjoint {
                    self.in_order(place, |index| edges.push(positives.edges()[index as usize]));
                    return task.list_ends(&view.lists(), &edges, key, links, seeds);
                }
                let (mut times, mut groups) = (Vec::with_capacity(count), Vec::with_capacity(count));
                self.in_order(place, |index| {
                    edges.push(positives.edges()[index as usize]);
                    times.extend(positives.time(index));
                    groups.push(positives.group(index));
                });
                let timed = TimedPositives { edges: &edges, times: &times, groups: &groups };
                task.list_ends_apart(&view.lists(), timed, key, links, seeds)
            }
            (None, None) => {
                seeds.begin(self.shape.types());
                let (mut owned, mut number) = (Ok(()), 0);
                self.in_order(place, |index| {
                    let position = part.seeds.get(index);
                    if owned.is_ok() {
                        owned = view.check_seed(position);
                    }
                    let (node_type, node) = view.locate(position);
                    seeds.push_seed(node_type, node);
                    if options.disjoint {
                        let key = match options.keyed_by_seed {
                            true => BatchKey { partition: PartitionId(0), batch: 0, ..key }.of_seed(position.0),
                            false => key.of_seed(number),
                        };
                        seeds.push_part(key, part.times.as_ref().map(|times| times[index as usize]));
                        number += 1;
                    }
                });
                if !options.disjoint {
                    seeds.push_part(key, None);
                }
                owned
            }
            _ => panic!("minibatches are of links or of nodes"),
        }
    }

    fn part(&self, place: BatchPlace) -> &Seeded {
        let part = self.parts[place.partition.0 as usize].served();
        part.unwrap_or_else(|| panic!("another worker serves partition {}", place.partition))
    }

    fn group(&self, index: u64) -> usize {
        self.places(index)[0].partition.0 as usize / self.concurrent
    }

    /// The groups of the batches, in order, each with the number of its batches.
    fn groups(&self) -> Vec<(usize, u64)> {
        let groups: Vec<usize> = (0..self.batches()).map(|index| self.group(index)).collect();
        groups.chunk_by(|a, b| a == b).map(|group| (group[0], group.len() as u64)).collect()
    }

    /// The views of the partitions, if these are in memory in turn.
    fn turns(&self) -> Option<&Arc<Turns>> {
        match &self.parts.iter().find_map(Part::served)?.view {
            ViewSource::InTurn(turns, _) => Some(turns),
            ViewSource::Open(_) | ViewSource::Graph(_) => None,
        }
    }

    /// The largest number of seeds or positives of a batch.
    fn seeds_max(&self) -> u64 {
        let places = (0..self.batches()).map(|index| self.places(index).iter());
        let seeds = places.map(|places| places.map(|&place| self.seeds_of(place) as u64).sum());
        seeds.max().unwrap_or(0)
    }

    fn key(&self, place: BatchPlace) -> BatchKey {
        let share = self.options.seed_share;
        // Workers that divide seeds draw other neighbors.
        let batch = place.batch * u64::from(share.workers()) + u64::from(share.worker());
        BatchKey { seed: self.options.seed, epoch: self.epoch, partition: place.partition, batch }
    }
}

fn order(groups: usize, options: &MinibatchOptions, epoch: u64) -> Vec<usize> {
    let groups = groups as u64;
    let shuffle = Feistel::new(groups, options.of_epoch(epoch));
    (0..groups).map(|at| if options.shuffle { shuffle.forward(at) } else { at } as usize).collect()
}

/// The number of steps that each group takes in an epoch: all of `steps`, or its share of `steps_max`. The epoch
/// decides which groups get the remainders.
fn shares(steps: &[u64], options: &MinibatchOptions, epoch: u64) -> Vec<u64> {
    let all: u64 = steps.iter().sum();
    let wanted = match options.steps_max {
        Some(wanted) if wanted < all => u128::from(wanted),
        _ => return steps.to_vec(),
    };
    let offset = u128::from(random::hash(options.of_epoch(epoch)) % all);
    let mut before: u64 = 0;
    // Products may exceed 64 bits.
    let share_until = |end: u64| ((wanted * u128::from(end) + offset) / u128::from(all)) as u64;
    steps
        .iter()
        .map(|&of_group| {
            let begin = before;
            before += of_group;
            share_until(before) - share_until(begin)
        })
        .collect()
}

/// The first minibatch of each batch, then the number of minibatches.
fn starts(places: &[BatchPlace], join_steps: bool) -> Vec<usize> {
    (0..places.len())
        .filter(|&at| !join_steps || at == 0 || places[at].step != places[at - 1].step)
        .chain([places.len()])
        .collect()
}
