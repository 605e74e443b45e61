//! The configuration of a run. Each option is a field, a key of a TOML file and a flag of `grappa-train`.
//!
//! `grappa-train --help` describes the options for users. Here only the types, units and ranges are documented.
//!
//! A configuration is made in layers: defaults, then a preset (`--preset`), then a file (`--config`), then flags. It is saved in
//! the run's folder and reads back to the same values. A resumed run starts from that file instead of the defaults. It may change options that do
//! not affect what was already computed ([`MAY_CHANGE`]).
//!
//! An option that depends on others can be `auto`. Methods of the same name resolve it: [`TrainConfig::fanouts`],
//! [`TrainConfig::batch`] and so on. Options that depend on the store or the machine are resolved elsewhere.

mod checks;
mod choices;
mod compress_rate;
mod effects;
mod layers;
mod per_layer;
mod preset;
#[cfg(test)]
mod tests;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use grappa_io::size::ByteSize;
use grappa_sampling::{
    partition::Schedule,
    policy::{HALO_NEIGHBORS, REPARTITION_EVERY, SEEDS_OF_A_STEP},
    sample::{Fanouts, RandomWalks, Sampler},
};
use serde::{Deserialize, Serialize};

pub use self::{
    choices::{
        Auto, Compress, Correction, DeviceChoice, Evaluate, FirstHop, HaloMode, LrSchedule, Monitor, Optimizer,
        ReadEngine,
    },
    compress_rate::CompressRate,
    layers::{MAY_CHANGE, OF_PROCESS},
    per_layer::PerLayer,
    preset::Preset,
};
use crate::{
    Error, Result,
    model::{Activation, FeatureNorm, JumpingKnowledge, LayerKind, ModelOptions, NormKind, Precision},
    serde_text,
};

