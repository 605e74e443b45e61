//! Collects distinct ids in memory and writes them to runs.

use grappa_formats::{
    dictionary::{KEY_BYTES_MAX, KeyKind},
    random::GOLDEN,
};
use grappa_io::{Error, Result, arena::Arena, heap, prefetch::prefetch, sort::sort_keys};
use xxhash_rust::xxh3::xxh3_64;

use super::files::{Runs, common_prefix, prefix};

/// Strings that are looked up together.
const BATCH: usize = 32;
/// Strings between the prefetch of a string and its write.
const AHEAD: usize = 16;
/// Base-2 logarithm of the number of ids that an [`IntegerCollector`] remembers. They take one MiB, which fits in the
/// second-level cache.
const SEEN_BITS: u32 = 17;
/// Number of ids for which a collector takes memory at first.
const FIRST_IDS: usize = 1 << 12;

/// Collects the ids of one worker.
pub enum IdCollector<'a> {
    Integers(IntegerCollector<'a>),
    Strings(StringCollector<'a>),
}

impl<'a> IdCollector<'a> {
    /// Uses about `memory` bytes.
    pub fn new(runs: &'a Runs, memory: u64) -> Result<Self> {
        Ok(match runs.kind {
            KeyKind::Integers => Self::Integers(IntegerCollector::new(runs, memory)),
            KeyKind::Strings => Self::Strings(StringCollector::new(runs, memory)?),
        })
    }

    /// Writes the ids that are left.
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Integers(ids) => ids.finish(),
            Self::Strings(mut ids) => ids.write(),
        }
    }
}

/// Collects the integers of one worker.
///
/// Most edges repeat ids of recent edges. A small direct-mapped cache of recent ids drops most of these before they take
/// part in a sort.
pub struct IntegerCollector<'a> {
    runs: &'a Runs,
    ids: Vec<u64>,
    /// The most ids in memory. The vectors grow up to it, because it may be far more than there are.
    capacity: usize,
    scratch: Vec<u64>,
    /// Recent ids, each at the index that its hash gives. Each of them is in `ids` or in a run.
    seen: Vec<u64>,
}

/// The use of memory, as allocation errors name it.
const COLLECTING: &str = "collecting node ids";

/// Marks an empty entry of the cache: all ids are below.
pub const NO_ID: u64 = u64::MAX;

impl<'a> IntegerCollector<'a> {
    /// Uses up to about `memory` bytes.
    pub fn new(runs: &'a Runs, memory: u64) -> Self {
        Self {
            runs,
            ids: Vec::new(),
            // 8 bytes for an id, and 8 for its copy while it is sorted.
            capacity: (memory as usize / 16).max(16),
            scratch: Vec::new(),
            seen: vec![NO_ID; 1 << SEEN_BITS],
        }
    }

    /// Adds an id below 2^64 - 1.
    #[inline]
    pub fn add(&mut self, id: u64) -> Result<()> {
        let place = (id.wrapping_mul(GOLDEN) >> (64 - SEEN_BITS)) as usize;
        if self.seen[place] == id {
            return Ok(());
        }
        self.seen[place] = id;
        if self.ids.len() == self.ids.capacity() {
            self.make_room()?;
        }
        self.ids.push(id);
        Ok(())
    }

    /// Doubles the memory up to the capacity, or frees some.
    #[cold]
    fn make_room(&mut self) -> Result<()> {
        if self.ids.len() >= self.capacity {
            return self.compact();
        }
        let wanted = (2 * self.ids.len()).clamp(FIRST_IDS.min(self.capacity), self.capacity);
        heap::reserve_to(&mut self.ids, wanted, COLLECTING)
    }

    /// Drops duplicates. Writes a run only if that frees less than half of the memory: fewer and longer runs merge faster.
    fn compact(&mut self) -> Result<()> {
        self.sort()?;
        if self.ids.len() > self.capacity / 2 {
            self.spill()?;
        }
        Ok(())
    }

    fn sort(&mut self) -> Result<()> {
        heap::reserve_to(&mut self.scratch, self.ids.len(), COLLECTING)?;
        sort_keys(&mut self.ids, &mut self.scratch, 64);
        self.ids.dedup();
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        let mut writer = self.runs.writer()?;
        for id in self.ids.drain(..) {
            writer.push(&id.to_be_bytes())?;
        }
        writer.finish()
    }

    /// Writes the ids that are left.
    pub fn finish(mut self) -> Result<()> {
        self.sort()?;
        self.spill()
    }
}

/// Collects the strings of one worker in a hash table.
///
/// Strings are too expensive to sort with their duplicates, so the table (open addressing, linear probing) keeps each
/// string once.
pub struct StringCollector<'a> {
    runs: &'a Runs,
    bytes: Vec<u8>,
    entries: Vec<IdEntry>,
    /// Two slots per entry, on huge pages: most lookups would miss the TLB too. They grow with the entries, because few strings would touch
    /// all pages of many slots.
    slots: Arena,
}

/// The low half of the hash, and the index of the entry plus 1. An index of 0 is an empty slot.
type Slot = [u32; 2];

#[derive(Clone, Copy)]
struct IdEntry {
    /// When entries are sorted: the first bytes after those that are equal in all.
    prefix: u64,
    start: u32,
    length: u32,
}

