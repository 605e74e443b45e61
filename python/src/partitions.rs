//! The partitions of a loader: which of them this process serves, and when they change.

use std::sync::Arc;

use grappa_engine::{
    Batch, Error, Loader, NodeId, PartitionId, Progress, Result,
    sample::{
        LoaderOptions, SeedTimes, Seeds, coverage_of_types,
        feed::PartitionBatches,
        loss_weights,
        partition::{RepartitionOptions, Schedule, Share, assign},
        policy::REPARTITION_EVERY,
        view::{Halo, shape_of},
    },
    store::Graph,
};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{error::exception, times::ListedTimes};

/// Options of partitions and of the first hop, as the package gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PartitionOptions {
    /// Number of partitions; 1 for the whole graph.
    partitions: u32,
    rank: u32,
    world_size: u32,
    /// Whether the processes divide the seeds of the whole graph, not its partitions.
    divides_seeds: bool,
    /// Processes of this machine, which share its memory and processors.
    local_world_size: u32,
    repartition_every: Option<u64>,
    halo: String,
    halo_neighbors: Option<u32>,
    /// Loss weights by coverage: `"batch"`, `"node"`, or none.
    correction: Option<String>,
    shrinkage: f64,
    /// The kind of pre-aggregated features that batches have.
    first_hop: Option<String>,
}

/// The factor for the mean loss of a batch, or for the loss of each of its seeds.
pub enum LossWeight {
    OfBatch(f64),
    OfSeeds(Vec<f32>),
}

/// The partitions that this process serves.
pub struct Partitions {
    options: PartitionOptions,
    seeds: Seeds,
    /// The time of each of these.
    pub times: ListedTimes,
    seed: u64,
    /// The super-epoch whose partitions are open.
    super_epoch: Option<u64>,
    /// For each partition that is served here, the index of each seed in the list of all seeds. Empty without such a list, and with one
    /// partition, which has all.
    positions: Vec<Vec<u64>>,
}

impl PartitionOptions {
    /// Sets what partitions of a graph need.
    pub fn apply(&self, graph: &Graph, options: &mut LoaderOptions) -> PyResult<()> {
        let share = Share::new(self.rank, self.world_size);
        match self.divides_seeds {
            true => options.minibatches.seed_share = share,
            false => options.share = share,
        }
        options.halo = match &self.halo[..] {
            // Lists in the order of time have no sampled ones beside them.
            "auto"
                if options.minibatches.sampler.needs_times()
                    || graph.relations().iter().any(|store| store.is_timed()) =>
            {
                Halo::Stop
            }
            "auto" => Halo::Neighbors,
            name => name.parse().map_err(exception)?,
        };
        options.halo_neighbors = self.halo_neighbors;
        let kind = self.first_hop.as_ref().map(|kind| kind.parse().map_err(PyValueError::new_err));
        options.rows.aggregates = kind.transpose()?;
        options.memory /= u64::from(self.local_world_size);
        options.threads = (options.threads / self.local_world_size as usize).max(1);
        Ok(())
    }
}

impl Partitions {
    /// Partitions that are not open yet. `seed` decides the groups of chunks.
    pub fn new(options: PartitionOptions, seeds: Seeds, times: ListedTimes, seed: u64) -> Self {
        Self { options, seeds, times, seed, super_epoch: None, positions: Vec::new() }
    }

    /// Opens the partitions of an epoch, unless they are open. All processes draw the same ones.
    ///
    /// # Errors
    /// If there are fewer chunks than partitions, the memory is too small, or `progress` asks to stop.
    pub fn open(&mut self, loader: &mut Loader, graph: &Graph, epoch: u64, progress: &dyn Progress) -> Result<()> {
        let partitions = self.options.partitions;
        let super_epoch = match partitions {
            1 => 0,
            _ => epoch / self.options.repartition_every.unwrap_or(REPARTITION_EVERY),
        };
        if self.super_epoch.replace(super_epoch) == Some(super_epoch) {
            return Ok(());
        }
        let repartition = RepartitionOptions {
            partitions,
            schedule: Schedule::Sweep,
            seed: self.seed,
            super_epoch: Some(super_epoch),
        };
        let opened = assign(graph, &repartition, super_epoch + 1)
            .and_then(|assignment| loader.partition(&assignment, &self.seeds, progress));
        if opened.is_err() {
            self.super_epoch = None;
            return opened;
        }
        if let (Seeds::List(list), 2..) = (&self.seeds, partitions) {
            self.positions = positions(loader, list, partitions);
        }
        if let Some(times) = &self.times {
            loader.set_seed_times(SeedTimes::Listed(match self.positions.is_empty() {
                true => vec![times.clone()],
                false => loader.served().map(|part| self.times_of(part.view.owned().partition(), times)).collect(),
            }))?;
        }
        opened
    }