/// The options of a run. Keys of the TOML file and flags are the names of the fields, with hyphens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainConfig {
    /// The kind of the model's layers.
    pub model: LayerKind,
    /// Number of layers, from 1 to 256.
    pub layers: usize,
    /// Hidden dimension, of all heads together.
    pub hidden: usize,
    /// Number of attention heads of GAT and GATv2. It must divide `hidden`.
    pub heads: usize,
    /// Number of attention heads of the last layer, which are averaged. `auto` is `heads`.
    #[serde(with = "serde_text")]
    pub last_heads: Auto<NonZeroUsize>,
    /// Dropout probability after each layer but the last, in [0, 1).
    pub dropout: f64,
    /// Dropout probability of features, in [0, 1).
    pub input_dropout: f64,
    /// Dropout probability of attention weights, in [0, 1).
    pub attention_dropout: f64,
    /// The nonlinearity after each layer but the last.
    pub activation: Activation,
    /// The normalization of features before the first layer.
    pub normalize_features: FeatureNorm,
    /// Normalization after each layer but the last. See [`TrainConfig::norm`].
    #[serde(with = "serde_text")]
    pub norm: Auto<NormKind>,
    /// Whether each layer but the last adds its input to its output.
    pub residual: bool,
    /// How the states of all layers make the logits.
    pub jumping_knowledge: JumpingKnowledge,

    /// Neighbors to sample per node, one number per layer, from the seeds outwards; -1 takes all. See
    /// [`TrainConfig::fanouts`].
    #[serde(with = "serde_text")]
    pub fanouts: Auto<Fanouts>,
    /// Whether to sample with replacement.
    pub replace: bool,
    /// Random walks per node, of PinSAGE. From 1 to 10,000.
    pub walks: u32,
    /// The largest number of steps of a walk, from 1 to 1000.
    pub walk_steps: u32,
    /// Probability that a walk ends before its next step, in [0, 1].
    pub walk_termination: f64,
    /// Seeds per minibatch and partition. See [`TrainConfig::batch`].
    #[serde(with = "serde_text")]
    pub batch: Auto<NonZeroUsize>,
    /// Whether a step takes all training nodes of a partition and all edges of its view, without sampling.
    pub full_graph: bool,

    /// Learning rate after the warmup, above 0.
    pub lr: f64,
    /// Learning rate schedule.
    pub lr_schedule: LrSchedule,
    /// Epochs of linear warmup from 0; may be a fraction.
    pub warmup: f64,
    /// Epochs between two reductions, for the schedule `step`.
    pub lr_step: u64,
    /// Factor of each reduction, for the schedules `step` and `plateau`, in (0, 1).
    pub lr_factor: f64,
    /// Evaluations without improvement before a reduction, for the schedule `plateau`.
    pub lr_patience: u64,
    /// Lower bound of the learning rate, for all schedules.
    pub lr_min: f64,
    /// Optimizer.
    pub optimizer: Optimizer,
    /// Weight decay, 0 or more: one value, or one for each layer.
    #[serde(with = "serde_text")]
    pub weight_decay: PerLayer,
    /// Label smoothing, in [0, 1): this part of each target is spread evenly over all classes.
    pub label_smoothing: f64,
    /// Momentum of SGD, in [0, 1).
    pub momentum: f64,
    /// Largest Euclidean norm of a step's gradient. Larger gradients are scaled down. 0: no clipping.
    pub clip: f64,
    /// Number of epochs.
    pub epochs: u64,
    /// Steps of an epoch, at most. 0: as many as use all training nodes.
    pub steps_per_epoch: u64,

    /// K: number of partitions. The trainer chooses `auto` from `memory` and the store. See [`TrainConfig::partitions`].
    #[serde(with = "serde_text")]
    pub partitions: Auto<u32>,
    /// Q: partitions that are computed together in one step, from 1 to K. The trainer chooses `auto`, too. See
    /// [`TrainConfig::concurrent`].
    #[serde(with = "serde_text")]
    pub concurrent: Auto<u32>,
    /// How partitions change from one super-epoch to the next.
    #[serde(with = "serde_text")]
    pub schedule: Schedule,
    /// Epochs of a super-epoch. The graph is repartitioned between two super-epochs.
    pub repartition_every: u64,
    /// Treatment of halo nodes.
    pub halo: HaloMode,
    /// In-neighbors that each halo node has at most, with [`HaloMode::Neighbors`]. See [`TrainConfig::halo_neighbors`].
    #[serde(with = "serde_text")]
    pub halo_neighbors: Auto<NonZeroU32>,
    /// Loss weights by coverage.
    pub correction: Correction,
    /// Strength λ of the correction, in [0, 1]: a loss weight w becomes (1 - λ) + λ w.
    pub shrinkage: f64,
    /// Source of the first layer's aggregates.
    pub first_hop: FirstHop,

    /// Compression of the gradients that processes send each other.
    pub compress: Compress,
    /// The share of the gradient's values that [`Compress::TopK`] sends. See [`TrainConfig::compress_rate`].
    #[serde(with = "serde_text")]
    pub compress_rate: Auto<CompressRate>,

    /// Memory for the graph and its features; the model's is extra.
    #[serde(serialize_with = "exact_size", deserialize_with = "serde_text::deserialize")]
    pub memory: ByteSize,
    /// Number of worker threads, from 1 to 4096. See [`TrainConfig::threads`].
    #[serde(with = "serde_text")]
    pub threads: Auto<NonZeroUsize>,
    /// Upper bound of the minibatches whose feature reads are planned together. The feed resolves `auto`.
    #[serde(with = "serde_text")]
    pub lookahead: Auto<NonZeroUsize>,
    /// How files are read.
    pub read_engine: ReadEngine,

    /// Random seed of initial parameters, partitions, sampling and dropout.
    #[serde(with = "serde_text")]
    pub seed: u64,
    /// The type of numbers that the model computes with.
    pub precision: Precision,
    /// The device that the model runs on.
    #[serde(with = "serde_text")]
    pub device: DeviceChoice,

    /// How the model is evaluated while it is trained.
    pub evaluate: Evaluate,
    /// The type of hidden states of an exact evaluation that memory does not hold as f32.
    pub evaluate_states: Precision,
    /// Epochs between two evaluations. The last epoch is always evaluated.
    pub eval_every: u64,
    /// The number that decides which epoch is the best.
    pub monitor: Monitor,
    /// Evaluations without a better one after which the run ends. 0: it does not end early.
    pub early_stopping: u64,
    /// Epochs between two checkpoints. 0: only by time, and at the end.
    pub checkpoint_every: u64,
    /// Minutes between two checkpoints. With one process they are also made within an epoch. 0: only by epochs, and at the end.
    pub checkpoint_minutes: f64,
    /// Number of newest checkpoints to keep, besides the best.
    pub keep: usize,

    /// The run whose best model has the first parameters; none: they are random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_from: Option<PathBuf>,
    /// File with the names of the classes, one per line, in the order of their numbers. The run's folder has a copy, so the
    /// saved configuration does not have this path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_names: Option<PathBuf>,
    /// The run's folder; none: it is named after the store. The saved configuration does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<PathBuf>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            model: LayerKind::default(),
            layers: 2,
            hidden: 128,
            heads: 4,
            last_heads: Auto::Auto,
            dropout: 0.5,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            activation: Activation::default(),
            normalize_features: FeatureNorm::default(),
            norm: Auto::Auto,
            residual: false,
            jumping_knowledge: JumpingKnowledge::default(),
            fanouts: Auto::Auto,
            replace: false,
            walks: 50,
            walk_steps: 2,
            walk_termination: 0.5,
            batch: Auto::Auto,
            full_graph: false,
            lr: 0.003,
            lr_schedule: LrSchedule::default(),
            warmup: 0.0,
            lr_step: 10,
            lr_factor: 0.5,
            lr_patience: 5,
            lr_min: 0.0,
            optimizer: Optimizer::default(),
            weight_decay: PerLayer::default(),
            label_smoothing: 0.0,
            momentum: 0.0,
            clip: 0.0,
            epochs: 50,
            steps_per_epoch: 0,
            partitions: Auto::Auto,
            concurrent: Auto::Auto,
            schedule: Schedule::Sweep,
            repartition_every: REPARTITION_EVERY,
            halo: HaloMode::default(),
            halo_neighbors: Auto::Auto,
            correction: Correction::default(),
            shrinkage: 1.0,
            first_hop: FirstHop::default(),
            compress: Compress::default(),
            compress_rate: Auto::Auto,
            memory: ByteSize(4 << 30),
            threads: Auto::Auto,
            lookahead: Auto::Auto,
            read_engine: ReadEngine::default(),
            seed: 1,
            precision: Precision::default(),
            device: DeviceChoice::default(),
            evaluate: Evaluate::default(),
            evaluate_states: Precision::Bf16,
            eval_every: 1,
            monitor: Monitor::default(),
            early_stopping: 0,
            checkpoint_every: 5,
            checkpoint_minutes: 10.0,
            keep: 3,
            init_from: None,
            class_names: None,
            out: None,
        }
    }
}

