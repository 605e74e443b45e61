//! The command line, and its translation to the options of the engine.

use std::{
    path::{Path, PathBuf},
    thread::available_parallelism,
};

use anyhow::bail;
use clap::{Args, Parser};
use grappa_console::{
    ByteSize,
    options::{Chunks, dtypes, self_loops},
};
use grappa_engine::{
    Store,
    ingest::{
        Assign, CategoryForm, Comments, EdgeColumnOptions, EdgeForm, EdgeFormat, EdgeIngest, EdgeOptions, EdgeSplit,
        EncodingOptions, ExternalIds, FeatureDtype, HeaderLine, IngestOptions, LabelType, MergeOption, MissingOption,
        MissingOptions, NodeData, NodeIngest, NodeSplits, OnBadLine, RandomSplit, Resources, Schema, SelfLoops,
        Separator, Shares, SplitFile, StoreLayout, TableForm, TableOptions, TimeColumn, TimeUnit,
        ogb::{self, OgbLayout},
    },
};

use crate::{
    assign::parse_assign,
    choices::{
        bad_lines, category_forms, comment_lines, edge_formats, header_lines, id_kinds, label_types, time_units,
    },
    data::Data,
    type_args::TypeArgs,
};

/// The column of edges or nodes without times.
const NO_TIMES: &str = "none";

const EXAMPLES: &str = "\
Examples:
  A list of edges, with everything that training needs:
    grappa-ingest --edges edges.tsv.gz --undirected --dedup --features features.npy --labels labels.npy \\
        --train train.npy --val val.npy --test test.npy --out web.grappa

  The same with a random split of each class:
    grappa-ingest --edges edges.tsv.gz --undirected --dedup --features features.npy --labels labels.npy \\
        --split 60/20/20 --stratify --out web.grappa

  Edges between named nodes, several files, within 512 MiB of memory:
    grappa-ingest --edges part-*.csv --ids string --memory 512MiB --out web.grappa

  Tables as pandas and Spark write them, with a column of ids:
    grappa-ingest --edges edges.parquet --ids string --features nodes.parquet --labels nodes.parquet \\
        --split 60/20/20 --out web.grappa

  The same with other names of columns:
    grappa-ingest --edges edges.parquet --src customer --dst friend --ids string --features nodes.parquet \\
        --id customer --features-from age,income --labels nodes.parquet --label fraud --out web.grappa

  A dataset of the Open Graph Benchmark:
    grappa-ingest --ogb dataset/ogbn_arxiv --undirected --out arxiv.grappa";

const INPUT: &str = "Edges";
const NODES: &str = "Node data";
const CHANGES: &str = "Changes to edges";
const STORE: &str = "Store";
const RESOURCES: &str = "Resources";

/// Build a graph store from edge lists, features, labels and splits
///
/// The store is compressed and checksummed. It appears under its name only when it is complete. Memory stays within
/// --memory for graphs of any size: edges are sorted in scratch files on disk.
#[derive(Debug, Parser)]
#[command(name = "grappa-ingest", version, after_long_help = EXAMPLES)]
pub struct IngestArgs {
    #[command(flatten)]
    edges: EdgeArgs,
    /// Kind of node ids in all input files
    #[arg(long, help_heading = INPUT, default_value = "dense", value_parser = id_kinds())]
    ids: ExternalIds,
    /// Number of nodes, for --ids dense: ids are 0 to N - 1; with several node types TYPE=N or TYPE=FILE [default: largest id + 1]
    ///
    /// With several node types, --nodes paper=papers.parquet is a table of nodes with ids, and --edges author:writes:paper=writes.parquet
    /// a relation. In other options, the name of a type or relation before the value restricts it: --label paper=year.
    ///
    /// Without it, ingest reads the edges once more to find the largest id. It is required if nearly all nodes are isolated, or
    /// if there are no edges and no --features or --labels.
    #[arg(long, help_heading = INPUT, value_name = "N|TYPE=FILE")]
    nodes: Option<u64>,
    #[command(flatten)]
    node_data: NodeArgs,
    #[command(flatten)]
    splits: SplitArgs,
    #[command(flatten)]
    types: TypeArgs,
    #[command(flatten)]
    edge_splits: EdgeSplitArgs,
    #[command(flatten)]
    changes: ChangeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Messages.
    #[command(flatten)]
    pub console: grappa_console::ConsoleArgs,
}

