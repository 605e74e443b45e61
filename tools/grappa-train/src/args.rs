//! The options of training: each flag is a key of the configuration file. Their texts are the only description for users.

use std::{
    num::{NonZero, NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use clap::{Args, Command, ValueEnum};
use grappa_console::{ByteSize, Summary};
use grappa_run::{
    Result,
    config::{
        Auto, Compress, CompressRate, Correction, DeviceChoice, Evaluate, FirstHop, HaloMode, LrSchedule, Monitor,
        Optimizer, PerLayer, Preset, ReadEngine, TrainConfig,
    },
    model::{Activation, FeatureNorm, JumpingKnowledge, LayerKind, NormKind, Precision},
};
use grappa_sampling::{partition::Schedule, sample::Fanouts};
use serde::Serialize;

use crate::{
    values::{
        LAYERS, NORMS, activation_help, checked, compress_help, correction_help, evaluate_help, evaluate_states_help,
        explained, feature_norm_help, first_hop_help, halo_help, jumping_knowledge_help, lr_schedule_help,
        monitor_help, named, optimizer_help, possible, precision_help, read_engine_help, schedule_help,
    },
    workers::{PROCESSES, Workers},
};

/// The store, and how to train on it.
#[derive(Debug, Args)]
pub struct Train {
    /// Store to train on
    #[arg(value_name = "STORE", required = true)]
    pub store: Option<PathBuf>,
    /// Continue a run from its last checkpoint, with the same options
    ///
    /// The run is the folder --out, or else the last run on this store in the current folder. Options that do not change the
    /// result so far may be given anew, such as --epochs, --memory or --threads. A finished run stays as it is, unless there is something
    /// left to do: give a larger --epochs to continue it. `--resume auto` starts a new run if there is none to continue, for jobs that a
    /// scheduler starts again.
    #[arg(long, help_heading = RUN, value_name = "auto", num_args = 0..=1, default_missing_value = "always")]
    pub resume: Option<Resume>,
    /// Train anew where --out contains a run, and remove that run when the new one has finished
    ///
    /// Until then it is in the folder `replaced` there. Only a run is replaced. A folder with other files is an error.
    #[arg(long, help_heading = RUN, conflicts_with = "resume")]
    pub force: bool,
    #[command(flatten)]
    pub workers: Workers,
    #[command(flatten)]
    pub sources: Sources,
}

/// Whether to continue a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Resume {
    /// Fail if there is no run
    #[value(hide = true)]
    Always,
    /// Start a new run if there is none
    Auto,
}

/// Where options come from: a file, and flags that override it.
#[derive(Debug, Args)]
pub struct Sources {
    /// Options of a published setting; --config and flags override them
    ///
    /// A preset fits the graph that it was made for. `grappa-train config --preset NAME` prints its options.
    #[arg(
        long,
        help_heading = RUN,
        value_name = "NAME",
        value_parser = possible(Preset::ALL.iter().map(|preset| (preset.name, preset.help)))
    )]
    preset: Option<String>,
    /// TOML file with options, named like the flags; flags override it
    ///
    /// `grappa-train config` prints such a file, and the folder of each run contains one.
    #[arg(long, help_heading = RUN, value_name = "RUN.toml")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl Sources {
    /// The preset that the user chose.
    pub fn preset(&self) -> Result<Option<&'static Preset>> {
        self.preset.as_deref().map(Preset::named).transpose()
    }

    /// The configuration of a new run.
    pub fn configuration(&self) -> Result<TrainConfig> {
        TrainConfig::layered(self.preset()?, self.config.as_deref(), &self.options)
    }

    /// The options as given to resume a run. They are not checked, because they go over those of the run.
    pub fn unchecked(&self) -> Result<TrainConfig> {
        TrainConfig::unchecked(self.preset()?, self.config.as_deref(), &self.options)
    }

    /// The configuration of a resumed run that was started with `before`.
    pub fn resumed(&self, before: &TrainConfig) -> Result<TrainConfig> {
        before.resumed(self.preset()?, self.config.as_deref(), &self.options)
    }
}

