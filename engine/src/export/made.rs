//! Exports values that a program made for each node, such as predictions, in the order of external ids.

use std::{
    fs::File,
    io::{BufWriter, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::ChunkSpan;
use grappa_io::{
    Error, Result,
    durable::Destination,
    npy,
    progress::{Progress, check_stopped},
    unnamed::unnamed_file,
};
use grappa_storage::Store;

use crate::export::{
    Budget, Exported, expect_whole,
    order::{Column, READ_BYTES, Target, check_memory, export_column, write_column},
};

/// Rows after which progress is asked whether to stop.
const STOP_ROWS: usize = 1 << 16;

/// A row of bytes for each node, in an unnamed file that disappears when this is dropped.
#[derive(Debug)]
pub struct MadeRows {
    name: &'static str,
    file: File,
    /// The folder that contains it, for errors and for other scratch files.
    folder: PathBuf,
    row_bytes: usize,
}

impl MadeRows {
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

    /// Fails if the memory is too small for [`MadeRows::export`] or [`MadeRows::by_dense_id`]. For a check before the rows are made.
    ///
    /// # Errors
    /// [`Error::Budget`], with a sufficient budget.
    pub fn check_memory(&self, store: &Store, budget: &Budget) -> Result<()> {
        check_memory(store, self.row_bytes, self.name, budget)
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
    pub fn read(&self, first: u64, rows: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(rows, first * self.row_bytes as u64)
            .map_err(Error::io("read a scratch file in", &self.folder))
    }

    /// Writes the rows to a new file, in the order of the sorted external ids: a NumPy array of `descr`, with
    /// `columns` columns, or of one dimension if `columns` is none.
    ///
    /// # Errors
    /// If the file exists and is not to be replaced, the store is a slice, or files cannot be read or written.
    pub fn export<'a>(
        &self,
        store: &Store,
        out: impl Into<Destination<'a>>,
        (descr, columns): (&str, Option<u64>),
        budget: &Budget,
        progress: &dyn Progress,
    ) -> Result<Exported> {
        let header = array_header(descr, store.manifest().nodes, columns);
        export_column(store, out.into(), self, &header, budget, progress)
    }

    /// Returns the rows in the order of the sorted external ids.
    ///
    /// # Errors
    /// If the store is a slice, or files cannot be read or written.
    pub fn by_dense_id(&self, store: &Store, budget: &Budget, progress: &dyn Progress) -> Result<Self> {
        expect_whole(store, self.name)?;
        Self::of_column(store, self, &self.folder, budget, progress)
    }

    /// The rows of a column of the store in the order of the sorted external ids, in a new file in `folder`.
    pub(super) fn of_column(
        store: &Store,
        column: &dyn Column,
        folder: &Path,
        budget: &Budget,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let ordered = Self::create(folder, column.name(), column.row_bytes())?;
        let target = Target { file: &ordered.file, path: &ordered.folder, first_byte: 0 };
        write_column(store, target, column, folder, budget, progress)?;
        Ok(ordered)
    }

    /// Returns the rows at some positions, in that order.
    ///
    /// # Errors
    /// If files cannot be read or written, or progress says to stop.
    pub fn selected(&self, positions: impl Iterator<Item = u64>, progress: &dyn Progress) -> Result<Self> {
        let selected = Self::create(&self.folder, self.name, self.row_bytes)?;
        let mut out = BufWriter::with_capacity(READ_BYTES, &selected.file);
        let mut row = vec![0; self.row_bytes];
        for (number, position) in positions.enumerate() {
            if number.is_multiple_of(STOP_ROWS) {
                check_stopped(progress)?;
            }
            self.read(position, &mut row)?;
            out.write_all(&row).map_err(Error::io("write a scratch file in", &self.folder))?;
        }
        out.flush().map_err(Error::io("write a scratch file in", &self.folder))?;
        drop(out);
        Ok(selected)
    }

    /// Writes the first `rows` rows to a new file, as they are: the NumPy array of [`MadeRows::export`].
    ///
    /// # Errors
    /// If the file exists and is not to be replaced, or files cannot be read or written.
    pub fn write_array<'a>(
        &self,
        out: impl Into<Destination<'a>>,
        rows: u64,
        (descr, columns): (&str, Option<u64>),
        progress: &dyn Progress,
    ) -> Result<Exported> {
        let temporary = out.into().begin()?;
        temporary.write_all(&array_header(descr, rows, columns))?;
        self.each_piece(0..rows, |bytes| {
            temporary.write_all(bytes)?;
            check_stopped(progress)
        })?;
        temporary.finish()?;
        Ok(Exported { rows, bytes: npy::HEADER_BYTES as u64 + rows * self.row_bytes as u64 })
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

/// The header of an array of `rows` rows, of one dimension without `columns`.
fn array_header(descr: &str, rows: u64, columns: Option<u64>) -> [u8; npy::HEADER_BYTES] {
    let shape: Vec<u64> = [rows].into_iter().chain(columns).collect();
    npy::header(descr, &shape)
}

impl Column for MadeRows {
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
