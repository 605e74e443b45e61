//! Blocks of edges, spread over spill files by many workers.
//!
//! ```text
//! each worker: loop
//!     take the next block nobody has
//!     append each of its edges to the shard it belongs to
//!     now and then: write out all buffers, and note in the journal what is done
//! ```
//!
//! Where blocks come from and which shard an edge belongs to is for others to say.

use std::path::Path;

use grappa_input::{BlockId, EdgeBatch, TextBatch};
use grappa_io::{Result, progress::Progress, workers};

use crate::ingest::{
    rejects::{RejectsFolder, RejectsWriter},
    spill::{Extent, SpillFolder, SpillWriter},
    state::{Counts, Stage, State},
};

/// Where blocks of edges come from.
pub trait Blocks: Sync {
    /// What [`Taken::bytes`] adds up to.
    fn total_bytes(&self) -> u64;

    /// Reads the next block that nobody has read and `skip` does not want left out, into `into.batch`; none when all
    /// are taken. Blocks come in no particular order.
    fn next(&self, skip: &dyn Fn(BlockId) -> bool, into: &mut Buffers) -> Result<Option<Taken>>;

    /// The file of a block, for messages about its edges.
    fn path(&self, id: BlockId) -> &Path;
}

/// A block that was read.
pub struct Taken {
    /// Its place; the same in every run.
    pub id: BlockId,
    /// Bytes that were read.
    pub bytes: u64,
}

/// What a worker reuses from block to block.
#[derive(Debug, Default)]
pub struct Buffers {
    /// The edges of the block.
    pub batch: EdgeBatch,
    /// Its ids, if they are strings.
    pub text: TextBatch,
    /// Its records, if it was spilled before.
    pub words: Vec<u64>,
}

/// Appends the edges of a batch to the shards they belong to.
pub type Push<'a> = dyn Fn(&EdgeBatch, &mut SpillWriter) -> Result<()> + Sync + 'a;

/// What workers need to know.
pub struct Spread<'a> {
    /// Under which name the journal notes it.
    pub stage: Stage,
    /// The input.
    pub blocks: &'a dyn Blocks,
    /// Where edges go.
    pub push: &'a Push<'a>,
    /// Where records go.
    pub spill: &'a SpillFolder,
    /// Number of shards.
    pub shards: u32,
    /// Where skipped lines go.
    pub rejects: &'a RejectsFolder,
    /// Bytes of a spill buffer.
    pub buffer_bytes: usize,
    /// Worker threads.
    pub threads: usize,
}

/// Input bytes between two notes in the journal: what a killed run does again, at most, per worker.
const COMMIT_BYTES: u64 = 256 << 20;
/// The most notes that are made; each lists the extents of all shards.
const COMMITS_MAX: u64 = 1000;

impl Spread<'_> {
    /// Spills every block that the journal does not already know as spilled.
    pub fn run(&self, state: &State, progress: &dyn Progress) -> Result<()> {
        let commit_bytes = COMMIT_BYTES.max(self.blocks.total_bytes() / COMMITS_MAX);
        let before = state.stage(self.stage);
        let (first_worker, skip) = (before.next_worker(), |id: BlockId| before.blocks.contains(&id));
        workers::run(self.threads, |turn| {
            let mut buffers = Buffers::default();
            let mut worker = Worker::new(self, first_worker + turn.number)?;
            while turn.goes_on()
                && let Some(taken) = self.blocks.next(&skip, &mut buffers)?
            {
                let edges = buffers.batch.sources.len() as u64;
                progress.advance(taken.bytes, edges);
                worker.spill(taken, &buffers.batch)?;
                if worker.uncommitted_bytes >= commit_bytes {
                    worker.commit(state)?;
                }
            }
            worker.commit(state)
        })
    }
}

struct Worker<'a> {
    spread: &'a Spread<'a>,
    number: u32,
    writer: SpillWriter,
    rejects: RejectsWriter,
    blocks: Vec<BlockId>,
    counts: Counts,
    uncommitted_bytes: u64,
}

impl<'a> Worker<'a> {
    fn new(spread: &'a Spread<'a>, number: u32) -> Result<Self> {
        Ok(Self {
            spread,
            number,
            writer: SpillWriter::new(spread.spill.clone(), number, spread.shards, spread.buffer_bytes)?,
            rejects: spread.rejects.writer(number),
            blocks: Vec::new(),
            counts: Counts::default(),
            uncommitted_bytes: 0,
        })
    }

    fn spill(&mut self, taken: Taken, batch: &EdgeBatch) -> Result<()> {
        (self.spread.push)(batch, &mut self.writer)?;
        if !batch.rejected.is_empty() {
            let path = self.spread.blocks.path(taken.id);
            self.counts.reject_bytes = self.rejects.write(path, &batch.rejected)?;
        }
        self.counts.read += batch.sources.len() as u64;
        self.counts.rejected += batch.rejected.len() as u64;
        self.blocks.push(taken.id);
        self.uncommitted_bytes += taken.bytes;
        Ok(())
    }

    fn commit(&mut self, state: &State) -> Result<()> {
        let extents: &[Extent] = self.writer.flush_all()?;
        let blocks = std::mem::take(&mut self.blocks);
        self.uncommitted_bytes = 0;
        state.spilled(self.spread.stage, self.number, blocks, extents, self.counts)
    }
}
