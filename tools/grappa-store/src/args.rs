//! The command line.

mod plan;
mod threads;

use std::{num::NonZeroUsize, ops::RangeInclusive, path::PathBuf, str::FromStr};

use clap::{Parser, Subcommand, ValueEnum, builder::TypedValueParser};
use grappa_console::{
    ByteSize,
    options::{choices, chunk_range, dtypes},
};
use grappa_engine::{
    formats::{aggregates::AggregateKind, features::DIM_MAX, manifest::FeatureDtype},
    io::read::Choice,
    place::SliceEdges,
    sample::{
        Fanouts, TimeHops, TimeStrategy,
        partition::Schedule,
        view::{Halo, ViewKind},
    },
};

pub use self::plan::{PlanArgs, Training};
use self::threads::{RESOURCES, Threads};

const EXAMPLES: &str = "\
Examples:
  Show what a store contains:
    grappa-store info web.grappa

  Check every byte of a store:
    grappa-store verify web.grappa

Each command has its own help: grappa-store sample --help";

const SAMPLING: &str = "Sampling";
const READING: &str = "Reading";

/// Inspect, verify and export graph stores, and prepare them for training
#[derive(Debug, Parser)]
#[command(name = "grappa-store", version, after_long_help = EXAMPLES)]
pub struct StoreArgs {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub console: grappa_console::ConsoleArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the contents of a store: counts, sizes on disk, degrees, partitions
    #[command(after_long_help = "Example: grappa-store info web.grappa --coverage")]
    Info(InfoArgs),
    /// Check every byte of a store, and that its files agree
    ///
    /// Prints file, offset and description of each problem. The exit code is 1 if there is one.
    #[command(after_long_help = "Example: grappa-store verify web.grappa")]
    Verify(VerifyArgs),
    /// Export edges, labels, features and splits to files, with the ids of the input
    #[command(
        after_long_help = "Example: grappa-store export web.grappa --edges edges.tsv --features features.npy --split train \
                           train.npy"
    )]
    Export(ExportArgs),
    /// Group the chunks of a store into partitions for the next super-epoch
    ///
    /// Takes milliseconds for any number of edges: it writes a new assignment and moves no edges. Training does not need
    /// it: a run keeps assignments of its own.
    #[command(after_long_help = "Example: grappa-store repartition web.grappa --partitions 16")]
    Repartition(RepartitionArgs),
    /// Sample minibatches and gather their features, without a model
    ///
    /// Measures how many minibatches per second disk and processors deliver, and where the time goes.
    #[command(
        after_long_help = "Example: grappa-store sample web.grappa --fanouts 15,10 --batch 1024 --batches 200 --memory 2GiB"
    )]
    Sample(SampleArgs),
    /// Aggregate the features of each node's in-neighbors once, and store the result
    ///
    /// Training then takes the first layer's aggregates from the store and samples one hop less. `grappa-train` does this by
    /// itself where it pays (see its --first-hop).
    #[command(after_long_help = "Example: grappa-store preaggregate web.grappa --kind mean")]
    Preaggregate(PreaggregateArgs),
    /// Compute features from the graph and add them to a store, or a node type, that has none
    #[command(after_long_help = "\
Examples:
  grappa-store add-features web.grappa --kind fastrp --dim 64 --dtype f16
  grappa-store add-features papers.grappa --kind mean --type author")]
    AddFeatures(AddFeaturesArgs),
    /// Make a store of some chunks of a store, with hard links where possible
    ///
    /// Training needs features of the sources of all edges of a slice, and GCN their in-degrees. If features are stored and not computed, take
    /// the features of the other chunks along with --halo-features, or leave out the edges from other chunks with --edges inside. Every file is compared with its checksums. The
    /// slice has the pre-aggregated features of all nodes whose features it has, if the store has some.
    #[command(after_long_help = "\
