//! Pass 1: edges from the input to the spill files of their destination's shard.
//!
//! ```text
//! each worker: loop
//!     take the next block nobody has, parse it
//!     ids -> ranks -> nodes, a batch at a time
//!     for each edge: append (row in shard, source) to the shard's buffer
//!     now and then: write out all buffers, and note in the journal what is done
//! ```
//!
//! Cost on two cores: some 40 ns an edge and thread; the input is read once, and 8 bytes an edge are written (16 with
//! weights).

use std::sync::atomic::{AtomicU64, Ordering};

use grappa_formats::{
    NodeId,
    chunks::ChunkMap,
    manifest::{EdgeOptions, SelfLoops},
};

use super::{
    plan::SpillPlan,
    rejects::{RejectsFolder, RejectsWriter},
    source::{BlockId, EdgeBatch, EdgeSource, RawBlock},
    spill::{Extent, SpillFolder, SpillWriter},
    state::{Counts, Scan, Stage, State},
    workers,
};
use crate::{Result, ids::IdMap, progress::Progress, sort::bits_for};

/// How an edge becomes a word: the row within its shard above, the source's node id below.
#[derive(Debug, Clone)]
pub struct EdgeKeys {
    /// The shards, each a range of rows.
    pub shards: ChunkMap,
    /// Bits of a source's node id.
    pub source_bits: u32,
}

impl EdgeKeys {
    /// The keys of a graph whose chunks are divided by `plan`.
    pub fn new(chunks: &ChunkMap, plan: &SpillPlan) -> Self {
        Self {
            shards: plan.shards(chunks),
            source_bits: bits_for(chunks.nodes()),
        }
    }

    /// The shard of an edge, and its key there.
    #[inline]
    fn of(&self, source: u64, target: u64) -> (u32, u64) {
        let shard = self.shards.chunk_of(NodeId(target)).0;
        let row = target - self.shards.starts()[shard as usize];
        (shard, row.unbounded_shl(self.source_bits) | source)
    }

    /// The row within its shard of a key.
    #[inline]
    pub fn row(&self, key: u64) -> u64 {
        key.unbounded_shr(self.source_bits)
    }

    /// The source of a key.
    #[inline]
    pub fn source(&self, key: u64) -> u64 {
        key & ((1 << self.source_bits) - 1)
    }
}

/// What pass 1 needs to know.
pub struct Scatter<'a> {
    /// The input.
    pub source: &'a EdgeSource,
    /// External ids to nodes.
    pub ids: &'a IdMap,
    /// What to do to edges.
    pub options: EdgeOptions,
    /// Edge to shard and key.
    pub keys: &'a EdgeKeys,
    /// Where records go.
    pub spill: &'a SpillFolder,
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

impl Scatter<'_> {
    /// Spills every block that the journal does not already know as spilled.
    pub fn run(&self, state: &State, progress: &dyn Progress) -> Result<()> {
        let commit_bytes = COMMIT_BYTES.max(self.source.total_bytes() / COMMITS_MAX);
        let before = state.stage(Stage::Edges);
        let (first_worker, skip) = (before.next_worker(), |id: BlockId| before.blocks.contains(&id));
        workers::run(self.threads, |turn| {
            let mut worker = Worker::new(self, first_worker + turn.number);
            while turn.goes_on()
                && let Some(block) = self.source.next_block(&skip)?
            {
                worker.spill(&block, progress)?;
                if worker.uncommitted_bytes >= commit_bytes {
                    worker.commit(state)?;
                }
            }
            worker.commit(state)
        })
    }
}

struct Worker<'a> {
    scatter: &'a Scatter<'a>,
    number: u32,
    writer: SpillWriter,
    batch: EdgeBatch,
    rejects: RejectsWriter,
    blocks: Vec<BlockId>,
    counts: Counts,
    uncommitted_bytes: u64,
}

impl<'a> Worker<'a> {
    fn new(scatter: &'a Scatter<'a>, number: u32) -> Self {
        let writer = SpillWriter::new(
            scatter.spill.clone(),
            number,
            scatter.keys.shards.chunks(),
            scatter.buffer_bytes,
        );
        Self {
            scatter,
            number,
            writer,
            batch: EdgeBatch::default(),
            rejects: scatter.rejects.writer(number),
            blocks: Vec::new(),
            counts: Counts::default(),
            uncommitted_bytes: 0,
        }
    }

    fn spill(&mut self, block: &RawBlock, progress: &dyn Progress) -> Result<()> {
        let Scatter { ids, options, .. } = *self.scatter;
        ids.parse(block, &mut self.batch)?;
        ids.order().nodes(&mut self.batch.sources);
        ids.order().nodes(&mut self.batch.targets);
        self.push_all(false)?;
        if options.undirected {
            self.push_all(true)?;
        }
        self.counts.reject_bytes = self
            .rejects
            .write(self.scatter.source.path(block.id().file), &self.batch.rejected)?;
        self.counts.read += self.batch.sources.len() as u64;
        self.counts.rejected += self.batch.rejected.len() as u64;
        self.blocks.push(block.id());
        self.uncommitted_bytes += block.input_bytes();
        progress.advance(block.input_bytes(), self.batch.sources.len() as u64);
        Ok(())
    }

    /// Spills the batch, or its reverse without self-loops, which are their own reverse.
    fn push_all(&mut self, reverse: bool) -> Result<()> {
        let Scatter { keys, options, .. } = *self.scatter;
        let (sources, targets) = match reverse {
            false => (&self.batch.sources, &self.batch.targets),
            true => (&self.batch.targets, &self.batch.sources),
        };
        // Self-loops that are added are added to rows, so those of the input must go.
        let drop_loops = reverse || options.self_loops != SelfLoops::Keep;
        let edges = sources.iter().copied().zip(targets.iter().copied());
        if self.batch.weights.is_empty() {
            for (source, target) in edges {
                if drop_loops && source == target {
                    continue;
                }
                let (shard, key) = keys.of(source, target);
                self.writer.push_word(shard, key)?;
            }
        } else {
            for ((source, target), weight) in edges.zip(&self.batch.weights) {
                if drop_loops && source == target {
                    continue;
                }
                let (shard, key) = keys.of(source, target);
                self.writer
                    .push(shard)?
                    .copy_from_slice(&[key, u64::from(weight.to_bits())]);
            }
        }
        Ok(())
    }

    fn commit(&mut self, state: &State) -> Result<()> {
        let extents: &[Extent] = self.writer.flush_all()?;
        let blocks = std::mem::take(&mut self.blocks);
        self.uncommitted_bytes = 0;
        state.spilled(Stage::Edges, self.number, blocks, extents, self.counts)
    }
}

/// Finds the number of nodes of dense ids, for which all of the input must be read once more.
pub fn scan(source: &EdgeSource, threads: usize, progress: &dyn Progress) -> Result<Scan> {
    let (nodes, edges) = (AtomicU64::new(0), AtomicU64::new(0));
    workers::run(threads, |turn| {
        let mut batch = EdgeBatch::default();
        while turn.goes_on()
            && let Some(block) = source.next_block(&|_| false)?
        {
            block.parse(&mut batch)?;
            let largest = batch.sources.iter().chain(&batch.targets).max();
            nodes.fetch_max(largest.map_or(0, |id| id + 1), Ordering::Relaxed);
            edges.fetch_add(batch.sources.len() as u64, Ordering::Relaxed);
            progress.advance(block.input_bytes(), batch.sources.len() as u64);
        }
        Ok(())
    })?;
    Ok(Scan {
        nodes: nodes.into_inner(),
        edges: edges.into_inner(),
    })
}
