//! Distinct ids, sorted: collected by many workers in bounded memory, merged into one sequence.
//!
//! ```text
//! each worker: loop
//!     add an id; what was added lately is dropped at once
//!     when the memory is full: sort, drop duplicates; if much is left, write it to a file, a run
//! merge: while there are too many runs to read side by side, merge the first of them into one
//!        merge the rest, and hand over each id once
//! ```
//!
//! In a run an integer is eight bytes, the highest first, and a string is its length in two bytes and itself, so that
//! ids of both kinds compare as bytes do.
//!
//! Cost: some 10 ns to sort an integer and 100 to sort a string, on every thread; 30 to 50 ns for each id of a run when
//! it is merged, on one.

use std::{
    fs::File,
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use grappa_formats::{
    dictionary::{KEY_BYTES_MAX, KeyKind},
    random::GOLDEN,
};
use grappa_io::{Error, Result, durable, heap, sort::sort_keys};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes written to a run at a time.
const WRITE_BYTES: usize = 256 << 10;
/// Strings that are looked up together.
const BATCH: usize = 32;
/// Ids that a worker remembers having seen, as a power of two: a megabyte of them, to fit the second-level cache.
const SEEN_BITS: u32 = 17;

/// The files of runs.
pub struct Runs {
    folder: PathBuf,
    kind: KeyKind,
    /// Number and bytes of each finished run.
    finished: Mutex<Finished>,
}

#[derive(Default)]
struct Finished {
    next: u32,
    runs: Vec<Run>,
}

struct Run {
    number: u32,
    bytes: u64,
}

impl Runs {
    /// No runs yet. What is in `folder` by their names does not count.
    pub fn new(folder: &Path, kind: KeyKind) -> Self {
        Self {
            folder: folder.to_owned(),
            kind,
            finished: Mutex::default(),
        }
    }

    fn path(&self, number: u32) -> PathBuf {
        self.folder.join(format!("run-{number}"))
    }

    fn finished(&self) -> std::sync::MutexGuard<'_, Finished> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> Result<RunWriter<'_>> {
        let mut finished = self.finished();
        let number = finished.next;
        finished.next += 1;
        let path = self.path(number);
        let file = durable::create_file(&path)?;
        Ok(RunWriter {
            runs: self,
            number,
            path,
            file,
            buffer: Vec::with_capacity(WRITE_BYTES),
            bytes: 0,
        })
    }

    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.finished().runs.iter().map(|run| run.bytes).sum()
    }

    /// Passes each id to `each`, once and in order, and removes the runs. At most `memory` bytes are used, and `advance`
    /// hears of bytes read.
    pub fn merge(
        self,
        memory: u64,
        advance: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        // The longest id must fit a buffer.
        let least = match self.kind {
            KeyKind::Integers => 4 << 10,
            KeyKind::Strings => 2 * (2 + KEY_BYTES_MAX),
        };
        let wanted = least.max(64 << 10) as u64;
        let side_by_side = (memory / wanted).clamp(2, 512) as usize;
        loop {
            let runs: Vec<Run> = {
                let mut finished = self.finished();
                let count = finished.runs.len().min(side_by_side);
                finished.runs.drain(..count).collect()
            };
            let last = self.finished().runs.is_empty();
            let buffer_bytes = (memory as usize / runs.len().max(1)).clamp(least, 4 << 20);
            if last {
                self.merge_some(&runs, buffer_bytes, advance, each)?;
                return Ok(());
            }
            let mut merged = self.writer()?;
            self.merge_some(&runs, buffer_bytes, &mut |_| {}, &mut |id| merged.push(id))?;
            merged.finish()?;
        }
    }

    fn merge_some(
        &self,
        runs: &[Run],
        buffer_bytes: usize,
        advance: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut readers = Vec::with_capacity(runs.len());
        for run in runs {
            let mut reader = RunReader::open(self.path(run.number), self.kind, run.bytes, buffer_bytes)?;
            if reader.next(advance)? {
                readers.push(reader);
            }
        }
        let mut heap = Heap::new(readers);
        // No id is empty, so this is before the first.
        let mut last = Vec::new();
        while let Some(first) = heap.first() {
            let id = first.id();
            if id != last {
                each(id)?;
                last.clear();
                last.extend_from_slice(id);
            }
            heap.advance(advance)?;
        }
        for run in runs {
            durable::remove_file(&self.path(run.number))?;
        }
        Ok(())
    }
}

struct RunWriter<'a> {
    runs: &'a Runs,
    number: u32,
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    bytes: u64,
}

