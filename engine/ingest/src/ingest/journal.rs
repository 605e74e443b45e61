//! The journal of an ingest: its records, and their sum.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use grappa_formats::manifest::{ChunkEntry, FileEntry, SplitEntry};
use grappa_input::BlockId;
use grappa_io::{Result, journal::Journal};
use grappa_storage::writer::{JOURNAL, resume_journal};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use crate::ingest::{plan::SpillPlan, segments::JoinPlans, spill::Extent, stage::Stage};

/// One line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Record {
    /// The run began. Has the fingerprint and the block size of the input.
    Started(BTreeMap<String, String>, usize),
    /// The run was continued with another block size. No blocks may be recorded yet.
    BlockBytes(usize),
    /// The input was scanned for its ids.
    Scanned(Scan),
    /// All ids are in the dictionary, whose file is on disk.
    Listed(Scan, FileEntry),
    /// The table of the node permutation is on disk. Has the number of nodes of each part.
    Permuted(Vec<u64>, FileEntry),
    /// The order of nodes by time, and their times, are on disk.
    OrderedByTime(Vec<FileEntry>),
    /// The ids do not fit in memory, and were cut into segments. None: an earlier cut is not valid any more, and its files may be
    /// overwritten.
    Joining(Option<JoinPlans>),
    /// The splits that are lists of ids are on disk. Has the name of each, its number of nodes, and its file.
    Split(Vec<(String, u64, FileEntry)>),
    /// The division of a stage's records. A resumed run must use the same.
    Planned(Stage, SpillPlan),
    /// A worker has spilled these blocks. Has its extents so far, one per shard.
    Spilled { stage: Stage, worker: u32, blocks: Vec<(u32, u64)>, extents: Vec<Extent>, counts: Counts },
    /// All edges are spilled by the shard of the destination.
    EdgesSpilled,
    /// A stage's files of one chunk are on disk.
    Chunk { stage: Stage, chunk: u32, done: ChunkDone },
}

/// The size of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    pub nodes: u64,
    /// Number of edges in the input without skipped ones, or an estimate of it.
    pub edges: u64,
}

/// Counts of records that were spilled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of records read from the input.
    pub read: u64,
    /// Number of records that were skipped.
    pub rejected: u64,
    /// Those of them that are edges of nodes that the graph does not have.
    #[serde(default)]
    pub unknown_nodes: u64,
    /// The valid part of the worker's file of skipped records.
    pub rejects: Rejects,
}

/// The valid part of a file of skipped records. A killed run may have written more behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejects {
    pub bytes: u64,
    /// XXH3 of these bytes, 64 bits.
    pub checksum: u64,
}

/// A finished chunk of a stage.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChunkDone {
    /// Number of edges. 0 in the stages of features and labels.
    pub edges: u64,
    /// Number of edges by chunk of the source. Empty in the stages of features and labels.
    pub bucket_edges: Vec<u64>,
    pub files: Vec<FileEntry>,
}

/// The progress of a stage.
#[derive(Debug, Clone, Default)]
pub struct StageState {
    /// The division of its records.
    pub plan: Option<SpillPlan>,
    /// Blocks of the input whose records are spilled.
    pub blocks: BlockSet,
    /// The files of each worker, of this run and earlier ones.
    pub workers: BTreeMap<u32, Spilled>,
    /// Chunks whose files are on disk.
    pub chunks: BTreeSet<u32>,
}

/// A set of blocks. It is compressed, because large inputs have millions of blocks.
#[derive(Debug, Clone, Default)]
pub struct BlockSet {
    files: BTreeMap<u32, RoaringTreemap>,
}

impl BlockSet {
    pub fn contains(&self, id: &BlockId) -> bool {
        self.files.get(&id.file).is_some_and(|blocks| blocks.contains(id.block))
    }

    fn insert(&mut self, id: BlockId) {
        self.files.entry(id.file).or_default().insert(id.block);
    }
}

/// The files that a worker has spilled.
#[derive(Debug, Clone)]
pub struct Spilled {
    /// The valid part of each file, one per shard.
    pub extents: Vec<Extent>,
    pub counts: Counts,
}

