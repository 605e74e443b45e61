//! Free memory for batches, which is reused from batch to batch.

use grappa_formats::NodeId;

use crate::{
    feed::{
        buffer::FeatureBuffer,
        reserve::MemoryReserve,
        rows::{RowFormat, RowType},
    },
    sample::Minibatch,
};

/// The minibatches of a batch, the slots of its feature rows, and the memory reserved for it. It is reused from batch to batch.
#[derive(Debug, Default)]
pub(in crate::feed) struct InFlightBatch {
    /// The minibatch of each node type.
    pub minibatches: Vec<Minibatch>,
    /// The positions of the nodes whose rows are planned, unless they are the nodes of one type.
    pub positions: Vec<NodeId>,
    /// The slot of each row in the pool, or [`RESIDENT`](crate::feed::resident::RESIDENT). Empty without a pool.
    pub slots: Vec<u32>,
    /// Bytes reserved for the minibatch.
    pub reserved_bytes: u64,
}

impl InFlightBatch {
    /// Number of nodes of a type.
    pub fn nodes(&self, node_type: usize) -> usize {
        self.minibatches[node_type].nodes.len()
    }

    /// Lists the rows of the minibatches.
    pub fn list_rows(&mut self, format: &RowFormat) {
        self.positions.clear();
        if lists_positions(format) {
            for RowType { node_type, start } in format.types() {
                let nodes = self.minibatches[node_type].nodes.iter();
                self.positions.extend(nodes.map(|node| NodeId(start + node.0)));
            }
        }
    }

    /// The positions of the nodes whose rows are planned.
    pub fn rows(&self, format: &RowFormat) -> &[NodeId] {
        match format.types().next() {
            Some(of) if !lists_positions(format) => &self.minibatches[of.node_type].nodes,
            _ => &self.positions,
        }
    }
}

/// Whether positions of rows differ from the nodes of a type.
pub(in crate::feed) fn lists_positions(format: &RowFormat) -> bool {
    let mut types = format.types();
    types.next().is_some_and(|of| of.start > 0) || types.next().is_some()
}

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
