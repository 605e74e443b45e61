//! Evenly spread 64-bit keys of external ids, for tables and joins.
//!
//! The key of an integer is a bijection of it, so no two integers share a key. The key of a string is a hash. Among 2^32
//! strings, two share a hash with a probability of about one half, so shared hashes must be handled. Inserting all strings
//! of a dictionary in a [`KeyTable`](super::table::KeyTable) finds the shared hashes. A string with one of these gets its
//! key from a second hash.

use std::{collections::BTreeSet, fmt};

use grappa_formats::random;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// An external id.
#[derive(Debug, Clone, Copy)]
pub enum Id<'a> {
    /// An integer, dense or sparse.
    Integer(u64),
    /// A string.
    String(&'a [u8]),
}

impl Id<'_> {
    /// The key of the id, if the strings of its dictionary have keys from `hash`.
    #[inline]
    pub fn key(self, hash: &StringHash) -> u64 {
        match self {
            Self::Integer(id) => integer_key(id),
            Self::String(id) => hash.key(id),
        }
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(id) => write!(f, "{id}"),
            Self::String(id) => f.write_str(&String::from_utf8_lossy(id)),
        }
    }
}

/// The key of an integer: a bijection with evenly spread results.
#[inline]
pub fn integer_key(id: u64) -> u64 {
    random::hash(id)
}

/// The keys of the strings of one dictionary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StringHash {
    /// Number of bits of a hash that are used: 64, or fewer in tests that need shared hashes.
    bits: u32,
    /// First hashes that several strings share.
    shared: BTreeSet<u64>,
    /// Seed of the second hash.
    seed: u64,
}

impl Default for StringHash {
    fn default() -> Self {
        Self::with_bits(64)
    }
}

impl StringHash {
    /// Uses only the upper `bits` bits of hashes.
    pub fn with_bits(bits: u32) -> Self {
        Self { bits, shared: BTreeSet::new(), seed: 0 }
    }

    #[inline]
    pub fn key(&self, id: &[u8]) -> u64 {
        let first = self.cut(xxh3_64(id));
        match !self.shared.is_empty() && self.shared.contains(&first) {
            true => self.cut(xxh3_64_with_seed(id, self.seed)),
            false => first,
        }
    }

    /// Gives other keys to strings that share a key. All keys from the second hash change, because it gets a new seed: the
    /// strings may share a key from that hash.
    pub fn separate<'a>(&mut self, sharing: impl IntoIterator<Item = &'a [u8]>) {
        self.seed += 1;
        for id in sharing {
            self.shared.insert(self.cut(xxh3_64(id)));
        }
    }

    fn cut(&self, hash: u64) -> u64 {
        hash & u64::MAX << (64 - self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_that_share_a_hash_are_told_apart() {
        let mut hash = StringHash::with_bits(12);
        let ids: Vec<Vec<u8>> = (0..150).map(|i: u32| format!("id {i}").into_bytes()).collect();
        for round in 0.. {
            let keys: Vec<u64> = ids.iter().map(|id| hash.key(id)).collect();
            let sharing: Vec<&[u8]> = (0..ids.len())
                .filter(|&i| keys.iter().filter(|&&key| key == keys[i]).count() > 1)
                .map(|i| &*ids[i])
                .collect();
            if sharing.is_empty() {
                assert!(round > 0, "150 strings have 4096 hashes");
                break;
            }
            assert!(round < 100);
            hash.separate(sharing);
        }
    }

    #[test]
    fn integers_have_keys_of_their_own() {
        let mut keys: Vec<u64> = (0..100_000).chain(u64::MAX - 100_000..u64::MAX).map(integer_key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 200_000);
        let low = keys.iter().filter(|&&key| key < u64::MAX / 4).count();
        assert!((49_000..51_000).contains(&low), "{low} of 200000 keys in the first quarter");
    }
}
