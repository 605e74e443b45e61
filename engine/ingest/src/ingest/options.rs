//! Options and summary of an ingest.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use grappa_formats::{
    manifest::{EdgeOptions, ExternalIds, FeatureDtype, Manifest},
    schema::Schema,
};
use grappa_input::{
    ColumnReading, Comments, EdgeColumnOptions, EdgeFormat, EdgeSource, EdgeSourceOptions, EncodingOptions, HeaderLine,
    IdKind, IdLimit, Input, LabelType, LimitSource, OnBadLine, Reading, Separator, SplitSource, TableForm,
    files_of_all,
};
use grappa_io::{Error, Result, ledger::Ledger, progress::Progress, text::printable};
use grappa_storage::{read_schema, writer::with_suffix};

use crate::ingest::{edge_split::EdgeSplit, merge::MergeOption, plan::IngestBudget, shares::RandomSplit};

/// Options of [`ingest`](super::ingest).
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Edge list files, or folders of them.
    pub edges: Vec<Input>,
    /// How to read them.
    pub edge_form: EdgeForm,
    /// Whether to add reverse edges, merge parallel edges, and drop or add self-loops.
    pub edge_options: EdgeOptions,
    /// How parallel edges merge their values, if they are merged. Weights are added unless it says otherwise.
    pub merge: Vec<MergeOption>,
    /// Kind of external ids.
    pub ids: ExternalIds,
    /// The number of nodes, if known. Dense ids need no scan of the input then.
    pub nodes: Option<u64>,
    /// The file that says the number of nodes, if no option does.
    pub nodes_file: Option<PathBuf>,
    /// Features and labels.
    pub node_data: NodeData,
    /// Splits of nodes and edges.
    pub splits: SplitOptions,
    /// The order of the nodes in the store.
    pub layout: StoreLayout,
    /// Memory, threads and scratch space.
    pub resources: Resources,
    /// The store to write.
    pub out: PathBuf,
    /// Whether an existing store of this name is replaced, when the new one is complete.
    pub replace: bool,
    /// Whether to continue an unfinished run.
    pub resume: bool,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

/// How to read edge lists.
#[derive(Debug, Clone, Default)]
pub struct EdgeForm {
    /// Format of the files.
    pub format: EdgeFormat,
    /// Whether text has a header.
    pub header: HeaderLine,
    /// Whether text begins with comments.
    pub comments: Comments,
    /// The separator of text. None finds it from the first lines.
    pub separator: Option<Separator>,
    /// The columns that the user names.
    pub columns: EdgeColumnOptions,
    /// A `.npy` file with one weight per edge.
    pub weights: Option<Input>,
    /// A `.npy` file with a row of features per edge. Text and Parquet have them in columns, which [`EdgeForm::columns`] names.
    pub features: Option<Input>,
    /// What each column of features becomes. None: numbers, or what their values show.
    pub encoded: Option<Vec<ColumnReading>>,
    /// The stored type of edge features. By default f16 if the file has f16, otherwise f32.
    pub feature_dtype: Option<FeatureDtype>,
    /// Whether a malformed line is an error or skipped.
    pub on_bad_line: OnBadLine,
}

/// Features and labels of nodes.
#[derive(Debug, Clone, Default)]
pub struct NodeData {
    /// A matrix with one feature row per node, in ascending order of their ids or in the order of `ids`, or a table with ids, which are
    /// nodes even if no edge has them. Each of these files may be a folder of Parquet files.
    pub features: Option<Input>,
    /// The stored type of features. By default f16 if the file has f16, otherwise f32.
    pub feature_dtype: Option<FeatureDtype>,
    /// Whether features may be NaN or infinite.
    pub allow_nan: bool,
    /// A file with one label, or one set of labels, per node, in the same order, or a table with the ids of the nodes that have labels.
    pub labels: Option<Input>,
    /// What the values of this file are.
    pub label_type: LabelType,
    /// A file with the external id of each row of features and labels, unless they are tables with ids. Ids that are not dense are
    /// nodes even if no edge has them.
    pub ids: Option<Input>,
    /// The form of tables of features and labels.
    pub tables: TableForm,
    /// How the columns of a table of features become numbers.
    pub encoding: EncodingOptions,
}