/// The options that the user gave. Files and defaults fill in the others. Serializes to the keys of a configuration file.
#[derive(Debug, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Options {
    /// Type of the model's layers
    #[arg(long, help_heading = MODEL, value_name = "LAYER", value_parser = explained::<LayerKind>(LAYERS))]
    model: Option<String>,
    /// Number of layers, 1 to 256
    #[arg(long, help_heading = MODEL, value_name = "L")]
    layers: Option<usize>,
    /// Hidden dimension: size of a node's embedding between layers; all heads together for gat and gatv2
    #[arg(long, help_heading = MODEL, value_name = "N")]
    hidden: Option<usize>,
    /// Number of attention heads, for gat and gatv2; must divide --hidden
    #[arg(long, help_heading = MODEL, value_name = "N")]
    heads: Option<usize>,
    /// Number of attention heads in the last layer, which are averaged, for gat and gatv2; auto: as --heads
    #[arg(long, help_heading = MODEL, value_name = "N", value_parser = checked::<Auto<NonZeroUsize>>)]
    last_heads: Option<String>,
    /// Dropout probability after each layer but the last
    #[arg(long, help_heading = MODEL, value_name = "P")]
    dropout: Option<f64>,
    /// Dropout probability of features; above 0, the first hop is sampled
    #[arg(long, help_heading = MODEL, value_name = "P")]
    input_dropout: Option<f64>,
    /// Dropout probability of attention weights, for gat and gatv2
    #[arg(long, help_heading = MODEL, value_name = "P")]
    attention_dropout: Option<f64>,
    /// Nonlinearity after each layer but the last
    #[arg(
        long,
        help_heading = MODEL,
        value_name = "NAME",
        value_parser = possible(named(Activation::ALL, Activation::name, activation_help))
    )]
    activation: Option<String>,
    /// Normalization of features before the first layer; if any, the first hop is sampled
    #[arg(
        long,
        help_heading = MODEL,
        value_name = "HOW",
        value_parser = possible(named(FeatureNorm::ALL, FeatureNorm::name, feature_norm_help))
    )]
    normalize_features: Option<String>,
    /// Normalization after each layer but the last; if any, the perceptrons of gin have layer norms
    #[arg(long, help_heading = MODEL, value_name = "NORM", value_parser = explained::<Auto<NormKind>>(NORMS))]
    norm: Option<String>,
    /// Add the input of each layer but the last to its output (residual connection)
    #[arg(
        long,
        help_heading = MODEL,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    residual: Option<bool>,
    /// How the states of all layers make the logits (jumping knowledge)
    #[arg(
        long,
        help_heading = MODEL,
        value_name = "HOW",
        value_parser = possible(named(JumpingKnowledge::ALL, JumpingKnowledge::name, jumping_knowledge_help))
    )]
    jumping_knowledge: Option<String>,

    /// Neighbors to sample per node and layer, from the seeds outwards, such as 15,10,5; -1 takes all
    ///
    /// auto: 15,10,5,5,... as many as there are layers; 10,10,... for pinsage.
    #[arg(
        long,
        help_heading = MINIBATCHES,
        value_name = "N,N,...",
        allow_hyphen_values = true,
        value_parser = checked::<Auto<Fanouts>>
    )]
    fanouts: Option<String>,
    /// Sample neighbors with replacement
    #[arg(
        long,
        help_heading = MINIBATCHES,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    replace: Option<bool>,
    /// Random walks per node, for pinsage: the neighbors are the nodes visited most often
    #[arg(long, help_heading = MINIBATCHES, value_name = "N")]
    walks: Option<u32>,
    /// Largest number of steps per walk, for pinsage
    ///
    /// Evaluation and prediction take all in-neighbors with equal weights, as walks of one step would.
    #[arg(long, help_heading = MINIBATCHES, value_name = "N")]
    walk_steps: Option<u32>,
    /// Probability that a walk ends after each step, for pinsage
    #[arg(long, help_heading = MINIBATCHES, value_name = "P")]
    walk_termination: Option<f64>,
    /// Seeds per minibatch and partition
    ///
    /// auto: 1024 divided by the number of partitions per step.
    #[arg(long, help_heading = MINIBATCHES, value_name = "N", value_parser = checked::<Auto<NonZeroUsize>>)]
    batch: Option<String>,
    /// Train without sampling: each step uses all training nodes of a partition and all edges that it sees
    #[arg(
        long,
        help_heading = MINIBATCHES,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    full_graph: Option<bool>,

    /// Number of epochs
    #[arg(long, help_heading = OPTIMIZER, value_name = "N")]
    epochs: Option<u64>,
    /// Steps of an epoch, at most; 0: as many as use all training nodes
    ///
    /// Each epoch draws the training nodes of its steps anew. Evaluations, checkpoints, repartitioning and learning rate schedules
    /// count these shorter epochs.
    #[arg(long, help_heading = OPTIMIZER, value_name = "N")]
    steps_per_epoch: Option<u64>,
    /// Optimizer
    #[arg(
        long,
        help_heading = OPTIMIZER,
        value_name = "NAME",
        value_parser = possible(named(Optimizer::ALL, Optimizer::name, optimizer_help))
    )]
    optimizer: Option<String>,
    /// Learning rate
    #[arg(long, help_heading = OPTIMIZER, value_name = "RATE")]
    lr: Option<f64>,
    /// Learning rate schedule
    #[arg(
        long,
        help_heading = OPTIMIZER,
        value_name = "SCHEDULE",
        value_parser = possible(named(LrSchedule::ALL, LrSchedule::name, lr_schedule_help))
    )]
    lr_schedule: Option<String>,
    /// Epochs of linear warmup from 0 to the learning rate; may be a fraction
    #[arg(long, help_heading = OPTIMIZER, value_name = "EPOCHS")]
    warmup: Option<f64>,
    /// Epochs between two reductions, for --lr-schedule step
    #[arg(long, help_heading = OPTIMIZER, value_name = "EPOCHS")]
    lr_step: Option<u64>,
    /// Factor of each reduction, for --lr-schedule step and plateau
    #[arg(long, help_heading = OPTIMIZER, value_name = "FACTOR")]
    lr_factor: Option<f64>,
    /// Evaluations without improvement before a reduction, for --lr-schedule plateau
    #[arg(long, help_heading = OPTIMIZER, value_name = "N")]
    lr_patience: Option<u64>,
    /// Smallest learning rate of all schedules
    #[arg(long, help_heading = OPTIMIZER, value_name = "RATE")]
    lr_min: Option<f64>,
    /// Weight decay; one number, or one for each layer, such as 0.0005,0
    #[arg(long, help_heading = OPTIMIZER, value_name = "DECAY", value_parser = checked::<PerLayer>)]
    weight_decay: Option<String>,
    /// Label smoothing: the part of each target that is spread evenly over all classes, from 0 to below 1
    #[arg(long, help_heading = OPTIMIZER, value_name = "S")]
    label_smoothing: Option<f64>,
    /// Momentum, for --optimizer sgd
    #[arg(long, help_heading = OPTIMIZER, value_name = "M")]
    momentum: Option<f64>,
    /// Largest norm of a step's gradient; larger ones are scaled down; 0: no clipping
    #[arg(long, help_heading = OPTIMIZER, value_name = "NORM")]
    clip: Option<f64>,

    /// Number of partitions; 1 trains on the whole graph; auto: 1 if its adjacency lists fit in --memory
    ///
    /// If not, auto is the smallest power of two for which the adjacency lists of a step and of the next one fit in half of --memory (in
    /// 7/8 without stored features). Then only these are in memory. If none fits, auto is 1, with lists in mapped files. With several
    /// processes, auto is at least their number, so that each has a partition in every step, and each needs memory for its own. --memory
    /// decides the number, and so the result; it is in metrics.jsonl and summary.json, and a resumed run keeps it.
    #[arg(long, help_heading = PARTITIONS, value_name = "K", value_parser = checked::<Auto<u32>>)]
    partitions: Option<String>,
    /// Partitions that are computed together in one step; auto: all, or as many as fit in --memory if the graph does not
    #[arg(long, help_heading = PARTITIONS, value_name = "Q", value_parser = checked::<Auto<u32>>)]
    concurrent: Option<String>,
    /// How partitions change when the graph is repartitioned
    #[arg(
        long,
        help_heading = PARTITIONS,
        value_name = "NAME",
        value_parser = possible(named(&Schedule::ALL, Schedule::name, schedule_help))
    )]
    schedule: Option<String>,
    /// Epochs between two repartitionings
    #[arg(long, help_heading = PARTITIONS, value_name = "EPOCHS")]
    repartition_every: Option<u64>,
    /// Treatment of halo nodes: in-neighbors that the partition does not own
    #[arg(
        long,
        help_heading = PARTITIONS,
        value_name = "MODE",
        value_parser = explained::<HaloMode>(named(HaloMode::ALL, HaloMode::name, halo_help))
    )]
    halo: Option<String>,
    /// In-neighbors of each halo node with --halo neighbors, at most; drawn again at each repartitioning; auto: 25 for sage-max, 10 for
    /// the others
    #[arg(long, help_heading = PARTITIONS, value_name = "N", value_parser = checked::<Auto<NonZeroU32>>)]
    halo_neighbors: Option<String>,
    /// Loss weights by coverage, the share of its neighborhood that a seed sees in its partition
    #[arg(
        long,
        help_heading = PARTITIONS,
        value_name = "FORM",
        value_parser = possible(named(Correction::ALL, Correction::name, correction_help))
    )]
    correction: Option<String>,
    /// Strength of --correction, from 0 (none) to 1 (full)
    #[arg(long, help_heading = PARTITIONS, value_name = "LAMBDA")]
    shrinkage: Option<f64>,
    /// Source of the first layer's aggregates: the features of in-neighbors, reduced
    #[arg(
        long,
        help_heading = PARTITIONS,
        value_name = "FROM",
        value_parser = possible(named(FirstHop::ALL, FirstHop::name, first_hop_help))
    )]
    first_hop: Option<String>,

    /// Compression of the gradients that processes send each other (--workers, or a launcher)
    #[arg(
        long,
        help_heading = PROCESSES,
        value_name = "METHOD",
        value_parser = possible(named(Compress::ALL, Compress::name, compress_help))
    )]
    compress: Option<String>,
    /// Share of the gradient's values that --compress top-k sends, such as 0.01; or a range such as 0.01..0.5
    ///
    /// With a range, the compression ratio falls evenly over the run's epochs: from 100 at the start to 2 at the end with
    /// 0.01..0.5. auto: 0.25.
    #[arg(long, help_heading = PROCESSES, value_name = "SHARE", value_parser = checked::<Auto<CompressRate>>)]
    compress_rate: Option<String>,

    /// Memory limit for the graph and its features, such as 512MiB or 4GiB; the model's memory is extra
    #[arg(long, help_heading = MACHINE, value_name = "SIZE", value_parser = checked::<ByteSize>)]
    memory: Option<String>,
    /// Number of worker threads; auto: one per processor
    #[arg(long, help_heading = MACHINE, value_name = "T", value_parser = checked::<Auto<NonZeroUsize>>)]
    threads: Option<String>,
    /// Minibatches whose feature reads are planned together, at most; auto: as many as memory allows
    #[arg(long, help_heading = MACHINE, value_name = "N", value_parser = checked::<Auto<NonZeroUsize>>)]
    lookahead: Option<String>,
    /// How files are read
    #[arg(
        long,
        help_heading = MACHINE,
        value_name = "ENGINE",
        value_parser = possible(named(ReadEngine::ALL, ReadEngine::name, read_engine_help))
    )]
    read_engine: Option<String>,
    /// Random seed of initial parameters, partitions, sampling and dropout
    #[arg(long, help_heading = MACHINE, value_name = "N", value_parser = checked::<u64>)]
    seed: Option<String>,
    /// Number format of the model's computations
    #[arg(
        long,
        help_heading = MACHINE,
        value_name = "DTYPE",
        value_parser = possible(named(Precision::ALL, Precision::name, precision_help))
    )]
    precision: Option<String>,
    /// Device of the model: auto, cpu, cuda or cuda:N; auto: CUDA if there is a device, else the processor
    #[arg(long, help_heading = MACHINE, value_name = "DEVICE", value_parser = checked::<DeviceChoice>)]
    device: Option<String>,

    /// Folder of the run; it must not exist [default: STORE.run in the current folder, numbered if it exists]
    #[arg(long, help_heading = RUN, value_name = "RUN")]
    out: Option<PathBuf>,
    /// How the model is evaluated while it is trained
    #[arg(
        long,
        help_heading = RUN,
        value_name = "HOW",
        value_parser = possible(named(Evaluate::ALL, Evaluate::name, evaluate_help))
    )]
    evaluate: Option<String>,
    /// Number format of hidden states of an exact evaluation that do not fit in memory as f32
    #[arg(
        long,
        help_heading = RUN,
        value_name = "DTYPE",
        value_parser = possible(named(Precision::ALL, Precision::name, evaluate_states_help))
    )]
    evaluate_states: Option<String>,
    /// Epochs between two evaluations; the last epoch is always evaluated
    #[arg(long, help_heading = RUN, value_name = "EPOCHS")]
    eval_every: Option<u64>,
    /// Number that decides which epoch is the best; --early-stopping and --lr-schedule plateau follow it
    #[arg(
        long,
        help_heading = RUN,
        value_name = "WHAT",
        value_parser = possible(named(Monitor::ALL, Monitor::name, monitor_help))
    )]
    monitor: Option<String>,
    /// Evaluations without improvement before training ends; 0: never
    #[arg(long, help_heading = RUN, value_name = "N")]
    early_stopping: Option<u64>,
    /// Epochs between two checkpoints; 0: only by time and at the end
    #[arg(long, help_heading = RUN, value_name = "EPOCHS")]
    checkpoint_every: Option<u64>,
    /// Minutes between two checkpoints, also within an epoch; with several processes, after the next epoch. 0: only by epochs and at the end
    #[arg(long, help_heading = RUN, value_name = "MINUTES")]
    checkpoint_minutes: Option<f64>,
    /// Number of checkpoints to keep, besides the best
    #[arg(long, help_heading = RUN, value_name = "N")]
    keep: Option<usize>,
    /// Start with the parameters of the best model of this run, which must have the same layers [default: random]
    #[arg(long, help_heading = RUN, value_name = "RUN")]
    init_from: Option<PathBuf>,
    /// File with the names of the classes, one per line, in the order of their numbers [default: the names in the store]
    #[arg(long, help_heading = RUN, value_name = "FILE")]
    class_names: Option<PathBuf>,
}

