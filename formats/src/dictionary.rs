//! The external ids of a graph, sorted: the rank of an id is its position.
//!
//! ```text
//! meta    offset  bytes  what
//!              0      4  kind of key: 0 integers, 1 strings
//!              4      4  zeros
//!              8      8  n: number of keys
//!             16      8  D: bytes of the keys
//!
//! payload of integers
//!            8*k      8  the key of rank k; D = 8 n
//!
//! payload of strings
//!              0      D  blocks of 16 keys (the last may have fewer)
//!              D         zeros up to T, the next multiple of 8
//!        T + 8*b      8  where block b starts, in bytes from the start of the payload; ceil(n / 16) of them
//! block                  its first key: length, bytes
//!                        each further key: length of the prefix it has in common with the key before it, length of
//!                        the rest, bytes of the rest
//! ```
//!
//! Keys ascend and are distinct; strings compare as bytes. Lengths are LEB128 varints: seven bits a byte, the lowest
//! first, the high bit set where more follow. The common prefix is as long as can be, which is what lets a search tell
//! the order of keys from the lengths of their prefixes, without putting the keys together.
//!
//! Readers hold nothing but slices, so that a mapping serves; a lookup among n strings touches about log2(n / 16)
//! blocks and scans one. Builders stream: they hold what was not taken yet, and about two bytes a block.
//!
//! Not for membership tests at high rates: a hash table in memory is faster where there is memory for it.

use std::{cmp::Ordering, convert::Infallible, ops::Range, result::Result as StdResult};

use crate::{
    FormatError, NODES_MAX, Result,
    bytes::{Fields, check_payload_length, check_payload_slice, u64_entry},
    container::Header,
};

/// Keys a block of strings has.
pub const BLOCK_KEYS: u64 = 16;

/// The most bytes a string may have.
pub const KEY_BYTES_MAX: usize = 0xffff;

/// What the keys of a dictionary are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Integers below 2^64.
    Integers,
    /// Byte strings.
    Strings,
}

/// The meta of the file `ids/dictionary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DictionaryMeta {
    /// What the keys are.
    pub kind: KeyKind,
    /// Number of keys, which is the number of nodes.
    pub keys: u64,
    /// Bytes of the keys, without the table of blocks.
    pub key_bytes: u64,
}

impl DictionaryMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = 24;

    /// The meta of the container file.
    pub fn encode(&self) -> Vec<u8> {
        let kind: u32 = match self.kind {
            KeyKind::Integers => 0,
            KeyKind::Strings => 1,
        };
        let mut meta = Vec::with_capacity(Self::BYTES);
        meta.extend_from_slice(&kind.to_le_bytes());
        meta.extend_from_slice(&0u32.to_le_bytes());
        meta.extend_from_slice(&self.keys.to_le_bytes());
        meta.extend_from_slice(&self.key_bytes.to_le_bytes());
        meta
    }

    /// Decodes and checks the meta, and that the payload is as long as it calls for.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::of(header, Self::BYTES)?;
        let kind = match fields.u32() {
            0 => KeyKind::Integers,
            1 => KeyKind::Strings,
            other => {
                return Err(FormatError::invalid(
                    64,
                    format!("there is no kind of dictionary {other}"),
                ));
            }
        };
        fields.zeros::<4>()?;
        let meta = Self {
            kind,
            keys: fields.node_count("keys")?,
            key_bytes: fields.u64(),
        };
        if kind == KeyKind::Integers && meta.key_bytes != 8 * meta.keys {
            return Err(FormatError::invalid(
                80,
                format!("{} integers do not have {} bytes", meta.keys, meta.key_bytes),
            ));
        }
        check_payload_length(header, meta.payload_bytes())?;
        Ok(meta)
    }

    fn blocks(&self) -> u64 {
        self.keys.div_ceil(BLOCK_KEYS)
    }

    /// Where the table of blocks starts, in bytes from the start of the payload.
    pub fn table_offset(&self) -> u64 {
        self.key_bytes.next_multiple_of(8)
    }

    fn payload_bytes(&self) -> Option<u64> {
        match self.kind {
            KeyKind::Integers => Some(8 * self.keys),
            KeyKind::Strings => self
                .key_bytes
                .checked_next_multiple_of(8)?
                .checked_add(8 * self.blocks()),
        }
    }
}

