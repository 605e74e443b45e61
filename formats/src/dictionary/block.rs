//! Blocks of front-coded strings: the entries of a block, read one after another.

use super::{KEY_BYTES_MAX, varint::take_varint};
use crate::{FormatError, Result};

/// Replaces `key` by key `index` of a block. `bytes` are the block's, and start at byte `offset` of the file.
///
/// For readers that hold one block at a time.
pub fn block_key(bytes: &[u8], offset: u64, index: u64, key: &mut Vec<u8>) -> Result<()> {
    let mut entries = Entries { rest: bytes, offset };
    key.clear();
    key.extend_from_slice(entries.first()?);
    for _ in 0..index {
        entries.next(key.len())?.apply_to(key);
    }
    Ok(())
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
    pub(super) const EMPTY: Self = Self { rest: &[], offset: 0 };

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

/// Length of the longest common prefix.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
