//! How long operations report to their caller, and how the caller stops them.

use crate::{Error, Result};

/// Receives progress. Implementations are shared by worker threads, and must be cheap: workers report about every
/// megabyte.
pub trait Progress: Sync {
    /// A new stage begins, named by a short verb phrase ("reading edges"). `bytes` is how many it will report, if that
    /// is known.
    fn stage(&self, name: &str, bytes: Option<u64>);

    /// A new stage begins that counts steps instead of bytes: so many, each of which [`Progress::advance`] reports as if it
    /// were a byte.
    fn steps(&self, name: &str, steps: u64) {
        self.stage(name, Some(steps));
    }

    /// That many more bytes and edges of the current stage are done.
    fn advance(&self, bytes: u64, edges: u64);

    /// Whether the operation should stop. Once true, it stays true. Long operations ask several times a second; see
    /// [`check_stopped`].
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Ends an operation that should stop: it returns early, and removes what an error removes.
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
