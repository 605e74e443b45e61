//! What a run tells its caller.

use std::time::Duration;

use crate::{config::Monitor, journal::EpochRecord, model::Task};
use grappa_io::progress::Progress;

/// Observes a run.
pub trait Watcher {
    /// Receives the progress of stages. If it says to stop, training ends early, with a checkpoint.
    fn progress(&self) -> &dyn Progress;

    /// The time since the start of the program when training begins. It counts as wall time of the run.
    fn started(&self) -> Duration {
        Duration::ZERO
    }

    /// The command line of the process, for the report.
    fn command(&self) -> String {
        String::new()
    }

    /// Receives the kind of predictions and what the run monitors, before the first epoch.
    fn task(&mut self, _task: Task, _monitor: Monitor) {}

    /// Receives what a run will do, before its first epoch.
    fn tell(&mut self, _what: &str) {}

    /// An epoch begins. The first one has the number 1.
    fn begin(&mut self, _epoch: u64, _epochs: u64) {}

    /// An epoch is finished.
    fn epoch(&mut self, record: &EpochRecord, epochs: u64);

    /// Receives a problem that the run survives.
    fn warn(&mut self, message: &str);
}