/// Encodes integers that come in ascending order.
#[derive(Debug, Default)]
pub struct IntegerDictionaryBuilder {
    keys: u64,
    last: u64,
    ready: Vec<u8>,
}

impl IntegerDictionaryBuilder {
    /// An empty dictionary.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a key.
    ///
    /// # Panics
    /// If it is not above the key before it, or there are 2^40 keys already.
    pub fn push(&mut self, key: u64) {
        assert!(self.keys == 0 || key > self.last, "key {key} after {}", self.last);
        assert!(self.keys < NODES_MAX, "more than 2^40 keys");
        self.keys += 1;
        self.last = key;
        self.ready.extend_from_slice(&key.to_le_bytes());
    }

    /// How many bytes of the payload are ready to be taken.
    pub fn ready_bytes(&self) -> usize {
        self.ready.len()
    }

    /// The next bytes of the payload, all that are ready.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ready)
    }

    /// The meta, and the rest of the payload.
    pub fn finish(self) -> (DictionaryMeta, Vec<u8>) {
        let meta = DictionaryMeta {
            kind: KeyKind::Integers,
            keys: self.keys,
            key_bytes: 8 * self.keys,
        };
        (meta, self.ready)
    }
}

/// Encodes byte strings that come in ascending order.
#[derive(Debug, Default)]
pub struct StringDictionaryBuilder {
    keys: u64,
    key_bytes: u64,
    last: Vec<u8>,
    ready: Vec<u8>,
    /// Where the open block starts.
    block_start: u64,
    /// Lengths of the blocks before it, as varints: two bytes a block, where their starts take eight.
    block_lengths: Vec<u8>,
}

impl StringDictionaryBuilder {
    /// An empty dictionary.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a key.
    ///
    /// # Panics
    /// If it is not above the key before it, or longer than [`KEY_BYTES_MAX`], or there are 2^40 keys already.
    pub fn push(&mut self, key: &[u8]) {
        assert!(
            self.keys == 0 || *key > *self.last,
            "key \"{}\" after \"{}\"",
            key.escape_ascii(),
            self.last.escape_ascii()
        );
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes", key.len());
        assert!(self.keys < NODES_MAX, "more than 2^40 keys");
        let before = self.ready.len();
        let shared = if self.keys.is_multiple_of(BLOCK_KEYS) {
            if self.keys > 0 {
                put_varint(self.key_bytes - self.block_start, &mut self.block_lengths);
            }
            self.block_start = self.key_bytes;
            0
        } else {
            let shared = common_prefix(key, &self.last);
            put_varint(shared as u64, &mut self.ready);
            shared
        };
        put_varint((key.len() - shared) as u64, &mut self.ready);
        self.ready.extend_from_slice(&key[shared..]);
        self.key_bytes += (self.ready.len() - before) as u64;
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.keys += 1;
    }

    /// How many bytes of the payload are ready to be taken.
    pub fn ready_bytes(&self) -> usize {
        self.ready.len()
    }

    /// The next bytes of the payload, all that are ready.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ready)
    }

    /// The meta, and the rest of the payload in pieces of at most about 64 KiB and what was ready.
    pub fn finish(self) -> (DictionaryMeta, StringDictionaryTail) {
        let meta = DictionaryMeta {
            kind: KeyKind::Strings,
            keys: self.keys,
            key_bytes: self.key_bytes,
        };
        let mut ready = self.ready;
        ready.resize(
            ready.len() + (self.key_bytes.next_multiple_of(8) - self.key_bytes) as usize,
            0,
        );
        let tail = StringDictionaryTail {
            ready,
            blocks: meta.blocks(),
            start: 0,
            block_lengths: self.block_lengths,
            at: 0,
        };
        (meta, tail)
    }
}

