//! Which rows are in the row pool, and which of them give way.
//!
//! The pool is a number of places for rows ([`Slots`](grappa_io::slots::Slots) holds their bytes; this is the part that
//! decides). It works like a processor's cache: a hash of the node names two *buckets* of eight places, and a row may be
//! in any of the sixteen. So finding a row takes one or two cache lines, which are asked for ahead; there is no list to
//! keep and no table to delete from; and of a row, eight bytes are kept:
//!
//! ```text
//! bits 63..23  node + 1, so that an empty place is zero
//!      22..16  how many batches wanted the row, up to 127; halved for every 256 batches without a wish
//!      15..0   the last batch that wanted it, modulo 2^16
//! ```
//!
//! **Pinned** is a row that a batch still needs: one whose last batch is not assembled yet. So nothing is unpinned row by
//! row; as batches are assembled, their rows become free to go by themselves.
//!
//! **Who gives way** for a row that must be read: of the sixteen places an empty one, else the row that was wanted least
//! often, and of several the one that was not wanted for longest. That is least-frequently-used in samples of sixteen. On
//! minibatches of an R-MAT graph (scale 22, fanouts 15, 10, 5, after 210 batches of 87,590 rows), this many thousand rows a
//! batch are missed:
//!
//! | places | of the rows ever wanted | missed | least recently used | hottest rows, known beforehand |
//! |---|---|---|---|---|
//! | 1,760,000 | 96 % | 1.7 | 1.8 | 0.2 |
//! | 1,000,000 | 55 % | 5.6 | 7.3 | 3.7 |
//! | 600,000 | 33 % | 11.8 | 15.6 | 9.1 |
//! | 300,000 | 16 % | 25.2 | 31.4 | 19.5 |
//!
//! Where all sixteen are pinned, which happens when most of the pool is, a row goes to one of a few *spare* places, which
//! any row may have.

use std::collections::HashMap;

use grappa_formats::{NodeId, random};
use grappa_io::prefetch::prefetch;

/// Places of a bucket, whose entries fill a cache line.
const WAYS: usize = 8;
/// One of so many places is spare.
const SPARE_SHARE: usize = 64;
const SPARE_MIN: usize = 16;
/// Bits of a [`Miss`] that say where the row goes.
const PLACE_BITS: u32 = 24;

const STAMP_BITS: u32 = 16;
const COUNT_BITS: u32 = 7;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// Batches after which a row that was not wanted counts half.
const HALF_LIFE: u64 = 256;

/// The most batches that may be under way at once: the stamps of more could not be told from one another.
pub(super) const BATCHES_MAX: u64 = 1 << 12;

/// How many nodes ahead their buckets are asked for.
pub(super) const AHEAD: usize = 12;

/// When something is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// The batch that wants it, counted since the pool was made.
    pub batch: u64,
    /// The first batch that is not assembled yet; all from here on keep their rows.
    pub pinned_from: u64,
    /// The first batch of the window that is being planned.
    pub window_from: u64,
}

/// What became of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The row is in the pool, or will be when this window is read.
    Present {
        /// Its place.
        slot: u32,
        /// Whether this window did not want it before.
        first: bool,
    },
    /// The row has a place now, and must be read.
    Missing {
        /// Its place.
        slot: u32,
        /// What to read.
        miss: Miss,
    },
    /// Every place that the row might have is pinned.
    Full,
}

/// A row that must be read, and where it goes. Sorts by node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Miss(u64);

impl Miss {
    fn new(node: u64, place: u64) -> Self {
        Self(node << PLACE_BITS | place)
    }

    /// Whose row it is.
    #[inline]
    pub fn node(self) -> NodeId {
        NodeId(self.0 >> PLACE_BITS)
    }

    fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

/// How many places there are, and so where they are: all that it takes to find the place of a [`Miss`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    buckets: usize,
    spare: usize,
}

