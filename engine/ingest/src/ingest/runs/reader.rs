//! Reads a run of strings.

use std::{fs::File, ops::Range, os::unix::fs::FileExt, path::PathBuf};

use grappa_io::{Error, Result, regular};

use super::files::prefix;

/// Reads the strings of a run through a buffer.
pub struct RunReader {
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
    pub fn open(path: PathBuf, bytes: u64, common: usize, buffer_bytes: usize) -> Result<Self> {
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

    #[inline]
    pub fn id(&self) -> &[u8] {
        &self.buffer[self.id.clone()]
    }

    #[inline]
    pub fn prefix(&self) -> u64 {
        prefix(&self.id()[self.common..])
    }

    /// Moves to the next id. Returns false at the end of the run. `advance` gets the number of bytes read.
    #[inline]
    pub fn next(&mut self, advance: &mut dyn FnMut(u64)) -> Result<bool> {
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
