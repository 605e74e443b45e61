//! The command line, and its translation to the options of the engine.

mod shared;
mod typed;

use std::{ffi::OsString, num::NonZeroUsize, ops::RangeInclusive, path::PathBuf};

use anyhow::{anyhow, bail};
use clap::{
    ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, builder::TypedValueParser, error::ErrorKind,
    parser::ValueSource,
};
use grappa_console::{
    ByteSize,
    options::{Chunks, choices, chunk_range, dtypes, self_loops},
};
use grappa_engine::{
    formats::features::DIM_MAX,
    generate::{
        BlockModel, EdgeListFormat, EdgeOptions, ErdosRenyi, FeatureDtype, FeatureOptions, FeatureSource, Generator,
        GraphOptions, Model, Recipe, Rmat, RmatClasses, SelfLoops, SplitShares, StoreOptions,
    },
};

use self::{
    shared::{EDGES, FEATURES, GRAPH, MODEL, OUTPUT, RESOURCES, Splits, assignments, feature_sources},
    typed::TypedArgs,
};

const EXAMPLES: &str = "\
Examples:
  A graph with skewed degrees: 2^20 nodes, about 16 million edges:
    grappa-gen rmat --scale 20 --edge-factor 16 --out rmat.grappa

  A graph that a model can be trained on, with 16 classes and 64 features per node:
    grappa-gen sbm --nodes 1000000 --edge-factor 20 --classes 16 --feature-dim 64 --out sbm.grappa

  The same with skewed degrees, features that take no space, and 1 % of the nodes to train on:
    grappa-gen rmat --scale 26 --classes 16 --feature-dim 64 --features procedural --train-fraction 0.01 --out rmat.grappa

  The same kind of graph as files for other programs: edges.npy, edges.features.npy, edges.labels.npy, ...:
    grappa-gen sbm --nodes 100000 --feature-dim 64 --as npy --out edges.npy";

/// Generate a synthetic graph of any size
///
/// The same options and seed give the same graph on any machine, for any number of threads and any memory limit.
#[derive(Debug, Parser)]
#[command(name = "grappa-gen", version, subcommand_required = true, after_long_help = EXAMPLES)]
pub struct GenArgs {
    #[command(subcommand)]
    model: ModelArgs,
    #[command(flatten)]
    pub console: grappa_console::ConsoleArgs,
}

#[derive(Debug, Subcommand)]
enum ModelArgs {
    /// R-MAT (Graph500): skewed degrees, communities within communities; with --classes, labels to train on
    #[command(after_long_help = "Example: grappa-gen rmat --scale 20 --edge-factor 16 --out rmat.grappa")]
    Rmat {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        quadrants: Quadrants,
        #[command(flatten)]
        classes: ClassesOfRmat,
        #[command(flatten)]
        splits: Splits,
    },
    /// Erdos-Renyi: all edges have the same probability
    #[command(after_long_help = "Example: grappa-gen er --nodes 1000000 --edge-factor 8 --out er.grappa")]
    Er {
        #[command(flatten)]
        common: Common,
    },
    /// Stochastic block model: classes with labels, features and splits, to train on
    ///
    /// Edges prefer nodes of the same class, and features are noisy points around a center of each class.
    #[command(
        after_long_help = "Example: grappa-gen sbm --nodes 1000000 --classes 16 --feature-dim 64 --out sbm.grappa"
    )]
    Sbm {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        blocks: Blocks,
        #[command(flatten)]
        splits: Splits,
    },
    /// A graph with several node types and relations
    ///
    /// A relation has an exact number of edges. Both ends of an edge are drawn alone, by degree. Features of a type with classes are noisy
    /// points around a center of each class; edges do not depend on classes.
    #[command(after_long_help = "\
Examples:
  A shop, with reverse relations:
    grappa-gen typed --nodes user=100000 --nodes item=20000 --edges user:buys:item=1000000 --reverse --classes item=10 \
     --feature-dim item=64 --out shop.grappa

  A graph like ogbn-mag, of any size:
    grappa-gen typed --preset mag --total-edges 20000000 --reverse --feature-dim paper=128 --classes paper=349 --out mag.grappa")]
    Typed(TypedArgs),
}

#[derive(Debug, Args)]
struct Common {
    #[command(flatten)]
    size: Size,
    /// Expected number of edges per node
    #[arg(long, help_heading = GRAPH, value_name = "F", default_value_t = 16.0)]
    edge_factor: f64,
    /// Seed of the graph and of the random node permutation
    #[arg(long, help_heading = GRAPH, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    edges: EdgeArgs,
    #[command(flatten)]
    features: FeatureArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Memory limit, such as 512MiB or 2GiB
    #[arg(long, help_heading = RESOURCES, value_name = "SIZE", default_value = "2GiB")]
    memory: ByteSize,
    /// Number of worker threads [default: one per processor]
    #[arg(long, help_heading = RESOURCES, value_name = "T")]
    threads: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = EDGES)]
