//! The replacement policy of the row pool: which feature rows are in which slots, and which row is evicted.
//!
//! [`Slots`] holds the bytes of the rows. The pool works like a set-associative cache. A hash
//! of the node selects two *buckets* of eight slots, and the row may be in any of these sixteen. So a lookup touches
//! one or two cache lines, which are prefetched, and there are no lists to maintain and no hash table to delete from.
//! The pool keeps eight bytes per row:
//!
//! ```text
//! bits 63..23  node + 1, so an empty slot is zero
//!      22..16  count of batches that needed the row, up to 127; halved for every 256 batches that did not need it
//!      15..0   the last batch that needed it, modulo 2^16
//! ```
//!
//! **Pinning.** A row is pinned until the last batch that needs it is assembled. Rows are not unpinned one by one: the
//! entry has the number of that batch, which is compared with the first batch that is not assembled.
//!
//! **Eviction.** A missing row takes an empty slot among its sixteen. Otherwise it evicts the unpinned row with the
//! lowest count, and among equal counts the one that was not needed for the longest time: least frequently used, in
//! samples of sixteen. The table shows thousands of missed rows per batch, for minibatches of an R-MAT graph (scale 22,
//! fanouts 15, 10, 5, after 210 batches of 87,590 rows):
//!
//! | slots | share of all rows ever needed | this policy | least recently used | hottest rows, known in advance |
//! |---|---|---|---|---|
//! | 1,760,000 | 96 % | 1.7 | 1.8 | 0.2 |
//! | 1,000,000 | 55 % | 5.6 | 7.3 | 3.7 |
//! | 600,000 | 33 % | 11.8 | 15.6 | 9.1 |
//! | 300,000 | 16 % | 25.2 | 31.4 | 19.5 |
//!
//! **Spare slots.** If most of the pool is pinned, all sixteen slots of a row can be. The row then goes to one of a few
//! spare slots, which any row may take.

pub(super) mod geometry;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use grappa_formats::NodeId;
use grappa_io::{Result, heap, prefetch::prefetch, slots::Slots};

use self::geometry::{Miss, PoolGeometry, WAYS};

const STAMP_BITS: u32 = 16;
const STAMP_MAX: u64 = (1 << STAMP_BITS) - 1;
const COUNT_BITS: u32 = 7;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// The count of a row is halved after this many batches that did not need it.
const HALF_LIFE: u64 = 256;

/// The maximum number of in-flight batches. It is far below 2^16, so stamps of pinned rows are unambiguous.
pub(super) const BATCHES_MAX: u64 = 1 << 12;

/// The buckets of a node are prefetched this many nodes before they are needed.
pub(super) const AHEAD: usize = 12;

/// Batch numbers at the time of a request. They count batches since the pool was created.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolClock {
    pub batch: u64,
    /// The first batch that is not assembled. Rows of this batch and all later ones are pinned.
    pub pinned_from: u64,
    /// The first batch of the window that is being planned.
    pub window_from: u64,
}

/// Result of a request for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolLookup {
    /// The row is in the pool, or will be when this window is read.
    Present {
        slot: u32,
        /// Whether this is the first request for the row in this window.
        first: bool,
    },
    /// The row got a slot and must be read.
    Missing { slot: u32, miss: Miss },
    /// All slots that the row may take are pinned.
    Full,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket([u64; WAYS]);

/// The row in a spare slot.
#[derive(Debug, Clone, Copy)]
struct SpareRow {
    /// Counts spare slots.
    slot: u32,
    /// The last batch that needed the row.
    batch: u64,
}

/// The memory of the rows.
#[derive(Debug)]
pub(super) struct PoolRows {
    pub geometry: PoolGeometry,
    pub slots: Slots,
    /// The coalescing gap: gaps of at most this many bytes between missing rows are read.
    pub coalescing_gap_bytes: u64,
}

/// Maps nodes to slots.
#[derive(Debug)]
pub(super) struct Pool {
    pub geometry: PoolGeometry,
    buckets: Vec<Bucket>,
    /// Number of empty slots in buckets.
    pub unused: usize,
    spare: HashMap<NodeId, SpareRow>,
    spare_free: Vec<u32>,
}

