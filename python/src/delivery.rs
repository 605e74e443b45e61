//! The epochs of a loader: what its thread does for each of them, with or without types, for seeds and for links.

use std::sync::Arc;

use grappa_engine::{
    Batch, Loader, Progress, Result,
    sample::{LoaderOptions, SeedTimes, Seeds, feed::BatchSource},
    store::Graph,
};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{
    epochs::{Command, Deliver, Options, PreparedBatch},
    error::exception,
    links::{LinkArrays, LinkOptions, Links},
    nodes::{Numbers, joined},
    partitions::{LossWeight, PartitionOptions, Partitions},
    times::times_at,
};

/// A loader, and what decides the seeds or links of its epochs.
pub struct EpochSource {
    pub graph: Graph,
    pub loader: Loader,
    pub partitions: Partitions,
    /// None if seeds are nodes.
    pub links: Option<Links>,
}

impl EpochSource {
    /// Opens the partitions, and the seeds or links, of epoch 0.
    pub fn open(
        graph: Graph,
        mut loading: LoaderOptions,
        seeds: Seeds,
        (options, partitions): (&Options, PartitionOptions),
        links: Option<LinkOptions>,
        progress: &dyn Progress,
    ) -> PyResult<Self> {
        let times = options.seed_times.as_ref().map(|Numbers(times)| Arc::new(times.clone()));
        let links = links.map(|links| Links::open(links, &graph, &mut loading, progress)).transpose()?;
        let mut loader = Loader::of_graph(&graph, loading);
        let mut partitions = Partitions::new(partitions, seeds, times, options.seed);
        partitions.open(&mut loader, &graph, 0, progress).map_err(exception)?;
        if let Some(links) = &links {
            links.open_epoch(&mut loader, 0, progress).map_err(exception)?;
        }
        partitions.check(&loader.all_batches(0)).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { graph, loader, partitions, links })
    }
}

/// What a batch has besides its nodes and edges.
pub struct BatchTask {
    /// For seeds, their indices in the list of all seeds, or none if these are all nodes; for links, the numbers of the positives.
    pub input_ids: Option<Vec<i64>>,
    /// For seeds with times, the time of each.
    pub seed_times: Option<Vec<i64>>,
    pub loss_weight: LossWeight,
    pub links: Option<LinkArrays>,
}

/// Makes batches for Python.
pub trait Prepare: Send {
    /// The batch as Python gets it.
    fn prepare(&self, batch: Batch, task: BatchTask) -> Result<Box<dyn PreparedBatch>>;
}

/// What the thread of a loader needs.
pub struct Delivery<P> {
    pub source: EpochSource,
    pub batches: P,
}

impl<P: Prepare> Deliver for Delivery<P> {
    fn size(&self) -> (u64, u64) {
        let all = self.source.loader.all_batches(0);
        match &self.source.links {
            Some(links) => (all.batches(), links.edges),
            None => (all.steps(), all.seeds_of_all()),
        }
    }

    fn deliver(&mut self, command: &Command) -> Result<()> {
        let Self { source: EpochSource { graph, loader, partitions, links }, batches: maker } = self;
        let until_end = command.until_end();
        let order = command.order.as_ref();
        if let Some(links) = links {
            match order {
                Some(order) => links.open_order(loader, &order.positions),
                None => links.open_epoch(loader, command.epoch, &until_end)?,
            }
            loader.set_batches(order.and_then(|order| order.ends.clone()));
            let batches = loader.batches(command.epoch, |batches| batches)?;
            return command.deliver_each(loader.deliver(&batches), |batch| {
                let arrays = links.arrays(&batches, batch.index(), batch.minibatches())?;
                let task = BatchTask {
                    input_ids: Some(joined(&[&arrays.numbers], "the numbers of edges")?),
                    seed_times: None,
                    loss_weight: LossWeight::OfBatch(1.0),
                    links: Some(arrays),
                };
                maker.prepare(batch, task)
            });
        }
        partitions.open(loader, graph, command.epoch, &until_end)?;
        if let Some(order) = order {
            loader.set_seeds(partitions.seeds_at(&order.positions).into());
            if let Some(times) = &partitions.times {
                loader.set_seed_times(SeedTimes::Listed(vec![Arc::new(times_at(times, &order.positions))]))?;
            }
            loader.set_batches(order.ends.clone());
        }
        let all = loader.all_batches(command.epoch);
        partitions.check(&all)?;
        let (steps, seeds_per_step) = (all.steps(), all.seeds_per_step());
        let batches = loader.batches(command.epoch, |batches| batches.in_every_step(steps))?;
        command.deliver_each(loader.deliver(&batches), |batch| {
            let input_ids = partitions.input_ids(&batches, batch.index(), order.map(|order| &order.positions[..]));
            let times = partitions.times.as_ref().zip(input_ids.as_ref());
            let task = BatchTask {
                seed_times: times.map(|(times, ids)| times_at(times, ids)),
                input_ids,
                loss_weight: partitions.loss_weight(graph, &batches, &batch, seeds_per_step),
                links: None,
            };
            maker.prepare(batch, task)
        })
    }
}
