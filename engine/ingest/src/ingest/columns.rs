//! Columns of nodes: features and labels, from the order of the input to that of the store.
//!
//! The input has its rows in any order; the store has them in that of the nodes. A row is a feature row or a label, encoded.
//!
//! ```text
//! pass 1, other threads: read the next block of rows, and encode them
//!         each worker: take a block; look up the node of each row; append (index in shard, row) to the shard's spill file
//! pass 2, each worker: take the next chunk; for each of its shards, put the rows in their places and write them,
//!         in ranges of rows if the shard does not fit in memory, because the run was begun with more
//! ```
//!
//! Cost: rows are read, spilled, read back and written, each time in large pieces. A gather from the input through the
//! inverse permutation would read it only once, but row by row, and a row is much smaller than the unit that a drive reads.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::{ChunkId, NodeId, chunks::ChunkMap, container::FileKind};
use grappa_input::BlockId;
use grappa_io::{
    Error, Position, Result,
    container::ContainerWriter,
    heap,
    memory::SpareBuffers,
    progress::Progress,
    workers::{self, ReadAhead, Worker},
};
use grappa_storage::writer::StoreFolder;

use crate::ingest::{
    ChunkFiles,
    plan::{IngestBudget, SpillPlan},
    row_nodes::RowNodes,
    spill::{self, Extent, SpillFolder, SpillWriter},
    state::{ChunkDone, Counts, Stage, StageState, State},
};

/// The rows of the input, one per node at most.
pub trait ColumnInput: Sync {
    /// Number of rows.
    fn rows(&self) -> u64;

    /// Length of an encoded row in bytes.
    fn row_bytes(&self) -> usize;

    /// Bytes of memory per row while rows are read, beside the encoded rows.
    fn read_cost(&self) -> usize;

    /// Bytes of memory that stay in use between reads.
    fn held_bytes(&self) -> u64;

    /// Whether rows can only be read in order. One thread reads them all then.
    fn is_sequential(&self) -> bool;

    /// Appends `count` encoded rows, beginning at row `first`.
    fn read(&self, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()>;

    /// The encoded row of nodes that the input has none of. None if it has one of each node.
    fn other_row(&self) -> Option<Vec<u8>>;

    /// Whether all rows read so far are valid. If not, reading continues, so that the error can count all invalid rows, but
    /// the journal records no more progress.
    fn is_sound(&self) -> bool;

    /// Fails unless all rows are valid. Called after the last row was read.
    fn finish(&self) -> Result<()>;
}

/// A block of rows that was read.
struct ReadRows {
    id: BlockId,
    /// Its first row.
    first: u64,
    count: u64,
    /// The rows, encoded.
    bytes: Vec<u8>,
}

/// The file of a column in each chunk.
pub struct ColumnFile {
    /// Name of the file in the chunk's folder.
    pub name: &'static str,
    /// Its kind.
    pub kind: FileKind,
    /// Makes the metadata of a chunk's file.
    pub meta: Box<dyn Fn(ChunkId) -> Vec<u8> + Sync>,
}

/// A column to ingest.
pub struct Column<'a> {
    /// The stage of the run.
    pub stage: Stage,
    /// The rows.
    pub input: &'a dyn ColumnInput,
    /// The output files.
    pub file: ColumnFile,
    /// Chunks of the graph.
    pub chunks: &'a ChunkMap,
    /// Maps rows to nodes.
    pub rows: &'a RowNodes,
    /// The unfinished store.
    pub store: &'a StoreFolder,
    /// Memory and threads.
    pub budget: IngestBudget,
}

/// Bytes of encoded rows between two entries in the journal.
const COMMIT_BYTES: u64 = 256 << 20;
/// The maximum bytes of encoded rows per block.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// Bytes of spilled records that pass 2 reads at once.
const READ_BYTES: usize = 1 << 20;
/// Bytes of memory for reading spill files in pass 2.
const READ_MEMORY: u64 = 2 * READ_BYTES as u64;
/// Bytes of memory per record word that pass 2 needs: 8 for its place in the output, and some to spare.
const PLACE_COST: u64 = 10;