struct EdgeArgs {
    /// Merge parallel edges
    #[arg(long)]
    dedup: bool,
    /// Treatment of edges from a node to itself
    #[arg(long, default_value = "keep", value_parser = self_loops())]
    self_loops: SelfLoops,
}

#[derive(Debug, Args)]
#[command(next_help_heading = FEATURES)]
struct FeatureArgs {
    /// Features per node [default: no features]
    #[arg(
        long,
        value_name = "D",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DIM_MAX))
    )]
    feature_dim: Option<u32>,
    /// Type of a stored feature value; procedural features are f32
    #[arg(long, default_value = "f32", value_parser = dtypes(), requires = "feature_dim")]
    feature_dtype: FeatureDtype,
    /// Whether the store contains the features
    #[arg(long, default_value = "stored", value_parser = feature_sources(), requires = "feature_dim")]
    features: FeatureSource,
}

#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
struct OutputArgs {
    /// Store or file to write; it must not exist, unless --force is given
    ///
    /// With --as tsv or npy, the files of node data are named after it: edges.npy has edges.labels.npy, edges.train.npy and
    /// so on beside it. A split without nodes has no file. With --as tsv, - prints the edges alone on stdout.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Replace the store of --out, with all that was added to it, or the files, when the new ones are complete
    ///
    /// Only a store, or files of the same names, are replaced. A folder with other files is an error.
    #[arg(long)]
    force: bool,
    /// Kind of output
    #[arg(long = "as", value_name = "KIND", default_value = "store", value_parser = output_kinds())]
    kind: Kind,
    /// Number of chunks of the store; partitions are groups of chunks
    ///
    /// auto: one per 4 million nodes, at least 64 and at most 1024; fewer for graphs below 2048 nodes.
    #[arg(long, value_name = "C", default_value = "auto")]
    chunks: Chunks,
    /// Generate only these chunks, such as 0,5-7 [default: all]
    ///
    /// The chunks have exactly the edges that they have in the whole graph.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = chunk_range)]
    only_chunks: Option<Vec<RangeInclusive<u32>>>,
    /// Assignment of nodes to chunks
    #[arg(id = "assign", long = "assign", value_name = "ASSIGN", default_value = "random", action = ArgAction::Set, value_parser = assignments())]
    random_permutation: bool,
    /// Continue a run that was stopped or killed, with the same options
    #[arg(long)]
    resume: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Size {
    /// Number of nodes, as a power of two: 2^S nodes
    #[arg(long, help_heading = GRAPH, value_name = "S", value_parser = clap::value_parser!(u32).range(0..=40))]
    scale: Option<u32>,
    /// Number of nodes; a power of two for rmat
    #[arg(long, help_heading = GRAPH, value_name = "N")]
    nodes: Option<u64>,
}

#[derive(Debug, Args)]
struct Quadrants {
    /// Probability that a bit of the source id is 0 and the same bit of the destination id is 0
    ///
    /// The four probabilities add up to 1.
    #[arg(long, help_heading = MODEL, value_name = "P", default_value_t = 0.57)]
    a: f64,
    /// Probability of 0 in the source and 1 in the destination
    #[arg(long, help_heading = MODEL, value_name = "P", default_value_t = 0.19)]
    b: f64,
    /// Probability of 1 in the source and 0 in the destination
    #[arg(long, help_heading = MODEL, value_name = "P", default_value_t = 0.19)]
    c: f64,
    /// Probability of 1 in both
    #[arg(long, help_heading = MODEL, value_name = "P", default_value_t = 0.05)]
    d: f64,
}

#[derive(Debug, Args)]
struct ClassesOfRmat {
    /// Number of classes, up to 65536; nodes then have labels and splits [default: no classes]
    ///
    /// In-degrees stay as in R-MAT, and so do expected out-degrees if b = c. Nodes without in-edges can only be told by their own
    /// features.
    #[arg(long, help_heading = MODEL, value_name = "K")]
    classes: Option<u32>,
    /// Probability that the source of an edge is chosen from the destination's class; others may be of the same class by chance
    #[arg(long, help_heading = MODEL, value_name = "H", default_value_t = 0.7, requires = "classes")]
    homophily: f64,
    /// Standard deviation of features within a class, relative to the one between the means of classes
    #[arg(long, help_heading = MODEL, value_name = "SIGMA", default_value_t = 5.0, requires = "classes")]
    noise: f64,
}

#[derive(Debug, Args)]
struct Blocks {
    /// Number of classes
    #[arg(long, help_heading = MODEL, value_name = "K", default_value_t = 10)]
    classes: u32,
    /// Probability that an edge connects nodes of the same class
    #[arg(long, help_heading = MODEL, value_name = "H", default_value_t = 0.7)]
    homophily: f64,
    /// Skew of in-degrees, from 1 to below 2: 1 makes them similar, 1.41 gives a power law with exponent 3
    #[arg(long, help_heading = MODEL, value_name = "G", default_value_t = 1.0)]
    degree_growth: f64,
    /// Standard deviation of features within a class, relative to the one between the means of classes
    #[arg(long, help_heading = MODEL, value_name = "SIGMA", default_value_t = 5.0)]
    noise: f64,
}

/// The format of an edge list; None for a store.
type Kind = Option<EdgeListFormat>;

fn output_kinds() -> impl TypedValueParser<Value = Kind> {
    choices([
        ("store", "A store, ready to train on", None),
        ("tsv", "A text file of edges, source before destination", Some(EdgeListFormat::Tsv)),
        ("npy", "A NumPy array of edges, source before destination", Some(EdgeListFormat::Npy)),
    ])
}

/// A job for the engine.
#[derive(Debug)]
pub enum Output {
    /// A store.
    Store(StoreOptions),
    /// Files of edges and nodes.
    Files(FileOptions),
    /// A graph with types.
    Graph(GraphOptions),
}

/// Files of edges and nodes to make.
#[derive(Debug)]
pub struct FileOptions {
    /// The graph.
    pub recipe: Recipe,
    /// The file of edges.
    pub edges: PathBuf,
    /// Whether files that exist are replaced.
    pub replace: bool,
    /// Format of the edges.
    pub format: EdgeListFormat,
    /// Features per node, if nodes have features.
    pub feature_dim: Option<u32>,
    /// Worker threads.
    pub threads: usize,
    /// Bytes of memory that suffice for the features' mean of each class.
    pub memory: u64,
}

/// Options that only stores have.
const OF_STORES: [&str; 8] =
    ["chunks", "only_chunks", "assign", "dedup", "self_loops", "feature_dtype", "features", "resume"];

impl GenArgs {
    /// Parses a command line.
    ///
    /// # Errors
    /// If it is wrong.
    pub fn read(line: impl IntoIterator<Item: Into<OsString> + Clone>) -> Result<(Self, Output), clap::Error> {
        let matches = Self::command().try_get_matches_from(line)?;
        let args = Self::from_arg_matches(&matches)?;
        let (_, of_model) = matches.subcommand().expect("a model is required");
        let makes_files = args.model.common().is_some_and(|common| common.output.kind.is_some());
        let is_set = |id: &&&str| of_model.value_source(id) == Some(ValueSource::CommandLine);
        let output = match OF_STORES.iter().filter(|_| makes_files).find(is_set) {
            Some(id) => {
                let option = id.replace('_', "-");
                Err(anyhow!("--{option} is for stores only: leave it out, or use --as store"))
            }
            None => args.output(),
        };
        let output = output.map_err(|error| Self::command().error(ErrorKind::ValueValidation, error))?;
        Ok((args, output))
    }

