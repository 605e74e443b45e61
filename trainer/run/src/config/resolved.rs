//! Options that follow from others: methods resolve `auto`.

use std::num::NonZeroUsize;

use grappa_sampling::{
    policy::SEEDS_OF_A_STEP,
    sample::{Fanouts, RandomWalks, Sampler},
};
use toml::Value;

use super::{
    Auto, Compress, CompressRate, ExcludeTargets, LossKind, LrSchedule, NegativeSampling, TaskChoice, TrainConfig,
};
use crate::{
    Error, Result,
    model::{EdgeInput, FeatureNorm, LayerKind, ModelOptions, NormKind, Task},
    scores::TargetLoss,
};

/// Factor of the fanouts of training for evaluation by sampling.
const EVALUATION_FANOUTS: u32 = 2;
/// A minibatch of an evaluation has at least this many seeds, unless memory is too small.
const EVALUATION_BATCH_MIN: usize = 16;

/// Lin et al. found this exponent to be the best.
const FOCAL_GAMMA: f64 = 2.0;
/// As PyTorch's `HuberLoss`.
const HUBER_DELTA: f64 = 1.0;

/// Negatives that the sources of a minibatch share, by default.
const SHARED_NEGATIVES: u32 = 100;

/// Options of the learning rate, in the words of [`TrainConfig`].
#[derive(Debug, Clone, Copy)]
pub struct RateOptions {
    /// The highest rate.
    pub lr: f64,
    /// The schedule.
    pub lr_schedule: LrSchedule,
    /// The lowest rate after the warmup.
    pub lr_min: f64,
    /// The factor of each reduction.
    pub lr_factor: f64,
    /// Epochs between two reductions of the schedule `step`.
    pub lr_step: u64,
    /// Evaluations without a better score before `plateau` reduces the rate.
    pub lr_patience: u64,
    /// Epochs of the warmup.
    pub warmup: f64,
    /// Epochs of the run.
    pub epochs: u64,
}

/// How gradients are encoded.
#[derive(Debug, Clone, Copy)]
pub struct Compression {
    /// The encoding.
    pub encoding: Compress,
    /// The part of the values that is sent.
    pub rate: CompressRate,
    /// The number of machines for which one process encodes gradients, if it does.
    pub machines: Option<u32>,
}