Examples:
  grappa-store place web.grappa --chunks 0-15 --to /mnt/fast/web-0.grappa
  grappa-store place papers.grappa --chunks 0-15 --halo-features --to papers-0.grappa
  grappa-store place papers.grappa --chunks 0-15 --edges inside --to papers-0.grappa")]
    Place(PlaceArgs),
    /// Estimate chunks, bytes and time of an ingest or of training before it begins
    #[command(after_long_help = "\
Examples:
  grappa-store plan --nodes 111M --edges 1.6G --dim 128 --dtype f16 --disk-bandwidth 2GB/s
  grappa-store plan web.grappa --train --layers 3 --memory 8GiB --measure .")]
    Plan(PlanArgs),
}

#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub store: VerifyArgs,
    /// Also count each partition's halo nodes and the share of in-edges that its nodes see; reads all edges
    #[arg(long)]
    pub coverage: bool,
    /// Memory limit of --coverage, such as 512MiB or 2GiB; with less, edges are read several times
    #[arg(long, help_heading = RESOURCES, value_name = "SIZE", default_value = "1GiB", requires = "coverage")]
    pub memory: ByteSize,
}

#[derive(Debug, clap::Args)]
pub struct PlaceArgs {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Chunks of the slice, such as 0,5-7; with several node types, among the chunks of all types, as info numbers them
    #[arg(long, value_name = "LIST", required = true, value_delimiter = ',', value_parser = chunk_range)]
    pub chunks: Vec<RangeInclusive<u32>>,
    /// Store to make; it must not exist, unless --force is given
    #[arg(long, value_name = "STORE")]
    pub to: PathBuf,
    /// Replace the store of --to, with all that was added to it, when the new one is complete
    ///
    /// Only a store is replaced. A folder with other files is an error.
    #[arg(long)]
    pub force: bool,
    /// Edges into the nodes of these chunks that the slice has
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = explained(SliceEdges::ALL, SliceEdges::name, edges_help))]
    pub edges: SliceEdges,
    /// Also take the features, pre-aggregated features and in-degrees of the other chunks that edges come from
    #[arg(long)]
    pub halo_features: bool,
    /// Copy files even where they can be linked
    #[arg(long)]
    pub copy: bool,
    /// Continue a run that was stopped or killed, with the same options
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
pub struct RepartitionArgs {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Number of partitions, at most the number of chunks
    #[arg(long, value_name = "K")]
    pub partitions: u32,
    /// Repartitioning schedule
    #[arg(long, value_name = "NAME", default_value = "sweep", value_parser = explained(Schedule::ALL, Schedule::name, schedule_help))]
    pub schedule: Schedule,
    /// Seed of the random groups
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Super-epoch to group for [default: the number of repartitionings so far]
    #[arg(long, value_name = "N")]
    pub super_epoch: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct SampleArgs {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Memory limit, such as 512MiB or 2GiB
    #[arg(long, help_heading = RESOURCES, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = SAMPLING)]
pub struct SamplingArgs {
    /// Neighbors to sample per node and hop, from the seeds outwards; -1 takes all
    #[arg(long, value_name = "N,N,...", allow_hyphen_values = true)]
    pub fanouts: Fanouts,
    /// Seeds per minibatch
    #[arg(long, value_name = "B")]
    pub batch: NonZeroUsize,
    /// Number of minibatches; when all seeds were used, they are shuffled again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batches: u64,
    /// Seed nodes: `train` (the training split), `all`, or a file of ids (.npy, or text)
    #[arg(
        long,
        value_name = "train|all|FILE",
        default_value = "train",
        value_parser = parse_seeds
    )]
    pub seeds: Seeds,
    /// Number of partitions to sample from [default: the store's]
    #[arg(long, value_name = "K")]
    pub partitions: Option<u32>,
    /// Number of partitions that take part in a step [default: all]
    #[arg(long, value_name = "Q")]
    pub concurrent: Option<NonZeroUsize>,
    /// Treatment of halo nodes: in-neighbors that the partition does not own
    #[arg(
        long,
        value_name = "MODE",
        default_value = "stop",
        value_parser = explained(Halo::ALL, Halo::name, halo_help)
    )]
    pub halo: Halo,
    /// Sample neighbors with replacement
    #[arg(long)]
    pub replace: bool,
    /// Sample neighbors with probabilities proportional to edge weights
    #[arg(long)]
    pub by_weight: bool,
    /// Time of all seeds, in the unit of the store, or own for the time of each seed, if nodes have times: draw from the edges that are not
    /// later, a minibatch for each seed
    #[arg(long, value_name = "TIME|own", allow_hyphen_values = true, conflicts_with = "by_weight")]
    pub seed_time: Option<SeedTime>,
    /// With --seed-time: leave out edges and nodes at the time of the seed
    #[arg(long, requires = "seed_time")]
    pub time_strict: bool,
    /// With --seed-time: what limits later hops
    #[arg(
        long,
        value_name = "LIMIT",
        default_value = "seed",
        requires = "seed_time",
        value_parser = explained(TimeHops::ALL, TimeHops::name, time_hops_help)
    )]
    pub time_hops: TimeHops,
    /// With --seed-time: edges and nodes are at most this much earlier than the limit, in the unit of the store
    #[arg(long, value_name = "W", requires = "seed_time", value_parser = clap::value_parser!(i64).range(0..))]
    pub time_window: Option<i64>,
    /// With --seed-time: which of the edges within the limits are drawn
    #[arg(
        long,
        value_name = "STRATEGY",
        default_value = "uniform",
        requires = "seed_time",
        value_parser = explained(TimeStrategy::ALL, TimeStrategy::name, time_strategy_help)
    )]
    pub time_strategy: TimeStrategy,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = READING)]
