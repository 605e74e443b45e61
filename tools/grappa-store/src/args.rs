//! The command line.

use std::{error::Error, num::NonZeroUsize, path::PathBuf, str::FromStr};

use clap::{
    Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use grappa_console::{ByteSize, ByteSizeError};
use grappa_formats::{aggregates::AggregateKind, features::DIM_MAX, manifest::FeatureDtype};
use grappa_io::read::Choice;
use grappa_sampling::{
    partition::Schedule,
    sample::Fanouts,
    view::{Halo, ViewKind},
};

/// Look into a graph store.
#[derive(Debug, Parser)]
#[command(name = "grappa-store", version)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub console: grappa_console::Args,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a store holds: counts, sizes, degrees, partitions
    Info(Info),
    /// Check every byte of a store, and whether its files agree; exits with 1 if anything is wrong
    Verify(Store),
    /// Write edges, labels, features and splits to files, in the ids of the input
    Export(Export),
    /// Group the chunks of a store into partitions for the next super-epoch; takes milliseconds, and moves no edges
    Repartition(Repartition),
    /// Sample minibatches and gather their features, without a model: what disk and processors can feed
    Sample(Sample),
    /// Reduce the features of each node's in-neighbours once, so that a model's first hop need not be sampled
    Preaggregate(Preaggregate),
    /// Compute features from the graph and add them to a store that has none
    AddFeatures(AddFeatures),
    /// Say beforehand what a store of a graph will take: chunks, bytes, time
    Plan(Plan),
}

