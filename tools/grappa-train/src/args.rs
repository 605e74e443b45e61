//! The options of training: flags that map one to one to the keys of a configuration file.

use std::{fmt::Display, path::PathBuf, str::FromStr};

use clap::{Args, Command, builder::PossibleValuesParser};
use grappa_console::{ByteSize, Summary};
use grappa_run::{
    Result,
    config::{Auto, Correction, DeviceChoice, FirstHop, HaloMode, LrSchedule, Optimizer, ReadEngine, TrainConfig},
    model::{LayerKind, NormKind, Precision},
};
use grappa_sampling::{partition::Schedule, sample::Fanouts};
use serde::Serialize;

/// What to train on, and how.
#[derive(Debug, Args)]
pub struct Train {
    /// The store to train on
    #[arg(value_name = "STORE", required = true)]
    pub store: Option<PathBuf>,
    /// Go on with an earlier run, from its last checkpoint
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub sources: Sources,
}

/// Where options come from: a file, and flags over it.
#[derive(Debug, Args)]
pub struct Sources {
    /// A TOML file of options, named as the flags; flags go over it
    #[arg(long, value_name = "RUN.toml")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

impl Sources {
    /// The configuration of a new run.
    pub fn configuration(&self) -> Result<TrainConfig> {
        TrainConfig::layered(self.config.as_deref(), &self.options)
    }

    /// The configuration of a run that goes on, which was started with `before`.
    pub fn resumed(&self, before: &TrainConfig) -> Result<TrainConfig> {
        before.resumed(self.config.as_deref(), &self.options)
    }
}

/// What the user gave; the rest is left to files and defaults. Serialises to the keys of a configuration file.
#[derive(Debug, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Options {
    /// Which layers the model has: sage, sage-max, gcn, gat, gatv2, gin or pinsage
    #[arg(long, help_heading = MODEL, value_name = "LAYER", value_parser = checked::<LayerKind>)]
    model: Option<String>,
    /// Number of layers, up to 256
    #[arg(long, help_heading = MODEL, value_name = "L")]
    layers: Option<usize>,
    /// Values of a node between layers, of all heads together
    #[arg(long, help_heading = MODEL, value_name = "N")]
    hidden: Option<usize>,
    /// Attention heads, of gat and gatv2
    #[arg(long, help_heading = MODEL, value_name = "N")]
    heads: Option<usize>,
    /// Part of the values that is dropped between layers
    #[arg(long, help_heading = MODEL, value_name = "P")]
    dropout: Option<f64>,
    /// The norm between layers: none, batch or layer; auto: batch for gin, none for others
    #[arg(long, help_heading = MODEL, value_parser = checked::<Auto<NormKind>>)]
    norm: Option<String>,
    /// Let each layer but the last add its input
    #[arg(long, help_heading = MODEL, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    residual: Option<bool>,

    /// Neighbours kept per hop, from the seeds outwards, such as 15,10,5; -1 keeps all; auto: 15,10,5,5,..., or 10,10,... for pinsage
    #[arg(long, help_heading = MINIBATCHES, value_name = "N,N,...", allow_hyphen_values = true, value_parser = checked::<Auto<Fanouts>>)]
    fanouts: Option<String>,
    /// Let a neighbour be drawn several times
    #[arg(long, help_heading = MINIBATCHES, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    replace: Option<bool>,
    /// Random walks from each node, of pinsage: its neighbours are the nodes that they visit most often
    #[arg(long, help_heading = MINIBATCHES, value_name = "N")]
    walks: Option<u32>,
    /// The most steps of a walk; evaluation takes all in-neighbours alike, which is what walks of one step come to
    #[arg(long, help_heading = MINIBATCHES, value_name = "N")]
    walk_steps: Option<u32>,
    /// Probability that a walk ends before its next step
    #[arg(long, help_heading = MINIBATCHES, value_name = "P")]
    walk_termination: Option<f64>,
    /// Seeds of a minibatch, per partition; auto: 1024 for all partitions of a step together
    #[arg(long, help_heading = MINIBATCHES, value_name = "N", value_parser = checked::<Auto<std::num::NonZeroUsize>>)]
    batch: Option<String>,
    /// Work on all training nodes of a partition and all edges that it sees in each step, without sampling
    #[arg(long, help_heading = MINIBATCHES, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    full_graph: Option<bool>,

