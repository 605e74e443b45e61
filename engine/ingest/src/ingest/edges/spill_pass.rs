//! One pass over blocks of edges that appends each edge to a spill file.
//!
//! ```text
//! other threads: read blocks, and parse none
//! each worker: loop
//!     take the next block that no worker has taken, and parse it
//!     append each of its edges to the buffer of a spill file         route
//!     every 256 MiB: write out all buffers, and record in the journal which blocks are done
//! ```
//!
//! Pass 1 of ingest is such a pass. If ids do not fit in memory, the two passes of the join come before it.
//!
//! Cost on two cores: about 40 ns per edge and thread for pass 1. Pass 1 writes 8 bytes per edge, and 8 for every two values of an edge.

use std::path::Path;

use grappa_input::{BadEdge, BlockId, EdgeSource, IdLimit, Reject};
use grappa_io::{Result, ledger::split_at_limit, progress::check_stopped, workers};

use super::{
    blocks::{BlockBuffers, EdgeBlocks, InputBlocks, ReadBlock, Replace},
    ends::EdgeEnds,
    route::Route,
};
use crate::ingest::{
    edge_split::KeyParts,
    edge_values::ValueShape,
    job::IngestJob,
    journal::Counts,
    plan::IngestBudget,
    rejects::RejectsWriter,
    spill::{Extent, SpillFolder, SpillWriter},
    stage::Stage,
};

/// Input bytes between two entries in the journal. A killed run repeats at most this much per worker.
const COMMIT_BYTES: u64 = 256 << 20;
/// The maximum number of entries in the journal. Each lists the extents of all spill files of a worker, so a very large
/// input must have fewer entries per byte.
const COMMITS_MAX: u64 = 1000;

pub struct SpillPass<'a> {
    pub job: &'a IngestJob<'a>,
    /// The stage under which the journal records the pass.
    pub stage: Stage,
    /// The name of the pass for progress.
    pub title: &'static str,
    pub route: Route<'a>,
    pub shape: ValueShape,
    pub spill: &'a SpillFolder,
    /// Whether the edges are of a relation, in which a row without an id is not worth a line in the file of skipped lines.
    pub is_of_types: bool,
    /// The budget, without the memory of the ids.
    pub budget: IngestBudget,
    pub buffer_bytes: usize,
}

impl SpillPass<'_> {
    /// Spills every block of the user's files that the journal does not list as spilled. `parts`: how the parts of edges follow from the
    /// input, if they do.
    pub fn run_input(
        &self,
        source: &EdgeSource,
        ends: &EdgeEnds<'_>,
        replace: [Replace; 2],
        is_reversed: bool,
        parts: Option<KeyParts>,
    ) -> Result<()> {
        let spilled = self.job.journal.stage(self.stage).blocks;
        source.read_ahead(self.job.budget.threads, &|id| spilled.contains(&id), |blocks| {
            let blocks = InputBlocks {
                source,
                blocks,
                ends,
                replace,
                is_reversed,
                parts,
                with_places: self.shape.is_ordered || self.route.needs_places(),
            };
            self.run(&blocks)
        })
    }

    pub fn run(&self, blocks: &dyn EdgeBlocks) -> Result<()> {
        let IngestJob { journal, progress, .. } = self.job;
        let leases = self.budget.spill_leases(self.route.files().into(), self.buffer_bytes);
        let leases = match self.route {
            Route::Shard { .. } => leases,
            // Segments follow from the ids, and their buffers have at least the smallest useful size.
            Route::Segment { .. } => split_at_limit(self.budget.memory, leases),
        };
        self.job.enter(self.title, leases)?;
        progress.stage(self.title, Some(blocks.total_bytes()));
        let commit_bytes = COMMIT_BYTES.max(blocks.total_bytes() / COMMITS_MAX);
        let first_worker = journal.stage(self.stage).next_worker();
        workers::run(self.job.budget.threads, |turn| {
            let mut buffers = BlockBuffers::default();
            let mut worker = SpillWorker::new(self, first_worker + turn.number)?;
            while turn.goes_on()
                && let Some(block) = blocks.next(&mut buffers, &mut |path, reject| worker.reject(path, &reject))?
            {
                progress.advance(block.bytes, buffers.batch.sources.len() as u64);
                check_stopped(*progress)?;
                worker.spill(block, &buffers)?;
                if worker.uncommitted_bytes >= commit_bytes {
                    worker.commit()?;
                }
            }
            worker.commit()
        })
    }
}

struct SpillWorker<'a> {
    pass: &'a SpillPass<'a>,
    number: u32,
    writer: SpillWriter,
    rejects: RejectsWriter,
    /// The blocks since the last commit.
    blocks: Vec<BlockId>,
    counts: Counts,
    uncommitted_bytes: u64,
}

impl<'a> SpillWorker<'a> {
    fn new(pass: &'a SpillPass<'a>, number: u32) -> Result<Self> {
        Ok(Self {
            pass,
            number,
            writer: SpillWriter::new(pass.spill.clone(), number, pass.route.files(), pass.buffer_bytes)?,
            rejects: RejectsWriter::new(pass.job.store.lasting_scratch(), number),
            blocks: Vec::new(),
            counts: Counts::default(),
            uncommitted_bytes: 0,
        })
    }

    fn reject(&mut self, path: &Path, reject: &Reject) -> Result<()> {
        self.counts.rejected += 1;
        let is_unknown = matches!(reject.reason, BadEdge::TooLarge(IdLimit::Nodes(_)) | BadEdge::NotANode(_));
        self.counts.unknown_nodes += u64::from(is_unknown);
        if reject.reason.is_missing_id() && self.pass.is_of_types {
            return Ok(());
        }
        // Edges that later passes of a join leave out do not have their lines.
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        self.rejects.write(path, reject)
    }

    fn spill(&mut self, block: ReadBlock, buffers: &BlockBuffers) -> Result<()> {
        self.pass.route.spill(buffers, self.pass.shape, &mut self.writer)?;
        self.counts.read += buffers.batch.sources.len() as u64;
        self.blocks.push(block.id);
        self.uncommitted_bytes += block.bytes;
        Ok(())
    }

    /// Writes out the buffers and records the blocks. The order matters: a block in the journal is never spilled again,
    /// so its records and rejects must be in the files first.
    fn commit(&mut self) -> Result<()> {
        self.counts.rejects = self.rejects.flush()?;
        let extents: &[Extent] = self.writer.flush_all()?;
        let blocks = std::mem::take(&mut self.blocks);
        self.uncommitted_bytes = 0;
        self.pass.job.journal.spilled(self.pass.stage, self.number, blocks, extents, self.counts)
    }
}
