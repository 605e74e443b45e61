//! What a run is configured with: one option, one key of a TOML file, one flag of `grappa-train`.
//!
//! The effective configuration is made in layers: defaults, then a file (`--config`), then flags. It is written into the
//! run's folder, where it reads back to itself. A run that is resumed starts from that file instead of the defaults, and may
//! change what does not change what was already computed ([`MAY_CHANGE`]).
//!
//! Values that depend on others are `auto` until they are asked for: [`TrainConfig::fanouts`], [`TrainConfig::batch`] and
//! so on resolve them. What depends on the store or the machine is not decided here.

mod choices;
mod layers;
#[cfg(test)]
mod tests;

use std::{num::NonZeroUsize, path::PathBuf};

use grappa_io::size::ByteSize;
use grappa_sampling::{
    partition::Schedule,
    sample::{Fanouts, RandomWalks, Sampler},
};
use serde::{Deserialize, Serialize};

pub use self::{
    choices::{Auto, Correction, DeviceChoice, FirstHop, HaloMode, LrSchedule, Optimizer, ReadEngine},
    layers::MAY_CHANGE,
};
use crate::{
    Error, Result,
    model::{LayerKind, ModelOptions, NormKind, Precision},
    serde_text,
};

/// Everything that a run can be told. Keys of the TOML file and flags are the names of the fields, with hyphens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainConfig {
    /// Which layers the model has.
    pub model: LayerKind,
    /// Number of layers, up to 256.
    pub layers: usize,
    /// Values of a node between layers, of all heads together.
    pub hidden: usize,
    /// Attention heads, of GAT and GATv2.
    pub heads: usize,
    /// Part of the values that is dropped between layers in training, in [0, 1).
    pub dropout: f64,
    /// The norm between layers. `auto`: batch for GIN, whose sums would otherwise grow from layer to layer, and none for
    /// others. See [`TrainConfig::norm`].
    #[serde(with = "serde_text")]
    pub norm: Auto<NormKind>,
    /// Whether each layer but the last adds its input.
    pub residual: bool,

    /// Neighbours kept per hop, from the seeds outwards; -1 keeps all. `auto`: 15,10,5,5,... for as many layers as there
    /// are, and 10 at each for PinSAGE. See [`TrainConfig::fanouts`].
    #[serde(with = "serde_text")]
    pub fanouts: Auto<Fanouts>,
    /// Whether a neighbour may be drawn several times.
    pub replace: bool,
    /// Random walks from each node, of PinSAGE: its neighbours are the nodes that they visit most often. Up to 10,000.
    pub walks: u32,
    /// The most steps of a walk, up to 1000. Evaluation and predictions take all in-neighbours alike, which is what walks of one step come
    /// to; longer ones let training see nodes that are further away.
    pub walk_steps: u32,
    /// Probability that a walk ends before its next step.
    pub walk_termination: f64,
    /// Seeds of a minibatch, per partition. `auto`: 1024 for all partitions of a step together. See
    /// [`TrainConfig::batch`].
    #[serde(with = "serde_text")]
    pub batch: Auto<NonZeroUsize>,
    /// Whether a step works on all training nodes of a partition and all edges of its view, without sampling.
    pub full_graph: bool,

    /// The learning rate, after the warmup.
    pub lr: f64,
    /// How the learning rate changes.
    pub lr_schedule: LrSchedule,
    /// Epochs over which the learning rate rises from 0 at the start, linearly; may be a fraction.
    pub warmup: f64,
    /// Epochs between two changes of the learning rate, of the schedule `step`.
    pub lr_step: u64,
    /// By what the schedules `step` and `plateau` multiply the learning rate, in (0, 1).
    pub lr_factor: f64,
    /// Evaluations without a better validation score that the schedule `plateau` waits for.
    pub lr_patience: u64,
    /// The learning rate that no schedule goes below.
    pub lr_min: f64,
    /// How parameters follow from gradients.
    pub optimizer: Optimizer,
    /// Weight decay.
    pub weight_decay: f64,
    /// Momentum, of SGD, in [0, 1).
    pub momentum: f64,
    /// The largest Euclidean norm of a step's gradient; longer ones are scaled down. 0: no limit.
    pub clip: f64,
    /// Epochs to train.
    pub epochs: u64,

    /// K: partitions that the graph is trained in.
    pub partitions: u32,
    /// Q: partitions whose gradients make one step. `auto`: all of them. See [`TrainConfig::concurrent`].
    #[serde(with = "serde_text")]
    pub concurrent: Auto<u32>,
    /// How partitions change from super-epoch to super-epoch.
    #[serde(with = "serde_text")]
    pub schedule: Schedule,
    /// Epochs of a super-epoch; the graph is repartitioned between two of them.
    pub repartition_every: u64,
    /// What becomes of in-neighbours that a partition does not own. See [`HaloMode`].
    pub halo: HaloMode,
    /// How gradients are weighted by coverage.
    pub correction: Correction,
    /// λ of the correction, in [0, 1]: a weight w becomes (1 - λ) + λ w, so 0 is no correction and 1 all of it.
    pub shrinkage: f64,
    /// Where the first layer's aggregates come from.
    pub first_hop: FirstHop,

    /// Memory for the graph and its features, beside the model.
    #[serde(serialize_with = "exact_size", deserialize_with = "serde_text::deserialize")]
    pub memory: ByteSize,
    /// Worker threads. `auto`: one per processor. See [`TrainConfig::threads`].
    #[serde(with = "serde_text")]
    pub threads: Auto<NonZeroUsize>,
    /// Minibatches whose reads are planned together, at most. `auto`: as many as pay for the memory that they wait in.
    #[serde(with = "serde_text")]
    pub lookahead: Auto<NonZeroUsize>,
    /// What reads files.
    pub read_engine: ReadEngine,

    /// Selects initial parameters, partitions, minibatches and what is dropped.
    #[serde(with = "serde_text")]
    pub seed: u64,
    /// With which numbers the model computes.
    pub precision: Precision,
    /// Where it computes.
    #[serde(with = "serde_text")]
    pub device: DeviceChoice,

    /// Epochs between two evaluations; the last epoch is always evaluated.
    pub eval_every: u64,
    /// Evaluations without a better validation score after which the run ends. 0: never.
    pub early_stopping: u64,
    /// Epochs between two checkpoints. 0: only by time and at the end.
    pub checkpoint_every: u64,
    /// Minutes after which a checkpoint is made at the end of an epoch; may be a fraction. 0: only by epochs and at the end.
    pub checkpoint_minutes: f64,
    /// How many checkpoints are kept, beside the best.
    pub keep: usize,

    /// What classes are called: a file with a line for each, in the order of numbers. The run keeps a copy, so it is no part
    /// of the configuration that is written there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_names: Option<PathBuf>,
    /// The run's folder. Without one, it is named after the store. It is no part of the configuration that is written there.
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
            dropout: 0.5,
            norm: Auto::Auto,
            residual: false,
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
            weight_decay: 0.0,
            momentum: 0.0,
            clip: 0.0,
            epochs: 50,
            partitions: 1,
            concurrent: Auto::Auto,
            schedule: Schedule::Sweep,
            repartition_every: 5,
            halo: HaloMode::default(),
            correction: Correction::default(),
            shrinkage: 1.0,
            first_hop: FirstHop::default(),
            memory: ByteSize(4 << 30),
            threads: Auto::Auto,
            lookahead: Auto::Auto,
            read_engine: ReadEngine::default(),
            seed: 1,
            precision: Precision::default(),
            device: DeviceChoice::default(),
            eval_every: 1,
            early_stopping: 0,
            checkpoint_every: 5,
            checkpoint_minutes: 10.0,
            keep: 3,
            class_names: None,
            out: None,
        }
    }
}

