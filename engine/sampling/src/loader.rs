//! Minibatches of a store under one memory budget.
//!
//! A [`Loader`] owns the views of the open partitions and the feed that delivers their minibatches. It divides one
//! budget between them:
//!
//! ```text
//! memory = adjacency lists (views) + feature rows, buffers and samplers (feed)
//! ```
//!
//! With [`ViewKind::Auto`] the adjacency lists are in memory if they and the features fit, or if they take at most a
//! quarter of the budget. If the rest is then too small for the feed, the lists are mapped instead.

use std::sync::Arc;

use grappa_formats::{ChunkId, PartitionId, aggregates::AggregateKind, assignment::Assignment};
use grappa_io::{
    Error, Result,
    machine::free_memory_bytes,
    progress::{Progress, Silent},
    read,
};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use crate::{
    feed::{Epoch, EpochOptions, Feed, FeedOptions, FeedStats, OutputDtype, PartitionBatches, RegisterMemory, Seeded},
    partition::{Owned, Schedule, SeedNodes, assignment, chunk_sizes},
    sample::{Fanouts, Sampler},
    view::{Halo, PartitionView, ViewKind, ViewOptions},
};

/// By default a loader takes 1/DEFAULT_MEMORY_SHARE of the free memory.
const DEFAULT_MEMORY_SHARE: u64 = 2;
/// The default memory in bytes if the free memory is unknown.
const DEFAULT_MEMORY_BYTES: u64 = 4 << 30;

/// Seed nodes: the nodes for which minibatches are sampled.
#[derive(Debug, Clone)]
pub enum Seeds {
    /// Every node.
    All,
    /// The nodes of a split of the store: `train`, `val` or `test`.
    Split(String),
    /// An explicit set.
    Nodes(Arc<RoaringTreemap>),
}

/// Options of a [`Loader`].
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// The sampler.
    pub sampler: Arc<Sampler>,
    /// The maximum number of seeds of a minibatch.
    pub batch: usize,
    /// The maximum number of partitions that take part in a step; none for all.
    pub concurrent: Option<usize>,
    /// The random seed.
    pub seed: u64,
    /// Whether each epoch visits the seeds in a new random order.
    pub shuffle: bool,
    /// How sources are treated that a partition does not own.
    pub halo: Halo,
    /// Whether adjacency lists are in memory or mapped.
    pub view: ViewKind,
    /// The budget of the loader in bytes.
    pub memory: u64,
    /// The number of threads that sample and assemble.
    pub threads: usize,
    /// Whether batches have the features of their nodes.
    pub features: bool,
    /// The pre-aggregated features that batches have besides, if any.
    pub aggregates: Option<AggregateKind>,
    /// The type of the delivered feature values.
    pub output: OutputDtype,
    /// Registers the buffers of batches with a device.
    pub register: Option<Arc<dyn RegisterMemory>>,
    /// The maximum number of minibatches whose feature rows are read together; none for as many as fit the memory.
    pub lookahead: Option<usize>,
    /// The read engine.
    pub read_engine: read::Choice,
}

impl LoaderOptions {
    /// Minibatches of 1024 seeds in random order, drawn by `sampler`, with features, in half of the free memory.
    pub fn new(sampler: Sampler) -> Self {
        Self {
            sampler: Arc::new(sampler),
            batch: 1024,
            concurrent: None,
            seed: 1,
            shuffle: true,
            halo: Halo::default(),
            view: ViewKind::Auto,
            memory: free_memory_bytes().map_or(DEFAULT_MEMORY_BYTES, |free| free / DEFAULT_MEMORY_SHARE),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            features: true,
            aggregates: None,
            output: OutputDtype::F32,
            register: None,
            lookahead: None,
            read_engine: read::Choice::Auto,
        }
    }
}

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

impl LoaderBuilder {
    /// The maximum number of neighbours per node, hop by hop from the seeds outwards; -1 takes all. Default: 15, 10, 5.
    #[must_use]
    pub fn fanouts(mut self, fanouts: impl Into<Vec<i64>>) -> Self {
        self.fanouts = fanouts.into();
        self
    }

    /// Draws neighbours with replacement.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// Draws neighbours with probabilities proportional to the edge weights.
    #[must_use]
    pub fn by_weight(mut self) -> Self {
        self.by_weight = true;
        self
    }

    /// The maximum number of seeds of a minibatch. Default: 1024.
    #[must_use]
    pub fn batch(mut self, seeds: usize) -> Self {
        self.options.batch = seeds;
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
        self.options.features = false;
        self
    }

