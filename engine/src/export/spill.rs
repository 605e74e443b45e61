//! Spills records to the shards they belong to, in one unnamed file.
//!
//! ```text
//! worker: a buffer for each shard; a full buffer is appended to the file, and its place to the shard's list
//! reader: reads the pieces of its shard one after the other
//! ```
//!
//! Unlike [`grappa_build::ingest::spill`], this cannot be resumed: the file disappears with the process.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_build::ingest::spill::sum;
use grappa_io::{Error, Position, Result, unnamed::unnamed_file};

/// Spilled records of all shards.
pub(super) struct Spill {
    file: File,
    /// The folder of the file, for errors.
    folder: PathBuf,
    /// Length of a record in words of 8 bytes.
    pub(super) record_words: usize,
    /// Words of the file that are in use.
    end: AtomicU64,
    /// The pieces of each shard.
    pieces: Mutex<Vec<Vec<Piece>>>,
}

/// Consecutive records of one shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    first_word: u64,
    words: usize,
    /// A checksum of the words.
    sum: u64,
}

/// One worker's buffers.
pub(super) struct Buffers<'a> {
    spill: &'a Spill,
    /// Words in the buffer of a shard.
    capacity: usize,
    words: Vec<u64>,
    fill: Vec<usize>,
}

impl Spill {
    /// Space for records of `record_words` words in `shards` shards, on the file system of `folder`.
    pub(super) fn create(folder: &Path, record_words: usize, shards: u32) -> Result<Self> {
        Ok(Self {
            file: unnamed_file(folder)?,
            folder: folder.to_owned(),
            record_words,
            end: AtomicU64::new(0),
            pieces: Mutex::new(vec![Vec::new(); shards as usize]),
        })
    }

    /// The pieces of a shard.
    pub(super) fn pieces(&self, shard: u32) -> Vec<Piece> {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces[shard as usize].clone()
    }

    /// Reads a piece into `words`.
    pub(super) fn read(&self, piece: Piece, words: &mut Vec<u64>) -> Result<()> {
        words.resize(piece.words, 0);
        self.file
            .read_exact_at(bytemuck::cast_slice_mut(words), 8 * piece.first_word)
            .map_err(Error::io("read a scratch file in", &self.folder))?;
        if sum(words) != piece.sum {
            let what = "a scratch file in it does not hold what was written to it: the disk or the memory is faulty";
            return Err(Error::input(&self.folder, Position::Whole, what));
        }
        Ok(())
    }

    fn append(&self, shard: u32, words: &[u64]) -> Result<()> {
        let first_word = self.end.fetch_add(words.len() as u64, Ordering::Relaxed);
        self.file
            .write_all_at(bytemuck::cast_slice(words), 8 * first_word)
            .map_err(Error::io("write a scratch file in", &self.folder))?;
        let piece = Piece {
            first_word,
            words: words.len(),
            sum: sum(words),
        };
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)[shard as usize].push(piece);
        Ok(())
    }
}

impl<'a> Buffers<'a> {
    /// Buffers of `buffer_bytes`, and at least of one record, for each of `shards` shards.
    pub(super) fn new(spill: &'a Spill, shards: u32, buffer_bytes: usize) -> Self {
        let capacity = (buffer_bytes / 8 / spill.record_words).max(1) * spill.record_words;
        Self {
            spill,
            capacity,
            words: vec![0; capacity * shards as usize],
            fill: vec![0; shards as usize],
        }
    }

    /// Space for the next record of a shard.
    pub(super) fn push(&mut self, shard: u32) -> Result<&mut [u64]> {
        let at = shard as usize;
        if self.fill[at] == self.capacity {
            self.flush(shard)?;
        }
        let start = at * self.capacity + self.fill[at];
        self.fill[at] += self.spill.record_words;
        Ok(&mut self.words[start..start + self.spill.record_words])
    }

    /// Writes the contents of all buffers.
    pub(super) fn flush_all(&mut self) -> Result<()> {
        (0..self.fill.len() as u32).try_for_each(|shard| self.flush(shard))
    }

    fn flush(&mut self, shard: u32) -> Result<()> {
        let start = shard as usize * self.capacity;
        let count = std::mem::take(&mut self.fill[shard as usize]);
        match count {
            0 => Ok(()),
            _ => self.spill.append(shard, &self.words[start..start + count]),
        }
    }
}
