//! A table in memory from keys of 64 bits to ranks.
//!
//! Open addressing over keys that are spread evenly already ([`super::keys`]): the place of a key is its share of the
//! number of slots, and a taken slot sends it to the next. Keys and ranks lie apart, 13 bytes a slot and 4 slots for
//! 3 keys, so a rank costs [`BYTES_PER_KEY`].
//!
//! A lookup is one or two cache misses. What makes many of them fast is that they overlap: a batch is looked at twice,
//! first touching each key's slots, which the processor does for many keys at once, then searching what is cached by
//! then. Ten nanoseconds a key where a lone lookup waits a hundred.

use grappa_formats::order_table::ENTRY_BYTES;

/// Memory for each key, in bytes and rounded up.
pub const BYTES_PER_KEY: u64 = 18;

/// Lookups that overlap.
const BATCH: usize = 32;

/// A table of keys and their ranks.
#[derive(Debug)]
pub struct RankTable {
    /// The key in each slot; 0 where there is none.
    keys: Vec<u64>,
    ranks: Vec<[u8; ENTRY_BYTES]>,
    /// The rank of key 0.
    zero: Option<u64>,
}

impl RankTable {
    /// A table with room for `keys` keys.
    pub fn with_capacity(keys: u64) -> Self {
        let slots = (keys + keys / 3 + 8) as usize;
        Self {
            keys: vec![0; slots],
            ranks: vec![[0; ENTRY_BYTES]; slots],
            zero: None,
        }
    }

    /// Enters a key. If it is there already, nothing changes, and its rank is returned.
    ///
    /// # Panics
    /// If there are more keys than there was to be room for.
    pub fn insert(&mut self, key: u64, rank: u64) -> Option<u64> {
        if key == 0 {
            let before = self.zero;
            self.zero = before.or(Some(rank));
            return before;
        }
        let mut slot = self.place(key);
        for _ in 0..self.keys.len() {
            match self.keys[slot] {
                0 => {
                    self.keys[slot] = key;
                    self.ranks[slot] = rank.to_le_bytes()[..ENTRY_BYTES]
                        .try_into()
                        .expect("five of eight bytes");
                    return None;
                }
                taken if taken == key => return Some(self.rank(slot)),
                _ => slot = self.after(slot),
            }
        }
        panic!("a table of {} slots is full", self.keys.len());
    }

    /// The rank of `key`, if it is there.
    pub fn find(&self, key: u64) -> Option<u64> {
        self.find_from(self.place(key), key)
    }

    /// Replaces each key by its rank. Returns the first key that is not there.
    pub fn find_all(&self, keys: &mut [u64]) -> Result<(), u64> {
        let mut slots = [0; BATCH];
        for batch in keys.chunks_mut(BATCH) {
            let mut touched = 0;
            for (slot, &key) in slots.iter_mut().zip(&*batch) {
                *slot = self.place(key);
                touched ^= self.keys[*slot] ^ u64::from(self.ranks[*slot][0]);
            }
            std::hint::black_box(touched);
            for (&slot, key) in slots.iter().zip(batch) {
                *key = self.find_from(slot, *key).ok_or(*key)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn find_from(&self, mut slot: usize, key: u64) -> Option<u64> {
        if key == 0 {
            return self.zero;
        }
        // A slot in four is empty, so the search ends.
        loop {
            match self.keys[slot] {
                taken if taken == key => return Some(self.rank(slot)),
                0 => return None,
                _ => slot = self.after(slot),
            }
        }
    }

    #[inline]
    fn place(&self, key: u64) -> usize {
        ((u128::from(key) * self.keys.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.keys.len() { 0 } else { slot + 1 }
    }

    #[inline]
    fn rank(&self, slot: usize) -> u64 {
        let [a, b, c, d, e] = self.ranks[slot];
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_table_answers_as_a_map_does(
            // Few distinct values next to each other and at both ends: long searches that wrap.
            keys in prop::collection::vec(prop_oneof![0u64..9, u64::MAX - 40..=u64::MAX, any::<u64>()], 0..300),
        ) {
            let mut table = RankTable::with_capacity(keys.len() as u64);
            let mut map = BTreeMap::new();
            for (i, &key) in keys.iter().enumerate() {
                let rank = (1 << 40) - 1 - i as u64;
                prop_assert_eq!(table.insert(key, rank), map.get(&key).copied());
                map.entry(key).or_insert(rank);
            }
            let mut ranks = keys.clone();
            prop_assert_eq!(table.find_all(&mut ranks), Ok(()));
            for (key, rank) in keys.iter().zip(ranks) {
                prop_assert_eq!(rank, map[key]);
            }
            for other in (0..20).chain(u64::MAX - 50..=u64::MAX) {
                prop_assert_eq!(table.find(other), map.get(&other).copied());
                if !map.contains_key(&other) {
                    prop_assert_eq!(table.find_all(&mut [other]), Err(other));
                }
            }
        }
    }
}
