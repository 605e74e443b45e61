//! The trainer: its state, and how it is made.

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use grappa_formats::aggregates::AggregateKind;
use grappa_io::{machine::free_memory_bytes, size::ByteSize};
use grappa_run::{
    checkpoint::PartialEpoch,
    config::{Auto, Compress, HaloMode, TrainConfig},
    model::{ModelOptions, Precision, Task},
    stages::StageClock,
};
use grappa_sampling::{
    Loader, LoaderOptions,
    feed::{HostProcesses, OutputDtype},
    partition::Hosts,
    view::Halo,
};
use grappa_storage::{MappedChunks, Store, no_features};
use roaring::RoaringTreemap;
use tch::Device;

use super::{
    correction::Denominator,
    estimate,
    exchange::{Exchange, InProcess},
    historical::HistoricalRows,
    hosts::Ranks,
    inference::Degrees,
    labels::NodeLabels,
    load::{DeviceCopy, Loaded},
    numbers::Numbers,
    optimizer::Optimizer,
    refresh::RefreshPlan,
    residuals::CollectedResiduals,
    scored::ScoredNodes,
    slice,
    split::Splits,
    state::HistoricalOrigin,
};
use crate::{
    Error, Result,
    distributed::{LocalRanks, ProcessGroup},
    nn::Model,
};

/// Trains a model on a store, epoch by epoch. [`train`](super::train) drives it through a whole run.
pub struct Trainer {
    pub(super) store: Arc<Store>,
    /// The configuration, with numbers of partitions.
    pub(super) config: Arc<TrainConfig>,
    /// Whether the number of partitions, and of those in a step, were chosen from the memory.
    pub(super) chosen_numbers: [bool; 2],
    pub(super) device: Device,
    /// Whether a step is begun, and the batch of a third one loaded, before the results of the first are read: on a GPU.
    pub(super) overlaps: bool,
    /// The folder for scratch files and for the assignments of chunks to partitions.
    pub(super) folder: PathBuf,
    pub(super) chunks: Arc<MappedChunks>,
    pub(super) labels: Arc<NodeLabels>,
    pub(super) degrees: Arc<Degrees>,
    pub(super) splits: Splits,
    /// The validation and the test nodes that this process scores.
    pub(super) scored_splits: [Arc<RoaringTreemap>; 2],
    /// The kind of pre-aggregated features that the first layer takes, if it does.
    pub(super) aggregates: Option<AggregateKind>,
    pub(super) model: Model,
    pub(super) optimizer: Optimizer,
    pub(super) denominator: Denominator,
    pub(super) exchange: Box<dyn Exchange>,
    /// On rank 0, the residuals of the other ranks when they were last collected.
    pub(super) collected: Option<CollectedResiduals>,
    /// The processes that train together; none if there is only this one.
    pub(super) group: Option<Arc<ProcessGroup>>,
    /// The chunks that each of them has.
    pub(super) hosts: Hosts,
    pub(super) device_copy: Arc<DeviceCopy>,
    /// When the historical embeddings of the open partitions are refreshed; none if they use none.
    pub(super) refresh_plan: Option<RefreshPlan>,
    /// The historical embeddings of halo nodes, from the last refresh.
    pub(super) historical: Option<Arc<HistoricalRows>>,
    /// The parameters that they were made with.
    pub(super) historical_origin: Option<HistoricalOrigin>,
    /// Bytes about halo nodes that the partitions got since the last epoch began.
    pub(super) halo_bytes: u64,
    /// The nodes that evaluations compute; none before the first evaluation.
    pub(super) scored_nodes: Option<ScoredNodes>,
    /// The work of training an epoch on the open partitions, in all processes, once it was counted.
    pub(super) epoch_work: Option<f64>,
    /// The epoch in progress, if there is one.
    pub(super) partial: Option<PartialEpoch>,
    /// The batch of every epoch on the open partitions, if there is one.
    pub(super) repeated: Option<Loaded>,
    /// Problems that training survives.
    pub(super) warnings: Vec<String>,
    /// The views of the partitions, their seeds, and the feed of their minibatches.
    pub(super) loader: Loader,
    /// The super-epoch that the partitions are of.
    pub(super) super_epoch: Option<u64>,
    pub(super) generation: u64,
    /// Optimizer steps that are finished.
    pub(super) step: u64,
    /// Seconds per unit of work, by the forward and backward passes of a whole epoch.
    pub(super) seconds_per_work: Option<f64>,
    /// The smallest `--memory` of all ranks, for what all must decide alike.
    pub(super) least_memory: u64,
    /// The wall time of the run's stages.
    pub(super) clock: StageClock,
}