/// The end of a payload of strings: what was ready, and the table of blocks.
#[derive(Debug)]
pub struct StringDictionaryTail {
    ready: Vec<u8>,
    /// Entries of the table that are still to come.
    blocks: u64,
    /// The first of them.
    start: u64,
    block_lengths: Vec<u8>,
    at: usize,
}

impl Iterator for StringDictionaryTail {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut piece = std::mem::take(&mut self.ready);
        for _ in 0..self.blocks.min(8 << 10) {
            piece.extend_from_slice(&self.start.to_le_bytes());
            self.blocks -= 1;
            if self.blocks > 0 {
                let lengths = &self.block_lengths[self.at..];
                let (length, bytes) = take_varint(lengths).expect("the builder wrote a length for every other block");
                self.start += length;
                self.at += bytes;
            }
        }
        (!piece.is_empty()).then_some(piece)
    }
}

/// Sorted integers.
#[derive(Debug, Clone, Copy)]
pub struct IntegerDictionary<'a> {
    keys: &'a [[u8; 8]],
    payload_offset: u64,
}

impl<'a> IntegerDictionary<'a> {
    /// The keys in `payload`, which is that of the file with this header.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        expect_kind(header, KeyKind::Integers)?;
        Ok(Self {
            keys: payload.as_chunks().0,
            payload_offset: header.payload_offset,
        })
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key at `rank`.
    ///
    /// # Panics
    /// If there is no such rank.
    #[inline]
    pub fn get(&self, rank: u64) -> u64 {
        u64::from_le_bytes(self.keys[rank as usize])
    }

    /// The rank of `key`, if it is there.
    pub fn find(&self, key: u64) -> Option<u64> {
        let found = find_integer(self.len(), key, |rank| Ok::<_, Infallible>(self.get(rank)));
        found.unwrap_or_else(|never| match never {})
    }

    /// The keys of `ranks`, in order.
    ///
    /// # Panics
    /// If there are no such ranks.
    pub fn iter(&self, ranks: Range<u64>) -> impl Iterator<Item = u64> + use<'a> {
        self.keys[ranks.start as usize..ranks.end as usize]
            .iter()
            .map(|key| u64::from_le_bytes(*key))
    }

    /// Checks that the keys ascend.
    pub fn check(&self) -> Result<()> {
        self.check_ranks(0..self.len())
    }

    /// Checks that the keys of `ranks` ascend, and are above the key before them: one part of [`IntegerDictionary::check`].
    ///
    /// # Panics
    /// If there are no such ranks.
    pub fn check_ranks(&self, ranks: Range<u64>) -> Result<()> {
        let first = ranks.start.saturating_sub(1);
        let mut keys = self.iter(first..ranks.end);
        let Some(mut last) = keys.next() else { return Ok(()) };
        for (rank, key) in (first + 1..).zip(keys) {
            if key <= last {
                return Err(FormatError::invalid(
                    self.payload_offset + 8 * rank,
                    format!("the dictionary is not sorted: {key} at rank {rank} comes after {last}"),
                ));
            }
            last = key;
        }
        Ok(())
    }
}

/// The rank of `key` among `keys` sorted keys, if it is there; `get` reads the key at a rank.
///
/// Interpolation, which finds keys of an even spread in a few steps, takes turns with bisection, which bounds the
/// steps for any spread at 2 log2(n).
///
/// # Errors
/// Those of `get`.
pub fn find_integer<E>(
    keys: u64,
    key: u64,
    mut get: impl FnMut(u64) -> StdResult<u64, E>,
) -> StdResult<Option<u64>, E> {
    if keys == 0 {
        return Ok(None);
    }
    let (mut low, mut high) = (0, keys - 1);
    let (mut low_key, mut high_key) = (get(low)?, get(high)?);
    let mut interpolate = true;
    // The key is among `low..=high`, if anywhere.
    while low_key < key && key < high_key && high - low > 1 {
        let middle = if interpolate {
            let share = u128::from(key - low_key) * u128::from(high - low) / u128::from(high_key - low_key);
            low + (share as u64).clamp(1, high - low - 1)
        } else {
            low + (high - low) / 2
        };
        interpolate = !interpolate;
        let middle_key = get(middle)?;
        if middle_key <= key {
            (low, low_key) = (middle, middle_key);
        } else {
            (high, high_key) = (middle, middle_key);
        }
    }
    Ok(if low_key == key {
        Some(low)
    } else if high_key == key {
        Some(high)
    } else {
        None
    })
}

