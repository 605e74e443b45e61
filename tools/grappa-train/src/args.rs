//! The command line. The options of training are declared in [`grappa_run::config`].

use std::{ffi::OsStr, num::NonZero, path::PathBuf};

use clap::{
    Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
    error::{ContextKind, ContextValue},
};
use grappa_console::{ByteSize, Summary};
use grappa_methods::{MethodConfig, NOT_SHARED};
use grappa_run::{
    Result,
    config::{Auto, DeviceChoice, Preset, TrainConfig, TrainOption, shown},
};
use serde::Serialize;
use toml::{Table, Value};

use crate::workers::Workers;

/// The store, and how to train on it.
#[derive(Debug, Args)]
pub struct TrainArgs {
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
        value_parser = PossibleValuesParser::new(Preset::all().iter().map(|preset| explained((&preset.name, &preset.help))))
    )]
    preset: Option<String>,
    /// TOML file with options, named like the flags; flags override it
    ///
    /// `grappa-train config` prints such a file, and the folder of each run contains one.
    #[arg(long, help_heading = RUN, value_name = "RUN.toml")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: OptionFlags<false>,
}

impl Sources {
    /// The preset that the user chose.
    pub fn preset(&self) -> Result<Option<&'static Preset>> {
        self.preset.as_deref().map(Preset::named).transpose()
    }

    /// The configuration of a new run.
    pub fn configuration(&self) -> Result<TrainConfig> {
        MethodConfig::checked(defaults().layered(self.preset()?, self.config.as_deref(), &self.flags.0)?)
    }

    /// The options as given to resume a run. They are not checked, because they override the options of the run.
    pub fn unchecked(&self) -> Result<TrainConfig> {
        defaults().unchecked(self.preset()?, self.config.as_deref(), &self.flags.0)
    }

    /// The configuration of a resumed run that was started with `before`.
    pub fn resumed(&self, before: &TrainConfig) -> Result<TrainConfig> {
        let before = MethodConfig::all_in(before);
        MethodConfig::checked(before.resumed(self.preset()?, self.config.as_deref(), &self.flags.0)?)
    }
}

/// The default of each option, options of methods included.
pub fn defaults() -> TrainConfig {
    MethodConfig::all_in(&TrainConfig::default())
}

/// The options of training that the user gave; with `SHARED`, only those that several runs share. Files and defaults fill in the others.
#[derive(Debug, Clone)]
pub struct OptionFlags<const SHARED: bool>(pub Table);

impl<const SHARED: bool> OptionFlags<SHARED> {
    /// The options, in the order of the help.
    fn options() -> Vec<&'static TrainOption> {
        let all = [TrainOption::all(), MethodConfig::options()];
        if SHARED {
            return all.into_iter().flatten().filter(|option| !NOT_SHARED.contains(&&*option.name)).collect();
        }
        let sections = all.into_iter().flat_map(|all| all.chunk_by(|one, next| one.section == next.section));
        let in_order = sections.flat_map(|section| {
            let mut section: Vec<_> = section.iter().collect();
            section.sort_by_key(|option| option.help_order);
            section
        });
        in_order.collect()
    }
}