const MODEL: &str = "Model";
const MINIBATCHES: &str = "Minibatches";
const OPTIMIZER: &str = "Optimizer";
const PARTITIONS: &str = "Partitions";
const MACHINE: &str = "Machine";
const RUN: &str = "Run";

/// A run, the nodes to predict, and where the predictions go.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["out", "nodes", "ids", "split"])))]
pub struct Predict {
    /// Folder of the run; its parameters are those of the best evaluation
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Store with the nodes to predict
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Write the file with all nodes, or those of --split or --ids, one row per node
    ///
    /// Rows are in the order of sorted ids; with --ids, in the order of its file.
    ///
    /// NAME.parquet and NAME.csv have the columns id, class and probability; NAME.npy has the class of each node. If nodes have sets of
    /// classes, the tables have the columns id, classes and probabilities, and NAME.npy a 0 or 1 per class. - prints the CSV on stdout.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Predict the nodes with these ids and print them
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',', conflicts_with_all = ["out", "ids", "split"])]
    pub nodes: Vec<String>,
    /// Predict the nodes whose ids are in a file and print them, or write them to --out: text with one id per line, .npy or Parquet
    #[arg(long, value_name = "FILE", conflicts_with = "split")]
    pub ids: Option<PathBuf>,
    /// Predict the nodes of a split, such as test, and print them, or write them to --out
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// Write the probabilities of all classes: columns probability_CLASS, or in NAME.npy an array of nodes x classes
    #[arg(long, requires = "out", conflicts_with = "nodes")]
    pub probabilities: bool,
    /// Write logits instead of classes; in Parquet, a column of lists, in CSV a column for each
    #[arg(long, requires = "out", conflicts_with_all = ["nodes", "probabilities"])]
    pub logits: bool,
    /// Write the input of the last layer (node embeddings) instead of classes; in Parquet, a column of lists, in CSV a column for each
    #[arg(long, requires = "out", conflicts_with_all = ["nodes", "probabilities", "logits"])]
    pub embeddings: bool,
    /// Replace the file of --out if it exists, when the new one is complete
    #[arg(long, requires = "out", conflicts_with = "nodes")]
    pub force: bool,
    /// Memory limit, such as 512MiB or 4GiB; with less, features are read more often
    #[arg(long, help_heading = MACHINE, value_name = "SIZE", default_value = "4GiB")]
    pub memory: ByteSize,
    /// Number of worker threads; auto: one per processor
    #[arg(long, help_heading = MACHINE, value_name = "T", default_value = "auto")]
    pub threads: Auto<NonZero<usize>>,
    /// Device of the model: auto, cpu, cuda or cuda:N; auto: CUDA if there is a device, else the processor
    #[arg(long, help_heading = MACHINE, value_name = "DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
}

