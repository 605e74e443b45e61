//! Spill files: records on disk, grouped by shard.
//!
//! A first pass meets records in the order of the input. A second pass needs them by shard, a contiguous range of nodes.
//! Each worker collects records in one buffer per shard and appends a full buffer to its own file for that shard. So
//! writes are large, the second pass reads sequentially, and workers never wait for each other.
//!
//! Spill files are not synced. A killed process loses only the contents of its buffers. Losses after a power failure are
//! detected: the journal records the valid number of records of each file and the sum of their checksums ([`Extent`]).
//! The sum depends neither on the order of records nor on the size of buffers, and costs one multiplication per word.

use std::{
    fs,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::random::GOLDEN;
use grappa_io::{Error, Result, durable, heap, regular};
use grappa_storage::writer::{damaged_scratch, scratch_error};
use serde::{Deserialize, Serialize};

/// The valid part of a spill file. A killed run may have written more behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Number of records from the start of the file.
    pub records: u64,
    /// Sum of the checksums of their words.
    pub sum: u64,
}

/// The spill files of one pass: one per worker and shard.
#[derive(Debug, Clone)]
pub struct SpillFolder {
    folder: PathBuf,
    name: &'static str,
    /// Length of a record in words of 8 bytes.
    record_words: usize,
}

/// The spill buffers of one worker, one per shard. Records that are longer than a buffer, such as wide feature rows, are
/// written one by one. All shards then share a buffer of one record.
pub struct SpillWriter {
    folder: SpillFolder,
    worker: u32,
    buffer_words: usize,
    buffers: Vec<u64>,
    /// Words in the buffer that belong to each shard.
    fill: Vec<u32>,
    /// The last shard that used the buffer, if all shards share it.
    shared: Option<u32>,
    extents: Vec<Extent>,
}

impl SpillFolder {
    /// Spill files with records of `record_words` words. They are called `name-<worker>-<shard>` and lie in `folder`.
    pub fn new(folder: &Path, name: &'static str, record_words: usize) -> Self {
        Self { folder: folder.to_owned(), name, record_words }
    }

    /// Length of a record in words of 8 bytes.
    pub fn record_words(&self) -> usize {
        self.record_words
    }

    fn path(&self, worker: u32, shard: u32) -> PathBuf {
        self.folder.join(format!("{}-{worker}-{shard}", self.name))
    }