impl RunWriter<'_> {
    #[inline]
    fn push(&mut self, id: &[u8]) -> Result<()> {
        if self.buffer.len() + 2 + id.len() > WRITE_BYTES {
            self.flush()?;
        }
        if self.runs.kind == KeyKind::Strings {
            self.buffer.extend_from_slice(&(id.len() as u16).to_le_bytes());
        }
        self.buffer.extend_from_slice(id);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.file
            .write_all(&self.buffer)
            .map_err(Error::io("write", &self.path))?;
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()?;
        let run = Run {
            number: self.number,
            bytes: self.bytes,
        };
        self.runs.finished().runs.push(run);
        Ok(())
    }
}

struct RunReader {
    path: PathBuf,
    file: File,
    kind: KeyKind,
    /// What of the file is not in the buffer yet.
    offset: u64,
    end: u64,
    buffer: Vec<u8>,
    /// What of the buffer is filled.
    filled: usize,
    /// The current id.
    id: std::ops::Range<usize>,
}

impl RunReader {
    fn open(path: PathBuf, kind: KeyKind, bytes: u64, buffer_bytes: usize) -> Result<Self> {
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        Ok(Self {
            path,
            file,
            kind,
            offset: 0,
            end: bytes,
            buffer: vec![0; buffer_bytes.min(bytes as usize)],
            filled: 0,
            id: 0..0,
        })
    }

    #[inline]
    fn id(&self) -> &[u8] {
        &self.buffer[self.id.clone()]
    }

    /// The first eight bytes of the id, which decide most comparisons.
    #[inline]
    fn prefix(&self) -> u64 {
        prefix(self.id())
    }

    /// Goes to the next id. False at the end.
    #[inline]
    fn next(&mut self, advance: &mut dyn FnMut(u64)) -> Result<bool> {
        loop {
            let rest = &self.buffer[self.id.end..self.filled];
            let (skip, length) = match (self.kind, rest.first_chunk::<2>()) {
                (KeyKind::Integers, _) => (0, 8),
                (KeyKind::Strings, Some(length)) => (2, usize::from(u16::from_le_bytes(*length))),
                (KeyKind::Strings, None) => (2, 0),
            };
            if rest.len() >= skip + length {
                let start = self.id.end + skip;
                self.id = start..start + length;
                return Ok(true);
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
        // At the end of the file there is nothing more to read, so a torn id, which no run has, is an error too.
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

/// Runs by their current id, the smallest first.
struct Heap {
    readers: Vec<RunReader>,
    /// Prefix of the id, and the reader.
    heap: Vec<(u64, usize)>,
}

impl Heap {
    fn new(readers: Vec<RunReader>) -> Self {
        let heap = readers
            .iter()
            .enumerate()
            .map(|(i, reader)| (reader.prefix(), i))
            .collect();
        let mut heap = Self { readers, heap };
        for at in (0..heap.heap.len() / 2).rev() {
            heap.sink(at);
        }
        heap
    }

    fn first(&self) -> Option<&RunReader> {
        self.heap.first().map(|&(_, reader)| &self.readers[reader])
    }

    /// Moves the first run on.
    fn advance(&mut self, advance: &mut dyn FnMut(u64)) -> Result<()> {
        let reader = self.heap[0].1;
        if self.readers[reader].next(advance)? {
            self.heap[0].0 = self.readers[reader].prefix();
        } else {
            self.heap.swap_remove(0);
        }
        self.sink(0);
        Ok(())
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.less(child + 1, child) {
                child += 1;
            }
            if !self.less(child, at) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }

    #[inline]
    fn less(&self, a: usize, b: usize) -> bool {
        let ((a_prefix, a), (b_prefix, b)) = (self.heap[a], self.heap[b]);
        a_prefix < b_prefix || a_prefix == b_prefix && self.readers[a].id() < self.readers[b].id()
    }
}

/// The first eight bytes as an integer that orders as they do. What is missing counts as zeros: strings that this makes
/// equal must be compared themselves.
#[inline]
fn prefix(id: &[u8]) -> u64 {
    match id.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..id.len()].copy_from_slice(id);
            u64::from_be_bytes(bytes)
        }
    }
}

/// A worker's integers on their way into runs.
pub struct IntegerCollector<'a> {
    runs: &'a Runs,
    ids: Vec<u64>,
    capacity: usize,
    scratch: Vec<u64>,
    /// Ids that are in `ids`, each in the place of its hash.
    seen: Vec<u64>,
}

/// What memory is for.
const COLLECTING: &str = "collecting node ids";