/// Splits of nodes and edges.
#[derive(Debug, Clone, Default)]
pub struct SplitOptions {
    /// Files with the ids of each split.
    pub files: Vec<SplitFile>,
    /// How to draw the splits, instead of files.
    pub random: Option<RandomSplit>,
    /// How to hold edges out of the graph for validation and test.
    pub edges: Option<EdgeSplit>,
}

/// The order of the nodes in the store.
#[derive(Debug, Clone)]
pub struct StoreLayout {
    /// The number of chunks. None chooses by the number of nodes.
    pub chunks: Option<u32>,
    /// The node permutation.
    pub assign: Assign,
    /// Seed of the random permutation.
    pub seed: u64,
}

impl Default for StoreLayout {
    /// A random permutation with seed 0.
    fn default() -> Self {
        Self { chunks: None, assign: Assign::Random, seed: 0 }
    }
}

/// Memory, threads and scratch space of an ingest.
#[derive(Debug, Clone)]
pub struct Resources {
    /// Memory budget in bytes.
    pub memory: u64,
    /// Number of worker threads.
    pub threads: usize,
    /// Folder for scratch files. By default they are in the folder of the unfinished store.
    pub tmp: Option<PathBuf>,
}

impl Default for Resources {
    /// 2 GiB of memory and all processors.
    fn default() -> Self {
        Self { memory: 2 << 30, threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get), tmp: None }
    }
}

impl IngestOptions {
    /// Options for the edge lists `edges` with dense ids and the store `out`, and defaults otherwise.
    pub fn new(edges: Vec<impl Into<Input>>, out: PathBuf) -> Self {
        Self {
            edges: edges.into_iter().map(Into::into).collect(),
            edge_form: EdgeForm::default(),
            edge_options: EdgeOptions::default(),
            merge: Vec::new(),
            ids: ExternalIds::Dense,
            nodes: None,
            nodes_file: None,
            node_data: NodeData::default(),
            splits: SplitOptions::default(),
            layout: StoreLayout::default(),
            resources: Resources::default(),
            out,
            replace: false,
            resume: false,
            writer: concat!("grappa-engine ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// The same options with the files of folders of edges in place of the folders, the columns of a schema, and what the columns of edge
    /// features become, for which their tables may be read.
    pub(super) fn resolved(&self, progress: &dyn Progress) -> Result<Self> {
        let mut options = self.clone();
        options.edges = files_of_all(&self.edges)?;
        if let Some(EdgeSplit::Files { val, test }) = &mut options.splits.edges {
            // A file in two parts is an error, too.
            files_of_all(&[&self.edges[..], val, test].concat())?;
            (*val, *test) = (files_of_all(val)?, files_of_all(test)?);
        }
        if let Some(schema) = &self.node_data.encoding.schema {
            let names = schema.features.iter().map(|column| column.name.clone());
            options.node_data.tables.columns.schema = names.collect();
        }
        if let Some(EdgeSplit::Column { name, .. }) = &options.splits.edges {
            options.edge_form.columns.order = Some(name.clone());
        }
        let of_edges = &options.edge_form.columns.features;
        if options.node_data.features.is_none()
            && let Some(unknown) = options.node_data.encoding.missing.without(of_edges).columns().next()
        {
            return Err(Error::conflict(
                format!("--missing names the column {}, which is no feature", printable(unknown)),
                "name it with --edge-features-from if it is a column of the edges, or give the table of nodes with --features",
            ));
        }
        if !of_edges.is_empty() && options.edge_form.encoded.is_none() {
            let edges = open_edges(&options, options.nodes, FIT_BLOCK_BYTES)?;
            options.edge_form.encoded = edges.fit(&options.node_data.encoding, progress)?;
        }
        Ok(options)
    }

    /// The memory and threads of the steps. A permutation that takes memory gets half of the user's budget.
    pub(super) fn budget(&self) -> IngestBudget {
        let share = match self.layout.assign {
            Assign::Random | Assign::Range => 1,
            Assign::File(_) | Assign::Streamed { .. } => 2,
        };
        IngestBudget::new(self.resources.memory / share, share, self.resources.threads)
    }
}

/// A split, as the user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// `train`, `val` or `test`.
    pub name: &'static str,
    /// The file with its ids, or a folder of Parquet files.
    pub ids: Input,
}

impl SplitFile {
    /// The file of the split `train`, `val` or `test`.
    pub fn new(name: &'static str, ids: impl Into<Input>) -> Self {
        Self { name, ids: ids.into() }
    }
}

/// The node permutation, which decides the chunk of each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assign {
    /// Random, so that every chunk is a random sample of the nodes.
    Random,
    /// By external id, so that neighboring ids stay together.
    Range,
    /// By the parts in a file, which has a line or an array element per dense id. Each part with nodes becomes a chunk. If
    /// there are to be more chunks than parts, every part is divided evenly into the same number of chunks.
    File(PathBuf),
    /// By parts of neighboring nodes, which a streaming partitioner finds in the edges. They become chunks as the parts of a file do.
    /// Edges that a random split or a column holds out count as well.
    Streamed {
        /// The rule that chooses the part of a node.
        partitioner: Partitioner,
        /// The number of parts, from 2 to [`PARTS_MAX`].
        parts: u32,
    },
}

/// The largest number of parts of a streaming partitioner.
pub const PARTS_MAX: u32 = 4096;

/// The rule by which a streaming partitioner chooses the part of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitioner {
    /// Linear deterministic greedy (Stanton and Kliot, KDD 2012): neighbors in the part, times the share of the part that is free.
    Ldg,
    /// Fennel (Tsourakakis et al., WSDM 2014): neighbors in the part, less a cost that grows with the part.
    Fennel,
}

