//! Reads the dictionary of an unfinished store.
//!
//! The file is not memory-mapped, because mapped pages would count as memory of the process. A lookup reads the file about
//! log2(n) times, which takes 10 us or more even if the file is cached. For many lookups, make a
//! [`KeyTable`](super::table::KeyTable).

use std::{
    cmp::Ordering,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use grappa_formats::{
    DenseId,
    container::FileKind,
    dictionary::{BLOCK_KEYS, DictionaryMeta, KEY_BYTES_MAX, KeyKind, block_key},
};
use grappa_io::{Error, Position, Result, container::ContainerFile, regular};
use grappa_storage::writer::scratch_error;

use super::keys::{StringHash, integer_key};

/// Bytes per read of a sequential pass.
const READ_BYTES: u64 = 1 << 20;

/// A dictionary file, and the keys of its ids.
#[derive(Debug)]
pub struct Dictionary {
    file: ContainerFile,
    meta: DictionaryMeta,
    /// The file with the first hash of each string, 8 bytes per dense id. Without it, making keys would need to decode all
    /// strings.
    hashes: Option<PathBuf>,
    /// The keys of strings.
    pub hash: StringHash,
}

impl Dictionary {
    /// Opens the dictionary at `path`. For a dictionary of strings, `hashes` is the file with their first hashes.
    pub fn open(path: &Path, hashes: &Path, hash: StringHash) -> Result<Self> {
        let file = ContainerFile::open(path, FileKind::DICTIONARY)?;
        let meta = DictionaryMeta::decode(file.header()).map_err(Error::format(path))?;
        let hashes = (meta.kind == KeyKind::Strings).then(|| hashes.to_owned());
        Ok(Self {
            file,
            meta,
            hashes,
            hash,
        })
    }

    /// Number of ids.
    pub fn ids(&self) -> u64 {
        self.meta.keys
    }

    /// Whether ids are integers or strings.
    pub fn kind(&self) -> KeyKind {
        self.meta.kind
    }

    /// Passes the key and dense id of each id to `each`, ascending by dense id.
    pub fn for_each_key(&self, mut each: impl FnMut(u64, DenseId) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; READ_BYTES.min(8 * self.ids()) as usize];
        let hashes = match &self.hashes {
            Some(path) => Some((regular::open(path).map_err(scratch_error)?, path)),
            None => None,
        };
        let mut next = 0;
        while next < self.ids() {
            let bytes = READ_BYTES.min(8 * (self.ids() - next)) as usize;
            let piece = &mut buffer[..bytes];
            match &hashes {
                Some((file, path)) => file
                    .read_exact_at(piece, 8 * next)
                    .map_err(Error::io("read", path))
                    .map_err(scratch_error)?,
                None => self.file.read_at(piece, 8 * next)?,
            }
            for word in piece.as_chunks().0 {
                let word = u64::from_le_bytes(*word);
                let key = match self.meta.kind {
                    KeyKind::Integers => integer_key(word),
                    KeyKind::Strings if self.hash.is_shared(word) => self.hash.key(&self.string(DenseId(next))?),
                    KeyKind::Strings => word,
                };
                each(key, DenseId(next))?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Gives other keys to the strings with these dense ids, which share keys.
    pub fn separate(&mut self, ids: &[DenseId]) -> Result<()> {
        let strings: Vec<_> = ids.iter().map(|&id| self.string(id)).collect::<Result<_>>()?;
        self.hash.separate(strings.iter().map(Vec::as_slice));
        Ok(())
    }

    /// The integer with a dense id.
    pub fn integer(&self, id: DenseId) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_at(&mut bytes, 8 * id.0)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The string with a dense id.
    pub fn string(&self, id: DenseId) -> Result<Vec<u8>> {
        let (start, block) = self.block(id.0 / BLOCK_KEYS, usize::MAX)?;
        self.key_in(start, &block, id.0 % BLOCK_KEYS)
    }

    /// The dense id of an integer, if the integer is there.
    pub fn find_integer(&self, id: u64) -> Result<Option<DenseId>> {
        let (mut low, mut high) = (0, self.ids());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.integer(DenseId(middle))?.cmp(&id) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Some(DenseId(middle))),
                Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// The dense id of a string, if the string is there.
    ///
    /// A binary search over the first strings of blocks finds the block, which is then searched linearly.
    pub fn find_string(&self, id: &[u8]) -> Result<Option<DenseId>> {
        let (mut low, mut high) = (0, self.ids().div_ceil(BLOCK_KEYS));
        while low < high {
            let middle = low + (high - low) / 2;
            // The first key is stored whole: a length in at most three bytes, then the bytes. The rest of the block need
            // not be read.
            let (start, block) = self.block(middle, 3 + KEY_BYTES_MAX)?;
            match self.key_in(start, &block, 0)?.as_slice().cmp(id) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Some(DenseId(middle * BLOCK_KEYS))),
                Ordering::Greater => high = middle,
            }
        }
        // `low` is the first block that begins after `id`.
        let Some(block) = low.checked_sub(1) else {
            return Ok(None);
        };
        let (start, bytes) = self.block(block, usize::MAX)?;
        for index in 1..BLOCK_KEYS.min(self.ids() - block * BLOCK_KEYS) {
            if self.key_in(start, &bytes, index)? == id {
                return Ok(Some(DenseId(block * BLOCK_KEYS + index)));
            }
        }
        Ok(None)
    }

    /// The start of a block among the keys, and its bytes, or the first `bytes_max` of them.
    fn block(&self, block: u64, bytes_max: usize) -> Result<(u64, Vec<u8>)> {
        let last = block + 1 == self.ids().div_ceil(BLOCK_KEYS);
        let mut entries = [[0; 8]; 2];
        let wanted = if last { 1 } else { 2 };
        let table = self.meta.table_offset() + 8 * block;
        self.file.read_at(entries[..wanted].as_flattened_mut(), table)?;
        let start = u64::from_le_bytes(entries[0]);
        let end = if last {
            self.meta.key_bytes
        } else {
            u64::from_le_bytes(entries[1])
        };
        if start > end || end > self.meta.key_bytes {
            let offset = Position::Offset(self.file.header().payload_offset + table);
            let what = format!("block {block} of the dictionary is at {start}..{end}; the file is damaged");
            return Err(Error::input(self.file.path(), offset, what));
        }
        let mut bytes = vec![0; ((end - start) as usize).min(bytes_max)];
        self.file.read_at(&mut bytes, start)?;
        Ok((start, bytes))
    }

    fn key_in(&self, start: u64, block: &[u8], index: u64) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        let offset = self.file.header().payload_offset + start;
        block_key(block, offset, index, &mut key).map_err(Error::format(self.file.path()))?;
        Ok(key)
    }
}