/// No id: they are below.
const NO_ID: u64 = u64::MAX;

impl<'a> IntegerCollector<'a> {
    /// Uses about `memory` bytes.
    pub fn new(runs: &'a Runs, memory: u64) -> Result<Self> {
        // Every id may need its place in the scratch of the sort.
        let capacity = (memory as usize / 16).max(16);
        let (mut ids, mut scratch) = (Vec::new(), Vec::new());
        heap::reserve(&mut ids, capacity, COLLECTING)?;
        heap::reserve(&mut scratch, capacity, COLLECTING)?;
        Ok(Self {
            runs,
            ids,
            capacity,
            scratch,
            seen: vec![NO_ID; 1 << SEEN_BITS],
        })
    }

    /// Adds an id below 2^64 - 1.
    #[inline]
    pub fn add(&mut self, id: u64) -> Result<()> {
        let place = (id.wrapping_mul(GOLDEN) >> (64 - SEEN_BITS)) as usize;
        if self.seen[place] == id {
            return Ok(());
        }
        self.seen[place] = id;
        if self.ids.len() == self.capacity {
            self.compact()?;
        }
        self.ids.push(id);
        Ok(())
    }

    #[cold]
    fn compact(&mut self) -> Result<()> {
        self.sort();
        if self.ids.len() > self.capacity / 2 {
            self.spill()?;
            self.seen.fill(NO_ID);
        }
        Ok(())
    }

    fn sort(&mut self) {
        sort_keys(&mut self.ids, &mut self.scratch, 64);
        self.ids.dedup();
    }

    fn spill(&mut self) -> Result<()> {
        let mut writer = self.runs.writer()?;
        for id in self.ids.drain(..) {
            writer.push(&id.to_be_bytes())?;
        }
        writer.finish()
    }

    /// Writes what is left.
    pub fn finish(mut self) -> Result<()> {
        self.sort();
        self.spill()
    }
}

/// A worker's strings on their way into runs: a hash table of distinct ones.
pub struct StringCollector<'a> {
    runs: &'a Runs,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Upper half of the hash and, one higher so that 0 is none, the entry.
    slots: Vec<(u32, u32)>,
}

#[derive(Clone, Copy)]
struct Entry {
    prefix: u64,
    start: u32,
    length: u32,
}

impl<'a> StringCollector<'a> {
    /// Uses about `memory` bytes.
    pub fn new(runs: &'a Runs, memory: u64) -> Result<Self> {
        // An entry takes 16 bytes and two slots of 8; that leaves for as many entries as strings have 16 bytes on average.
        let entries = (memory as usize / 48).clamp(16, u32::MAX as usize / 16);
        let mut collector = Self {
            runs,
            bytes: Vec::new(),
            entries: Vec::new(),
            slots: heap::zeroed(2 * entries, COLLECTING)?,
        };
        heap::reserve(&mut collector.bytes, (16 * entries).max(KEY_BYTES_MAX), COLLECTING)?;
        heap::reserve(&mut collector.entries, entries, COLLECTING)?;
        Ok(collector)
    }

    /// Adds strings.
    pub fn add_all<'k>(&mut self, ids: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        let mut ids = ids.map(|id| (id, xxh3_64(id))).peekable();
        let mut batch = Vec::with_capacity(BATCH);
        while ids.peek().is_some() {
            batch.clear();
            batch.extend(ids.by_ref().take(BATCH));
            // Each id waits for the memory of its slot, entry and bytes. Touched for all ids of the batch, one after the
            // other, these waits overlap.
            let (mut touched, mut places) = (0, [0; BATCH]);
            for (place, (_, hash)) in places.iter_mut().zip(&batch) {
                *place = self.slots[self.place(*hash)].1 as usize;
            }
            for place in &mut places[..batch.len()] {
                *place = self
                    .entries
                    .get(place.wrapping_sub(1))
                    .map_or(0, |entry| entry.start as usize);
            }
            for place in &places[..batch.len()] {
                touched ^= self.bytes.get(*place).copied().unwrap_or(0);
            }
            std::hint::black_box(touched);
            for &(id, hash) in &batch {
                self.add(id, hash)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    fn add(&mut self, id: &[u8], hash: u64) -> Result<()> {
        let tag = hash as u32;
        let mut slot = self.place(hash);
        loop {
            match self.slots[slot] {
                (_, 0) => break,
                (other, entry) if other == tag && self.get(self.entries[entry as usize - 1]) == id => return Ok(()),
                _ => slot = if slot + 1 == self.slots.len() { 0 } else { slot + 1 },
            }
        }
        if self.entries.len() == self.entries.capacity() || self.bytes.len() + id.len() > self.bytes.capacity() {
            self.spill()?;
            return self.add(id, hash);
        }
        self.entries.push(Entry {
            prefix: prefix(id),
            start: self.bytes.len() as u32,
            length: id.len() as u32,
        });
        self.bytes.extend_from_slice(id);
        self.slots[slot] = (tag, self.entries.len() as u32);
        Ok(())
    }

    fn get(&self, entry: Entry) -> &[u8] {
        &self.bytes[entry.start as usize..][..entry.length as usize]
    }

    #[cold]
    fn spill(&mut self) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|&a, &b| a.prefix.cmp(&b.prefix).then_with(|| self.get(a).cmp(self.get(b))));
        let mut writer = self.runs.writer()?;
        for &entry in &entries {
            writer.push(self.get(entry))?;
        }
        writer.finish()?;
        entries.clear();
        self.entries = entries;
        self.bytes.clear();
        self.slots.fill((0, 0));
        Ok(())
    }

