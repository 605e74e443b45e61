//! The steps from external ids to nodes that come before the edges: dictionary, node permutation and chunks.

use std::{path::Path, sync::Arc};

use grappa_formats::{
    chunks::ChunkMap,
    container::FileKind,
    dictionary::KeyKind,
    manifest::{ExternalIds, IdSpec, Manifest, PermutationSpec},
    permutation::Feistel,
};
use grappa_input::{EdgeSource, IdKind};
use grappa_io::{Error, Result, container::ContainerFile};
use grappa_storage::{
    NodePermutation, NodeTable,
    files::{DICTIONARY, PERMUTATION},
};

use crate::{
    ids::{IdMap, dictionary::Dictionary, keys::StringHash},
    ingest::{
        dense_ids, dictionary,
        id_columns::IdColumns,
        job::IngestJob,
        journal::{Record, Scan},
        node_files::NodeFiles,
        node_ingest::{Assign, RowIds, id_kind},
        permutation, plan,
    },
};

/// Bytes of text per edge, for estimating the number of edges from the size of the input. Only edges between small ids take
/// less, and an estimate that is too high only makes shards smaller.
const TEXT_EDGE_BYTES: u64 = 8;

pub struct GraphIds {
    pub map: IdMap,
    pub spec: IdSpec,
    /// The chunks, which the node permutation decides.
    pub chunks: ChunkMap,
    /// Whether the user has listed the nodes of a type, so edges may have other ids.
    pub are_listed: bool,
}

/// What is known about nodes before their ids are read.
pub struct KnownNodes<'a> {
    /// The number of nodes, if it is known.
    pub number: Option<u64>,
    /// The number of edges, or an estimate of it.
    pub edges: u64,
    pub files: &'a NodeFiles,
}

/// The number of edges of a source, or an estimate of it.
pub fn edges_of(source: &EdgeSource) -> u64 {
    source.edges_hint().unwrap_or(source.total_bytes() / TEXT_EDGE_BYTES)
}

/// The number of nodes, and the number of edges or an estimate of it. Ids that are not listed are in `columns`.
pub fn scan(job: &IngestJob<'_>, columns: &[IdColumns<'_>], known: &KnownNodes<'_>) -> Result<Scan> {
    if let Some(scan) = job.journal.scan() {
        return Ok(scan);
    }
    if job.nodes.ids != ExternalIds::Dense {
        return scan_dictionary(job, columns, known.files);
    }
    let scan = match known.number {
        Some(nodes) => Scan { nodes, edges: known.edges },
        None => dense_ids::scan(columns, &job.budget, job.progress)?,
    };
    job.journal.record(Record::Scanned(scan))?;
    Ok(scan)
}

/// Builds the dictionary of ids that are not dense. Counts the nodes and edges.
fn scan_dictionary(job: &IngestJob<'_>, columns: &[IdColumns<'_>], files: &NodeFiles) -> Result<Scan> {
    plan::check_before_ids(job.nodes.layout.chunks, &job.budget)?;
    let sources = columns.iter().map(|columns| columns.reader.open(job.budget.block_bytes));
    let sources: Vec<_> = sources.collect::<Result<_>>()?;
    let lists = files.lists_of_nodes(job.nodes).map(|list| list.open(job.nodes));
    let lists = lists.collect::<Result<_>>()?;
    job.enter("collecting ids", dictionary::leases(&job.budget))?;
    let all: Vec<_> = sources.iter().zip(columns).map(|(source, columns)| (source, columns.ends)).collect();
    let kind = match id_kind(job.nodes.ids) {
        IdKind::Integer => KeyKind::Integers,
        IdKind::String => KeyKind::Strings,
    };
    let (scan, file) = dictionary::build(&all, kind, lists, &job.budget, job.store, job.progress)?;
    sources.iter().try_for_each(EdgeSource::check)?;
    if let Some(nodes) = job.nodes.number
        && nodes != scan.nodes
    {
        let lists = files.lists_of_nodes(job.nodes).map(|list| match list {
            RowIds::List(_) => " and --node-ids".to_owned(),
            RowIds::Table(input) => format!(" and {input}"),
        });
        return Err(Error::conflict(
            format!(
                "--nodes {nodes} was given, but the edges{} have {} different ids, and with --ids sparse or string \
                     these are the nodes",
                lists.collect::<String>(),
                scan.nodes
            ),
            "omit --nodes",
        ));
    }
    job.journal.record(Record::Listed(scan, file))?;
    Ok(scan)
}

impl GraphIds {
    /// The ids of `nodes` nodes in the order that the options say without reading edges.
    pub fn of_layout(job: &IngestJob<'_>, nodes: u64) -> Result<Self> {
        match &job.nodes.layout.assign {
            Assign::Random => Self::at_random(job, nodes),
            Assign::Range => Self::in_order(job, plan::chunk_map(nodes, job.nodes.layout.chunks)?),
            Assign::File(path) => Self::of_parts(job, nodes, path),
            Assign::Streamed { .. } => unreachable!("parts are streamed from edges"),
        }
    }

