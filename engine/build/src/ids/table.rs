//! A hash table in memory from 64-bit keys to nodes.
//!
//! It uses open addressing with linear probing. The keys are evenly spread already ([`super::keys`]), so the first slot of
//! a key is the key's share of the number of slots. Key and node are side by side, 16 bytes per slot, with 4 slots for 3
//! keys: [`BYTES_PER_KEY`] bytes per key.
//!
//! A lookup is one cache miss. [`KeyTable::find_all`] overlaps the misses of a batch: it first touches the slot of each
//! key, which the processor does for many keys at once, and then searches the slots, which are in the cache by then. That
//! takes 10 ns per key instead of 100 ns.

use grappa_formats::NodeId;
use grappa_io::{Error, heap};

/// Bytes of memory per key, rounded up.
pub const BYTES_PER_KEY: u64 = 22;

/// Number of lookups that overlap.
const BATCH: usize = 32;

/// A hash table of keys and their nodes.
#[derive(Debug)]
pub struct KeyTable {
    /// Key and node of each slot. An empty slot has key 0.
    slots: Vec<(u64, u64)>,
    /// The node of key 0, which cannot be in a slot.
    zero: Option<NodeId>,
}

impl KeyTable {
    /// A table with room for `keys` keys.
    pub fn with_capacity(keys: u64) -> Result<Self, Error> {
        Ok(Self {
            slots: heap::zeroed(slots_for(keys), "the table of node ids")?,
            zero: None,
        })
    }

    /// Removes all keys and makes room for `keys` others, in the same memory if that suffices.
    pub fn reset(&mut self, keys: u64) {
        self.zero = None;
        self.slots.clear();
        self.slots.resize(slots_for(keys), (0, 0));
    }

    /// Inserts a key. If it is there already, nothing changes, and the key's node is returned.
    ///
    /// # Panics
    /// If every slot is full, which takes more keys than the table was made for.
    pub fn insert(&mut self, key: u64, node: NodeId) -> Option<NodeId> {
        if key == 0 {
            let before = self.zero;
            self.zero = before.or(Some(node));
            return before;
        }
        let mut slot = self.first_slot(key);
        for _ in 0..self.slots.len() {
            match self.slots[slot] {
                (0, _) => {
                    self.slots[slot] = (key, node.0);
                    return None;
                }
                (other, node) if other == key => return Some(NodeId(node)),
                _ => slot = self.after(slot),
            }
        }
        panic!("a table of {} slots is full", self.slots.len());
    }

    /// The node of `key`, if the key is there.
    pub fn find(&self, key: u64) -> Option<NodeId> {
        self.find_from(self.first_slot(key), key)
    }

    /// Replaces each key by its node. The error is the first key that is not there.
    pub fn find_all(&self, keys: &mut [u64]) -> Result<(), u64> {
        let mut slots = [0; BATCH];
        for batch in keys.chunks_mut(BATCH) {
            let mut touched = 0;
            for (slot, &key) in slots.iter_mut().zip(&*batch) {
                *slot = self.first_slot(key);
                touched ^= self.slots[*slot].0;
            }
            // Keeps the compiler from removing the reads.
            std::hint::black_box(touched);
            for (&slot, key) in slots.iter().zip(batch) {
                *key = self.find_from(slot, *key).ok_or(*key)?.0;
            }
        }
        Ok(())
    }

    #[inline]
    fn find_from(&self, mut slot: usize, key: u64) -> Option<NodeId> {
        if key == 0 {
            return self.zero;
        }
        // Every fourth slot is empty, so the search ends.
        loop {
            match self.slots[slot] {
                (other, node) if other == key => return Some(NodeId(node)),
                (0, _) => return None,
                _ => slot = self.after(slot),
            }
        }
    }

    #[inline]
    fn first_slot(&self, key: u64) -> usize {
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
                let node = NodeId((1 << 40) - 1 - i as u64);
                prop_assert_eq!(table.insert(key, node), map.get(&key).copied());
                map.entry(key).or_insert(node);
            }
            let mut nodes = keys.clone();
            prop_assert_eq!(table.find_all(&mut nodes), Ok(()));
            for (key, node) in keys.iter().zip(nodes) {
                prop_assert_eq!(NodeId(node), map[key]);
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