    /// The job that the options describe.
    fn output(&self) -> anyhow::Result<Output> {
        let common = match &self.model {
            ModelArgs::Typed(typed) => return Ok(Output::Graph(typed.options()?)),
            ModelArgs::Rmat { common, .. } | ModelArgs::Er { common } | ModelArgs::Sbm { common, .. } => common,
        };
        let recipe = Recipe::new(self.model.model(common)?, common.seed).with_splits(self.model.splits()?);
        let threads = common.threads.map_or_else(std::thread::available_parallelism, Ok)?;
        if let (FeatureSource::Procedural, FeatureDtype::F16 | FeatureDtype::Bf16 | FeatureDtype::Int8) =
            (&common.features.features, common.features.feature_dtype)
        {
            bail!(
                "--features procedural computes 32-bit floats, so --feature-dtype has no effect: leave it out, or use \
                 --features stored"
            );
        }
        let Some(format) = common.output.kind else {
            let options = common.store(recipe, threads);
            options.check()?;
            return Ok(Output::Store(options));
        };
        if common.output.out.as_os_str() == "-"
            && (format != EdgeListFormat::Tsv || common.features.feature_dim.is_some())
        {
            bail!("--out - prints edges as text on stdout: give --as tsv and no --feature-dim, or a name for --out");
        }
        Generator::new(recipe.clone())?;
        Ok(Output::Files(FileOptions {
            recipe,
            edges: common.output.out.clone(),
            replace: common.output.force,
            format,
            feature_dim: common.features.feature_dim,
            threads: threads.get(),
            memory: common.memory.0,
        }))
    }