impl Geometry {
    /// As many places as fit into `slots`.
    pub fn within(slots: usize) -> Self {
        let slots = slots.min(u32::MAX as usize - 1);
        let spare = (slots / SPARE_SHARE)
            .clamp(SPARE_MIN, (1 << PLACE_BITS) - 2 * WAYS)
            .min(slots);
        Self {
            buckets: (slots - spare) / WAYS,
            spare,
        }
    }

    /// A pool that has room for any `rows` rows at once: four fifths full, so rarely does a row find both its buckets
    /// full, and there are spare places for those.
    pub fn for_rows(rows: usize) -> Self {
        let rows = rows.min(u32::MAX as usize);
        Self::within((rows + rows / 4).div_ceil(WAYS) * WAYS + SPARE_MIN + rows / (SPARE_SHARE / 2))
    }

    /// Number of places.
    pub fn slots(self) -> usize {
        self.buckets * WAYS + self.spare
    }

    /// Bytes that [`Pool`] takes for a place.
    pub const BYTES_PER_SLOT: u64 = size_of::<u64>() as u64;

    /// The place of a row that must be read.
    #[inline]
    pub fn slot(self, miss: Miss) -> u32 {
        let slot = match miss.place() {
            way if way < WAYS => self.choices(miss.node().0)[0] * WAYS + way,
            way if way < 2 * WAYS => self.choices(miss.node().0)[1] * WAYS + way - WAYS,
            spare => self.buckets * WAYS + spare - 2 * WAYS,
        };
        slot as u32
    }

    #[inline]
    fn choices(self, node: u64) -> [usize; 2] {
        let hash = random::hash(node);
        let scale = |half: u64| ((half * self.buckets as u64) >> 32) as usize;
        [scale(hash & u64::from(u32::MAX)), scale(hash >> 32)]
    }
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket([u64; WAYS]);

/// A row in a spare place.
#[derive(Debug, Clone, Copy)]
struct Spare {
    place: u32,
    batch: u64,
}

/// Which row is in which place.
#[derive(Debug)]
pub(super) struct Pool {
    geometry: Geometry,
    buckets: Vec<Bucket>,
    /// Places in buckets that no row had yet.
    unused: usize,
    spare: HashMap<u64, Spare>,
    spare_free: Vec<u32>,
}

impl Pool {
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            buckets: vec![Bucket::default(); geometry.buckets],
            unused: geometry.buckets * WAYS,
            spare: HashMap::new(),
            spare_free: (0..geometry.spare as u32).rev().collect(),
        }
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Places in buckets that no row had yet.
    pub fn unused(&self) -> usize {
        self.unused
    }

    /// Asks for the memory that [`Pool::want`] will touch.
    #[inline]
    pub fn prefetch(&self, node: NodeId) {
        for bucket in self.geometry.choices(node.0) {
            prefetch(&self.buckets, bucket);
        }
    }

    /// Finds or makes a place for the row of `node`, and pins it.
    #[inline]
    pub fn want(&mut self, node: NodeId, now: Now) -> Found {
        if self.buckets.is_empty() {
            return self.want_spare(node, now);
        }
        let choices = self.geometry.choices(node.0);
        for choice in choices {
            if let Some(way) = find(&self.buckets[choice], node) {
                let entry = &mut self.buckets[choice].0[way];
                let age = age(*entry, now.batch);
                let count = (aged_count(*entry, age) + 1).min(COUNT_MAX);
                *entry = entry_of(node, count, now.batch);
                return Found::Present {
                    slot: (choice * WAYS + way) as u32,
                    first: age > now.batch - now.window_from,
                };
            }
        }
        if !self.spare.is_empty() && self.spare.contains_key(&node.0) {
            return self.want_spare(node, now);
        }
        match self.coldest(choices, now) {
            Some(place) => self.take(node, choices, place, 1, now.batch),
            None => self.want_spare(node, now),
        }
    }

