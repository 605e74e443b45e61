//! Plans batches: finds a slot for each feature row that a batch needs, and collects the rows that must be read.

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::Result;

use super::{
    access::StoredRows,
    pool::{AHEAD, Pool, PoolClock, PoolLookup, geometry::Miss},
    resident::RESIDENT,
    stats::Counters,
};

/// Consecutive batches whose missing rows are read together.
#[derive(Debug)]
pub(super) struct Window {
    /// The index of the window in its epoch.
    pub number: u64,
    /// Its first batch, counted since the feed was opened.
    from: u64,
    /// Its last batch, which may have rows without slots.
    last: Option<u64>,
    /// Number of batches.
    pub batches: usize,
    /// Number of distinct rows in the pool that its batches need. They stay in their slots until the batches are
    /// assembled.
    pub rows: usize,
    /// The rows to be read. Sorted when the window is closed.
    pub misses: Vec<Miss>,
}

/// How planning a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanOutcome {
    /// Every row has a slot.
    Complete,
    /// All slots that a row may take are pinned.
    PoolFull,
}

/// Assigns slots to rows, batch by batch.
#[derive(Debug)]
pub(super) struct Planner {
    pool: Pool,
    rows: Arc<StoredRows>,
    /// The open window.
    pub window: Window,
}

impl Planner {
    pub fn new(pool: Pool, rows: Arc<StoredRows>) -> Self {
        Self { pool, rows, window: Window { number: 0, from: 0, last: None, batches: 0, rows: 0, misses: Vec::new() } }
    }

    /// Begins an epoch. Its first batch is `batch`, counted since the feed was opened.
    pub fn begin(&mut self, batch: u64) {
        debug_assert!(self.window.batches == 0, "the window of the previous epoch is still open");
        self.window.number = 0;
        self.window.from = batch;
    }

    /// Whether the window should get no more batches. It may use half of the pool, because the rows of the next window
    /// need slots while the rows of this window are pinned.
    pub fn is_full(&self, batches_max: usize) -> bool {
        self.window.batches >= batches_max || self.window.rows >= self.pool.geometry.slots() / 2
    }

    /// Appends the slots of the rows of `nodes` to `slots`. Continues after the rows that have slots from an earlier
    /// call. Batches below `pinned_from` are assembled.
    ///
    /// A batch that is planned again and again while others pin their rows fills the spare slots. When it is the only
    /// one left, its rows in spare slots move to those that the others had.
    pub fn plan(
        &mut self,
        nodes: &[NodeId],
        slots: &mut Vec<u32>,
        batch: u64,
        pinned_from: u64,
        counters: &Counters,
    ) -> Result<PlanOutcome> {
        let clock = PoolClock { batch, pinned_from, window_from: self.window.from };
        if self.window.last != Some(batch) {
            self.window.last = Some(batch);
            self.window.batches += 1;
        }
        let (first, misses) = (slots.len(), self.window.misses.len());
        let mut outcome = self.request_rows(nodes, slots, clock, counters)?;
        if outcome == PlanOutcome::PoolFull && first > 0 && pinned_from == batch {
            self.leave_spare_slots(nodes, slots, clock);
            outcome = self.request_rows(nodes, slots, clock, counters)?;
        }
        counters.add(|stats| {
            stats.rows_wanted += (slots.len() - first) as u64;
            stats.rows_missed += (self.window.misses.len() - misses) as u64;
        });
        Ok(outcome)
    }

    /// Requests the rows that have no slots, until one gets none.
    fn request_rows(
        &mut self,
        nodes: &[NodeId],
        slots: &mut Vec<u32>,
        clock: PoolClock,
        counters: &Counters,
    ) -> Result<PlanOutcome> {
        let (resident, files) = (self.rows.resident.as_ref(), &self.rows.files);
        let first = slots.len();
        let mut resident_rows = 0;
        let mut outcome = PlanOutcome::Complete;
        for &node in nodes[first..].iter().take(AHEAD) {
            self.pool.prefetch(node);
        }
        for (i, &node) in nodes.iter().enumerate().skip(first) {
            if let Some(&later) = nodes.get(i + AHEAD) {
                self.pool.prefetch(later);
            }
            if resident.is_some_and(|resident| resident.has(files.chunks.chunk_of(node))) {
                slots.push(RESIDENT);
                resident_rows += 1;
                continue;
            }
            match self.pool.request(node, clock) {
                PoolLookup::Present { slot, first } => {
                    slots.push(slot);
                    self.window.rows += usize::from(first);
                }
                PoolLookup::Missing { slot, miss } => {
                    // The reader relies on the row having a location. Only misses are checked: the others were misses
                    // once.
                    if let Err(error) = files.check(node) {
                        self.pool.forget(miss);
                        return Err(error);
                    }
                    slots.push(slot);
                    self.window.rows += 1;
                    self.window.misses.push(miss);
                }
                PoolLookup::Full => {
                    outcome = PlanOutcome::PoolFull;
                    break;
                }
            }
        }
        counters.add(|stats| stats.rows_resident += resident_rows);
        Ok(outcome)
    }

