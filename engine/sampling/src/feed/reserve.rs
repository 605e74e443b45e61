//! The part of a feed's memory that is held back for minibatches larger than those that were sampled in advance.

use std::sync::atomic::{AtomicI64, Ordering};

use grappa_io::{Error, Result, size::ByteSize};

/// Memory that all threads and batches of a feed draw from.
///
/// It may be overdrawn a little. In-flight batches are then retired when they return, until it is not.
#[derive(Debug)]
pub(super) struct MemoryReserve {
    /// Negative if it is overdrawn.
    left: AtomicI64,
    budget: u64,
}

impl MemoryReserve {
    /// 1/SHARE of the budget is held back.
    pub const SHARE: u64 = 32;
    /// It may be overdrawn by 1/OVERDRAFT_SHARE of the budget.
    const OVERDRAFT_SHARE: u64 = 128;

    /// The reserve of a budget, in bytes.
    pub fn of(budget: u64) -> Self {
        Self {
            left: AtomicI64::new((budget / Self::SHARE).cast_signed()),
            budget,
        }
    }

    /// Takes `bytes` for `what`, a noun phrase for the error.
    pub fn take(&self, bytes: u64, what: &str) -> Result<()> {
        let least = -(self.budget / Self::OVERDRAFT_SHARE).cast_signed();
        let take = |left: i64| left.checked_sub_unsigned(bytes).filter(|&left| left >= least);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        match taken {
            Ok(_) => Ok(()),
            Err(left) => Err(Error::Budget {
                what: format!(
                    "a minibatch that is much larger than those that were sampled in advance: {what} take {} more, and {} are \
                     left",
                    ByteSize(bytes),
                    ByteSize(left.abs_diff(least))
                ),
                given: self.budget,
                least: self.budget + bytes.saturating_sub(left.abs_diff(least)) * Self::SHARE,
                remedy: "raise --memory, or use smaller batches or fewer neighbours (--fanouts)",
            }),
        }
    }

    /// Whether more was taken than is held back.
    pub fn is_overdrawn(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    /// Returns bytes that were taken.
    pub fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes.cast_signed(), Ordering::Relaxed);
    }
}

/// The sampler state of a thread, and the memory that is reserved for it.
pub(super) struct ScratchReservation<'a, S> {
    pub scratch: S,
    reserve: &'a MemoryReserve,
    /// Bytes reserved in all.
    bytes: u64,
    /// Bytes of these that came from the reserve.
    taken: u64,
}

impl<'a, S> ScratchReservation<'a, S> {
    /// `bytes` are in the budget already.
    pub fn new(scratch: S, bytes: u64, reserve: &'a MemoryReserve) -> Self {
        Self {
            scratch,
            reserve,
            bytes,
            taken: 0,
        }
    }

    /// Makes sure that `bytes` are reserved.
    pub fn grow_to(&mut self, bytes: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.reserve.take(more, "its sampler's tables")?;
            self.bytes += more;
            self.taken += more;
        }
        Ok(())
    }
}

impl<S> Drop for ScratchReservation<'_, S> {
    fn drop(&mut self) {
        self.reserve.give_back(self.taken);
    }
}
