//! Building dictionaries of strings.

use super::{
    BLOCK_KEYS, KEY_BYTES_MAX,
    block::common_prefix,
    meta::{DictionaryMeta, KeyKind},
};
use crate::{
    NODES_MAX,
    varint::{put_varint, take_varint},
};

/// Encodes byte strings that arrive in ascending order.
#[derive(Debug, Default)]
pub struct StringDictionaryBuilder {
    keys: u64,
    key_bytes: u64,
    last: Vec<u8>,
    /// The bytes of the payload that are ready. The caller may take them at any time.
    pub ready: Vec<u8>,
    /// Start of the open block in the payload.
    block_start: u64,
    /// Lengths of the blocks before it, as varints. They take about two bytes per block; starts would take eight.
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
    /// If it is not above the previous key, is longer than [`KEY_BYTES_MAX`], or there are already 2^40 keys.
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

    /// Ends the dictionary. Returns its meta and the rest of the payload, in pieces of about 64 KiB.
    pub fn finish(self) -> (DictionaryMeta, StringDictionaryTail) {
        let meta = DictionaryMeta { kind: KeyKind::Strings, keys: self.keys, key_bytes: self.key_bytes };
        let mut ready = self.ready;
        ready.resize(ready.len() + (self.key_bytes.next_multiple_of(8) - self.key_bytes) as usize, 0);
        let tail =
            StringDictionaryTail { ready, blocks: meta.blocks(), start: 0, block_lengths: self.block_lengths, at: 0 };
        (meta, tail)
    }
}

/// The end of a payload of strings, in pieces: the bytes that were ready, then the table of block starts.
#[derive(Debug)]
pub struct StringDictionaryTail {
    ready: Vec<u8>,
    /// Remaining entries of the table.
    blocks: u64,
    /// The next entry.
    start: u64,
    /// Lengths of the blocks, as varints, read up to byte `at`.
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
