//! Merges missing rows into reads.

use std::ops::Range;

use grappa_io::read::{FileIndex, Read};

use crate::feed::{
    files::{FileRow, RowFiles},
    pool::geometry::Miss,
};

/// Rows on the same page are always merged, because reads transfer whole pages.
pub(super) const PAGE: u64 = 4096;

/// The rows of some columns that a read delivers, or a part of one row if it is longer than a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub columns: Range<usize>,
    /// The misses of these rows, as indices.
    pub misses: Range<usize>,
}

/// Iterates over the reads of one kind of row for sorted misses.
pub(super) struct Runs<'a> {
    files: &'a RowFiles,
    coalescing_gap_bytes: u64,
    row: &'a FileRow,
    misses: &'a [Miss],
    /// The first miss that is not read completely.
    next: usize,
    /// The number of bytes of its row that are read.
    done: u64,
    length_max: u64,
}

impl<'a> Runs<'a> {
    /// `length_max` is the maximum number of bytes of a read.
    pub fn new(
        files: &'a RowFiles,
        coalescing_gap_bytes: u64,
        row: &'a FileRow,
        misses: &'a [Miss],
        length_max: u64,
    ) -> Self {
        Self {
            files,
            coalescing_gap_bytes,
            row,
            // Rows of other types are in other files.
            misses: &misses[..misses.partition_point(|miss| miss.node().0 < row.positions.end)],
            next: misses.partition_point(|miss| miss.node().0 < row.positions.start),
            done: 0,
            // Slots are filled in words of 8 bytes, so a long row is cut at words. Only engines in tests read less than
            // 8.
            length_max: (length_max - length_max % 8).max(8),
        }
    }

    fn locate(&self, miss: Miss) -> (FileIndex, u64) {
        let location = self.files.locate(self.row.columns.start, miss.node());
        location.expect("the planner checked it")
    }

    /// Whether all blocks of a range of a file are verified.
    fn is_verified(&self, file: FileIndex, bytes: Range<u64>) -> bool {
        let checksums = self.files.checksums(file);
        let payload_offset = checksums.header().payload_offset;
        checksums.are_right(bytes.start - payload_offset..bytes.end - payload_offset)
    }

    /// Whether a range of a file fits one read, if it is extended to whole blocks or as it is.
    fn fits(&self, file: FileIndex, bytes: Range<u64>, whole_blocks: bool) -> bool {
        let bytes = match whole_blocks {
            true => self.blocks_around(file, bytes),
            false => bytes,
        };
        bytes.end - bytes.start <= self.length_max
    }

    /// Extends a range of a file to whole blocks.
    fn blocks_around(&self, file: FileIndex, bytes: Range<u64>) -> Range<u64> {
        let checksums = self.files.checksums(file);
        let payload_offset = checksums.header().payload_offset;
        let blocks = checksums.blocks_around(bytes.start - payload_offset..bytes.end - payload_offset);
        blocks.start + payload_offset..blocks.end + payload_offset
    }
}

impl Iterator for Runs<'_> {
    /// A read without its tag, and its run.
    type Item = (Read, Run);

    fn next(&mut self) -> Option<(Read, Run)> {
        let first = self.next;
        let (file, row) = self.locate(*self.misses.get(first)?);
        let row_bytes = self.row.bytes;
        let start = row + self.done;
        let mut end = row + row_bytes;
        // A read should contain whole blocks, so that they can be verified. If a block is longer than a read, or a row
        // is cut, the read has only the row, and `RowFiles::check_read` reads the rest of the blocks separately.
        let whole_blocks = self.done == 0 && self.fits(file, start..end, true);
        if end - start > self.length_max {
            end = start + self.length_max;
            self.done += self.length_max;
        } else {
            self.done = 0;
            self.next += 1;
            while let Some(&miss) = self.misses.get(self.next) {
                let (next_file, row) = self.locate(miss);
                let gap = row.saturating_sub(end);
                let same_page = row / PAGE == (end - 1) / PAGE;
                let apart = next_file != file || (gap > self.coalescing_gap_bytes && !same_page);
                if apart || !self.fits(file, start..row + row_bytes, whole_blocks) {
                    break;
                }
                end = row + row_bytes;
                self.next += 1;
            }
        }
        let mut bytes = start..end;
        // Once the blocks are verified, their other bytes need not be read again.
        if whole_blocks && !self.is_verified(file, bytes.clone()) {
            bytes = self.blocks_around(file, bytes);
        }
        let read = Read { file, offset: bytes.start, length: (bytes.end - bytes.start) as u32, tag: 0 };
        let run = Run { columns: self.row.columns.clone(), misses: first..self.next.max(first + 1) };
        Some((read, run))
    }
}

/// Bytes of the pages that a read touches.
pub(super) fn pages_bytes(read: &Read) -> u64 {
    let end = (read.offset + u64::from(read.length)).next_multiple_of(PAGE);
    end - read.offset / PAGE * PAGE
}