#[derive(Debug, clap::Args)]
pub struct Store {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
pub struct Info {
    #[command(flatten)]
    pub store: Store,
    /// Count the halo nodes of each partition, and how its nodes are covered: reads all edges
    #[arg(long)]
    pub coverage: bool,
    /// Memory to count halo nodes in, such as 512MiB or 2GiB; with less, edges are read more often
    #[arg(long, value_name = "SIZE", default_value = "1GiB", requires = "coverage")]
    pub memory: ByteSize,
}

#[derive(Debug, clap::Args)]
pub struct Repartition {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Number of partitions, at most as many as chunks
    #[arg(long, value_name = "K")]
    pub partitions: u32,
    /// How partitions change: `sweep` keeps a base and rotates the rest, `shuffle` groups anew, `fixed` never changes
    #[arg(long, value_name = "NAME", default_value = "sweep", value_parser = named(Schedule::ALL, Schedule::name))]
    pub schedule: Schedule,
    /// Selects the random groups
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The super-epoch to group for; by default the next one, which is the number of repartitionings so far
    #[arg(long, value_name = "N")]
    pub super_epoch: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct Sample {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Neighbours to draw for each node, from the seeds outwards; -1 keeps all
    #[arg(long, value_name = "N,N,...", allow_hyphen_values = true, value_parser = parse_fanouts)]
    pub fanouts: Fanouts,
    /// Seeds in a batch
    #[arg(long, value_name = "B")]
    pub batch: NonZeroUsize,
    /// Batches to make; when all seeds had their turn, they are shuffled anew
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batches: u64,
    /// Sample from so many partitions, all of which take part in a step; by default, from those of the store
    #[arg(long, value_name = "K")]
    pub partitions: Option<u32>,
    /// What becomes of neighbours that a partition does not own: `features` draws them in the last hop, `stop` in any, and
    /// does not expand them
    #[arg(long, value_name = "MODE", default_value = "features", value_parser = named(Halo::ALL, Halo::name))]
    pub halo: Halo,
    /// Draw with replacement
    #[arg(long)]
    pub replace: bool,
    /// Draw neighbours by the weights of edges
    #[arg(long)]
    pub by_weight: bool,
    /// Memory to use, such as 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    /// Gather features; an error if there are none
    #[arg(long, conflicts_with = "no_features")]
    pub features: bool,
    /// Sample only
    #[arg(long)]
    pub no_features: bool,
    #[command(flatten)]
    pub threads: Threads,
    /// What reads features
    #[arg(long, value_enum, default_value_t = ReadEngine::Auto)]
    pub read_engine: ReadEngine,
    /// The most batches whose features are read together; by default as many as memory pays for
    #[arg(long, value_name = "L", value_parser = parse_lookahead)]
    pub lookahead: Option<usize>,
    /// Where the rows of the graph are: in memory if the budget allows, or mapped
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = named(ViewKind::ALL, ViewKind::name))]
    pub view: ViewKind,
    /// Nodes to start from: the split `train`, `all`, or a file of ids (.npy, or text)
    #[arg(long, value_name = "train|all|FILE", default_value = "train", value_parser = parse_seeds)]
    pub seeds: Seeds,
    /// Selects the samples
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeds {
    Train,
    All,
    File(PathBuf),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ReadEngine {
    /// io_uring, or threads where it is refused
    Auto,
    /// io_uring
    Uring,
    /// A pool of threads
    Pread,
}

impl From<ReadEngine> for Choice {
    fn from(engine: ReadEngine) -> Self {
        match engine {
            ReadEngine::Auto => Self::Auto,
            ReadEngine::Uring => Self::Uring,
            ReadEngine::Pread => Self::Pread,
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct Preaggregate {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// How rows are reduced: `mean` for GraphSAGE, `gcn` for GCN, `sum` for GIN
    #[arg(long, value_name = "KIND", value_parser = named(AggregateKind::ALL, AggregateKind::name))]
    pub kind: AggregateKind,
    /// How values are stored; by default as the features are
    #[arg(long, value_enum)]
    pub dtype: Option<Dtype>,
    /// Memory to use, such as 512MiB or 2GiB; with less, features are read more often
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    /// Make them again where there are some
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
pub struct AddFeatures {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// What is computed: `degrees`, 18 values of the in-degree and 18 of the out-degree (if edges have a direction);
    /// `fastrp`, embeddings of the graph by random projection, of which similar neighbourhoods have similar ones
    #[arg(long, value_enum)]
    pub kind: FeatureKind,
    /// Values a node; with `fastrp`, 128 by default
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=i64::from(DIM_MAX)))]
    pub dim: Option<u32>,
    /// How values are stored
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    /// Hops that `fastrp` looks away, each of which counts alike; 3 by default
    #[arg(long, value_name = "H", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub hops: Option<u32>,
    /// How much each hop of `fastrp` counts, from the first on, such as 0,1,1
    #[arg(
        long,
        value_name = "W,W,...",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "hops"
    )]
    pub hop_weights: Vec<f32>,
    /// Selects the random projection of `fastrp`; 1 by default
    #[arg(long)]
    pub seed: Option<u64>,
    /// Memory to use, such as 512MiB or 2GiB; with less, rows are read more often
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FeatureKind {
    Degrees,
    Fastrp,
}

/// One of these, by its name.
fn named<T, const N: usize>(all: [T; N], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.map(name)).try_map(|name| name.parse::<T>())
}

fn parse_fanouts(text: &str) -> Result<Fanouts, grappa_io::Error> {
    text.parse()
}

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    match text {
        "" => Err("expected `train`, `all`, or a file of ids".to_owned()),
        "train" => Ok(Seeds::Train),
        "all" => Ok(Seeds::All),
        file => Ok(Seeds::File(file.into())),
    }
}