    /// Requests the rows of a batch again that are in spare slots. All earlier batches are assembled, so the open
    /// window has only misses of this batch.
    fn leave_spare_slots(&mut self, nodes: &[NodeId], slots: &mut [u32], clock: PoolClock) {
        let geometry = self.pool.geometry;
        let dropped = self.window.misses.extract_if(.., |miss| geometry.is_spare(geometry.slot(*miss)));
        self.window.rows -= dropped.count();
        let spare: Vec<usize> = (0..slots.len()).filter(|&i| geometry.is_spare(slots[i])).collect();
        for &i in &spare {
            self.pool.leave_spare_slot(nodes[i]);
        }
        for i in spare {
            slots[i] = match self.pool.request(nodes[i], clock) {
                PoolLookup::Missing { slot, miss } => {
                    self.window.rows += 1;
                    self.window.misses.push(miss);
                    slot
                }
                // A node of several joined minibatches.
                PoolLookup::Present { slot, .. } => slot,
                PoolLookup::Full => unreachable!("the row left its slot, and as many spare slots are free as before"),
            };
        }
    }

    /// Closes the window and sorts its misses. The next window begins with batch `next_batch`; `misses` is memory for
    /// it.
    pub fn close(&mut self, next_batch: u64, misses: Vec<Miss>, counters: &Counters) -> Window {
        debug_assert!(misses.is_empty(), "the misses belong to another window");
        self.window.misses.sort_unstable();
        if self.pool.unused > 0 {
            self.adopt(counters);
        }
        self.open(next_batch, misses)
    }

    /// Assigns empty slots to rows in the gaps that will be read. No batch needs these rows yet, but they cost no read.
    fn adopt(&mut self, counters: &Counters) {
        let chunks = &self.rows.files.chunks;
        // A gap is read in each column, so the column with the longest rows decides how many rows a gap may have.
        let stride = self.rows.files.layouts().map(|layout| u64::from(layout.stride)).max().unwrap_or(1);
        let gap_bytes_max = self.rows.pool.as_ref().map_or(0, |pool| pool.coalescing_gap_bytes);
        // Pinned until the first batch of the window is assembled, and so until they are read.
        let (gap_rows_max, pinned_to) = (gap_bytes_max / stride, self.window.from);
        let needed = self.window.misses.len();
        for i in 1..needed {
            let [before, after] = [i - 1, i].map(|i| self.window.misses[i].node());
            let gap = before.0 + 1..after.0;
            if gap.is_empty() || gap.end - gap.start > gap_rows_max || chunks.chunk_of(before) != chunks.chunk_of(after)
            {
                continue;
            }
            for node in gap.map(NodeId) {
                self.window.misses.extend(self.pool.adopt(node, pinned_to));
            }
            if self.pool.unused == 0 {
                break;
            }
        }
        counters.add(|stats| stats.rows_adopted += (self.window.misses.len() - needed) as u64);
        self.window.misses.sort_unstable();
    }

    /// Replaces the open window by an empty one.
    fn open(&mut self, next_batch: u64, misses: Vec<Miss>) -> Window {
        let next = Window { number: self.window.number + 1, from: next_batch, last: None, batches: 0, rows: 0, misses };
        std::mem::replace(&mut self.window, next)
    }

    /// Removes the misses of the open window and of `unread` from the pool, because they will not be read.
    pub fn forget(&mut self, unread: Option<Window>) {
        let open = self.open(0, Vec::new());
        for miss in unread.into_iter().chain([open]).flat_map(|window| window.misses) {
            self.pool.forget(miss);
        }
    }
}