impl Column<'_> {
    /// The division of rows into shards: that of the run that began pass 1, or a new one.
    pub fn plan(&self, state: &State) -> Result<SpillPlan> {
        let stage = state.stage(self.stage);
        match stage.plan {
            Some(plan) if stage.chunks.is_empty() => return plan.within(self.chunks, &self.budget),
            Some(plan) => return Ok(plan),
            None => {}
        }
        let words = self.input.rows() * self.record_words() as u64;
        let plan = SpillPlan::new(self.chunks, words, PLACE_COST, ChunkMap::CHUNK_NODES_MAX, &self.budget)?;
        state.planned(self.stage, plan)?;
        Ok(plan)
    }

    /// A record is the row's index in its shard and the row, padded to whole words.
    fn record_words(&self) -> usize {
        1 + self.input.row_bytes().div_ceil(8)
    }

    /// Rows per block. A thread holds a block that is read and a block that is spilled, in the memory that is planned for
    /// blocks of edges, which are read later.
    fn block_rows(&self) -> u64 {
        let row_bytes = self.input.row_bytes();
        let cost = 2 * row_bytes + self.input.read_cost() + size_of::<NodeId>();
        let rows = (self.budget.blocks_memory() / cost).min(BLOCK_BYTES_MAX / row_bytes);
        rows.max(1) as u64
    }

    /// The spill files.
    pub fn spill(&self) -> SpillFolder {
        SpillFolder::new(self.store.lasting_scratch(), self.file.name, self.record_words())
    }

    /// Pass 1: reads all rows and spills them by shard.
    pub fn spill_rows(&self, plan: &SpillPlan, state: &State, progress: &dyn Progress) -> Result<()> {
        let before = state.stage(self.stage);
        // If chunks were written, an earlier run has read and checked all rows, perhaps in other blocks.
        if !before.chunks.is_empty() {
            return Ok(());
        }
        let first_worker = before.next_worker();
        let shards = plan.shards(self.chunks);
        let rows = self.input.rows();
        let block_rows = self.block_rows();
        let next_block = AtomicU64::new(0);
        // Blocks of rows that were spilled, for reuse.
        let spare: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let spare = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            loop {
                let id = BlockId {
                    file: 0,
                    block: next_block.fetch_add(1, Ordering::Relaxed),
                };
                let first = id.block * block_rows;
                if first >= rows {
                    return Ok(None);
                }
                if before.blocks.contains(&id) {
                    continue;
                }
                let count = block_rows.min(rows - first);
                let mut bytes = spare().pop().unwrap_or_default();
                bytes.clear();
                self.input.read(first, count as usize, &mut bytes)?;
                return Ok(Some(ReadRows {
                    id,
                    first,
                    count,
                    bytes,
                }));
            }
        };
        let readers = if self.input.is_sequential() {
            1
        } else {
            self.budget.threads
        };
        let spill = |turn: Worker<'_>, rows: &ReadAhead<ReadRows>| {
            let number = first_worker + turn.number;
            let mut writer = SpillWriter::new(self.spill(), number, shards.chunks(), plan.buffer_bytes)?;
            let (mut nodes, mut blocks) = (Vec::new(), Vec::new());
            let (mut counts, mut uncommitted) = (Counts::default(), 0);
            while turn.goes_on()
                && let Some(ReadRows {
                    id,
                    first,
                    count,
                    bytes,
                }) = rows.next()?
            {
                self.rows.read(first..first + count, &mut nodes)?;
                for (&node, row) in nodes.iter().zip(bytes.chunks_exact(self.input.row_bytes())) {
                    let shard = shards.chunk_of(NodeId(node)).0;
                    let record = writer.push(shard)?;
                    record[0] = node - shards.starts()[shard as usize];
                    let (whole, rest) = row.as_chunks::<8>();
                    for (word, bytes) in record[1..].iter_mut().zip(whole) {
                        *word = u64::from_ne_bytes(*bytes);
                    }
                    if !rest.is_empty() {
                        let mut last = [0; 8];
                        last[..rest.len()].copy_from_slice(rest);
                        record[1 + whole.len()] = u64::from_ne_bytes(last);
                    }
                }
                counts.read += count;
                blocks.push(id);
                uncommitted += bytes.len() as u64;
                progress.advance(bytes.len() as u64, 0);
                if uncommitted >= COMMIT_BYTES && self.input.is_sound() {
                    uncommitted = 0;
                    state.spilled(
                        self.stage,
                        number,
                        std::mem::take(&mut blocks),
                        writer.flush_all()?,
                        counts,
                    )?;
                }
                spare().push(bytes);
            }
            match self.input.is_sound() {
                true => state.spilled(self.stage, number, blocks, writer.flush_all()?, counts),
                false => Ok(()),
            }
        };
        workers::read_ahead(readers, read, |rows| {
            workers::run(self.budget.threads, |turn| spill(turn, rows))
        })?;
        self.input.finish()
    }

    /// Pass 2: writes the file of one chunk. It is complete, but not synced.
    pub fn write_chunk(
        &self,
        chunk: ChunkId,
        plan: &SpillPlan,
        spilled: &StageState,
        buffers: &SpareBuffers<'_, Vec<u8>>,
        progress: &dyn Progress,
    ) -> Result<ChunkFiles> {
        let path = self.store.chunk(chunk)?.join(self.file.name);
        let meta = (self.file.meta)(chunk);
        let mut writer = ContainerWriter::create(&path, self.file.kind, meta.len())?;
        let (shards, other) = (plan.shards(self.chunks), self.input.other_row());
        for shard in plan.shards_of(chunk) {
            let rows = shards.len(ChunkId(shard));
            let placed: u64 = spilled
                .workers
                .values()
                .map(|s| s.extents[shard as usize].records)
                .sum();
            if placed > rows || (placed < rows && other.is_none()) {
                let what = format!("expected {rows} spilled rows, one per node, found {placed}");
                return Err(Error::input(&path, Position::Whole, what));
            }
            let step = self.rows_at_once(rows, buffers.total());
            for first in (0..rows).step_by(step as usize) {
                let range = first..rows.min(first + step);
                let bytes = (range.end - range.start) as usize * self.input.row_bytes();
                let mut places = buffers.take(bytes as u64 + READ_MEMORY);
                let missing = bytes.saturating_sub(places.len());
                heap::reserve(&mut places, missing, "the feature rows or labels of a shard")?;
                places.resize(bytes, 0);
                if let Some(other) = &other {
                    places
                        .chunks_exact_mut(other.len())
                        .for_each(|place| place.copy_from_slice(other));
                }
                for (&worker, spilled) in &spilled.workers {
                    self.place(
                        worker,
                        shard,
                        spilled.extents[shard as usize],
                        range.clone(),
                        &mut places,
                    )?;
                }
                writer.write(&places)?;
                progress.advance(places.len() as u64, 0);
            }
        }
        let done = ChunkDone {
            edges: 0,
            bucket_edges: Vec::new(),
            files: Vec::new(),
        };
        Ok(ChunkFiles {
            done,
            files: vec![writer.finish(meta)?],
        })
    }

    /// The number of rows of a shard that are put in their places at a time: all, unless the run was begun with more memory
    /// than `memory`. The spill files are read once for each range of rows.
    fn rows_at_once(&self, rows: u64, memory: u64) -> u64 {
        let bytes = memory.saturating_sub(READ_MEMORY).max(memory / 2);
        (bytes / self.input.row_bytes() as u64).clamp(1, rows.max(1))
    }

    /// Copies a range of the rows of a spill file to their places, and checks the file.
    fn place(&self, worker: u32, shard: u32, extent: Extent, range: Range<u64>, places: &mut [u8]) -> Result<()> {
        let (spill, row_bytes) = (self.spill(), self.input.row_bytes());
        let records_per_read = (READ_BYTES / 8 / self.record_words()).max(1) as u64;
        let (mut words, mut first, mut sum) = (Vec::new(), 0, 0u64);
        while first < extent.records {
            let count = records_per_read.min(extent.records - first);
            words.resize(count as usize * self.record_words(), 0);
            spill.read(worker, shard, first, &mut words)?;
            sum = sum.wrapping_add(spill::sum(&words));
            for record in words.chunks_exact(self.record_words()) {
                let row: &[u8] = bytemuck::cast_slice(&record[1..]);
                // An index beyond the shard means damage. It is skipped here, and the comparison of the sums reports it.
                if range.contains(&record[0]) {
                    let at = (record[0] - range.start) as usize * row_bytes;
                    places[at..at + row_bytes].copy_from_slice(&row[..row_bytes]);
                }
            }
            first += count;
        }
        spill.check(worker, shard, extent, sum)
    }

    /// Removes the spill files of a chunk.
    pub fn remove_spill(&self, chunk: ChunkId, plan: &SpillPlan, spilled: &StageState) -> Result<()> {
        self.spill()
            .remove_all(plan.shards_of(chunk), spilled.workers.keys().copied())
    }
}
