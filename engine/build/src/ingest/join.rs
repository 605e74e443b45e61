//! Ids that do not fit memory: edges to nodes by a join on disk.
//!
//! The keys of ids are cut into *segments*, even ranges of which a table fits memory at a time.
//!
//! ```text
//! keys:     each id's key and node            to the segment of the key
//! sources:  each edge of the input            to the segment of its source's key
//! targets:  per segment, with its table:      the source becomes its node; to the segment of the target's key
//! edges:    per segment, with its table:      the target becomes its node; on to pass 1
//! ```
//!
//! Everything is read and written front to back. Beyond what ids that fit cost, an edge is written and read twice, 16
//! bytes each time (24 with a weight), and an id once. What a killed run has done of `sources`, `targets` and `edges` is
//! in the journal; `keys`, which is small, is begun again unless it was finished.

use std::{
    path::{Path, PathBuf},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::{DenseId, NodeId, dictionary::KeyKind};
use grappa_input::{BlockId, EdgeBatch};
use grappa_io::Result;
use grappa_storage::NodePermutation;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{
        IdMap,
        dictionary::Dictionary,
        keys::StringHash,
        table::{BYTES_PER_KEY, KeyTable},
    },
    ingest::{
        Run,
        edges::{InputBlocks, Replace},
        plan::Budget,
        rejects::RejectsFolder,
        spill::{self, Extent, SpillFolder, SpillWriter},
        spread::{Blocks, Buffers, Spread, Taken},
        state::{Stage, StageState, State},
    },
};

/// Records read at a time.
const PIECE_RECORDS: u64 = 1 << 16;
/// Spill buffers smaller than this would spend their time in system calls, larger ones gain nothing.
const BUFFER_BYTES: (usize, usize) = (4 << 10, 256 << 10);

/// How ids were cut into segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinPlan {
    /// How strings become keys.
    pub hash: StringHash,
    /// The file of each segment's keys.
    extents: Vec<Extent>,
}

impl JoinPlan {
    fn segments(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Memory of the table of the largest segment.
    pub fn table_memory(&self) -> u64 {
        self.keys_max() * BYTES_PER_KEY
    }

    /// A table with room for any segment. There is only one in the whole join: allocators do not always give freed
    /// memory back, and not at once.
    pub(super) fn table(&self) -> Result<KeyTable> {
        KeyTable::with_capacity(self.keys_max())
    }

    fn keys_max(&self) -> u64 {
        self.extents.iter().map(|extent| extent.records).max().unwrap_or(0)
    }
}

/// The segment of a key, and the key within it: the quotient and the remainder of the key's share of all keys.
#[inline]
pub(super) fn place(key: u64, segments: u32) -> (u32, u64) {
    let product = u128::from(key) * u128::from(segments);
    ((product >> 64) as u32, product as u64)
}

/// How many segments there must be for a table to take at most `memory`, also if it is somewhat larger than the others.
fn segments_for(ids: &IdMap, memory: u64) -> u32 {
    ids.table_memory().div_ceil((memory - memory / 16).max(1)) as u32
}

fn key_files(scratch: &Path) -> SpillFolder {
    SpillFolder::new(scratch, "keys", 2)
}

/// Sends the key and node of each id of the dictionary to the segment of the key. Strings that have a key in common get
/// others.
pub(super) fn cut(
    dictionary: &mut Dictionary,
    permutation: &NodePermutation,
    segments: u32,
    scratch: &Path,
    memory: u64,
) -> Result<JoinPlan> {
    let files = key_files(scratch);
    let buffer_bytes = (memory / 4 / u64::from(segments)) as usize;
    loop {
        let buffer_bytes = buffer_bytes.clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
        let mut writer = SpillWriter::new(files.clone(), 0, segments, buffer_bytes)?;
        dictionary.for_each_key(|key, id| {
            let (segment, key) = place(key, segments);
            writer.push(segment)?.copy_from_slice(&[key, permutation.node(id).0]);
            Ok(())
        })?;
        let extents = writer.flush_all()?.to_vec();
        drop(writer);
        let plan = JoinPlan {
            hash: dictionary.hash.clone(),
            extents,
        };
        // Integers have keys of their own.
        let mut alike = Vec::new();
        if dictionary.kind() == KeyKind::Strings {
            let mut table = plan.table()?;
            for segment in 0..segments {
                load(&plan, segment, scratch, &mut table, &mut alike)?;
            }
        }
        if alike.is_empty() {
            return Ok(plan);
        }
        let alike: Vec<DenseId> = alike
            .into_iter()
            .map(|node| permutation.dense_id(NodeId(node)))
            .collect::<Result<_>>()?;
        dictionary.separate(&alike)?;
    }
}

/// Fills the table with the keys of a segment; adds to `alike` the nodes of ids that have a key in common.
pub(super) fn load(
    plan: &JoinPlan,
    segment: u32,
    scratch: &Path,
    table: &mut KeyTable,
    alike: &mut Vec<u64>,
) -> Result<()> {
    let (files, extent) = (key_files(scratch), plan.extents[segment as usize]);
    table.reset(extent.records);
    let (mut words, mut first, mut sum) = (Vec::new(), 0, 0u64);
    while first < extent.records {
        let count = PIECE_RECORDS.min(extent.records - first);
        words.clear();
        files.read(0, segment, first, count, &mut words)?;
        sum = sum.wrapping_add(spill::sum(&words));
        for &[key, node] in words.as_chunks().0 {
            alike.extend(table.insert(key, node).into_iter().flat_map(|other| [other, node]));
        }
        first += count;
    }
    files.check(0, segment, extent, sum)
}

/// Which end of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Source,
    Target,
}

