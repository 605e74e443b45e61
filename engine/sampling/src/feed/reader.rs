//! Reads the missing feature rows of a window.
//!
//! ```text
//! misses are sorted by node, and therefore by file and offset
//! merge rows with small gaps between them into runs; cut rows that are too long for one read
//! keep as many reads in flight as the engine accepts; when one completes, copy its rows into their slots
//! check that the files did not change in the meantime
//! ```
//!
//! Each page is read once per window, except pages where a run is cut. If missing rows are dense, gaps are cheaper to
//! read than to skip, and a window becomes one sequential pass over the files.
//!
//! Rows are verified with the checksums of their blocks before they go to their slots. So a block is read completely
//! when it is used for the first time. In new files this needs no additional reads, because blocks are pages.

mod in_flight;
mod runs;
#[cfg(test)]
mod tests;
pub(super) mod whole;

use std::sync::atomic::{AtomicBool, Ordering};

use grappa_io::{
    Result,
    read::{Read, ReadEngine},
};

use self::{
    in_flight::{DepthMeter, InFlightRuns, TouchedFiles},
    runs::{Run, Runs, pages_bytes},
    whole::{SUBMIT_READS, abandon},
};
use super::{
    files::RowFiles,
    pool::{geometry::Miss, rows::PoolRows},
    rows::RowFormat,
    stats::Counters,
};

/// Reads windows into the slots of the row pool.
pub(super) struct WindowReader<'a> {
    pub files: &'a RowFiles,
    pub format: &'a RowFormat,
    pub pool: &'a PoolRows,
}

/// How reading a window ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// All rows are in their slots.
    Complete,
    /// The feed was stopped.
    Stopped,
}

impl WindowReader<'_> {
    /// Reads the rows of `misses`, which are sorted. When `stop` is set, waits for the reads in flight and returns.
    pub fn fetch(
        &self,
        misses: &[Miss],
        engine: &mut dyn ReadEngine,
        counters: &Counters,
        stop: &AtomicBool,
    ) -> Result<FetchOutcome> {
        let mut touched = TouchedFiles::new(self.files.files().len());
        let length_max = u64::from(engine.read_bytes_max());
        let gap_bytes = self.pool.coalescing_gap_bytes;
        let rows = self.files.rows().iter();
        let mut runs = rows.flat_map(|row| Runs::new(self.files, gap_bytes, row, misses, length_max));
        let mut in_flight = InFlightRuns::default();
        let mut waiting: Vec<Read> = Vec::with_capacity(SUBMIT_READS);
        let mut meter = DepthMeter::new(counters);
        loop {
            if stop.load(Ordering::Relaxed) {
                abandon(engine);
                return Ok(FetchOutcome::Stopped);
            }
            loop {
                for (read, run) in runs.by_ref().take(SUBMIT_READS - waiting.len()) {
                    touched.add(read.file);
                    waiting.push(Read { tag: in_flight.add(run), ..read });
                }
                let submitted = engine.submit(&waiting)?;
                for read in waiting.drain(..submitted) {
                    counters.add(|stats| {
                        stats.reads += 1;
                        stats.bytes_read += pages_bytes(&read);
                    });
                }
                if submitted == 0 || engine.in_flight() >= engine.depth() {
                    break;
                }
            }
            meter.start(engine.in_flight());
            let mut stored = Ok(());
            let completed = engine.complete(&mut |read, bytes| {
                let run = in_flight.remove(read.tag);
                if stored.is_ok() {
                    stored = self.store(misses, &run, read, bytes);
                }
            })?;
            meter.stop();
            if let Err(error) = stored {
                abandon(engine);
                return Err(error);
            }
            if completed == 0 && waiting.is_empty() {
                break;
            }
        }
        for file in touched.iter() {
            self.files.files()[file.0 as usize].check_unchanged()?;
            self.files.checksums(file).release();
        }
        Ok(FetchOutcome::Complete)
    }

    /// Verifies the bytes of a completed read, and copies the rows of `run` into their slots.
    fn store(&self, misses: &[Miss], run: &Run, read: &Read, bytes: &[u8]) -> Result<()> {
        self.files.check_read(read.file, read.offset, bytes)?;
        let read_end = read.offset + u64::from(read.length);
        for &miss in &misses[run.misses.clone()] {
            let location = self.files.locate(run.columns.start, miss.node());
            let (_, row) = location.expect("the planner checked it");
            let slot = self.pool.geometry.slot(miss) as usize;
            for number in run.columns.clone() {
                let column = &self.format.columns()[number];
                let start = row + self.files.offset(number);
                let end = start + column.stored.row_bytes() as u64;
                // A row that is longer than a read arrives in parts.
                let (from, to) = (start.max(read.offset), end.min(read_end));
                if from < to {
                    let part = &bytes[(from - read.offset) as usize..(to - read.offset) as usize];
                    self.pool.slots.fill(slot, column.offset + (from - start) as usize, part);
                }
            }
        }
        Ok(())
    }
}
