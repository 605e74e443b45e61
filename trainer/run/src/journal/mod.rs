//! What a run says about each epoch: `metrics.jsonl` for programs, event files for TensorBoard.

mod events;
mod metrics;
mod record;
#[cfg(test)]
mod tests;

use std::{path::Path, time::SystemTime};

pub use self::record::{EpochRecord, StageSeconds};
use self::{events::EventFile, metrics::Metrics};
use crate::Result;

/// The name of the file with a line for each epoch.
pub const METRICS: &str = "metrics.jsonl";

/// The records of a run, in memory and in files.
#[derive(Debug)]
pub struct Journal {
    metrics: Metrics,
    events: EventFile,
    records: Vec<EpochRecord>,
}

impl Journal {
    /// Opens the journal of a run of which `epoch` epochs and `step` steps are finished; of a new run, 0 and 0. What an
    /// earlier process wrote about later epochs is cut off: they will be trained again.
    ///
    /// # Errors
    /// If files in the run's folder can't be read or written to, or hold what is no record.
    pub fn open(folder: &Path, epoch: u64, step: u64) -> Result<Self> {
        let (metrics, records) = Metrics::open(&folder.join(METRICS), epoch)?;
        let events = EventFile::create(folder, step, SystemTime::now())?;
        Ok(Self {
            metrics,
            events,
            records,
        })
    }

    /// Adds an epoch. When this returns, other processes see it.
    ///
    /// # Errors
    /// If the disk is full, or files can't be written to for another reason. The record is then known here all the same,
    /// and the files are whole: training can go on.
    pub fn append(&mut self, record: EpochRecord) -> Result<()> {
        let written = self.metrics.append(&record);
        let shown = self.events.append(&record, SystemTime::now());
        self.records.push(record);
        written.and(shown)
    }

    /// All epochs so far.
    pub fn records(&self) -> &[EpochRecord] {
        &self.records
    }
}

/// The records of a run that nobody is writing to.
///
/// # Errors
/// If the file can't be read, or holds what is no record.
pub fn read_records(folder: &Path) -> Result<Vec<EpochRecord>> {
    metrics::read(&folder.join(METRICS), u64::MAX).map(|(records, _)| records)
}
