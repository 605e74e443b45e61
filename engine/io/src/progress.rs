//! Progress reports of long operations, and the way to stop them.

use crate::{Error, Result};

/// Receives progress. Implementations are shared by worker threads, and must be cheap: workers report about every
/// megabyte.
pub trait Progress: Sync {
    /// A new stage begins. `name` is a short verb phrase ("reading edges"). `bytes` is its total, if that is known.
    fn stage(&self, name: &str, bytes: Option<u64>);

    /// A new stage begins that counts steps instead of bytes. [`Progress::advance`] reports a step as one byte.
    fn steps(&self, name: &str, steps: u64) {
        self.stage(name, Some(steps));
    }

    /// Adds bytes and edges to the current stage.
    fn advance(&self, bytes: u64, edges: u64);

    /// Whether the operation should stop. Once true, it stays true. Long operations ask several times a second; see
    /// [`check_stopped`].
    fn is_stopped(&self) -> bool {
        false
    }
}

/// For operations: return early if the caller asked to stop. Clean up as after any error.
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