    /// Writes what is left.
    pub fn finish(mut self) -> Result<()> {
        self.spill()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn merged(runs: Runs, memory: u64) -> Vec<Vec<u8>> {
        let mut ids = Vec::new();
        let (bytes, mut read) = (runs.bytes(), 0);
        let folder = runs.folder.clone();
        let few = runs.finished().runs.len() <= 2;
        runs.merge(memory, &mut |bytes| read += bytes, &mut |id| {
            ids.push(id.to_vec());
            Ok(())
        })
        .unwrap();
        assert!(!few || read == bytes, "{read} of {bytes} bytes were reported");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "runs are removed");
        ids
    }

    proptest! {
        #[test]
        fn integers_come_out_sorted_and_once(
            ids in prop::collection::vec(prop_oneof![0u64..50, any::<u64>().prop_map(|id| id.min(NO_ID - 1))], 0..3000),
            memory in 0u64..20_000,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let runs = Runs::new(folder.path(), KeyKind::Integers);
            // Two workers, of which one sees every third id.
            let mut collectors = [0; 2].map(|_| IntegerCollector::new(&runs, memory).unwrap());
            for (i, &id) in ids.iter().enumerate() {
                collectors[usize::from(i % 3 == 0)].add(id).unwrap();
            }
            for collector in collectors {
                collector.finish().unwrap();
            }
            let expected: BTreeSet<u64> = ids.into_iter().collect();
            let found = merged(runs, memory);
            prop_assert!(found.iter().eq(expected.iter().map(|id| id.to_be_bytes()).collect::<Vec<_>>().iter()));
        }

        #[test]
        fn strings_come_out_sorted_and_once(
            ids in prop::collection::vec(prop_oneof!["[ab]{1,3}", "wxyzwxyz[ab]{0,4}", "\\PC{1,20}"], 0..1000),
            memory in 0u64..20_000,
            long in any::<bool>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let runs = Runs::new(folder.path(), KeyKind::Strings);
            let mut ids: Vec<Vec<u8>> = ids.into_iter().map(String::into_bytes).collect();
            if long {
                ids.push(vec![b'l'; KEY_BYTES_MAX]);
                ids.push(vec![b'l'; KEY_BYTES_MAX - 1]);
            }
            let mut collectors = [0; 2].map(|_| StringCollector::new(&runs, memory).unwrap());
            for (i, some) in ids.chunks(70).enumerate() {
                collectors[i % 2].add_all(some.iter().map(Vec::as_slice)).unwrap();
            }
            for collector in collectors {
                collector.finish().unwrap();
            }
            let expected: BTreeSet<Vec<u8>> = ids.into_iter().collect();
            prop_assert!(merged(runs, memory).iter().eq(&expected));
        }
    }

    #[test]
    fn more_runs_than_can_be_read_at_once_are_merged_in_rounds() {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs::new(folder.path(), KeyKind::Integers);
        for start in 0..37u64 {
            let mut collector = IntegerCollector::new(&runs, 1 << 12).unwrap();
            (0..100).try_for_each(|i| collector.add(start + 7 * i)).unwrap();
            collector.finish().unwrap();
        }
        let expected: BTreeSet<u64> = (0..37).flat_map(|start| (0..100).map(move |i| start + 7 * i)).collect();
        let found = merged(runs, 150 << 10);
        assert!(
            found
                .iter()
                .eq(expected.iter().map(|id| id.to_be_bytes()).collect::<Vec<_>>().iter())
        );
    }
}
