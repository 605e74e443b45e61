//! Text files cut into blocks of whole lines.
//!
//! In a plain file, block `b` owns the lines that *start* in its byte range, `b * block_bytes..(b + 1) * block_bytes`. The
//! reader looks one byte back to see whether a line starts exactly at the start of the range, and reads past the end of
//! the range to finish the last line:
//!
//! ```text
//! ....\n . . . . \n . . . . \n . . . . \n . . .
//!          |<------- range b ------->|<- b+1
//!                   [owned by b           ]
//! ```
//!
//! A block of a compressed file ends with the first line end after `block_bytes` unpacked bytes
//! ([`packed_text`](super::packed_text)). In both cases the cuts depend only on the file and `block_bytes`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_io::{Error, Position, Result, heap};
use memchr::{memchr, memrchr};

use super::{batch::BLOCK, layout::TextLayout, parse::PADDING};
use crate::{file::InputFile, line_reader::LINE_BYTES_MAX, messages::long_line};

/// The reader searches beyond a block's range for the end of its last line in steps of this size.
pub(super) const STEP_BYTES: usize = 64 << 10;

/// The place of a block's lines in its buffer. Rows have none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TextLines {
    pub start: usize,
    pub end: usize,
    /// Offset of `start` in the unpacked file.
    pub offset: u64,
    /// Number of the first line, from 1, where it is known without counting.
    pub first_line: Option<u64>,
}

pub(super) struct TextFile {
    file: Arc<InputFile>,
    pub layout: TextLayout,
    block_bytes: u64,
    /// Offsets of line starts, and the number of lines before each.
    known_lines: Mutex<BTreeMap<u64, u64>>,
}

impl TextFile {
    pub fn new(file: Arc<InputFile>, layout: TextLayout, block_bytes: usize) -> Self {
        let block_bytes = layout.block_bytes(block_bytes) as u64;
        Self { file, layout, block_bytes, known_lines: Mutex::new(BTreeMap::from([(0, 0)])) }
    }

    pub fn blocks(&self) -> u64 {
        self.file.bytes().div_ceil(self.block_bytes)
    }

    pub fn input_bytes(&self, block: u64) -> u64 {
        let start = block * self.block_bytes;
        (start + self.block_bytes).min(self.file.bytes()) - start
    }

    /// Reads the lines that block `block` owns into `buffer`. Adds a line end if the file lacks the last one, and padding.
    pub fn read(&self, block: u64, buffer: &mut Vec<u8>) -> Result<TextLines> {
        let data_start = self.layout.data_start;
        let start = (block * self.block_bytes).max(data_start);
        let end = ((block + 1) * self.block_bytes).min(self.file.bytes());
        self.file.will_need(end, self.block_bytes);
        if end <= start {
            grow(buffer, PADDING)?;
            return Ok(TextLines { offset: start, ..TextLines::default() });
        }
        // Start one byte earlier, to see whether a line ends there. Data always starts with a line.
        let from = if start > data_start { start - 1 } else { start };
        let mut length = (end - from) as usize;
        grow(buffer, length + PADDING)?;
        self.file.read_exact_at(&mut buffer[..length], from)?;
        let first = match from == start {
            true => 0,
            false => memchr(b'\n', &buffer[..length]).map_or(length, |line_end| line_end + 1),
        };
        if first == length {
            return Ok(TextLines { offset: end, ..TextLines::default() });
        }
        if buffer[length - 1] != b'\n' {
            length = self.finish_line(from, length, buffer)?;
        }
        Ok(TextLines { start: first, end: length, offset: from + first as u64, first_line: None })
    }

    /// `buffer[..length]` holds the file from `from`. Reads on to the end of the last line, and returns the new length.
    fn finish_line(&self, from: u64, length: usize, buffer: &mut Vec<u8>) -> Result<usize> {
        let mut read = length;
        loop {
            let step = (self.file.bytes() - from - read as u64).min(STEP_BYTES as u64) as usize;
            grow(buffer, read + step + 1 + PADDING)?;
            if step == 0 {
                buffer[read] = b'\n';
                return Ok(read + 1);
            }
            self.file.read_exact_at(&mut buffer[read..read + step], from + read as u64)?;
            if let Some(line_end) = memchr(b'\n', &buffer[read..read + step]) {
                return Ok(read + line_end + 1);
            }
            read += step;
            if read - length > LINE_BYTES_MAX {
                let line_start = from + memrchr(b'\n', &buffer[..length]).map_or(0, |at| at as u64 + 1);
                let line = self.line_at(line_start)?;
                return Err(Error::input(self.file.path(), Position::Line(line), long_line(LINE_BYTES_MAX)));
            }
        }
    }

    /// The number, from 1, of the line that starts at `offset`. Counts line ends from the nearest line with a known number.
    pub fn line_at(&self, offset: u64) -> Result<u64> {
        let mut known = self.known_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (&start, &lines) = known.range(..=offset).next_back().expect("the start of the file is known");
        let (mut at, mut lines) = (start, lines);
        let mut piece = vec![0; STEP_BYTES.min((offset - at) as usize)];
        while at < offset {
            let length = piece.len().min((offset - at) as usize);
            self.file.read_exact_at(&mut piece[..length], at)?;
            lines += memchr::memchr_iter(b'\n', &piece[..length]).count() as u64;
            at += length as u64;
        }
        known.insert(offset, lines);
        Ok(lines + 1)
    }
}

/// Makes a buffer at least `length` bytes long.
///
/// # Errors
/// If the system refuses the memory.
pub(super) fn grow(buffer: &mut Vec<u8>, length: usize) -> Result<()> {
    heap::reserve_to(buffer, length, BLOCK)?;
    buffer.resize(buffer.len().max(length), 0);
    Ok(())
}