/// Sorted byte strings.
#[derive(Debug, Clone, Copy)]
pub struct StringDictionary<'a> {
    keys: u64,
    /// The blocks, one after another.
    blocks: &'a [u8],
    /// Where each block starts.
    table: &'a [u8],
    /// The zeros between blocks and table.
    padding: &'a [u8],
    payload_offset: u64,
}

impl<'a> StringDictionary<'a> {
    /// The keys in `payload`, which is that of the file with this header.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        let meta = expect_kind(header, KeyKind::Strings)?;
        // The meta was compared with the length of the payload, so these are inside it.
        let (blocks, rest) = payload.split_at(meta.key_bytes as usize);
        let (padding, table) = rest.split_at(rest.len() - 8 * meta.blocks() as usize);
        Ok(Self {
            keys: meta.keys,
            blocks,
            table,
            padding,
            payload_offset: header.payload_offset,
        })
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.keys
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Puts the key at `rank` in place of what `key` holds.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn get(&self, rank: u64, key: &mut Vec<u8>) -> Result<()> {
        self.get_checked(rank, key, |_| Ok(()))
    }

    /// As [`StringDictionary::get`], and asks `check` before it touches bytes of the payload.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn get_checked(&self, rank: u64, key: &mut Vec<u8>, check: impl Fn(Range<u64>) -> Result<()>) -> Result<()> {
        assert!(rank < self.keys, "rank {rank} of {}", self.keys);
        let mut entries = self.block(rank / BLOCK_KEYS, check)?;
        key.clear();
        key.extend_from_slice(entries.first()?);
        for _ in 0..rank % BLOCK_KEYS {
            entries.next(key.len())?.put_on(key);
        }
        Ok(())
    }

    /// The rank of `key`, if it is there.
    pub fn find(&self, key: &[u8]) -> Result<Option<u64>> {
        self.find_checked(key, |_| Ok(()))
    }

    /// As [`StringDictionary::find`], and asks `check` before it touches bytes of the payload.
    pub fn find_checked(&self, key: &[u8], check: impl Fn(Range<u64>) -> Result<()>) -> Result<Option<u64>> {
        // The last block whose first key is not above the key.
        let (mut low, mut high) = (0, self.keys.div_ceil(BLOCK_KEYS));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.block(middle, &check)?.first()?.cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Some(middle * BLOCK_KEYS)),
                Ordering::Greater => high = middle,
            }
        }
        let Some(block) = low.checked_sub(1) else {
            return Ok(None);
        };
        let first = block * BLOCK_KEYS;
        let mut entries = self.block(block, check)?;
        // `matched`: how much of the key the last entry, which is below it, has in common with it. An entry that shares
        // more than that with the last one differs from the key where the last one does, and is below it too. One that
        // shares less is above the last one where that one still agreed with the key, and so above the key.
        let first_key = entries.first()?;
        let mut matched = common_prefix(first_key, key);
        let mut length = first_key.len();
        for rank in first + 1..self.keys.min(first + BLOCK_KEYS) {
            let entry = entries.next(length)?;
            length = entry.shared + entry.rest.len();
            match entry.shared.cmp(&matched) {
                Ordering::Greater => continue,
                Ordering::Less => return Ok(None),
                Ordering::Equal => {}
            }
            match entry.rest.cmp(&key[matched..]) {
                Ordering::Less => matched += common_prefix(entry.rest, &key[matched..]),
                Ordering::Equal => return Ok(Some(rank)),
                Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The keys from `rank` on, in order.
    ///
    /// # Panics
    /// If `rank` is above the number of keys.
    pub fn iter_from(&self, rank: u64) -> Result<StringKeys<'a>> {
        assert!(rank <= self.keys, "rank {rank} of {}", self.keys);
        let mut keys = StringKeys {
            dictionary: *self,
            rank: rank - rank % BLOCK_KEYS,
            entries: Entries::EMPTY,
            key: Vec::new(),
        };
        while keys.rank < rank {
            keys.next_key()?;
        }
        Ok(keys)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.keys.div_ceil(BLOCK_KEYS)
    }

    /// Checks everything: blocks follow each other without a gap, keys ascend, prefixes are as long as can be.
    pub fn check(&self) -> Result<()> {
        self.check_blocks(0..self.blocks())
    }

    /// Checks some blocks, the first key against the key before them, and what follows them: one part of
    /// [`StringDictionary::check`].
    ///
    /// # Panics
    /// If there are no such blocks.
    pub fn check_blocks(&self, blocks: Range<u64>) -> Result<()> {
        if blocks.is_empty() && blocks.start > 0 {
            return Ok(());
        }
        let mut key: Vec<u8> = Vec::new();
        let mut start = 0;
        if blocks.start > 0 {
            self.get(blocks.start * BLOCK_KEYS - 1, &mut key)?;
            start = self.block_start(blocks.start);
        }
        let Some(rest) = self.blocks.get(start as usize..) else {
            return Err(self.misplaced(blocks.start, self.blocks.len() as u64));
        };
        let mut entries = Entries {
            rest,
            offset: self.payload_offset + start,
        };
        for rank in blocks.start * BLOCK_KEYS..self.keys.min(blocks.end * BLOCK_KEYS) {
            let at = entries.offset;
            let unsorted = || {
                FormatError::invalid(
                    at,
                    format!("the dictionary is not sorted at rank {rank}, or repeats a key"),
                )
            };
            if rank.is_multiple_of(BLOCK_KEYS) {
                self.expect_block(rank / BLOCK_KEYS, &entries)?;
                let first_key = entries.first()?;
                if rank > 0 && *first_key <= *key {
                    return Err(unsorted());
                }
                key.clear();
                key.extend_from_slice(first_key);
            } else {
                let entry = entries.next(key.len())?;
                // The key goes on with a byte that is above the one that the last key, if it does not end here, goes
                // on with.
                if entry.rest.first() <= key.get(entry.shared) {
                    return Err(unsorted());
                }
                entry.put_on(&mut key);
            }
        }
        if blocks.end < self.blocks() {
            return self.expect_block(blocks.end, &entries);
        }
        if !entries.rest.is_empty() || self.padding.iter().any(|&byte| byte != 0) {
            return Err(FormatError::invalid(
                entries.offset,
                "bytes of no meaning after the last key of the dictionary",
            ));
        }
        Ok(())
    }

    /// Fails unless a block starts where the entries do.
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
            format!(
                "block {block} starts at {expected}, but the dictionary's table says {}",
                self.block_start(block)
            ),
        )
    }

    fn block_start(&self, block: u64) -> u64 {
        u64_entry(self.table, block as usize)
    }

    fn block(&self, block: u64, check: impl Fn(Range<u64>) -> Result<()>) -> Result<Entries<'a>> {
        let entries = self.table_entry_offset(block) - self.payload_offset;
        check(entries..entries + 16.min(self.payload_bytes() - entries))?;
        let start = u64_entry(self.table, block as usize);
        let end = match block + 1 {
            next if next < self.keys.div_ceil(BLOCK_KEYS) => u64_entry(self.table, next as usize),
            _ => self.blocks.len() as u64,
        };
        check(start..end)?;
        match self.blocks.get(start as usize..end as usize) {
            Some(rest) => Ok(Entries {
                rest,
                offset: self.payload_offset + start,
            }),
            None => Err(FormatError::invalid(
                self.table_entry_offset(block),
                format!(
                    "block {block} of the dictionary is at {start}..{end} of {} bytes",
                    self.blocks.len()
                ),
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

/// Puts key number `index` of a block in place of what `key` holds. `bytes` are the block's, from `offset` of the file
/// on. For readers that hold one block at a time.
pub fn block_key(bytes: &[u8], offset: u64, index: u64, key: &mut Vec<u8>) -> Result<()> {
    let mut entries = Entries { rest: bytes, offset };
    key.clear();
    key.extend_from_slice(entries.first()?);
    for _ in 0..index {
        entries.next(key.len())?.put_on(key);
    }
    Ok(())
}

/// Goes through strings in order.
///
/// It is no `Iterator`: the key it lends lives until the next.
#[derive(Debug)]
pub struct StringKeys<'a> {
    dictionary: StringDictionary<'a>,
    rank: u64,
    entries: Entries<'a>,
    key: Vec<u8>,
}

impl StringKeys<'_> {
    /// The next key, or `None` after the last one.
    pub fn next_key(&mut self) -> Result<Option<&[u8]>> {
        if self.rank == self.dictionary.keys {
            return Ok(None);
        }
        if self.rank.is_multiple_of(BLOCK_KEYS) {
            self.entries = self.dictionary.block(self.rank / BLOCK_KEYS, |_| Ok(()))?;
            self.key.clear();
            self.key.extend_from_slice(self.entries.first()?);
        } else {
            self.entries.next(self.key.len())?.put_on(&mut self.key);
        }
        self.rank += 1;
        Ok(Some(&self.key))
    }
}

/// What is left of a block.
#[derive(Debug, Clone, Copy)]
struct Entries<'a> {
    rest: &'a [u8],
    /// Where that is, in bytes from the start of the file.
    offset: u64,
}

