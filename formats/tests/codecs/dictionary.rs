use std::collections::BTreeSet;

use grappa_formats::{
    DenseId,
    container::FileKind,
    dictionary::{
        DictionaryMeta, IntegerDictionary, IntegerDictionaryBuilder, KEY_BYTES_MAX, StringDictionary,
        StringDictionaryBuilder,
    },
};
use proptest::prelude::*;

use crate::{file, open};

pub fn integers(keys: &[u64]) -> Vec<u8> {
    let mut builder = IntegerDictionaryBuilder::new();
    let mut payload = Vec::new();
    for &key in keys {
        builder.push(key);
        if key % 3 == 0 {
            payload.append(&mut builder.ready);
        }
    }
    let (meta, tail) = builder.finish();
    payload.extend(tail);
    file(FileKind::DICTIONARY, meta.encode(), &payload)
}

pub fn strings<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut builder = StringDictionaryBuilder::new();
    let mut payload = Vec::new();
    for key in keys {
        builder.push(key);
        if builder.ready.len() > 40 {
            payload.append(&mut builder.ready);
        }
    }
    let (meta, tail) = builder.finish();
    tail.for_each(|piece| payload.extend(piece));
    file(FileKind::DICTIONARY, meta.encode(), &payload)
}

fn key_strategy() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(&b"ab"[..]), 0..8),
        prop::collection::vec(any::<u8>(), 0..5),
        "/usr/(bin|lib|share)/[a-d]{1,3}(/[0-9]{1,2})?".prop_map(String::into_bytes),
    ]
}

proptest! {
    /// A check in parts finds the same damage as a check of the whole, wherever the parts are divided.
    #[test]
    fn parts_find_what_the_whole_finds(
        keys in prop::collection::btree_set(key_strategy(), 1..200),
        cut in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        bit in 0..9u32,
    ) {
        let damage = |payload: &[u8]| {
            let mut bytes = payload.to_vec();
            // Bit 8: none.
            *at.get_mut(&mut bytes) ^= (1u32 << bit) as u8;
            bytes
        };
        let file = strings(keys.iter().map(Vec::as_slice));
        let (header, payload) = open(&file, FileKind::DICTIONARY);
        let bytes = damage(payload);
        let dictionary = StringDictionary::new(&header, &bytes).unwrap();
        let cut_block = cut.index(dictionary.blocks() as usize + 1) as u64;
        let parts = [0..cut_block, cut_block..dictionary.blocks()].map(|part| dictionary.check(part).is_ok());
        prop_assert_eq!(parts == [true; 2], dictionary.check(0..dictionary.blocks()).is_ok());

        let numbers: Vec<u64> = (0..keys.len() as u64).map(|i| i * i).collect();
        let file = integers(&numbers);
        let (header, payload) = open(&file, FileKind::DICTIONARY);
        let bytes = damage(payload);
        let dictionary = IntegerDictionary::new(&header, &bytes).unwrap();
        let cut_id = cut.index(numbers.len() + 1) as u64;
        let parts = [0..cut_id, cut_id..dictionary.keys()].map(|part| dictionary.check(part).is_ok());
        prop_assert_eq!(parts == [true; 2], dictionary.check(0..dictionary.keys()).is_ok());
    }

    #[test]
    fn integers_are_found_at_their_dense_id(
        keys in prop::collection::btree_set(prop_oneof![any::<u64>(), 0..1000u64, (0..64u32).prop_map(|i| 1 << i)], 0..300),
        probes in prop::collection::vec(prop_oneof![any::<u64>(), 0..1000u64], 0..50),
    ) {
        let keys: Vec<u64> = keys.into_iter().collect();
        let file = integers(&keys);
        let (header, payload) = open(&file, FileKind::DICTIONARY);
        let dictionary = IntegerDictionary::new(&header, payload).unwrap();
        prop_assert!(dictionary.check(0..dictionary.keys()).is_ok());
        prop_assert_eq!(dictionary.keys(), keys.len() as u64);
        prop_assert_eq!(dictionary.iter(0..dictionary.keys()).collect::<Vec<_>>(), keys.clone());
        for (id, &key) in keys.iter().enumerate() {
            prop_assert_eq!(dictionary.get(DenseId(id as u64)), key);
        }
        for probe in probes.iter().chain(&keys).flat_map(|&k| [k, k.wrapping_add(1), k.wrapping_sub(1)]) {
            prop_assert_eq!(dictionary.find(probe), keys.binary_search(&probe).ok().map(|id| DenseId(id as u64)));
        }
    }

    #[test]
    fn strings_are_found_at_their_dense_id(
        keys in prop::collection::btree_set(key_strategy(), 0..200),
        probes in prop::collection::vec(key_strategy(), 0..50),
    ) {
        let file = strings(keys.iter().map(Vec::as_slice));
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let (header, payload) = open(&file, FileKind::DICTIONARY);
        let dictionary = StringDictionary::new(&header, payload).unwrap();
        prop_assert!(dictionary.check(0..dictionary.blocks()).is_ok());
        prop_assert_eq!(dictionary.keys, keys.len() as u64);
        let mut found = b"left over".to_vec();
        for (id, key) in keys.iter().enumerate() {
            dictionary.get(DenseId(id as u64), &mut found, |_| Ok(())).unwrap();
            prop_assert_eq!(&found, key);
        }
        for probe in probes.iter().chain(&keys) {
            let expected = keys.binary_search(probe).ok().map(|id| DenseId(id as u64));
            prop_assert_eq!(dictionary.find(probe, |_| Ok(())).unwrap(), expected);
        }
    }
}

