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

mod reads;
mod runs;
#[cfg(test)]
mod tests;
pub(super) mod whole;

use std::{cell::RefCell, sync::atomic::AtomicBool};

use grappa_io::{
    Result,
    read::{FileIndex, Read, ReadEngine},
};

pub(super) use self::reads::FetchOutcome;
use self::{
    reads::read_all,
    runs::{Run, Runs},
};
use super::{
    files::RowFiles,
    pool::{PoolRows, geometry::Miss},
    rows::RowFormat,
    stats::Counters,
};
use crate::tags::Tags;

/// Reads windows into the slots of the row pool.
pub(super) struct WindowReader<'a> {
    pub files: &'a RowFiles,
    pub format: &'a RowFormat,
    pub pool: &'a PoolRows,
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
        let mut touched = vec![false; self.files.files.len()];
        let length_max = u64::from(engine.options().read_bytes_max);
        let gap_bytes = self.pool.coalescing_gap_bytes;
        let rows = self.files.rows.iter();
        let runs = rows.flat_map(|row| Runs::new(self.files, gap_bytes, row, misses, length_max));
        let in_flight = RefCell::new(Tags::default());
        let reads = runs.map(|(read, run)| {
            touched[read.file.0 as usize] = true;
            Read { tag: in_flight.borrow_mut().add(run), ..read }
        });
        let outcome = read_all(reads, engine, Some((counters, stop)), |read, bytes| {
            let run = in_flight.borrow_mut().remove(read.tag);
            self.store(misses, &run, read, bytes)
        })?;
        if outcome == FetchOutcome::Complete {
            for (file, _) in (0..).map(FileIndex).zip(touched).filter(|(_, touched)| *touched) {
                self.files.files[file.0 as usize].check_unchanged()?;
                self.files.checksums(file).release();
            }
        }
        Ok(outcome)
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
                let column = &self.format.columns[number];
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
