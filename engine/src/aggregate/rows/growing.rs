//! Rows that are read while they are written.

use std::{
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use grappa_formats::features::FeatureLayout;
use grappa_io::{Error, Result};

use super::{NodeRows, StateRows};

/// Rows in a scratch file, which one thread writes in order. Reads wait until their rows are written.
#[derive(Debug)]
pub struct GrowingRows {
    rows: StateRows,
    written: Mutex<WrittenRows>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WrittenRows {
    /// The rows before this position are written.
    end: u64,
    /// Whether no more follow.
    is_over: bool,
}

/// Writes [`GrowingRows`]. When it is dropped, reads of rows that it has not written fail, so that none waits for ever.
#[derive(Debug)]
pub struct RowsWriter<'a>(&'a GrowingRows);

impl GrowingRows {
    /// Rows that are still to be written.
    ///
    /// # Panics
    /// If they are in memory.
    pub fn new(rows: StateRows) -> Self {
        assert_eq!(rows.memory(), 0, "bytes of rows in memory");
        Self { rows, written: Mutex::default(), changed: Condvar::new() }
    }

    /// The writer of the rows. There is one.
    pub fn writer(&self) -> RowsWriter<'_> {
        RowsWriter(self)
    }

    fn written(&self) -> MutexGuard<'_, WrittenRows> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the rows before `end` are written.
    fn wait(&self, end: u64) -> Result<()> {
        let written = self.changed.wait_while(self.written(), |written| written.end < end && !written.is_over);
        match written.unwrap_or_else(PoisonError::into_inner).end >= end {
            true => Ok(()),
            false => Err(Error::Stopped),
        }
    }
}

impl RowsWriter<'_> {
    /// Writes the rows from position `first` on.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// If `first` is not the end of the rows that were written before.
    pub fn write(&mut self, first: u64, values: &[f32]) -> Result<()> {
        let GrowingRows { rows, changed, .. } = self.0;
        assert_eq!(self.0.written().end, first, "the first row that is not written");
        rows.write_shared(first, values)?;
        self.0.written().end += (values.len() / rows.width()) as u64;
        changed.notify_all();
        Ok(())
    }
}

impl Drop for RowsWriter<'_> {
    fn drop(&mut self) {
        self.0.written().is_over = true;
        self.0.changed.notify_all();
    }
}

impl NodeRows for GrowingRows {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
        self.wait(positions.end)?;
        self.rows.read(positions, out)
    }

    fn layout(&self) -> FeatureLayout {
        self.rows.layout()
    }

    fn read_encoded(&self, positions: Range<u64>, out: &mut [u8]) -> Result<()> {
        self.wait(positions.end)?;
        self.rows.read_encoded(positions, out)
    }

    /// Does nothing for rows that are not written yet: the system's cache will have them.
    fn read_ahead(&self, positions: Range<u64>) {
        if self.written().end >= positions.end {
            self.rows.read_ahead(positions);
        }
    }

    fn file_bytes(&self) -> u64 {
        self.rows.file_bytes()
    }
}