// Edges.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT)]
struct EdgeArgs {
    /// Files with edges, or folders of them, source before destination; with several node types SOURCE:RELATION:DESTINATION=FILE
    ///
    /// Text (.gz and .zst too), .npy or .npz of shape (E, 2) or (2, E), sparse matrices of SciPy in .npz, raw integers, Parquet, or
    /// Matrix Market. Shape (2, 2) is read as (E, 2). In a folder, files whose names begin with _ or . are ignored. A duplicate file
    /// is an error.
    #[arg(long, num_args = 1.., required_unless_present_any = ["ogb", "tables", "triples", "gconstruct", "neo4j", "graphbolt", "igb"], value_name = "FILE")]
    edges: Vec<PathBuf>,
    /// Dataset folder in the layout of the Open Graph Benchmark (OGB)
    ///
    /// Replaces --edges, --features, --labels, --node-ids, --train, --val and --test. --split replaces its split. A dataset with several node
    /// types, such as ogbn-mag or MAG240M, is a graph.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["edges", "features", "labels", "node_ids", "train", "val", "test"]
    )]
    ogb: Option<PathBuf>,
    /// Format of the edge files
    #[arg(long, default_value = "auto", value_parser = edge_formats())]
    format: EdgeFormat,
    /// Whether the first line of text files with edges is a header
    ///
    /// auto: the first line is a header if it names edge columns (source and target, src and dst, ... or the names given by --src,
    /// --dst, --weight). In CSV, a first line without numbers also counts, unless --ids string is given. A warning reports how an
    /// ambiguous line is read.
    #[arg(long, default_value = "auto", value_parser = header_lines())]
    header: HeaderLine,
    /// Separator of text files with edges: tab, comma, semicolon, bar or spaces [default: found in the first lines]
    ///
    /// The summary reports the separator. Integers may also be separated by spaces or tabs.
    #[arg(long, value_name = "SEPARATOR")]
    separator: Option<Separator>,
    /// Whether first lines of text that begin with # or % are comments
    ///
    /// auto: skip them. With --ids string, a comment that parses as an edge is an error. After the first line of data, no line is a
    /// comment. The summary reports the number of comments.
    #[arg(long, default_value = "auto", value_parser = comment_lines())]
    comments: Comments,
    /// Column of sources in text or Parquet: its name, or its number, from 1
    ///
    /// Default: the column named src, source or the like; in text without a header, the first one. With --src and --dst, columns
    /// of unknown names are ignored.
    #[arg(long, value_name = "COLUMN")]
    src: Option<String>,
    /// Column of destinations, as for --src
    #[arg(long, value_name = "COLUMN")]
    dst: Option<String>,
    /// Column of edge weights in text or Parquet: its name or number, or none
    ///
    /// Default: the column named weight, and no other; in text without a header, the third of three columns.
    #[arg(long, value_name = "COLUMN", conflicts_with = "weights")]
    weight: Option<String>,
    /// Edge weights: a .npy with one number per edge, for edges that are not text
    ///
    /// The array has the order of the edges. In text and Parquet, the weight is a column; see --weight.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Column of times of edges in text or Parquet: integers, dates such as 2024-02-29, or timestamps such as 2024-02-29T12:30:05+01:00
    ///
    /// none: edges have no times. Edges with times are events: parallel edges stay, samplers draw from those that are not later than a time, and adjacency lists are
    /// in the order of time. Times are stored as exact 64-bit integers. A timestamp without a zone is in UTC. A number with a fraction is an
    /// error.
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// Unit of the times in the store, and of integers in the column [default: days for dates, the unit of timestamps, integer for integers]
    #[arg(long, value_name = "UNIT", value_parser = time_units(), requires = "time")]
    time_unit: Option<TimeUnit>,
    /// Columns of edge features in text or Parquet, separated by commas: numbers, booleans, dates, and categories
    ///
    /// Dates, categories and missing values are encoded as in --features; --missing and --categories apply to both.
    /// Reverse edges of --undirected copy the features of their edge, parallel edges keep their own unless --merge combines them, and
    /// self-loops of --self-loops add store 0.
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', conflicts_with = "edge_features")]
    edge_features_from: Vec<String>,
    /// Edge features: a .npy of shape (E, d) or (E,), with a row per edge, for edges that are not text
    #[arg(long, value_name = "FILE")]
    edge_features: Option<PathBuf>,
    /// Type of a stored edge feature [default: f16 if the file has float16, else f32]
    #[arg(long, value_parser = dtypes(), value_name = "DTYPE")]
    edge_feature_dtype: Option<FeatureDtype>,
    /// Action for lines and rows that are not an edge
    #[arg(long, default_value = "fail", value_parser = bad_lines())]
    on_bad_line: OnBadLine,
}