/// More than anybody trains; each is a hop of sampling and a pass over the graph in each evaluation.
const LAYERS_MAX: u64 = 256;
/// What PinSAGE's walks may come to: each node of a minibatch makes so many, of so many steps.
const WALKS_MAX: u64 = 10_000;
const WALK_STEPS_MAX: u64 = 1000;
/// More processors than a machine has.
const THREADS_MAX: u64 = 4096;

/// Seeds of a step, of all its partitions together, unless the user says otherwise.
const SEEDS_OF_A_STEP: usize = 1024;

impl TrainConfig {
    /// The model for a store with so many features a node and so many classes.
    pub fn model_options(&self, inputs: usize, outputs: usize) -> ModelOptions {
        ModelOptions {
            layer: self.model,
            layers: self.layers,
            inputs,
            hidden: self.hidden,
            outputs,
            heads: self.heads,
            dropout: self.dropout,
            norm: self.norm(),
            residual: self.residual,
            precision: self.precision,
        }
    }

    /// The norm between layers.
    pub fn norm(&self) -> NormKind {
        self.norm.value().unwrap_or(match self.model {
            LayerKind::Gin => NormKind::Batch,
            _ => NormKind::None,
        })
    }

    /// The fanouts, one per layer.
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

    /// What draws neighbours: uniformly, or, for PinSAGE, by random walks. Where the first layer's aggregates are known,
    /// there is no last hop.
    ///
    /// # Errors
    /// If PinSAGE is to keep all that its walks visit, or more at one hop than at another.
    ///
    /// # Panics
    /// If PinSAGE's first layer is said to be known.
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
        assert!(!knows_first_layer, "PinSAGE aggregates what it has learned");
        if self.full_graph {
            return Err(Error::Options(
                "PinSAGE's neighbours are those that random walks visit: leave out --full-graph".into(),
            ));
        }
        let neighbours = (0..fanouts.hops()).map(|hop| fanouts.at(hop)).reduce(|first, other| {
            first.filter(|_| first == other) // the same at each hop, or none
        });
        let Some(neighbours) = neighbours.flatten() else {
            return Err(Error::Options(format!(
                "fanouts are {fanouts}; of the nodes that PinSAGE's random walks visit, each hop keeps as many as the others: \
                 give the same number for each, and not -1"
            )));
        };
        Ok(Sampler::random_walks(RandomWalks {
            hops: fanouts.hops(),
            walks: self.walks,
            steps: self.walk_steps,
            termination: self.walk_termination,
            neighbours,
        })?)
    }

    /// Q, the partitions whose gradients make one step.
    pub fn concurrent(&self) -> u32 {
        self.concurrent.value().unwrap_or(self.partitions)
    }

    /// Seeds of a minibatch, per partition: all that there are where steps work on whole views.
    pub fn batch(&self) -> usize {
        match self.batch {
            _ if self.full_graph => usize::MAX,
            Auto::Value(seeds) => seeds.get(),
            Auto::Auto => SEEDS_OF_A_STEP.div_ceil(self.concurrent().max(1) as usize),
        }
    }

    /// Worker threads: as asked for, or as many as there are processors for this process.
    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.value().map_or_else(all, NonZeroUsize::get)
    }

    /// Warnings about options that have no effect because of other options.
    ///
    /// They are not errors, because a comparison of several configurations may well contain such a combination.
    pub fn without_effect(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.partitions == 1 {
            if self.correction != Correction::None {
                warnings.push(format!(
                    "--correction {} has no effect with --partitions 1: one partition sees every edge, so the coverage of every \
                     seed is 100 %",
                    self.correction
                ));
            }
            return warnings;
        }
        if self.halo == HaloMode::History && self.first_hop == FirstHop::Sampled && self.layers > 1 {
            let same = match self.layers {
                2 => HaloMode::Stop,
                _ => HaloMode::Aggregates,
            };
            warnings.push(format!(
                "--halo history needs a pre-aggregated first hop: with --first-hop sampled and {} layers it is the same as \
                 --halo {same}; leave out --first-hop sampled, or choose --halo {same}",
                self.layers
            ));
        }
        warnings
    }

    /// Checks all that can be checked without a store and a machine: ranges, and options against each other.
    ///
    /// # Errors
    /// Names the option, what it is, and what it may be.
    pub fn check(&self) -> Result<()> {
        let no = |what: String| Err(Error::Options(what));
        let at_least_one = [
            ("layers", self.layers as u64),
            ("hidden", self.hidden as u64),
            ("heads", self.heads as u64),
            ("walks", u64::from(self.walks)),
            ("walk-steps", u64::from(self.walk_steps)),
            ("lr-step", self.lr_step),
            ("epochs", self.epochs),
            ("partitions", u64::from(self.partitions)),
            ("concurrent", u64::from(self.concurrent())),
            ("repartition-every", self.repartition_every),
            ("eval-every", self.eval_every),
            ("keep", self.keep as u64),
            ("memory", self.memory.0),
        ];
        if let Some((option, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return no(format!("{option} is 0; it must be at least 1"));
        }
        let at_most = [
            ("layers", self.layers as u64, LAYERS_MAX),
            ("walks", u64::from(self.walks), WALKS_MAX),
            ("walk-steps", u64::from(self.walk_steps), WALK_STEPS_MAX),
            (
                "threads",
                self.threads.value().map_or(1, |threads| threads.get() as u64),
                THREADS_MAX,
            ),
        ];
        if let Some((option, value, most)) = at_most.iter().find(|(_, value, most)| value > most) {
            return no(format!("{option} is {value}; it must be at most {most}"));
        }
        // Written so that NaN is in no range.
        let ranges = [
            (
                "dropout",
                self.dropout,
                (0.0..1.0).contains(&self.dropout),
                "from 0 to below 1",
            ),
            (
                "walk-termination",
                self.walk_termination,
                (0.0..=1.0).contains(&self.walk_termination),
                "from 0 to 1",
            ),
            (
                "momentum",
                self.momentum,
                (0.0..1.0).contains(&self.momentum),
                "from 0 to below 1",
            ),
            (
                "shrinkage",
                self.shrinkage,
                (0.0..=1.0).contains(&self.shrinkage),
                "from 0 to 1",
            ),
            ("lr", self.lr, self.lr > 0.0 && self.lr.is_finite(), "above 0"),
            (
                "lr-factor",
                self.lr_factor,
                self.lr_factor > 0.0 && self.lr_factor < 1.0,
                "above 0 and below 1",
            ),
            (
                "lr-min",
                self.lr_min,
                (0.0..=self.lr).contains(&self.lr_min),
                "from 0 to lr",
            ),
            not_negative("warmup", self.warmup),
            not_negative("weight-decay", self.weight_decay),
            not_negative("clip", self.clip),
            not_negative("checkpoint-minutes", self.checkpoint_minutes),
        ];
        if let Some((option, value, _, range)) = ranges.iter().find(|(_, _, fits, _)| !fits) {
            return no(format!("{option} is {value}; it must be {range}"));
        }
        if self.full_graph && (self.fanouts != Auto::Auto || self.batch != Auto::Auto) {
            return no(
                "full-graph takes all neighbours of all training nodes: leave out fanouts and batch, or full-graph"
                    .into(),
            );
        }
        let hops = self.fanouts().hops();
        if hops != self.layers {
            return no(format!(
                "fanouts {} are for {hops} layer(s), and the model has {}: give one for each layer",
                self.fanouts(),
                self.layers
            ));
        }
        if self.concurrent() > self.partitions {
            return no(format!(
                "concurrent is {}, more than the {} partition(s) that there are",
                self.concurrent(),
                self.partitions
            ));
        }
        self.sampler(false)?;
        let attends = matches!(self.model, LayerKind::Gat | LayerKind::Gatv2);
        if attends && !self.hidden.is_multiple_of(self.heads) {
            return no(format!(
                "heads is {}, which does not divide hidden, {}: all heads together have that many values, each as many as \
                 the others",
                self.heads, self.hidden
            ));
        }
        if self.momentum > 0.0 && self.optimizer != Optimizer::Sgd {
            return no(format!(
                "momentum is {}, and only `--optimizer sgd` has one, not {}",
                self.momentum, self.optimizer
            ));
        }
        Ok(())
    }
}

/// A row of the table of ranges.
fn not_negative(option: &'static str, value: f64) -> (&'static str, f64, bool, &'static str) {
    (option, value, value >= 0.0 && value.is_finite(), "0 or more")
}

fn exact_size<S: serde::Serializer>(size: &ByteSize, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&size.exact())
}