/// Spilled edges, segment by segment, of which one end is a key and becomes a node.
pub struct Segments<'a> {
    plan: &'a JoinPlan,
    scratch: PathBuf,
    edges: SpillFolder,
    spilled: StageState,
    end: End,
    current: RwLock<Current>,
}

struct Current {
    /// The segment after the one that is loaded, or that will be loaded next.
    upcoming: u32,
    loaded: Option<Loaded>,
    /// The table, while no segment is loaded.
    table: Option<KeyTable>,
}

struct Loaded {
    segment: u32,
    table: KeyTable,
    files: Vec<File>,
    next_piece: AtomicU64,
}

struct File {
    worker: u32,
    extent: Extent,
    /// The number of its first piece.
    first_piece: u64,
    /// What was read of it.
    records: AtomicU64,
    sum: AtomicU64,
}

impl<'a> Segments<'a> {
    fn new(
        plan: &'a JoinPlan,
        scratch: &Path,
        table: KeyTable,
        edges: SpillFolder,
        spilled: StageState,
        end: End,
    ) -> Self {
        Self {
            plan,
            scratch: scratch.to_owned(),
            edges,
            spilled,
            end,
            current: RwLock::new(Current {
                upcoming: 0,
                loaded: None,
                table: Some(table),
            }),
        }
    }

    /// The table, once all segments are done.
    fn into_table(self) -> KeyTable {
        let current = self.current.into_inner().unwrap_or_else(PoisonError::into_inner);
        current.table.expect("no segment is loaded any more")
    }

    /// Removes the spilled edges.
    fn remove(&self) -> Result<()> {
        let workers = self.spilled.workers.keys().copied();
        self.edges.remove_all(0..self.plan.segments(), workers)
    }

    /// Ends with the loaded segment and loads the next that has a piece that is wanted.
    fn advance(&self, current: &mut Current, skip: &dyn Fn(BlockId) -> bool) -> Result<()> {
        if let Some(loaded) = current.loaded.take() {
            self.check(&loaded)?;
            current.table = Some(loaded.table);
        }
        while current.upcoming < self.plan.segments() {
            let segment = current.upcoming;
            current.upcoming += 1;
            let (mut files, mut pieces) = (Vec::new(), 0);
            for (&worker, spilled) in &self.spilled.workers {
                let extent = spilled.extents[segment as usize];
                files.push(File {
                    worker,
                    extent,
                    first_piece: pieces,
                    records: AtomicU64::new(0),
                    sum: AtomicU64::new(0),
                });
                pieces += extent.records.div_ceil(PIECE_RECORDS);
            }
            let id = |block| BlockId { file: segment, block };
            if (0..pieces).any(|piece| !skip(id(piece))) {
                // There is none if loading the last segment failed, for which another worker ends the run.
                let mut table = match current.table.take() {
                    Some(table) => table,
                    None => self.plan.table()?,
                };
                load(self.plan, segment, &self.scratch, &mut table, &mut Vec::new())?;
                current.loaded = Some(Loaded {
                    segment,
                    table,
                    files,
                    next_piece: AtomicU64::new(0),
                });
                break;
            }
        }
        Ok(())
    }

