//! What a run has finished: the records of its journal, and what they add up to.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use grappa_formats::{
    ChunkId,
    manifest::{ChunkEntry, FileEntry},
};
use grappa_input::BlockId;
use grappa_io::{Result, journal::Journal};
use grappa_storage::writer::{JOURNAL, not_begun, same_options};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use crate::ingest::{join::JoinPlan, plan::SpillPlan, spill::Extent};

/// The stages whose records are spilled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Edges, by the segment of their source's id.
    BySource,
    /// Edges, by the segment of their destination's id.
    ByTarget,
    /// Edges, by destination.
    Edges,
    /// Feature rows, by node.
    Features,
    /// Labels, by node.
    Labels,
}

/// One line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Record {
    /// The run began: name and value of each option that the store depends on, and how large the blocks are that the
    /// input is cut into.
    Started(BTreeMap<String, String>, usize),
    /// The input was scanned for its ids.
    Scanned(Scan),
    /// All ids are in the dictionary, whose file is on disk.
    Listed(Scan, NamedFile),
    /// The order is on disk; so many nodes each part has.
    Ordered(Vec<u64>, NamedFile),
    /// Ids do not fit memory, and were cut into segments.
    Joining(JoinPlan),
    /// How a stage divides its records; a resumed run must divide them alike.
    Planned(Stage, SpillPlan),
    /// A worker has spilled these blocks; its extents so far, one a shard.
    Spilled {
        stage: Stage,
        worker: u32,
        blocks: Vec<(u32, u64)>,
        extents: Vec<Extent>,
        counts: Counts,
    },
    /// A stage's files of one chunk are on disk.
    Chunk { stage: Stage, chunk: u32, done: ChunkDone },
}

/// What the scan for ids found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of edges in the input, without rejected ones.
    pub edges: u64,
}

/// What was counted while records were spilled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records read from the input.
    pub read: u64,
    /// Records that were bad and skipped.
    pub rejected: u64,
    /// Bytes that count of the worker's file of skipped records.
    pub reject_bytes: u64,
}

/// A finished chunk of a stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkDone {
    /// Edges, if this is the stage of edges.
    pub edges: u64,
    /// Edges by chunk of their source, if this is the stage of edges.
    pub bucket_edges: Vec<u64>,
    /// The files.
    pub files: Vec<NamedFile>,
}

/// Path in the store, bytes and digest of a finished file.
pub type NamedFile = (String, u64, u64);

impl ChunkDone {
    /// The manifest's entry for the chunk.
    pub fn entry(&self) -> ChunkEntry {
        ChunkEntry {
            present: true,
            edges: self.edges,
            bucket_edges: self.bucket_edges.clone(),
        }
    }
}

/// What one stage has finished.
#[derive(Debug, Clone, Default)]
pub struct StageState {
    /// How it divides its records.
    pub plan: Option<SpillPlan>,
    /// Blocks of input whose records are spilled.
    pub blocks: BlockSet,
    /// What each worker has spilled, of this run and those before it.
    pub workers: BTreeMap<u32, Spilled>,
    /// Chunks whose files are on disk.
    pub chunks: BTreeMap<u32, ChunkDone>,
}

/// A set of blocks; huge inputs have millions, so a few bytes each are too many.
#[derive(Debug, Clone, Default)]
pub struct BlockSet {
    files: BTreeMap<u32, RoaringTreemap>,
}

impl BlockSet {
    /// Whether a block is in the set.
    pub fn contains(&self, id: &BlockId) -> bool {
        self.files.get(&id.file).is_some_and(|blocks| blocks.contains(id.block))
    }

    fn insert(&mut self, id: BlockId) {
        self.files.entry(id.file).or_default().insert(id.block);
    }
}

/// What a worker has spilled.
#[derive(Debug, Clone)]
pub struct Spilled {
    /// What counts of its spill files: one extent a shard.
    pub extents: Vec<Extent>,
    /// What it counted.
    pub counts: Counts,
}

impl StageState {
    /// The number of the next worker. Numbers are never used twice, so nobody appends to a file that counts.
    pub fn next_worker(&self) -> u32 {
        self.workers.keys().max().map_or(0, |last| last + 1)
    }

    /// Number of records spilled.
    pub fn records(&self) -> u64 {
        self.workers
            .values()
            .flat_map(|worker| &worker.extents)
            .map(|extent| extent.records)
            .sum()
    }

    /// What all workers counted together.
    pub fn counts(&self) -> Counts {
        self.workers.values().fold(Counts::default(), |sum, worker| Counts {
            read: sum.read + worker.counts.read,
            rejected: sum.rejected + worker.counts.rejected,
            reject_bytes: sum.reject_bytes + worker.counts.reject_bytes,
        })
    }
}

/// The journal of a run, and what it says. Shared by all workers.
pub struct State {
    journal: Journal,
    block_bytes: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    scan: Option<Scan>,
    order: Option<Vec<u64>>,
    join: Option<JoinPlan>,
    /// Files that belong to no chunk.
    files: Vec<NamedFile>,
    stages: HashMap<Stage, StageState>,
}