    /// The learning rate, after the warmup
    #[arg(long, help_heading = OPTIMIZER, value_name = "RATE")]
    lr: Option<f64>,
    /// How the learning rate changes
    #[arg(long, help_heading = OPTIMIZER, value_name = "SCHEDULE", value_parser = names(LrSchedule::ALL, LrSchedule::name))]
    lr_schedule: Option<String>,
    /// Epochs over which the learning rate rises from 0; may be a fraction
    #[arg(long, help_heading = OPTIMIZER, value_name = "EPOCHS")]
    warmup: Option<f64>,
    /// Epochs between two changes, of --lr-schedule step
    #[arg(long, help_heading = OPTIMIZER, value_name = "EPOCHS")]
    lr_step: Option<u64>,
    /// By what --lr-schedule step and plateau multiply the learning rate
    #[arg(long, help_heading = OPTIMIZER, value_name = "FACTOR")]
    lr_factor: Option<f64>,
    /// Evaluations without a better one that --lr-schedule plateau waits for
    #[arg(long, help_heading = OPTIMIZER, value_name = "N")]
    lr_patience: Option<u64>,
    /// The learning rate that no schedule goes below
    #[arg(long, help_heading = OPTIMIZER, value_name = "RATE")]
    lr_min: Option<f64>,
    /// How parameters follow from gradients
    #[arg(long, help_heading = OPTIMIZER, value_parser = names(Optimizer::ALL, Optimizer::name))]
    optimizer: Option<String>,
    /// Weight decay
    #[arg(long, help_heading = OPTIMIZER, value_name = "DECAY")]
    weight_decay: Option<f64>,
    /// Momentum, of --optimizer sgd
    #[arg(long, help_heading = OPTIMIZER, value_name = "M")]
    momentum: Option<f64>,
    /// The largest norm of a gradient; longer ones are scaled down; 0: no limit
    #[arg(long, help_heading = OPTIMIZER, value_name = "NORM")]
    clip: Option<f64>,
    /// Epochs to train
    #[arg(long, help_heading = OPTIMIZER, value_name = "N")]
    epochs: Option<u64>,

    /// Partitions that the graph is trained in
    #[arg(long, help_heading = PARTITIONS, value_name = "K")]
    partitions: Option<u32>,
    /// Partitions whose gradients make one step; auto: all of them
    #[arg(long, help_heading = PARTITIONS, value_name = "Q", value_parser = checked::<Auto<u32>>)]
    concurrent: Option<String>,
    /// How partitions change
    #[arg(long, help_heading = PARTITIONS, value_parser = names(&Schedule::ALL, Schedule::name))]
    schedule: Option<String>,
    /// Epochs between two changes of partitions
    #[arg(long, help_heading = PARTITIONS, value_name = "EPOCHS")]
    repartition_every: Option<u64>,
    /// What becomes of in-neighbours that a partition does not own
    #[arg(long, help_heading = PARTITIONS, value_name = "MODE", value_parser = names(HaloMode::ALL, HaloMode::name))]
    halo: Option<String>,
    /// How gradients are weighted by how much their partition sees
    #[arg(long, help_heading = PARTITIONS, value_name = "FORM", value_parser = names(Correction::ALL, Correction::name))]
    correction: Option<String>,
    /// How much of the correction is applied, from 0 to 1
    #[arg(long, help_heading = PARTITIONS, value_name = "LAMBDA")]
    shrinkage: Option<f64>,
    /// Where the first layer's aggregates come from
    #[arg(long, help_heading = PARTITIONS, value_name = "FROM", value_parser = names(FirstHop::ALL, FirstHop::name))]
    first_hop: Option<String>,

    /// Memory for the graph and its features, such as 512MiB or 4GiB
    #[arg(long, help_heading = MACHINE, value_name = "SIZE", value_parser = checked::<ByteSize>)]
    memory: Option<String>,
    /// Worker threads; auto: one per processor
    #[arg(long, help_heading = MACHINE, value_name = "T", value_parser = checked::<Auto<std::num::NonZeroUsize>>)]
    threads: Option<String>,
    /// Minibatches whose reads are planned together, at most: auto is as many as pay for the memory that they wait in
    #[arg(long, help_heading = MACHINE, value_name = "N", value_parser = checked::<Auto<std::num::NonZeroUsize>>)]
    lookahead: Option<String>,
    /// What reads files
    #[arg(long, help_heading = MACHINE, value_name = "ENGINE", value_parser = names(ReadEngine::ALL, ReadEngine::name))]
    read_engine: Option<String>,
    /// Selects initial parameters, partitions, minibatches and what is dropped
    #[arg(long, help_heading = MACHINE, value_name = "N", value_parser = checked::<u64>)]
    seed: Option<String>,
    /// With which numbers the model computes
    #[arg(long, help_heading = MACHINE, value_parser = names(Precision::ALL, Precision::name))]
    precision: Option<String>,
    /// Where the model computes: auto, cpu, cuda or cuda:N
    #[arg(long, help_heading = MACHINE, value_parser = checked::<DeviceChoice>)]
    device: Option<String>,