impl<const SHARED: bool> Args for OptionFlags<SHARED> {
    fn augment_args(command: Command) -> Command {
        let defaults = defaults().table();
        let flag = |option: &'static TrainOption| flag(option, defaults.get(&option.name)).hide_short_help(SHARED);
        command.args(Self::options().into_iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const SHARED: bool> FromArgMatches for OptionFlags<SHARED> {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let value = |option: &TrainOption| matches.get_one::<Value>(&option.name).cloned();
        let flags = Self::options().into_iter().filter_map(|option| Some((option.name.clone(), value(option)?)));
        Ok(Self(flags.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// The flag of an option. Its help has the default value.
fn flag(option: &'static TrainOption, default: Option<&Value>) -> Arg {
    let paragraphs = option.help.split(|line| line.is_empty());
    let paragraphs: Vec<String> = paragraphs.map(|lines| lines.concat().trim().to_owned()).collect();
    let default = default.map(|value| format!("[default: {}]", shown(value)));
    let short = [Some(paragraphs[0].clone()), default.clone()];
    let mut flag = Arg::new(&*option.name)
        .long(&*option.name)
        .help_heading(option.section)
        .value_name(option.value_name)
        .value_parser(OptionParser(option))
        // The fanout -1 takes all neighbors.
        .allow_hyphen_values(option.name == "fanouts")
        .help(short.into_iter().flatten().collect::<Vec<_>>().join(" "));
    if paragraphs.len() > 1 {
        flag = flag.long_help([paragraphs, default.into_iter().collect()].concat().join("\n\n"));
    }
    if option.is_switch() {
        flag = flag.num_args(0..=1).require_equals(true).default_missing_value("true");
    }
    flag
}

/// Reads the value of an option. The long help lists its names, each with its explanation.
#[derive(Clone)]
struct OptionParser(&'static TrainOption);

impl TypedValueParser for OptionParser {
    type Value = Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> std::result::Result<Value, clap::Error> {
        self.0.read.parse_ref(command, arg, value).map_err(|mut error| {
            // For callers that are programs; the message lists the names, too.
            if !self.0.choices.is_empty() {
                let names = self.0.choices.iter().map(|(name, _)| (*name).to_owned());
                error.insert(ContextKind::ValidValue, ContextValue::Strings(names.collect()));
            }
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        match &self.0.choices[..] {
            [] => None,
            choices => Some(Box::new(choices.iter().copied().map(explained))),
        }
    }
}

/// A name and its explanation, if it has one.
fn explained((name, help): (&'static str, &'static str)) -> PossibleValue {
    let value = PossibleValue::new(name);
    if help.is_empty() { value } else { value.help(help) }
}

const MACHINE: &str = "Machine";
const RUN: &str = "Run";

/// A run, the nodes to predict, and where the predictions go.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["out", "nodes", "ids", "split"])))]
pub struct PredictArgs {
    /// Folder of the run; the parameters with the best evaluation are used
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Store with the nodes to predict
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Write the file with all nodes, or the nodes of --split or --ids, one row per node
    ///
    /// Rows are in the order of sorted ids; with --ids, in the order of its file.
    ///
    /// NAME.parquet and NAME.csv have the columns id, class and probability; NAME.npy has the class of each node. If nodes have sets of
    /// classes, the tables have the columns id, classes and probabilities, and NAME.npy a 0 or 1 per class. - prints the CSV on stdout.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub chosen: ChosenNodes,
    #[command(flatten)]
    pub values: ValuesOfNodes,
    #[command(flatten)]
    pub links: LinkArgs,
    /// Node type of the file of --embeddings, of a run that predicts links between two types [default: the type of destinations]
    #[arg(long = "type", value_name = "TYPE", requires = "embeddings")]
    pub node_type: Option<String>,
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

/// Nodes to predict, if not all.
#[derive(Debug, Args)]
pub struct ChosenNodes {
    /// Predict the nodes with these ids and print them
    #[arg(long, value_name = "ID,ID,...", value_delimiter = ',', conflicts_with_all = ["out", "ids", "split"])]
    pub nodes: Vec<String>,
    /// Predict the nodes whose ids are in a file and print them, or write them to --out: text with one id per line, .npy or Parquet
    #[arg(long, value_name = "FILE", conflicts_with = "split")]
    pub ids: Option<PathBuf>,
    /// Predict the nodes of a split, such as test, and print them, or write them to --out
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
}

/// Values to write for each node; classes if none are chosen.
#[derive(Debug, Args)]
pub struct ValuesOfNodes {
    /// Write the probabilities of all classes: columns probability_CLASS, or in NAME.npy an array of nodes x classes
    #[arg(long, requires = "out", conflicts_with = "nodes")]
    pub probabilities: bool,
    /// Write logits instead of classes; in Parquet, a column of lists, in CSV a column for each
    #[arg(long, requires = "out", conflicts_with_all = ["nodes", "probabilities"])]
    pub logits: bool,
    /// Write the input of the last layer (node embeddings) instead of classes; in Parquet, a column of lists, in CSV a column for each
    #[arg(long, requires = "out", conflicts_with_all = ["nodes", "probabilities", "logits"])]
    pub embeddings: bool,
}

/// Links to predict instead of nodes.
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// Write the scores of the pairs in a file, of a run of --task link; pairs are read as grappa-ingest reads edges
    ///
    /// NAME.parquet and NAME.csv have the columns source, target and score, in the order of the file. A score is the decoder's; with
    /// --loss bce, its sigmoid is a probability.
    #[arg(long = "links", value_name = "FILE", requires = "out", conflicts_with_all = NODES_OR_VALUES)]
    pub pairs: Option<PathBuf>,
    /// Write the K best destinations of each node of --for, of a run of --task link: columns source, target and score
    ///
    /// All nodes are compared, or those of --among, and a node is no destination of itself. The best one comes first.
    #[arg(long, value_name = "K", requires_all = ["out", "sources"], conflicts_with = "pairs", conflicts_with_all = NODES_OR_VALUES)]
    pub top_k: Option<NonZero<usize>>,
    /// Sources of --top-k: text with one id per line, .npy or Parquet
    #[arg(long = "for", value_name = "FILE", requires = "top_k", id = "sources")]
    pub sources: Option<PathBuf>,
    /// Relation of the triples whose tails --top-k ranks, of a run of --layers 0; --for lists their heads
    #[arg(long, value_name = "NAME", requires = "top_k")]
    pub relation: Option<String>,
    /// Nodes that the destinations of --top-k are among, such as the items of a shop [default: all nodes]
    ///
    /// Text with one id per line, .npy or Parquet. A run that was trained with --among learned to rank these destinations
    /// alone, so give the file again.
    #[arg(long, value_name = "FILE", requires = "top_k")]
    pub among: Option<PathBuf>,
    /// Leave out destinations of known edges with --top-k: edges of the graph, and edges that are held out of it
    #[arg(long, requires = "top_k")]
    pub exclude_known: bool,
    /// Predict links as of this time, in the unit of STORE, of a run that learned links at their times: from earlier edges alone [default: after
    /// the last event of STORE; all edges, if the model takes no ages]
    #[arg(long, value_name = "TIME", requires = "out", allow_negative_numbers = true)]
    pub at: Option<i64>,
}

/// Options of predictions for nodes.
const NODES_OR_VALUES: [&str; 6] = ["nodes", "ids", "split", "probabilities", "logits", "embeddings"];

/// A run, and the file to export its model to.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Folder of the run; the parameters with the best evaluation are used
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
pub struct ReportArgs {
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
pub struct ShownConfig(pub TrainConfig);

impl Summary for ShownConfig {
    fn text(&self) -> String {
        self.0.to_toml().trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests;
