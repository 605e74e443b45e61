//! Reading dictionaries of strings.

use std::{cmp::Ordering, ops::Range};

use super::{
    BLOCK_KEYS,
    block::{BlockKeys, Entries, common_prefix},
    meta::{KeyKind, expect_kind},
};
use crate::{
    DenseId, FormatError, Result,
    bytes::{check_payload_slice, u64_entry},
    container::Header,
    error::invalid_if,
};

/// Reader of a dictionary of byte strings.
///
/// ```
/// use grappa_formats::{
///     DenseId,
///     container::{FileKind, decode_file, encode_file},
///     dictionary::{StringDictionary, StringDictionaryBuilder},
/// };
///
/// let mut builder = StringDictionaryBuilder::new();
/// for key in ["ada", "bob", "eve"] {
///     builder.push(key.as_bytes()); // in ascending order
/// }
/// let (meta, tail) = builder.finish();
/// let payload: Vec<u8> = tail.flatten().collect();
/// let (file, _) = encode_file(FileKind::DICTIONARY, meta.encode(), &payload);
///
/// let (header, payload) = decode_file(&file, FileKind::DICTIONARY)?;
/// let dictionary = StringDictionary::new(&header, payload)?;
/// let mut key = Vec::new();
/// dictionary.get(DenseId(1), &mut key, |_| Ok(()))?;
/// assert_eq!(key, b"bob");
/// assert_eq!(dictionary.find(b"eve", |_| Ok(()))?, Some(DenseId(2)));
/// assert_eq!(dictionary.find(b"dan", |_| Ok(()))?, None);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct StringDictionary<'a> {
    /// Number of keys.
    pub keys: u64,
    /// All blocks.
    blocks: &'a [u8],
    /// The start of each block, 8 bytes each.
    table: &'a [u8],
    /// Zeros between blocks and table.
    padding: &'a [u8],
    payload_offset: u64,
}

