//! How long operations tell whoever started them how far they are.

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
}

/// Ignores progress.
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}
    fn advance(&self, _bytes: u64, _edges: u64) {}
}
