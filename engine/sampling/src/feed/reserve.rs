//! The part of a feed's memory that is held back for minibatches larger than those that were sampled in advance.

use std::sync::atomic::{AtomicI64, Ordering};

use grappa_io::{Error, Result, ledger::MemoryShare, size::ByteSize};

use super::options::FeedOptions;
use crate::policy::RESERVE;

/// Memory that all threads and batches of a feed draw from.
///
/// It may be overdrawn a little. In-flight batches are then retired when they return, until it is not.
#[derive(Debug)]
pub(super) struct MemoryReserve {
    /// Negative if it is overdrawn.
    left: AtomicI64,
    options: FeedOptions,
}

impl MemoryReserve {
    /// Nodes and edges of minibatches leave this to features. Otherwise minibatches that are sampled early could take
    /// what older ones need to be assembled.
    const FEATURES: MemoryShare =
        MemoryShare::one("features of large minibatches", 64, "half of the reserve; chosen, not measured");
    /// The overdraft.
    const OVERDRAFT: MemoryShare = MemoryShare::one(
        "overdraft of the reserve",
        128,
        "a quarter of the reserve, for memory that is in use before it can be refused; chosen, not measured",
    );

    /// The reserve of the memory of a feed.
    pub fn from_options(options: &FeedOptions) -> Self {
        Self { left: AtomicI64::new(RESERVE.bytes(options.memory_bytes).cast_signed()), options: options.clone() }
    }

    /// Takes `bytes` for the nodes and edges of a minibatch. With 0 bytes, checks that the sampler's tables did not
    /// overdraw it too much.
    pub fn take_for_minibatch(&self, bytes: u64) -> Result<()> {
        let least = match bytes {
            0 => self.least(),
            _ => Self::FEATURES.bytes(self.options.memory_bytes).cast_signed(),
        };
        self.take(bytes, least, "its nodes, its edges and the sampler's tables")
    }

    /// Takes `bytes` for the features of a minibatch.
    pub fn take_for_features(&self, bytes: u64) -> Result<()> {
        self.take(bytes, self.least(), "its features")
    }

    fn least(&self) -> i64 {
        -Self::OVERDRAFT.bytes(self.options.memory_bytes).cast_signed()
    }

    /// Takes `bytes` for `purpose`, a noun phrase for the error, and leaves `least` or more.
    fn take(&self, bytes: u64, least: i64, purpose: &str) -> Result<()> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub_unsigned(bytes).filter(|&left| left >= least)
        });
        match taken {
            Ok(_) => Ok(()),
            Err(left) => {
                let (budget, missing) = (self.options.memory_bytes, bytes.saturating_add_signed(least - left));
                // What may be taken of each byte of the budget.
                let share = RESERVE.ratio() - least as f64 / budget as f64;
                // Both parts are rounded down.
                let enough = budget + ((missing + 2) as f64 / share).ceil() as u64;
                Err(Error::Budget {
                    operation: format!(
                        "a minibatch that is much larger than those that were sampled in advance: {} are missing for {purpose}",
                        ByteSize(missing)
                    ),
                    given: budget + self.options.adjacency_bytes,
                    least: enough + self.options.adjacency_bytes_beside(enough),
                    remedy: "raise --memory, or use smaller batches or fewer neighbors (--fanouts)",
                })
            }
        }
    }

    /// Takes `bytes` of memory that is in use already. Until enough is returned, nothing can be taken.
    pub fn overdraw(&self, bytes: u64) {
        self.left.fetch_sub(bytes.cast_signed(), Ordering::Relaxed);
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
        Self { scratch, reserve, bytes, taken: 0 }
    }

    /// Makes sure that `bytes` are reserved. They are in use already.
    pub fn grow_to(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.bytes);
        self.reserve.overdraw(more);
        self.bytes += more;
        self.taken += more;
    }
}

impl<S> Drop for ScratchReservation<'_, S> {
    fn drop(&mut self) {
        self.reserve.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_budget_of_the_user_with_adjacency_lists() {
        let options = FeedOptions { memory_bytes: 32 << 20, adjacency_bytes: 10 << 20, ..FeedOptions::default() };
        let reserve = MemoryReserve::from_options(&options);
        let error = reserve.take_for_features(2 << 20).unwrap_err();
        let Error::Budget { given, least, .. } = error else { panic!("{error}") };
        assert_eq!(given, 42 << 20);
        let enough =
            MemoryReserve::from_options(&FeedOptions { memory_bytes: least - options.adjacency_bytes, ..options });
        enough.take_for_features(2 << 20).unwrap();
    }
}
