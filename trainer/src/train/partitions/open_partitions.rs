//! The partitions of a super-epoch, and the loader of their minibatches.

use std::{borrow::Cow, sync::Arc};

use grappa_formats::{ChunkId, assignment::Assignment};
use grappa_io::progress::Progress;
use grappa_run::{config::HaloMode, folder::ASSIGNMENTS};
use grappa_sampling::{
    Loader, LoaderOptions, SeedTimes, Seeds,
    feed::{BatchSource, HostProcesses},
    partition::{self, RepartitionOptions},
    policy::SAMPLED_EDGE_WORK,
    sample::Minibatch,
};
use grappa_storage::Graph;

use super::loaded_batch::{DeviceCopy, Loaded, Loading};
use crate::train::options::loader_options::loader_options;
use crate::train::{
    data::{times, training_data::TrainingData},
    inference::historical::HistoricalRows,
    links::LinkData,
    options::resolved_config::ResolvedConfig,
    ranks::Processes,
};
use crate::{Error, Result, distributed::LocalRanks, nn::Model};

/// The open partitions that this process serves.
pub(crate) struct OpenPartitions {
    /// Their views, their seeds, and the feed of their minibatches.
    pub loader: Loader,
    pub device_copy: Arc<DeviceCopy>,
    /// The super-epoch that they are open for; none before the first.
    pub super_epoch: Option<u64>,
    /// The generation of their assignment.
    pub generation: u64,
    /// The partition of each chunk.
    pub owners: Vec<u32>,
    /// The work of training an epoch on them, in all processes, once it was counted.
    pub epoch_work: Option<f64>,
    /// Bytes about halo nodes that they got since the last epoch began.
    pub halo_bytes: u64,
    /// The batch of every epoch on them, if there is one.
    pub repeated: Option<Loaded>,
    /// The epoch whose edges they have, if the task is link prediction.
    links_of: Option<u64>,
}

impl OpenPartitions {
    /// No partitions yet.
    pub fn new(config: &ResolvedConfig, data: &TrainingData, processes: &Processes) -> Result<Self> {
        let device_copy = DeviceCopy::new(config.device);
        let local = processes.group.as_ref().map(LocalRanks::find).transpose()?.flatten();
        let mut options = LoaderOptions {
            share: processes.share(),
            host: local.map(|local| Arc::new(local) as Arc<dyn HostProcesses>),
            memory: config.memory.0.saturating_sub(data.links().map_or(0, LinkData::candidate_bytes)),
            ..loader_options(&data.graph, config, config.aggregates, data.edges)?
        };
        options.rows.register = device_copy.memory();
        options.minibatches.links = data.links().map(|links| links.task.clone());
        Ok(Self {
            loader: Loader::of_graph(&data.graph, options),
            device_copy: Arc::new(device_copy),
            super_epoch: None,
            generation: data.graph.assignment().generation(),
            owners: Vec::new(),
            epoch_work: None,
            halo_bytes: 0,
            repeated: None,
            links_of: None,
        })
    }

    /// Whether the partitions of a super-epoch are open. A single partition is the whole graph in every super-epoch.
    pub fn are_open_for(&mut self, super_epoch: u64, partitions: u32) -> bool {
        if self.super_epoch.is_some() && partitions == 1 {
            self.super_epoch = Some(super_epoch);
        }
        self.super_epoch == Some(super_epoch)
    }

    /// Opens the views of the partitions of an assignment that this process serves.
    pub fn open(
        &mut self,
        assignment: &Assignment,
        data: &TrainingData,
        processes: &Processes,
        progress: &dyn Progress,
    ) -> Result<()> {
        self.epoch_work = None;
        self.repeated = None;
        self.links_of = None;
        if data.links().is_some() {
            return Ok(self.loader.partition(assignment, &Seeds::All, progress)?);
        }
        let nodes = match data.positions(data.splits.train()) {
            Cow::Borrowed(_) => data.splits.train().clone(),
            Cow::Owned(positions) => Arc::new(positions),
        };
        let seeds = Seeds::OfHost { nodes, of_partitions: processes.hosts.seeds(assignment) };
        self.loader.partition(assignment, &seeds, progress)?;
        if data.uses_times {
            self.loader.set_seed_times(SeedTimes::Own)?;
        }
        Ok(())
    }

    /// Gives them the edges of an epoch, unless they have them. All ranks must call it.
    pub fn open_links(
        &mut self,
        links: &LinkData,
        epoch: u64,
        partitions: u32,
        processes: &Processes,
        progress: &dyn Progress,
    ) -> Result<()> {
        let has = self.links_of.is_some_and(|links_epoch| links_epoch == epoch || !links.draws_edges());
        if !has {
            links.give_positives(&mut self.loader, partitions, processes, epoch, progress)?;
            self.links_of = Some(epoch);
        }
        Ok(())
    }

    /// Gives halo nodes sampled in-neighbors, on all ranks. Returns a warning if some rank has too little memory for them.
    pub fn expand_halo_nodes(
        &mut self,
        generation: u64,
        processes: &Processes,
        progress: &dyn Progress,
    ) -> Result<Option<String>> {
        let lists = self.loader.sample_halo_neighbors(generation, progress);
        // All processes treat halo nodes in the same way.
        match processes.agree(lists.map_err(Error::from), progress) {
            Err(error) if error.is_budget() => Ok(Some(format!(
                "nodes of other partitions have no neighbors, so accuracy can be several points lower: {error}"
            ))),
            lists => {
                if let Some(lists) = lists? {
                    self.loader.set_halo_lists(lists);
                    // Minibatches have more edges now.
                    self.epoch_work = None;
                }
                Ok(None)
            }
        }
    }

