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
//! quarter of the budget. If not, and if only some partitions take part in a step, the lists of these and of the next ones
//! are in memory if they take at most half of the budget (7/8 without features). Else, or if the rest is then too small for the feed, the lists
//! are mapped.
//!
//! Of several workers that divide the partitions of each step, each has a loader with its [`Share`](crate::partition::Share). It opens the
//! views of the partitions that it serves, and its budget is for these alone. Of the others it knows the number of seeds, which the
//! division into steps depends on. So all workers count the same steps, and the minibatches do not depend on the number of workers.

mod builder;
mod numbers;
mod open;
mod options;
#[cfg(test)]
mod tests;

use std::{mem, sync::Arc};

use grappa_formats::{ChunkId, assignment::Assignment};
use grappa_io::{Error, Result, progress::Progress};
use grappa_storage::Store;
use roaring::RoaringTreemap;

pub use self::{
    builder::LoaderBuilder,
    numbers::{ListsPlace, NumberOptions, PartitionNumbers, Remedy},
    options::{LoaderOptions, Seeds},
};
use crate::{
    feed::{Epoch, EpochOptions, Feed, FeedOptions, FeedStats, HostProcesses, Part, PartitionBatches, Seeded},
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
    options: LoaderOptions,
    /// The open partitions, as far as this worker serves them.
    parts: Vec<Part>,
    /// The sampled in-neighbors of halo nodes, with [`Halo::Neighbors`].
    halo_lists: Option<Arc<HaloLists>>,
    /// A mapped view of the whole graph, for [`Loader::whole_graph_batches`] of several partitions.
    whole: Option<Arc<PartitionView>>,
    feed: Option<Feed>,
    /// Whether the feed was opened for [`Loader::whole_graph_batches`]. Its memory is divided for their size, so training needs another.
    is_feed_of_evaluation: bool,
}

impl Loader {
    /// A builder with default options. [`LoaderBuilder::start`] opens the loader.
    pub fn open(store: &Arc<Store>) -> LoaderBuilder {
        LoaderBuilder::new(store)
    }

    /// A loader without partitions. [`Loader::partition`] opens some.
    pub fn new(store: &Arc<Store>, options: LoaderOptions) -> Self {
        Self {
            store: store.clone(),
            options,
            parts: Vec::new(),
            halo_lists: None,
            whole: None,
            feed: None,
            is_feed_of_evaluation: false,
        }
    }

    /// Opens the views of the partitions of `assignment` that this worker serves. The memory of the previous views is freed first.
    ///
    /// # Errors
    /// If the store lacks the split, there are no seeds, the memory is too small, or `progress` asks to stop.
    pub fn partition(&mut self, assignment: &Assignment, seeds: &Seeds, progress: &dyn Progress) -> Result<()> {
        self.parts.clear();
        self.halo_lists = None;
        self.parts = self.views(assignment, seeds, progress)?;
        Ok(())
    }

    /// The minibatches of an epoch that this worker serves and `choose` selects. Opens the feed if it is closed.
    ///
    /// # Errors
    /// If the memory is too small for one minibatch, or files cannot be read.
    pub fn batches(
        &mut self,
        epoch: u64,
        choose: impl Fn(PartitionBatches) -> PartitionBatches,
    ) -> Result<Arc<PartitionBatches>> {
        if mem::take(&mut self.is_feed_of_evaluation) {
            self.feed = None;
        }
        let chosen = |loader: &Self| Arc::new(choose(loader.all_batches(epoch).served()));
        let mut batches = chosen(self);
        if self.feed.is_none() {
            let may_map = self.may_map();
            let feed = match self.open_feed(&batches, self.options.host.clone(), may_map) {
                Err(Error::Budget { .. }) if may_map => {
                    drop(batches);
                    self.map_views()?;
                    batches = chosen(self);
                    self.open_feed(&batches, self.options.host.clone(), false)
                }
                feed => feed,
            };
            self.feed = Some(feed?);
            // Processes share the rows that they read first. A feed that is opened again is one that did not keep all rows.
            self.options.host = None;
        }
        Ok(batches)
    }

