//! Exports values that a program made for each node, such as predictions, in the order of external ids.

use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::ChunkSpan;
use grappa_io::{
    Error, Result,
    ledger::Lease,
    progress::{Progress, check_stopped},
    unnamed::unnamed_file,
};
use grappa_storage::Store;

use crate::export::{
    Budget,
    order::{NodeColumn, READ_BYTES, RowSink, read_in_order, sort_lease},
};

/// A row of bytes for each node, in an unnamed file that disappears when this is dropped.
#[derive(Debug)]
pub struct ScratchRows {
    name: &'static str,
    file: File,
    /// The folder that contains it, for errors and for other scratch files.
    folder: PathBuf,
    row_bytes: usize,
}

impl ScratchRows {
    /// Space for rows of `row_bytes` bytes, in a new file in `folder`. `name` names the rows in messages.
    ///
    /// # Errors
    /// If the file cannot be created.
    ///
    /// # Panics
    /// If rows have no bytes.
    pub fn create(folder: &Path, name: &'static str, row_bytes: usize) -> Result<Self> {
        assert!(row_bytes > 0, "rows without bytes");
        Ok(Self { name, file: unnamed_file(folder)?, folder: folder.to_owned(), row_bytes })
    }

    /// Length of a row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The lease of [`ScratchRows::read_in_order`]. For a check before the rows are made.
    ///
    /// # Errors
    /// [`Error::Budget`], with a sufficient budget.
    pub fn sort_lease(&self, store: &Store, budget: &Budget) -> Result<Lease> {
        sort_lease(store, self.row_bytes, self.name, budget)
    }

    /// Writes the rows from `first` on.
    ///
    /// # Errors
    /// If the disk is full or cannot be written to.
    ///
    /// # Panics
    /// If `rows` are not whole rows.
    pub fn write(&self, first: u64, rows: &[u8]) -> Result<()> {
        assert!(rows.len().is_multiple_of(self.row_bytes), "whole rows");
        self.file
            .write_all_at(rows, first * self.row_bytes as u64)
            .map_err(Error::io("write a scratch file in", &self.folder))
    }

    /// Reads the rows from `first` on into `rows`.
    ///
    /// # Errors
    /// If they cannot be read, or were not written.
    fn read(&self, first: u64, rows: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(rows, first * self.row_bytes as u64)
            .map_err(Error::io("read a scratch file in", &self.folder))
    }

    /// Passes the rows of all nodes to `sink`, in the order of the sorted external ids.
    ///
    /// # Errors
    /// If the store is a slice, files cannot be read or written, or the memory is too small. Also if `sink` fails.
    pub fn read_in_order(
        &self,
        store: &Store,
        budget: &Budget,
        progress: &dyn Progress,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        read_in_order(store, self, &self.folder, budget, progress, sink)
    }

    /// Passes the rows at some positions to `sink`, in that order.
    ///
    /// # Errors
    /// If the rows cannot be read, progress says to stop, or `sink` fails.
    pub fn read_at(&self, positions: &[u64], progress: &dyn Progress, sink: &mut RowSink<'_>) -> Result<()> {
        progress.stage(&format!("writing {}", self.name), Some(positions.len() as u64 * self.row_bytes as u64));
        let mut bytes = Vec::new();
        for positions in positions.chunks((READ_BYTES / self.row_bytes).max(1)) {
            bytes.resize(positions.len() * self.row_bytes, 0);
            let mut rows = positions.iter().zip(bytes.chunks_exact_mut(self.row_bytes));
            rows.try_for_each(|(&position, row)| self.read(position, row))?;
            sink(&bytes)?;
            progress.advance(bytes.len() as u64, 0);
            check_stopped(progress)?;
        }
        Ok(())
    }

    /// Reads some rows, and passes them to `each` in large pieces.
    fn each_piece(&self, rows: Range<u64>, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let piece = (READ_BYTES / self.row_bytes).max(1) as u64;
        let mut bytes = Vec::new();
        for first in rows.clone().step_by(piece as usize) {
            bytes.resize(piece.min(rows.end - first) as usize * self.row_bytes, 0);
            self.read(first, &mut bytes)?;
            each(&bytes)?;
        }
        Ok(())
    }
}

impl NodeColumn for ScratchRows {
    fn name(&self) -> &'static str {
        self.name
    }

    fn stage(&self) -> (&'static str, u64) {
        ("ordering", self.row_bytes as u64)
    }

    fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    fn rows(&self, span: ChunkSpan, progress: &dyn Progress, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let first = span.first_node.0;
        self.each_piece(first..first + span.rows, |bytes| {
            bytes.chunks_exact(self.row_bytes).try_for_each(&mut *each)?;
            progress.advance(bytes.len() as u64, 0);
            check_stopped(progress)
        })
    }
}
