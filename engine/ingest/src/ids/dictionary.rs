//! Reads the dictionary of an unfinished store.
//!
//! The file is not memory-mapped, because mapped pages would count as memory of the process. A lookup reads the file about
//! log2(n) times, which takes 10 us or more even if the file is cached. For many lookups, make a
//! [`KeyTable`](super::table::KeyTable).

use std::{cmp::Ordering, ops::Range, path::Path};

use grappa_formats::{
    DenseId,
    container::FileKind,
    dictionary::{BLOCK_KEYS, BlockKeys, DictionaryMeta, KEY_BYTES_MAX, KeyKind, find_integer},
};
use grappa_io::{Error, Position, Result, container::ContainerFile};

use super::keys::{Id, StringHash};

/// Bytes per read of a sequential pass.
const READ_BYTES: u64 = 1 << 20;
/// Starts of blocks of strings per read of a sequential pass.
const READ_STARTS: usize = 8 << 10;

/// A dictionary file, and the keys of its ids.
#[derive(Debug)]
pub struct Dictionary {
    file: ContainerFile,
    meta: DictionaryMeta,
    pub hash: StringHash,
}

impl Dictionary {
    pub fn open(path: &Path, hash: StringHash) -> Result<Self> {
        let file = ContainerFile::open(path, FileKind::DICTIONARY)?;
        let meta = DictionaryMeta::decode(file.header()).map_err(Error::format(path))?;
        Ok(Self { file, meta, hash })
    }

    pub fn ids(&self) -> u64 {
        self.meta.keys
    }

    pub fn kind(&self) -> KeyKind {
        self.meta.kind
    }

    /// Passes the key and dense id of each id to `each`, ascending by dense id.
    pub fn for_each_key(&self, mut each: impl FnMut(u64, DenseId) -> Result<()>) -> Result<()> {
        match self.meta.kind {
            KeyKind::Integers => self.for_each_integer(|integer, id| each(Id::Integer(integer).key(&self.hash), id)),
            KeyKind::Strings => self.for_each_string(|string, id| each(self.hash.key(string), id)),
        }
    }

    fn for_each_integer(&self, mut each: impl FnMut(u64, DenseId) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; READ_BYTES.min(8 * self.ids()) as usize];
        let mut next = 0;
        while next < self.ids() {
            let bytes = READ_BYTES.min(8 * (self.ids() - next)) as usize;
            let piece = &mut buffer[..bytes];
            self.file.read_at(piece, 8 * next)?;
            for word in piece.as_chunks().0 {
                each(u64::from_le_bytes(*word), DenseId(next))?;
                next += 1;
            }
        }
        Ok(())
    }

    fn for_each_string(&self, mut each: impl FnMut(&[u8], DenseId) -> Result<()>) -> Result<()> {
        let (mut bytes, mut key, mut next) = (Vec::new(), Vec::new(), 0);
        for first in (0..self.blocks()).step_by(READ_STARTS) {
            let starts = self.starts(first..self.blocks().min(first + READ_STARTS as u64))?;
            let mut rest = &starts[..];
            while let [start, ends @ ..] = rest
                && !ends.is_empty()
            {
                // The blocks that fit a read, and at least one.
                let count = ends.partition_point(|&end| end - start <= READ_BYTES).max(1);
                bytes.resize((ends[count - 1] - start) as usize, 0);
                self.file.read_at(&mut bytes, *start)?;
                for block in rest[..=count].windows(2) {
                    let block_bytes = &bytes[(block[0] - start) as usize..(block[1] - start) as usize];
                    let mut keys = BlockKeys::new(block_bytes, self.file_offset(block[0]), &mut key);
                    for _ in 0..BLOCK_KEYS.min(self.ids() - next) {
                        each(keys.next_key().map_err(Error::format(self.file.path()))?, DenseId(next))?;
                        next += 1;
                    }
                }
                rest = &rest[count..];
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

    pub fn external(&self, id: DenseId) -> Result<String> {
        Ok(match self.meta.kind {
            KeyKind::Integers => self.integer(id)?.to_string(),
            KeyKind::Strings => String::from_utf8_lossy(&self.string(id)?).into_owned(),
        })
    }

    fn integer(&self, id: DenseId) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_at(&mut bytes, 8 * id.0)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn string(&self, id: DenseId) -> Result<Vec<u8>> {
        let (start, block) = self.block(id.0 / BLOCK_KEYS, usize::MAX)?;
        self.key_in(start, &block, id.0 % BLOCK_KEYS)
    }

    /// The dense id of an external id, if it is there.
    pub fn find(&self, id: Id<'_>) -> Result<Option<DenseId>> {
        match (self.meta.kind, id) {
            (KeyKind::Integers, Id::Integer(id)) => find_integer(self.ids(), id, |id| self.integer(id)),
            (KeyKind::Strings, Id::String(id)) => self.find_string(id),
            _ => Ok(None),
        }
    }

    /// The dense id of a string, if the string is there.
    ///
    /// A binary search over the first strings of blocks finds the block, which is then searched linearly.
    fn find_string(&self, id: &[u8]) -> Result<Option<DenseId>> {
        let (mut low, mut high) = (0, self.blocks());
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

    /// Number of blocks of strings.
    fn blocks(&self) -> u64 {
        self.ids().div_ceil(BLOCK_KEYS)
    }

    /// The starts of some blocks among the keys, and the end of the last one.
    fn starts(&self, blocks: Range<u64>) -> Result<Vec<u64>> {
        let is_last = blocks.end == self.blocks();
        let listed = blocks.end - blocks.start + u64::from(!is_last);
        let table = self.meta.table_offset() + 8 * blocks.start;
        let mut entries = vec![[0; 8]; listed as usize];
        self.file.read_at(entries.as_flattened_mut(), table)?;
        let mut starts: Vec<u64> = entries.into_iter().map(u64::from_le_bytes).collect();
        if is_last {
            starts.push(self.meta.key_bytes);
        }
        for (at, pair) in (0..).zip(starts.windows(2)) {
            if pair[0] > pair[1] || pair[1] > self.meta.key_bytes {
                let offset = Position::Offset(self.file_offset(table + 8 * at));
                let problem = format!(
                    "block {} of the dictionary is at {}..{}; the file is damaged",
                    blocks.start + at,
                    pair[0],
                    pair[1]
                );
                return Err(Error::input(self.file.path(), offset, problem));
            }
        }
        Ok(starts)
    }

    /// The start of a block among the keys, and its bytes, or the first `bytes_max` of them.
    fn block(&self, block: u64, bytes_max: usize) -> Result<(u64, Vec<u8>)> {
        let starts = self.starts(block..block + 1)?;
        let mut bytes = vec![0; ((starts[1] - starts[0]) as usize).min(bytes_max)];
        self.file.read_at(&mut bytes, starts[0])?;
        Ok((starts[0], bytes))
    }

    /// The offset in the file of a byte of the payload.
    fn file_offset(&self, payload: u64) -> u64 {
        self.file.header().payload_offset + payload
    }

    fn key_in(&self, start: u64, block: &[u8], index: u64) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        let mut keys = BlockKeys::new(block, self.file_offset(start), &mut key);
        for _ in 0..=index {
            keys.next_key().map_err(Error::format(self.file.path()))?;
        }
        Ok(key)
    }
}