pub struct ReadingArgs {
    /// Gather features; an error if the store has none [default: gather them if there are some]
    #[arg(long, conflicts_with = "no_features")]
    pub features: bool,
    /// Do not gather features
    #[arg(long)]
    pub no_features: bool,
    /// I/O engine
    #[arg(long, default_value = "auto", value_parser = read_engines())]
    pub read_engine: Choice,
    /// Maximum number of minibatches in one plan of feature reads [default: as many as memory allows]
    #[arg(long, value_name = "L", value_parser = parse_lookahead)]
    pub lookahead: Option<usize>,
    /// Where the adjacency lists are during sampling
    #[arg(
        long,
        value_name = "KIND",
        default_value = "auto",
        value_parser = explained(ViewKind::ALL, ViewKind::name, view_help)
    )]
    pub view: ViewKind,
    /// Folder of the scratch files of --view sweep, which take at most half of the free disk space there [default: the
    /// system's folder of temporary files]
    #[arg(long, value_name = "DIR")]
    pub tmp: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeds {
    Train,
    All,
    Type(String),
    File(PathBuf),
}

/// The time of seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedTime {
    /// All have this one.
    At(i64),
    /// Each has its own.
    Own,
}

impl FromStr for SeedTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Self::Own),
            text => text.parse().map(Self::At).map_err(|_| format!("expected an integer or own, found {text}")),
        }
    }
}

fn read_engines() -> impl TypedValueParser<Value = Choice> {
    choices([
        ("auto", "io_uring, or a pool of threads where io_uring is not permitted", Choice::Auto),
        ("uring", "io_uring, or an error", Choice::Uring),
        ("pread", "A pool of threads with pread", Choice::Pread),
    ])
}

