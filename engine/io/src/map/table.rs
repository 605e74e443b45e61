//! A table of mapped files by address, for a signal handler.
//!
//! The handler may interrupt any code, so it takes no lock and allocates nothing. Entries are written under a lock.
//! Each has a version, which is odd during a write. Names are stored in the entries, because memory that a handler
//! reads must never be freed. Blocks of entries are added and never removed.

use std::{
    path::Path,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

/// Of a longer name, the last bytes are kept. They are enough to recognize a file.
const NAME_BYTES: usize = 240;
const ENTRIES_PER_BLOCK: usize = 64;

/// A mapped file and its addresses.
#[derive(Debug)]
struct MappedEntry {
    version: AtomicU64,
    start: AtomicUsize,
    /// 0 if the entry is free.
    bytes: AtomicUsize,
    /// Offset of the mapping in the file.
    first: AtomicUsize,
    name: [AtomicU8; NAME_BYTES],
    name_bytes: AtomicUsize,
}

struct EntryBlock {
    entries: [MappedEntry; ENTRIES_PER_BLOCK],
    next: OnceLock<Box<EntryBlock>>,
}

static TABLE: EntryBlock = EntryBlock::new();
static WRITERS: Mutex<()> = Mutex::new(());

/// Keeps a mapping in the table until this is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    /// None if the mapping is empty: it has no address.
    entry: Option<&'static MappedEntry>,
}

/// A place in a mapped file.
#[derive(Debug, Clone, Copy)]
pub(super) struct MappedPlace {
    name: [u8; NAME_BYTES],
    name_bytes: usize,
    pub(super) offset: usize,
}

impl MappedPlace {
    /// The file's path, or the end of it.
    pub(super) fn name(&self) -> &[u8] {
        &self.name[..self.name_bytes]
    }
}

/// Adds a mapping: `bytes` are the bytes of the file `path` from offset `first` on.
pub(super) fn list(bytes: &[u8], path: &Path, first: usize) -> Listed {
    if bytes.is_empty() {
        return Listed { entry: None };
    }
    let _lock = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut block = &TABLE;
    let entry = loop {
        match block.entries.iter().find(|entry| entry.bytes.load(Ordering::Relaxed) == 0) {
            Some(entry) => break entry,
            None => block = block.next.get_or_init(|| Box::new(EntryBlock::new())),
        }
    };
    let name = path.as_os_str().as_encoded_bytes();
    entry.write(bytes, first, &name[name.len().saturating_sub(NAME_BYTES)..]);
    Listed { entry: Some(entry) }
}

/// Finds the file that is mapped at an address. Safe to call in a signal handler.
pub(super) fn find(address: usize) -> Option<MappedPlace> {
    let mut block = Some(&TABLE);
    while let Some(EntryBlock { entries, next }) = block {
        if let Some(place) = entries.iter().find_map(|entry| entry.place(address)) {
            return Some(place);
        }
        block = next.get().map(Box::as_ref);
    }
    None
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            let _lock = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
            entry.write(&[], 0, &[]);
        }
    }
}

impl EntryBlock {
    const fn new() -> Self {
        Self { entries: [const { MappedEntry::new() }; ENTRIES_PER_BLOCK], next: OnceLock::new() }
    }
}

impl MappedEntry {
    const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            name: [const { AtomicU8::new(0) }; NAME_BYTES],
            name_bytes: AtomicUsize::new(0),
        }
    }

    /// Called under the lock.
    fn write(&self, bytes: &[u8], first: usize, name: &[u8]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(bytes.as_ptr().addr(), Ordering::Relaxed);
        self.bytes.store(bytes.len(), Ordering::Relaxed);
        self.first.store(first, Ordering::Relaxed);
        for (place, &byte) in self.name.iter().zip(name) {
            place.store(byte, Ordering::Relaxed);
        }
        self.name_bytes.store(name.len(), Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    fn place(&self, address: usize) -> Option<MappedPlace> {
        let version = self.version.load(Ordering::Acquire);
        let offset = address.wrapping_sub(self.start.load(Ordering::Relaxed));
        let within = offset < self.bytes.load(Ordering::Relaxed);
        if !within {
            return None;
        }
        let place = MappedPlace {
            name: std::array::from_fn(|at| self.name[at].load(Ordering::Relaxed)),
            name_bytes: self.name_bytes.load(Ordering::Relaxed),
            offset: self.first.load(Ordering::Relaxed) + offset,
        };
        fence(Ordering::Acquire);
        // An entry that is being written belongs to another mapping, because the one with this address is in use.
        (version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_while_they_are_listed() {
        // More mappings than a block has entries.
        let memory: Vec<Vec<u8>> = (1..=3 * ENTRIES_PER_BLOCK).map(|length| vec![0; length]).collect();
        let list = |bytes: &Vec<u8>| list(bytes, Path::new(&format!("/some/file-{}", bytes.len())), 7);
        let mut listed: Vec<_> = memory.iter().map(list).collect();
        let name = |address: usize| find(address).map(|place| (place.name().to_vec(), place.offset));
        for bytes in &memory {
            let (first, expected) = (bytes.as_ptr().addr(), format!("/some/file-{}", bytes.len()).into_bytes());
            assert_eq!(name(first), Some((expected.clone(), 7)));
            assert_eq!(name(first + bytes.len() - 1), Some((expected, 7 + bytes.len() - 1)));
        }
        listed.truncate(100);
        assert_eq!(name(memory[100].as_ptr().addr()), None);
        assert_eq!(name(memory[100].as_ptr().addr().wrapping_sub(usize::MAX / 2)), None);
        assert!(name(memory[99].as_ptr().addr()).is_some());
    }

    #[test]
    fn the_end_of_a_long_name_is_kept() {
        let memory = [0; 10];
        let path = format!("/{}/edges", "folder".repeat(100));
        let _listed = list(&memory, Path::new(&path), 0);
        let place = find(memory.as_ptr().addr()).unwrap();
        assert_eq!(place.name(), &path.as_bytes()[path.len() - NAME_BYTES..]);
    }

    #[test]
    fn an_empty_mapping_is_not_listed() {
        assert!(list(&[], Path::new("empty"), 0).entry.is_none());
    }
}
