//! The values that an option may have, and what they mean.

use std::{ffi::OsStr, fmt::Display, marker::PhantomData, str::FromStr};

use clap::{
    Arg, Command,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use grappa_run::{
    config::{Compress, Correction, Evaluate, FirstHop, HaloMode, LrSchedule, Monitor, Optimizer, ReadEngine},
    model::{Activation, FeatureNorm, JumpingKnowledge, Precision},
};
use grappa_sampling::partition::Schedule;

pub const LAYERS: [(&str, &str); 7] = [
    (
        "sage",
        "GraphSAGE, mean of the neighbors (PyTorch Geometric's SAGEConv)",
    ),
    ("sage-max", "GraphSAGE, maximum of the neighbors"),
    ("gcn", "GCN (GCNConv)"),
    ("gat", "GAT (GATConv)"),
    ("gatv2", "GATv2 (GATv2Conv)"),
    ("gin", "GIN (GINConv)"),
    ("pinsage", "PinSAGE: neighbors by random walks, weighted by visits"),
];

pub const NORMS: [(&str, &str); 4] = [
    ("auto", "batch for gin, none for other models"),
    ("none", "no normalization"),
    ("batch", "batch normalization (BatchNorm1d)"),
    ("layer", "layer normalization (LayerNorm)"),
];

pub fn activation_help(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu => "ReLU",
        Activation::Elu => "ELU",
        Activation::Gelu => "GELU",
        Activation::LeakyRelu => "leaky ReLU with slope 0.01",
        Activation::Prelu => "PReLU: leaky ReLU with a learned slope per layer, which starts at 0.25",
    }
}

pub fn feature_norm_help(norm: FeatureNorm) -> &'static str {
    match norm {
        FeatureNorm::None => "as they are in the store",
        FeatureNorm::Row => "divide the features of a node by the sum of their magnitudes",
        FeatureNorm::Standard => {
            "mean 0 and variance 1 for each feature over all nodes of the store; predictions on another store use the same \
             means and variances"
        }
    }
}

pub fn jumping_knowledge_help(jump: JumpingKnowledge) -> &'static str {
    match jump {
        JumpingKnowledge::None => "the last layer makes them",
        JumpingKnowledge::Max => "a linear layer on the largest state of all layers, value by value",
        JumpingKnowledge::Cat => "a linear layer on the states of all layers, concatenated",
    }
}

pub fn optimizer_help(optimizer: Optimizer) -> &'static str {
    match optimizer {
        Optimizer::Adam => "Adam; weight decay is added to the gradient",
        Optimizer::AdamW => "Adam with decoupled weight decay",
        Optimizer::Sgd => "stochastic gradient descent, with --momentum",
    }
}

pub fn lr_schedule_help(schedule: LrSchedule) -> &'static str {
    match schedule {
        LrSchedule::Constant => "no change",
        LrSchedule::Cosine => "cosine annealing to --lr-min at the last epoch",
        LrSchedule::Step => "multiply by --lr-factor every --lr-step epochs",
        LrSchedule::Plateau => "multiply by --lr-factor after --lr-patience evaluations without improvement",
    }
}

pub fn schedule_help(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Sweep => "each partition keeps half of its nodes and rotates the rest, until all edges were visible",
        Schedule::Shuffle => "all chunks are grouped anew at random; partitions have half as many nodes as with sweep",
        Schedule::Fixed => "the first partitions of sweep, which never change",
    }
}

pub fn halo_help(halo: HaloMode) -> &'static str {
    match halo {
        HaloMode::Auto => {
            "for sage and gcn, history if its refreshes take at most a quarter of the work of training; else neighbors"
        }
        HaloMode::Stop => "every hop samples them, but never their neighbors",
        HaloMode::Neighbors => {
            "every hop samples them, and they have sampled neighbors of their own (--halo-neighbors)"
        }
        HaloMode::None => "never sampled, as if their edges were missing",
        HaloMode::History => {
            "as stop; deeper layers take their aggregates from the last refresh (historical embeddings), corrected by \
             one freshly computed neighbor. For sage, gcn and gin with pre-aggregated features; else the same as stop \
             with 2 layers, and without the correction with more"
        }
    }
}

