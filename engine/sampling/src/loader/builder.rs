//! The builder of a loader.

use std::sync::Arc;

use grappa_io::{Result, progress::Silent};
use grappa_storage::Store;

use super::{
    open::Loader,
    options::{LoaderOptions, Seeds},
};
use crate::{
    feed::MinibatchOptions,
    partition::{ChunkTables, Schedule, assignment},
    sample::{Fanouts, Sampler},
};

/// Builds a [`Loader`]; see [`Loader::open`].
#[derive(Debug, Clone)]
pub struct LoaderBuilder {
    store: Arc<Store>,
    fanouts: Vec<i64>,
    replace: bool,
    by_weight: bool,
    seeds: Seeds,
    partitions: Option<u32>,
    options: LoaderOptions,
}

impl Loader {
    /// A builder with default options. [`LoaderBuilder::start`] opens the loader.
    pub fn open(store: &Arc<Store>) -> LoaderBuilder {
        LoaderBuilder::new(store)
    }
}

impl LoaderBuilder {
    fn new(store: &Arc<Store>) -> Self {
        let fanouts = [15, 10, 5];
        let sampler = Sampler::uniform(Fanouts::new(&fanouts).expect("valid fanouts"), false);
        let mut options = LoaderOptions::new(MinibatchOptions::new(sampler));
        options.rows.features = store.manifest().features.is_some();
        Self {
            store: store.clone(),
            fanouts: fanouts.to_vec(),
            replace: false,
            by_weight: false,
            seeds: Seeds::Split("train".into()),
            partitions: None,
            options,
        }
    }

    /// The maximum number of neighbors per node, hop by hop from the seeds outwards; -1 takes all. Default: 15, 10, 5.
    #[must_use]
    pub fn fanouts(mut self, fanouts: impl Into<Vec<i64>>) -> Self {
        self.fanouts = fanouts.into();
        self
    }

    /// Draws neighbors with replacement.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// Draws neighbors with probabilities proportional to the edge weights.
    #[must_use]
    pub fn by_weight(mut self) -> Self {
        self.by_weight = true;
        self
    }

    /// The maximum number of seeds of a minibatch. Default: 1024.
    #[must_use]
    pub fn batch(mut self, seeds: usize) -> Self {
        self.options.minibatches.batch = seeds;
        self
    }

    /// Bytes of memory for adjacency lists, feature rows and buffers. Default: half of the free memory.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.memory = bytes;
        self
    }

    /// The seed nodes. Default: the split `train`.
    #[must_use]
    pub fn seeds(mut self, seeds: Seeds) -> Self {
        self.seeds = seeds;
        self
    }

    /// Divides the graph into this many partitions. Each sees only its own part. Default: the partitions of the store,
    /// which is one partition if the store was never repartitioned.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = Some(partitions);
        self
    }

    /// Leaves out features. Batches then have nodes and edges only.
    #[must_use]
    pub fn without_features(mut self) -> Self {
        self.options.rows.features = false;
        self
    }

    /// The random seed. Default: 1.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.minibatches.seed = seed;
        self
    }

    /// The number of threads that sample and assemble. Default: one per processor.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.threads = threads;
        self
    }

    /// Changes options that have no method of their own.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut LoaderOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Opens the views of the partitions. Reads the adjacency lists that are held in memory.
    ///
    /// # Errors
    /// If fanouts are invalid, partitions or seeds do not fit the store, or the memory is too small.
    pub fn start(mut self) -> Result<Loader> {
        let fanouts = Fanouts::new(&self.fanouts)?;
        let sampler = match self.by_weight {
            true => Sampler::by_weight(fanouts, self.replace),
            false => Sampler::uniform(fanouts, self.replace),
        };
        self.options.minibatches.sampler = Arc::new(sampler);
        let assignment = match self.partitions {
            None => self.store.assignment().clone(),
            Some(count) => {
                let sizes = ChunkTables::from(self.store.manifest()).sizes();
                assignment(Schedule::Sweep, &sizes, count, self.options.minibatches.seed, 0, 0)?
            }
        };
        let mut loader = Loader::new(&self.store, self.options);
        loader.partition(&assignment, &self.seeds, &Silent)?;
        Ok(loader)
    }
}
