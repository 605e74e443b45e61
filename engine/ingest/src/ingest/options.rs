//! Options and summary of an ingest.

use std::path::{Path, PathBuf};

use grappa_formats::{manifest::Manifest, schema::Schema};
use grappa_input::{Input, Reading};
use grappa_io::{Error, Result, ledger::Ledger, progress::Progress, text::printable};
use grappa_storage::{read_schema, writer::with_suffix};

use crate::ingest::{
    edge_ingest::{EdgeIngest, EndNodes},
    node_ingest::{NodeIngest, two_orders},
    plan::IngestBudget,
    resources::Resources,
};

/// Options of [`ingest`](super::ingest).
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// The nodes.
    pub nodes: NodeIngest,
    /// The edges.
    pub edges: EdgeIngest,
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

/// The default of [`IngestOptions::writer`].
pub(super) const WRITER: &str = concat!("grappa-engine ", env!("CARGO_PKG_VERSION"));

impl IngestOptions {
    /// Options for the edge lists `edges` with dense ids and the store `out`, and defaults otherwise.
    pub fn new(edges: Vec<impl Into<Input>>, out: PathBuf) -> Self {
        Self {
            nodes: NodeIngest::default(),
            edges: EdgeIngest { files: edges.into_iter().map(Into::into).collect(), ..EdgeIngest::default() },
            resources: Resources::default(),
            out,
            replace: false,
            resume: false,
            writer: WRITER.to_owned(),
        }
    }

    /// The same options with the files of folders of edges in place of the folders, the columns of a schema, and what the columns of edge
    /// features become, for which their tables may be read.
    pub(super) fn resolved(&self, progress: &dyn Progress) -> Result<Self> {
        let mut options = self.clone();
        let Self { nodes, edges, .. } = &mut options;
        edges.resolve_files()?;
        nodes.resolve();
        if nodes.is_timed() && edges.form.columns.time.is_some() {
            return Err(two_orders("both edges and nodes have times", "omit --time, or --node-time"));
        }
        nodes.resolve_times(progress)?;
        let encoding = &nodes.data.encoding;
        if nodes.data.features.is_none()
            && let Some(unknown) = encoding.missing.without(&edges.form.columns.features).columns().next()
        {
            return Err(Error::conflict(
                format!("--missing names the column {}, which is no feature", printable(unknown)),
                "name it with --edge-features-from if it is a column of the edges, or give the table of nodes with --features",
            ));
        }
        edges.resolve_columns(EndNodes::both(nodes, nodes.number), encoding, progress)?;
        Ok(options)
    }

    /// The memory and threads of the steps.
    pub(super) fn budget(&self) -> IngestBudget {
        self.nodes.budget(&self.resources)
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
            rejects: (manifest.rejected > 0).then(|| rejects_path(&options.out)),
            chunks: manifest.chunks.len() as u32,
            bytes_on_disk,
            readings: Vec::new(),
            schema,
            memory: Ledger::new(options.resources.memory),
        })
    }
}

/// The file of skipped lines, beside the store.
pub(super) fn rejects_path(out: &Path) -> PathBuf {
    with_suffix(out, ".rejects")
}
