//! A loader: partitions that are open, and the feed that delivers their minibatches.

use std::sync::Arc;

use grappa_formats::{ChunkId, assignment::Assignment};
use grappa_io::{Result, progress::Progress};
use grappa_storage::Store;
use roaring::RoaringTreemap;

use super::{
    open::OpenPartitions,
    options::{LoaderOptions, Seeds},
};
use crate::{
    feed::{
        BatchSource, Division, Epoch, Feed, FeedOptions, FeedPlan, FeedStats, HostProcesses, MinibatchOptions, Part,
        PartitionBatches, Seeded,
    },
    links::Positives,
    partition::{Owned, Share},
    sample::Sampler,
    view::{HaloLists, PartitionView, ViewKind, ViewSource},
};

/// Samples minibatches and delivers them with features, epoch after epoch.
///
/// ```no_run
/// use std::{path::Path, sync::Arc};
///
/// use grappa_sampling::Loader;
/// use grappa_storage::{MappedChunks, Store};
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
    pub(super) options: LoaderOptions,
    open: OpenPartitions,
    /// A mapped view of the whole graph, for [`Loader::whole_graph_batches`] of several partitions.
    whole: Option<Arc<PartitionView>>,
    /// The feed of training. Evaluations use it if it is open.
    feed: Option<Feed>,
    /// A feed that was opened for [`Loader::whole_graph_batches`]. Its memory is divided for their size, so training
    /// closes it.
    pub(super) evaluation: Option<Feed>,
}

impl Loader {
    /// A loader without partitions. [`Loader::partition`] opens some.
    pub fn new(store: &Arc<Store>, options: LoaderOptions) -> Self {
        Self {
            store: store.clone(),
            options,
            open: OpenPartitions::default(),
            whole: None,
            feed: None,
            evaluation: None,
        }
    }

    /// Opens the views of the partitions of `assignment` that this worker serves. The memory of the previous views is
    /// freed first.
    ///
    /// # Errors
    /// If the store lacks the split, there are no seeds, the memory is too small, or `progress` asks to stop.
    pub fn partition(&mut self, assignment: &Assignment, seeds: &Seeds, progress: &dyn Progress) -> Result<()> {
        self.open = OpenPartitions::default();
        self.open = OpenPartitions::open(&self.store, &self.options, assignment, seeds, progress)?;
        Ok(())
    }

    /// Samples in-neighbors of the halo nodes of the open partitions that this worker serves, as
    /// [`Halo::Neighbors`](crate::view::Halo::Neighbors) does. `generation` is the generation of the assignment. None
    /// if minibatches expand no halo nodes.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or `progress` asks to stop.
    pub fn sample_halo_neighbors(&self, generation: u64, progress: &dyn Progress) -> Result<Option<HaloLists>> {
        self.open.sample_halo_neighbors(&self.store, &self.options, generation, progress)
    }

    /// Gives the halo nodes of the open partitions the lists that [`Loader::sample_halo_neighbors`] made. To be called
    /// before the first batch of these partitions.
    pub fn set_halo_lists(&mut self, lists: HaloLists) {
        self.open.set_halo_lists(lists);
    }

    /// Gives the open partitions that this worker serves their positives, in the order of partitions. `of_all` has the number of positives of
    /// each partition, also of other workers.
    ///
    /// # Panics
    /// If numbers disagree, or [`MinibatchOptions::links`] is none.
    pub fn set_positives(&mut self, positives: Vec<Arc<Positives>>, of_all: &[u64]) {
        assert!(self.options.minibatches.links.is_some(), "minibatches are of links");
        self.open.set_positives(positives, of_all);
    }

    /// The minibatches of an epoch that this worker serves and `choose` selects. Opens the feed if it is closed, and maps
    /// views for which there is too little memory.
    ///
    /// # Errors
    /// If the memory is too small for one minibatch, or files cannot be read.
    pub fn batches(
        &mut self,
        epoch: u64,
        choose: impl Fn(PartitionBatches) -> PartitionBatches,
    ) -> Result<Arc<PartitionBatches>> {
        let make = |loader: &Self| Arc::new(choose(loader.all_batches(epoch).served()));
        self.evaluation = None;
        let mut batches = make(self);
        if self.feed.is_none() {
            let may_map = self.open.may_map(&self.options);
            let mut plan = self.plan_feed(&batches, self.options.host.clone(), may_map)?;
            if may_map && !plan.fits() {
                drop((plan, batches));
                self.open.map(&self.store, &self.options)?;
                batches = make(self);
                plan = self.plan_feed(&batches, self.options.host.clone(), false)?;
            }
            self.feed = Some(plan.open()?);
            // Processes share the rows that they read first. A feed that is opened again is one that did not keep all
            // rows.
            self.options.host = None;
        }
        Ok(batches)
    }

