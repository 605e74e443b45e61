//! External ids of any kind as keys of 64 bits, spread evenly, for tables and joins.
//!
//! Integers are scrambled by a bijection, so no two share a key. Strings are hashed. Two of 2^32 strings share a hash
//! about every other time, so it must not be assumed that none do: the hashes that several strings of a dictionary have
//! are known (whoever enters them all in a [`KeyTable`](super::table::KeyTable) meets them), and a string with one of
//! these gets a key from another hash.

use std::collections::BTreeSet;

use grappa_formats::random;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The key of an integer: a bijection with evenly spread results.
#[inline]
pub fn integer_key(id: u64) -> u64 {
    random::hash(id)
}

/// How strings become keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StringHash {
    /// Bits that tell hashes apart: 64, or fewer where a test wants strings to collide.
    bits: u32,
    /// First hashes that several strings have.
    shared: BTreeSet<u64>,
    /// Selects the second hash.
    seed: u64,
}

impl Default for StringHash {
    fn default() -> Self {
        Self::with_bits(64)
    }
}

impl StringHash {
    /// Hashes of which only the upper `bits` count.
    pub fn with_bits(bits: u32) -> Self {
        Self {
            bits,
            shared: BTreeSet::new(),
            seed: 0,
        }
    }

    /// The key of a string.
    #[inline]
    pub fn key(&self, id: &[u8]) -> u64 {
        let first = self.first(id);
        if self.is_shared(first) {
            return self.cut(xxh3_64_with_seed(id, self.seed));
        }
        first
    }

    /// The first hash of a string.
    #[inline]
    pub fn first(&self, id: &[u8]) -> u64 {
        self.cut(xxh3_64(id))
    }

    /// Whether a string with this first hash gets another key.
    #[inline]
    pub fn is_shared(&self, first: u64) -> bool {
        !self.shared.is_empty() && self.shared.contains(&first)
    }

    /// Gives strings whose keys are alike other keys, and those that had other keys already yet others.
    pub fn separate<'a>(&mut self, alike: impl IntoIterator<Item = &'a [u8]>) {
        self.seed += 1;
        for id in alike {
            self.shared.insert(self.first(id));
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
            let alike: Vec<&[u8]> = (0..ids.len())
                .filter(|&i| keys.iter().filter(|&&key| key == keys[i]).count() > 1)
                .map(|i| &*ids[i])
                .collect();
            if alike.is_empty() {
                assert!(round > 0, "150 strings have 4096 hashes");
                break;
            }
            assert!(round < 100);
            hash.separate(alike);
        }
    }

    #[test]
    fn integers_have_keys_of_their_own() {
        let mut keys: Vec<u64> = (0..100_000)
            .chain(u64::MAX - 100_000..u64::MAX)
            .map(integer_key)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 200_000);
        let low = keys.iter().filter(|&&key| key < u64::MAX / 4).count();
        assert!(
            (49_000..51_000).contains(&low),
            "{low} of 200000 keys in the first quarter"
        );
    }
}