fn parse_lookahead(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(batches @ 1..) => Ok(batches),
        _ => Err("expected a number of batches, at least 1".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
#[group(id = "what", required = true, multiple = true, args = ["edges", "weights", "features", "labels", "split"])]
pub struct Export {
    /// The store
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Edges, source before destination: .npy, .csv, or text with tabs (`-`: on stdout)
    #[arg(long, value_name = "FILE")]
    pub edges: Option<PathBuf>,
    /// Edge weights, a .npy in the order of the edges; text has them in a third column
    #[arg(long, value_name = "FILE.npy")]
    pub weights: Option<PathBuf>,
    /// Features, a .npy of one row a node
    #[arg(long, value_name = "FILE.npy")]
    pub features: Option<PathBuf>,
    /// Labels, a .npy of one row a node
    #[arg(long, value_name = "FILE.npy")]
    pub labels: Option<PathBuf>,
    /// The ids of the nodes in a split: train, val or test, and a file
    #[arg(long, num_args = 2, value_names = ["NAME", "FILE"], action = clap::ArgAction::Append)]
    pub split: Vec<String>,
    /// Memory to put rows in order with, such as 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: ByteSize,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
pub struct Plan {
    /// Number of nodes, such as 4194304, 2.5M or 1G
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub nodes: u64,
    /// Number of edges in the store; twice those of the input with --undirected
    #[arg(long, value_name = "E", value_parser = parse_count)]
    pub edges: u64,
    /// How in-degrees are spread: as skewed as in R-MAT, or even, which takes most
    #[arg(long, value_enum, default_value_t = Degrees::Rmat)]
    pub degrees: Degrees,
    /// Feature values a node
    #[arg(long, value_name = "D")]
    pub dim: Option<u32>,
    /// How features are stored
    #[arg(long, value_enum, default_value_t = Dtype::F32, requires = "dim")]
    pub dtype: Dtype,
    /// Number of classes
    #[arg(long, value_name = "K")]
    pub classes: Option<u32>,
    /// Edges have weights
    #[arg(long)]
    pub weighted: bool,
    /// Number of chunks; by default as many as grappa-ingest would choose
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Memory to make the store in, such as 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    /// What the disk reads or writes in a second
    #[arg(long, value_name = "SIZE/s", default_value = "1GB/s", value_parser = parse_bandwidth)]
    pub disk_bandwidth: ByteSize,
    /// Memory that the system is free to keep scratch files in; by default what this machine has free
    #[arg(long, value_name = "SIZE")]
    pub free_memory: Option<ByteSize>,
    #[command(flatten)]
    pub threads: Threads,
    /// A JSON object of processor times that replace the built-in ones, as the bench `plan` prints them
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Degrees {
    Rmat,
    Even,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    Int8,
}

impl From<Dtype> for FeatureDtype {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
            Dtype::Int8 => Self::Int8,
        }
    }
}

/// A number of things: digits, or a number with k, M, G or T.
fn parse_count(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        Some((at, 'T')) => (&text[..at], 1e12),
        _ => return text.parse().map_err(|_| no_count()),
    };
    match number.trim_end().parse::<f64>() {
        Ok(number) if number >= 0.0 && number * factor < 1e18 => Ok((number * factor).round() as u64),
        _ => Err(no_count()),
    }
}

fn no_count() -> String {
    "expected a number such as 4194304, 2.5M or 1G".to_owned()
}

fn parse_bandwidth(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text
        .strip_suffix("/s")
        .unwrap_or(text)
        .parse()
        .map_err(|e: ByteSizeError| e.to_string())?;
    match size.0 {
        0 => Err("a disk that moves nothing makes no store".to_owned()),
        _ => Ok(size),
    }
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Threads {
    /// Worker threads; by default one per processor
    #[arg(long, value_name = "T")]
    threads: Option<NonZeroUsize>,
}

impl Threads {
    /// How many threads to use.
    pub fn get(self) -> anyhow::Result<usize> {
        match self.threads {
            Some(threads) => Ok(threads.get()),
            None => Ok(std::thread::available_parallelism()?.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }

    #[test]
    fn counts_are_digits_or_have_a_unit() {
        for (text, count) in [
            ("0", 0),
            ("18446744073709551615", u64::MAX),
            ("2.5M", 2_500_000),
            ("1.1 T", 1_100_000_000_000),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for text in [
            "",
            "M",
            "-1",
            "1.5",
            "1e9",
            "nanM",
            "-2k",
            "infG",
            "9999999999T",
            "5 apples",
        ] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bandwidths_may_say_per_second() {
        for text in ["1.4GB/s", "1.4GB", "1400 MB/s"] {
            assert_eq!(parse_bandwidth(text), Ok(ByteSize(1_400_000_000)), "{text}");
        }
        assert!(parse_bandwidth("0/s").is_err());
        assert!(parse_bandwidth("fast").is_err());
    }
}
