//! The file of a run.

use std::{fs::File, io::Write, ops::Range, os::unix::fs::FileExt, path::PathBuf};

use grappa_formats::dictionary::KeyKind;
use grappa_io::{Error, Result, regular};

use super::{Run, Runs, prefix};

/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;

/// Writes the ids of a run, ascending.
pub(super) struct RunWriter<'a> {
    runs: &'a Runs,
    number: u32,
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    bytes: u64,
    /// Where the last id is in the buffer.
    last: Range<usize>,
    ends: [Vec<u8>; 2],
}

impl<'a> RunWriter<'a> {
    pub(super) fn new(runs: &'a Runs, number: u32, path: PathBuf, file: File) -> Self {
        Self {
            runs,
            number,
            path,
            file,
            buffer: Vec::with_capacity(WRITE_BYTES),
            bytes: 0,
            last: 0..0,
            ends: Default::default(),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, id: &[u8]) -> Result<()> {
        if self.buffer.len() + 2 + id.len() > WRITE_BYTES {
            self.flush()?;
        }
        if self.runs.kind == KeyKind::Strings {
            let length = u16::try_from(id.len()).expect("collectors refuse longer ids");
            self.buffer.extend_from_slice(&length.to_le_bytes());
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(id);
        self.last = start..self.buffer.len();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.runs.kind == KeyKind::Strings && !self.buffer.is_empty() {
            if self.bytes == 0 {
                let length = usize::from(u16::from_le_bytes([self.buffer[0], self.buffer[1]]));
                self.ends[0] = self.buffer[2..2 + length].to_owned();
            }
            self.ends[1] = self.buffer[self.last.clone()].to_owned();
        }
        self.file
            .write_all(&self.buffer)
            .map_err(Error::io("write", &self.path))?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest, and adds the run to the finished ones.
    pub(super) fn finish(mut self) -> Result<()> {
        self.flush()?;
        let run = Run {
            number: self.number,
            bytes: self.bytes,
            ends: self.ends,
        };
        self.runs.finished().runs.push(run);
        Ok(())
    }
}

/// Reads the strings of a run through a buffer.
pub(super) struct RunReader {
    path: PathBuf,
    file: File,
    /// The part of the file that is not in the buffer yet.
    offset: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Number of bytes in the buffer.
    filled: usize,
    /// The current id, as a range of the buffer.
    id: Range<usize>,
    /// The number of bytes that are equal in all ids.
    common: usize,
}

impl RunReader {
    pub(super) fn open(path: PathBuf, bytes: u64, common: usize, buffer_bytes: usize) -> Result<Self> {
        let file = regular::open(&path)?;
        Ok(Self {
            path,
            file,
            offset: 0,
            end: bytes,
            buffer: vec![0; buffer_bytes.min(bytes as usize)],
            filled: 0,
            id: 0..0,
            common,
        })
    }

    /// The current id.
    #[inline]
    pub(super) fn id(&self) -> &[u8] {
        &self.buffer[self.id.clone()]
    }

    #[inline]
    pub(super) fn prefix(&self) -> u64 {
        prefix(&self.id()[self.common..])
    }

    /// Moves to the next id. Returns false at the end of the run. `advance` gets the number of bytes read.
    #[inline]
    pub(super) fn next(&mut self, advance: &mut dyn FnMut(u64)) -> Result<bool> {
        loop {
            let rest = &self.buffer[self.id.end..self.filled];
            if let Some((length, bytes)) = rest.split_first_chunk::<2>() {
                let length = usize::from(u16::from_le_bytes(*length));
                if bytes.len() >= length {
                    let start = self.id.end + 2;
                    self.id = start..start + length;
                    return Ok(true);
                }
            }
            if rest.is_empty() && self.offset == self.end {
                return Ok(false);
            }
            self.fill(advance)?;
        }
    }

    #[cold]
    fn fill(&mut self, advance: &mut dyn FnMut(u64)) -> Result<()> {
        self.buffer.copy_within(self.id.end..self.filled, 0);
        self.filled -= self.id.end;
        self.id = 0..0;
        let bytes = (self.end - self.offset).min((self.buffer.len() - self.filled) as u64) as usize;
        let into = &mut self.buffer[self.filled..self.filled + bytes];
        // A run that ends within an id was damaged. There is nothing left to read then, so it must be an error here:
        // `next` would call `fill` forever.
        match bytes {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => self.file.read_exact_at(into, self.offset),
        }
        .map_err(Error::io("read", &self.path))?;
        self.filled += bytes;
        self.offset += bytes as u64;
        advance(bytes as u64);
        Ok(())
    }
}
