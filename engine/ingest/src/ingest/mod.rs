//! Builds a store from edge lists, within a memory budget.
//!
//! ```text
//! open all input files, so that most mistakes are found before anything is written    input, node_files
//! number of nodes; for sparse and string ids, a sorted dictionary of them             node_ids: dense_ids; dictionary, runs
//! node permutation and chunks                                                         node_ids, permutation, streamed_parts
//! data of nodes                                                                       node_data
//!     splits, if files give them                                                          splits, id_lists
//!     the node of each row of labels and features                                         row_nodes, row_set, id_lists
//!     labels: spill by shard, then write in node order                                    labels, columns
//!     random splits                                                                       random_split
//!     features, in the same way as labels                                                 features, columns
//! edges                                                                               edges
//!     join on disk, if the ids do not fit in memory                                       edges::join, segments
//!     pass 1: parse, map ids, append each edge to the spill file of its destination       edges::spill_pass
//!     pass 2: per chunk, sort the edges and encode the adjacency lists                    edges::sort_pass
//! manifest, rename                                                                    commit, grappa_storage::writer
//! ```
//!
//! All passes follow one pattern. Chunks of the graph are divided into *shards*, each so small that one thread can sort it
//! within its share of the memory. A first pass reads the input in its order and appends each record to the spill file of
//! its shard. A second pass takes the chunks one by one, reads their shards, and writes the chunk's files. `edges` draws
//! the types of both passes.
//!
//! Each step is a function of its module that takes the job (`job`: options, budget, unfinished store, journal, progress) and
//! what else it reads. The journal records what is finished, so a killed run can be resumed. The store depends on the input and
//! the options only: not on the memory budget, the number of threads, or where a run was killed.
//!
//! Disk space, beside the store: 8 bytes per edge for the spill files (16 with weights, and 8 more for every two features) while pass 1 and 2 run. Before
//! that, if the ids do not fit in memory, 32 bytes per edge (48) and 16 per node for the join.

mod columns;
mod commit;
mod dense_ids;
mod dictionary;
mod edge_split;
mod edge_values;
mod edges;
mod features;
mod fingerprint;
mod id_lists;
mod input;
mod job;
mod journal;
mod labels;
mod merge;
mod node_data;
mod node_files;
mod node_ids;
mod options;
mod permutation;
pub mod plan;
mod random_split;
mod rejects;
mod row_nodes;
mod row_set;
mod runs;
mod segments;
mod shares;
pub mod spill;
mod split_columns;
mod split_labels;
mod splits;
mod stored_labels;
mod streamed_parts;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use grappa_formats::manifest::ExternalIds;
use grappa_input::Reading;
use grappa_io::{Error, Result, durable::Destination, ledger::Ledger, progress::Progress};
use grappa_storage::writer::{StoreFolder, finished};

pub use self::{
    edge_split::EdgeSplit,
    edge_values::ValueShape,
    merge::{Merge, MergeOption},
    options::{
        Assign, EdgeForm, IngestOptions, NodeData, PARTS_MAX, Partitioner, Resources, SplitFile, SplitOptions,
        StoreLayout, Summary,
    },
    shares::{RandomSplit, Shares},
};
use self::{
    fingerprint::fingerprint,
    input::IngestInput,
    job::IngestJob,
    journal::{IngestJournal, Record, Scan},
    node_ids::GraphIds,
    options::open_edges,
    plan::IngestBudget,
};

/// Builds a store from edge lists.
///
/// # Errors
/// If the options contradict each other, an input file is malformed, memory does not suffice (the error names the budget
/// that would), or a file can't be read or written. After an I/O error, or if memory does not suffice for what
/// follows the sort of sparse or string ids, the unfinished store stays, and a run with `options.resume` continues it.
pub fn ingest(options: &IngestOptions, progress: &dyn Progress) -> Result<Summary> {
    let options = &options.resolved(progress)?;
    let budget = options.budget();
    let input = IngestInput::open(options, &budget, progress)?;
    let readings = input.readings();
    let fingerprint = fingerprint(options)?;
    let out = Destination { path: &options.out, replaces: options.replace };
    let (store, begun) = StoreFolder::begin(out, options.resources.tmp.as_deref(), options.resume)?;
    begin_or_continue(options, budget, input, fingerprint, &store, progress)
        .map(|summary| Summary { readings, ..summary })
        .map_err(|error| store.failed(begun, error))
}

