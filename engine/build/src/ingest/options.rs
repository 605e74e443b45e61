//! What a run is asked to do, what it did, and what makes two runs the same.

use std::{
    collections::BTreeMap,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use grappa_formats::manifest::{EdgeOptions, ExternalIds, FeatureDtype, Manifest};
use grappa_input::{EdgeFormat, EdgeSource, EdgeSourceOptions, IdKind, IdLimit, OnBadLine};
use grappa_io::{Error, Result};
use grappa_storage::writer::with_suffix;

use crate::ingest::splits::SplitFile;

/// What to ingest, and how.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Files of edges.
    pub edges: Vec<PathBuf>,
    /// The store to make.
    pub out: PathBuf,
    /// How the files are to be read.
    pub format: EdgeFormat,
    /// What external ids are.
    pub ids: ExternalIds,
    /// The number of nodes, if known: then the input is not scanned for it.
    pub nodes: Option<u64>,
    /// What to do to edges.
    pub edge_options: EdgeOptions,
    /// A `.npy` of one weight per edge.
    pub weights: Option<PathBuf>,
    /// A matrix of one row per node.
    pub features: Option<PathBuf>,
    /// How features are stored; by default as precisely as the file has them, up to f32.
    pub feature_dtype: Option<FeatureDtype>,
    /// Let features be NaN or infinite.
    pub allow_nan: bool,
    /// One label, or one set of labels, per node.
    pub labels: Option<PathBuf>,
    /// Files of the ids in a split.
    pub splits: Vec<SplitFile>,
    /// The number of chunks, if the user chose one.
    pub chunks: Option<u32>,
    /// How nodes are put in order.
    pub assign: Assign,
    /// Selects the random order.
    pub seed: u64,
    /// Bytes of memory to use.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// What to do with bad lines.
    pub on_bad_line: OnBadLine,
    /// Go on with a run that was killed.
    pub resume: bool,
    /// Where scratch files go; by default beside the store.
    pub tmp: Option<PathBuf>,
    /// Name and version of the program, for the manifest.
    pub writer: String,
}

