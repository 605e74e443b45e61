//! Edges that an earlier pass of the join spilled, as blocks.
//!
//! One segment is open at a time, because only one table fits in memory. Its files are divided into blocks of
//! [`READ_RECORDS`] records, so that all threads share a segment:
//!
//! ```text
//! each worker: next()
//!     with the read lock: take a block of the open segment, read it, replace its keys by nodes
//!     none left: with the write lock, which waits for the readers: check the segment, open the next
//! ```

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use grappa_formats::NodeId;
use grappa_input::{BadEdge, BlockId, EdgeEnd, EdgeSource, IdKind, OnBadLine, Reject};
use grappa_io::{Error, Position, Result};

use crate::{
    ids::{keys::Id, table::KeyTable},
    ingest::{
        edge_values::ValueShape,
        edges::{
            blocks::{BlockBuffers, EdgeBlocks, OnReject, ReadBlock, remove_edges},
            ends::EdgeEnds,
            input_edges::InputEdges,
        },
        id_columns::ParsedIds,
        journal::{BlockSet, StageState},
        segments::{JoinPlan, READ_RECORDS, load, segment_of},
        spill::{self, Extent, SpillFolder},
    },
};

/// Spilled edges, segment by segment. The key at `end` of each edge is replaced by its node.
pub struct SpilledBlocks<'a> {
    plan: &'a JoinPlan,
    scratch: PathBuf,
    edges: SpillFolder,
    shape: ValueShape,
    spilled: StageState,
    end: EdgeEnd,
    /// Whether edges may have ids that no node has. Then they are left out, or an error, as bad lines are.
    unknown: Option<UnknownIds>,
    /// Blocks that an earlier run has passed on.
    done: BlockSet,
    current: RwLock<Current>,
}

/// Ids at an end of edges that no node has.
pub struct UnknownIds {
    /// The end in the files: 0 for sources, 1 for targets.
    pub column: usize,
    pub on_bad_line: OnBadLine,
    /// A segment and a key in it that no node has, once one is found.
    pub found: Mutex<Option<(u32, u64)>>,
}

struct Current {
    /// The next segment to open.
    upcoming: u32,
    open: Option<OpenSegment>,
    /// The table, while no segment is open.
    table: Option<KeyTable>,
}

struct OpenSegment {
    segment: u32,
    table: KeyTable,
    files: Vec<SegmentFile>,
    /// The blocks that are not done: the number in the segment, the index of the file, and the first record there.
    blocks: Vec<(u64, usize, u64)>,
    /// The number of blocks that workers have taken.
    taken: AtomicUsize,
}

struct SegmentFile {
    worker: u32,
    extent: Extent,
    /// Records read so far, and the sum of their checksums.
    records: AtomicU64,
    sum: AtomicU64,
}

impl UnknownIds {
    /// The unknown ids at an end of edges, if the user has listed its nodes.
    pub fn new(input: &InputEdges<'_>, ends: &EdgeEnds<'_>, end: EdgeEnd) -> Option<Self> {
        let column = if input.is_reversed { 1 - end as usize } else { end as usize };
        let unknown = Self { column, on_bad_line: input.reader.input.form.on_bad_line, found: Mutex::new(None) };
        ends.ids(end).are_listed.then_some(unknown)
    }
}

impl<'a> SpilledBlocks<'a> {
    /// The edges in the files `edges`, with values of this shape, which a pass spilled as `spilled` says. Blocks in `done` are left out.
    #[expect(clippy::too_many_arguments, reason = "they are all that the blocks are made of")]
    pub fn new(
        plan: &'a JoinPlan,
        scratch: &Path,
        table: KeyTable,
        edges: SpillFolder,
        shape: ValueShape,
        spilled: StageState,
        end: EdgeEnd,
        unknown: Option<UnknownIds>,
        done: BlockSet,
    ) -> Self {
        Self {
            plan,
            scratch: scratch.to_owned(),
            edges,
            shape,
            spilled,
            end,
            unknown,
            done,
            current: RwLock::new(Current { upcoming: 0, open: None, table: Some(table) }),
        }
    }

