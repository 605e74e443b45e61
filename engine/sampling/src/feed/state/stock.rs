//! Free memory for batches, which is reused from batch to batch.

use crate::feed::{buffer::FeatureBuffer, in_flight::InFlightBatch, reserve::MemoryReserve};

/// The in-flight batches and feature buffers that are free.
#[derive(Debug)]
pub(in crate::feed) struct Stock {
    pub(super) batches: Vec<InFlightBatch>,
    /// Number of in-flight batches, free or not, and the number that the stages need at least.
    in_flight: usize,
    in_flight_min: usize,
    /// Always empty if there are no features.
    pub(super) buffers: Vec<FeatureBuffer>,
    with_features: bool,
    /// Set if the reserve had too little memory for a minibatch, or for features. Unset when memory returns.
    pub(super) short_for_minibatch: bool,
    pub(super) short_for_features: bool,
}

impl Stock {
    /// `buffers` is None if there are no features.
    pub fn new(batches: Vec<InFlightBatch>, buffers: Option<Vec<FeatureBuffer>>, in_flight_min: usize) -> Self {
        Self {
            in_flight: batches.len(),
            in_flight_min,
            batches,
            with_features: buffers.is_some(),
            buffers: buffers.unwrap_or_default(),
            short_for_minibatch: false,
            short_for_features: false,
        }
    }

    /// Whether a batch has to wait for a feature buffer.
    pub fn lacks_buffer(&self) -> bool {
        self.with_features && self.buffers.is_empty()
    }

    /// Returns the memory of a batch for reuse, or frees it for others if the reserve is overdrawn.
    pub fn take_back(&mut self, batch: InFlightBatch, buffer: Option<FeatureBuffer>, reserve: &MemoryReserve) {
        self.batches.push(batch);
        self.buffers.extend(buffer);
        (self.short_for_minibatch, self.short_for_features) = (false, false);
        if reserve.is_overdrawn() {
            self.retire_batch(reserve);
        }
    }

    /// Gives the memory of a free in-flight batch to the reserve, so that others can be larger. Returns false if none
    /// is free, or all are needed.
    pub fn retire_batch(&mut self, reserve: &MemoryReserve) -> bool {
        if self.in_flight <= self.in_flight_min {
            return false;
        }
        let Some(batch) = self.batches.pop() else {
            return false;
        };
        self.in_flight -= 1;
        reserve.give_back(batch.reserved_bytes);
        tracing::debug!(in_flight = self.in_flight, "retired a batch: others are larger than expected");
        true
    }

    /// Number of in-flight batches, free or not.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }
}
