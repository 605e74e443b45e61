//! Options and summary of an ingest, and the fingerprint that a resumed run must have.

use std::{
    collections::BTreeMap,
    fmt, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use grappa_formats::{
    manifest::{EdgeOptions, ExternalIds, FeatureDtype, Manifest},
    schema::{CategoryForm, Schema},
};
use grappa_input::{
    Comments, EdgeColumnOptions, EdgeFormat, EdgeSource, EdgeSourceOptions, EncodingOptions, HeaderLine, IdKind,
    IdLimit, LabelType, LimitSource, MissingOption, OnBadLine, Reading, Separator, SplitSource, TableForm, files_of,
    files_of_all,
};
use grappa_io::{Error, Result};
use grappa_storage::{read_schema, writer::with_suffix};

use crate::ingest::{edge_split::EdgeSplit, merge::MergeOption, plan::IngestBudget, shares::RandomSplit};

/// Options of [`ingest`](super::ingest).
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Edge list files, or folders of them.
    pub edges: Vec<PathBuf>,
    /// The store to write.
    pub out: PathBuf,
    /// Format of the edge list files.
    pub format: EdgeFormat,
    /// Whether edge lists in text have a header.
    pub header: HeaderLine,
    /// Whether edge lists in text begin with comments.
    pub comments: Comments,
    /// The separator of edge lists in text. None finds it from the first lines.
    pub separator: Option<Separator>,
    /// The columns of edges that the user names.
    pub edge_columns: EdgeColumnOptions,
    /// The form of tables of features and labels.
    pub tables: TableForm,
    /// Kind of external ids.
    pub ids: ExternalIds,
    /// The number of nodes, if known. Dense ids need no scan of the input then.
    pub nodes: Option<u64>,
    /// The file that says the number of nodes, if no option does.
    pub nodes_file: Option<PathBuf>,
    /// Whether to add reverse edges, merge parallel edges, and drop or add self-loops.
    pub edge_options: EdgeOptions,
    /// A `.npy` file with one weight per edge.
    pub weights: Option<PathBuf>,
    /// A `.npy` file with a row of features per edge. Text and Parquet have them in columns, which [`IngestOptions::edge_columns`] names.
    pub edge_features: Option<PathBuf>,
    /// The stored type of edge features. By default f16 if the file has f16, otherwise f32.
    pub edge_feature_dtype: Option<FeatureDtype>,
    /// How parallel edges merge their values, if they are merged. Weights are added unless it says otherwise.
    pub merge: Vec<MergeOption>,
    /// A matrix with one feature row per node, in ascending order of their ids or in the order of `node_ids`, or a table with ids, which are
    /// nodes even if no edge has them. Each of these files may be a folder of Parquet files.
    pub features: Option<PathBuf>,
    /// The stored type of features. By default f16 if the file has f16, otherwise f32.
    pub feature_dtype: Option<FeatureDtype>,
    /// How the columns of a table of features become numbers.
    pub encoding: EncodingOptions,
    /// Whether features may be NaN or infinite.
    pub allow_nan: bool,
    /// A file with one label, or one set of labels, per node, in the same order, or a table with the ids of the nodes that have labels.
    pub labels: Option<PathBuf>,
    /// What the values of this file are.
    pub label_type: LabelType,
    /// A file with the external id of each row of features and labels, unless they are tables with ids. Ids that are not dense are
    /// nodes even if no edge has them.
    pub node_ids: Option<PathBuf>,
    /// Files with the ids of each split.
    pub splits: Vec<SplitFile>,
    /// How to draw the splits, instead of files.
    pub random_split: Option<RandomSplit>,
    /// How to hold edges out of the graph for validation and test.
    pub edge_split: Option<EdgeSplit>,
    /// The number of chunks. None chooses by the number of nodes.
    pub chunks: Option<u32>,
    /// The node permutation.
    pub assign: Assign,
    /// Seed of the random permutation.
    pub seed: u64,
    /// Memory budget in bytes.
    pub memory: u64,
    /// Number of worker threads.
    pub threads: usize,
    /// Whether a malformed line is an error or skipped.
    pub on_bad_line: OnBadLine,
    /// Whether to continue an unfinished run.
    pub resume: bool,
    /// Whether an existing store of this name is replaced, when the new one is complete.
    pub replace: bool,
    /// Folder for scratch files. By default they are in the folder of the unfinished store.
    pub tmp: Option<PathBuf>,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

impl IngestOptions {
    /// Options for the edge lists `edges` with dense ids and the store `out`: a random permutation with seed 0, 2 GiB of
    /// memory, all processors, and defaults otherwise.
    pub fn new(edges: Vec<PathBuf>, out: PathBuf) -> Self {
        Self {
            edges,
            out,
            format: EdgeFormat::Auto,
            header: HeaderLine::Auto,
            comments: Comments::Auto,
            separator: None,
            edge_columns: EdgeColumnOptions::default(),
            tables: TableForm::default(),
            ids: ExternalIds::Dense,
            nodes: None,
            nodes_file: None,
            edge_options: EdgeOptions::default(),
            weights: None,
            edge_features: None,
            edge_feature_dtype: None,
            merge: Vec::new(),
            features: None,
            feature_dtype: None,
            encoding: EncodingOptions::default(),
            allow_nan: false,
            labels: None,
            label_type: LabelType::Classes,
            node_ids: None,
            splits: Vec::new(),
            random_split: None,
            edge_split: None,
            chunks: None,
            assign: Assign::Random,
            seed: 0,
            memory: 2 << 30,
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            on_bad_line: OnBadLine::Fail,
            resume: false,
            replace: false,
            tmp: None,
            writer: concat!("grappa-engine ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// The same options with the files of folders of edges in place of the folders, and the columns of a schema.
    pub(super) fn resolved(&self) -> Result<Self> {
        let mut options = self.clone();
        options.edges = files_of_all(&self.edges)?;
        if let Some(EdgeSplit::Files { val, test }) = &mut options.edge_split {
            // A file in two parts is an error, too.
            files_of_all(&[&self.edges[..], val, test].concat())?;
            (*val, *test) = (files_of_all(val)?, files_of_all(test)?);
        }
        if let Some(schema) = &self.encoding.schema {
            let names = schema.features.iter().map(|column| column.name.clone());
            options.tables.columns.schema = names.collect();
        }
        Ok(options)
    }

    /// The memory and threads of the steps. A permutation that takes memory gets half of the user's budget.
    pub(super) fn budget(&self) -> IngestBudget {
        let share = match self.assign {
            Assign::Random | Assign::Range => 1,
            Assign::File(_) | Assign::Streamed { .. } => 2,
        };
        IngestBudget::new(self.memory / share, share, self.threads)
    }
}

/// A split, as the user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitFile {
    /// `train`, `val` or `test`.
    pub name: &'static str,
    /// The file with its ids, or a folder of Parquet files.
    pub path: PathBuf,
}

impl SplitFile {
    /// The file of the split `train`, `val` or `test`.
    pub fn new(name: &'static str, path: impl Into<PathBuf>) -> Self {
        Self {
            name,
            path: path.into(),
        }
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
}

impl Summary {
    /// The summary of a store that was finished.
    pub(super) fn of(manifest: &Manifest, bytes_on_disk: u64, options: &IngestOptions) -> Result<Self> {
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
        })
    }
}

/// The file of skipped lines, beside the store.
pub(super) fn rejects_path(options: &IngestOptions) -> PathBuf {
    with_suffix(&options.out, ".rejects")
}

/// Opens the edge lists, to be read in blocks of about `block_bytes`. Dense ids must be below `nodes`, if that is known.
pub(super) fn open_edges(options: &IngestOptions, nodes: Option<u64>, block_bytes: usize) -> Result<EdgeSource> {
    let source_options = EdgeSourceOptions {
        format: options.format,
        header: options.header,
        comments: options.comments,
        separator: options.separator,
        columns: options.edge_columns.clone(),
        ids: id_kind(options.ids),
        id_limit: id_limit(options.ids, nodes),
        limited_by: match options.nodes {
            Some(_) => options.nodes_file.clone().map(LimitSource::Count),
            // The number of nodes is the number of rows of a file, or not known yet.
            None if nodes.is_some() => {
                let rows = options.features.clone().or_else(|| options.labels.clone());
                rows.map(LimitSource::Rows)
            }
            None => None,
        },
        weights: options.weights.clone(),
        features: options.edge_features.clone(),
        // Then something else gives the nodes.
        allow_empty: match options.ids {
            ExternalIds::Dense => nodes.is_some(),
            ExternalIds::Sparse | ExternalIds::String => options.node_ids.is_some(),
        },
        on_bad_line: options.on_bad_line,
        // Parsed strings take up to twice the memory of parsed integers.
        block_bytes: if options.ids == ExternalIds::String {
            block_bytes / 2
        } else {
            block_bytes
        },
    };
    let mut paths = options.edges.clone();
    let held_out = options.edge_split.as_ref().map(EdgeSplit::files).into_iter().flatten();
    let mut parts = Vec::new();
    for (part, files) in held_out {
        parts.push((part, paths.len()..paths.len() + files.len()));
        paths.extend_from_slice(files);
    }
    let source = EdgeSource::open(&paths, source_options)?;
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

/// A file with the ids of rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowIds<'a> {
    /// One id per line or element, for the rows of other files.
    List(&'a Path),
    /// A table of features or labels with the ids of its rows.
    Table(&'a Path),
}

impl RowIds<'_> {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::List(path) | Self::Table(path) => path,
        }
    }

    /// Opens the file.
    pub fn open(&self, options: &IngestOptions) -> Result<SplitSource> {
        let (kind, limit) = (id_kind(options.ids), id_limit(options.ids, None));
        match self {
            Self::List(path) => SplitSource::open_ordered(path, kind, limit, &options.tables),
            Self::Table(path) => SplitSource::open_table(path, kind, limit, &options.tables),
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
        _ if options.node_ids.is_some() => "give one row for each id of --node-ids, in the same order",
        ExternalIds::Dense => "give --nodes if there are more nodes than the edges show",
        ExternalIds::Sparse | ExternalIds::String => {
            "with --ids sparse or string, the nodes are the different ids in the edges: give one row for each, in \
             ascending order of the ids, or the id of each row with --node-ids"
        }
    }
}

/// Everything that the store depends on. A run can be resumed only with an equal fingerprint.
pub(super) fn fingerprint(options: &IngestOptions) -> Result<BTreeMap<String, String>> {
    let mut fingerprint = BTreeMap::new();
    let mut add = |name: &str, value: String| fingerprint.insert(name.to_owned(), value);
    // The journal numbers the blocks of the edges by the index of their file, so the order of files counts too.
    for (index, path) in options.edges.iter().enumerate() {
        add(&format!("edges[{index}]"), version_of(path)?);
    }
    for (part, files) in options.edge_split.iter().flat_map(EdgeSplit::files) {
        for (index, path) in files.iter().enumerate() {
            add(&format!("--{part}-edges[{index}]"), version_of(path)?);
        }
    }
    let parts = match &options.assign {
        Assign::Random | Assign::Range | Assign::Streamed { .. } => None,
        Assign::File(path) => Some(path),
    };
    let arrays = [
        ("--weights", options.weights.as_ref()),
        ("--edge-features", options.edge_features.as_ref()),
        ("--features", options.features.as_ref()),
        ("--labels", options.labels.as_ref()),
        ("--node-ids", options.node_ids.as_ref()),
        ("parts", parts),
    ];
    let arrays = arrays.into_iter().filter_map(|(role, path)| Some((role, path?)));
    let arrays = arrays.map(|(role, path)| (role.to_owned(), path));
    let splits = options.splits.iter();
    for (role, path) in arrays.chain(splits.map(|split| (format!("--{}", split.name), &split.path))) {
        if !path.is_dir() {
            add(&role, version_of(path)?);
            continue;
        }
        for (index, file) in files_of(path)?.iter().enumerate() {
            add(&format!("{role}[{index}]"), version_of(file)?);
        }
    }
    // Messages show the values, so they are written as on the command line, and defaults that have no value are left out.
    let EdgeOptions {
        undirected,
        dedup,
        self_loops,
    } = options.edge_options;
    let flags = [
        ("--undirected", undirected),
        ("--dedup", dedup),
        ("--allow-nan", options.allow_nan),
        ("--stratify", options.random_split.is_some_and(|split| split.stratify)),
    ];
    for (flag, _) in flags.into_iter().filter(|&(_, is_given)| is_given) {
        add(flag, String::new());
    }
    if options.label_type != LabelType::Classes {
        add("--label-type", format!("{:?}", options.label_type));
    }
    let tables = &options.tables;
    for (name, columns) in [
        ("--id", &tables.columns.id),
        ("--label", &tables.columns.label),
        ("--features-from", &tables.columns.features),
        ("--split-column", &tables.columns.split),
    ] {
        if !columns.is_empty() {
            add(name, columns.join(","));
        }
    }
    let EncodingOptions {
        missing,
        categories,
        categories_max,
        schema,
        examine: _,
    } = &options.encoding;
    if let Some(schema) = schema {
        let (_, digest) = schema.encode();
        add(
            "--schema-of",
            format!("a store whose schema has the digest {digest:016x}"),
        );
    }
    if !missing.0.is_empty() {
        let missing: Vec<_> = missing.0.iter().map(MissingOption::to_string).collect();
        add("--missing", missing.join(","));
    }
    if !options.merge.is_empty() {
        let merge: Vec<_> = options.merge.iter().map(MergeOption::to_string).collect();
        add("--merge", merge.join(","));
    }
    let EdgeColumnOptions {
        source,
        target,
        weight,
        features,
    } = &options.edge_columns;
    if !features.is_empty() {
        add("--edge-features-from", features.join(","));
    }
    let word_of = |separator: Option<Separator>| separator.map(|separator| separator.word().to_owned());
    let values = [
        ("--src", source.clone()),
        ("--dst", target.clone()),
        ("--weight", weight.clone()),
        ("--separator", word_of(options.separator)),
        ("--table-separator", word_of(tables.separator)),
        ("--nodes", options.nodes.map(|nodes| nodes.to_string())),
        (
            "--edge-feature-dtype",
            options.edge_feature_dtype.map(|dtype| dtype.name().to_owned()),
        ),
        (
            "--feature-dtype",
            options.feature_dtype.map(|dtype| dtype.name().to_owned()),
        ),
        ("--categories", categories.map(|form| word_of_form(form).to_owned())),
        ("--categories-max", categories_max.map(|max| max.to_string())),
        ("--split", options.random_split.map(|split| split.shares.to_string())),
        ("--split-seed", options.random_split.map(|split| split.seed.to_string())),
        (
            "--edge-split",
            options.edge_split.as_ref().and_then(EdgeSplit::describe),
        ),
        ("--chunks", options.chunks.map(|chunks| chunks.to_string())),
        ("--tmp", options.tmp.as_ref().map(|tmp| tmp.display().to_string())),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            add(name, value);
        }
    }
    // The names of these variants are the words of the command line.
    let word = |variant: &dyn fmt::Debug| format!("{variant:?}").to_lowercase();
    add("--format", word(&options.format));
    add("--header", word(&options.header));
    add("--comments", word(&options.comments));
    add("--ids", word(&options.ids));
    add("--on-bad-line", word(&options.on_bad_line));
    add("--self-loops", word(&self_loops));
    add(
        "--assign",
        match &options.assign {
            Assign::File(path) => format!("file:{}", path.display()),
            Assign::Streamed { partitioner, parts } => format!("{}:{parts}", partitioner.name()),
            assign => word(assign),
        },
    );
    add("--seed", options.seed.to_string());
    add("version", options.writer.clone());
    Ok(fingerprint)
}

/// The word of the command line for a form of categories.
fn word_of_form(form: CategoryForm) -> &'static str {
    match form {
        CategoryForm::OneHot => "one-hot",
        CategoryForm::Index => "index",
    }
}

/// Path, length and modification time of a file, to notice that it is another or changed since an earlier run.
fn version_of(path: &Path) -> Result<String> {
    let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(format!(
        "{} ({} bytes, modified at {})",
        path.display(),
        metadata.len(),
        modified.map_or(0, |time| time.as_nanos())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_comes_later_is_another_input() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("nodes");
        fs::create_dir(&parts).unwrap();
        fs::write(parts.join("part.0.parquet"), "0").unwrap();
        let mut options = IngestOptions::new(vec![parts.clone()], folder.path().join("out"));
        options.features = Some(parts.clone());
        let version = |options: &IngestOptions| fingerprint(&options.resolved().unwrap()).unwrap();
        let before = version(&options);
        fs::write(parts.join("_SUCCESS"), "").unwrap();
        assert_eq!(version(&options), before);
        fs::write(parts.join("part.1.parquet"), "1").unwrap();
        let after = version(&options);
        let new: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
        assert_eq!(new, ["--features[1]", "edges[1]"]);
        fs::write(parts.join("part.0.parquet"), "00").unwrap();
        assert_ne!(version(&options)["--features[0]"], before["--features[0]"]);
    }
}