    /// Nodes at random: every chunk is a random sample of them.
    fn at_random(job: &IngestJob<'_>, nodes: u64) -> Result<Self> {
        let seed = job.nodes.layout.seed;
        let permutation = NodePermutation::Feistel(Feistel::new(nodes, seed));
        let chunks = plan::chunk_map(nodes, job.nodes.layout.chunks)?;
        Self::new(job, permutation, PermutationSpec::Feistel(seed), chunks)
    }

    /// Nodes in the order of their dense ids.
    pub fn in_order(job: &IngestJob<'_>, chunks: ChunkMap) -> Result<Self> {
        Self::new(job, NodePermutation::Identity, PermutationSpec::Identity, chunks)
    }

    /// Nodes in the order of the parts in a file. Writes the table of the node permutation, unless an earlier run has.
    pub fn of_parts(job: &IngestJob<'_>, nodes: u64, path: &Path) -> Result<Self> {
        let parts = part_sizes(job, nodes, path)?;
        let chunks = plan::chunk_map_of_parts(&parts, job.nodes.layout.chunks)?;
        Self::new(job, table_in(job.store.path())?, PermutationSpec::Table, chunks)
    }

    /// Nodes in the order of their times, whose table is written.
    pub fn by_time(job: &IngestJob<'_>, nodes: u64) -> Result<Self> {
        let chunks = plan::chunk_map(nodes, job.nodes.layout.chunks)?;
        Self::new(job, table_in(job.store.path())?, PermutationSpec::Table, chunks)
    }

    fn new(job: &IngestJob<'_>, permutation: NodePermutation, spec: PermutationSpec, chunks: ChunkMap) -> Result<Self> {
        let spec = IdSpec { external: job.nodes.ids, permutation: spec };
        Self::open(job.store.path(), spec, permutation, chunks)
    }

    /// The ids of the nodes of a store or a node type in `folder`, whose dictionary is complete.
    fn open(folder: &Path, spec: IdSpec, permutation: NodePermutation, chunks: ChunkMap) -> Result<Self> {
        let map = match spec.external {
            ExternalIds::Dense => IdMap::dense(chunks.nodes(), permutation),
            ExternalIds::Sparse | ExternalIds::String => {
                IdMap::listed(Dictionary::open(&folder.join(DICTIONARY), StringHash::default())?, permutation)
            }
        };
        Ok(Self { map, spec, chunks, are_listed: false })
    }

    /// The ids of a node type that is complete.
    pub fn of_type(folder: &Path, manifest: &Manifest) -> Result<Self> {
        let permutation = match manifest.ids.permutation {
            PermutationSpec::Identity => NodePermutation::Identity,
            PermutationSpec::Feistel(seed) => NodePermutation::Feistel(Feistel::new(manifest.nodes, seed)),
            PermutationSpec::Table => table_in(folder)?,
        };
        Self::open(folder, manifest.ids.clone(), permutation, manifest.chunk_map())
    }

    /// Bytes of memory of the node permutation.
    pub fn permutation_memory(&self) -> u64 {
        match self.spec.permutation {
            PermutationSpec::Identity | PermutationSpec::Feistel(_) => 0,
            PermutationSpec::Table => permutation::memory(self.chunks.nodes()),
        }
    }
}

/// The table of the node permutation in a folder.
fn table_in(folder: &Path) -> Result<NodePermutation> {
    let file = ContainerFile::open(&folder.join(PERMUTATION), FileKind::PERMUTATION)?;
    Ok(NodePermutation::Table(Arc::new(NodeTable::load(file)?)))
}

fn part_sizes(job: &IngestJob<'_>, nodes: u64, path: &Path) -> Result<Vec<u64>> {
    check_table(job, nodes)?;
    if let Some(parts) = job.journal.part_sizes() {
        return Ok(parts);
    }
    let dense = job.nodes.ids == ExternalIds::Dense;
    let (parts, file) = permutation::build(path, nodes, dense, job.store, job.progress)?;
    job.journal.record(Record::Permuted(parts.clone(), file))?;
    Ok(parts)
}

/// Fails if the table of the node permutation does not fit the budget.
pub fn check_table(job: &IngestJob<'_>, nodes: u64) -> Result<()> {
    // Half of the user's budget is for the table, and the budget of the job is the other half.
    let needed = permutation::memory(nodes);
    if needed <= job.budget.memory {
        return Ok(());
    }
    Err(Error::Budget {
        operation: format!("the node permutation of {nodes} nodes, which may take half of the memory"),
        given: job.resources.memory,
        least: 2 * needed,
        remedy: match job.nodes.is_timed() {
            true => "raise --memory, or give --node-time none for nodes without times",
            false => "raise --memory, or choose another --assign, which takes none",
        },
    })
}