/// Factor of the fanouts of training for evaluation by sampling.
const EVALUATION_FANOUTS: u32 = 2;

impl TrainConfig {
    /// The shape of the model, for a store with `inputs` features per node and `outputs` classes.
    pub fn model_options(&self, inputs: usize, outputs: usize) -> ModelOptions {
        ModelOptions {
            layer: self.model,
            layers: self.layers,
            inputs,
            hidden: self.hidden,
            outputs,
            heads: self.heads,
            last_heads: self.last_heads.value().map(NonZeroUsize::get),
            dropout: self.dropout,
            input_dropout: self.input_dropout,
            attention_dropout: self.attention_dropout,
            activation: self.activation,
            features: self.normalize_features,
            norm: self.norm(),
            residual: self.residual,
            jumping_knowledge: self.jumping_knowledge,
            precision: self.precision,
        }
    }

    /// The normalization after each layer but the last. `auto` is batch for GIN, because its sums would grow from layer to
    /// layer, and none for the others.
    pub fn norm(&self) -> NormKind {
        self.norm.value().unwrap_or(match self.model {
            LayerKind::Gin => NormKind::Batch,
            _ => NormKind::None,
        })
    }

    /// The fanouts, one per layer. `auto` is 15, 10, 5, 5, ..., and 10 at each layer for PinSAGE.
    pub fn fanouts(&self) -> Fanouts {
        match &self.fanouts {
            _ if self.full_graph => Fanouts::new(&vec![-1; self.layers]).expect("a checked configuration has layers"),
            Auto::Value(fanouts) => fanouts.clone(),
            Auto::Auto => {
                let fanouts: Vec<i64> = match self.model {
                    LayerKind::PinSage => vec![10; self.layers],
                    _ => [15, 10]
                        .into_iter()
                        .chain(std::iter::repeat(5))
                        .take(self.layers)
                        .collect(),
                };
                Fanouts::new(&fanouts).expect("a checked configuration has layers")
            }
        }
    }

