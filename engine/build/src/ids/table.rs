//! A table in memory from keys of 64 bits to nodes.
//!
//! Open addressing over keys that are spread evenly already ([`super::keys`]): the place of a key is its share of the
//! number of slots, and a taken slot sends it to the next. Key and node lie side by side, 16 bytes a slot and 4 slots for
//! 3 keys, so a key costs [`BYTES_PER_KEY`].
//!
//! A lookup is one cache miss. What makes many of them fast is that they overlap: a batch is looked at twice, first
//! touching each key's slot, which the processor does for many keys at once, then searching what is cached by then. Ten
//! nanoseconds a key where a lone lookup waits a hundred.

use grappa_io::{Error, heap};

/// Memory for each key, in bytes and rounded up.
pub const BYTES_PER_KEY: u64 = 22;

/// Lookups that overlap.
const BATCH: usize = 32;

/// A table of keys and their nodes.
#[derive(Debug)]
pub struct KeyTable {
    /// Key and node in each slot; key 0 where there is none.
    slots: Vec<(u64, u64)>,
    /// The node of key 0.
    zero: Option<u64>,
}

impl KeyTable {
    /// A table with room for `keys` keys.
    pub fn with_capacity(keys: u64) -> Result<Self, Error> {
        Ok(Self {
            slots: heap::zeroed(slots_for(keys), "the table of node ids")?,
            zero: None,
        })
    }

    /// Removes all keys and makes room for `keys` others, in the same memory if it is enough.
    pub fn reset(&mut self, keys: u64) {
        self.zero = None;
        self.slots.clear();
        self.slots.resize(slots_for(keys), (0, 0));
    }

    /// Enters a key. If it is there already, nothing changes, and its node is returned.
    ///
    /// # Panics
    /// If there are more keys than there was to be room for.
    pub fn insert(&mut self, key: u64, node: u64) -> Option<u64> {
        if key == 0 {
            let before = self.zero;
            self.zero = before.or(Some(node));
            return before;
        }
        let mut slot = self.place(key);
        for _ in 0..self.slots.len() {
            match self.slots[slot] {
                (0, _) => {
                    self.slots[slot] = (key, node);
                    return None;
                }
                (taken, node) if taken == key => return Some(node),
                _ => slot = self.after(slot),
            }
        }
        panic!("a table of {} slots is full", self.slots.len());
    }

    /// The node of `key`, if it is there.
    pub fn find(&self, key: u64) -> Option<u64> {
        self.find_from(self.place(key), key)
    }

    /// Replaces each key by its node. Returns the first key that is not there.
    pub fn find_all(&self, keys: &mut [u64]) -> Result<(), u64> {
        let mut slots = [0; BATCH];
        for batch in keys.chunks_mut(BATCH) {
            let mut touched = 0;
            for (slot, &key) in slots.iter_mut().zip(&*batch) {
                *slot = self.place(key);
                touched ^= self.slots[*slot].0;
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
            match self.slots[slot] {
                (taken, node) if taken == key => return Some(node),
                (0, _) => return None,
                _ => slot = self.after(slot),
            }
        }
    }

    #[inline]
    fn place(&self, key: u64) -> usize {
        ((u128::from(key) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }
}

fn slots_for(keys: u64) -> usize {
    (keys + keys / 3 + 8) as usize
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
            let mut table = KeyTable::with_capacity(keys.len() as u64).unwrap();
            let mut map = BTreeMap::new();
            for (i, &key) in keys.iter().enumerate() {
                let node = (1 << 40) - 1 - i as u64;
                prop_assert_eq!(table.insert(key, node), map.get(&key).copied());
                map.entry(key).or_insert(node);
            }
            let mut nodes = keys.clone();
            prop_assert_eq!(table.find_all(&mut nodes), Ok(()));
            for (key, node) in keys.iter().zip(nodes) {
                prop_assert_eq!(node, map[key]);
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
