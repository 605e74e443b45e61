//! Batches as the consumer gets them.

use std::sync::Arc;

use super::{buffer::FeatureBuffer, core::FeedCore, in_flight::InFlightBatch};
use crate::sample::Minibatch;

/// A minibatch with the features of its nodes. Its memory is reused when it is dropped. So a consumer that keeps more
/// than a few batches blocks itself.
#[derive(Debug)]
pub struct Batch {
    pub(super) index: u64,
    pub(super) batch: InFlightBatch,
    pub(super) features: Option<FeatureBuffer>,
    pub(super) core: Arc<FeedCore>,
}

impl Batch {
    /// The index of the batch in its epoch.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The nodes and edges. In a graph with types, the minibatch of the first node type.
    pub fn minibatch(&self) -> &Minibatch {
        &self.batch.minibatches[0]
    }

    /// The nodes of each type, and the edges into them. The sources of a block are nodes of the source type of its relation.
    pub fn minibatches(&self) -> &[Minibatch] {
        &self.batch.minibatches
    }

    /// The features of the nodes, in their order. None if the feed delivers no features.
    pub fn features(&self) -> Option<&FeatureBuffer> {
        self.features.as_ref()
    }

    /// As [`Batch::features`], for consumers that change values or hand out the memory.
    pub fn features_mut(&mut self) -> Option<&mut FeatureBuffer> {
        self.features.as_mut()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.core.lock().returned(batch, self.features.take(), &self.core.reserve);
        self.core.changed.notify_all();
    }
}
