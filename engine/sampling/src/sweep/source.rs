//! The interface to the code that lists minibatches.

use grappa_io::Result;

use crate::{
    sample::{Sampler, SeedParts},
    view::OpenView,
};

/// What sweeps sample: the minibatches of an epoch.
pub(crate) trait SweepSource: Send + Sync {
    /// Number of minibatches.
    fn minibatches(&self) -> u64;

    fn sampler(&self) -> &Sampler;

    /// The view of the whole graph.
    fn view(&self) -> Result<OpenView>;

    /// Replaces `out` with the seeds of a minibatch.
    fn seeds(&self, minibatch: u64, out: &mut SeedParts) -> Result<()>;
}
