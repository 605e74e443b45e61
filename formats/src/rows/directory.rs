//! Position and size of each row: the payload of the file `degrees`.
//!
//! ```text
//! lines       one per 54 rows, 64 bytes, so one cache line:
//!   offset  bytes  content
//!        0      6  where the line's first row starts, in bits from the start of the rows
//!        6      4  exceptions in the lines before
//!       10     54  a code per row: 0..=254 is the code, 255 says that it is the next exception
//! exceptions  6 bytes each
//! ```
//!
//! The codec defines the meaning of a code. The code must determine the size of the row. A lookup sums the sizes of the
//! earlier rows in the line: one cache miss and about 30 additions.

use std::{mem, ops::Range};

use crate::{FormatError, Result};

/// Rows per line.
pub const LINE_ROWS: u64 = 54;

/// Length of a line in bytes.
pub const LINE_BYTES: usize = 64;

/// Length of an exception in bytes.
const EXCEPTION_BYTES: usize = 6;

/// Codes from this one on are exceptions. A line marks an exception with this code.
const EXCEPTION: u64 = 255;

/// Length of the part of a line before the codes.
pub(super) const HEAD_BYTES: usize = LINE_BYTES - LINE_ROWS as usize;

/// In a table of sizes: this bit counts the exceptions while the bits below sum the sizes. The sizes do not overflow
/// into it: 54 rows of 254 sources of 42 bits are fewer bits.
const COUNT_ONE: u32 = 1 << 24;

/// For each slot, masks for the words of a line that keep the codes before it.
static BEFORE: [[u64; LINE_BYTES / 8]; LINE_ROWS as usize] = {
    let mut masks = [[0; LINE_BYTES / 8]; LINE_ROWS as usize];
    let mut slot = 0;
    while slot < LINE_ROWS as usize {
        let mut byte = HEAD_BYTES;
        while byte < HEAD_BYTES + slot {
            masks[slot][byte / 8] |= 0xff << (byte % 8 * 8);
            byte += 1;
        }
        slot += 1;
    }
    masks
};

/// The size of a row from its code, as a table for the small codes.
pub(super) type SizeTable = [u32; 256];

/// Tabulates `size_of`, which gives 0 for 0.
pub(super) fn sizes(size_of: impl Fn(u64) -> u64) -> SizeTable {
    debug_assert_eq!(size_of(0), 0);
    std::array::from_fn(|code| {
        let code = code as u64;
        if code == EXCEPTION { COUNT_ONE } else { size_of(code) as u32 }
    })
}

/// The length of a directory in bytes. `None` if it overflows, which no valid directory does.
pub(super) fn directory_bytes(rows: u64, exceptions: u64) -> Option<u64> {
    let lines = rows.div_ceil(LINE_ROWS).checked_mul(LINE_BYTES as u64)?;
    lines.checked_add(exceptions.checked_mul(EXCEPTION_BYTES as u64)?)
}

/// Builds a directory row by row.
#[derive(Debug, Default)]
pub(super) struct DirectoryWriter {
    lines: Vec<u8>,
    /// The end of the payload so far: the exceptions after those that were taken.
    pub(super) exceptions: Vec<u8>,
    /// The number of exceptions that were taken.
    taken: u64,
    /// Rows so far.
    pub(super) rows: u64,
}

impl DirectoryWriter {
    /// Reserves the lines of `rows` more rows, exactly.
    pub(super) fn reserve(&mut self, rows: u64) {
        self.lines.reserve_exact(rows.div_ceil(LINE_ROWS) as usize * LINE_BYTES);
    }

    /// Appends a row that starts at bit `start`.
    ///
    /// # Panics
    /// If `start` or `code` is not below 2^48.
    #[inline]
    pub(super) fn push(&mut self, start: u64, code: u64) {
        if self.rows.is_multiple_of(LINE_ROWS) {
            self.lines.extend_from_slice(&self.head(start));
        }
        self.rows += 1;
        self.lines.push(code.min(EXCEPTION) as u8);
        if code >= EXCEPTION {
            assert!(code >> 48 == 0, "a row's code is {code}");
            self.exceptions.extend_from_slice(&code.to_le_bytes()[..EXCEPTION_BYTES]);
        }
    }

    /// The part before the codes, of a line whose first row starts at bit `start`.
    pub(super) fn head(&self, start: u64) -> [u8; HEAD_BYTES] {
        assert!(start >> 48 == 0, "the rows of one chunk take more than 2^48 bits");
        let exceptions = u32::try_from(self.exceptions()).expect("a chunk has fewer than 2^32 exceptions");
        let mut head = [0; HEAD_BYTES];
        head[..6].copy_from_slice(&start.to_le_bytes()[..6]);
        head[6..].copy_from_slice(&exceptions.to_le_bytes());
        head
    }