    /// Minibatches of the given nodes, in order, drawn by `sampler` from the whole graph: for evaluation while training. They have
    /// at most `batch` seeds. `share` says which of them this worker has, of several that have the same nodes. Opens the feed if it is
    /// closed.
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
        let view = match (&self.parts[..], &self.whole) {
            ([Part::Served(part)], _) => part.view.get()?,
            (_, Some(whole)) => whole.clone(),
            (_, None) => {
                let owned = Owned::whole(&self.store);
                let options = self.view_options(ViewKind::Mapped);
                let views =
                    PartitionView::open_all(&self.store, vec![owned], self.feature_bytes(), &options, progress)?;
                let view = views.into_iter().next().expect("there is one partition");
                self.whole.insert(view).clone()
            }
        };
        let seeded = Seeded {
            seeds: view.owned().seeds(seeds).into(),
            view: ViewSource::Open(view),
        };
        let options = EpochOptions {
            sampler,
            batch,
            concurrent: 1,
            seed: self.options.seed,
            epoch: 0,
            shuffle: false,
            join_steps: false,
            steps_max: None,
        };
        let batches = PartitionBatches::new(vec![seeded.into()], options);
        let batches = Arc::new(batches.of_share(share));
        if self.feed.is_none() {
            self.feed = Some(self.open_feed(&batches, None, true)?);
            self.is_feed_of_evaluation = true;
        }
        Ok(batches)
    }

    /// Delivers the minibatches that [`Loader::batches`] returned.
    ///
    /// # Panics
    /// If the feed is closed.
    pub fn deliver(&mut self, batches: &Arc<PartitionBatches>) -> Epoch<'_> {
        self.feed.as_mut().expect("batches() opens the feed").epoch(batches)
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
        self.parts.iter().filter_map(Part::served)
    }

    /// The sampled in-neighbors of the halo nodes of these partitions, if they have any.
    pub fn halo_lists(&self) -> Option<&Arc<HaloLists>> {
        self.halo_lists.as_ref()
    }

    /// Bytes of memory that the adjacency lists of the partitions take at most, and the lists of halo nodes.
    pub fn adjacency_bytes(&self) -> u64 {
        let views: u64 = match self.served().next().map(|part| &part.view) {
            Some(ViewSource::InTurn(turns, _)) => turns.bytes(),
            _ => self.open_views().map(|view| view.bytes()).sum(),
        };
        views + self.halo_lists.as_ref().map_or(0, |lists| lists.bytes())
    }

    /// Frees the views that are in memory in turn; the next epoch loads them again. Returns the bytes that adjacency lists still take.
    pub fn free_views_in_turn(&self) -> u64 {
        match self.served().next().map(|part| &part.view) {
            Some(ViewSource::InTurn(turns, _)) => {
                turns.free();
                self.adjacency_bytes() - turns.bytes()
            }
            _ => self.adjacency_bytes(),
        }
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

    /// Whether [`Loader::batches`] opens a feed.
    pub fn opens_feed(&self) -> bool {
        self.feed.is_none() || self.is_feed_of_evaluation
    }

    /// Closes the feed, unless all feature rows are in memory, and frees its memory. The next epoch opens it again.
    pub fn close_feed_on_disk(&mut self) {
        self.feed.take_if(|feed| !feed.is_resident());
    }

    /// Bytes of the stored features of all nodes; 0 if features are computed or not loaded.
    pub fn feature_bytes(&self) -> u64 {
        open::feature_bytes(&self.store, &self.options)
    }

    /// All minibatches of an epoch, those of other workers among them: these can be counted, but not sampled here.
    pub fn all_batches(&self, epoch: u64) -> PartitionBatches {
        let options = EpochOptions {
            sampler: self.options.sampler.clone(),
            batch: self.options.batch,
            concurrent: self.concurrent(self.parts.len()),
            join_steps: self.options.join_steps,
            seed: self.options.seed,
            epoch,
            shuffle: self.options.shuffle,
            steps_max: self.options.steps_max,
        };
        PartitionBatches::new(self.parts.clone(), options)
    }

    /// Opens a feed. It holds the features of all nodes, those of halo nodes of a slice among them, or none: evaluations close a feed that
    /// reads some on demand.
    fn open_feed(
        &self,
        batches: &Arc<PartitionBatches>,
        host: Option<Arc<dyn HostProcesses>>,
        keeps_margin: bool,
    ) -> Result<Feed> {
        let views = self.adjacency_bytes();
        let chunks: Vec<ChunkId> = self.store.feature_chunks().collect();
        let options = FeedOptions {
            memory_bytes: self.options.memory.saturating_sub(views),
            adjacency_bytes: views,
            mapped_adjacency_bytes: self.open_views().map(|view| view.mapped_bytes()).sum(),
            output: self.options.output,
            features: self.options.features,
            aggregates: self.options.aggregates,
            register: self.options.register.clone(),
            host,
            keeps_margin,
            threads: self.options.threads,
            lookahead: self.options.lookahead,
            engine: self.options.read_engine,
            ..FeedOptions::default()
        };
        Feed::open(&self.store, &chunks, &**batches, &options)
    }
}