    /// Epochs between two evaluations
    #[arg(long, help_heading = RUN, value_name = "EPOCHS")]
    eval_every: Option<u64>,
    /// Evaluations without a better one after which the run ends; 0: never
    #[arg(long, help_heading = RUN, value_name = "N")]
    early_stopping: Option<u64>,
    /// Epochs between two checkpoints; 0: only by time and at the end
    #[arg(long, help_heading = RUN, value_name = "EPOCHS")]
    checkpoint_every: Option<u64>,
    /// Minutes between two checkpoints; 0: only by epochs and at the end
    #[arg(long, help_heading = RUN, value_name = "MINUTES")]
    checkpoint_minutes: Option<f64>,
    /// How many checkpoints are kept, beside the best
    #[arg(long, help_heading = RUN, value_name = "N")]
    keep: Option<usize>,
    /// What classes are called: a file with a line for each, in the order of their numbers
    #[arg(long, help_heading = RUN, value_name = "FILE")]
    class_names: Option<PathBuf>,
    /// The run's folder; by default it is named after the store
    #[arg(long, help_heading = RUN, value_name = "RUN")]
    out: Option<PathBuf>,
}

const MODEL: &str = "Model";
const MINIBATCHES: &str = "Minibatches";
const OPTIMIZER: &str = "Optimizer";
const PARTITIONS: &str = "Partitions";
const MACHINE: &str = "Machine";
const RUN: &str = "Run";

/// What to predict, and where it goes.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["out", "nodes", "ids"])))]
pub struct Predict {
    /// The folder of the run; its model is as it was at the best evaluation
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The store to predict the nodes of
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Predict all nodes and write them to this file, in the order of their sorted ids: .npy (the class of each) or .parquet
    /// (id, class, probability)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Predict these nodes, named by their ids, and print them
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// Predict the nodes whose ids this file lists, and print them: text with one id a line, or .npy
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// Write a value for each class instead of classes (.npy)
    #[arg(long, requires = "out")]
    pub logits: bool,
    /// Write what the last layer works on instead of classes (.npy)
    #[arg(long, requires = "out", conflicts_with = "logits")]
    pub embeddings: bool,
    /// Memory for rows, such as 512MiB or 4GiB; with less, features are read more often
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub memory: ByteSize,
    /// Worker threads; auto: one per processor
    #[arg(long, value_name = "T", default_value = "auto")]
    pub threads: Auto<std::num::NonZeroUsize>,
    /// Where the model computes: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    pub device: DeviceChoice,
}

/// What to export, and where it goes.
#[derive(Debug, Args)]
pub struct Export {
    /// The folder of the run; its model is as it was at the best evaluation
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// The new file, safetensors
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// A configuration, as a result of the program.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Shown(pub TrainConfig);

impl Summary for Shown {
    fn text(&self) -> String {
        self.0.to_toml().trim_end().to_owned()
    }
}

/// Lets the help say what options are by default.
pub fn with_defaults(command: Command) -> Command {
    let defaults = TrainConfig::default().table();
    command.mut_args(|arg| match arg.get_long().and_then(|option| defaults.get(option)) {
        None => arg,
        Some(value) => {
            let default = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let help = arg.get_help().cloned().unwrap_or_default();
            arg.help(format!("{help} [default: {default}]"))
        }
    })
}

/// Takes the names of choices.
fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> PossibleValuesParser {
    PossibleValuesParser::new(all.iter().map(|choice| name(*choice)))
}

/// Takes what reads as a `T`.
fn checked<T: FromStr<Err: Display>>(text: &str) -> std::result::Result<String, String> {
    match text.parse::<T>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        sources: Sources,
    }