pub fn correction_help(correction: Correction) -> &'static str {
    match correction {
        Correction::None => "equal weights",
        Correction::Batch => "one weight per minibatch: the mean coverage of its seeds",
        Correction::Node => "one weight per seed: its coverage",
    }
}

pub fn first_hop_help(first_hop: FirstHop) -> &'static str {
    match first_hop {
        FirstHop::Auto => {
            "preaggregated for sage, gcn and gin if the store has the aggregates, or they fit in half of the free disk \
             space; else sampled"
        }
        FirstHop::Sampled => "the sampled neighbors, in each minibatch",
        FirstHop::Preaggregated => "all neighbors, aggregated once and stored with the graph; for sage, gcn and gin",
    }
}

pub fn compress_help(compress: Compress) -> &'static str {
    match compress {
        Compress::None => "32-bit float, by an all-reduce",
        Compress::Bf16 => "bfloat16: half of the bytes; sums are computed in 32-bit float",
        Compress::Int8 => "8 bits per value: a quarter of the bytes; rounding errors are added to the next gradient",
        Compress::TopK => {
            "only the share --compress-rate of the values, those of the largest magnitude; the others are added to the next \
             gradient"
        }
        Compress::Lossless => "32-bit float, entropy-coded without loss",
    }
}

pub fn monitor_help(monitor: Monitor) -> &'static str {
    match monitor {
        Monitor::Score => "validation accuracy; micro F1 if nodes have sets of labels",
        Monitor::Loss => "validation loss",
    }
}

pub fn evaluate_help(evaluate: Evaluate) -> &'static str {
    match evaluate {
        Evaluate::Auto => {
            "exact if that takes at most about a quarter of an epoch, or some 20 ms; else sampled, and the best model is \
             evaluated exactly at the end"
        }
        Evaluate::Exact => "from all in-neighbors of the scored nodes",
        Evaluate::Sampled => "from sampled in-neighbors, with twice the fanouts of training",
    }
}

pub fn read_engine_help(engine: ReadEngine) -> &'static str {
    match engine {
        ReadEngine::Auto => "io_uring, or a pool of threads where io_uring is not permitted",
        ReadEngine::Uring => "io_uring, or an error",
        ReadEngine::Pread => "a pool of threads with pread",
    }
}

pub fn precision_help(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "32-bit float",
        Precision::Bf16 => "bfloat16 for activations and products, 32-bit float for parameters, gradients and sums",
    }
}

pub fn evaluate_states_help(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "32-bit float: scores have the bits of an evaluation in memory",
        Precision::Bf16 => "bfloat16: half of the disk",
    }
}

/// The names of `all`, with their explanations.
pub fn named<T: Copy>(
    all: &[T],
    name: fn(T) -> &'static str,
    help: fn(T) -> &'static str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    all.iter().map(move |value| (name(*value), help(*value)))
}

/// Accepts what parses as a `T`. The long help lists the names, each with its explanation.
pub fn explained<T>(names: impl IntoIterator<Item = (&'static str, &'static str)>) -> Explained<T> {
    let value = |(name, help)| PossibleValue::new(name).help(help);
    Explained {
        values: names.into_iter().map(value).collect(),
        parsed: PhantomData,
    }
}

/// Accepts only the names; the long help explains each.
pub fn possible(names: impl IntoIterator<Item = (&'static str, &'static str)>) -> PossibleValuesParser {
    let value = |(name, help)| PossibleValue::new(name).help(help);
    PossibleValuesParser::new(names.into_iter().map(value))
}

/// See [`explained`].
#[derive(Clone)]
pub struct Explained<T> {
    values: Vec<PossibleValue>,
    parsed: PhantomData<fn() -> T>,
}

impl<T> TypedValueParser for Explained<T>
where
    T: FromStr<Err: Display> + Clone + 'static,
{
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let parser: fn(&str) -> Result<String, String> = checked::<T>;
        parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().cloned()))
    }
}

/// Accepts text that parses as a `T`.
pub fn checked<T: FromStr<Err: Display>>(text: &str) -> Result<String, String> {
    match text.parse::<T>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
