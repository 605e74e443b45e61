//! The metrics of each epoch: `metrics.jsonl` for programs, event files for TensorBoard.

mod appended;
mod events;
mod hparams;
mod metrics;
mod record;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::Path, time::SystemTime};

use grappa_io::{durable, regular};
use toml::Table;

use self::appended::Appended;
pub(crate) use self::events::EVENTS;
pub use self::record::EpochRecord;
use crate::Result;

/// The file with one line per epoch.
pub const METRICS: &str = "metrics.jsonl";

/// The records of a run, in memory and in files.
#[derive(Debug)]
pub struct Journal {
    metrics: Appended,
    events: Appended,
    records: Vec<EpochRecord>,
}

impl Journal {
    /// Opens the journal of a run after `epoch` epochs and `step` steps, which are 0 and 0 for a new run. Removes the records of
    /// later epochs, which will be trained again.
    ///
    /// # Errors
    /// If files in the run's folder cannot be read or written to, or a line is not a record.
    pub fn open(folder: &Path, epoch: u64, step: u64) -> Result<Self> {
        let (metrics, records) = metrics::open(&folder.join(METRICS), epoch)?;
        let events = events::create(folder, step, SystemTime::now())?;
        durable::sync_folder(folder)?;
        Ok(Self { metrics, events, records })
    }

    /// Adds the `options` of the run, by their keys in its configuration, for TensorBoard's plugin HParams. Options that are `auto` have their value in `chosen`, if it
    /// is there.
    ///
    /// # Errors
    /// If the event file cannot be written to.
    pub fn start(&mut self, options: Table, chosen: &BTreeMap<&'static str, String>) -> Result<()> {
        let fill = |summary: &mut _, seconds| hparams::start(summary, options, chosen, seconds);
        self.events.append(&events::summary(SystemTime::now(), fill))
    }

    /// Adds that the run is finished, for the same plugin, and the records that could not be written before.
    ///
    /// # Errors
    /// If files cannot be written to.
    pub fn finish(&mut self) -> Result<()> {
        let written = self.flush();
        let ended = self.events.append(&events::summary(SystemTime::now(), hparams::end));
        written.and(ended)
    }

    /// Adds the record of an epoch. When this returns, other processes can read it.
    ///
    /// # Errors
    /// If files cannot be written to, for example because the disk is full. The files then have no partial record, and training
    /// can continue. The record is written with a later one, when there is room.
    pub fn append(&mut self, record: EpochRecord) -> Result<()> {
        let written = self.metrics.append(metrics::line_of(&record).as_bytes());
        let shown = self.events.append(&events::of_epoch(&record, SystemTime::now()));
        self.records.push(record);
        written.and(shown)
    }

    /// Writes the lines of `metrics.jsonl` that could not be written before.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn flush(&mut self) -> Result<()> {
        self.metrics.flush()
    }

    /// The records of all epochs so far.
    pub fn records(&self) -> &[EpochRecord] {
        &self.records
    }
}

/// The records in the text of `metrics.jsonl`, and their lines. A last line that is torn is left out.
pub(crate) fn checked_lines(path: &Path, mut text: Vec<u8>) -> Result<(Vec<EpochRecord>, String)> {
    let (records, length) = metrics::parse(path, &text, u64::MAX)?;
    text.truncate(length as usize);
    Ok((records, String::from_utf8(text).expect("lines of records are text")))
}

/// Reads the records of the run in `folder`, without opening it for writing.
///
/// # Errors
/// If the file cannot be read, or a line is not a record.
pub fn read_records(folder: &Path) -> Result<Vec<EpochRecord>> {
    let path = folder.join(METRICS);
    metrics::parse(&path, &regular::read(&path)?, u64::MAX).map(|(records, _)| records)
}