    /// Compares the files of a segment with their sums, as far as they were read in one run.
    fn check(&self, loaded: &Loaded) -> Result<()> {
        for file in &loaded.files {
            if file.records.load(Ordering::Acquire) == file.extent.records {
                let sum = file.sum.load(Ordering::Acquire);
                self.edges.check(file.worker, loaded.segment, file.extent, sum)?;
            }
        }
        Ok(())
    }

    /// Reads a piece and replaces keys by nodes.
    fn read(&self, loaded: &Loaded, piece: u64, into: &mut Buffers) -> Result<Taken> {
        let file = loaded.files.partition_point(|file| file.first_piece <= piece) - 1;
        let file = &loaded.files[file];
        let first = (piece - file.first_piece) * PIECE_RECORDS;
        let count = PIECE_RECORDS.min(file.extent.records - first);
        into.words.clear();
        self.edges
            .read(file.worker, loaded.segment, first, count, &mut into.words)?;
        file.sum.fetch_add(spill::sum(&into.words), Ordering::AcqRel);
        file.records.fetch_add(count, Ordering::AcqRel);
        let EdgeBatch {
            sources,
            targets,
            weights,
            rejected,
        } = &mut into.batch;
        let records = into.words.chunks_exact(self.edges.record_words());
        sources.clear();
        sources.extend(records.clone().map(|record| record[0]));
        targets.clear();
        targets.extend(records.clone().map(|record| record[1]));
        weights.clear();
        if self.edges.record_words() == 3 {
            weights.extend(records.map(|record| f32::from_bits(record[2] as u32)));
        }
        rejected.clear();
        let keys = match self.end {
            End::Source => sources,
            End::Target => targets,
        };
        if loaded.table.find_all(keys).is_err() {
            return Err(self.edges.damaged(file.worker, loaded.segment));
        }
        Ok(Taken {
            id: BlockId {
                file: loaded.segment,
                block: piece,
            },
            bytes: size_of_val(&*into.words) as u64,
        })
    }
}

impl Loaded {
    fn take(&self, skip: &dyn Fn(BlockId) -> bool) -> Option<u64> {
        let last = self.files.last()?;
        let pieces = last.first_piece + last.extent.records.div_ceil(PIECE_RECORDS);
        loop {
            let piece = self.next_piece.fetch_add(1, Ordering::Relaxed);
            let id = BlockId {
                file: self.segment,
                block: piece,
            };
            if piece >= pieces {
                return None;
            }
            if !skip(id) {
                return Some(piece);
            }
        }
    }
}

impl Blocks for Segments<'_> {
    fn total_bytes(&self) -> u64 {
        self.spilled.records() * self.edges.record_words() as u64 * 8
    }

    fn next(&self, skip: &dyn Fn(BlockId) -> bool, into: &mut Buffers) -> Result<Option<Taken>> {
        loop {
            let seen = {
                let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
                match &current.loaded {
                    Some(loaded) => {
                        if let Some(piece) = loaded.take(skip) {
                            return self.read(loaded, piece, into).map(Some);
                        }
                    }
                    None if current.upcoming == self.plan.segments() => return Ok(None),
                    None => {}
                }
                current.upcoming
            };
            // Whoever comes here first waits until the others are done with the table, and replaces it.
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            if current.upcoming == seen {
                self.advance(&mut current, skip)?;
            }
        }
    }

    fn path(&self, _id: BlockId) -> &Path {
        unreachable!("spilled edges are not rejected")
    }
}

