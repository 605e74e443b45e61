//! The steps from external ids to nodes that come before the edges: dictionary, node permutation and chunks.

use std::{path::Path, sync::Arc};

use grappa_formats::{
    chunks::ChunkMap,
    container::FileKind,
    manifest::{ExternalIds, IdSpec, PermutationSpec},
    permutation::Feistel,
};
use grappa_io::{Error, Result, container::ContainerFile};
use grappa_storage::{
    NodePermutation, NodeTable,
    files::{DICTIONARY, PERMUTATION},
};

use crate::{
    ids::{IdMap, dictionary::Dictionary, keys::StringHash},
    ingest::{
        dense_ids, dictionary,
        input::IngestInput,
        job::IngestJob,
        journal::{Record, Scan},
        node_files::NodeFiles,
        options::{RowIds, open_edges},
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
}

/// The number of nodes, and the number of edges or an estimate of it.
pub fn scan(job: &IngestJob<'_>, input: &IngestInput) -> Result<Scan> {
    if let Some(scan) = job.journal.scan() {
        return Ok(scan);
    }
    if job.options.ids != ExternalIds::Dense {
        return scan_dictionary(job, input.nodes, &input.files);
    }
    let (edges, block_bytes) = (&input.edges, job.budget.block_bytes);
    let scan = match input.nodes {
        Some(nodes) => Scan { nodes, edges: edges.edges_hint().unwrap_or(edges.total_bytes() / TEXT_EDGE_BYTES) },
        None => dense_ids::scan(job.options, block_bytes, job.progress)?,
    };
    job.journal.record(Record::Scanned(scan))?;
    Ok(scan)
}

/// Builds the dictionary of ids that are not dense. Counts the nodes and edges.
fn scan_dictionary(job: &IngestJob<'_>, nodes: Option<u64>, files: &NodeFiles) -> Result<Scan> {
    plan::check_before_ids(job.options.layout.chunks, &job.budget)?;
    let source = open_edges(job.options, nodes, job.budget.block_bytes)?;
    let lists = files.lists_of_nodes(job.options).map(|list| list.open(job.options));
    let lists = lists.collect::<Result<_>>()?;
    job.enter("collecting ids", dictionary::leases(&job.budget))?;
    let (scan, file) = dictionary::build(&source, lists, &job.budget, job.store, job.progress)?;
    source.check()?;
    if let Some(nodes) = job.options.nodes
        && nodes != scan.nodes
    {
        let lists = files.lists_of_nodes(job.options).map(|list| match list {
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
    /// Nodes at random: every chunk is a random sample of them.
    pub fn at_random(job: &IngestJob<'_>, nodes: u64) -> Result<Self> {
        let seed = job.options.layout.seed;
        let permutation = NodePermutation::Feistel(Feistel::new(nodes, seed));
        let chunks = plan::chunk_map(nodes, job.options.layout.chunks)?;
        Self::new(job, permutation, PermutationSpec::Feistel(seed), chunks)
    }

    /// Nodes in the order of their dense ids.
    pub fn in_order(job: &IngestJob<'_>, chunks: ChunkMap) -> Result<Self> {
        Self::new(job, NodePermutation::Identity, PermutationSpec::Identity, chunks)
    }

    /// Nodes in the order of the parts in a file. Writes the table of the node permutation, unless an earlier run has.
    pub fn of_parts(job: &IngestJob<'_>, nodes: u64, path: &Path) -> Result<Self> {
        let parts = part_sizes(job, nodes, path)?;
        let chunks = plan::chunk_map_of_parts(&parts, job.options.layout.chunks)?;
        let file = ContainerFile::open(&job.store.path().join(PERMUTATION), FileKind::PERMUTATION)?;
        let table = Arc::new(NodeTable::load(file)?);
        Self::new(job, NodePermutation::Table(table), PermutationSpec::Table, chunks)
    }

    fn new(job: &IngestJob<'_>, permutation: NodePermutation, spec: PermutationSpec, chunks: ChunkMap) -> Result<Self> {
        let external = job.options.ids;
        let map = match external {
            ExternalIds::Dense => IdMap::dense(chunks.nodes(), permutation),
            ExternalIds::Sparse | ExternalIds::String => {
                let path = job.store.path().join(DICTIONARY);
                IdMap::listed(Dictionary::open(&path, StringHash::default())?, permutation)
            }
        };
        let spec = IdSpec { external, permutation: spec };
        Ok(Self { map, spec, chunks })
    }
}

fn part_sizes(job: &IngestJob<'_>, nodes: u64, path: &Path) -> Result<Vec<u64>> {
    check_table(job, nodes)?;
    if let Some(parts) = job.journal.part_sizes() {
        return Ok(parts);
    }
    let dense = job.options.ids == ExternalIds::Dense;
    let (parts, file) = permutation::build(path, nodes, dense, job.store, job.progress)?;
    job.journal.record(Record::Permuted(parts.clone(), file))?;
    Ok(parts)
}

/// Fails if the table of the node permutation does not fit the budget.
pub fn check_table(job: &IngestJob<'_>, nodes: u64) -> Result<()> {
    // Half of the user's budget is for the table, and the budget of the job is the other half.
    let wanted = permutation::memory(nodes);
    if wanted <= job.budget.memory {
        return Ok(());
    }
    Err(Error::Budget {
        operation: format!("the node permutation of {nodes} nodes, which may take half of the memory"),
        given: job.options.resources.memory,
        least: 2 * wanted,
        remedy: "raise --memory, or choose another --assign, which takes none",
    })
}