impl Pool {
    /// An empty pool.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn new(geometry: PoolGeometry) -> Result<Self> {
        let mut buckets = Vec::new();
        heap::reserve(&mut buckets, geometry.buckets, "the table of feature rows")?;
        buckets.resize(geometry.buckets, Bucket::default());
        Ok(Self {
            geometry,
            buckets,
            unused: geometry.buckets * WAYS,
            spare: HashMap::new(),
            spare_free: (0..geometry.spare as u32).rev().collect(),
        })
    }

    /// Prefetches the memory that [`Pool::request`] touches.
    #[inline]
    pub fn prefetch(&self, node: NodeId) {
        for bucket in self.geometry.buckets_of(node) {
            prefetch(&self.buckets, bucket);
        }
    }

    /// Finds or assigns a slot for the row of `node`, and pins it.
    #[inline]
    pub fn request(&mut self, node: NodeId, clock: PoolClock) -> PoolLookup {
        if self.buckets.is_empty() {
            return self.request_spare(node, clock);
        }
        let buckets = self.geometry.buckets_of(node);
        for bucket in buckets {
            if let Some(way) = find(&self.buckets[bucket], node) {
                let entry = &mut self.buckets[bucket].0[way];
                let age = age(*entry, clock.batch);
                let count = (aged_count(*entry, age) + 1).min(COUNT_MAX);
                *entry = entry_of(node, count, clock.batch);
                return PoolLookup::Present {
                    slot: (bucket * WAYS + way) as u32,
                    first: age > clock.batch - clock.window_from,
                };
            }
        }
        // A row in a spare slot stays there, even if one of its sixteen slots has become free: a batch may already
        // refer to the spare slot.
        if !self.spare.is_empty() && self.spare.contains_key(&node) {
            return self.request_spare(node, clock);
        }
        match self.coldest(buckets, clock) {
            Some(target) => self.assign(node, buckets, target, 1, clock.batch),
            None => self.request_spare(node, clock),
        }
    }

    /// Assigns an empty slot, if there is one, to the row of `node`. No batch needs the row, but it is about to be read
    /// together with its neighbors. It is pinned until `batch` is assembled.
    pub fn adopt(&mut self, node: NodeId, batch: u64) -> Option<Miss> {
        if self.unused == 0 {
            return None;
        }
        let buckets = self.geometry.buckets_of(node);
        if buckets.iter().any(|&bucket| find(&self.buckets[bucket], node).is_some()) || self.spare.contains_key(&node) {
            return None;
        }
        let [first, second] = buckets.map(|bucket| self.buckets[bucket].0.iter().position(|&entry| entry == 0));
        let target = first.or_else(|| Some(WAYS + second?))?;
        match self.assign(node, buckets, target, 0, batch) {
            PoolLookup::Missing { miss, .. } => Some(miss),
            _ => None,
        }
    }

    /// Removes a row from its spare slot. No batch but the one that requests it again refers to the slot.
    pub fn leave_spare_slot(&mut self, node: NodeId) {
        if let Some(spare) = self.spare.remove(&node) {
            self.spare_free.push(spare.slot);
        }
    }

    /// Removes a row that got a slot and was not read.
    pub fn forget(&mut self, miss: Miss) {
        let (node, slot) = (miss.node(), self.geometry.slot(miss) as usize);
        match self.buckets.get_mut(slot / WAYS) {
            Some(bucket) => {
                let entry = &mut bucket.0[slot % WAYS];
                if *entry >> (STAMP_BITS + COUNT_BITS) == node.0 + 1 {
                    *entry = 0;
                    self.unused += 1;
                }
            }
            None => self.leave_spare_slot(node),
        }
    }

    /// The target of a new row: the one of sixteen slots that is empty, or whose row should be evicted. None if all
    /// rows are pinned.
    #[inline]
    fn coldest(&self, buckets: [usize; 2], clock: PoolClock) -> Option<usize> {
        let pinned = clock.batch - clock.pinned_from;
        // One number orders all candidates: empty slots first, then by count, then the oldest first. Pinned rows come
        // last.
        let mut best = (u64::MAX, 0);
        for (i, bucket) in buckets.into_iter().enumerate() {
            for (way, &entry) in self.buckets[bucket].0.iter().enumerate() {
                let age = age(entry, clock.batch);
                let score = match entry {
                    0 => 0,
                    _ if age <= pinned => u64::MAX,
                    _ => (aged_count(entry, age) + 1) << STAMP_BITS | (STAMP_MAX - age),
                };
                if score < best.0 {
                    best = (score, i * WAYS + way);
                }
            }
        }
        (best.0 != u64::MAX).then_some(best.1)
    }

    /// Replaces the row in one of the sixteen slots.
    fn assign(&mut self, node: NodeId, buckets: [usize; 2], target: usize, count: u64, batch: u64) -> PoolLookup {
        let (bucket, way) = (buckets[target / WAYS], target % WAYS);
        let entry = &mut self.buckets[bucket].0[way];
        self.unused -= usize::from(*entry == 0);
        *entry = entry_of(node, count, batch);
        PoolLookup::Missing { slot: (bucket * WAYS + way) as u32, miss: Miss::new(node, target as u64) }
    }

    #[cold]
    fn request_spare(&mut self, node: NodeId, clock: PoolClock) -> PoolLookup {
        let first_slot = (self.geometry.buckets * WAYS) as u32;
        if let Some(spare) = self.spare.get_mut(&node) {
            let first = spare.batch < clock.window_from;
            spare.batch = clock.batch;
            return PoolLookup::Present { slot: first_slot + spare.slot, first };
        }
        if self.spare_free.is_empty() {
            self.spare.retain(|_, spare| {
                let pinned = spare.batch >= clock.pinned_from;
                if !pinned {
                    self.spare_free.push(spare.slot);
                }
                pinned
            });
        }
        let Some(slot) = self.spare_free.pop() else {
            return PoolLookup::Full;
        };
        let batch = clock.batch;
        self.spare.insert(node, SpareRow { slot, batch });
        PoolLookup::Missing { slot: first_slot + slot, miss: Miss::new(node, 2 * WAYS as u64 + u64::from(slot)) }
    }
}

#[inline(always)]
fn entry_of(node: NodeId, count: u64, batch: u64) -> u64 {
    (node.0 + 1) << (STAMP_BITS + COUNT_BITS) | count << STAMP_BITS | (batch & STAMP_MAX)
}

/// Number of batches since the row was last needed. After 2^16 batches a row looks as if it was just needed. It is then
/// evicted a little later, which does no harm.
#[inline(always)]
fn age(entry: u64, batch: u64) -> u64 {
    batch.wrapping_sub(entry) & STAMP_MAX
}

#[inline(always)]
fn aged_count(entry: u64, age: u64) -> u64 {
    (entry >> STAMP_BITS & COUNT_MAX) >> (age / HALF_LIFE).min(63)
}

#[inline(always)]
fn find(bucket: &Bucket, node: NodeId) -> Option<usize> {
    // No early exit, so that the compiler compares all eight entries at once.
    let found = bucket
        .0
        .iter()
        .enumerate()
        .fold(0, |found, (way, &entry)| found | u32::from(entry >> (STAMP_BITS + COUNT_BITS) == node.0 + 1) << way);
    (found != 0).then(|| found.trailing_zeros() as usize)
}