impl Partitioner {
    /// All partitioners.
    pub const ALL: [Self; 2] = [Self::Ldg, Self::Fennel];

    /// The word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ldg => "ldg",
            Self::Fennel => "fennel",
        }
    }
}

/// Result of [`ingest`](super::ingest).
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of edges in the store.
    pub edges: u64,
    /// Number of edges in the input.
    pub edges_read: u64,
    /// Number of malformed lines that were skipped.
    pub rejected: u64,
    /// The file that lists them, if there are any.
    pub rejects: Option<PathBuf>,
    /// Number of chunks.
    pub chunks: u32,
    /// Total length of the store's files in bytes.
    pub bytes_on_disk: u64,
    /// How the input files were read.
    pub readings: Vec<Reading>,
    /// The names of features and classes.
    pub schema: Schema,
    /// The memory of each phase of this process, by consumer.
    pub memory: Ledger,
}

impl Summary {
    /// The summary of a store that was finished.
    pub(super) fn from_manifest(manifest: &Manifest, bytes_on_disk: u64, options: &IngestOptions) -> Result<Self> {
        let schema = match manifest.has_schema() {
            true => read_schema(&options.out, manifest)?,
            false => Schema::default(),
        };
        Ok(Self {
            nodes: manifest.nodes,
            edges: manifest.edges,
            edges_read: manifest.edges_read,
            rejected: manifest.rejected,
            rejects: (manifest.rejected > 0).then(|| rejects_path(options)),
            chunks: manifest.chunks.len() as u32,
            bytes_on_disk,
            readings: Vec::new(),
            schema,
            memory: Ledger::new(options.resources.memory),
        })
    }
}

/// The file of skipped lines, beside the store.
pub(super) fn rejects_path(options: &IngestOptions) -> PathBuf {
    with_suffix(&options.out, ".rejects")
}

/// Bytes of a block while the columns of edge features are examined by one thread.
const FIT_BLOCK_BYTES: usize = 1 << 20;