    /// The sampler of neighbors: uniform, or random walks for PinSAGE. If the first layer's aggregates are known, the last hop
    /// is left out.
    ///
    /// # Errors
    /// If PinSAGE's fanouts differ, or one of them is -1.
    ///
    /// # Panics
    /// If `knows_first_layer` is set for PinSAGE, which aggregates learned values.
    pub fn sampler(&self, knows_first_layer: bool) -> Result<Sampler> {
        let fanouts = self.fanouts();
        if self.model != LayerKind::PinSage {
            let fanouts = if knows_first_layer {
                fanouts.without_last()
            } else {
                fanouts
            };
            return Ok(Sampler::uniform(fanouts, self.replace));
        }
        assert!(!knows_first_layer, "PinSAGE aggregates learned values");
        if self.full_graph {
            return Err(Error::Options(
                "--full-graph does not work with pinsage, whose neighbors are chosen by random walks: leave it out"
                    .into(),
            ));
        }
        let neighbors = (0..fanouts.hops()).map(|hop| fanouts.at(hop)).reduce(|first, other| {
            first.filter(|_| first == other) // the same at each hop, or none
        });
        let Some(neighbors) = neighbors.flatten() else {
            return Err(Error::Options(format!(
                "fanouts are {fanouts}; pinsage keeps the same number of visited nodes at each hop: give the same number for \
                 each, and not -1"
            )));
        };
        Ok(Sampler::random_walks(RandomWalks {
            hops: fanouts.hops(),
            walks: self.walks,
            steps: self.walk_steps,
            termination: self.walk_termination,
            neighbors,
        })?)
    }

    /// The sampler of evaluations with [`Evaluate::Sampled`]: that of training, with twice the fanouts.
    ///
    /// # Errors
    /// As [`TrainConfig::sampler`].
    pub fn evaluation_sampler(&self, knows_first_layer: bool) -> Result<Sampler> {
        if self.model == LayerKind::PinSage {
            return self.sampler(knows_first_layer);
        }
        let fanouts = self.evaluation_fanouts();
        let fanouts = if knows_first_layer {
            fanouts.without_last()
        } else {
            fanouts
        };
        Ok(Sampler::uniform(fanouts, self.replace))
    }

    /// The fanouts of evaluations that sample, for as many hops as the model has layers.
    pub fn evaluation_fanouts(&self) -> Fanouts {
        self.fanouts().times(EVALUATION_FANOUTS)
    }

    /// The number of partitions. `auto` is one: the trainer puts the number that it chose into its configuration.
    pub fn partitions(&self) -> u32 {
        self.partitions.value().unwrap_or(1)
    }

    /// The number of partitions that are computed together in one step. `auto` is all partitions, unless the trainer chose fewer.
    pub fn concurrent(&self) -> u32 {
        self.concurrent.value().unwrap_or(self.partitions())
    }

    /// In-neighbors that each halo node has at most. `auto` is 25 for SAGE-max and 10 for the others: the maximum over a few neighbors is
    /// smaller than over all, and the few stay the same for a super-epoch.
    pub fn halo_neighbors(&self) -> u32 {
        let auto = match self.model {
            LayerKind::SageMax => 25,
            _ => HALO_NEIGHBORS,
        };
        self.halo_neighbors.value().map_or(auto, NonZeroU32::get)
    }

    /// Whether an epoch is one step of all seeds with all their neighbors, so that all epochs on the same partitions have the same batch.
    pub fn repeats_batch(&self) -> bool {
        self.full_graph && self.concurrent() >= self.partitions()
    }

    /// Seeds per minibatch and partition. `auto` is 1024 divided by the number of partitions of a step. With `full_graph` it is
    /// unlimited.
    pub fn batch(&self) -> usize {
        match self.batch {
            _ if self.full_graph => usize::MAX,
            Auto::Value(seeds) => seeds.get(),
            Auto::Auto => SEEDS_OF_A_STEP.div_ceil(self.concurrent().max(1) as usize),
        }
    }

    /// Number of worker threads. `auto` is the number of processors that this process may use.
    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.value().map_or_else(all, NonZeroUsize::get)
    }

    /// The share of values that [`Compress::TopK`] sends. `auto` is [`CompressRate::default`].
    pub fn compress_rate(&self) -> CompressRate {
        self.compress_rate.value().unwrap_or_default()
    }

    /// Whether training drops values at random.
    pub fn has_dropout(&self) -> bool {
        self.dropout > 0.0 || self.input_dropout > 0.0 || self.attention_dropout > 0.0
    }
}

fn exact_size<S: serde::Serializer>(size: &ByteSize, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&size.exact())
}