/// A key that is not the first of its block.
struct Entry<'a> {
    /// Length of the prefix it has in common with the key before it.
    shared: usize,
    /// What follows that prefix.
    rest: &'a [u8],
}

impl Entry<'_> {
    /// Turns the key before this one into this one.
    fn put_on(&self, key: &mut Vec<u8>) {
        key.truncate(self.shared);
        key.extend_from_slice(self.rest);
    }
}

impl<'a> Entries<'a> {
    const EMPTY: Self = Self { rest: &[], offset: 0 };

    /// The first key of a block.
    #[inline]
    fn first(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.bytes(length)
    }

    /// The next key of a block, after one of `last` bytes.
    #[inline]
    fn next(&mut self, last: usize) -> Result<Entry<'a>> {
        let at = self.offset;
        let (shared, length) = (self.length()?, self.length()?);
        if shared > last || shared + length > KEY_BYTES_MAX {
            return Err(FormatError::invalid(
                at,
                format!("a key of {shared} + {length} bytes after one of {last} in the dictionary"),
            ));
        }
        Ok(Entry {
            shared,
            rest: self.bytes(length)?,
        })
    }

    fn length(&mut self) -> Result<usize> {
        match take_varint(self.rest) {
            Some((length, bytes)) if length <= KEY_BYTES_MAX as u64 => {
                self.rest = &self.rest[bytes..];
                self.offset += bytes as u64;
                Ok(length as usize)
            }
            _ => Err(FormatError::invalid(
                self.offset,
                "a block of the dictionary ends early or holds a bad length",
            )),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(length) {
            Some((bytes, rest)) => {
                self.rest = rest;
                self.offset += length as u64;
                Ok(bytes)
            }
            None => Err(FormatError::invalid(
                self.offset,
                format!(
                    "a key of {length} bytes where a block of the dictionary has {} left",
                    self.rest.len()
                ),
            )),
        }
    }
}

fn expect_kind(header: &Header, kind: KeyKind) -> Result<DictionaryMeta> {
    let meta = DictionaryMeta::decode(header)?;
    if meta.kind != kind {
        return Err(FormatError::invalid(
            64,
            format!("a dictionary of {:?} where one of {kind:?} should be", meta.kind),
        ));
    }
    Ok(meta)
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Appends `value`, seven bits a byte.
fn put_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The varint at the start of `bytes` and its length, if there is one, it is no longer than it must be, and it is below
/// 2^63.
#[inline]
fn take_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (byte != 0 || i == 0).then_some((value, i + 1));
        }
    }
    None
}