// Features and labels.
#[derive(Debug, Args)]
#[command(next_help_heading = NODES)]
struct NodeArgs {
    /// Node features: .npy, .npz (dense or sparse), Parquet or text, with one row of numbers per node
    ///
    /// Rows are in ascending order of ids, or in the order of --node-ids. With --ids sparse or string, the file contains one row for
    /// each distinct id in the edges and in --node-ids. Strings are ordered by their bytes: n10 before n2.
    ///
    /// A table, in Parquet or in text with a header, contains a column of ids: --id, or the column named id, user_id or the like, or
    /// the only column of names. Its rows may be in any order, one per node. With --ids sparse or string, an id that no edge uses
    /// becomes an isolated node. All other columns are features, except labels and splits: numbers, booleans, dates, and
    /// categories, which are texts with few distinct values. An ambiguous column is an error that names the options to add. Parquet
    /// may contain one column of lists instead.
    ///
    /// A folder of Parquet files is accepted wherever Parquet is: the rows of its files one after another, part.10 after part.9.
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Type of a stored feature value [default: f16 if the file has float16, else f32]
    #[arg(long, value_parser = dtypes(), value_name = "DTYPE")]
    feature_dtype: Option<FeatureDtype>,
    /// Accept features that are NaN or infinite
    #[arg(long)]
    allow_nan: bool,
    /// Replacement of missing values in a table of features, or of edges: mean, indicator, other or a number, perhaps after COLUMN=
    ///
    /// Missing values are empty cells, NA, NaN, null and the like, and nulls of Parquet. indicator: the mean, and a second dimension
    /// that is 1 where the value is missing. A missing category becomes other. Separate replacements of several columns by commas:
    /// --missing income=0,age=mean
    #[arg(long, value_name = "[COLUMN=]VALUE,..", value_delimiter = ',')]
    missing: Vec<MissingOption>,
    /// Form of categories, which are columns of text with few different values, in a table of features [default: one-hot]
    ///
    /// one-hot: a dimension for each value, and one for other values. index: the position of the value in alphabetical order.
    #[arg(long, value_parser = category_forms())]
    categories: Option<CategoryForm>,
    /// Most values of a category [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    categories_max: Option<u32>,
    /// Store whose schema encodes the tables: its columns by name, its means, categories and classes
    ///
    /// The columns of a table may be in another order. Columns that the schema lacks are ignored. An unknown category becomes other.
    /// An unknown class is an error.
    #[arg(
        long,
        value_name = "STORE",
        conflicts_with_all = ["features_from", "missing", "categories", "categories_max", "ogb"]
    )]
    schema_of: Option<PathBuf>,
    /// Node labels: .npy, .npz, Parquet or text, with one row per node
    ///
    /// Rows are in the order of --features. A row is a class number from 0, or one 0 or 1 per class if a node can be in several
    /// classes. A table may contain class names instead, which are numbered in alphabetical order. A negative number, NaN or an
    /// empty field marks an unlabelled node.
    ///
    /// A table with ids, as for --features, may omit nodes: they are unlabelled. Of several columns, ingest reads the one named
    /// label, y or class, or those that --label names.
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// What the values of --labels are: classes, numbers to predict, or zeros and ones with missing entries
    ///
    /// float: one number per node, or several. float and partial accept NaN or an empty field as a missing value.
    #[arg(long, default_value = "classes", value_parser = label_types())]
    label_type: LabelType,
    /// Column with the ids of the rows in tables of --features, --labels and lists: its name or number, or none
    ///
    /// Separate names for several tables by commas: each table uses the first name that it contains. none: rows are in ascending
    /// order of the ids.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    id: Vec<String>,
    /// Column with the label of each node, in the table of --labels; the table of --features leaves it out
    ///
    /// Several columns, separated by commas, contain a zero or one per class.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    label: Vec<String>,
    /// Columns with features, in the table of --features
    #[arg(long, value_name = "COLUMN,..", value_delimiter = ',')]
    features_from: Vec<String>,
    /// Separator of tables in text, as for --separator
    #[arg(long, value_name = "SEPARATOR")]
    table_separator: Option<Separator>,
    /// Id of each row of --features and --labels: .npy, Parquet, or text with one id per line
    ///
    /// Required for rows that are not in ascending order of ids, unless a table contains the ids. Each node is listed once. With --ids
    /// sparse or string, an id that no edge uses becomes an isolated node.
    #[arg(long, value_name = "FILE")]
    node_ids: Option<PathBuf>,
}