impl Trainer {
    /// A trainer with a new model. If `aggregates` is given, its first layer takes the store's pre-aggregated features of this
    /// kind; [`first_hop::choose`](super::first_hop::choose) decides that.
    ///
    /// # Errors
    /// If the store has no labels, no features or no nodes to train on, or if options do not fit it.
    pub fn new(
        store: Arc<Store>,
        config: TrainConfig,
        aggregates: Option<AggregateKind>,
        device: Device,
        folder: PathBuf,
    ) -> Result<Self> {
        let ranks = Ranks::meet(&store, None)?;
        let inputs = Inputs::check(&store, &config, &ranks)?;
        Self::of_ranks(store, config, aggregates, device, folder, ranks, inputs)
    }

    /// [`Trainer::new`] as one of the processes of a group. All have [agreed](super::agree_on_options) on their options, and call this.
    pub(super) fn of_ranks(
        store: Arc<Store>,
        config: TrainConfig,
        aggregates: Option<AggregateKind>,
        device: Device,
        folder: PathBuf,
        ranks: Ranks,
        inputs: Inputs,
    ) -> Result<Self> {
        config.check()?;
        let share = ranks.share();
        let chosen_numbers = [config.partitions, config.concurrent].map(|number| number == Auto::Auto);
        let config = Numbers::choose(&store, &config, aggregates.is_some(), &ranks)?.applied(&config);
        let chunks = Arc::new(MappedChunks::open(&store)?);
        let Inputs { labels, splits, model } = inputs;
        let [train_nodes, val_nodes, _] = splits.of_all();
        let size = estimate::check(&ranks.hosts, &config, &model, train_nodes, aggregates.is_some(), share)?;
        let mut warnings: Vec<String> = size.into_iter().chain(config.warnings(aggregates.is_some())).collect();
        if val_nodes == 0 {
            warnings.extend(config.warnings_without_validation());
        }
        let model = Model::new(model, config.seed, device)?;
        let device_copy = DeviceCopy::new(device);
        let optimizer = Optimizer::new(&config, model.parameters());
        let local = ranks.group.as_ref().map(LocalRanks::find).transpose()?.flatten();
        let options = LoaderOptions {
            share,
            host: local.map(|local| Arc::new(local) as Arc<dyn HostProcesses>),
            ..loader_options(&config, aggregates, &device_copy)?
        };
        let least_memory = ranks.least("memory", config.memory.0)?;
        let mut trainer = Self {
            scored_splits: splits.scored_by(ranks.share_within()),
            degrees: Arc::new(Degrees::new(chunks.clone())),
            exchange: Box::new(InProcess::default()),
            collected: None,
            group: None,
            loader: Loader::new(&store, options),
            device_copy: Arc::new(device_copy),
            denominator: Denominator::default(),
            scored_nodes: None,
            refresh_plan: None,
            historical: None,
            historical_origin: None,
            halo_bytes: 0,
            epoch_work: None,
            partial: None,
            repeated: None,
            warnings,
            hosts: ranks.hosts,
            super_epoch: None,
            generation: store.generation(),
            least_memory,
            seconds_per_work: None,
            step: 0,
            clock: StageClock::started(Duration::ZERO),
            store,
            chunks,
            config: Arc::new(config),
            chosen_numbers,
            device,
            overlaps: device != Device::Cpu,
            folder,
            labels: Arc::new(labels),
            splits,
            aggregates,
            model,
            optimizer,
        };
        if let Some(group) = ranks.group {
            trainer.join(group);
        }
        Ok(trainer)
    }

