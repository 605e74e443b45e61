//! The interface to the code that samples minibatches.

use std::{ops::Range, sync::Arc};

use grappa_io::Result;

use crate::{sample::Minibatch, sweep::SweepEpoch, view::TurnsEpoch};

/// The threads that work ahead in an epoch. When it is dropped, they have ended.
#[derive(Debug)]
pub enum WorkAhead {
    /// They load views.
    Views(TurnsEpoch),
    /// They sweep minibatches.
    Sweeps(SweepEpoch),
}

impl WorkAhead {
    /// The epoch ends early. After this, a call of [`BatchSource::sample`] that would wait for these threads fails.
    pub(super) fn stop(&self) {
        match self {
            Self::Views(turns) => turns.stop(),
            Self::Sweeps(sweeps) => sweeps.stop(),
        }
    }
}

/// Samples the minibatches of an epoch. Every minibatch can be sampled on any thread and any number of times, always
/// with the same result.
pub trait BatchSource: Send + Sync + 'static {
    /// The sampler state of a thread, which is reused from batch to batch.
    type Scratch: Default + Send;

    /// Number of minibatches.
    fn batches(&self) -> u64;

    /// An upper bound of the nodes of a minibatch: the product of seeds and fanouts, or the number of nodes of the
    /// graph.
    fn nodes_max(&self) -> u64;

    /// Bytes of memory that the source itself takes, for example for lists of seeds.
    fn bytes(&self) -> u64 {
        0
    }

    /// A lower bound of the nodes of the largest minibatch: its seeds. Known without sampling.
    fn nodes_min(&self) -> u64 {
        0
    }

    /// Bytes of memory that `scratch` takes after a minibatch of `nodes` nodes. A few minibatches were sampled with it
    /// before.
    fn scratch_bytes(&self, scratch: &Self::Scratch, nodes: usize) -> u64;

    /// Number of node types.
    fn types(&self) -> usize {
        1
    }

    /// Samples minibatch `index` into `out`, one minibatch for each node type, and replaces its previous content.
    fn sample(&self, index: u64, scratch: &mut Self::Scratch, out: &mut [Minibatch]) -> Result<()>;

    /// The minibatches that stand for the others when their size is measured.
    fn probes(&self) -> Range<u64> {
        0..self.batches()
    }

    /// Begins an epoch: threads will sample each minibatch once, in order. The result ends it, if threads work ahead.
    fn begin(self: &Arc<Self>) -> Option<WorkAhead> {
        None
    }

    /// The epoch does not ask for minibatch `index` again.
    fn sampled(&self, _index: u64) {}
}