impl StageState {
    /// The number of the next worker. No number is used twice, so no worker overwrites a file of another.
    pub fn next_worker(&self) -> u32 {
        self.workers.keys().max().map_or(0, |last| last + 1)
    }

    /// The valid part of each worker's file of a shard, with the number of the worker.
    pub fn files_of(&self, shard: u32) -> impl Iterator<Item = (u32, Extent)> {
        let workers = self.workers.iter();
        workers.map(move |(&worker, spilled)| (worker, spilled.extents[shard as usize]))
    }

    pub fn records(&self) -> u64 {
        self.workers.values().flat_map(|worker| &worker.extents).map(|extent| extent.records).sum()
    }

    /// The sum of all workers' counts. Their files of skipped records have no sum.
    pub fn counts(&self) -> Counts {
        self.workers.values().fold(Counts::default(), |sum, worker| Counts {
            read: sum.read + worker.counts.read,
            rejected: sum.rejected + worker.counts.rejected,
            unknown_nodes: sum.unknown_nodes + worker.counts.unknown_nodes,
            rejects: Rejects::default(),
        })
    }
}

/// The journal, and the sum of its records. Shared by all workers.
pub struct IngestJournal {
    journal: Journal,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    block_bytes: usize,
    edges_spilled: bool,
    scan: Option<Scan>,
    part_sizes: Option<Vec<u64>>,
    is_ordered_by_time: bool,
    join: Option<JoinPlans>,
    splits: Option<Vec<SplitEntry>>,
    /// Finished files.
    files: Vec<FileEntry>,
    /// Number of edges of each finished chunk by chunk of the source. With many chunks they take most of the memory, so there
    /// is one copy.
    bucket_edges: BTreeMap<u32, Vec<u64>>,
    stages: HashMap<Stage, StageState>,
}

impl IngestJournal {
    /// Starts a journal in `folder`, for a run with the fingerprint `options` and blocks of `block_bytes`.
    pub fn create(folder: &Path, options: BTreeMap<String, String>, block_bytes: usize) -> Result<Self> {
        let journal = Self { journal: Journal::create(&folder.join(JOURNAL))?, known: Mutex::default() };
        journal.record(Record::Started(options, block_bytes))?;
        Ok(journal)
    }

    /// Reads the journal of an earlier run in `folder`, which must have the fingerprint `options`.
    pub fn resume(folder: &Path, options: &BTreeMap<String, String>) -> Result<Self> {
        let (journal, records) = resume_journal(folder, options, |first| match first {
            Record::Started(before, _) => Some(before),
            _ => None,
        })?;
        let mut known = Known::default();
        records.into_iter().for_each(|record| known.apply(record));
        Ok(Self { journal, known: Mutex::new(known) })
    }

