//! The minibatches of a loader, and the feed that delivers them.

use std::sync::Arc;

use grappa_formats::ChunkId;
use grappa_io::{Error, Result, progress::Progress};
use roaring::RoaringTreemap;

use super::{open::Loader, seed_times::own_times};
use crate::{
    feed::{
        BatchSource, Division, Epoch, Feed, FeedOptions, FeedPlan, FeedStats, HostProcesses, MinibatchOptions, Part,
        PartitionBatches, Seeded,
    },
    links::{LinkTask, Positives},
    partition::{Owned, Share},
    sample::Sampler,
    view::{ViewKind, ViewSource},
};

impl Loader {
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
        if self.options.minibatches.sampler.needs_times() {
            self.check_times()?;
        }
        let make = |loader: &Self| Arc::new(choose(loader.all_batches(epoch).served()));
        self.evaluation = None;
        let mut batches = make(self);
        if self.feed.is_none() {
            let may_map = self.may_map();
            let mut plan = self.plan_feed(&batches, self.options.host.clone(), may_map)?;
            if may_map && !plan.fits() {
                drop((plan, batches));
                self.map()?;
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

    /// Fails unless seeds have times, and nothing tells of later edges.
    fn check_times(&self) -> Result<()> {
        let has_times = |part: &Seeded| match &part.positives {
            Some(positives) => positives.times().len() as u64 == positives.len(),
            None => part.times.is_some(),
        };
        if !self.served().all(has_times) {
            return Err(Error::conflict("the sampler has times, and the seeds have none", "give each seed a time"));
        }
        match self.options.rows.aggregates {
            Some(kind) => Err(Error::conflict(
                format!("pre-aggregated features ({kind}) have edges that are later than the seeds"),
                "use features without them, or sample without times",
            )),
            None => Ok(()),
        }
    }

    /// Minibatches of the given nodes, in order, drawn by `sampler` from the whole graph: for evaluation while
    /// training. They have at most `batch` seeds. `share` says which of them this worker has, of several that have the
    /// same nodes. If the sampler has times, all nodes are `at` a time, or each at its own without it, and draw the same neighbors in every
    /// call. Opens the feed if it is closed.
    ///
    /// With one partition, its view is used. Otherwise a mapped view of the whole graph is opened, and stays open.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn whole_graph_batches(
        &mut self,
        seeds: &RoaringTreemap,
        at: Option<i64>,
        sampler: Arc<Sampler>,
        batch: usize,
        share: Share,
        progress: &dyn Progress,
    ) -> Result<Arc<PartitionBatches>> {
        let view = self.whole_graph(progress)?;
        let seeds = Arc::new(view.owned().seeds(seeds));
        let disjoint = sampler.needs_times();
        let times = match (disjoint, at) {
            (false, _) => None,
            (true, Some(time)) => Some(Arc::new(vec![time; seeds.len() as usize])),
            (true, None) => Some(own_times(&self.graph, &seeds)?),
        };
        let seeded = Seeded { seeds, times, batches: None, positives: None, view };
        self.evaluation_batches(
            seeded,
            MinibatchOptions { batch, disjoint, keyed_by_seed: disjoint, ..self.in_order(sampler) },
            share,
        )
    }

    /// Minibatches of the given pairs, in order, each at its time, drawn by `sampler` from the whole graph: for evaluation while training.
    /// They have at most `batch` pairs. The pairs are the positives of `task`.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn whole_graph_links(
        &mut self,
        pairs: Arc<Positives>,
        sampler: Arc<Sampler>,
        task: Arc<LinkTask>,
        batch: usize,
        progress: &dyn Progress,
    ) -> Result<Arc<PartitionBatches>> {
        let view = self.whole_graph(progress)?;
        let seeds = view.owned().seeds(&RoaringTreemap::new()).into();
        let seeded = Seeded { seeds, times: None, batches: None, positives: Some(pairs), view };
        let disjoint = sampler.needs_times();
        let options = MinibatchOptions { batch, disjoint, links: Some(task), ..self.in_order(sampler) };
        self.evaluation_batches(seeded, options, Share::ALL)
    }

    /// A view of the whole graph, which stays open.
    fn whole_graph(&mut self, progress: &dyn Progress) -> Result<ViewSource> {
        match (&self.open.parts[..], &self.whole) {
            ([Part::Served(part)], _) => part.view.waited(),
            (_, Some(whole)) => Ok(whole.clone()),
            (_, None) => {
                let owned = vec![Owned::whole_graph(&self.graph)];
                let views = self.view_sources(owned, 1, ViewKind::Mapped, progress)?;
                let view = views.into_iter().next().expect("there is one partition");
                Ok(self.whole.insert(view).clone())
            }
        }
    }

    /// Minibatches of all seeds in their order, each on its own.
    fn in_order(&self, sampler: Arc<Sampler>) -> MinibatchOptions {
        MinibatchOptions {
            sampler,
            batch: 1,
            division: Division::Even,
            join_steps: None,
            seed: self.options.minibatches.seed,
            shuffle: false,
            steps_max: None,
            seed_share: Share::ALL,
            disjoint: false,
            keyed_by_seed: false,
            links: None,
        }
    }

    fn evaluation_batches(
        &mut self,
        seeded: Seeded,
        options: MinibatchOptions,
        share: Share,
    ) -> Result<Arc<PartitionBatches>> {
        let batches = PartitionBatches::new(vec![seeded.into()], options, 1, 0);
        let batches = Arc::new(batches.swept(self.open.sweeps.clone()).of_share(share));
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
        self.options.feature_bytes(&self.graph)
    }

    /// All minibatches of an epoch. Minibatches of other workers can be counted here, but not sampled.
    pub fn all_batches(&self, epoch: u64) -> PartitionBatches {
        let (parts, minibatches) = (self.open.parts.clone(), self.options.minibatches.clone());
        let concurrent = self.options.concurrent(parts.len());
        PartitionBatches::new(parts, minibatches, concurrent, epoch).swept(self.open.sweeps.clone())
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
        let chunks: Vec<ChunkId> = (0..self.graph.positions().chunks().chunks()).map(ChunkId).collect();
        let options = FeedOptions {
            memory_bytes: self.options.memory.saturating_sub(views),
            adjacency_bytes: views,
            mapped_adjacency_bytes: self.mapped_bytes(),
            rows: self.options.rows.clone(),
            edge_features: self.open.edge_features.clone(),
            host,
            keeps_margin,
            threads: self.options.threads,
            lookahead: self.options.lookahead,
            engine: self.options.read_engine,
            ..FeedOptions::default()
        };
        FeedPlan::new(&self.graph, &chunks, &**batches, &options)
    }
}