    /// The random seed. Default: 1.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
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
    pub fn start(self) -> Result<Loader> {
        let fanouts = Fanouts::new(&self.fanouts)?;
        let sampler = match self.by_weight {
            true => Sampler::by_weight(fanouts, self.replace),
            false => Sampler::uniform(fanouts, self.replace),
        };
        let options = LoaderOptions {
            sampler: Arc::new(sampler),
            ..self.options
        };
        let assignment = match self.partitions {
            None => self.store.assignment().clone(),
            Some(count) => {
                let sizes = chunk_sizes(self.store.manifest());
                assignment(Schedule::Sweep, &sizes, count, options.seed, 0, 0)?
            }
        };
        let mut loader = Loader::new(&self.store, options);
        loader.partition(&assignment, &self.seeds, &Silent)?;
        Ok(loader)
    }
}

/// Samples minibatches and delivers them with features, epoch after epoch.
///
/// ```no_run
/// use std::{path::Path, sync::Arc};
///
/// use grappa_sampling::Loader;
/// use grappa_storage::Store;
///
/// let store = Arc::new(Store::open(Path::new("graph.grappa"))?);
/// let mut loader = Loader::open(&store).fanouts([15, 10, 5]).batch(1024).memory(4 << 30).start()?;
/// for epoch in 0..3 {
///     for batch in loader.epoch(epoch)? {
///         let batch = batch?;
///         let (nodes, features) = (&batch.minibatch().nodes, batch.features().unwrap());
///         assert_eq!(nodes.len(), features.rows());
///     }
/// }
/// # Ok::<(), grappa_io::Error>(())
/// ```
pub struct Loader {
    store: Arc<Store>,
    options: LoaderOptions,
    parts: Vec<Seeded>,
    feed: Option<Feed>,
}

impl Loader {
    /// A builder with default options. [`LoaderBuilder::start`] opens the loader.
    pub fn open(store: &Arc<Store>) -> LoaderBuilder {
        let fanouts = [15, 10, 5];
        let sampler = Sampler::uniform(Fanouts::new(&fanouts).expect("valid fanouts"), false);
        let mut options = LoaderOptions::new(sampler);
        options.features = store.manifest().features.is_some();
        LoaderBuilder {
            store: store.clone(),
            fanouts: fanouts.to_vec(),
            replace: false,
            by_weight: false,
            seeds: Seeds::Split("train".into()),
            partitions: None,
            options,
        }
    }

    /// A loader without partitions. [`Loader::partition`] opens some.
    pub fn new(store: &Arc<Store>, options: LoaderOptions) -> Self {
        Self {
            store: store.clone(),
            options,
            parts: Vec::new(),
            feed: None,
        }
    }

    /// Opens the views of all partitions of `assignment`. The memory of the previous views is freed first.
    ///
    /// # Errors
    /// If the store lacks the split, there are no seeds, the memory is too small, or `progress` asks to stop.
    pub fn partition(&mut self, assignment: &Assignment, seeds: &Seeds, progress: &dyn Progress) -> Result<()> {
        self.parts.clear();
        self.parts = self.views(assignment, seeds, self.options.view, progress)?;
        Ok(())
    }

    /// The minibatches of an epoch that `choose` selects. Opens the feed if it is closed.
    ///
    /// # Errors
    /// If the memory is too small for one minibatch, or files cannot be read.
    pub fn batches(
        &mut self,
        epoch: u64,
        choose: impl Fn(PartitionBatches) -> PartitionBatches,
    ) -> Result<Arc<PartitionBatches>> {
        let batches = Arc::new(choose(self.all_batches(epoch)));
        if self.feed.is_some() {
            return Ok(batches);
        }
        match self.open_feed(&batches) {
            Err(Error::Budget { .. }) if self.may_map() => {
                drop(batches);
                self.map_views()?;
                let batches = Arc::new(choose(self.all_batches(epoch)));
                self.feed = Some(self.open_feed(&batches)?);
                Ok(batches)
            }
            feed => {
                self.feed = Some(feed?);
                Ok(batches)
            }
        }
    }