    /// The journal's file. It is removed when the store is finished.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join(JOURNAL)
    }

    /// The block size of the input. The block numbers in the journal are valid for this size only. Blocks of rows of
    /// features and labels depend on it too.
    pub fn block_bytes(&self) -> usize {
        self.known().block_bytes
    }

    /// Whether blocks of the input are recorded, and a resumed run may read the others.
    pub fn has_blocks(&self) -> bool {
        // The blocks of a column are all spilled when its first chunk is written.
        self.known().stages.iter().any(|(stage, progress)| match stage {
            Stage::BySource | Stage::ByTarget | Stage::Edges => !progress.workers.is_empty(),
            Stage::Features | Stage::Labels => !progress.workers.is_empty() && progress.chunks.is_empty(),
        })
    }

    /// Whether all edges are spilled by the shard of the destination.
    pub fn are_edges_spilled(&self) -> bool {
        self.known().edges_spilled
    }

    /// The size of the graph, once it is known.
    pub fn scan(&self) -> Option<Scan> {
        self.known().scan
    }

    /// The number of nodes of each part, once the table of the node permutation is on disk.
    pub fn part_sizes(&self) -> Option<Vec<u64>> {
        self.known().part_sizes.clone()
    }

    /// Whether the order of nodes by time, and their times, are on disk.
    pub fn is_ordered_by_time(&self) -> bool {
        self.known().is_ordered_by_time
    }

    /// The cut of ids into segments, if there is one.
    pub fn join(&self) -> Option<JoinPlans> {
        self.known().join.clone()
    }

    /// The splits, once those that are lists of ids are on disk.
    pub fn splits(&self) -> Option<Vec<SplitEntry>> {
        self.known().splits.clone()
    }

    pub fn stage(&self, stage: Stage) -> StageState {
        self.known().stages.get(&stage).cloned().unwrap_or_default()
    }

    /// The progress of the pass that read the input. It has the counts of edges and rejected lines.
    pub fn input_stage(&self) -> StageState {
        self.stage(self.join().map_or(Stage::Edges, |join| join.first_stage()))
    }

    /// The counts of the pass that read the input, without edges that later passes of a join rejected.
    pub fn edge_counts(&self) -> Counts {
        let mut counts = self.input_stage().counts();
        let first = self.join().map_or(Stage::Edges, |join| join.first_stage());
        for stage in [Stage::BySource, Stage::ByTarget, Stage::Edges].into_iter().filter(|&stage| stage != first) {
            let rejected = self.stage(stage).counts().rejected;
            counts.read -= rejected;
            counts.rejected += rejected;
        }
        counts
    }

    /// Number of edges that were left out because an end is no node.
    pub fn unknown_nodes(&self) -> u64 {
        let stages = [Stage::BySource, Stage::ByTarget, Stage::Edges];
        stages.into_iter().map(|stage| self.stage(stage).counts().unknown_nodes).sum()
    }

    /// Every file that is finished, sorted by path.
    pub fn files(&self) -> Vec<FileEntry> {
        let mut files = self.known().files.clone();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// The manifest's entries of all chunks, in order, once their edges are written. They are taken out of the state.
    pub fn take_chunks(&self) -> Vec<ChunkEntry> {
        let buckets = std::mem::take(&mut self.known().bucket_edges);
        buckets.into_values().map(ChunkEntry::of_buckets).collect()
    }

    /// Records that a worker has spilled `blocks`, with the extents of all its files.
    pub fn spilled(
        &self,
        stage: Stage,
        worker: u32,
        blocks: Vec<BlockId>,
        extents: &[Extent],
        counts: Counts,
    ) -> Result<()> {
        let blocks = blocks.into_iter().map(|id| (id.file, id.block)).collect();
        self.record(Record::Spilled { stage, worker, blocks, extents: extents.to_vec(), counts })
    }

    pub fn record(&self, record: Record) -> Result<()> {
        self.journal.append(&record)?;
        self.known().apply(record);
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Started(_, block_bytes) | Record::BlockBytes(block_bytes) => self.block_bytes = block_bytes,
            Record::Scanned(scan) => self.scan = Some(scan),
            Record::Listed(scan, file) => {
                self.scan = Some(scan);
                self.files.push(file);
            }
            Record::Permuted(parts, file) => {
                self.part_sizes = Some(parts);
                self.files.push(file);
            }
            Record::OrderedByTime(files) => {
                self.is_ordered_by_time = true;
                self.files.extend(files);
            }
            Record::Joining(plan) => self.join = plan,
            Record::Split(splits) => {
                let entries = splits.into_iter().map(|(name, nodes, file)| {
                    self.files.push(file);
                    SplitEntry { name, nodes }
                });
                self.splits = Some(entries.collect());
            }
            Record::Planned(stage, plan) => self.stages.entry(stage).or_default().plan = Some(plan),
            Record::Spilled { stage, worker, blocks, extents, counts } => {
                let state = self.stages.entry(stage).or_default();
                blocks.into_iter().for_each(|(file, block)| state.blocks.insert(BlockId { file, block }));
                state.workers.insert(worker, Spilled { extents, counts });
            }
            Record::EdgesSpilled => self.edges_spilled = true,
            Record::Chunk { stage, chunk, done } => {
                self.stages.entry(stage).or_default().chunks.insert(chunk);
                self.files.extend(done.files);
                if stage == Stage::Edges {
                    self.bucket_edges.insert(chunk, done.bucket_edges);
                }
            }
        }
    }
}
