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

mod builder;
mod options;

use std::sync::Arc;

use grappa_formats::{ChunkId, PartitionId, assignment::Assignment, random};
use grappa_io::{
    Error, Result,
    progress::{Progress, Silent},
};
use grappa_storage::{MappedChunks, Store};
use roaring::RoaringTreemap;

pub use self::{
    builder::LoaderBuilder,
    options::{LoaderOptions, Seeds},
};
use crate::{
    feed::{Epoch, EpochOptions, Feed, FeedOptions, FeedStats, PartitionBatches, Seeded},
    halo_neighbours::HaloNeighbours,
    partition::{Owned, SeedNodes},
    sample::Sampler,
    view::{Halo, HaloLists, PartitionView, ViewKind, ViewOptions},
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
    parts: Vec<Seeded>,
    /// The sampled in-neighbours of halo nodes, with [`Halo::Neighbours`].
    halo_lists: Option<Arc<HaloLists>>,
    /// A mapped view of the whole graph, for [`Loader::whole_graph_batches`] of several partitions.
    whole: Option<Arc<PartitionView>>,
    feed: Option<Feed>,
}

/// The sampled in-neighbours of halo nodes may take 1/LISTS_SHARE of the memory.
const LISTS_SHARE: u64 = 4;

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
        }
    }

    /// Opens the views of all partitions of `assignment`. The memory of the previous views is freed first.
    ///
    /// # Errors
    /// If the store lacks the split, there are no seeds, the memory is too small, or `progress` asks to stop.
    pub fn partition(&mut self, assignment: &Assignment, seeds: &Seeds, progress: &dyn Progress) -> Result<()> {
        self.parts.clear();
        self.halo_lists = None;
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

    /// Minibatches of the given nodes, in order, drawn by `sampler` from the whole graph: for evaluation while training. They have
    /// at most `batch` seeds. Opens the feed if it is closed.
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
        progress: &dyn Progress,
    ) -> Result<Arc<PartitionBatches>> {
        let view = match (&self.parts[..], &self.whole) {
            ([part], _) => part.view.clone(),
            (_, Some(whole)) => whole.clone(),
            (_, None) => {
                let chunks = self.store.chunks();
                let owned = Owned::of(&Assignment::whole(chunks.chunks()), chunks, PartitionId(0));
                let options = self.view_options(ViewKind::Mapped);
                let views =
                    PartitionView::open_all(&self.store, vec![owned], self.feature_bytes(), &options, progress)?;
                let view = views.into_iter().next().expect("there is one partition");
                self.whole.insert(view).clone()
            }
        };
        let seeded = Seeded {
            seeds: view.owned().seeds(seeds).into(),
            view,
        };
        let options = EpochOptions {
            sampler,
            batch,
            concurrent: 1,
            seed: self.options.seed,
            epoch: 0,
            shuffle: false,
            join_steps: false,
        };
        let batches = Arc::new(PartitionBatches::new(vec![seeded], options));
        if self.feed.is_none() {
            self.feed = Some(self.open_feed(&batches)?);
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

    /// Delivers all minibatches of an epoch.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn epoch(&mut self, epoch: u64) -> Result<Epoch<'_>> {
        let batches = self.batches(epoch, |batches| batches)?;
        Ok(self.deliver(&batches))
    }

    /// Gives the halo nodes of the open partitions sampled in-neighbours, as [`Halo::Neighbours`] does. `generation` is that of the
    /// assignment. To be called before the first batch of these partitions.
    ///
    /// # Errors
    /// If the lists need more memory than allowed, an adjacency list cannot be read, or `progress` asks to stop.
    pub fn sample_halo_neighbours(&mut self, generation: u64, progress: &dyn Progress) -> Result<()> {
        if self.options.sampler.edges_from_seeds() == 1 {
            // Only seeds are expanded.
            return Ok(());
        }
        let partitions: Vec<_> = self
            .parts
            .iter()
            .map(|part| (part.view.owned(), &*part.seeds))
            .collect();
        let lists = Arc::new(self.draw_halo_lists(generation, &partitions, progress)?);
        for part in &mut self.parts {
            let view = Arc::get_mut(&mut part.view).expect("no batch has the view yet");
            view.set_halo_lists(lists.clone());
        }
        self.halo_lists = Some(lists);
        Ok(())
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
            join_steps: self.options.join_steps,
            seed: self.options.seed,
            epoch,
            shuffle: self.options.shuffle,
        };
        PartitionBatches::new(self.parts.clone(), options)
    }

    fn views(
        &mut self,
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
        let owned: Vec<_> = (0..assignment.partitions())
            .map(|partition| Owned::of(assignment, self.store.chunks(), PartitionId(partition)))
            .collect();
        let seeds_of = |owned: &Owned| -> SeedNodes {
            match &split {
                None => owned.all_seeds(),
                Some(nodes) => owned.seeds(nodes),
            }
        };
        let seeds: Vec<SeedNodes> = owned.iter().map(seeds_of).collect();
        if seeds.iter().all(SeedNodes::is_empty) {
            return Err(Error::conflict(
                "there are no seeds: the split is empty, or none of its nodes is in a chunk of the store",
                "name another split, or the nodes",
            ));
        }
        if self.options.halo == Halo::Neighbours && owned.len() > 1 {
            let partitions: Vec<_> = owned.iter().zip(&seeds).collect();
            self.halo_lists = Some(Arc::new(self.draw_halo_lists(
                assignment.generation(),
                &partitions,
                progress,
            )?));
        }
        let options = self.view_options(kind);
        let views = PartitionView::open_all(&self.store, owned, self.feature_bytes(), &options, progress)?;
        let parts = views.into_iter().zip(seeds);
        Ok(parts
            .map(|(view, seeds)| Seeded {
                view,
                seeds: seeds.into(),
            })
            .collect())
    }

    fn draw_halo_lists(
        &self,
        generation: u64,
        partitions: &[(&Owned, &SeedNodes)],
        progress: &dyn Progress,
    ) -> Result<HaloLists> {
        if self.options.sampler.needs_edge_weights() {
            return Err(Error::conflict(
                "sampled in-neighbors of halo nodes have no edge weights",
                "choose another halo mode, or sample uniformly",
            ));
        }
        let chunks = MappedChunks::open(&self.store)?;
        let neighbours = HaloNeighbours {
            chunks: &chunks,
            per_node: self.options.halo_neighbours,
            hops: self.options.sampler.edges_from_seeds(),
            seed: random::combine(random::hash(self.options.seed), generation),
            memory: self.options.memory / LISTS_SHARE,
            threads: self.options.threads,
        };
        neighbours.draw(partitions, progress)
    }

    /// Bytes of the sampled in-neighbours of halo nodes.
    fn halo_bytes(&self) -> u64 {
        self.halo_lists.as_ref().map_or(0, |lists| lists.bytes())
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
            halo_lists: self.halo_lists.clone(),
            edge_weights: self.options.sampler.needs_edge_weights(),
            kind,
            memory: self.options.memory.saturating_sub(self.halo_bytes()),
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
        let views = views + self.halo_bytes();
        let chunks: Vec<ChunkId> = self.store.present_chunks().collect();
        let options = FeedOptions {
            memory_bytes: self.options.memory.saturating_sub(views),
            adjacency_bytes: views,
            mapped_adjacency_bytes: self.parts.iter().map(|part| part.view.mapped_bytes()).sum(),
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
