//! The options of `grappa-store plan`.

use std::{num::NonZeroU32, path::PathBuf, str::FromStr};

use clap::{ArgAction, builder::TypedValueParser};
use grappa_console::{
    ByteSize, ByteSizeError,
    options::{choices, dtypes},
};
use grappa_engine::{
    formats::manifest::FeatureDtype,
    ingest::{EDGE_FEATURES_MAX, Shares},
    plan::Degrees,
    sample::Fanouts,
};

use super::threads::Threads;

const GRAPH: &str = "Graph";
const ESTIMATE: &str = "Estimate";
const TRAINING: &str = "Training";

#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// A store, in place of --nodes, --edges and the like; needs --train
    #[arg(
        value_name = "STORE",
        requires = "train",
        conflicts_with_all = [
            "nodes", "edges", "dim", "classes", "split", "weighted", "edge_split", "edge_dim", "chunks", "free_memory", "computed_features",
        ]
    )]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub graph: GraphArgs,
    #[command(flatten)]
    pub estimate: EstimateArgs,
    #[command(flatten)]
    pub training: Training,
    #[command(flatten)]
    pub threads: Threads,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = GRAPH)]
pub struct GraphArgs {
    /// Number of nodes, such as 4194304, 2.5M or 1G
    #[arg(long, value_name = "N", value_parser = parse_count, required_unless_present = "store")]
    pub nodes: Option<u64>,
    /// Number of edges in the store; with --undirected that is twice the number in the input
    #[arg(long, value_name = "E", value_parser = parse_count, required_unless_present = "store")]
    pub edges: Option<u64>,
    /// Distribution of in-degrees
    #[arg(long, value_name = "DEGREES", default_value = "rmat", value_parser = degrees())]
    pub degrees: Degrees,
    /// Features per node [default: no features]
    #[arg(long, value_name = "D")]
    pub dim: Option<u32>,
    /// Type of a stored feature value
    #[arg(long, default_value = "f32", value_parser = dtypes(), requires = "dim")]
    pub dtype: FeatureDtype,
    /// Number of classes [default: no labels]
    #[arg(long, value_name = "K")]
    pub classes: Option<u32>,
    /// Shares of a random split, as for grappa-ingest [default: no split]
    #[arg(long, value_name = "TRAIN/VAL/TEST")]
    pub split: Option<Shares>,
    /// Edges have weights
    #[arg(long)]
    pub weighted: bool,
    /// Features per edge [default: no edge features]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=EDGE_FEATURES_MAX as i64))]
    pub edge_dim: Option<u32>,
    /// Type of a stored edge feature
    #[arg(long, default_value = "f32", value_parser = dtypes(), requires = "edge_dim")]
    pub edge_dtype: FeatureDtype,
    /// Shares of edges that are held out, as for grappa-ingest; --edges counts them, too [default: none]
    #[arg(long, value_name = "TRAIN/VAL/TEST")]
    pub edge_split: Option<Shares>,
    /// Number of chunks [default: as grappa-ingest chooses]
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = ESTIMATE)]
pub struct EstimateArgs {
    /// Memory limit of the ingest, or with --train of training, such as 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub memory: ByteSize,
    /// Bytes that the disk reads or writes per second
    #[arg(
        long,
        value_name = "SIZE/s",
        default_value = "1GB/s",
        value_parser = parse_bandwidth
    )]
    pub disk_bandwidth: ByteSize,
    /// Memory that the system can use as page cache for scratch files [default: what is free on this machine]
    #[arg(long, value_name = "SIZE")]
    pub free_memory: Option<ByteSize>,
    /// JSON file with processor times, as the key `rates` of --json has them [default: built-in times]
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,
    /// Measure disk bandwidth and training's processor times in this folder; takes seconds, and 600 MB of disk meanwhile
    #[arg(long, value_name = "DIR", conflicts_with = "disk_bandwidth")]
    pub measure: Option<PathBuf>,
}

