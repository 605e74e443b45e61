//! Blocks of front-coded strings: the entries of a block, read one after another.

use super::KEY_BYTES_MAX;
use crate::{FormatError, Result, error::invalid_if, varint::take_varint};

/// The keys of a block, one after another. For readers that hold some blocks at a time.
///
/// This is not an `Iterator`, because each key is only valid until the next call.
#[derive(Debug)]
pub struct BlockKeys<'a> {
    entries: Entries<'a>,
    /// The last key, in the caller's buffer.
    key: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> BlockKeys<'a> {
    /// The keys of the block `bytes`, which starts at byte `offset` of the file. They are decoded into `key`.
    pub fn new(bytes: &'a [u8], offset: u64, key: &'a mut Vec<u8>) -> Self {
        Self { entries: Entries { rest: bytes, offset }, key, is_first: true }
    }

    /// The next key. After the last one, the bytes that follow the block are an error.
    #[inline]
    pub fn next_key(&mut self) -> Result<&[u8]> {
        if std::mem::take(&mut self.is_first) {
            self.key.clear();
            self.key.extend_from_slice(self.entries.first()?);
        } else {
            self.entries.next(self.key.len())?.apply_to(self.key);
        }
        Ok(self.key)
    }
}

/// The entries of a block that have not been read yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries<'a> {
    pub rest: &'a [u8],
    /// Position of `rest`, in bytes from the start of the file.
    pub offset: u64,
}

/// A key that is not the first of its block.
pub(super) struct Entry<'a> {
    /// Length of the prefix shared with the previous key.
    pub shared: usize,
    /// The bytes after that prefix.
    pub rest: &'a [u8],
}

impl Entry<'_> {
    /// Turns the previous key into this one.
    pub(super) fn apply_to(&self, key: &mut Vec<u8>) {
        key.truncate(self.shared);
        key.extend_from_slice(self.rest);
    }
}

impl<'a> Entries<'a> {
    /// The first key of a block.
    #[inline]
    pub(super) fn first(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.bytes(length)
    }

    /// The next key of a block. `last` is the length of the previous key in bytes.
    #[inline]
    pub(super) fn next(&mut self, last: usize) -> Result<Entry<'a>> {
        let at = self.offset;
        let (shared, length) = (self.length()?, self.length()?);
        invalid_if!(
            shared > last || shared + length > KEY_BYTES_MAX,
            at,
            "a key of {shared} + {length} bytes after one of {last} in the dictionary"
        );
        Ok(Entry { shared, rest: self.bytes(length)? })
    }

    fn length(&mut self) -> Result<usize> {
        match take_varint(self.rest) {
            Some((length, bytes)) if length <= KEY_BYTES_MAX as u64 => {
                self.rest = &self.rest[bytes..];
                self.offset += bytes as u64;
                Ok(length as usize)
            }
            _ => Err(FormatError::invalid(self.offset, "a block of the dictionary ends early or holds a bad length")),
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
                format!("a key of {length} bytes where a block of the dictionary has {} left", self.rest.len()),
            )),
        }
    }
}

/// Length of the longest common prefix.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
