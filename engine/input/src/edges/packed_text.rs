//! Compressed text files, unpacked into blocks of whole lines.

use std::sync::Arc;

use grappa_io::{Error, Position, Result};
use memchr::memchr;

use super::{
    layout::TextLayout,
    parse::PADDING,
    text::{STEP_BYTES, TextLines, grow},
};
use crate::{
    extent::{Compression, Extent, Stream},
    file::InputFile,
    line_reader::LINE_BYTES_MAX,
    messages::long_line,
};

pub(super) struct TextStream {
    stream: Stream,
    file: Arc<InputFile>,
    block_bytes: usize,
    /// Unpacked bytes that belong to the next block.
    pending: Vec<u8>,
    next: u64,
    offset: u64,
    line: u64,
    reported_bytes: u64,
}

pub(super) struct StreamBlock {
    pub block: u64,
    pub lines: TextLines,
    pub input_bytes: u64,
}

impl TextStream {
    pub fn open(
        file: &Arc<InputFile>,
        compression: Compression,
        layout: &TextLayout,
        block_bytes: usize,
    ) -> Result<Self> {
        let mut stream = Extent::whole(file, compression).stream()?;
        let mut line = 1;
        let mut piece = vec![0; STEP_BYTES];
        let mut left = layout.data_start;
        while left > 0 {
            let length = piece.len().min(left as usize);
            let read = stream.read_full(&mut piece[..length])?;
            line += memchr::memchr_iter(b'\n', &piece[..read]).count() as u64;
            left -= read as u64;
            if read < length {
                break;
            }
        }
        Ok(Self {
            stream,
            file: file.clone(),
            block_bytes: layout.block_bytes(block_bytes),
            pending: Vec::new(),
            next: 0,
            offset: layout.data_start,
            line,
            reported_bytes: 0,
        })
    }

    /// Unpacks the next block into `buffer`. Adds a line end if the file lacks the last one, and padding. Returns none at the
    /// end of the file.
    pub fn next_block(&mut self, buffer: &mut Vec<u8>) -> Result<Option<StreamBlock>> {
        // The block ends with the first line end at or after `wanted - 1`.
        let wanted = self.block_bytes.max(1);
        let step = STEP_BYTES.min(wanted.max(16));
        let mut length = self.pending.len();
        grow(buffer, length.max(wanted) + 1 + PADDING)?;
        buffer[..length].copy_from_slice(&self.pending);
        self.pending.clear();
        if length < wanted {
            length += self.stream.read_full(&mut buffer[length..wanted])?;
        }
        let mut ended = length < wanted;
        let mut searched = wanted - 1;
        let end = loop {
            if searched < length {
                if let Some(line_end) = memchr(b'\n', &buffer[searched..length]) {
                    break searched + line_end + 1;
                }
                searched = length;
            }
            if ended {
                if length == 0 {
                    return Ok(None);
                }
                if buffer[length - 1] != b'\n' {
                    buffer[length] = b'\n';
                    length += 1;
                }
                break length;
            }
            if length > wanted + LINE_BYTES_MAX {
                let lines = memchr::memchr_iter(b'\n', &buffer[..length]).count() as u64;
                return Err(Error::input(
                    self.file.path(),
                    Position::Line(self.line + lines),
                    long_line(LINE_BYTES_MAX),
                ));
            }
            grow(buffer, length + step + 1 + PADDING)?;
            let read = self.stream.read_full(&mut buffer[length..length + step])?;
            length += read;
            ended = read < step;
        };
        self.pending.extend_from_slice(&buffer[end..length]);
        let consumed = self.stream.consumed();
        let block = StreamBlock {
            block: self.next,
            lines: TextLines { start: 0, end, offset: self.offset, first_line: Some(self.line) },
            input_bytes: consumed - self.reported_bytes,
        };
        self.reported_bytes = consumed;
        self.next += 1;
        self.offset += end as u64;
        self.line += memchr::memchr_iter(b'\n', &buffer[..end]).count() as u64;
        Ok(Some(block))
    }
}