    /// The table, after all segments were read.
    pub fn into_table(self) -> KeyTable {
        let current = self.current.into_inner().unwrap_or_else(PoisonError::into_inner);
        current.table.expect("no segment is open any more")
    }

    pub fn remove(&self) -> Result<()> {
        let workers = self.spilled.workers.keys().copied();
        self.edges.remove_all(0..self.plan.segments(), workers)
    }

    /// Closes the open segment and opens the next one with a block that is not done.
    fn advance(&self, current: &mut Current) -> Result<()> {
        if let Some(open) = current.open.take() {
            self.check(&open)?;
            current.table = Some(open.table);
        }
        while current.upcoming < self.plan.segments() {
            let segment = current.upcoming;
            current.upcoming += 1;
            let (mut files, mut blocks) = (Vec::new(), Vec::new());
            for (worker, extent) in self.spilled.files_of(segment) {
                let firsts = (0..extent.records).step_by(READ_RECORDS as usize);
                blocks.extend(firsts.map(|first| (files.len(), first)));
                files.push(SegmentFile { worker, extent, records: AtomicU64::new(0), sum: AtomicU64::new(0) });
            }
            let all = blocks.len();
            let blocks = (0..).zip(blocks).map(|(block, (file, first))| (block, file, first));
            let blocks: Vec<_> =
                blocks.filter(|&(block, ..)| !self.done.contains(&BlockId { file: segment, block })).collect();
            if blocks.is_empty() {
                continue;
            }
            if blocks.len() < all {
                // The sums of `read` do not cover the blocks that are skipped.
                for file in &files {
                    self.edges.read_all(file.worker, segment, file.extent, READ_RECORDS, |_| Ok(()))?;
                }
            }
            // The table is gone if a worker failed to open the last segment. That worker's error ends the run; this
            // one must not panic before.
            let mut table = match current.table.take() {
                Some(table) => table,
                None => self.plan.table()?,
            };
            load(self.plan, segment, &self.scratch, &mut table, &mut Vec::new())?;
            current.open = Some(OpenSegment { segment, table, files, blocks, taken: AtomicUsize::new(0) });
            break;
        }
        Ok(())
    }

    /// Compares the files of a segment with their sums. Files that a resumed run reads only in part were checked before.
    fn check(&self, open: &OpenSegment) -> Result<()> {
        for file in &open.files {
            if file.records.load(Ordering::Acquire) == file.extent.records {
                let sum = file.sum.load(Ordering::Acquire);
                self.edges.check(file.worker, open.segment, file.extent, sum)?;
            }
        }
        Ok(())
    }

    /// Reads a block of the open segment and replaces keys by nodes.
    fn read(
        &self,
        open: &OpenSegment,
        (block, file, first): (u64, usize, u64),
        buffers: &mut BlockBuffers,
        on_reject: OnReject<'_>,
    ) -> Result<ReadBlock> {
        let file = &open.files[file];
        let count = READ_RECORDS.min(file.extent.records - first);
        buffers.words.resize(count as usize * self.edges.record_words(), 0);
        self.edges.read(file.worker, open.segment, first, &mut buffers.words)?;
        // The sum does not depend on the order of blocks, so workers add to it as they read.
        file.sum.fetch_add(spill::sum(&buffers.words), Ordering::AcqRel);
        file.records.fetch_add(count, Ordering::AcqRel);
        let BlockBuffers { batch, places, .. } = buffers;
        let (sources, targets) = (&mut batch.sources, &mut batch.targets);
        let records = buffers.words.chunks_exact(self.edges.record_words());
        sources.clear();
        sources.extend(records.clone().map(|record| record[0]));
        targets.clear();
        targets.extend(records.clone().map(|record| record[1]));
        batch.values.clear();
        batch.order.times.clear();
        places.clear();
        for record in records {
            self.shape.read(&record[2..], &mut batch.values);
            if self.shape.is_timed {
                batch.order.times.push(self.shape.time(&record[2..]));
            }
            if self.shape.is_ordered {
                places.extend(record.last());
            }
        }
        let keys = match self.end {
            EdgeEnd::Source => sources,
            EdgeEnd::Target => targets,
        };
        match &self.unknown {
            // Every key came from the dictionary, so a key that is not in the table is damage.
            None if open.table.find_all(keys).is_err() => {
                return Err(self.edges.damaged(file.worker, open.segment));
            }
            None => {}
            Some(unknown) => self.replace_known(unknown, open, buffers, on_reject)?,
        }
        Ok(ReadBlock { id: BlockId { file: open.segment, block }, bytes: size_of_val(&*buffers.words) as u64 })
    }
}