    /// Gives the row of `node`, which nobody wants but which is about to be read with its neighbours, a place that no
    /// row had yet, if there is one. It is pinned until `batch` is assembled.
    pub fn adopt(&mut self, node: NodeId, batch: u64) -> Option<Miss> {
        if self.unused == 0 {
            return None;
        }
        let choices = self.geometry.choices(node.0);
        if choices
            .iter()
            .any(|&choice| find(&self.buckets[choice], node).is_some())
            || self.spare.contains_key(&node.0)
        {
            return None;
        }
        let empty = |choice: usize| self.buckets[choice].0.iter().position(|&entry| entry == 0);
        let place = empty(choices[0]).or_else(|| Some(WAYS + empty(choices[1])?))?;
        match self.take(node, choices, place, 0, batch) {
            Found::Missing { miss, .. } => Some(miss),
            _ => None,
        }
    }

    /// Takes back that a row has a place, because it was not read after all.
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
            None => {
                if let Some(spare) = self.spare.remove(&node.0) {
                    self.spare_free.push(spare.place);
                }
            }
        }
    }

    /// The place, of the sixteen, whose row should give way.
    #[inline]
    fn coldest(&self, choices: [usize; 2], now: Now) -> Option<usize> {
        let pinned = now.batch - now.pinned_from;
        let score = |entry: u64| {
            let age = age(entry, now.batch);
            match entry {
                0 => 0,
                _ if age <= pinned => u64::MAX,
                _ => (aged_count(entry, age) + 1) << STAMP_BITS | (STAMP_MAX - age),
            }
        };
        let mut best = (u64::MAX, 0);
        for (i, choice) in choices.into_iter().enumerate() {
            for (way, &entry) in self.buckets[choice].0.iter().enumerate() {
                let score = score(entry);
                if score < best.0 {
                    best = (score, i * WAYS + way);
                }
            }
        }
        (best.0 != u64::MAX).then_some(best.1)
    }

    fn take(&mut self, node: NodeId, choices: [usize; 2], place: usize, count: u64, batch: u64) -> Found {
        let (choice, way) = (choices[place / WAYS], place % WAYS);
        let entry = &mut self.buckets[choice].0[way];
        self.unused -= usize::from(*entry == 0);
        *entry = entry_of(node, count, batch);
        Found::Missing {
            slot: (choice * WAYS + way) as u32,
            miss: Miss::new(node.0, place as u64),
        }
    }

    #[cold]
    fn want_spare(&mut self, node: NodeId, now: Now) -> Found {
        let first_slot = (self.geometry.buckets * WAYS) as u32;
        if let Some(spare) = self.spare.get_mut(&node.0) {
            let first = spare.batch < now.window_from;
            spare.batch = now.batch;
            return Found::Present {
                slot: first_slot + spare.place,
                first,
            };
        }
        if self.spare_free.is_empty() {
            self.spare.retain(|_, spare| {
                let pinned = spare.batch >= now.pinned_from;
                if !pinned {
                    self.spare_free.push(spare.place);
                }
                pinned
            });
        }
        let Some(place) = self.spare_free.pop() else {
            return Found::Full;
        };
        let batch = now.batch;
        self.spare.insert(node.0, Spare { place, batch });
        Found::Missing {
            slot: first_slot + place,
            miss: Miss::new(node.0, 2 * WAYS as u64 + u64::from(place)),
        }
    }
}

const STAMP_MAX: u64 = (1 << STAMP_BITS) - 1;

#[inline(always)]
fn entry_of(node: NodeId, count: u64, batch: u64) -> u64 {
    (node.0 + 1) << (STAMP_BITS + COUNT_BITS) | count << STAMP_BITS | (batch & STAMP_MAX)
}

/// Batches since the row was last wanted. After 2^16 batches without a wish it seems as if it just was: then it stays a
/// little longer, and no harm is done.
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
    // Without a way out of the loop, so that all eight are compared at once.
    let found = bucket.0.iter().enumerate().fold(0, |found, (way, &entry)| {
        found | u32::from(entry >> (STAMP_BITS + COUNT_BITS) == node.0 + 1) << way
    });
    (found != 0).then(|| found.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests;
