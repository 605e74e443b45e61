//! Text files cut into blocks of whole lines.
//!
//! In a plain file, block `b` owns the lines that *start* in its range of bytes, `b * block_bytes..(b + 1) * block_bytes`;
//! it looks one byte back to see whether a line starts exactly where the range does, and reads on past the end to finish
//! its last line:
//!
//! ```text
//! ....\n . . . . \n . . . . \n . . . . \n . . .
//!          |<------- range b ------->|<- b+1
//!                   [owned by b           ]
//! ```
//!
//! A compressed file is cut after the first line end that makes a block `block_bytes` long. Either way the cuts depend on
//! the file and `block_bytes` alone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_io::{Error, Position, Result};
use memchr::{memchr, memrchr};

use super::{
    edges::{EdgeSourceOptions, IdKind},
    file::{Compression, Extent, InputFile, LINE_BYTES_MAX, Lines, Stream, long_line},
    lines::{KeySeparator, PADDING, is_comment, is_header, sniff, trim},
};

/// A file's last line is sought in steps of this size beyond a block's end.
const STEP_BYTES: usize = 64 << 10;

/// So many lines are looked at for one that shows the columns.
const SNIFFED_LINES_MAX: usize = 1000;

/// What the first lines say about the others.
#[derive(Debug, Clone)]
pub(super) struct TextLayout {
    /// Offset of the first line that is data: behind a byte order mark, comments and a header.
    pub data_start: u64,
    pub weighted: bool,
    pub separator: KeySeparator,
}

impl TextLayout {
    /// Reads as far as the first well-formed edge; none if there are only comments.
    pub fn sniff(
        file: &Arc<InputFile>,
        compression: Compression,
        csv: bool,
        options: &EdgeSourceOptions,
    ) -> Result<Option<Self>> {
        let strings = options.ids == IdKind::String;
        let stream = Extent::whole(file, compression).stream()?;
        let mut lines = Lines::new(stream, LINE_BYTES_MAX);
        let (mut data_start, mut looked_at) = (None, 0);
        let mut first_bad = None;
        while let Some(line) = lines.next_line()? {
            let mark = if line.number == 1 && line.bytes.starts_with(b"\xef\xbb\xbf") {
                3
            } else {
                0
            };
            let text = trim(&line.bytes[mark..]);
            if is_comment(text) {
                continue;
            }
            if looked_at == 0 && data_start.is_none() && is_header(text, csv, strings) {
                data_start = lines.offset().into();
                continue;
            }
            data_start.get_or_insert(line.offset + mark as u64);
            match sniff(text, csv, strings, options.id_limit) {
                Ok(sniffed) => {
                    return Ok(Some(Self {
                        data_start: data_start.unwrap_or(0),
                        weighted: sniffed.columns == 3,
                        separator: sniffed.separator,
                    }));
                }
                Err(bad) => {
                    let message = bad.message(&line.bytes[mark..]);
                    first_bad.get_or_insert((line.number, message));
                }
            }
            looked_at += 1;
            if looked_at == SNIFFED_LINES_MAX {
                break;
            }
        }
        match first_bad {
            Some((line, message)) => Err(Error::input(file.path(), Position::Line(line), message)),
            None => Ok(None),
        }
    }
}

/// Where in a buffer a block's lines are.
pub(super) struct OwnedLines {
    pub start: usize,
    pub end: usize,
    /// Offset of `start` in the file.
    pub offset: u64,
}

/// A plain text file.
pub(super) struct TextFile {
    file: Arc<InputFile>,
    layout: TextLayout,
    block_bytes: u64,
    /// Offsets of line starts, and how many lines are before each.
    known_lines: Mutex<BTreeMap<u64, u64>>,
}

impl TextFile {
    pub fn new(file: Arc<InputFile>, layout: TextLayout, block_bytes: usize) -> Self {
        Self {
            file,
            layout,
            block_bytes: block_bytes as u64,
            known_lines: Mutex::new(BTreeMap::from([(0, 0)])),
        }
    }

    pub fn layout(&self) -> &TextLayout {
        &self.layout
    }

    pub fn blocks(&self) -> u64 {
        self.file.bytes().div_ceil(self.block_bytes)
    }

    /// Size of the block's range.
    pub fn input_bytes(&self, block: u64) -> u64 {
        let start = block * self.block_bytes;
        (start + self.block_bytes).min(self.file.bytes()) - start
    }