impl SpilledBlocks<'_> {
    /// Replaces the keys of a block by nodes, and leaves out edges whose key no node has.
    fn replace_known(
        &self,
        unknown: &UnknownIds,
        open: &OpenSegment,
        buffers: &mut BlockBuffers,
        on_reject: OnReject<'_>,
    ) -> Result<()> {
        let batch = &mut buffers.batch;
        let keys = if self.end == EdgeEnd::Source { &mut batch.sources } else { &mut batch.targets };
        let mut nodes = vec![None; keys.len()];
        open.table.find_each(keys, &mut nodes);
        let mut left_out = Vec::new();
        for (edge, (key, node)) in keys.iter_mut().zip(nodes).enumerate() {
            match node {
                Some(NodeId(node)) => *key = node,
                None => {
                    let mut found = unknown.found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.get_or_insert((open.segment, *key));
                    left_out.push(edge);
                }
            }
        }
        if left_out.is_empty() {
            return Ok(());
        }
        if unknown.on_bad_line == OnBadLine::Fail {
            // The caller finds the line.
            return Err(Error::input(&self.scratch, Position::Whole, "an edge has an id that no node has"));
        }
        for _ in &left_out {
            // Records do not have their lines.
            let reason = BadEdge::NotANode(unknown.column);
            on_reject(Path::new(""), Reject { position: Position::Whole, reason, text: "".into() })?;
        }
        let width = batch.values.len() / batch.sources.len();
        remove_edges(batch, &left_out, width);
        let mut removed = left_out.iter().copied().peekable();
        let mut edge = 0;
        buffers.places.retain(|_| {
            edge += 1;
            removed.next_if_eq(&(edge - 1)).is_none()
        });
        Ok(())
    }

    /// The result of a pass over these blocks. If an id is unknown, the error is about a line in `source` with it, which has read nothing yet.
    pub fn check_known(&self, source: impl FnOnce() -> Result<EdgeSource>, result: Result<()>) -> Result<()> {
        let Some(UnknownIds { column, on_bad_line: OnBadLine::Fail, found }) = &self.unknown else {
            return result;
        };
        let found = *found.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((segment, key)) = found else { return result };
        let (source, mut batch) = (source()?, ParsedIds::default());
        let has_id = |id: Id<'_>| segment_of(id.key(&self.plan.hash), self.plan.segments()) == (segment, key);
        while let Some(block) = source.next_block(&|_| false)? {
            batch.parse(&source, &block)?;
            let edge = match source.options().kinds()[*column] {
                IdKind::Integer => batch.integers(*column).position(|id| has_id(Id::Integer(id))),
                IdKind::String => {
                    batch.keys(*column).and_then(|keys| keys.iter().position(|id| has_id(Id::String(id))))
                }
            };
            if let Some(edge) = edge {
                block.reject_edges(&[(edge, *column)], &mut |_| Ok(()))?;
            }
        }
        result
    }
}

impl EdgeBlocks for SpilledBlocks<'_> {
    fn total_bytes(&self) -> u64 {
        self.spilled.records() * self.edges.record_words() as u64 * 8
    }

    fn next(&self, buffers: &mut BlockBuffers, on_reject: OnReject<'_>) -> Result<Option<ReadBlock>> {
        loop {
            let seen = {
                let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
                match &current.open {
                    Some(open) => {
                        if let Some(&block) = open.blocks.get(open.taken.fetch_add(1, Ordering::Relaxed)) {
                            return self.read(open, block, buffers, on_reject).map(Some);
                        }
                    }
                    None if current.upcoming == self.plan.segments() => return Ok(None),
                    None => {}
                }
                current.upcoming
            };
            // All workers come here when a segment ends. The first one to get the lock replaces the table. The others find
            // that `upcoming` has changed.
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            if current.upcoming == seen {
                self.advance(&mut current)?;
            }
        }
    }
}