    /// The least bytes that the output takes; the real size is larger. For a part of a graph, and for a graph with types, 0.
    pub fn least_bytes(&self) -> u64 {
        let Some(common) = self.model.common() else { return 0 };
        if common.output.only_chunks.is_some() {
            return 0;
        }
        let nodes = common.size.nodes();
        let drawn = (common.edge_factor * nodes as f64) as u64;
        let dim = u64::from(common.features.feature_dim.unwrap_or(0));
        let value_bytes = match (common.output.kind, common.features.feature_dtype, &common.features.features) {
            (None, _, FeatureSource::Procedural) => 0,
            (None, FeatureDtype::Int8, _) => 1,
            (None, FeatureDtype::F16 | FeatureDtype::Bf16, _) => 2,
            _ => 4,
        };
        let (node_bytes, edges_bytes) = match common.output.kind {
            // A byte of degree. Edges take more than a byte each, but most may be parallel.
            None if common.edges.dedup => (1, 0),
            None => (1, drawn),
            // Two digits, a tab and a line end.
            Some(EdgeListFormat::Tsv) => (0, drawn.saturating_mul(4)),
            Some(EdgeListFormat::Npy) => (0, drawn.saturating_mul(16)),
        };
        nodes.saturating_mul(node_bytes + dim * value_bytes).saturating_add(edges_bytes)
    }
}

impl Common {
    /// The options of a store.
    fn store(&self, recipe: Recipe, threads: NonZeroUsize) -> StoreOptions {
        StoreOptions {
            recipe,
            out: self.output.out.clone(),
            random_permutation: self.output.random_permutation,
            chunks: self.output.chunks.0,
            only_chunks: self.output.only_chunks.clone(),
            edge_options: EdgeOptions { undirected: false, dedup: self.edges.dedup, self_loops: self.edges.self_loops },
            features: self
                .features
                .feature_dim
                .map(|dim| FeatureOptions::new(dim, self.features.feature_dtype, self.features.features.clone())),
            memory: self.memory.0,
            threads: threads.get(),
            resume: self.output.resume,
            replace: self.output.force,
            writer: concat!("grappa-gen ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl ModelArgs {
    /// The options of all graphs without types.
    fn common(&self) -> Option<&Common> {
        match self {
            Self::Rmat { common, .. } | Self::Er { common } | Self::Sbm { common, .. } => Some(common),
            Self::Typed(_) => None,
        }
    }

    fn splits(&self) -> anyhow::Result<SplitShares> {
        let shares = match *self {
            Self::Rmat { splits, .. } | Self::Sbm { splits, .. } => splits.shares(),
            Self::Er { .. } | Self::Typed(_) => SplitShares::default(),
        };
        if let Self::Rmat { classes, .. } = self
            && classes.classes.is_none()
            && shares != SplitShares::default()
        {
            bail!("an R-MAT graph without classes has no splits: use --classes, or leave out the fractions");
        }
        Ok(shares)
    }

    fn model(&self, Common { size, edge_factor, .. }: &Common) -> anyhow::Result<Model> {
        let (nodes, edge_factor) = (size.nodes(), *edge_factor);
        Ok(match *self {
            Self::Rmat {
                quadrants: Quadrants { a, b, c, d },
                classes: ClassesOfRmat { classes, homophily, noise },
                ..
            } => {
                if !nodes.is_power_of_two() {
                    bail!(
                        "an R-MAT graph has a power of two of nodes, not {nodes}: use --scale, or another model (er, sbm)"
                    );
                }
                Model::Rmat(Rmat {
                    scale: nodes.ilog2(),
                    edge_factor,
                    a,
                    b,
                    c,
                    d,
                    classes: classes.map(|count| RmatClasses { count, homophily, noise }),
                })
            }
            Self::Er { .. } => Model::Er(ErdosRenyi { nodes, edge_factor }),
            Self::Sbm { blocks: Blocks { classes, homophily, degree_growth, noise }, .. } => {
                Model::Sbm(BlockModel { nodes, edge_factor, classes, homophily, degree_growth, noise })
            }
            Self::Typed(_) => unreachable!("a graph with types has no options of other models"),
        })
    }
}

impl Size {
    fn nodes(&self) -> u64 {
        match (self.scale, self.nodes) {
            (Some(scale), _) => 1 << scale,
            (None, Some(nodes)) => nodes,
            (None, None) => unreachable!("one of the two is required"),
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod typed_tests;
