//! Builds a store from edge lists, within a memory budget.
//!
//! ```text
//! open all input files, so that most mistakes are found before anything is written    options, nodes
//! number of nodes; for sparse and string ids, a sorted dictionary of them             dense_ids; dictionary, runs
//! node permutation and chunks                                                         node_ids, permutation
//! splits, if files give them                                                          splits, id_lists
//! the node of each row of labels and features                                         row_nodes, row_set, id_lists
//! labels: spill by shard, then write in node order                                    nodes, columns
//! random splits                                                                       random_split
//! features, in the same way as labels                                                 nodes, columns
//! edges                                                                               edges
//!     join on disk, if the ids do not fit in memory                                       edges::join
//!     pass 1: parse, map ids, append each edge to the spill file of its destination       edges::spill_pass
//!     pass 2: per chunk, sort the edges and encode the adjacency lists                    edges::sort_pass
//! manifest, rename                                                                    grappa_storage::writer
//! ```
//!
//! All passes follow one pattern. Chunks of the graph are divided into *shards*, each so small that one thread can sort it
//! within its share of the memory. A first pass reads the input in its order and appends each record to the spill file of
//! its shard. A second pass takes the chunks one by one, reads their shards, and writes the chunk's files. `edges` draws
//! the types of both passes.
//!
//! The journal (`state`) records what is finished, so a killed run can be resumed. The store depends on the input and
//! the options only: not on the memory budget, the number of threads, or where a run was killed.
//!
//! Disk space, beside the store: 8 bytes per edge for the spill files (16 with weights) while pass 1 and 2 run. Before
//! that, if the ids do not fit in memory, 32 bytes per edge (48) and 16 per node for the join.

mod columns;
mod dense_ids;
mod dictionary;
mod edges;
mod features;
mod id_lists;
mod labels;
mod node_ids;
mod nodes;
mod options;
mod permutation;
pub mod plan;
mod random_split;
mod rejects;
mod row_nodes;
mod row_set;
mod runs;
pub mod spill;
mod split_columns;
mod split_labels;
mod splits;
mod state;
mod stored_labels;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use grappa_formats::{
    ChunkId, NODES_MAX,
    chunks::ChunkMap,
    manifest::{ExternalIds, Manifest},
};
use grappa_input::{EdgeSource, LimitSource, Reading, read_ids_from_one};
use grappa_io::{
    Error, Result,
    container::WrittenFile,
    durable::Destination,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::{
    files,
    writer::{StoreFolder, finished},
};

use self::{
    features::FeatureInput,
    id_lists::Join,
    labels::LabelInput,
    nodes::NodeFiles,
    options::{fingerprint, memory_share, open_edges, rejects_path, surplus_rows_remedy},
    plan::IngestBudget,
    rejects::RejectsFolder,
    state::{ChunkDone, Counts, Scan, Stage, State},
    stored_labels::StoredLabels,
};
pub use self::{
    options::{Assign, IngestOptions, Summary},
    random_split::{RandomSplit, Shares},
    splits::SplitFile,
};

/// The files of a chunk, complete but not synced, and their entry for the journal.
struct ChunkFiles {
    done: ChunkDone,
    files: Vec<WrittenFile>,
}

/// Bytes of text per edge, for estimating the number of edges from the size of the input. Only edges between small ids take
/// less, and an estimate that is too high only makes shards smaller.
const TEXT_EDGE_BYTES: u64 = 8;

/// Builds a store from edge lists.
///
/// # Errors
/// If the options contradict each other, an input file is malformed, memory does not suffice (the error names the budget
/// that would), or a file can't be read or written. After an I/O error, or if memory does not suffice for what
/// follows the sort of sparse or string ids, the unfinished store stays, and a run with `options.resume` continues it.
pub fn ingest(options: &IngestOptions, progress: &dyn Progress) -> Result<Summary> {
    let options = &options.resolved()?;
    let share = memory_share(options);
    let budget = IngestBudget::new(options.memory / share, share, options.threads);
    let node_files = NodeFiles::open(options, &budget, progress)?;
    node_files.check_split(options)?;
    node_files.check_node_ids(options)?;
    let nodes = known_nodes(options, &node_files);
    if let Some(nodes) = nodes.filter(|&nodes| nodes > NODES_MAX) {
        return Err(Error::limit(
            format!("the graph has {nodes} nodes"),
            format!("{NODES_MAX} (2^40)"),
            "give a smaller --nodes",
        ));
    }
    let (source, nodes) = match (open_edges(options, nodes, budget.block_bytes)?, nodes) {
        (source, None) if options.ids == ExternalIds::Dense && source.stated_nodes().is_some() => {
            let nodes = source.stated_nodes();
            (open_edges(options, nodes, budget.block_bytes)?, nodes)
        }
        opened => opened,
    };
    let readings = source.readings().into_iter().chain(node_files.readings()).collect();
    for warning in source.warnings() {
        tracing::warn!("{warning}");
    }
    let fingerprint = fingerprint(options)?;
    let out = Destination {
        path: &options.out,
        replaces: options.replace,
    };
    let (folder, begun) = StoreFolder::begin(out, options.tmp.as_deref(), options.resume)?;
    let run = Run {
        options,
        budget,
        source,
        nodes,
        folder: folder.clone(),
        progress,
    };
    let summary = run.finish(fingerprint, node_files);
    summary
        .map(|summary| Summary { readings, ..summary })
        .map_err(|error| folder.failed(begun, error))
}

/// Finds what [`ingest`] would make of each column of edges and tables, and writes nothing. All tables are read, to count missing values.
///
/// # Errors
/// As for [`ingest`], if the options contradict each other, or an input file can't be read as they say.
pub fn examine(options: &IngestOptions, progress: &dyn Progress) -> Result<Vec<Reading>> {
    let mut options = options.resolved()?;
    options.encoding.examine = true;
    let share = memory_share(&options);
    let budget = IngestBudget::new(options.memory / share, share, options.threads);
    let node_files = NodeFiles::open(&options, &budget, progress)?;
    node_files.check_split(&options)?;
    node_files.check_node_ids(&options)?;
    let source = open_edges(&options, known_nodes(&options, &node_files), budget.block_bytes)?;
    for warning in source.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(source.readings().into_iter().chain(node_files.readings()).collect())
}

/// The number of nodes, if an option or a file tells it before edges are read.
fn known_nodes(options: &IngestOptions, files: &NodeFiles) -> Option<u64> {
    let rows = || files.rows().filter(|_| options.ids == ExternalIds::Dense);
    options.nodes.or_else(rows)
}

struct Run<'a> {
    options: &'a IngestOptions,
    budget: IngestBudget,
    source: EdgeSource,
    /// The number of nodes, if it is known before the edges are read.
    nodes: Option<u64>,
    folder: StoreFolder,
    progress: &'a dyn Progress,
}