impl<'a> StringCollector<'a> {
    /// Uses about `memory` bytes.
    pub fn new(runs: &'a Runs, memory: u64) -> Result<Self> {
        // 48 bytes per entry: 16 for the entry, 16 for two slots, and 16 for the string on average.
        let entries = (memory as usize / 48).clamp(16, u32::MAX as usize / 16);
        let mut collector =
            Self { runs, bytes: Vec::new(), entries: Vec::new(), slots: slots_for(entries.min(FIRST_IDS))? };
        heap::reserve(&mut collector.bytes, (16 * entries).max(KEY_BYTES_MAX), COLLECTING)?;
        heap::reserve(&mut collector.entries, entries, COLLECTING)?;
        Ok(collector)
    }

    /// Adds strings of at most [`KEY_BYTES_MAX`] bytes. A longer one is an error.
    pub fn add_all<'k>(&mut self, ids: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        let mut ids = ids.map(|id| (id, xxh3_64(id)));
        let (mut batch, mut next) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        loop {
            // A lookup has three dependent cache misses: slot, entry, bytes. Done string by string, they would add up. So
            // each is first done for a whole batch, where the misses of different strings overlap. The lookups after
            // that find everything in the cache.
            next.clear();
            next.extend(ids.by_ref().take(BATCH));
            let slots = self.slots.values::<Slot>();
            for &(_, hash) in &next {
                prefetch(slots, place(slots, hash));
            }
            let mut entries = [0; BATCH];
            for (entry, &(_, hash)) in entries.iter_mut().zip(&batch) {
                *entry = (slots[place(slots, hash)][1] as usize).wrapping_sub(1);
                prefetch(&self.entries, *entry);
            }
            for entry in entries[..batch.len()].iter().filter_map(|&entry| self.entries.get(entry)) {
                prefetch(&self.bytes, entry.start as usize);
            }
            for &(id, hash) in &batch {
                self.add(id, hash)?;
            }
            if next.is_empty() {
                return Ok(());
            }
            std::mem::swap(&mut batch, &mut next);
        }
    }

    /// Adds a string unless it is there. Writes a run first if there is no room.
    fn add(&mut self, id: &[u8], hash: u64) -> Result<()> {
        let (tag, slots) = (hash as u32, self.slots.values::<Slot>());
        let mut slot = place(slots, hash);
        loop {
            match slots[slot] {
                [_, 0] => break,
                [other, entry] if other == tag && self.get(self.entries[entry as usize - 1]) == id => return Ok(()),
                // Another string, or one with the same half hash.
                _ => slot = after(slots, slot),
            }
        }
        // An empty buffer has no room for a longer one, and a run has no room for its length.
        if id.len() > KEY_BYTES_MAX {
            return Err(Error::limit(
                format!("a node id has {} bytes", id.len()),
                format!("{KEY_BYTES_MAX} bytes"),
                "shorten the id",
            ));
        }
        if self.entries.len() == self.entries.capacity() || self.bytes.len() + id.len() > self.bytes.capacity() {
            self.spill()?;
            return self.add(id, hash);
        }
        if self.entries.len() == slots.len() / 2 {
            self.grow()?;
            return self.add(id, hash);
        }
        self.entries.push(IdEntry { prefix: 0, start: self.bytes.len() as u32, length: id.len() as u32 });
        self.bytes.extend_from_slice(id);
        self.slots.values_mut::<Slot>()[slot] = [tag, self.entries.len() as u32];
        Ok(())
    }

    fn get(&self, entry: IdEntry) -> &[u8] {
        &self.bytes[entry.start as usize..][..entry.length as usize]
    }

    /// Doubles the slots, up to two for each entry that there is room for.
    #[cold]
    fn grow(&mut self) -> Result<()> {
        self.slots = slots_for((2 * self.entries.len()).min(self.entries.capacity()))?;
        let slots = self.slots.values_mut::<Slot>();
        for (index, &IdEntry { start, length, .. }) in (1..).zip(&self.entries) {
            let hash = xxh3_64(&self.bytes[start as usize..][..length as usize]);
            let mut slot = place(slots, hash);
            while slots[slot][1] != 0 {
                slot = after(slots, slot);
            }
            slots[slot] = [hash as u32, index];
        }
        Ok(())
    }

    /// Writes all strings to a run and empties the table.
    #[cold]
    fn spill(&mut self) -> Result<()> {
        self.write()?;
        self.entries.clear();
        self.bytes.clear();
        self.slots.fill(0);
        Ok(())
    }

    /// Writes all strings to a run.
    fn write(&mut self) -> Result<()> {
        let mut entries = std::mem::take(&mut self.entries);
        if let Some(&first) = entries.first() {
            let first = self.get(first);
            let common =
                entries.iter().fold(first.len(), |common, &entry| common_prefix(&first[..common], self.get(entry)));
            for entry in &mut entries {
                entry.prefix = prefix(&self.get(*entry)[common..]);
            }
        }
        entries.sort_unstable_by(|&a, &b| a.prefix.cmp(&b.prefix).then_with(|| self.get(a).cmp(self.get(b))));
        let mut writer = self.runs.writer()?;
        for (index, &entry) in entries.iter().enumerate() {
            if let Some(later) = entries.get(index + AHEAD) {
                prefetch(&self.bytes, later.start as usize);
            }
            writer.push(self.get(entry))?;
        }
        self.entries = entries;
        writer.finish()
    }
}

fn slots_for(entries: usize) -> Result<Arena> {
    Arena::for_purpose(2 * entries * size_of::<Slot>(), COLLECTING)
}

/// The first slot of a hash: the hash's share of the number of slots.
#[inline]
fn place(slots: &[Slot], hash: u64) -> usize {
    ((u128::from(hash) * slots.len() as u128) >> 64) as usize
}

#[inline]
fn after(slots: &[Slot], slot: usize) -> usize {
    if slot + 1 == slots.len() { 0 } else { slot + 1 }
}