    /// Exceptions so far.
    pub(super) fn exceptions(&self) -> u64 {
        self.taken + (self.exceptions.len() / EXCEPTION_BYTES) as u64
    }

    /// Takes the exceptions so far.
    pub(super) fn take_exceptions(&mut self) -> Vec<u8> {
        self.taken = self.exceptions();
        mem::take(&mut self.exceptions)
    }

    /// The payload, without the exceptions that were taken.
    ///
    /// # Panics
    /// If some exceptions were taken, and not all.
    pub(super) fn finish(mut self) -> Vec<u8> {
        assert!(self.taken == 0 || self.exceptions.is_empty(), "all exceptions are taken or none");
        let bytes = self.lines.len().next_multiple_of(LINE_BYTES);
        self.lines.reserve_exact(bytes + self.exceptions.len() - self.lines.len());
        self.lines.resize(bytes, 0);
        self.lines.append(&mut self.exceptions);
        self.lines
    }
}

/// The directory's entry for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowEntry {
    /// Its first bit.
    pub start: u64,
    /// Its size in bits.
    pub bits: u64,
    /// Its code.
    pub code: u64,
}

/// A directory in place.
#[derive(Debug, Clone)]
pub(super) struct Directory<'a> {
    /// The payload it is in.
    pub payload: &'a [u8],
    lines: &'a [[u8; LINE_BYTES]],
    exceptions: &'a [[u8; EXCEPTION_BYTES]],
    sizes: &'a SizeTable,
}

impl<'a> Directory<'a> {
    /// The directory in `payload`, whose length must be right.
    pub(super) fn new(payload: &'a [u8], rows: u64, exceptions: u64, sizes: &'a SizeTable) -> Result<Self> {
        let expected = directory_bytes(rows, exceptions).unwrap_or(u64::MAX);
        FormatError::expect_length("the row directory", expected, payload.len() as u64)?;
        // The length is right, so the lines fit `usize`.
        let (lines, exceptions) = payload.split_at(rows.div_ceil(LINE_ROWS) as usize * LINE_BYTES);
        Ok(Self { payload, lines: lines.as_chunks().0, exceptions: exceptions.as_chunks().0, sizes })
    }

    /// The code of a row.
    #[inline]
    pub(super) fn code(&self, row: u64) -> u64 {
        let (line, slot) = self.line(row);
        let codes = codes(line);
        let code = codes[slot];
        if u64::from(code) < EXCEPTION {
            return u64::from(code);
        }
        let before = codes[..slot].iter().filter(|&&c| u64::from(c) == EXCEPTION).count();
        self.exception(line, before as u64)
    }

    /// The place of a row. `size_of` gives the size of a row whose code is an exception.
    #[inline]
    pub(super) fn place(&self, row: u64, size_of: impl Fn(u64) -> u64) -> RowEntry {
        let (line, slot) = self.line(row);
        let (start, exceptions) = self.before(line, slot, &size_of);
        self.place_at(line, slot, start, exceptions, &size_of)
    }

    /// The places of successive rows.
    pub(super) fn places<F: Fn(u64) -> u64>(
        &self,
        rows: Range<u64>,
        size_of: F,
    ) -> impl Iterator<Item = RowEntry> + use<'_, 'a, F> {
        let mut next = None;
        rows.map(move |row| {
            let (line, slot) = self.line(row);
            let (start, exceptions) = match next {
                Some(next) if slot > 0 => next,
                _ => self.before(line, slot, &size_of),
            };
            let place = self.place_at(line, slot, start, exceptions, &size_of);
            next = Some((start + place.bits, exceptions + u64::from(place.code >= EXCEPTION)));
            place
        })
    }

    #[inline(always)]
    fn sum_of_sizes(&self, codes: &[[u8; 8]]) -> u32 {
        codes.iter().flatten().map(|&code| self.sizes[usize::from(code)]).sum()
    }