impl IngestOptions {
    /// To make the store `out` of dense edges in `edges`, in random order with seed 0 and all by default, within 2 GiB and
    /// on all processors.
    pub fn new(edges: Vec<PathBuf>, out: PathBuf) -> Self {
        Self {
            edges,
            out,
            format: EdgeFormat::Auto,
            ids: ExternalIds::Dense,
            nodes: None,
            edge_options: EdgeOptions::default(),
            weights: None,
            features: None,
            feature_dtype: None,
            allow_nan: false,
            labels: None,
            splits: Vec::new(),
            chunks: None,
            assign: Assign::Random,
            seed: 0,
            memory: 2 << 30,
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            on_bad_line: OnBadLine::Fail,
            resume: false,
            tmp: None,
            writer: concat!("grappa-engine ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// How nodes are put in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assign {
    /// At random, so that every chunk is a random sample.
    Random,
    /// By external id, so that ids that are close stay close.
    Range,
    /// By the parts in a file: a line for each dense id, or an array. Chunks are the parts that have nodes, or, if there are
    /// to be more chunks than those, equal pieces of each, as many of each as it takes.
    File(PathBuf),
}

/// What an ingest did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of edges in the store.
    pub edges: u64,
    /// Number of edges in the input.
    pub edges_read: u64,
    /// Number of bad lines that were skipped.
    pub rejected: u64,
    /// Where they were written, if there are any.
    pub rejects: Option<PathBuf>,
    /// Number of chunks.
    pub chunks: u32,
    /// Length of all files of the store in bytes.
    pub bytes_on_disk: u64,
}

impl Summary {
    pub(super) fn of(manifest: &Manifest, bytes_on_disk: u64, options: &IngestOptions) -> Self {
        Self {
            nodes: manifest.nodes,
            edges: manifest.edges,
            edges_read: manifest.edges_read,
            rejected: manifest.rejected,
            rejects: (manifest.rejected > 0).then(|| rejects_path(options)),
            chunks: manifest.chunks.len() as u32,
            bytes_on_disk,
        }
    }
}

/// Where skipped lines are written: beside the store.
pub(super) fn rejects_path(options: &IngestOptions) -> PathBuf {
    with_suffix(&options.out, ".rejects")
}

/// The user's budget is so many times what all but the order may use: an order that takes memory gets one half.
pub(super) fn memory_share(options: &IngestOptions) -> u64 {
    match options.assign {
        Assign::Random | Assign::Range => 1,
        Assign::File(_) => 2,
    }
}

/// The file of parts, if there is one.
fn parts_path(options: &IngestOptions) -> Option<&PathBuf> {
    match &options.assign {
        Assign::Random | Assign::Range => None,
        Assign::File(path) => Some(path),
    }
}

/// Opens the files of edges, to be read in blocks of some `block_bytes`. Ids must be below `nodes`, if that is known.
pub(super) fn open_edges(options: &IngestOptions, nodes: Option<u64>, block_bytes: usize) -> Result<EdgeSource> {
    let source_options = EdgeSourceOptions {
        format: options.format,
        ids: id_kind(options.ids),
        id_limit: id_limit(options.ids, nodes),
        limited_by: match options.nodes {
            // Otherwise the number of nodes is that of the rows of a file, or not known yet.
            None if nodes.is_some() => options.features.clone().or_else(|| options.labels.clone()),
            _ => None,
        },
        weights: options.weights.clone(),
        on_bad_line: options.on_bad_line,
        // Strings take up to twice the memory of integers once they are parsed.
        block_bytes: if options.ids == ExternalIds::String {
            block_bytes / 2
        } else {
            block_bytes
        },
    };
    EdgeSource::open(&options.edges, source_options)
}

/// How ids are parsed.
pub(super) fn id_kind(ids: ExternalIds) -> IdKind {
    match ids {
        ExternalIds::Dense | ExternalIds::Sparse => IdKind::Integer,
        ExternalIds::String => IdKind::String,
    }
}

/// What ids may be.
pub(super) fn id_limit(ids: ExternalIds, nodes: Option<u64>) -> IdLimit {
    match (ids, nodes) {
        (ExternalIds::Dense, Some(nodes)) => IdLimit::Nodes(nodes),
        (ExternalIds::Dense, None) => IdLimit::Dense,
        _ => IdLimit::Sparse,
    }
}

/// What the store depends on: a run can be resumed only with the same.
pub(super) fn fingerprint(options: &IngestOptions) -> Result<BTreeMap<String, String>> {
    let mut fingerprint = BTreeMap::new();
    let mut add = |name: &str, value: String| fingerprint.insert(name.to_owned(), value);
    let splits = options.splits.iter().map(|split| &split.path);
    let rows = options.weights.iter().chain(&options.features).chain(&options.labels);
    for path in options
        .edges
        .iter()
        .chain(rows)
        .chain(splits)
        .chain(parts_path(options))
    {
        add(&format!("input {}", path.display()), version_of(path)?);
    }
    add("--format", format!("{:?}", options.format));
    add("--ids", format!("{:?}", options.ids));
    add("--nodes", format!("{:?}", options.nodes));
    add("--feature-dtype", format!("{:?}", options.feature_dtype));
    add("--allow-nan", options.allow_nan.to_string());
    add("edge options", format!("{:?}", options.edge_options));
    add("--chunks", format!("{:?}", options.chunks));
    add("--assign", format!("{:?}", options.assign));
    add("--seed", options.seed.to_string());
    add("--on-bad-line", format!("{:?}", options.on_bad_line));
    add("--tmp", format!("{:?}", options.tmp));
    add("version", options.writer.clone());
    Ok(fingerprint)
}

/// Length and modification time of a file: enough to notice that it is not the one of the earlier run.
fn version_of(path: &Path) -> Result<String> {
    let metadata = fs::metadata(path).map_err(Error::io("open", path))?;
    let modified = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(format!(
        "{} bytes of {}",
        metadata.len(),
        modified.map_or(0, |time| time.as_nanos())
    ))
}
