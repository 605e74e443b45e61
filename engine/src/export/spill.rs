//! Spills records to the shards they belong to, in one unnamed file.
//!
//! ```text
//! file:   a region for each shard, as long as all its records
//! worker: a buffer for each shard; a full buffer is appended to the shard's region
//! reader: reads the region of its shard front to back
//! ```
//!
//! Memory: buffers, and some words for each shard. It does not grow with the number of records.
//!
//! Unlike [`grappa_ingestion::ingest::spill`], this cannot be resumed: the file disappears with the process.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_ingestion::ingest::spill::sum;
use grappa_io::{Error, Position, Result, unnamed::unnamed_file};

/// Spilled records of all shards.
pub(super) struct Spill {
    file: File,
    /// The folder of the file, for errors.
    folder: PathBuf,
    /// Length of a record in words of 8 bytes.
    pub(super) record_words: usize,
    regions: Vec<Region>,
}

/// The part of the file for the records of one shard.
struct Region {
    first_word: u64,
    words: u64,
    /// Words that are in use.
    used: AtomicU64,
    /// The sum of the checksums of these words.
    sum: AtomicU64,
}

pub(super) struct Buffers<'a> {
    spill: &'a Spill,
    /// Words in the buffer of a shard.
    capacity: usize,
    words: Vec<u64>,
    fill: Vec<usize>,
}

impl Spill {
    /// Space for records of `record_words` words, on the file system of `folder`. `records` are the numbers of records of the shards.
    pub(super) fn create(folder: &Path, record_words: usize, records: impl Iterator<Item = u64>) -> Result<Self> {
        let mut end = 0;
        let regions = records.map(|records| {
            let (first_word, words) = (end, records * record_words as u64);
            end += words;
            Region { first_word, words, used: AtomicU64::new(0), sum: AtomicU64::new(0) }
        });
        Ok(Self { regions: regions.collect(), file: unnamed_file(folder)?, folder: folder.to_owned(), record_words })
    }

    /// Bytes of memory for each shard, and for each shard of a worker's buffers with `records` records a shard.
    pub(super) fn bytes_of_shard(record_words: usize, records: u64) -> (u64, u64) {
        let buffer = 8 * record_words as u64 * records;
        (size_of::<Region>() as u64, buffer + size_of::<usize>() as u64)
    }

    /// Reads the records of a shard, at most `records` at a time, and passes each to `place`, which returns whether it is
    /// one of the shard.
    pub(super) fn read(&self, shard: u32, records: u64, mut place: impl FnMut(&[u64]) -> bool) -> Result<()> {
        let region = &self.regions[shard as usize];
        let at_a_time = records * self.record_words as u64;
        let mut words = vec![0u64; at_a_time.min(region.words) as usize];
        let (mut at, mut found, mut are_placed) = (0, 0u64, true);
        while at < region.words {
            let words = &mut words[..at_a_time.min(region.words - at) as usize];
            self.file
                .read_exact_at(bytemuck::cast_slice_mut(words), 8 * (region.first_word + at))
                .map_err(Error::io("read a scratch file in", &self.folder))?;
            found = found.wrapping_add(sum(words));
            are_placed &= words.chunks_exact(self.record_words).all(&mut place);
            at += words.len() as u64;
        }
        if !are_placed || found != region.sum.load(Ordering::Relaxed) {
            let problem = "a scratch file in it does not hold what was written to it: the disk or the memory is faulty";
            return Err(Error::input(&self.folder, Position::Whole, problem));
        }
        Ok(())
    }

    fn append(&self, shard: u32, words: &[u64]) -> Result<()> {
        let region = &self.regions[shard as usize];
        let at = region.used.fetch_add(words.len() as u64, Ordering::Relaxed);
        if at + words.len() as u64 > region.words {
            let problem =
                "a scratch file in it would get several rows of one id: the ids of the store are damaged; verify it";
            return Err(Error::input(&self.folder, Position::Whole, problem));
        }
        self.file
            .write_all_at(bytemuck::cast_slice(words), 8 * (region.first_word + at))
            .map_err(Error::io("write a scratch file in", &self.folder))?;
        region.sum.fetch_add(sum(words), Ordering::Relaxed);
        Ok(())
    }
}

impl<'a> Buffers<'a> {
    /// Buffers of `records` records for each shard.
    pub(super) fn new(spill: &'a Spill, records: u64) -> Self {
        let (capacity, shards) = (records as usize * spill.record_words, spill.regions.len());
        Self { spill, capacity, words: vec![0; capacity * shards], fill: vec![0; shards] }
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