// Splits of nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = NODES)]
struct SplitArgs {
    /// Ids of the training nodes: .npy, Parquet, or text with one id per line
    ///
    /// With --ids dense, a .npy of type bool is a mask with one entry per node. Each id is listed once.
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// Ids or mask of the validation nodes, as for --train
    #[arg(long, value_name = "FILE")]
    val: Option<PathBuf>,
    /// Ids or mask of the test nodes, as for --train
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// Column of the table of --features or --labels with the split of each node: train, val, valid, validation, test or nothing
    ///
    /// Or columns of zeros and ones, separated by commas: train_mask,val_mask,test_mask
    #[arg(
        long,
        value_name = "COLUMN",
        value_delimiter = ',',
        conflicts_with_all = ["train", "val", "test", "split", "ogb"]
    )]
    split_column: Vec<String>,
    /// Column of times of nodes in the table of --features or --labels: integers, dates or timestamps, as for --time
    ///
    /// Each node has a time. Samplers draw from the edges whose sources are not later than a time. Nodes are in the order of time, so this
    /// takes no bits per edge; chunks are slices of time. The column is no feature. none: nodes have no times.
    #[arg(long, value_name = "COLUMN")]
    node_time: Option<String>,
    /// Unit of the times of nodes in the store, and of integers in the column [default: days for dates, integer for integers, for
    /// timestamps the coarsest of s, ms, us and ns in which all are whole]
    #[arg(long, value_name = "UNIT", value_parser = time_units(), requires = "node_time")]
    node_time_unit: Option<TimeUnit>,
    /// Split the nodes at random: percent for train, val and test, such as 60/20/20
    ///
    /// If the shares add up to less than 100, the other nodes are in no split. If there are labels, only labelled nodes are split.
    /// The split depends only on the ids, the labels, the shares and --split-seed.
    #[arg(long, value_name = "TRAIN/VAL/TEST", conflicts_with_all = ["train", "val", "test"])]
    split: Option<Shares>,
    /// Seed of --split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "split")]
    split_seed: u64,
    /// Split the nodes of each class in the shares of --split
    #[arg(long, requires = "split")]
    stratify: bool,
}