    /// Fills `words` with whole records of a file, beginning at record `first`. A file that lacks them is damaged.
    pub fn read(&self, worker: u32, shard: u32, first: u64, words: &mut [u64]) -> Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        let path = self.path(worker, shard);
        let offset = first * self.record_words as u64 * 8;
        regular::open(&path)
            .and_then(|file| {
                file.read_exact_at(bytemuck::cast_slice_mut(words), offset)
                    .map_err(Error::io("read the spill file", &path))
            })
            .map_err(scratch_error)
    }

    /// Reads a file in pieces of at most `records` records, passes each to `piece`, and then compares the file with its sum.
    pub fn read_all(
        &self,
        worker: u32,
        shard: u32,
        extent: Extent,
        records: u64,
        mut piece: impl FnMut(&[u64]) -> Result<()>,
    ) -> Result<()> {
        let (mut words, mut first, mut read) = (Vec::new(), 0, 0u64);
        while first < extent.records {
            let count = records.min(extent.records - first);
            words.resize(count as usize * self.record_words, 0);
            self.read(worker, shard, first, &mut words)?;
            read = read.wrapping_add(sum(&words));
            piece(&words)?;
            first += count;
        }
        self.check(worker, shard, extent, read)
    }

    /// Fails unless `sum` is the sum of the extent. `sum` must cover all its words.
    pub fn check(&self, worker: u32, shard: u32, extent: Extent, sum: u64) -> Result<()> {
        if sum == extent.sum {
            return Ok(());
        }
        Err(self.damaged(worker, shard))
    }

    /// The error about a file whose contents are not those that were written.
    pub fn damaged(&self, worker: u32, shard: u32) -> Error {
        damaged_scratch(&self.path(worker, shard))
    }

    /// Removes the files of `workers` for `shards`. Any of them may be absent.
    pub fn remove_all(&self, shards: Range<u32>, workers: impl Iterator<Item = u32> + Clone) -> Result<()> {
        for shard in shards {
            for worker in workers.clone() {
                self.remove(worker, shard)?;
            }
        }
        Ok(())
    }

    /// Removes the files of all workers and shards that are there, whoever made them.
    pub fn remove_any(&self) -> Result<()> {
        for entry in fs::read_dir(&self.folder).map_err(Error::io("read the folder", &self.folder))? {
            let entry = entry.map_err(Error::io("read the folder", &self.folder))?;
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(self.name));
            if rest.is_some_and(|rest| rest.starts_with('-')) {
                durable::remove_file(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes a file. It may be absent.
    pub fn remove(&self, worker: u32, shard: u32) -> Result<()> {
        durable::remove_file(&self.path(worker, shard))
    }
}

impl SpillWriter {
    /// Allocates a buffer of up to `buffer_bytes` for each of `shards` shards, or one for a longer record. `worker` must be a
    /// number that no earlier run recorded in the journal, because its files are overwritten.
    pub fn new(folder: SpillFolder, worker: u32, shards: u32, buffer_bytes: usize) -> Result<Self> {
        let record = folder.record_words;
        let records = buffer_bytes / 8 / record;
        let shared = (records == 0).then_some(0);
        let buffers = if shared.is_some() { 1 } else { shards as usize };
        let buffer_words = records.max(1) * record;
        Ok(Self {
            folder,
            worker,
            buffer_words,
            buffers: heap::zeroed(buffers * buffer_words, "buffers of spill files")?,
            fill: vec![0; shards as usize],
            shared,
            extents: vec![Extent::default(); shards as usize],
        })
    }

    /// Appends a record of one word.
    #[inline]
    pub fn push_word(&mut self, shard: u32, word: u64) -> Result<()> {
        debug_assert!(self.folder.record_words == 1 && self.shared.is_none());
        let fill = &mut self.fill[shard as usize];
        self.buffers[shard as usize * self.buffer_words + *fill as usize] = word;
        *fill += 1;
        if *fill as usize == self.buffer_words { self.flush(shard) } else { Ok(()) }
    }

    /// Appends a record and returns its words for the caller to fill in.
    #[inline]
    pub fn push(&mut self, shard: u32) -> Result<&mut [u64]> {
        if let Some(last) = self.shared.as_mut().map(|last| std::mem::replace(last, shard)) {
            self.flush(last)?;
        } else if self.fill[shard as usize] as usize == self.buffer_words {
            self.flush(shard)?;
        }
        let at = self.buffer_start(shard) + self.fill[shard as usize] as usize;
        self.fill[shard as usize] += self.folder.record_words as u32;
        Ok(&mut self.buffers[at..at + self.folder.record_words])
    }

    fn buffer_start(&self, shard: u32) -> usize {
        match self.shared {
            None => shard as usize * self.buffer_words,
            Some(_) => 0,
        }
    }

    #[cold]
    fn flush(&mut self, shard: u32) -> Result<()> {
        let fill = std::mem::take(&mut self.fill[shard as usize]) as usize;
        if fill == 0 {
            return Ok(());
        }
        let at = self.buffer_start(shard);
        let words = &self.buffers[at..at + fill];
        let extent = &mut self.extents[shard as usize];
        let offset = extent.records * self.folder.record_words as u64 * 8;
        extent.records += (fill / self.folder.record_words) as u64;
        extent.sum = extent.sum.wrapping_add(sum(words));
        // The file is opened for each write, because thousands of shards would need thousands of file descriptors.
        let path = self.folder.path(self.worker, shard);
        let file = match offset {
            0 => durable::create_file(&path)?,
            _ => durable::reopen_file(&path)?,
        };
        file.write_all_at(bytemuck::cast_slice(words), offset).map_err(Error::io("write the spill file", &path))
    }

    /// Writes out all buffers. Returns the extent of each shard's file.
    pub fn flush_all(&mut self) -> Result<&[Extent]> {
        for shard in 0..self.fill.len() {
            self.flush(shard as u32)?;
        }
        Ok(&self.extents)
    }
}

/// The sum of the words' checksums, which does not depend on their order. Zero words do not contribute 0, so a zeroed
/// page is noticed just as missing words are.
pub fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| {
        let mixed = (word ^ GOLDEN).wrapping_mul(0xd6e8_feb8_6659_fd93);
        sum.wrapping_add(mixed ^ mixed >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_by_shard_in_the_order_they_were_pushed() {
        // Buffers of 4 records, and of less than one.
        [64, 15].into_iter().for_each(records_come_back);
    }

    fn records_come_back(buffer_bytes: usize) {
        let folder = tempfile::tempdir().unwrap();
        let spill = SpillFolder::new(folder.path(), "pairs", 2);
        let mut writer = SpillWriter::new(spill.clone(), 3, 5, buffer_bytes).unwrap();
        assert!(writer.buffers.len() <= (5 * buffer_bytes / 8).max(2));
        let mut expected = vec![Vec::new(); 5];
        for n in 0..1000u64 {
            let shard = (n * n % 5) as u32;
            writer.push(shard).unwrap().copy_from_slice(&[n, n + 1]);
            expected[shard as usize].extend([n, n + 1]);
            if n == 500 {
                writer.flush_all().unwrap();
            }
        }
        let extents = writer.flush_all().unwrap().to_vec();
        for (shard, expected) in expected.iter().enumerate() {
            let extent = extents[shard];
            let mut words = vec![0; 2 * extent.records as usize];
            spill.read(3, shard as u32, 0, &mut words).unwrap();
            assert_eq!(&words, expected);
            spill.check(3, shard as u32, extent, sum(&words)).unwrap();
            if let Some(word) = words.last_mut() {
                *word = 0;
                assert!(spill.check(3, shard as u32, extent, sum(&words)).is_err(), "a zeroed word");
            }
        }
    }

    #[test]
    fn a_file_that_is_missing_or_too_short_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let spill = SpillFolder::new(folder.path(), "pairs", 2);
        let mut writer = SpillWriter::new(spill.clone(), 0, 1, 64).unwrap();
        for n in 0..3 {
            writer.push(0).unwrap().copy_from_slice(&[n, n]);
        }
        writer.flush_all().unwrap();
        let path = spill.path(0, 0);
        let damages: [fn(&Path); 2] = [
            |path| fs::File::options().write(true).open(path).unwrap().set_len(47).unwrap(),
            |path| fs::remove_file(path).unwrap(),
        ];
        for damage in damages {
            damage(&path);
            let error = spill.read(0, 0, 1, &mut [0; 4]).unwrap_err();
            assert!(matches!(error, Error::Input { .. }), "{error}");
            assert!(error.to_string().contains("pairs-0-0: scratch data is missing"), "{error}");
        }
    }
}