    /// The times of the seeds of a partition.
    fn times_of(&self, PartitionId(partition): PartitionId, times: &[i64]) -> Arc<Vec<i64>> {
        Arc::new(self.positions[partition as usize].iter().map(|&at| times[at as usize]).collect())
    }

    /// Checks that each process has a seed, so that all have a batch in each step. All processes find the same, so none waits for one
    /// that has failed.
    ///
    /// # Errors
    /// If a process has no seed.
    pub fn check(&self, batches: &PartitionBatches) -> Result<()> {
        let PartitionOptions { partitions, world_size, divides_seeds, .. } = self.options;
        if divides_seeds || partitions == 1 && world_size == 1 {
            return Ok(());
        }
        if batches.seeds_of_all() == 0 {
            // No process has a batch.
            return Ok(());
        }
        let idle = Share::each(world_size).find(|&share| batches.seeds_of_worker(share) == 0);
        let Some(share) = idle else { return Ok(()) };
        Err(match partitions < world_size {
            true => Error::conflict(
                format!("partitions={partitions} and world_size={world_size}: each process needs a partition"),
                format!("give partitions={world_size} or more"),
            ),
            false => Error::conflict(
                format!(
                    "none of the {} input nodes is in a partition of rank {}",
                    batches.seeds_of_all(),
                    share.worker()
                ),
                "give fewer partitions, more input nodes, or another seed",
            ),
        })
    }

    /// The factor for the mean loss of a batch, or a factor for the loss of each seed.
    pub fn loss_weight(
        &self,
        graph: &Graph,
        batches: &PartitionBatches,
        batch: &Batch,
        seeds_per_step: f64,
    ) -> LossWeight {
        // Processes that divide seeds all have the same number of seeds in a step.
        let workers = if self.options.divides_seeds { 1 } else { self.options.world_size };
        let weight = batches.loss_weight(batch.index(), seeds_per_step, workers);
        let Some(correction) = &self.options.correction else { return LossWeight::OfBatch(weight) };
        let coverage = coverage_of_types(&shape_of(graph), batch.minibatches()).concat();
        let mut weights = Vec::with_capacity(coverage.len());
        for &place in batches.places(batch.index()) {
            let of_place = &coverage[weights.len()..][..batches.seeds_of(place)];
            let factors = loss_weights(of_place, correction == "node", self.options.shrinkage);
            weights.extend(factors.iter().map(|factor| (f64::from(*factor) * weight) as f32));
        }
        LossWeight::OfSeeds(weights)
    }

    /// The seeds at some positions of the list of seeds, or of all nodes in the order of the store.
    pub fn seeds_at(&self, positions: &[i64]) -> Vec<NodeId> {
        match &self.seeds {
            Seeds::List(list) => positions.iter().map(|&at| list[at as usize]).collect(),
            _ => positions.iter().map(|&at| NodeId(at as u64)).collect(),
        }
    }

    /// The index of each seed of a batch in the list of seeds; none if all nodes are seeds. `order` has the index of each seed of the epoch,
    /// if its order is given.
    pub fn input_ids(&self, batches: &PartitionBatches, index: u64, order: Option<&[i64]>) -> Option<Vec<i64>> {
        if !matches!(self.seeds, Seeds::List(_)) {
            return None;
        }
        let mut indices = Vec::new();
        batches.seed_indices(index, &mut indices);
        let mut rest = &mut indices[..];
        for &place in batches.places(index) {
            let (of_place, others) = rest.split_at_mut(batches.seeds_of(place));
            if let Some(positions) = self.positions.get(place.partition.0 as usize) {
                of_place.iter_mut().for_each(|at| *at = positions[*at as usize]);
            }
            rest = others;
        }
        Some(indices.into_iter().map(|at| order.map_or(at as i64, |order| order[at as usize])).collect())
    }
}

/// For each partition that is served here, the indices of its seeds in `list`.
fn positions(loader: &Loader, list: &Arc<Vec<NodeId>>, partitions: u32) -> Vec<Vec<u64>> {
    let mut positions = vec![Vec::new(); partitions as usize];
    for part in loader.served() {
        let owned = part.view.owned();
        let PartitionId(partition) = owned.partition();
        let of_base = (0..).zip(&**list).filter(|&(_, &node)| owned.has_seed(node));
        positions[partition as usize] = of_base.map(|(at, _)| at).collect();
    }
    positions
}