    fn parse(args: &[&str]) -> std::result::Result<TrainConfig, String> {
        let args = std::iter::once(&"grappa-train").chain(args);
        let cli = Cli::try_parse_from(args).map_err(|error| error.to_string())?;
        cli.sources.configuration().map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_of_a_file_has_a_flag_and_every_flag_a_key() {
        let command = Cli::command();
        let mut flags: Vec<&str> = command
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .filter(|flag| !["config", "help"].contains(flag))
            .collect();
        flags.sort();
        assert_eq!(flags, TrainConfig::options());
    }

    #[test]
    fn without_flags_everything_is_as_by_default() {
        assert_eq!(parse(&[]).unwrap(), TrainConfig::default());
    }

    #[test]
    fn every_flag_sets_its_key() {
        let given = [
            ("model", "gin"),
            ("layers", "3"),
            ("hidden", "256"),
            ("heads", "8"),
            ("dropout", "0.25"),
            ("norm", "layer"),
            ("residual", "true"),
            ("fanouts", "-1,10,5"),
            ("replace", "true"),
            ("walks", "20"),
            ("walk-steps", "3"),
            ("walk-termination", "0.25"),
            ("batch", "64"),
            ("lr", "0.1"),
            ("lr-schedule", "cosine"),
            ("warmup", "1.5"),
            ("lr-step", "3"),
            ("lr-factor", "0.1"),
            ("lr-patience", "2"),
            ("lr-min", "0.01"),
            ("optimizer", "sgd"),
            ("weight-decay", "0.5"),
            ("momentum", "0.9"),
            ("clip", "2.5"),
            ("epochs", "7"),
            ("partitions", "16"),
            ("concurrent", "4"),
            ("schedule", "shuffle"),
            ("repartition-every", "1"),
            ("halo", "stop"),
            ("correction", "node"),
            ("shrinkage", "0.3"),
            ("first-hop", "sampled"),
            ("memory", "512MiB"),
            ("threads", "2"),
            ("lookahead", "3"),
            ("read-engine", "pread"),
            ("seed", "18446744073709551615"),
            ("precision", "bf16"),
            ("device", "cuda:1"),
            ("eval-every", "2"),
            ("early-stopping", "10"),
            ("checkpoint-every", "0"),
            ("checkpoint-minutes", "0.5"),
            ("keep", "1"),
            ("class-names", "classes.txt"),
            ("out", "runs/a"),
        ];
        let args: Vec<String> = given.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let table = parse(&args).unwrap().table();
        // What it does, flags for sampling would contradict.
        let full_graph = parse(&["--full-graph"]).unwrap().table();
        assert_eq!(full_graph["full-graph"].as_bool(), Some(true));
        assert_eq!(table.len(), given.len() + 1);
        for (option, value) in given {
            let set = &table[option];
            assert_eq!(
                set.as_str().map_or_else(|| set.to_string(), str::to_owned),
                value,
                "{option}"
            );
        }
    }

    #[test]
    fn switches_need_no_value_and_can_be_switched_off() {
        assert!(parse(&["--residual"]).unwrap().residual);
        assert!(!parse(&["--residual=false"]).unwrap().residual);
    }

    #[test]
    fn flags_go_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("RUN.toml");
        std::fs::write(&path, "hidden = 64\nlayers = 3\n").unwrap();
        let config = parse(&["--config", path.to_str().unwrap(), "--hidden", "32"]).unwrap();
        assert_eq!((config.hidden, config.layers), (32, 3));
    }

    #[test]
    fn wrong_values_say_what_would_be_right() {
        for (args, expected) in [
            (
                ["--model", "sgae"],
                "use sage, sage-max, gcn, gat, gatv2, gin or pinsage",
            ),
            (["--fanouts", "15,x"], "fanout 2 of the list"),
            (["--memory", "2 apples"], "unknown unit `apples`"),
            (["--batch", "0"], "neither `auto` nor a value"),
            (["--device", "tpu"], "use auto, cpu, cuda or cuda:N"),
            (["--dropout", "1"], "dropout is 1; it must be from 0 to below 1"),
            (["--layers", "0"], "layers is 0"),
            (["--epochs", "18446744073709551615"], "an option can't be"),
        ] {
            let error = parse(&args).unwrap_err();
            assert!(error.contains(expected), "{args:?}: {error}");
        }
    }

    #[test]
    fn the_help_says_what_is_by_default() {
        let help = with_defaults(Cli::command()).render_help().to_string();
        for part in [
            "[default: 128]",
            "[default: sage]",
            "[default: auto]",
            "[default: 4GiB]",
            "[default: false]",
        ] {
            assert!(help.contains(part), "{part} in {help}");
        }
    }
}