/// The training run to estimate.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = TRAINING)]
pub struct Training {
    /// Also estimate training: GraphSAGE with means
    ///
    /// The estimate has the numbers of partitions that --partitions auto would choose, and seconds, bytes and memory of each stage.
    #[arg(long)]
    pub train: bool,
    /// Task of the run
    #[arg(long = "task", value_name = "TASK", default_value = "nodes", action = ArgAction::Set, value_parser = tasks(), requires = "train")]
    pub is_link: bool,
    #[command(flatten)]
    pub links: LinkArgs,
    /// Share of the nodes to train on [default: as in the store, or in --split]
    #[arg(long, value_name = "F", requires = "train", value_parser = parse_share)]
    pub train_fraction: Option<f64>,
    /// Share of the nodes that an evaluation scores [default: validation and test nodes of the store or of --split]
    #[arg(long, value_name = "F", requires = "train", value_parser = parse_share)]
    pub scored_fraction: Option<f64>,
    /// Features are computed when they are read, not stored
    #[arg(long, requires = "train")]
    pub computed_features: bool,
    /// Number of layers
    #[arg(long, value_name = "L", requires = "train", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub layers: u32,
    /// Hidden dimension
    #[arg(long, value_name = "N", requires = "train", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub hidden: u32,
    /// Neighbors to sample per node and layer; -1 takes all [default: 15,10,5,5,...]
    #[arg(long, value_name = "N,N,...", requires = "train", allow_hyphen_values = true)]
    pub fanouts: Option<Fanouts>,
    /// Seeds per minibatch and partition [default: 1024 divided by the partitions of a step]
    #[arg(long, value_name = "B", requires = "train", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Number of partitions [default: from --memory]
    #[arg(long, value_name = "K", requires = "train", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub partitions: Option<u32>,
    /// Partitions of a step [default: from --memory]
    #[arg(long, value_name = "Q", requires = "train", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub concurrent: Option<u32>,
    /// Source of the first layer's aggregates [default: preaggregated if features are stored]
    #[arg(long = "first-hop", value_name = "FIRST_HOP", value_parser = first_hops(), requires = "train")]
    pub is_preaggregated: Option<bool>,
    /// Data of halo nodes (in-neighbors in other partitions) besides their features
    #[arg(long = "halo", value_name = "HALO", default_value = "auto", action = ArgAction::Set, value_parser = halos(), requires = "train")]
    pub expands_halo: bool,
    /// How minibatches are sampled [default: as training chooses]
    #[arg(long = "sampling", value_name = "HOW", value_parser = ways_to_sample(), requires = "train")]
    pub sweeps: Option<bool>,
    /// Floating-point operations per second of a GPU that computes the model, such as 20T [default: the processors compute it]
    #[arg(long, value_name = "N", requires = "train", value_parser = parse_rate)]
    pub device_rate: Option<u64>,
}

/// Options of `--task link`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = TRAINING)]
pub struct LinkArgs {
    /// Negatives of each edge, for --task link
    #[arg(long, value_name = "N", requires = "train", default_value_t = 1)]
    pub negatives: u32,
    /// Edges that each epoch draws, for --task link; 0: all
    #[arg(long, value_name = "N", requires = "train", default_value = "0", value_parser = parse_count)]
    pub edges_per_epoch: u64,
    /// Nodes that each held-out edge is ranked among, for --task link: a number, or all
    #[arg(long, value_name = "N|all", requires = "train", default_value = "100")]
    pub candidates: PlannedCandidates,
}

fn degrees() -> impl TypedValueParser<Value = Degrees> {
    choices([
        ("rmat", "Skewed, as in R-MAT graphs", Degrees::Rmat),
        ("even", "All similar; edges take the most space", Degrees::Even),
    ])
}

fn tasks() -> impl TypedValueParser<Value = bool> {
    choices([
        ("nodes", "Labels of nodes", false),
        ("link", "Links between nodes, as --task link of grappa-train", true),
    ])
}

fn first_hops() -> impl TypedValueParser<Value = bool> {
    choices([("sampled", "Sampled neighbors", false), ("preaggregated", "Pre-aggregated features", true)])
}

fn ways_to_sample() -> impl TypedValueParser<Value = bool> {
    choices([
        ("batch", "Each minibatch on its own", false),
        ("sweep", "Many at once, with passes over the whole graph", true),
    ])
}

fn halos() -> impl TypedValueParser<Value = bool> {
    let auto = "Historical embeddings or sampled in-neighbors, as training chooses them";
    choices([("auto", auto, true), ("stop", "Nothing", false)])
}

/// A number of candidates; None for all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedCandidates(pub Option<NonZeroU32>);

impl FromStr for PlannedCandidates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self(None)),
            number => match number.parse() {
                Ok(count) => Ok(Self(Some(count))),
                Err(_) => Err("expected a number of at least 1, or all".to_owned()),
            },
        }
    }
}

/// Parses a count: digits, or a number with k, M, G or T.
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
    let size: ByteSize = text.strip_suffix("/s").unwrap_or(text).parse().map_err(|e: ByteSizeError| e.to_string())?;
    match size.0 {
        0 => Err("expected more than 0 bytes per second".to_owned()),
        _ => Ok(size),
    }
}

/// Parses a share of the nodes.
fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a number above 0 and at most 1".to_owned()),
    }
}

/// Parses a rate above 0.
fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("expected more than 0 operations per second".to_owned()),
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_digits_or_have_a_unit() {
        for (text, count) in
            [("0", 0), ("18446744073709551615", u64::MAX), ("2.5M", 2_500_000), ("1.1 T", 1_100_000_000_000)]
        {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for text in ["", "M", "-1", "1.5", "1e9", "nanM", "-2k", "infG", "9999999999T", "5 apples"] {
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