    /// Minibatches of the given nodes, in order, drawn by `sampler` from the whole graph: for evaluation while
    /// training. They have at most `batch` seeds. `share` says which of them this worker has, of several that have the
    /// same nodes. Opens the feed if it is closed.
    ///
    /// With one partition, its view is used. Otherwise a mapped view of the whole graph is opened, and stays open.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn whole_graph_batches(
        &mut self,
        seeds: &RoaringTreemap,
        sampler: Arc<Sampler>,
        batch: usize,
        share: Share,
        progress: &dyn Progress,
    ) -> Result<Arc<PartitionBatches>> {
        let view = match (&self.open.parts[..], &self.whole) {
            ([Part::Served(part)], _) => part.view.get()?,
            (_, Some(whole)) => whole.clone(),
            (_, None) => {
                let owned = vec![Owned::whole(&self.store)];
                let views = self.open.open_views(&self.store, &self.options, owned, ViewKind::Mapped, progress)?;
                let view = views.into_iter().next().expect("there is one partition");
                self.whole.insert(view).clone()
            }
        };
        let seeded = Seeded { seeds: view.owned().seeds(seeds).into(), positives: None, view: ViewSource::Open(view) };
        let options = MinibatchOptions {
            sampler,
            batch,
            division: Division::Even,
            join_steps: None,
            seed: self.options.minibatches.seed,
            shuffle: false,
            steps_max: None,
            links: None,
        };
        let batches = PartitionBatches::new(vec![seeded.into()], options, 1, 0);
        let batches = Arc::new(batches.of_share(share));
        if self.feed().is_none() {
            self.evaluation = Some(self.plan_feed(&batches, None, true)?.open()?);
        }
        Ok(batches)
    }

    /// Delivers the minibatches that [`Loader::batches`] returned.
    ///
    /// # Panics
    /// If the feed is closed.
    pub fn deliver<S: BatchSource>(&self, batches: &Arc<S>) -> Epoch<'_> {
        self.feed().expect("batches() opens the feed").epoch(batches)
    }

    /// Delivers all minibatches of an epoch that this worker serves.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn epoch(&mut self, epoch: u64) -> Result<Epoch<'_>> {
        let batches = self.batches(epoch, |batches| batches)?;
        Ok(self.deliver(&batches))
    }

    /// The open partitions that this worker serves, each with its view and its seeds.
    pub fn served(&self) -> impl Iterator<Item = &Seeded> {
        self.open.served()
    }

    /// The sampled in-neighbors of the halo nodes of these partitions, if they have any.
    pub fn halo_lists(&self) -> Option<&Arc<HaloLists>> {
        self.open.halo_lists.as_ref()
    }

    /// Bytes of memory that the adjacency lists of the partitions take at most, the lists of halo nodes, and the features of edges.
    pub fn adjacency_bytes(&self) -> u64 {
        self.open.bytes()
    }

    /// Frees the views that are in memory in turn; the next epoch loads them again. Returns the bytes that adjacency
    /// lists still take.
    pub fn free_views_in_turn(&self) -> u64 {
        let bytes = self.open.bytes();
        match self.open.turns() {
            Some(turns) => {
                turns.free();
                bytes - turns.bytes()
            }
            None => bytes,
        }
    }

    /// The feed, if it is open. A clone of it delivers while the owner of the loader is changed.
    pub fn feed(&self) -> Option<&Feed> {
        self.feed.as_ref().or(self.evaluation.as_ref())
    }

    /// The statistics of the feed; zeros if it is closed.
    pub fn stats(&self) -> FeedStats {
        self.feed().map(Feed::stats).unwrap_or_default()
    }

    /// Whether [`Loader::batches`] opens a feed.
    pub fn opens_feed(&self) -> bool {
        self.feed.is_none()
    }

    /// Closes the feed, unless all feature rows are in memory, and frees its memory. The next epoch opens it again.
    pub fn close_feed_on_disk(&mut self) {
        for feed in [&mut self.feed, &mut self.evaluation] {
            feed.take_if(|feed| !feed.is_resident());
        }
    }

    /// Bytes of the stored features of all nodes; 0 if features are computed or not loaded.
    pub fn feature_bytes(&self) -> u64 {
        self.options.feature_bytes(&self.store)
    }

    /// All minibatches of an epoch. Minibatches of other workers can be counted here, but not sampled.
    pub fn all_batches(&self, epoch: u64) -> PartitionBatches {
        let (parts, minibatches) = (self.open.parts.clone(), self.options.minibatches.clone());
        let concurrent = self.options.concurrent(parts.len());
        PartitionBatches::new(parts, minibatches, concurrent, epoch)
    }

    /// Plans a feed. It holds the features of all nodes, also of halo nodes of a slice, or none: evaluations close a
    /// feed that reads some on demand.
    fn plan_feed<S: BatchSource>(
        &self,
        batches: &Arc<S>,
        host: Option<Arc<dyn HostProcesses>>,
        keeps_margin: bool,
    ) -> Result<FeedPlan> {
        let views = self.adjacency_bytes();
        let chunks: Vec<ChunkId> = self.store.feature_chunks().collect();
        let options = FeedOptions {
            memory_bytes: self.options.memory.saturating_sub(views),
            adjacency_bytes: views,
            mapped_adjacency_bytes: self.open.mapped_bytes(),
            rows: self.options.rows.clone(),
            edge_features: self.open.edge_features.clone(),
            host,
            keeps_margin,
            threads: self.options.threads,
            lookahead: self.options.lookahead,
            engine: self.options.read_engine,
            ..FeedOptions::default()
        };
        FeedPlan::new(&self.store, &chunks, &**batches, &options)
    }
}