    /// Delivers the minibatches that [`Loader::batches`] returned.
    ///
    /// # Panics
    /// If the feed is closed.
    pub fn deliver(&mut self, batches: &Arc<PartitionBatches>) -> Epoch<'_> {
        self.feed.as_mut().expect("batches() opens the feed").epoch(batches)
    }

    /// Delivers all minibatches of an epoch.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn epoch(&mut self, epoch: u64) -> Result<Epoch<'_>> {
        let batches = self.batches(epoch, |batches| batches)?;
        Ok(self.deliver(&batches))
    }

    /// The open partitions, each with its view and its seeds.
    pub fn parts(&self) -> &[Seeded] {
        &self.parts
    }

    /// The feed, if it is open.
    pub fn feed(&self) -> Option<&Feed> {
        self.feed.as_ref()
    }

    /// The statistics of the feed; zeros if it is closed.
    pub fn stats(&self) -> FeedStats {
        self.feed.as_ref().map(Feed::stats).unwrap_or_default()
    }

    /// Hands out the feed, so that the owner of the loader can be changed while batches arrive. [`Loader::return_feed`]
    /// takes it back.
    ///
    /// # Panics
    /// If the feed is closed.
    pub fn take_feed(&mut self) -> Feed {
        self.feed.take().expect("batches() opens the feed")
    }

    /// Takes back the feed that [`Loader::take_feed`] handed out.
    pub fn return_feed(&mut self, feed: Feed) {
        self.feed = Some(feed);
    }

    /// Closes the feed, unless all feature rows are in memory, and frees its memory. The next epoch opens it again.
    pub fn close_feed_on_disk(&mut self) {
        self.feed.take_if(|feed| !feed.is_resident());
    }

    /// Bytes of the stored features of all nodes; 0 if features are not loaded.
    pub fn feature_bytes(&self) -> u64 {
        let manifest = self.store.manifest();
        match &manifest.features {
            Some(spec) if self.options.features => manifest.nodes.saturating_mul(u64::from(spec.row_stride)),
            _ => 0,
        }
    }

    /// All minibatches of an epoch.
    pub fn all_batches(&self, epoch: u64) -> PartitionBatches {
        let options = EpochOptions {
            sampler: self.options.sampler.clone(),
            batch: self.options.batch,
            concurrent: self.options.concurrent.unwrap_or(self.parts.len()).max(1),
            seed: self.options.seed,
            epoch,
            shuffle: self.options.shuffle,
        };
        PartitionBatches::new(self.parts.clone(), options)
    }

    fn views(
        &self,
        assignment: &Assignment,
        seeds: &Seeds,
        kind: ViewKind,
        progress: &dyn Progress,
    ) -> Result<Vec<Seeded>> {
        let split = match seeds {
            Seeds::All => None,
            Seeds::Nodes(nodes) => Some(nodes.clone()),
            Seeds::Split(name) => Some(Arc::new(self.split(name)?)),
        };
        let owned = (0..assignment.partitions())
            .map(|partition| Owned::of(assignment, self.store.chunks(), PartitionId(partition)))
            .collect();
        let seeds_of = |owned: &Owned| -> SeedNodes {
            match &split {
                None => owned.all_seeds(),
                Some(nodes) => owned.seeds(nodes),
            }
        };
        let views = PartitionView::open_all(
            &self.store,
            owned,
            self.feature_bytes(),
            &self.view_options(kind),
            progress,
        )?;
        let seeded = |view: Arc<PartitionView>| Seeded {
            seeds: seeds_of(view.owned()).into(),
            view,
        };
        let parts: Vec<_> = views.into_iter().map(seeded).collect();
        if parts.iter().all(|part| part.seeds.is_empty()) {
            return Err(Error::conflict(
                "there are no seeds: the split is empty, or none of its nodes is in a chunk of the store",
                "name another split, or the nodes",
            ));
        }
        Ok(parts)
    }

    fn split(&self, name: &str) -> Result<RoaringTreemap> {
        self.store.split(name)?.ok_or_else(|| {
            Error::missing(
                format!("split `{name}`"),
                self.store.path(),
                "sample from all nodes, or name the nodes",
            )
        })
    }

    fn view_options(&self, kind: ViewKind) -> ViewOptions {
        ViewOptions {
            halo: self.options.halo,
            edge_weights: self.options.sampler.needs_edge_weights(),
            kind,
            memory: self.options.memory,
            threads: self.options.threads,
            engine: self.options.read_engine,
        }
    }

    /// Whether adjacency lists are in memory and the options allow to map them.
    fn may_map(&self) -> bool {
        self.options.view == ViewKind::Auto && self.parts.iter().any(|part| part.view.kind() == ViewKind::Memory)
    }

    /// Maps the adjacency lists instead of holding them in memory. The seeds stay the same.
    fn map_views(&mut self) -> Result<()> {
        let (owned, seeds): (Vec<_>, Vec<_>) = std::mem::take(&mut self.parts)
            .into_iter()
            .map(|part| (part.view.owned().clone(), part.seeds))
            .unzip();
        let options = self.view_options(ViewKind::Mapped);
        let views = PartitionView::open_all(&self.store, owned, self.feature_bytes(), &options, &Silent)?;
        let parts = views.into_iter().zip(seeds);
        self.parts = parts.map(|(view, seeds)| Seeded { view, seeds }).collect();
        Ok(())
    }

    fn open_feed(&self, batches: &Arc<PartitionBatches>) -> Result<Feed> {
        let views: u64 = self.parts.iter().map(|part| part.view.bytes()).sum();
        let chunks: Vec<ChunkId> = self.store.present_chunks().collect();
        let options = FeedOptions {
            memory_bytes: self.options.memory.saturating_sub(views),
            rows_bytes: views,
            mapped_bytes: self.parts.iter().map(|part| part.view.mapped_bytes()).sum(),
            output: self.options.output,
            features: self.options.features,
            aggregates: self.options.aggregates,
            register: self.options.register.clone(),
            threads: self.options.threads,
            lookahead: self.options.lookahead,
            engine: self.options.read_engine,
            ..FeedOptions::default()
        };
        Feed::open(&self.store, &chunks, &**batches, &options)
    }
}