#[derive(Debug, clap::Args)]
pub struct PreaggregateArgs {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Reduction over the in-neighbors
    #[arg(long, value_name = "KIND", value_parser = explained(AggregateKind::ALL, AggregateKind::name, aggregate_help))]
    pub kind: AggregateKind,
    /// In a graph with several node types: the relation whose sources are aggregated, such as author:writes:paper [default: all whose
    /// sources have features]
    #[arg(long, value_name = "NAME")]
    pub relation: Option<String>,
    /// Type of a stored value [default: the type of the features]
    #[arg(long, value_parser = dtypes())]
    pub dtype: Option<FeatureDtype>,
    /// Store the features of each node beside its aggregates. Training on a graph that exceeds the memory then reads half as many
    /// pages. The aggregates take twice the space
    #[arg(long)]
    pub with_features: bool,
    /// Replace existing aggregates of this kind
    #[arg(long, visible_alias = "force")]
    pub replace: bool,
    /// Memory limit, such as 512MiB or 2GiB; with less, features are read more often
    #[arg(long, help_heading = RESOURCES, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
pub struct AddFeaturesArgs {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Features to compute
    #[arg(long, value_enum)]
    pub kind: FeatureKind,
    /// Features per node, for fastrp [default: 128]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=i64::from(DIM_MAX)))]
    pub dim: Option<u32>,
    /// Node type that gets features, for mean
    #[arg(long = "type", value_name = "TYPE", required_if_eq("kind", "mean"))]
    pub node_type: Option<String>,
    /// Relations into the type, whose sources have features, for mean [default: all]
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',')]
    pub relations: Vec<String>,
    /// Type of a stored value
    #[arg(long, default_value = "f32", value_parser = dtypes())]
    pub dtype: FeatureDtype,
    /// Number of hops, all with weight 1, for fastrp [default: 3]
    #[arg(long, value_name = "H", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub hops: Option<u32>,
    /// Weight of each hop from the first on, such as 0,1,1, for fastrp
    #[arg(long, value_name = "W,W,...", value_delimiter = ',', allow_hyphen_values = true, conflicts_with = "hops")]
    pub hop_weights: Vec<f32>,
    /// Seed of the random projection, for fastrp [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Memory limit, such as 512MiB or 2GiB; with less, rows are read more often
    #[arg(long, help_heading = RESOURCES, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FeatureKind {
    /// Functions of the in-degree and, in directed graphs, of the out-degree: 18 values for each
    Degrees,
    /// Node embeddings by random projection: similar neighborhoods get similar vectors
    Fastrp,
    /// For a node type: the mean features of in-neighbors, side by side for each relation; zeros without in-neighbors
    Mean,
}

fn schedule_help(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Sweep => "each partition keeps half of its nodes and rotates the rest, until all edges were visible",
        Schedule::Shuffle => "all chunks are grouped anew at random",
        Schedule::Fixed => "partitions never change",
        Schedule::Local => "as sweep, with partitions of neighboring chunks, for stores of grappa-ingest --assign",
    }
}

fn halo_help(halo: Halo) -> &'static str {
    match halo {
        Halo::Stop => "every hop samples them, but never their neighbors",
        Halo::Neighbors => "every hop samples them, and up to 10 in-neighbors of each",
        Halo::None => "never sampled",
    }
}

fn edges_help(edges: SliceEdges) -> &'static str {
    match edges {
        SliceEdges::All => "from nodes of all chunks; their files are shared",
        SliceEdges::Inside => "from nodes of these chunks; their files are written anew",
    }
}

fn view_help(view: ViewKind) -> &'static str {
    match view {
        ViewKind::Auto => "in memory if they fit, else in-turn, else mapped",
        ViewKind::Memory => "decoded in memory: fastest, takes about 4 bytes per edge",
        ViewKind::InTurn => "in memory, for the partitions of this step and of the next ones (with --concurrent)",
        ViewKind::Mapped => "in the files, decoded when they are sampled",
        ViewKind::Sweep => "in the files, read from front to back for many minibatches at once",
    }
}

fn aggregate_help(kind: AggregateKind) -> &'static str {
    match kind {
        AggregateKind::Mean => "mean, for GraphSAGE",
        AggregateKind::Gcn => "sum, normalized by degrees, for GCN",
        AggregateKind::Sum => "sum, for GIN",
        AggregateKind::WeightedMean => "mean by the weights of edges, for GraphSAGE",
        AggregateKind::WeightedGcn => "sum by the weights of edges, normalized by their sums, for GCN",
        AggregateKind::WeightedSum => "sum by the weights of edges, for GIN",
    }
}

/// Parses one of `all` by its name; the long help explains each.
fn explained<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
    help: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    choices(all.map(|value| (name(value), help(value), value)))
}

