//! The slots of a row pool: how many there are, and the slot of each missing row.

use grappa_formats::{NodeId, random};

/// Slots of a bucket. Their entries fill a cache line.
pub(super) const WAYS: usize = 8;
/// 1/SPARE_SHARE of the slots are spare.
const SPARE_SHARE: usize = 64;
const SPARE_MIN: usize = 16;
/// Bits of a [`Miss`] that hold the target of its row.
const TARGET_BITS: u32 = 24;

/// A row that must be read, and its target: one of the sixteen slots of its two buckets, or a spare slot. Orders by
/// node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::feed) struct Miss(u64);

impl Miss {
    pub(super) fn new(node: NodeId, target: u64) -> Self {
        Self(node.0 << TARGET_BITS | target)
    }

    /// The node of the row.
    #[inline]
    pub fn node(self) -> NodeId {
        NodeId(self.0 >> TARGET_BITS)
    }

    pub(super) fn target(self) -> usize {
        (self.0 & ((1 << TARGET_BITS) - 1)) as usize
    }
}

/// The number of slots of a pool. Together with a [`Miss`] it gives the slot of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::feed) struct PoolGeometry {
    pub(super) buckets: usize,
    pub(super) spare: usize,
}

impl PoolGeometry {
    /// Bytes that [`Pool`](super::Pool) takes for a slot.
    pub const BYTES_PER_SLOT: u64 = size_of::<u64>() as u64;

    /// The largest geometry with at most `slots` slots.
    pub fn within(slots: usize) -> Self {
        // A batch stores a slot in 32 bits; one value means "resident". The target of a miss limits spare slots.
        let slots = slots.min(u32::MAX as usize - 1);
        let spare = (slots / SPARE_SHARE).clamp(SPARE_MIN, (1 << TARGET_BITS) - 2 * WAYS).min(slots);
        Self { buckets: (slots - spare) / WAYS, spare }
    }

    /// A geometry with room for any `rows` rows at the same time. Buckets are then four fifths full. So it rarely
    /// happens that both buckets of a row are full, and there are enough spare slots for those cases.
    pub fn for_rows(rows: usize) -> Self {
        let rows = rows.min(u32::MAX as usize);
        Self::within((rows + rows / 4).div_ceil(WAYS) * WAYS + SPARE_MIN + rows / (SPARE_SHARE / 2))
    }

    /// Number of slots.
    pub fn slots(self) -> usize {
        self.buckets * WAYS + self.spare
    }

    /// Whether it is a spare slot, which any row may take. False for rows that are not in the pool.
    pub fn is_spare(self, slot: u32) -> bool {
        (self.buckets * WAYS..self.slots()).contains(&(slot as usize))
    }

    /// The slot of a missing row.
    #[inline]
    pub fn slot(self, miss: Miss) -> u32 {
        let slot = match miss.target() {
            way if way < WAYS => self.buckets_of(miss.node())[0] * WAYS + way,
            way if way < 2 * WAYS => self.buckets_of(miss.node())[1] * WAYS + way - WAYS,
            spare => self.buckets * WAYS + spare - 2 * WAYS,
        };
        slot as u32
    }

    /// The two buckets in which the row of `node` may be. They may be the same bucket.
    #[inline]
    pub(super) fn buckets_of(self, node: NodeId) -> [usize; 2] {
        let hash = random::hash(node.0);
        let halves = [hash & u64::from(u32::MAX), hash >> 32];
        halves.map(|half| ((half * self.buckets as u64) >> 32) as usize)
    }
}