impl TrainConfig {
    /// The shape of the model, for a store with `inputs` features per node and `outputs` classes or targets. [`StoredEdges::input`](super::StoredEdges::input)
    /// tells what it takes of edges; here that is nothing.
    pub fn model_options(&self, inputs: usize, outputs: usize, task: Task) -> ModelOptions {
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
            standardizes_targets: task == Task::Regression,
            edges: EdgeInput::Nothing,
            decoder: (task == Task::Links).then_some(self.decoder),
            graph: None,
            relation_aggregate: self.relation_aggregate,
            bases: self.bases.value().map(NonZeroUsize::get),
            time_encoding: None,
        }
    }

    /// The exponent of focal loss. None with another loss.
    pub fn focal_gamma(&self) -> Option<f64> {
        (self.loss == LossKind::Focal).then(|| self.focal_gamma.value().unwrap_or(FOCAL_GAMMA))
    }

    /// The loss of an error of a target.
    pub fn target_loss(&self) -> TargetLoss {
        match self.loss {
            LossKind::Mae => TargetLoss::Absolute,
            LossKind::Huber => TargetLoss::Huber(self.huber_delta.value().unwrap_or(HUBER_DELTA)),
            _ => TargetLoss::Squared,
        }
    }

    /// The normalization after each layer but the last. `auto` is batch for GIN and GINE, because its sums would grow from layer to
    /// layer, and none for the others.
    pub fn norm(&self) -> NormKind {
        self.norm.value().unwrap_or(match self.model {
            LayerKind::Gin | LayerKind::Gine => NormKind::Batch,
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
                    _ => [15, 10].into_iter().chain(std::iter::repeat(5)).take(self.layers).collect(),
                };
                Fanouts::new(&fanouts).expect("a checked configuration has layers")
            }
        }
    }

    /// Whether minibatches can be swept: they are sampled, and not by random walks.
    pub fn may_sweep(&self) -> bool {
        !self.full_graph && !self.trains_full_graph() && self.model != LayerKind::PinSage && self.layers > 0
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
            return Ok(self.uniform_sampler(fanouts, knows_first_layer));
        }
        assert!(!knows_first_layer, "PinSAGE aggregates learned values");
        if self.full_graph {
            return Err(Error::Options(
                "--full-graph does not work with pinsage, whose neighbors are chosen by random walks: leave it out"
                    .into(),
            ));
        }
        let mut all = (0..fanouts.hops()).map(|hop| fanouts.at(hop));
        // The same at each hop, or none.
        let neighbors = all.next().filter(|first| all.all(|other| other == *first));
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

    /// The sampler of evaluations with [`Evaluate::Sampled`](super::Evaluate::Sampled): the sampler of training, with twice the fanouts.
    ///
    /// # Errors
    /// As [`TrainConfig::sampler`].
    pub fn evaluation_sampler(&self, knows_first_layer: bool) -> Result<Sampler> {
        if self.model == LayerKind::PinSage {
            return self.sampler(knows_first_layer);
        }
        Ok(self.uniform_sampler(self.evaluation_fanouts(), knows_first_layer))
    }

    fn uniform_sampler(&self, fanouts: Fanouts, knows_first_layer: bool) -> Sampler {
        let fanouts = if knows_first_layer { fanouts.without_last() } else { fanouts };
        Sampler::uniform(fanouts, self.replace)
    }

    /// The number of seeds of a minibatch of evaluations that sample.
    ///
    /// Each hop reaches twice as many nodes as in training, and different seeds share fewer of them. With this number of seeds, a minibatch
    /// contains at most about as many nodes as one of training, for which the feed has memory.
    pub fn evaluation_batch(&self, knows_first_layer: bool) -> usize {
        let hops = self.layers - usize::from(knows_first_layer);
        let seeds = self.batch() * self.concurrent() as usize;
        (seeds >> (hops + 1).min(usize::BITS as usize - 1)).max(EVALUATION_BATCH_MIN)
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

    /// Whether an epoch is one step of all seeds with all their neighbors, so that all epochs on the same partitions have the same batch.
    pub fn repeats_batch(&self) -> bool {
        // Links have other negatives in each epoch.
        self.full_graph && self.task != TaskChoice::Link && self.concurrent() >= self.partitions()
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
        let threads = self.threads.value().or_else(|| std::thread::available_parallelism().ok());
        threads.map_or(1, NonZeroUsize::get)
    }

    /// The share of values that [`Compress::TopK`](super::Compress::TopK) sends. `auto` is [`CompressRate::default`].
    pub fn compress_rate(&self) -> CompressRate {
        self.compress_rate.value().unwrap_or_default()
    }

    /// Whether the model is evaluated after an epoch.
    pub fn is_evaluated(&self, epoch: u64) -> bool {
        epoch + 1 == self.epochs || (epoch + 1).is_multiple_of(self.eval_every)
    }

    /// Whether training drops values at random.
    pub fn has_dropout(&self) -> bool {
        self.dropout > 0.0 || self.input_dropout > 0.0 || self.attention_dropout > 0.0
    }

    /// The option that the first hop must be sampled for, as the user gives it. Pre-aggregated features belong to the store:
    /// neither a dropout of single features nor a normalization of rows can be applied to their sums, and no edge
    /// can be left out of them.
    pub fn sampled_first_hop_for(&self) -> Option<String> {
        if self.task == TaskChoice::Link && self.exclude_targets() != ExcludeTargets::None {
            return Some(format!("--exclude-targets {}", self.exclude_targets()));
        }
        if !self.node_embeddings.is_empty() {
            return Some(format!("--node-embeddings {}", self.node_embeddings));
        }
        if self.input_dropout > 0.0 {
            return Some(format!("--input-dropout {}", self.input_dropout));
        }
        match self.normalize_features {
            FeatureNorm::None => None,
            norm => Some(format!("--normalize-features {norm}")),
        }
    }

    /// The number of values of a node's embedding. `auto` is the hidden dimension.
    pub fn embedding(&self) -> usize {
        self.embedding.value().map_or(self.hidden, usize::from)
    }

    /// The number of negatives of an edge. `auto` is 1, or 100 if the sources of a minibatch share them.
    pub fn negatives(&self) -> u32 {
        let auto = match self.negative_sampling() {
            NegativeSampling::Shared | NegativeSampling::InBatch => SHARED_NEGATIVES,
            _ => 1,
        };
        self.negatives.value().map_or(auto, u32::from)
    }

    /// How negatives of a model with layers are drawn. `auto` is uniform.
    pub fn negative_sampling(&self) -> NegativeSampling {
        match self.negative_sampling {
            NegativeSampling::Auto => NegativeSampling::Uniform,
            other => other,
        }
    }

    /// The seeds that a minibatch samples for each of its nodes or edges, at most. Edges may share negatives, and these are few.
    pub fn seeds_of_example(&self) -> f64 {
        let negatives = f64::from(self.negatives());
        match (self.task, self.negative_sampling()) {
            (TaskChoice::Link, NegativeSampling::Shared | NegativeSampling::InBatch) => 2.0,
            (TaskChoice::Link, NegativeSampling::Pairs) => 2.0 + 2.0 * negatives,
            (TaskChoice::Link, _) => 2.0 + negatives,
            _ => 1.0,
        }
    }

    /// The divisor of scores in the softmax loss.
    pub fn temperature(&self) -> f64 {
        self.temperature.value().unwrap_or(1.0)
    }

    /// The edges that messages do not use. `auto` is both directions. A step of `full_graph` asks about all edges, so it would have none left.
    pub fn exclude_targets(&self) -> ExcludeTargets {
        let auto = if self.full_graph { ExcludeTargets::None } else { ExcludeTargets::Both };
        self.exclude_targets.value().unwrap_or(auto)
    }

    /// The method of another crate that computes the steps; none for Grappa's own.
    pub fn other_method(&self) -> Option<&str> {
        self.extension.get("method").and_then(Value::as_str).filter(|name| *name != "grappa")
    }

    /// Whether a step takes all training nodes and all edges at once, without views of partitions.
    pub fn trains_full_graph(&self) -> bool {
        self.other_method().is_some()
    }

    /// How gradients are encoded. In full-graph training, one process encodes them as the machines of its partitions would.
    pub fn compression(&self) -> Compression {
        let (encoding, partitions) = (self.compress, self.partitions());
        let encodes = self.trains_full_graph() && partitions > 1 && encoding != Compress::None;
        Compression { encoding, rate: self.compress_rate(), machines: encodes.then_some(partitions) }
    }

    /// The options of the learning rate.
    pub fn rate_options(&self) -> RateOptions {
        let &Self { lr, lr_schedule, lr_min, lr_factor, lr_step, lr_patience, warmup, epochs, .. } = self;
        RateOptions { lr, lr_schedule, lr_min, lr_factor, lr_step, lr_patience, warmup, epochs }
    }
}
