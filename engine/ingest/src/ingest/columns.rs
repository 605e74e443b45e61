//! Columns of nodes: features and labels, from the order of the input to the order of the store.
//!
//! The input has its rows in any order; the store has them in the order of nodes. A row is a feature row or a label, encoded.
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
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::{ChunkId, ChunkSpan, NodeId, chunks::ChunkMap, container::FileKind};
use grappa_input::BlockId;
use grappa_io::{
    Error, Position, Result,
    container::{ContainerWriter, WrittenFile},
    heap,
    ledger::MemoryShare,
    memory::{MemoryGate, SpareBuffers},
    progress::check_stopped,
    workers::{self, ReadAhead, Worker},
};

use crate::ingest::{
    job::IngestJob,
    journal::{BlockSet, ChunkDone, Counts, Record, StageState},
    plan::{IngestBudget, SpillPlan},
    row_nodes::RowNodes,
    spill::{Extent, SpillFolder, SpillWriter},
    stage::Stage,
};

/// The rows of the input, one per node at most.
pub trait ColumnInput: Sync {
    fn form(&self) -> ColumnForm;

    /// The metadata of a chunk's file.
    fn meta(&self, span: ChunkSpan) -> Vec<u8>;

    /// Appends `count` encoded rows, beginning at row `first`.
    fn read(&self, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()>;

    /// Whether all rows read so far are valid. If not, reading continues, so that the error can count all invalid rows, but
    /// the journal records no more progress.
    fn is_sound(&self) -> bool;

    /// Fails unless all rows are valid. Called after the last row was read.
    fn finish(&self) -> Result<()>;
}

/// A column: its file in each chunk, and the shape and cost of its rows.
pub struct ColumnForm {
    pub stage: Stage,
    /// The name of the file in the chunk's folder.
    pub name: &'static str,
    pub kind: FileKind,
    pub rows: u64,
    /// Length of an encoded row in bytes.
    pub row_bytes: usize,
    /// Bytes of memory per row while rows are read, beside the encoded rows.
    pub read_cost: usize,
    /// Bytes of memory that stay in use between reads.
    pub held_bytes: u64,
    /// Whether rows can only be read in order. One thread reads them all then.
    pub is_sequential: bool,
    /// The encoded row of nodes that the input has none of. None if it has one of each node.
    pub other_row: Option<Vec<u8>>,
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

/// The rows that are not spilled yet, as blocks.
struct RowBlocks<'a> {
    input: &'a dyn ColumnInput,
    rows: u64,
    block_rows: u64,
    /// Blocks that an earlier run has spilled.
    done: BlockSet,
    next: AtomicU64,
    /// Blocks that were spilled, for reuse.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl RowBlocks<'_> {
    /// Reads the next block. None at the end.
    fn read(&self) -> Result<Option<ReadRows>> {
        loop {
            let id = BlockId { file: 0, block: self.next.fetch_add(1, Ordering::Relaxed) };
            let first = id.block * self.block_rows;
            if first >= self.rows {
                return Ok(None);
            }
            if self.done.contains(&id) {
                continue;
            }
            let count = self.block_rows.min(self.rows - first);
            let mut bytes = self.spare().pop().unwrap_or_default();
            bytes.clear();
            self.input.read(first, count as usize, &mut bytes)?;
            return Ok(Some(ReadRows { id, first, count, bytes }));
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A column to ingest.
struct IngestedColumn<'a> {
    job: &'a IngestJob<'a>,
    input: &'a dyn ColumnInput,
    form: ColumnForm,
    chunks: &'a ChunkMap,
    rows: &'a RowNodes,
    /// The budget, without the memory that the input holds.
    budget: IngestBudget,
    /// The spill files. A record is the row's index in its shard and the row, padded to whole words.
    spill: SpillFolder,
    plan: SpillPlan,
    shards: ChunkMap,
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

/// The rows of a shard that are put in their places at a time, if memory is less than a few reads.
const ROWS_AT_ONCE: MemoryShare =
    MemoryShare::one("rows of a shard", 2, "a tiny budget still divides between rows and reads; chosen, not measured");

/// The phase in the ledger.
const PHASE: &str = "reading rows of nodes";

/// Writes a column's file in each chunk. `rows` maps the rows of the input to nodes.
pub fn write(job: &IngestJob<'_>, input: &dyn ColumnInput, chunks: &ChunkMap, rows: &RowNodes) -> Result<()> {
    let form = input.form();
    let budget = IngestBudget { reserved: form.held_bytes, ..job.budget };
    let record_words = 1 + form.row_bytes.div_ceil(8);
    let before = job.journal.stage(form.stage);
    let plan = match before.plan {
        Some(plan) if before.chunks.is_empty() => plan.within(chunks, &budget)?,
        Some(plan) => plan,
        None => {
            let words = form.rows * record_words as u64;
            let plan = SpillPlan::new(chunks, words, PLACE_COST, ChunkMap::CHUNK_NODES_MAX, &budget)?;
            job.journal.record(Record::Planned(form.stage, plan))?;
            plan
        }
    };
    let (stage, name, bytes) = (form.stage, form.name, form.rows * form.row_bytes as u64);
    let spill = SpillFolder::new(job.store.lasting_scratch(), name, record_words);
    let column = IngestedColumn { job, input, form, chunks, rows, budget, spill, plan, shards: plan.shards(chunks) };
    job.progress.stage(&format!("reading {name}"), Some(bytes));
    // If chunks were written, an earlier run has read and checked all rows, perhaps in other blocks.
    if before.chunks.is_empty() {
        let shards = u64::from(plan.shards_per_chunk) * u64::from(chunks.chunks());
        job.enter(PHASE, budget.spill_leases(shards, plan.buffer_bytes))?;
        column.spill_rows(before)?;
    }
    let (spilled, gate) = (job.journal.stage(stage), MemoryGate::new(job.budget.memory));
    let buffers = SpareBuffers::new(&gate);
    job.progress.stage(&format!("writing {name}"), Some(bytes));
    job.write_chunks(
        stage,
        chunks,
        |chunk| column.write_chunk(chunk, &spilled, &buffers),
        |chunk| {
            let workers = spilled.workers.keys().copied();
            column.spill.remove_all(plan.shards_of(chunk), workers)
        },
    )
}

impl IngestedColumn<'_> {
    /// Rows per block. A thread holds a block that is read and a block that is spilled, in the memory that is planned for
    /// blocks of edges, which are read later.
    fn block_rows(&self) -> u64 {
        let row_bytes = self.form.row_bytes;
        let cost = 2 * row_bytes + self.form.read_cost + size_of::<NodeId>();
        let rows = (self.budget.blocks_memory() / cost).min(BLOCK_BYTES_MAX / row_bytes);
        rows.max(1) as u64
    }

    /// Pass 1: reads all rows that are not spilled, and spills them by shard.
    fn spill_rows(&self, before: StageState) -> Result<()> {
        let first_worker = before.next_worker();
        let blocks = RowBlocks {
            input: self.input,
            rows: self.form.rows,
            block_rows: self.block_rows(),
            done: before.blocks,
            next: AtomicU64::new(0),
            spare: Mutex::default(),
        };
        let readers = if self.form.is_sequential { 1 } else { self.budget.threads };
        workers::read_ahead(
            readers,
            || blocks.read(),
            |rows| {
                workers::run(self.budget.threads, |turn| {
                    let number = first_worker + turn.number;
                    self.spill_blocks(turn, number, rows, &blocks)
                })
            },
        )?;
        self.input.finish()
    }

    /// Spills blocks until none is left, as the worker `number`.
    fn spill_blocks(
        &self,
        turn: Worker<'_>,
        number: u32,
        rows: &ReadAhead<ReadRows>,
        blocks: &RowBlocks<'_>,
    ) -> Result<()> {
        let stage = self.form.stage;
        let mut writer = SpillWriter::new(self.spill.clone(), number, self.shards.chunks(), self.plan.buffer_bytes)?;
        let (mut nodes, mut spilled) = (Vec::new(), Vec::new());
        let (mut counts, mut uncommitted) = (Counts::default(), 0);
        while turn.goes_on()
            && let Some(block) = rows.next()?
        {
            self.rows.read(block.first..block.first + block.count, &mut nodes)?;
            for (&node, row) in nodes.iter().zip(block.bytes.chunks_exact(self.form.row_bytes)) {
                let shard = self.shards.chunk_of(NodeId(node)).0;
                let record = writer.push(shard)?;
                record[0] = node - self.shards.starts()[shard as usize];
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
            counts.read += block.count;
            spilled.push(block.id);
            uncommitted += block.bytes.len() as u64;
            self.job.progress.advance(block.bytes.len() as u64, 0);
            check_stopped(self.job.progress)?;
            if uncommitted >= COMMIT_BYTES && self.input.is_sound() {
                uncommitted = 0;
                let spilled = std::mem::take(&mut spilled);
                self.job.journal.spilled(stage, number, spilled, writer.flush_all()?, counts)?;
            }
            blocks.spare().push(block.bytes);
        }
        match self.input.is_sound() {
            true => self.job.journal.spilled(stage, number, spilled, writer.flush_all()?, counts),
            false => Ok(()),
        }
    }

    /// Pass 2: writes the file of one chunk. It is complete, but not synced.
    fn write_chunk(
        &self,
        chunk: ChunkId,
        spilled: &StageState,
        buffers: &SpareBuffers<'_, Vec<u8>>,
    ) -> Result<(ChunkDone, Vec<WrittenFile>)> {
        let path = self.job.store.chunk(chunk)?.join(self.form.name);
        let meta = self.input.meta(ChunkSpan::for_chunk(self.chunks, chunk));
        let mut writer = ContainerWriter::create(&path, self.form.kind, meta.len())?;
        let other = self.form.other_row.as_deref();
        for shard in self.plan.shards_of(chunk) {
            let rows = self.shards.len(ChunkId(shard));
            let placed: u64 = spilled.files_of(shard).map(|(_, extent)| extent.records).sum();
            if placed > rows || (placed < rows && other.is_none()) {
                let problem = format!("expected {rows} spilled rows, one per node, found {placed}");
                return Err(Error::input(&path, Position::Whole, problem));
            }
            let step = self.rows_at_once(rows, buffers.total());
            for first in (0..rows).step_by(step as usize) {
                let range = first..rows.min(first + step);
                let bytes = (range.end - range.start) as usize * self.form.row_bytes;
                let mut places = buffers.take(bytes as u64 + READ_MEMORY);
                let missing = bytes.saturating_sub(places.len());
                heap::reserve(&mut places, missing, "the feature rows or labels of a shard")?;
                places.resize(bytes, 0);
                if let Some(other) = other {
                    places.chunks_exact_mut(other.len()).for_each(|place| place.copy_from_slice(other));
                }
                for (worker, extent) in spilled.files_of(shard) {
                    self.place(worker, shard, extent, range.clone(), &mut places)?;
                }
                writer.write(&places)?;
                self.job.progress.advance(places.len() as u64, 0);
                check_stopped(self.job.progress)?;
            }
        }
        Ok((ChunkDone::default(), vec![writer.finish(meta)?]))
    }

    /// The number of rows of a shard that are put in their places at a time: all, unless the run was begun with more memory
    /// than `memory`. The spill files are read once for each range of rows.
    fn rows_at_once(&self, rows: u64, memory: u64) -> u64 {
        let bytes = memory.saturating_sub(READ_MEMORY).max(ROWS_AT_ONCE.bytes(memory));
        (bytes / self.form.row_bytes as u64).clamp(1, rows.max(1))
    }

    /// Copies a range of the rows of a spill file to their places, and checks the file.
    fn place(&self, worker: u32, shard: u32, extent: Extent, range: Range<u64>, places: &mut [u8]) -> Result<()> {
        let (record_words, row_bytes) = (self.spill.record_words(), self.form.row_bytes);
        let records_per_read = (READ_BYTES / 8 / record_words).max(1) as u64;
        self.spill.read_all(worker, shard, extent, records_per_read, |words| {
            for record in words.chunks_exact(record_words) {
                let row: &[u8] = bytemuck::cast_slice(&record[1..]);
                // An index beyond the shard means damage. It is skipped here, and the comparison of the sums reports it.
                if range.contains(&record[0]) {
                    let at = (record[0] - range.start) as usize * row_bytes;
                    places[at..at + row_bytes].copy_from_slice(&row[..row_bytes]);
                }
            }
            Ok(())
        })
    }
}