impl<'a> StringDictionary<'a> {
    /// Reads `payload`, the payload of the file with this header. Checks the meta, not the keys.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        let meta = expect_kind(header, KeyKind::Strings)?;
        // The meta was checked against the length of the payload, so both splits are inside it.
        let (blocks, rest) = payload.split_at(meta.key_bytes as usize);
        let (padding, table) = rest.split_at(rest.len() - 8 * meta.blocks() as usize);
        Ok(Self { keys: meta.keys, blocks, table, padding, payload_offset: header.payload_offset })
    }

    /// Replaces `key` by the external id of a dense id. Calls `check` with each range of the payload before reading it.
    ///
    /// # Panics
    /// If the id is not below the number of keys.
    pub fn get(&self, id: DenseId, key: &mut Vec<u8>, check: impl Fn(Range<u64>) -> Result<()>) -> Result<()> {
        assert!(id.0 < self.keys, "dense id {id} of {}", self.keys);
        let Entries { rest, offset } = self.block(id.0 / BLOCK_KEYS, check)?;
        let mut keys = BlockKeys::new(rest, offset, key);
        for _ in 0..=id.0 % BLOCK_KEYS {
            keys.next_key()?;
        }
        Ok(())
    }

    /// The dense id of the external id `key`, if it is in the dictionary. Calls `check` with each range of the payload
    /// before reading it.
    ///
    /// Costs one access to the table and one to the blocks for each step of a bisection over blocks, then a scan of one
    /// block.
    pub fn find(&self, key: &[u8], check: impl Fn(Range<u64>) -> Result<()>) -> Result<Option<DenseId>> {
        // Find the last block whose first key is not above the wanted key.
        let (mut low, mut high) = (0, self.blocks());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.block(middle, &check)?.first()?.cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Some(DenseId(middle * BLOCK_KEYS))),
                Ordering::Greater => high = middle,
            }
        }
        let Some(block) = low.checked_sub(1) else {
            return Ok(None);
        };
        let first = block * BLOCK_KEYS;
        let mut entries = self.block(block, check)?;
        // Scan the block without rebuilding its keys. Invariant: the last entry is below the wanted key, and they have
        // the first `matched` bytes in common. `shared` is what the next entry has in common with the last entry.
        //   shared > matched: the entry differs from the wanted key where the last one does, so it is below it too.
        //   shared < matched: the entry rises above the last one inside the matched bytes, so it is above the wanted
        //   key. shared = matched: the rest of the entry decides.
        let first_key = entries.first()?;
        let mut matched = common_prefix(first_key, key);
        let mut length = first_key.len();
        for id in first + 1..self.keys.min(first + BLOCK_KEYS) {
            let entry = entries.next(length)?;
            length = entry.shared + entry.rest.len();
            match entry.shared.cmp(&matched) {
                Ordering::Greater => continue,
                Ordering::Less => return Ok(None),
                Ordering::Equal => {}
            }
            match entry.rest.cmp(&key[matched..]) {
                Ordering::Less => matched += common_prefix(entry.rest, &key[matched..]),
                Ordering::Equal => return Ok(Some(DenseId(id))),
                Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.keys.div_ceil(BLOCK_KEYS)
    }

    /// Checks a range of blocks, its first key against the key before it, and the start of the block after it: blocks
    /// follow each other without a gap, keys ascend, shared prefixes are the longest possible. A check of all blocks, in
    /// parts or at once, checks everything.
    ///
    /// # Panics
    /// If the range ends beyond the number of blocks.
    pub fn check(&self, blocks: Range<u64>) -> Result<()> {
        if blocks.is_empty() && blocks.start > 0 {
            return Ok(());
        }
        let mut key: Vec<u8> = Vec::new();
        let mut start = 0;
        if blocks.start > 0 {
            self.get(DenseId(blocks.start * BLOCK_KEYS - 1), &mut key, |_| Ok(()))?;
            start = self.block_start(blocks.start);
        }
        let Some(rest) = self.blocks.get(start as usize..) else {
            return Err(self.misplaced(blocks.start, self.blocks.len() as u64));
        };
        let mut entries = Entries { rest, offset: self.payload_offset + start };
        for id in blocks.start * BLOCK_KEYS..self.keys.min(blocks.end * BLOCK_KEYS) {
            let at = entries.offset;
            let ascends = if id.is_multiple_of(BLOCK_KEYS) {
                self.expect_block(id / BLOCK_KEYS, &entries)?;
                let first_key = entries.first()?;
                let ascends = id == 0 || *first_key > *key;
                key.clear();
                key.extend_from_slice(first_key);
                ascends
            } else {
                let entry = entries.next(key.len())?;
                // After the shared prefix, the key must continue with a greater byte than the last key, or the last key
                // must end there. This also proves that the prefix is the longest possible one.
                let ascends = entry.rest.first() > key.get(entry.shared);
                entry.apply_to(&mut key);
                ascends
            };
            invalid_if!(!ascends, at, "the dictionary is not sorted at dense id {id}, or repeats a key");
        }
        if blocks.end < self.blocks() {
            return self.expect_block(blocks.end, &entries);
        }
        invalid_if!(
            !entries.rest.is_empty() || self.padding.iter().any(|&byte| byte != 0),
            entries.offset,
            "bytes of no meaning after the last key of the dictionary"
        );
        Ok(())
    }

    /// Fails unless the table says that `block` starts where `entries` do.
    fn expect_block(&self, block: u64, entries: &Entries<'_>) -> Result<()> {
        let expected = entries.offset - self.payload_offset;
        if self.block_start(block) != expected {
            return Err(self.misplaced(block, expected));
        }
        Ok(())
    }

    #[cold]
    fn misplaced(&self, block: u64, expected: u64) -> FormatError {
        FormatError::invalid(
            self.table_entry_offset(block),
            format!("block {block} starts at {expected}, but the dictionary's table says {}", self.block_start(block)),
        )
    }

    fn block_start(&self, block: u64) -> u64 {
        u64_entry(self.table, block as usize)
    }

    /// The entries of a block. Calls `check` with each range of the payload before reading it.
    fn block(&self, block: u64, check: impl Fn(Range<u64>) -> Result<()>) -> Result<Entries<'a>> {
        let entries = self.table_entry_offset(block) - self.payload_offset;
        check(entries..entries + 16.min(self.payload_bytes() - entries))?;
        let start = u64_entry(self.table, block as usize);
        let end = match block + 1 {
            next if next < self.blocks() => u64_entry(self.table, next as usize),
            _ => self.blocks.len() as u64,
        };
        check(start..end)?;
        match self.blocks.get(start as usize..end as usize) {
            Some(rest) => Ok(Entries { rest, offset: self.payload_offset + start }),
            None => Err(FormatError::invalid(
                self.table_entry_offset(block),
                format!("block {block} of the dictionary is at {start}..{end} of {} bytes", self.blocks.len()),
            )),
        }
    }

    fn payload_bytes(&self) -> u64 {
        (self.blocks.len() + self.padding.len() + self.table.len()) as u64
    }

    fn table_entry_offset(&self, block: u64) -> u64 {
        self.payload_offset + (self.blocks.len() + self.padding.len()) as u64 + 8 * block
    }
}