/// A run, and the file to export its model to.
#[derive(Debug, Args)]
pub struct Export {
    /// Folder of the run; its parameters are those of the best evaluation
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// File to write, in the safetensors format; it must not exist, unless --force is given
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace the file if it exists, when the new one is complete
    #[arg(long)]
    pub force: bool,
}

/// Runs, and the page that compares them.
#[derive(Debug, Args)]
pub struct Report {
    /// Folders of the runs, two to eight
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// File to write; it must not exist, unless --force is given; - prints the page on stdout
    #[arg(long, value_name = "FILE", default_value = "compare.html")]
    pub out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}

/// A configuration as the result of the program.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Shown(pub TrainConfig);

impl Summary for Shown {
    fn text(&self) -> String {
        self.0.to_toml().trim_end().to_owned()
    }
}

/// Adds the defaults of a configuration to the help of its flags.
pub fn with_defaults(command: Command) -> Command {
    let defaults = TrainConfig::default().table();
    command.mut_args(|arg| match arg.get_long().and_then(|option| defaults.get(option)) {
        None => arg,
        Some(value) => {
            let default = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let short = arg.get_help().cloned().unwrap_or_default();
            let long = arg
                .get_long_help()
                .map(|help| format!("{help}\n\n[default: {default}]"));
            let arg = arg.help(format!("{short} [default: {default}]"));
            match long {
                Some(long) => arg.long_help(long),
                None => arg,
            }
        }
    })
}

#[cfg(test)]
mod tests;