/// Finds what [`ingest`] would make of each column of edges and tables, and writes nothing. All tables are read, to count missing values.
///
/// # Errors
/// As for [`ingest`], if the options contradict each other, or an input file can't be read as they say.
pub fn examine(options: &IngestOptions, progress: &dyn Progress) -> Result<Vec<Reading>> {
    let mut options = options.resolved(progress)?;
    options.node_data.encoding.examine = true;
    Ok(IngestInput::open(&options, &options.budget(), progress)?.readings())
}

/// Begins the journal of the store, or continues from the journal of an earlier run.
fn begin_or_continue(
    options: &IngestOptions,
    mut budget: IngestBudget,
    mut input: IngestInput,
    fingerprint: BTreeMap<String, String>,
    store: &StoreFolder,
    progress: &dyn Progress,
) -> Result<Summary> {
    let folder = store.path();
    let earlier = match IngestJournal::path(folder).exists() {
        true => Some(IngestJournal::resume(folder, &fingerprint)?),
        false => None,
    };
    if let Some(manifest) = store.committing(options.resources.threads, progress)? {
        let bytes_on_disk = store.commit(&manifest)?;
        return Summary::from_manifest(&manifest, bytes_on_disk, options);
    }
    let journal = match earlier {
        Some(journal) => {
            // The spill files from which they were made are removed, so damaged ones cannot be written again.
            let files = finished::with_kinds(folder, journal.files())?;
            finished::expect_sound(folder, &files, options.resources.threads, progress)?;
            journal
        }
        None => IngestJournal::create(folder, fingerprint, budget.block_bytes)?,
    };
    // The memory budget may have changed since the run began. The journal lists blocks by number, and these numbers mean the
    // same blocks only with the block size of that time.
    if journal.block_bytes() != budget.block_bytes {
        if journal.has_blocks() {
            input.edges = open_edges(options, input.nodes, journal.block_bytes())?;
            budget.block_bytes = journal.block_bytes();
        } else {
            journal.record(Record::BlockBytes(budget.block_bytes))?;
        }
    }
    let ledger = Mutex::new(Ledger::new(options.resources.memory));
    let job = IngestJob { options, budget, store, journal, progress, ledger: &ledger };
    let scan = node_ids::scan(&job, &input)?;
    let written = write_store(&job, scan, input).map_err(|error| match error {
        // To sort the ids takes long. They are kept for a run with more memory.
        Error::Budget { .. } if options.ids != ExternalIds::Dense => {
            Error::Interrupted { kept: store.kept(), source: Box::new(error) }
        }
        error => error,
    })?;
    let memory = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Summary { memory, ..written })
}

/// Writes all files of the store, and completes it.
fn write_store(job: &IngestJob<'_>, scan: Scan, input: IngestInput) -> Result<Summary> {
    let IngestInput { edges, values, files, .. } = input;
    let mut ids = match &job.options.layout.assign {
        Assign::Random => GraphIds::at_random(job, scan.nodes)?,
        Assign::Range => GraphIds::in_order(job, plan::chunk_map(scan.nodes, job.options.layout.chunks)?)?,
        Assign::File(path) => GraphIds::of_parts(job, scan.nodes, path)?,
        Assign::Streamed { partitioner, parts } => streamed_parts::open_ids(job, scan, *partitioner, *parts)?,
    };
    plan::check_buckets(&ids.chunks, u64::from(ids.chunks.chunks()))?;
    let parts = 1 + job.options.splits.edges.as_ref().map_or(0, |split| split.held_out().len() as u64);
    let held = plan::held_memory(&ids.chunks, parts, &job.budget)?;
    // Splits, labels and features come before the edges, because their mistakes are found sooner.
    let node_data = node_data::write(job, files, &mut ids)?;
    edges::write(job, &edges, &values, scan, &mut ids, held)?;
    commit::commit(job, &edges, values, ids, node_data)
}