    /// Notes that everything about the partitions of a super-epoch is known.
    pub fn opened(&mut self, super_epoch: u64, assignment: &Assignment, graph: &Graph) {
        self.halo_bytes += self.bytes_of_halo_lists(graph);
        self.generation = assignment.generation();
        let chunks = 0..graph.positions().chunks().chunks();
        self.owners =
            chunks.map(|chunk| assignment.owners(ChunkId(chunk)).base.map_or(u32::MAX, |base| base.0)).collect();
        self.super_epoch = Some(super_epoch);
    }

    /// Bytes of the sampled in-neighbors that the partitions of this process got: lists of node ids, and the features of in-neighbors.
    fn bytes_of_halo_lists(&self, graph: &Graph) -> u64 {
        /// A node id on disk has 40 bits.
        const ID_BYTES: u64 = 5;
        let Some(lists) = self.loader.halo_lists() else {
            return 0;
        };
        let types = graph.node_types().iter().zip(&lists.given.rows);
        let row_bytes = types.map(|(store, rows)| {
            let features = store.manifest().features.as_ref();
            rows * features.map_or(0, |features| u64::from(features.row_stride))
        });
        lists.given.listed * ID_BYTES + row_bytes.sum::<u64>()
    }

    /// The work of training an epoch in all processes, in the unit of [`Needed::work`](crate::train::inference::Needed::work), of a graph with this number of node types. Counts the edges of
    /// the first step of the open partitions, unless they were counted before.
    pub fn work_of_epoch(&mut self, types: usize, processes: &Processes, progress: &dyn Progress) -> Result<f64> {
        if let Some(work) = self.epoch_work {
            return Ok(work);
        }
        let all = self.loader.all_batches(0);
        let steps = all.batches();
        let served = all.served();
        let mut minibatches = vec![Minibatch::default(); types];
        if served.batches() > 0 && served.places(0)[0].step == 0 {
            served.sample(0, &mut Default::default(), &mut minibatches)?;
        }
        // Processes that divide the partitions sample as many together. Their nodes are fewer: the partitions of one process share nodes.
        let sizes = minibatches.iter().map(|minibatch| minibatch.seeds + minibatch.edges());
        let mut sampled = [sizes.sum::<usize>() as u64];
        processes.sum(&mut sampled, progress)?;
        let work = SAMPLED_EDGE_WORK * sampled[0] as f64 * steps as f64;
        self.epoch_work = Some(work);
        Ok(work)
    }

    /// Loads batches for a model as it is, with historical embeddings if there are any.
    pub fn loading(
        &self,
        config: &Arc<ResolvedConfig>,
        data: &Arc<TrainingData>,
        model: &Model,
        historical: Option<Arc<HistoricalRows>>,
    ) -> Loading {
        Loading {
            config: config.clone(),
            data: data.clone(),
            device_copy: self.device_copy.clone(),
            historical,
            aggregates: (0..config.layers).map(|layer| model.aggregate(layer)).collect(),
        }
    }
}

/// Whether halo nodes get sampled in-neighbors: with `--halo auto`, if historical embeddings cannot be used, cost too much, or cost
/// accuracy. Views in the order of time have no lists of halo nodes.
pub(crate) fn expands_halo(config: &ResolvedConfig, graph: &Graph, uses_history: bool) -> bool {
    config.halo == HaloMode::Auto && config.partitions() > 1 && !uses_history && !times::keeps_order(graph, config)
}

/// The assignment of chunks to the partitions of a super-epoch, a function of the configuration and the store.
///
/// With more than one partition it is also written to the run's folder, for readers who want to know what each partition saw. The store is
/// not written to: it may be read-only, and other runs may use it.
///
/// # Errors
/// If a partition would have no chunk, or the file cannot be written. A full disk is a warning.
pub(crate) fn assign(
    config: &ResolvedConfig,
    graph: &Graph,
    processes: &Processes,
    super_epoch: u64,
    warnings: &mut Vec<String>,
) -> Result<Assignment> {
    let hosts = &processes.hosts;
    if config.partitions() == 1 && hosts.count() == 1 {
        return Ok(Assignment::whole(graph.positions().chunks().chunks()));
    }
    let options = RepartitionOptions {
        partitions: config.partitions(),
        schedule: config.schedule,
        seed: config.seed,
        super_epoch: Some(super_epoch),
    };
    let assignment = hosts.assign(&options, config.concurrent(), super_epoch + 1)?;
    if !processes.is_first() {
        // Rank 0 writes the same.
        return Ok(assignment);
    }
    match partition::keep(&config.folder.join(ASSIGNMENTS), &assignment).map_err(Error::from) {
        Err(error) if error.is_disk_full() => {
            warnings.push(format!("the assignment of chunks to partitions was not saved: {error}; training continues"))
        }
        kept => kept?,
    }
    Ok(assignment)
}