// Edges that the graph does not have.
#[derive(Debug, Args)]
#[command(next_help_heading = CHANGES)]
struct EdgeSplitArgs {
    /// Hold edges out of the graph at random, for link prediction: percent for the graph, val and test, such as 80/10/10
    ///
    /// Held-out edges are stored apart from the graph: messages do not use them. An edge, its reverse and its parallel edges are in
    /// the same part; with --undirected, a held-out edge is listed once. Each pair of nodes is drawn independently, so shares are
    /// exact on average. The split depends only on the nodes of the store (--seed, --assign), the shares and --edge-split-seed.
    #[arg(long, value_name = "TRAIN/VAL/TEST")]
    edge_split: Option<Shares>,
    /// Files with the validation edges, which the graph excludes; in the formats of --edges
    ///
    /// Edges that are also in --edges are removed from the graph; their reverses too with --undirected, and only then. Rows of
    /// --weights and --edge-features are in the order --edges, --val-edges, --test-edges.
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with = "edge_split")]
    val_edges: Vec<PathBuf>,
    /// Files with the test edges, as for --val-edges
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with = "edge_split")]
    test_edges: Vec<PathBuf>,
    /// Seed of --edge-split
    #[arg(long, value_name = "N", default_value_t = 0, requires = "edge_split")]
    edge_split_seed: u64,
    /// Column of times: the last edges are for test, those before them for val, instead of a random --edge-split
    ///
    /// A column of numbers or dates in text or Parquet, whether it is a feature or not; or the number of a feature in --edge-features,
    /// or weight. Edges with equal times are in the same part, and an edge that recurs later is held out. Times are compared as
    /// 64-bit floats.
    #[arg(long, value_name = "COLUMN", requires = "edge_split", conflicts_with = "edge_split_seed")]
    edge_split_by: Option<String>,
}

// Changes to edges.
#[derive(Debug, Args)]
#[command(next_help_heading = CHANGES)]
struct ChangeArgs {
    /// Add the reverse of each edge
    #[arg(long)]
    undirected: bool,
    /// Merge parallel edges and add their weights, unless --merge selects another rule
    #[arg(long)]
    dedup: bool,
    /// How --dedup merges the values of parallel edges: sum, mean, first, last, min or max, perhaps after COLUMN=
    ///
    /// COLUMN is a column of edge features, the number of a feature in --edge-features, from 1, or weight. first and last follow the
    /// order of the input. Separate rules for several columns by commas: amount=sum,time=last. Edge features require a rule.
    #[arg(long, value_name = "HOW", value_delimiter = ',', requires = "dedup")]
    merge: Vec<MergeOption>,
    /// Treatment of edges from a node to itself
    #[arg(long, default_value = "keep", value_parser = self_loops())]
    self_loops: SelfLoops,
}

// The store.
#[derive(Debug, Args)]
#[command(next_help_heading = STORE)]
struct StoreArgs {
    /// Store to write, usually NAME.grappa; it must not exist, unless --force is given
    #[arg(long, value_name = "STORE", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Replace the store of --out, including all additions to it, when the new one is complete
    ///
    /// Only a store is replaced. A folder with other files is an error.
    #[arg(long)]
    force: bool,
    /// Print the encoding of each column of edges and tables, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Number of chunks; partitions are groups of chunks
    ///
    /// auto: one per 4 million nodes, at least 64 and at most 1024; fewer for graphs below 2048 nodes.
    #[arg(long, value_name = "C", default_value = "auto")]
    chunks: Chunks,
    /// Assignment of nodes to chunks: random, range or file:PATH
    ///
    /// random: each chunk is a random sample of the nodes.
    /// range: by id, so that nodes with close ids share a chunk.
    /// file:PATH: by the part numbers in a file, such as the output of METIS: text with one line per node, in the order of
    /// ids, or .npy.
    /// ldg[:PARTS], fennel[:PARTS]: by parts of neighboring nodes, 16 by default, which a streaming partitioner computes from
    /// the edges. The edges are read and sorted twice.
    /// [default: random; nodes with times are in the order of time]
    #[arg(
        long,
        value_name = "random|range|file:PATH|ldg[:PARTS]|fennel[:PARTS]",
        value_parser = parse_assign,
        verbatim_doc_comment
    )]
    assign: Option<Assign>,
    /// Seed of --assign random
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Continue a run that was stopped or killed, with the same options
    #[arg(long)]
    resume: bool,
}