#[test]
fn the_longest_keys_round_trip() {
    let long = [vec![b'x'; KEY_BYTES_MAX - 1], vec![b'x'; KEY_BYTES_MAX], vec![b'y'; KEY_BYTES_MAX]];
    let file = strings(long.iter().map(Vec::as_slice));
    let (header, payload) = open(&file, FileKind::DICTIONARY);
    let dictionary = StringDictionary::new(&header, payload).unwrap();
    dictionary.check(0..dictionary.blocks()).unwrap();
    for (id, key) in long.iter().enumerate() {
        assert_eq!(dictionary.find(key, |_| Ok(())).unwrap(), Some(DenseId(id as u64)));
    }
}

/// The table has more blocks than a piece of the tail.
#[test]
fn a_long_table_is_written_in_pieces() {
    let keys: BTreeSet<String> = (0..200_000).map(|i| i.to_string()).collect();
    let mut builder = StringDictionaryBuilder::new();
    let mut payload = Vec::new();
    for key in &keys {
        builder.push(key.as_bytes());
        payload.append(&mut builder.ready);
    }
    let (meta, tail) = builder.finish();
    let pieces: Vec<Vec<u8>> = tail.collect();
    assert!(pieces.len() == 2 && pieces.iter().all(|piece| piece.len() <= 65_543));
    payload.extend(pieces.concat());
    let file = file(FileKind::DICTIONARY, meta.encode(), &payload);
    let (header, payload) = open(&file, FileKind::DICTIONARY);
    assert_eq!(DictionaryMeta::decode(&header).unwrap(), meta);
    let dictionary = StringDictionary::new(&header, payload).unwrap();
    dictionary.check(0..dictionary.blocks()).unwrap();
    for (id, key) in keys.iter().enumerate().step_by(997) {
        assert_eq!(dictionary.find(key.as_bytes(), |_| Ok(())).unwrap(), Some(DenseId(id as u64)));
    }
}

#[test]
#[should_panic(expected = "key 5 after 5")]
fn a_repeated_key_panics() {
    let mut builder = IntegerDictionaryBuilder::new();
    builder.push(5);
    builder.push(5);
}
