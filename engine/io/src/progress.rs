//! Progress reports of long operations, and requests to stop them.

use crate::{Error, Result};

/// Receives progress. Worker threads share it. Its methods must be cheap: workers report about once per megabyte.
pub trait Progress: Sync {
    /// A new stage starts, named by a short verb phrase ("reading edges"). `bytes` is the total that it will report, if that is
    /// known.
    fn stage(&self, name: &str, bytes: Option<u64>);

    /// A new stage starts that counts steps instead of bytes. [`Progress::advance`] reports each step as one byte.
    fn steps(&self, name: &str, steps: u64) {
        self.stage(name, Some(steps));
    }

    /// The current stage has finished this many more bytes and edges.
    fn advance(&self, bytes: u64, edges: u64);

    /// Whether the operation should stop. Once true, it stays true. Long operations call it several times per second; see
    /// [`check_stopped`].
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Ends an operation that should stop. The operation then cleans up as after any other error.
///
/// # Errors
/// [`Error::Stopped`] if [`Progress::is_stopped`].
pub fn check_stopped(progress: &dyn Progress) -> Result<()> {
    match progress.is_stopped() {
        true => Err(Error::Stopped),
        false => Ok(()),
    }
}

/// Ignores progress.
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}
    fn advance(&self, _bytes: u64, _edges: u64) {}
}