impl Run<'_> {
    /// Cuts the ids into segments if they do not fit memory.
    pub(super) fn plan_join(&self, state: &State, ids: &mut IdMap) -> Result<Option<JoinPlan>> {
        if let Some(plan) = state.join() {
            return Ok(Some(plan));
        }
        let memory = self.budget.memory / 2;
        // If a resumed run has begun without a join it goes on so.
        if ids.table_memory() <= memory || state.stage(Stage::Edges).plan.is_some() {
            return Ok(None);
        }
        self.progress.stage("cutting ids into segments", None);
        let segments = segments_for(ids, memory);
        let scratch = self.folder.lasting_scratch();
        let permutation = ids.permutation().clone();
        let Some(dictionary) = ids.dictionary_mut() else {
            return Ok(None);
        };
        let plan = cut(dictionary, &permutation, segments, scratch, memory)?;
        state.joining(plan.clone())?;
        Ok(Some(plan))
    }

    /// Joins the edges of the input with the ids of their sources, and prepares to join them with those of their
    /// targets.
    pub(super) fn join<'p>(
        &self,
        state: &State,
        ids: &mut IdMap,
        plan: &'p JoinPlan,
        rejects: &RejectsFolder,
    ) -> Result<Segments<'p>> {
        if let Some(dictionary) = ids.dictionary_mut() {
            dictionary.hash = plan.hash.clone();
        }
        let scratch = self.folder.lasting_scratch();
        let record_words = if self.source.weighted() { 3 } else { 2 };
        let by_source = SpillFolder::new(scratch, "by-source", record_words);
        let by_target = SpillFolder::new(scratch, "by-target", record_words);
        let segments = plan.segments();
        let spread = Spread {
            stage: Stage::BySource,
            blocks: &InputBlocks {
                source: &self.source,
                ids,
                replace: Replace::Keys,
            },
            push: &|batch, writer| push(batch, writer, End::Source, segments),
            spill: &by_source,
            shards: segments,
            rejects,
            buffer_bytes: buffer_bytes(&self.budget, segments),
            threads: self.budget.threads,
        };
        self.progress.stage("reading edges", Some(spread.blocks.total_bytes()));
        spread.run(state, self.progress)?;

        let spilled = state.stage(Stage::BySource);
        let sources = Segments::new(plan, scratch, plan.table()?, by_source, spilled, End::Source);
        let budget = Budget {
            reserved: plan.table_memory(),
            ..self.budget
        };
        let spread = Spread {
            stage: Stage::ByTarget,
            blocks: &sources,
            push: &|batch, writer| push(batch, writer, End::Target, segments),
            spill: &by_target,
            shards: segments,
            rejects,
            buffer_bytes: buffer_bytes(&budget, segments),
            threads: self.budget.threads,
        };
        self.progress.stage("mapping sources", Some(sources.total_bytes()));
        spread.run(state, self.progress)?;
        sources.remove()?;
        let (table, spilled) = (sources.into_table(), state.stage(Stage::ByTarget));
        Ok(Segments::new(plan, scratch, table, by_target, spilled, End::Target))
    }

    /// What was counted while the input was read.
    pub(super) fn input_stage(&self, state: &State) -> StageState {
        state.stage(match state.join() {
            Some(_) => Stage::BySource,
            None => Stage::Edges,
        })
    }

    /// Removes what a join has left.
    pub(super) fn end_join(&self, targets: &Segments) -> Result<()> {
        targets.remove()?;
        key_files(&targets.scratch).remove_all(0..targets.plan.segments(), std::iter::once(0))
    }
}

fn buffer_bytes(budget: &Budget, segments: u32) -> usize {
    (budget.buffer_bytes(u64::from(segments)) as usize).clamp(BUFFER_BYTES.0, BUFFER_BYTES.1)
}

/// Spills edges by the segment of one of their ends.
fn push(batch: &EdgeBatch, writer: &mut SpillWriter, end: End, segments: u32) -> Result<()> {
    for (k, (&source, &target)) in batch.sources.iter().zip(&batch.targets).enumerate() {
        let (segment, source, target) = match end {
            End::Source => {
                let (segment, key) = place(source, segments);
                (segment, key, target)
            }
            End::Target => {
                let (segment, key) = place(target, segments);
                (segment, source, key)
            }
        };
        let record = writer.push(segment)?;
        (record[0], record[1]) = (source, target);
        if let Some(weight) = batch.weights.get(k) {
            record[2] = u64::from(weight.to_bits());
        }
    }
    Ok(())
}