impl Run<'_> {
    fn finish(mut self, fingerprint: BTreeMap<String, String>, node_files: NodeFiles) -> Result<Summary> {
        let folder = self.folder.path();
        let journal = match State::path(folder).exists() {
            true => Some(State::resume(folder, fingerprint.clone())?),
            false => None,
        };
        if let Some(manifest) = self.folder.committing(self.options.threads, self.progress)? {
            let bytes_on_disk = self.folder.commit(&manifest)?;
            return Summary::of(&manifest, bytes_on_disk, self.options);
        }
        let state = match journal {
            Some(state) => {
                // The spill files from which they were made are removed, so damaged ones cannot be written again.
                let files = finished::with_kinds(folder, state.files())?;
                finished::expect_sound(folder, &files, self.options.threads, self.progress)?;
                state
            }
            None => State::create(folder, fingerprint, self.budget.block_bytes)?,
        };
        // The memory budget may have changed since the run began. The journal lists blocks by number, and these numbers mean the
        // same blocks only with the block size of that time.
        if state.block_bytes() != self.budget.block_bytes {
            if state.has_blocks() {
                self.source = open_edges(self.options, self.nodes, state.block_bytes())?;
                self.budget.block_bytes = state.block_bytes();
            } else {
                state.reblocked(self.budget.block_bytes)?;
            }
        }
        let scan = self.scan(&state, &node_files)?;
        let kept = self.folder.kept();
        let ids_are_listed = self.options.ids != ExternalIds::Dense;
        self.build(&state, scan, node_files).map_err(|error| match error {
            // To sort the ids takes long. They are kept for a run with more memory.
            Error::Budget { .. } if ids_are_listed => Error::Interrupted {
                kept,
                source: Box::new(error),
            },
            error => error,
        })
    }

    /// Makes the store after the ids are known.
    fn build(self, state: &State, scan: Scan, node_files: NodeFiles) -> Result<Summary> {
        let (permutation, permutation_spec, chunks) = self.permutation(state, scan.nodes)?;
        let (mut ids, id_spec) = self.id_map(scan.nodes, permutation, permutation_spec)?;
        plan::check_buckets(&chunks, u64::from(chunks.chunks()))?;
        let held = plan::held_memory(&chunks, &self.budget)?;

        let rejects = RejectsFolder::new(self.folder.lasting_scratch());
        // Splits, labels and features come before the edges, because their mistakes are found sooner. The table of ids makes
        // the lookups of splits and rows fast; it is freed for the rest. If it does not fit, long lists are joined in the segments of ids
        // that edges need later. A resumed run that has come to the edges has looked up all lists.
        let splits_are_listed = !self.options.splits.is_empty() && state.splits().is_none();
        let listed = splits_are_listed || node_files.has_lists(self.options);
        let join = match listed && state.stage(Stage::Edges).plan.is_none() {
            true if ids.table_memory() <= self.budget.memory / 2 => {
                ids.load()?;
                None
            }
            true => self.plan_join(state, &mut ids)?,
            false => None,
        };
        let scratch = self.folder.lasting_scratch().to_owned();
        let join = join.as_ref().map(|plan| Join {
            plan,
            scratch: &scratch,
        });
        let mut splits = (self.splits(state, &ids, join, scan.nodes)?, Vec::new());
        let rows = self.row_nodes(state, &ids, join, scan.nodes, &node_files)?;
        ids.unload();
        if node_files.splits.is_some() {
            splits.0 = self.column_splits(state, &node_files, &rows, scan.nodes)?;
        }
        let listed = split_columns::listed(self.options, node_files.splits.as_ref());
        let if_more = surplus_rows_remedy(self.options);
        let mut schema = node_files.schema_of_features();
        let labels = match node_files.labels {
            Some(source) => {
                let input = LabelInput::new(source, scan.nodes, if_more)?;
                if let Some(schema) = &self.options.encoding.schema {
                    input.check_classes_of(schema)?;
                }
                schema.classes = input.class_names();
                Some(self.labels(state, &chunks, rows.labels(), input)?)
            }
            None => None,
        };
        let stored_labels = labels.map(|spec| StoredLabels {
            store: self.folder.path().to_owned(),
            spec,
        });
        if let Some(split) = self.options.random_split {
            splits = self.random_split(split, &chunks, ids.permutation(), stored_labels.as_ref())?;
        }
        if let Some(labels) = &stored_labels {
            self.check_split_labels(&listed, &splits.0, &chunks, labels, &ids)?;
        }
        if let Some(labels) = &stored_labels
            && splits.0.iter().any(|split| split.name == "train")
        {
            self.check_training_classes(&chunks, labels)?;
        }
        let features = match node_files.features {
            Some(matrix) => {
                let (dtype, allow_nan) = (self.options.feature_dtype, self.options.allow_nan);
                let id_of_row = |row| ids.external(rows.features().node(row)?);
                let input = FeatureInput::new(matrix, dtype, scan.nodes, if_more, allow_nan, &id_of_row)?;
                Some(self.features(state, &chunks, rows.features(), input)?)
            }
            None => None,
        };
        drop(rows);
        self.edges(state, scan, &chunks, held, &mut ids, &rejects)?;
        let entries = state.take_chunks();
        let input = self.input_stage(state);
        let mut files = [state.files(), splits.1].concat();
        if !schema.is_empty() {
            files.push(self.folder.write_file(files::SCHEMA, schema.encode())?);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Manifest {
            writer: self.writer(),
            nodes: scan.nodes,
            edges: entries.iter().map(|chunk| chunk.edges).sum(),
            chunk_starts: chunks.starts().to_vec(),
            chunks: entries,
            ids: id_spec,
            features,
            labels,
            splits: splits.0,
            weighted: self.source.weighted(),
            edge_options: self.options.edge_options,
            edges_read: input.counts().read,
            rejected: input.counts().rejected,
            generator: String::new(),
            files,
        };
        if manifest.rejected > 0 {
            rejects.collect(&input, &rejects_path(self.options))?;
            self.warn_of_unknown_nodes(input.counts(), scan.nodes);
        }
        self.warn_of_ids_from_one(scan.nodes);
        let bytes_on_disk = self.folder.commit(&manifest)?;
        Summary::of(&manifest, bytes_on_disk, self.options)
    }

    /// Warns about edges that were skipped although their lines are well formed.
    fn warn_of_unknown_nodes(&self, counts: Counts, nodes: u64) {
        let Counts {
            rejected,
            unknown_nodes,
            ..
        } = counts;
        if unknown_nodes == 0 {
            return;
        }
        let why = match &self.source.options().limited_by {
            Some(LimitSource::Rows(file)) => format!(
                "name nodes without a row in {}, which has {nodes}; add the rows, if these nodes exist",
                file.display()
            ),
            Some(LimitSource::Count(file)) => format!(
                "name nodes that are not below {nodes}, the number of nodes in {}; raise it, if these nodes exist",
                file.display()
            ),
            None => format!("name nodes that are not below --nodes {nodes}; raise it, if these nodes exist"),
        };
        let others = match rejected - unknown_nodes {
            0 => String::new(),
            others => format!("; {others} more lines were left out because they are no edges"),
        };
        tracing::warn!("{unknown_nodes} edges were left out because they {why}{others}");
    }

    /// Warns about dense ids that seem to count from 1: node 0 has no edges.
    fn warn_of_ids_from_one(&self, nodes: u64) {
        if self.options.ids != ExternalIds::Dense || !self.source.counts_from_one() {
            return;
        }
        tracing::warn!(
            "no edge has node 0, and node 1 has edges: if ids count from 1, node 0 is one too many, and rows of features and labels \
             belong to other nodes; {}",
            read_ids_from_one(nodes - 1)
        );
    }

    /// The program, and the options of a random split.
    fn writer(&self) -> String {
        let program = &self.options.writer;
        match &self.options.random_split {
            Some(split) => format!("{program}; split: {}", split.describe()),
            None => program.clone(),
        }
    }

    /// The number of nodes, and the number of edges or an estimate of it.
    fn scan(&self, state: &State, files: &NodeFiles) -> Result<Scan> {
        if let Some(scan) = state.scan() {
            return Ok(scan);
        }
        if self.options.ids != ExternalIds::Dense {
            return self.scan_dictionary(state, files);
        }
        let scan = match self.nodes {
            Some(nodes) => Scan {
                nodes,
                edges: self
                    .source
                    .edges_hint()
                    .unwrap_or(self.source.total_bytes() / TEXT_EDGE_BYTES),
            },
            None => dense_ids::scan(self.options, self.budget.block_bytes, self.progress)?,
        };
        state.scanned(scan)?;
        Ok(scan)
    }

    /// Calls `write`, on all threads, for each chunk that the journal does not list as finished. Other threads sync the
    /// files, record the chunk in the journal, and then call `after`.
    fn write_chunks(
        &self,
        stage: Stage,
        state: &State,
        chunks: &ChunkMap,
        write: impl Fn(ChunkId) -> Result<ChunkFiles> + Sync,
        after: impl Fn(ChunkId) -> Result<()> + Sync,
    ) -> Result<()> {
        let before = state.stage(stage).chunks;
        let missing: Vec<_> = (0..chunks.chunks())
            .filter(|chunk| !before.contains(chunk))
            .map(ChunkId)
            .collect();
        self.folder.write_chunks(
            self.options.threads,
            &missing,
            |chunk| write(chunk).map(|ChunkFiles { done, files }| (done, files)),
            |chunk, mut done, files| {
                done.files = files
                    .into_iter()
                    .map(|file| (file.path, file.bytes, file.digest))
                    .collect();
                state.chunk_done(stage, chunk, done)?;
                after(chunk)
            },
        )
    }
    /// Calls `visit` for each chunk, on all threads, with a value of its own for each call, and joins these values.
    fn sum_chunks<T: Send>(
        &self,
        chunks: &ChunkMap,
        new: impl Fn() -> T + Sync,
        visit: impl Fn(ChunkId, &mut T) -> Result<()> + Sync,
        join: impl Fn(&mut T, T) + Sync,
    ) -> Result<T> {
        let all: Vec<_> = (0..chunks.chunks()).map(ChunkId).collect();
        let sum = Mutex::new(new());
        workers::for_each(self.options.threads, &all, |chunk| {
            check_stopped(self.progress)?;
            let mut part = new();
            visit(chunk, &mut part)?;
            join(&mut sum.lock().unwrap_or_else(PoisonError::into_inner), part);
            Ok(())
        })?;
        Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