    /// The model, as far as it was trained.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The name of the store: that of its folder, without `.grappa`.
    pub(super) fn store_name(&self) -> String {
        let stem = self.store.path().file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Nodes and edges of the graph.
    pub(super) fn graph_size(&self) -> u64 {
        self.store.manifest().nodes + self.store.manifest().edges
    }

    /// Optimizer steps that are finished.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The generation of the assignment of chunks to partitions.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the problems since the last call that training survived, and forgets them.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

/// Minibatches as the configuration wants them, all of a step in one batch.
pub(super) fn loader_options(
    config: &TrainConfig,
    aggregates: Option<AggregateKind>,
    device_copy: &DeviceCopy,
) -> Result<LoaderOptions> {
    Ok(LoaderOptions {
        batch: config.batch(),
        concurrent: Some(config.concurrent() as usize),
        join_steps: true,
        steps_max: (config.steps_per_epoch > 0).then_some(config.steps_per_epoch),
        seed: config.seed,
        shuffle: !config.repeats_batch(),
        halo: match config.halo {
            HaloMode::Auto | HaloMode::Stop | HaloMode::History => Halo::Stop,
            HaloMode::Neighbors => Halo::Neighbors,
            HaloMode::None => Halo::None,
        },
        halo_neighbors: config.halo_neighbors(),
        memory: config.memory.0,
        threads: config.threads(),
        aggregates,
        output: match config.precision {
            Precision::F32 => OutputDtype::F32,
            Precision::Bf16 => OutputDtype::Bf16,
        },
        register: device_copy.memory(),
        lookahead: config.lookahead.value().map(NonZeroUsize::get),
        read_engine: config.read_engine.into(),
        ..LoaderOptions::new(config.sampler(aggregates.is_some())?)
    })
}

/// What a run needs of its store, besides adjacency lists and features.
pub(super) struct Inputs {
    labels: NodeLabels,
    splits: Splits,
    model: ModelOptions,
}

impl Inputs {
    /// Checks that a model can be trained on a store, as far as that takes no time. All ranks must call it.
    ///
    /// # Errors
    /// If the store has no labels, no features or no nodes to train on, or if options do not fit it.
    pub fn check(store: &Store, config: &TrainConfig, ranks: &Ranks) -> Result<Self> {
        let labels = NodeLabels::new(store)?;
        let Some(features) = &store.manifest().features else {
            return Err(no_features(store.path()).into());
        };
        if config.label_smoothing > 0.0 && labels.task() == Task::MultiLabel {
            return Err(Error::Options(format!(
                "label-smoothing is {}, and the nodes of the store have sets of labels: leave it out",
                config.label_smoothing
            )));
        }
        slice::check(store, config)?;
        ranks.check_partitions(config)?;
        let model = config.model_options(features.dim as usize, labels.spec().classes as usize);
        check_memory(&model, config)?;
        Ok(Self {
            splits: Splits::open(store, ranks)?,
            labels,
            model,
        })
    }

    /// The model to train.
    pub fn model(&self) -> &ModelOptions {
        &self.model
    }

    /// The number of classes.
    pub fn classes(&self) -> u64 {
        self.labels.spec().classes.into()
    }
}

/// Refuses a model that this machine has no memory to train.
fn check_memory(model: &ModelOptions, config: &TrainConfig) -> Result<()> {
    // Its value, its gradient, and two moments of the optimizer; for compressed gradients also a residual, and its successor.
    let of_parameter = match config.compress {
        Compress::Int8 | Compress::TopK => 6,
        Compress::None | Compress::Bf16 | Compress::Lossless => 4,
    };
    let parameter_bytes = of_parameter * size_of::<f32>() as u64;
    let needed = model.parameters_min().saturating_mul(parameter_bytes);
    match free_memory_bytes() {
        Some(free) if needed > free => Err(Error::TooLarge(format!(
            "the model's parameters, their gradients and the optimizer's moments need at least {}, and {} are free: use a \
             smaller --hidden, or fewer --layers",
            ByteSize(needed),
            ByteSize(free)
        ))),
        _ => Ok(()),
    }
}