fn time_hops_help(hops: TimeHops) -> &'static str {
    match hops {
        TimeHops::Seed => "The time of the seed, as in PyTorch Geometric",
        TimeHops::Edge => "The time of the edge over which a node was reached, as in TGL",
    }
}

fn time_strategy_help(strategy: TimeStrategy) -> &'static str {
    match strategy {
        TimeStrategy::Uniform => "Any, with the same probability",
        TimeStrategy::Last => "The last ones",
    }
}

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    match text {
        "" => Err("expected `train`, `all`, `type:NAME`, or a file of ids".to_owned()),
        "train" => Ok(Seeds::Train),
        "all" => Ok(Seeds::All),
        text => Ok(match text.strip_prefix("type:") {
            Some(name) => Seeds::Type(name.to_owned()),
            None => Seeds::File(text.into()),
        }),
    }
}

fn parse_lookahead(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(batches @ 1..) => Ok(batches),
        _ => Err("expected a number of batches, at least 1".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
#[group(id = "what", required = true, multiple = true, args = ["edges", "val_edges", "test_edges", "weights", "edge_features", "features", "labels", "node_times", "ids", "split"])]
pub struct ExportArgs {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// In a graph with several node types: the node type whose features, labels, times, ids and splits are exported
    #[arg(long = "type", value_name = "NAME", conflicts_with_all = ["relation", "edges", "val_edges", "test_edges", "weights", "edge_features"])]
    pub node_type: Option<String>,
    /// In a graph with several node types: the relation whose edges are exported, such as author:writes:paper
    #[arg(long, value_name = "NAME", conflicts_with_all = ["features", "labels", "node_times", "ids", "split"])]
    pub relation: Option<String>,
    /// Export edges, source before destination: .npy, .parquet, .csv, or other names for text with tabs
    ///
    /// Here and below, - prints text on stdout: edges with tabs, ids one per line, features, labels and times as CSV.
    #[arg(long, value_name = "FILE")]
    pub edges: Option<PathBuf>,
    /// Export the edges that --edge-split of grappa-ingest holds out for validation, as --edges does
    #[arg(long, value_name = "FILE")]
    pub val_edges: Option<PathBuf>,
    /// As --val-edges, for test
    #[arg(long, value_name = "FILE")]
    pub test_edges: Option<PathBuf>,
    /// Export edge weights, in the order of the edges; .parquet, .csv and text have them in a third column of the edges
    #[arg(long, value_name = "FILE.npy")]
    pub weights: Option<PathBuf>,
    /// Export edge features, a row per edge, in the order of the edges; .parquet, .csv and text have them in columns of the edges
    #[arg(long, value_name = "FILE.npy")]
    pub edge_features: Option<PathBuf>,
    /// Export features, one row per node in the order of sorted ids: .npy, or a table with ids, .parquet or .csv
    #[arg(long, value_name = "FILE")]
    pub features: Option<PathBuf>,
    /// Export labels, one row per node in the order of sorted ids: .npy, or a table with ids, .parquet or .csv
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// Export the times of nodes, as --labels does, in the unit of the store
    #[arg(long, value_name = "FILE")]
    pub node_times: Option<PathBuf>,
    /// Export the ids of all nodes, sorted as rows of features and labels are, to .npy (integers), .parquet, or text: a line for each
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// Export the node ids of a split (train, val or test), as --ids does; may be repeated
    #[arg(long, num_args = 2, value_names = ["NAME", "FILE"], action = clap::ArgAction::Append)]
    pub split: Vec<String>,
    /// Replace files that exist, each when the new one is complete
    #[arg(long)]
    pub force: bool,
    /// Memory limit, such as 512MiB or 2GiB
    #[arg(long, help_heading = RESOURCES, value_name = "SIZE", default_value = "1GiB")]
    pub memory: ByteSize,
    #[command(flatten)]
    pub threads: Threads,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_do_not_contradict_each_other() {
        StoreArgs::command().debug_assert();
    }
}
