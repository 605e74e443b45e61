//! The dictionary of external ids: sorted keys, where the position of a key is its dense id.
//!
//! ```text
//! meta    offset  bytes  content
//!              0      4  kind of key: 0 integers, 1 strings
//!              4      4  zeros
//!              8      8  n: number of keys
//!             16      8  D: bytes of the keys
//!
//! payload of integers
//!            8*k      8  the key of dense id k; D = 8 n
//!
//! payload of strings
//!              0      D  blocks of 16 keys (the last may have fewer)
//!              D         zeros up to T, the next multiple of 8
//!        T + 8*b      8  start of block b, in bytes from the start of the payload; ceil(n / 16) entries
//! block                  its first key: length, bytes
//!                        each further key: length of the prefix shared with the previous key, length of the rest,
//!                        bytes of the rest
//! ```
//!
//! Keys ascend and are distinct. Strings compare as bytes. Lengths are LEB128 varints: seven bits per byte, lowest
//! first, with the high bit set if another byte follows. The shared prefix is always the longest possible one. A search
//! can therefore order keys by the lengths of their prefixes, without rebuilding the keys ([`StringDictionary::find`]).
//!
//! Readers hold only slices, so they work on a mapped file. A lookup among n strings touches about log2(n / 16) blocks
//! and scans one. Builders stream: they hold the bytes that the caller has not taken yet, and about two bytes per
//! block.
//!
//! Dictionaries are not meant for high rates of membership tests. A hash table is faster if it fits in memory.

mod block;
mod integers;
mod meta;
mod string_builder;
mod strings;

pub use self::{
    block::BlockKeys,
    integers::{IntegerDictionary, IntegerDictionaryBuilder, find_integer},
    meta::{DictionaryMeta, KeyKind},
    string_builder::{StringDictionaryBuilder, StringDictionaryTail},
    strings::StringDictionary,
};

/// Keys per block of strings.
pub const BLOCK_KEYS: u64 = 16;

/// The maximum length of a string key in bytes.
pub const KEY_BYTES_MAX: usize = 0xffff;