    /// Reads the lines that block `block` owns into `buffer`, ends the last one if the file does not, and pads.
    pub fn read(&self, block: u64, buffer: &mut Vec<u8>) -> Result<OwnedLines> {
        let data_start = self.layout.data_start;
        let start = (block * self.block_bytes).max(data_start);
        let end = ((block + 1) * self.block_bytes).min(self.file.bytes());
        self.file.will_need(end, self.block_bytes);
        if end <= start {
            buffer.resize(buffer.len().max(PADDING), 0);
            return Ok(OwnedLines {
                start: 0,
                end: 0,
                offset: start,
            });
        }
        // One byte earlier, to see a line end there. Where data starts, a line does.
        let from = if start > data_start { start - 1 } else { start };
        let mut length = (end - from) as usize;
        buffer.resize(buffer.len().max(length + PADDING), 0);
        self.file.read_exact_at(&mut buffer[..length], from)?;
        let first = if from == start {
            0
        } else {
            match memchr(b'\n', &buffer[..length]) {
                Some(line_end) => line_end + 1,
                None => length,
            }
        };
        if first == length {
            return Ok(OwnedLines {
                start: 0,
                end: 0,
                offset: end,
            });
        }
        if buffer[length - 1] != b'\n' {
            length = self.finish_line(from, length, buffer)?;
        }
        Ok(OwnedLines {
            start: first,
            end: length,
            offset: from + first as u64,
        })
    }

    /// Reads on until the last line in `buffer[..length]`, which holds the file from `from`, is ended; gives the new length.
    fn finish_line(&self, from: u64, length: usize, buffer: &mut Vec<u8>) -> Result<usize> {
        let mut read = length;
        loop {
            let step = (self.file.bytes() - from - read as u64).min(STEP_BYTES as u64) as usize;
            buffer.resize(buffer.len().max(read + step + 1 + PADDING), 0);
            if step == 0 {
                buffer[read] = b'\n';
                return Ok(read + 1);
            }
            self.file
                .read_exact_at(&mut buffer[read..read + step], from + read as u64)?;
            if let Some(line_end) = memchr(b'\n', &buffer[read..read + step]) {
                return Ok(read + line_end + 1);
            }
            read += step;
            if read - length > LINE_BYTES_MAX {
                let line_start = from + memrchr(b'\n', &buffer[..length]).map_or(0, |at| at as u64 + 1);
                let line = self.line_at(line_start)?;
                return Err(Error::input(
                    self.file.path(),
                    Position::Line(line),
                    long_line(LINE_BYTES_MAX),
                ));
            }
        }
    }

    /// The number, from 1, of the line that starts at `offset`. Reads the file from the nearest place where it is known.
    pub fn line_at(&self, offset: u64) -> Result<u64> {
        let mut known = self.known_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (&start, &lines) = known
            .range(..=offset)
            .next_back()
            .expect("the start of the file is known");
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

/// A compressed text file, being unpacked.
pub(super) struct TextStream {
    stream: Stream,
    file: Arc<InputFile>,
    block_bytes: usize,
    /// Unpacked and not yet handed out: the beginning of the next block.
    pending: Vec<u8>,
    next: u64,
    offset: u64,
    line: u64,
    reported_bytes: u64,
}

/// Which lines a block of a stream holds, from the start of its buffer.
pub(super) struct StreamLines {
    pub block: u64,
    pub end: usize,
    pub offset: u64,
    /// Number of the first line, from 1.
    pub first_line: u64,
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
            block_bytes,
            pending: Vec::new(),
            next: 0,
            offset: layout.data_start,
            line,
            reported_bytes: 0,
        })
    }

    /// Unpacks the next block into `buffer`, ends its last line if the file does not, and pads; none at the end.
    pub fn next_block(&mut self, buffer: &mut Vec<u8>) -> Result<Option<StreamLines>> {
        // Where the block's last line may end.
        let wanted = self.block_bytes.max(1);
        let step = STEP_BYTES.min(wanted.max(16));
        let mut length = self.pending.len();
        buffer.resize(buffer.len().max(length.max(wanted) + 1 + PADDING), 0);
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
            buffer.resize(buffer.len().max(length + step + 1 + PADDING), 0);
            let read = self.stream.read_full(&mut buffer[length..length + step])?;
            length += read;
            ended = read < step;
        };
        self.pending.extend_from_slice(&buffer[end..length]);
        let consumed = self.stream.consumed();
        let lines = StreamLines {
            block: self.next,
            end,
            offset: self.offset,
            first_line: self.line,
            input_bytes: consumed - self.reported_bytes,
        };
        self.reported_bytes = consumed;
        self.next += 1;
        self.offset += end as u64;
        self.line += memchr::memchr_iter(b'\n', &buffer[..end]).count() as u64;
        Ok(Some(lines))
    }
}