// Memory, threads and scratch space.
#[derive(Debug, Args)]
#[command(next_help_heading = RESOURCES)]
struct ResourceArgs {
    /// Memory limit, such as 512MiB or 2GiB
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    memory: ByteSize,
    /// Number of worker threads [default: one per processor]
    #[arg(long, value_name = "T")]
    threads: Option<std::num::NonZeroUsize>,
    /// Folder for scratch files [default: in the unfinished store]
    ///
    /// Ingest creates a folder with a random name in it. A killed run leaves this folder for --resume. If you remove the
    /// unfinished store instead, the next run with the same --out and --tmp removes the folder.
    #[arg(long, value_name = "DIR")]
    tmp: Option<PathBuf>,
}

/// The schema of a store.
fn schema_of(path: &Path) -> anyhow::Result<Schema> {
    let schema = Store::open(path)?.schema()?;
    anyhow::ensure!(
        !schema.is_empty(),
        "{}: neither features nor classes of this store have names, so it has no schema; name a store that was built from a table",
        path.display()
    );
    Ok(schema)
}

impl IngestArgs {
    /// Whether to print what would be written, and write nothing.
    pub fn is_dry_run(&self) -> bool {
        self.store.dry_run
    }

    /// The engine's options. `data`: the values of options that are data in memory.
    pub fn options(&self, mut data: Data) -> anyhow::Result<IngestOptions> {
        anyhow::ensure!(
            self.types.reverse.is_none(),
            "--reverse is for relations, as in --edges author:writes:paper=FILE; give --undirected for both directions of each edge"
        );
        let files = self.files()?;
        let named = [("train", files.train), ("val", files.valid), ("test", files.test)];
        Ok(IngestOptions {
            edges: EdgeIngest {
                files: data.inputs("edges", files.edges),
                form: self.edges.form(&mut data),
                options: EdgeOptions {
                    undirected: self.changes.undirected,
                    dedup: self.changes.dedup,
                    self_loops: self.changes.self_loops,
                },
                merge: self.changes.merge.clone(),
                split: self.edge_splits.options(&mut data)?,
            },
            nodes: NodeIngest {
                ids: self.ids,
                number: self.nodes.or(files.nodes),
                number_file: files.nodes_file.filter(|_| self.nodes.is_none()),
                data: NodeData {
                    features: data.input("features", files.features),
                    labels: data.input("labels", files.labels),
                    ids: data.input("node_ids", self.node_data.node_ids.clone()),
                    ..self.node_data.options(&self.splits)?
                },
                splits: NodeSplits {
                    files: named
                        .into_iter()
                        .filter_map(|(name, path)| Some(SplitFile { name, ids: data.input(name, path)? }))
                        .collect(),
                    random: self.splits.split.map(|shares| RandomSplit {
                        shares,
                        seed: self.splits.split_seed,
                        stratify: self.splits.stratify,
                    }),
                },
                layout: StoreLayout { chunks: self.store.chunks.0, assign: self.assign()?, seed: self.store.seed },
            },
            resources: Resources {
                memory: self.resources.memory.0,
                threads: self.resources.threads.map_or_else(available_parallelism, Ok)?.get(),
                tmp: self.resources.tmp.clone(),
            },
            out: self.store.out.clone().unwrap_or_default(),
            replace: self.store.force,
            resume: self.store.resume,
            writer: concat!("grappa-ingest ", env!("CARGO_PKG_VERSION")).to_owned(),
        })
    }

    /// The order of nodes. Nodes with times are in the order of time, which is no choice.
    fn assign(&self) -> anyhow::Result<Assign> {
        match &self.store.assign {
            Some(Assign::Random) if self.splits.time().is_some() => bail!(
                "--assign random contradicts --node-time: nodes with times are in the order of time; omit --assign"
            ),
            given => Ok(given.clone().unwrap_or(Assign::Random)),
        }
    }