impl State {
    /// Starts a journal in `folder` for a run with `options` that cuts its input into blocks of `block_bytes`.
    pub fn create(folder: &Path, options: BTreeMap<String, String>, block_bytes: usize) -> Result<Self> {
        let journal = Journal::create(&folder.join(JOURNAL))?;
        journal.append(&Record::Started(options, block_bytes))?;
        Ok(Self {
            journal,
            block_bytes,
            known: Mutex::default(),
        })
    }

    /// Reads the journal of an earlier run in `folder`, which must have had the same `options`. Blocks are those of that run.
    pub fn resume(folder: &Path, options: BTreeMap<String, String>) -> Result<Self> {
        let path = folder.join(JOURNAL);
        let (journal, records) = Journal::resume(&path)?;
        let mut records = records.into_iter();
        let Some(Record::Started(before, block_bytes)) = records.next() else {
            return Err(not_begun(&path));
        };
        same_options(folder, &before, &options)?;
        let mut known = Known::default();
        records.for_each(|record| known.apply(record));
        Ok(Self {
            journal,
            block_bytes,
            known: Mutex::new(known),
        })
    }

    /// The journal's file, which goes when the store is finished.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join(JOURNAL)
    }

    /// How large the blocks are that the input is cut into. What a resumed run has of blocks counts for these only.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// What the scan for ids found, once it is through.
    pub fn scan(&self) -> Option<Scan> {
        self.known().scan
    }

    /// How many nodes each part has, once the order is on disk.
    pub fn order(&self) -> Option<Vec<u64>> {
        self.known().order.clone()
    }

    /// How ids were cut into segments, if they were.
    pub fn join(&self) -> Option<JoinPlan> {
        self.known().join.clone()
    }

    /// What a stage has finished so far.
    pub fn stage(&self, stage: Stage) -> StageState {
        self.known().stages.get(&stage).cloned().unwrap_or_default()
    }

    /// Every file that is finished, sorted by path.
    pub fn files(&self) -> Vec<FileEntry> {
        let known = self.known();
        let chunks = known.stages.values().flat_map(|stage| stage.chunks.values());
        let entry = |(path, bytes, digest): &NamedFile| FileEntry {
            path: path.clone(),
            bytes: *bytes,
            digest: *digest,
        };
        let mut files: Vec<_> = chunks
            .flat_map(|chunk| &chunk.files)
            .chain(&known.files)
            .map(entry)
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// Records the result of the scan.
    pub fn scanned(&self, scan: Scan) -> Result<()> {
        self.record(Record::Scanned(scan))
    }

    /// Records that the dictionary is finished.
    pub fn listed(&self, scan: Scan, file: FileEntry) -> Result<()> {
        self.record(Record::Listed(scan, (file.path, file.bytes, file.digest)))
    }

    /// Records that the order is finished.
    pub fn ordered(&self, parts: Vec<u64>, file: FileEntry) -> Result<()> {
        self.record(Record::Ordered(parts, (file.path, file.bytes, file.digest)))
    }

    /// Records how ids were cut into segments.
    pub fn joining(&self, plan: JoinPlan) -> Result<()> {
        self.record(Record::Joining(plan))
    }

    /// Records how a stage divides its records.
    pub fn planned(&self, stage: Stage, plan: SpillPlan) -> Result<()> {
        self.record(Record::Planned(stage, plan))
    }

    /// Records that a worker has spilled `blocks`, and all that counts of its files.
    pub fn spilled(
        &self,
        stage: Stage,
        worker: u32,
        blocks: Vec<BlockId>,
        extents: &[Extent],
        counts: Counts,
    ) -> Result<()> {
        let blocks = blocks.into_iter().map(|id| (id.file, id.block)).collect();
        self.record(Record::Spilled {
            stage,
            worker,
            blocks,
            extents: extents.to_vec(),
            counts,
        })
    }

    /// Records that the files of a chunk are on disk.
    pub fn chunk_done(&self, stage: Stage, chunk: ChunkId, done: ChunkDone) -> Result<()> {
        self.record(Record::Chunk {
            stage,
            chunk: chunk.0,
            done,
        })
    }

    fn record(&self, record: Record) -> Result<()> {
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
            Record::Started(..) => {}
            Record::Scanned(scan) => self.scan = Some(scan),
            Record::Listed(scan, file) => {
                self.scan = Some(scan);
                self.files.push(file);
            }
            Record::Ordered(parts, file) => {
                self.order = Some(parts);
                self.files.push(file);
            }
            Record::Joining(plan) => self.join = Some(plan),
            Record::Planned(stage, plan) => self.stages.entry(stage).or_default().plan = Some(plan),
            Record::Spilled {
                stage,
                worker,
                blocks,
                extents,
                counts,
            } => {
                let state = self.stages.entry(stage).or_default();
                blocks
                    .into_iter()
                    .for_each(|(file, block)| state.blocks.insert(BlockId { file, block }));
                state.workers.insert(worker, Spilled { extents, counts });
            }
            Record::Chunk { stage, chunk, done } => {
                self.stages.entry(stage).or_default().chunks.insert(chunk, done);
            }
        }
    }
}
