//! The command line, and what it means to the engine.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use grappa_build::ingest::{Assign, IngestOptions, SplitFile};
use grappa_console::ByteSize;
use grappa_formats::manifest::{EdgeOptions, ExternalIds, FeatureDtype, SelfLoops};
use grappa_input::{
    EdgeFormat, OnBadLine,
    ogb::{self, OgbLayout},
};

/// Make a compressed, verified graph store of edge lists, within a memory budget.
#[derive(Debug, Parser)]
#[command(name = "grappa-ingest", version)]
pub struct Args {
    /// Files of edges, source before destination: text (.gz and .zst too), .npy, raw integers, Parquet
    #[arg(long, num_args = 1.., required_unless_present = "ogb", value_name = "FILE")]
    edges: Vec<PathBuf>,
    /// A dataset's folder as OGB unpacks it, instead of --edges, --features, --labels, --train, --val and --test
    #[arg(long, value_name = "DIR", conflicts_with_all = ["edges", "features", "labels", "train", "val", "test"])]
    ogb: Option<PathBuf>,
    /// The store to make
    #[arg(long, value_name = "STORE")]
    out: PathBuf,
    /// How the files are written; by default each is told by its name and first bytes
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// What node ids are: integers from 0 with few gaps, any integers, or any text
    #[arg(long, value_enum, default_value_t = Ids::Dense)]
    ids: Ids,
    /// Number of nodes, ids 0..N; saves reading the edges once more to find it, and is needed if nearly all nodes have no
    /// edge
    #[arg(long, value_name = "N")]
    nodes: Option<u64>,
    /// A .npy of one weight per edge
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// One row of features per node: .npy, .npz (sparse too), or text
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// How features are stored; by default as precisely as the file has them, up to f32
    #[arg(long, value_enum, value_name = "DTYPE")]
    feature_dtype: Option<Dtype>,
    /// Let features be NaN or infinite
    #[arg(long)]
    allow_nan: bool,
    /// One label, or one row of 0 and 1, per node: .npy, .npz or text; negative or NaN is no label
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Ids of the nodes to train on: .npy or text
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// Ids of the nodes to validate on
    #[arg(long, value_name = "FILE")]
    val: Option<PathBuf>,
    /// Ids of the nodes to test on
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// Enter each edge in both directions
    #[arg(long)]
    undirected: bool,
    /// Merge parallel edges; their weights are added
    #[arg(long)]
    dedup: bool,
    /// What to do with edges from a node to itself; `add` gives every node exactly one
    #[arg(long, value_enum, default_value_t = Loops::Keep)]
    self_loops: Loops,
    /// Number of chunks, or auto
    #[arg(long, value_name = "C", default_value = "auto", value_parser = parse_chunks)]
    chunks: Chunks,
    /// How nodes are spread over chunks: random, range (in order of their ids), or by the parts in a file (METIS: a line
    /// for each node in order of their ids, or .npy)
    #[arg(long, value_name = "random|range|file:PATH", default_value = "random", value_parser = parse_assign)]
    assign: Assign,
    /// Selects the random order
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Memory to use, such as 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    memory: ByteSize,
    /// Worker threads; by default one per processor
    #[arg(long, value_name = "T")]
    threads: Option<std::num::NonZeroUsize>,
    /// What to do with lines that are no edges
    #[arg(long, value_enum, default_value_t = BadLine::Fail)]
    on_bad_line: BadLine,
    /// Go on with a run that was killed
    #[arg(long)]
    resume: bool,
    /// Where scratch files go; by default beside the store
    #[arg(long, value_name = "DIR")]
    tmp: Option<PathBuf>,
    #[command(flatten)]
    pub console: grappa_console::Args,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Auto,
    Tsv,
    Csv,
    Npy,
    U32,
    U64,
    Parquet,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ids {
    Dense,
    Sparse,
    String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Dtype {
    F32,
    F16,
    Bf16,
    Int8,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Loops {
    Keep,
    Drop,
    Add,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BadLine {
    Fail,
    Skip,
}

/// `auto` is `None`.
#[derive(Debug, Clone, Copy)]
struct Chunks(Option<u32>);

impl Args {
    /// The engine's options.
    pub fn options(&self) -> anyhow::Result<IngestOptions> {
        let threads = match self.threads {
            Some(threads) => threads,
            None => std::thread::available_parallelism()?,
        };
        let files = self.files()?;
        let named = [("train", files.train), ("val", files.valid), ("test", files.test)];
        let splits = named
            .into_iter()
            .filter_map(|(name, path)| Some(SplitFile { name, path: path? }))
            .collect();
        Ok(IngestOptions {
            edges: files.edges,
            out: self.out.clone(),
            format: match self.format {
                Format::Auto => EdgeFormat::Auto,
                Format::Tsv => EdgeFormat::Tsv,
                Format::Csv => EdgeFormat::Csv,
                Format::Npy => EdgeFormat::Npy,
                Format::U32 => EdgeFormat::U32,
                Format::U64 => EdgeFormat::U64,
                Format::Parquet => EdgeFormat::Parquet,
            },
            ids: match self.ids {
                Ids::Dense => ExternalIds::Dense,
                Ids::Sparse => ExternalIds::Sparse,
                Ids::String => ExternalIds::String,
            },
            nodes: self.nodes.or(files.nodes),
            features: files.features,
            feature_dtype: self.feature_dtype.map(|dtype| match dtype {
                Dtype::F32 => FeatureDtype::F32,
                Dtype::F16 => FeatureDtype::F16,
                Dtype::Bf16 => FeatureDtype::Bf16,
                Dtype::Int8 => FeatureDtype::Int8,
            }),
            allow_nan: self.allow_nan,
            labels: files.labels,
            splits,
            edge_options: EdgeOptions {
                undirected: self.undirected,
                dedup: self.dedup,
                self_loops: match self.self_loops {
                    Loops::Keep => SelfLoops::Keep,
                    Loops::Drop => SelfLoops::Drop,
                    Loops::Add => SelfLoops::Add,
                },
            },
            weights: self.weights.clone(),
            chunks: self.chunks.0,
            assign: self.assign.clone(),
            seed: self.seed,
            memory: self.memory.0,
            threads: threads.get(),
            on_bad_line: match self.on_bad_line {
                BadLine::Fail => OnBadLine::Fail,
                BadLine::Skip => OnBadLine::Skip,
            },
            resume: self.resume,
            tmp: self.tmp.clone(),
            writer: concat!("grappa-ingest ", env!("CARGO_PKG_VERSION")).to_owned(),
        })
    }
}

impl Args {
    /// The input files: those named, or those of the OGB folder.
    fn files(&self) -> anyhow::Result<OgbLayout> {
        Ok(match &self.ogb {
            Some(folder) => ogb::discover(folder)?,
            None => OgbLayout {
                edges: self.edges.clone(),
                nodes: None,
                features: self.features.clone(),
                labels: self.labels.clone(),
                train: self.train.clone(),
                valid: self.val.clone(),
                test: self.test.clone(),
            },
        })
    }
}

fn parse_chunks(text: &str) -> Result<Chunks, String> {
    match text {
        "auto" => Ok(Chunks(None)),
        _ => match text.parse() {
            Ok(chunks) if chunks > 0 => Ok(Chunks(Some(chunks))),
            _ => Err("expected `auto` or a number of chunks from 1 to 4294967295".to_owned()),
        },
    }
}

fn parse_assign(text: &str) -> Result<Assign, String> {
    match text {
        "random" => Ok(Assign::Random),
        "range" => Ok(Assign::Range),
        _ => match text.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Ok(Assign::File(path.into())),
            _ => Err("expected `random`, `range` or `file:PATH`".to_owned()),
        },
    }
}
