//! Builds a store from edge lists, within a memory budget.
//!
//! ```text
//! open all input files, so that most mistakes are found before anything is written    input, node_files
//! number of nodes; for sparse and string ids, a sorted dictionary of them             node_ids: dense_ids; dictionary, runs
//! node permutation and chunks                                                         node_ids, permutation, time_order, streamed_parts
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
mod distinct_times;
mod edge_ingest;
mod edge_split;
mod edge_values;
mod edges;
mod features;
mod fingerprint;
mod graph;
mod id_columns;
mod id_lists;
mod input;
mod job;
mod journal;
mod labels;
mod merge;
mod node_data;
mod node_files;
mod node_ids;
mod node_ingest;
mod options;
mod permutation;
pub mod plan;
mod random_split;
mod rejects;
mod resources;
mod row_nodes;
mod row_set;
mod runs;
mod segments;
mod shares;
pub mod spill;
mod split_columns;
mod split_labels;
mod splits;
mod stage;
mod stored_labels;
mod streamed_parts;
mod time_order;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use grappa_formats::manifest::{ExternalIds, Manifest};
use grappa_input::Reading;
use grappa_io::{Error, Result, durable::Destination, ledger::Ledger, progress::Progress};
use grappa_storage::writer::{StoreFolder, finished};

pub use self::{
    edge_ingest::{EdgeForm, EdgeIngest},
    edge_split::EdgeSplit,
    edge_values::ValueShape,
    graph::{
        GraphIngestOptions, GraphSummary, NodeTypeIngest, NodeTypeSummary, RELATIONS_MAX, RelationIngest,
        RelationSummary, examine_graph, ingest_graph,
    },
    merge::{Merge, MergeOption},
    node_ingest::{Assign, NodeData, NodeIngest, NodeSplits, PARTS_MAX, Partitioner, SplitFile, StoreLayout},
    options::{IngestOptions, Summary},
    resources::Resources,
    shares::{RandomSplit, Shares},
};
use self::{
    edges::{ends::EdgeEnds, input_edges::InputEdges},
    fingerprint::fingerprint,
    id_columns::IdColumns,
    input::IngestInput,
    job::IngestJob,
    journal::{IngestJournal, Record, Scan},
    node_ids::{KnownNodes, edges_of},
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
    options.nodes.data.encoding.examine = true;
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
    let block_bytes = budget.block_bytes;
    let journal = match begin_journal(store, fingerprint, &options.resources, &mut budget, progress)? {
        BegunJournal::Open(journal) => *journal,
        BegunJournal::Committed(manifest, bytes_on_disk) => {
            return Summary::from_manifest(&manifest, bytes_on_disk, options);
        }
    };
    if budget.block_bytes != block_bytes {
        input.edges = input.reader(options).open(budget.block_bytes)?;
    }
    let ledger = Mutex::new(Ledger::new(options.resources.memory));
    let IngestOptions { nodes, edges, resources, .. } = options;
    let job = IngestJob { nodes, edges, resources, budget, store, journal, progress, ledger: &ledger };
    let columns = IdColumns { reader: input.reader(options), ends: [true; 2] };
    let known = KnownNodes { number: input.nodes, edges: edges_of(&input.edges), files: &input.files };
    let scan = node_ids::scan(&job, &[columns], &known)?;
    let written = write_store(&job, scan, input, options).map_err(|error| match error {
        // To sort the ids takes long. They are kept for a run with more memory.
        Error::Budget { .. } if nodes.ids != ExternalIds::Dense => {
            Error::Interrupted { kept: store.kept(), source: Box::new(error) }
        }
        error => error,
    })?;
    let memory = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Summary { memory, ..written })
}

/// The journal of a store, or the manifest of a store that an earlier run had begun to commit, and its length in bytes.
enum BegunJournal {
    Open(Box<IngestJournal>),
    Committed(Box<Manifest>, u64),
}

/// Begins the journal of a store, or continues the journal of an earlier run, whose block size the budget gets.
fn begin_journal(
    store: &StoreFolder,
    fingerprint: BTreeMap<String, String>,
    resources: &Resources,
    budget: &mut IngestBudget,
    progress: &dyn Progress,
) -> Result<BegunJournal> {
    let folder = store.path();
    let earlier = match IngestJournal::path(folder).exists() {
        true => Some(IngestJournal::resume(folder, &fingerprint)?),
        false => None,
    };
    if let Some(manifest) = store.committing(resources.threads, progress)? {
        let bytes_on_disk = store.commit(&manifest)?;
        return Ok(BegunJournal::Committed(Box::new(manifest), bytes_on_disk));
    }
    let Some(journal) = earlier else {
        let journal = IngestJournal::create(folder, fingerprint, budget.block_bytes)?;
        return Ok(BegunJournal::Open(Box::new(journal)));
    };
    // The spill files from which they were made are removed, so damaged ones cannot be written again.
    let files = finished::with_kinds(folder, journal.files())?;
    finished::expect_sound(folder, &files, resources.threads, progress)?;
    // The memory budget may have changed since the run began. The journal lists blocks by number, and these numbers mean the
    // same blocks only with the block size of that time.
    if journal.block_bytes() != budget.block_bytes {
        if journal.has_blocks() {
            budget.block_bytes = journal.block_bytes();
        } else {
            journal.record(Record::BlockBytes(budget.block_bytes))?;
        }
    }
    Ok(BegunJournal::Open(Box::new(journal)))
}

/// Writes all files of the store, and completes it.
fn write_store(job: &IngestJob<'_>, scan: Scan, input: IngestInput, options: &IngestOptions) -> Result<Summary> {
    let reader = input.reader(options);
    let IngestInput { edges, values, mut files, .. } = input;
    let mut ids = match &job.nodes.layout.assign {
        Assign::Streamed { partitioner, parts } => streamed_parts::open_ids(job, scan, *partitioner, *parts)?,
        _ => node_data::ids_of_layout(job, &mut files, scan.nodes)?,
    };
    plan::check_buckets(&ids.chunks, u64::from(ids.chunks.chunks()))?;
    let directory_bytes = plan::directory_memory(&ids.chunks, job.edges.directories(), &job.budget)?;
    // Splits, labels and features come before the edges, because their mistakes are found sooner.
    let node_data = node_data::write(job, files, &mut ids)?;
    let input = InputEdges { reader, source: &edges, values: &values, edges: scan.edges, is_reversed: false };
    edges::write(job, &input, &mut EdgeEnds::of_one_type(&mut ids), directory_bytes)?;
    commit::commit(job, &edges, values, ids, node_data, options)
}
