//! Planning: which rows minibatches want, where each will be, and what must be read.

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::Result;

use super::{
    access::Stored,
    pool::{AHEAD, Found, Miss, Now, Pool},
    stats::Counters,
};

/// The place of a row of a resident chunk, which is found by arithmetic.
pub(super) const RESIDENT: u32 = u32::MAX;

/// Minibatches whose rows are read together.
#[derive(Debug)]
pub(super) struct Window {
    /// Counts the windows of an epoch.
    pub number: u64,
    /// Its first batch.
    from: u64,
    /// Its last batch, which may not have all its places yet.
    last: Option<u64>,
    /// Number of batches.
    pub batches: usize,
    /// Rows that it wants, each counted once: they stay in their slots until it is assembled.
    pub rows: usize,
    /// What must be read; sorted when the window is closed.
    pub misses: Vec<Miss>,
}

/// How planning a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planned {
    /// Every row has a place.
    Whole,
    /// A row found all its slots taken by rows that are still needed.
    Full,
}

/// Gives every row that is wanted a place, batch by batch.
#[derive(Debug)]
pub(super) struct Planner {
    pool: Pool,
    rows: Arc<Stored>,
    window: Window,
}

impl Planner {
    pub fn new(pool: Pool, rows: Arc<Stored>) -> Self {
        Self {
            pool,
            rows,
            window: Window {
                number: 0,
                from: 0,
                last: None,
                batches: 0,
                rows: 0,
                misses: Vec::new(),
            },
        }
    }

    /// Begins an epoch, whose first batch is number `batch` of all.
    pub fn begin(&mut self, batch: u64) {
        debug_assert!(self.window.batches == 0, "a window of another epoch is open");
        self.window.number = 0;
        self.window.from = batch;
    }

    /// The window that is being planned.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Whether the window should take no more: the next one must find places while this one keeps its own.
    pub fn is_full(&self, batches_max: usize) -> bool {
        self.window.batches >= batches_max || self.window.rows >= self.pool.geometry().slots() / 2
    }

    /// Appends to `places` where the rows of `nodes` are, from where it left off the last time. Batches with numbers below
    /// `pinned_from` are assembled.
    pub fn plan(
        &mut self,
        nodes: &[NodeId],
        places: &mut Vec<u32>,
        batch: u64,
        pinned_from: u64,
        counters: &Counters,
    ) -> Result<Planned> {
        let now = Now {
            batch,
            pinned_from,
            window_from: self.window.from,
        };
        if self.window.last != Some(batch) {
            self.window.last = Some(batch);
            self.window.batches += 1;
        }
        let (resident, files) = (self.rows.resident.as_ref(), &self.rows.files);
        let is_resident = |node| resident.is_some_and(|resident| resident.has(files.chunks().chunk_of(node)));
        let (first, misses) = (places.len(), self.window.misses.len());
        let mut in_memory = 0;
        let mut planned = Planned::Whole;
        for &node in nodes[first..].iter().take(AHEAD) {
            self.pool.prefetch(node);
        }
        for (i, &node) in nodes.iter().enumerate().skip(first) {
            if let Some(&later) = nodes.get(i + AHEAD) {
                self.pool.prefetch(later);
            }
            if is_resident(node) {
                places.push(RESIDENT);
                in_memory += 1;
                continue;
            }
            match self.pool.want(node, now) {
                Found::Present { slot, first } => {
                    places.push(slot);
                    self.window.rows += usize::from(first);
                }
                Found::Missing { slot, miss } => {
                    if let Err(error) = files.check(node) {
                        self.pool.forget(miss);
                        return Err(error);
                    }
                    places.push(slot);
                    self.window.rows += 1;
                    self.window.misses.push(miss);
                }
                Found::Full => {
                    planned = Planned::Full;
                    break;
                }
            }
        }
        counters.rows_wanted.add((places.len() - first) as u64);
        counters.rows_resident.add(in_memory);
        counters.rows_missed.add((self.window.misses.len() - misses) as u64);
        Ok(planned)
    }

    /// Ends the window, and sorts its misses; the next one begins with `next_batch`, and `misses` is memory for it.
    pub fn close(&mut self, next_batch: u64, misses: Vec<Miss>, counters: &Counters) -> Window {
        debug_assert!(misses.is_empty(), "misses of another window");
        self.window.misses.sort_unstable();
        if self.pool.unused() > 0 {
            self.adopt(counters);
        }
        self.open(next_batch, misses)
    }

    /// Gives rows between missing ones that are read with them places that no row had yet. (They stay until the window's
    /// first batch is assembled, and so until they are read.)
    fn adopt(&mut self, counters: &Counters) {
        let chunks = self.rows.files.chunks();
        // A gap must be read in each column.
        let stride = self
            .rows
            .files
            .layouts()
            .map(|layout| u64::from(layout.stride))
            .max()
            .unwrap_or(1);
        let bridge_bytes = self.rows.pool.as_ref().map_or(0, |pool| pool.bridge_bytes);
        let (bridged, from) = (bridge_bytes / stride, self.window.from);
        let wanted = self.window.misses.len();
        for i in 1..wanted {
            let [before, after] = [i - 1, i].map(|i| self.window.misses[i].node());
            let gap = before.0 + 1..after.0;
            if gap.is_empty() || gap.end - gap.start > bridged || chunks.chunk_of(before) != chunks.chunk_of(after) {
                continue;
            }
            for node in gap.map(NodeId) {
                self.window.misses.extend(self.pool.adopt(node, from));
            }
            if self.pool.unused() == 0 {
                break;
            }
        }
        counters.rows_adopted.add((self.window.misses.len() - wanted) as u64);
        self.window.misses.sort_unstable();
    }

    fn open(&mut self, next_batch: u64, misses: Vec<Miss>) -> Window {
        let next = Window {
            number: self.window.number + 1,
            from: next_batch,
            last: None,
            batches: 0,
            rows: 0,
            misses,
        };
        std::mem::replace(&mut self.window, next)
    }

    /// Takes back that rows of the open window, and of `unread`, are in the pool.
    pub fn forget(&mut self, unread: Option<Window>) {
        let open = self.open(0, Vec::new());
        for miss in unread.into_iter().chain([open]).flat_map(|window| window.misses) {
            self.pool.forget(miss);
        }
    }
}