/// Opens the edge lists, to be read in blocks of about `block_bytes`. Dense ids must be below `nodes`, if that is known.
pub(super) fn open_edges(options: &IngestOptions, nodes: Option<u64>, block_bytes: usize) -> Result<EdgeSource> {
    let (form, data) = (&options.edge_form, &options.node_data);
    let source_options = EdgeSourceOptions {
        format: form.format,
        header: form.header,
        comments: form.comments,
        separator: form.separator,
        columns: form.columns.clone(),
        ids: id_kind(options.ids),
        id_limit: id_limit(options.ids, nodes),
        limited_by: match options.nodes {
            Some(_) => options.nodes_file.clone().map(LimitSource::Count),
            // The number of nodes is the number of rows of a file, or not known yet.
            None if nodes.is_some() => {
                let rows = data.features.as_ref().or(data.labels.as_ref());
                rows.map(|input| LimitSource::Rows(input.name().to_owned()))
            }
            None => None,
        },
        weights: form.weights.clone(),
        features: form.features.clone(),
        encoded: form.encoded.clone(),
        // Then something else gives the nodes.
        allow_empty: match options.ids {
            ExternalIds::Dense => nodes.is_some(),
            ExternalIds::Sparse | ExternalIds::String => data.ids.is_some(),
        },
        on_bad_line: form.on_bad_line,
        // Parsed strings take up to twice the memory of parsed integers.
        block_bytes: if options.ids == ExternalIds::String { block_bytes / 2 } else { block_bytes },
    };
    let mut inputs = options.edges.clone();
    let mut parts = Vec::new();
    for (part, files) in options.splits.edges.iter().flat_map(EdgeSplit::files) {
        parts.push((part, inputs.len()..inputs.len() + files.len()));
        inputs.extend_from_slice(files);
    }
    let source = EdgeSource::open(&inputs, source_options)?;
    for (part, mut files) in parts {
        if !files.is_empty() && files.all(|file| !source.has_edges(file)) {
            return Err(Error::conflict(
                format!("the files of --{part}-edges have no edges"),
                format!("omit --{part}-edges, or give files with edges"),
            ));
        }
    }
    Ok(source)
}

/// An input with the ids of rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowIds<'a> {
    /// One id per line or element, for the rows of other files.
    List(&'a Input),
    /// A table of features or labels with the ids of its rows.
    Table(&'a Input),
}

impl RowIds<'_> {
    /// The file, or the name of the data.
    pub fn name(&self) -> &Path {
        match self {
            Self::List(input) | Self::Table(input) => input.name(),
        }
    }

    /// Opens the file.
    pub fn open(&self, options: &IngestOptions) -> Result<SplitSource> {
        let (kind, limit) = (id_kind(options.ids), id_limit(options.ids, None));
        match self {
            Self::List(input) => SplitSource::open_ordered(*input, kind, limit, &options.node_data.tables),
            Self::Table(input) => SplitSource::open_table(*input, kind, limit, &options.node_data.tables),
        }
    }
}

/// The kind of ids, for the parsers.
pub(super) fn id_kind(ids: ExternalIds) -> IdKind {
    match ids {
        ExternalIds::Dense | ExternalIds::Sparse => IdKind::Integer,
        ExternalIds::String => IdKind::String,
    }
}

/// The range of valid ids, for the parsers.
pub(super) fn id_limit(ids: ExternalIds, nodes: Option<u64>) -> IdLimit {
    match (ids, nodes) {
        (ExternalIds::Dense, Some(nodes)) => IdLimit::Nodes(nodes),
        (ExternalIds::Dense, None) => IdLimit::Dense,
        _ => IdLimit::Sparse,
    }
}

/// Advice for a file that has more rows than there are nodes.
pub(super) fn surplus_rows_remedy(options: &IngestOptions) -> &'static str {
    match options.ids {
        _ if options.node_data.ids.is_some() => "give one row for each id of --node-ids, in the same order",
        ExternalIds::Dense => "give --nodes if there are more nodes than the edges show",
        ExternalIds::Sparse | ExternalIds::String => {
            "with --ids sparse or string, the nodes are the different ids in the edges: give one row for each, in \
             ascending order of the ids, or the id of each row with --node-ids"
        }
    }
}
