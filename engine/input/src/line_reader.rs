//! Reads a stream line by line.

use std::{
    io::{BufRead, BufReader, Read},
    sync::Arc,
};

use grappa_io::{Error, Position, Result};

use crate::{
    extent::{Compression, Extent, PIECE_BYTES, Stream},
    file::InputFile,
    messages::long_line,
    separator::trim,
};

/// The longest line of an edge list, in bytes. Longer lines come from binary files and from files without line ends.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// The longest line of node data, in bytes: a million numbers of 16 characters.
const ROW_BYTES_MAX: usize = 16 << 20;

/// The lines of a stream with their offsets and numbers.
pub(crate) struct Lines {
    reader: BufReader<Stream>,
    offset: u64,
    number: u64,
    line_bytes_max: usize,
}

/// One line, without its line end.
pub(crate) struct Line {
    /// Offset of its first byte in the unpacked bytes.
    pub offset: u64,
    /// Counted from 1.
    pub number: u64,
    pub bytes: Vec<u8>,
}

impl Line {
    /// The line without blanks around it, and the first one without a byte order mark.
    pub fn text(&self) -> &[u8] {
        match self.bytes.strip_prefix(b"\xef\xbb\xbf") {
            Some(bytes) if self.number == 1 => trim(bytes),
            _ => trim(&self.bytes),
        }
    }
}

impl Lines {
    /// The lines of a file with a row for each node, which may be compressed.
    pub fn from_extent(extent: &Extent) -> Result<Self> {
        Ok(Self::new(extent.stream()?, ROW_BYTES_MAX))
    }

    /// The same for a whole file.
    pub fn of_file(file: &Arc<InputFile>) -> Result<Self> {
        Self::from_extent(&Extent::whole(file, Compression::from_head(&file.head(8)?)))
    }

    /// Lines longer than `line_bytes_max` are an error.
    pub fn new(stream: Stream, line_bytes_max: usize) -> Self {
        Self { reader: BufReader::with_capacity(PIECE_BYTES, stream), offset: 0, number: 0, line_bytes_max }
    }

    /// The next line. Returns none at the end.
    pub fn next_line(&mut self) -> Result<Option<Line>> {
        let mut bytes = Vec::new();
        let limit = self.line_bytes_max as u64 + 1;
        let read = (&mut self.reader).take(limit).read_until(b'\n', &mut bytes).map_err(|error| {
            match error.downcast::<Error>() {
                Ok(error) => error,
                Err(error) => Error::io("read", self.reader.get_ref().path())(error),
            }
        })?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let offset = self.offset;
        self.offset += read as u64;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if read as u64 == limit {
            return Err(Error::input(
                self.reader.get_ref().path(),
                Position::Line(self.number),
                long_line(self.line_bytes_max),
            ));
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        Ok(Some(Line { offset, number: self.number, bytes }))
    }
}