    /// The input files: those named by options, or those in the OGB folder.
    fn files(&self) -> anyhow::Result<OgbLayout> {
        let split = self.splits.split;
        let Some(folder) = &self.edges.ogb else {
            return Ok(OgbLayout {
                edges: self.edges.edges.clone(),
                nodes: None,
                nodes_file: None,
                features: self.node_data.features.clone(),
                labels: self.node_data.labels.clone(),
                train: self.splits.train.clone(),
                valid: self.splits.val.clone(),
                test: self.splits.test.clone(),
            });
        };
        if !self.changes.undirected && ogb::is_undirected(folder) {
            tracing::warn!(
                "{}: the Open Graph Benchmark gives this graph both directions of each edge, and the file has one; give --undirected \
                 for the same graph",
                folder.display()
            );
        }
        let layout = ogb::discover(folder, split.is_none())?;
        if let Some(shares) = split
            && folder.join("split").is_dir()
        {
            tracing::warn!("{}: --split {shares} replaces the split of this dataset", folder.display());
        } else if split.is_none() && layout.train.is_none() {
            tracing::warn!(
                "{}: there is no split/NAME/train.csv.gz, so the store has no splits; give --split to draw them",
                folder.display()
            );
        }
        Ok(layout)
    }
}

impl EdgeArgs {
    fn form(&self, data: &mut Data) -> EdgeForm {
        EdgeForm {
            format: self.format,
            header: self.header,
            comments: self.comments,
            separator: self.separator,
            columns: EdgeColumnOptions {
                source: self.src.clone(),
                row_end: None,
                target: self.dst.clone(),
                weight: self.weight.clone(),
                features: self.edge_features_from.clone(),
                order: None,
                time: time_column(self.time.as_ref(), self.time_unit),
                relation: None,
            },
            weights: data.input("weights", self.weights.clone()),
            features: data.input("edge_features", self.edge_features.clone()),
            encoded: None,
            feature_dtype: self.edge_feature_dtype,
            on_bad_line: self.on_bad_line,
        }
    }
}

impl NodeArgs {
    fn options(&self, of_columns: &SplitArgs) -> anyhow::Result<NodeData> {
        Ok(NodeData {
            feature_dtype: self.feature_dtype,
            allow_nan: self.allow_nan,
            label_type: self.label_type,
            tables: TableForm {
                columns: TableOptions {
                    id: self.id.clone(),
                    label: self.label.clone(),
                    features: self.features_from.clone(),
                    split: of_columns.split_column.clone(),
                    time: of_columns.time(),
                    schema: Vec::new(),
                },
                separator: self.table_separator,
            },
            encoding: EncodingOptions {
                missing: MissingOptions(self.missing.clone()),
                categories: self.categories,
                categories_max: self.categories_max,
                schema: self.schema_of.as_deref().map(schema_of).transpose()?,
                examine: false,
            },
            ..NodeData::default()
        })
    }
}

impl SplitArgs {
    /// The column of times of nodes, if they have some.
    fn time(&self) -> Option<TimeColumn<String>> {
        time_column(self.node_time.as_ref(), self.node_time_unit)
    }
}

/// A column of times. None if it is called none.
fn time_column(column: Option<&String>, unit: Option<TimeUnit>) -> Option<TimeColumn<String>> {
    let column = column.filter(|column| *column != NO_TIMES)?;
    Some(TimeColumn { column: column.clone(), unit })
}

impl EdgeSplitArgs {
    fn options(&self, data: &mut Data) -> anyhow::Result<Option<EdgeSplit>> {
        Ok(match (self.edge_split, &self.edge_split_by) {
            (Some(shares), Some(column)) => Some(EdgeSplit::by_column(shares, column.clone())?),
            (Some(shares), None) => Some(EdgeSplit::random(shares, self.edge_split_seed)?),
            (None, _) if self.val_edges.is_empty() && self.test_edges.is_empty() => None,
            (None, _) => Some(EdgeSplit::Files {
                val: data.inputs("val_edges", self.val_edges.clone()),
                test: data.inputs("test_edges", self.test_edges.clone()),
            }),
        })
    }
}