    /// Where the row at `slot` of a line starts, and how many exceptions are before it in the line.
    #[inline(always)]
    fn before(&self, line: &[u8; LINE_BYTES], slot: usize, size_of: impl Fn(u64) -> u64) -> (u64, u64) {
        // Sum all codes. Those from `slot` on are masked to zeros, whose size is 0. A loop that ends at `slot` would
        // cost mispredicted branches.
        let mut before = [[0; 8]; LINE_BYTES / 8];
        for ((before, codes), mask) in before.iter_mut().zip(line.as_chunks().0).zip(&BEFORE[slot]) {
            *before = (u64::from_le_bytes(*codes) & mask).to_le_bytes();
        }
        // Through memory: otherwise the compiler takes vectors apart, which is slower. Two sums, so that not every
        // addition waits for the previous one.
        let before = std::hint::black_box(&before);
        let (first, last) = before[HEAD_BYTES / 8..].split_at(LINE_BYTES / 16);
        let sum = std::hint::black_box(self.sum_of_sizes(first)) + self.sum_of_sizes(last);
        let mut start = start(line) + u64::from(sum % COUNT_ONE);
        let exceptions = u64::from(sum / COUNT_ONE);
        for index in 0..exceptions {
            start += size_of(self.exception(line, index));
        }
        (start, exceptions)
    }

    #[inline(always)]
    fn place_at(
        &self,
        line: &[u8; LINE_BYTES],
        slot: usize,
        start: u64,
        exceptions: u64,
        size_of: impl Fn(u64) -> u64,
    ) -> RowEntry {
        let mut code = u64::from(codes(line)[slot]);
        let mut bits = u64::from(self.sizes[code as usize]);
        if code == EXCEPTION {
            code = self.exception(line, exceptions);
            bits = size_of(code);
        }
        RowEntry { start, bits, code }
    }

    #[inline(always)]
    fn line(&self, row: u64) -> (&'a [u8; LINE_BYTES], usize) {
        (&self.lines[(row / LINE_ROWS) as usize], (row % LINE_ROWS) as usize)
    }

    /// Where in the payload the first exception of a row's line would be.
    #[inline(always)]
    pub(super) fn exceptions_at(&self, row: u64) -> usize {
        let (line, _) = self.line(row);
        self.lines.len() * LINE_BYTES + first_exception(line) as usize * EXCEPTION_BYTES
    }

    /// Exception number `index` of a line; zero if the line is damaged and there is none.
    #[inline(always)]
    fn exception(&self, line: &[u8; LINE_BYTES], index: u64) -> u64 {
        match self.exceptions.get((u64::from(first_exception(line)) + index) as usize) {
            Some(bytes) => u48(bytes),
            None => 0,
        }
    }
}

#[inline(always)]
fn codes(line: &[u8; LINE_BYTES]) -> &[u8; LINE_ROWS as usize] {
    line[HEAD_BYTES..].try_into().expect("the codes are the rest of the line")
}

#[inline(always)]
fn first_exception(line: &[u8; LINE_BYTES]) -> u32 {
    u32::from_le_bytes(line[6..10].try_into().expect("four bytes"))
}

#[inline(always)]
fn start(line: &[u8; LINE_BYTES]) -> u64 {
    u48(line[..6].try_into().expect("six bytes"))
}

#[inline(always)]
fn u48(bytes: &[u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = *bytes;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_rows_take_their_lines_and_no_more() {
        let rows = 100 * LINE_ROWS + 1;
        let mut writer = DirectoryWriter::default();
        writer.reserve(rows);
        let reserved = writer.lines.capacity();
        (0..rows).for_each(|row| writer.push(row, 1));
        assert_eq!(writer.lines.capacity(), reserved);
        let payload = writer.finish();
        assert_eq!(payload.len(), 101 * LINE_BYTES);
        assert_eq!(payload.capacity(), payload.len());
    }

    #[test]
    fn exceptions_that_were_taken_are_the_end_of_the_payload() {
        let whole = |take_every: u64| {
            let (mut writer, mut taken) = (DirectoryWriter::default(), Vec::new());
            for row in 0..5 * LINE_ROWS + 1 {
                writer.push(row, if row % 3 == 0 { 255 + row } else { row % 255 });
                if row % take_every == take_every - 1 {
                    taken.append(&mut writer.take_exceptions());
                    assert!(writer.exceptions.is_empty());
                }
            }
            assert_eq!(writer.exceptions(), 91);
            if take_every <= writer.rows {
                taken.append(&mut writer.take_exceptions());
            }
            [writer.finish(), taken].concat()
        };
        let expected = whole(u64::MAX);
        assert_eq!(expected.len(), 6 * LINE_BYTES + 91 * EXCEPTION_BYTES);
        for take_every in [1, 2, 7, 100] {
            assert_eq!(whole(take_every), expected);
        }
    }
}
