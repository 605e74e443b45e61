//! Dictionaries of integers.

use std::{convert::Infallible, ops::Range, result::Result as StdResult};

use super::meta::{DictionaryMeta, KeyKind, expect_kind};
use crate::{DenseId, NODES_MAX, Result, bytes::check_payload_slice, container::Header, error::invalid_if};

/// Encodes integers that arrive in ascending order.
#[derive(Debug, Default)]
pub struct IntegerDictionaryBuilder {
    keys: u64,
    last: u64,
    /// The bytes of the payload that are ready. The caller may take them at any time.
    pub ready: Vec<u8>,
}

impl IntegerDictionaryBuilder {
    /// An empty dictionary.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a key.
    ///
    /// # Panics
    /// If it is not above the previous key, or if there are already 2^40 keys.
    pub fn push(&mut self, key: u64) {
        assert!(self.keys == 0 || key > self.last, "key {key} after {}", self.last);
        assert!(self.keys < NODES_MAX, "more than 2^40 keys");
        self.keys += 1;
        self.last = key;
        self.ready.extend_from_slice(&key.to_le_bytes());
    }

    /// Ends the dictionary. Returns its meta and the rest of the payload.
    pub fn finish(self) -> (DictionaryMeta, Vec<u8>) {
        let meta = DictionaryMeta { kind: KeyKind::Integers, keys: self.keys, key_bytes: 8 * self.keys };
        (meta, self.ready)
    }
}

/// Reader of a dictionary of integers.
///
/// ```
/// use grappa_formats::{
///     DenseId,
///     container::{FileKind, decode_file, encode_file},
///     dictionary::{IntegerDictionary, IntegerDictionaryBuilder},
/// };
///
/// let mut builder = IntegerDictionaryBuilder::new();
/// for key in [5, 12, 1 << 60] {
///     builder.push(key);
/// }
/// let (meta, payload) = builder.finish();
/// let (file, _) = encode_file(FileKind::DICTIONARY, meta.encode(), &payload);
///
/// let (header, payload) = decode_file(&file, FileKind::DICTIONARY)?;
/// let dictionary = IntegerDictionary::new(&header, payload)?;
/// assert_eq!((dictionary.get(DenseId(1)), dictionary.find(1 << 60)), (12, Some(DenseId(2))));
/// assert_eq!(dictionary.find(6), None);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct IntegerDictionary<'a> {
    keys: &'a [[u8; 8]],
    payload_offset: u64,
}

impl<'a> IntegerDictionary<'a> {
    /// Reads `payload`, the payload of the file with this header. Checks the meta, not the keys.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        expect_kind(header, KeyKind::Integers)?;
        Ok(Self { keys: payload.as_chunks().0, payload_offset: header.payload_offset })
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.keys.len() as u64
    }

    /// The external id of a dense id.
    ///
    /// # Panics
    /// If the id is not below the number of keys.
    #[inline]
    pub fn get(&self, id: DenseId) -> u64 {
        u64::from_le_bytes(self.keys[id.0 as usize])
    }

    /// The dense id of the external id `key`, if it is in the dictionary.
    pub fn find(&self, key: u64) -> Option<DenseId> {
        let Ok(found) = find_integer(self.keys(), key, |id| Ok::<_, Infallible>(self.get(id)));
        found
    }

    /// The external ids of a range of dense ids, in order.
    ///
    /// # Panics
    /// If the range ends beyond the number of keys.
    pub fn iter(&self, ids: Range<u64>) -> impl Iterator<Item = u64> + use<'a> {
        self.keys[ids.start as usize..ids.end as usize].iter().map(|key| u64::from_le_bytes(*key))
    }

    /// Checks that the keys of a range of dense ids ascend and are above the key before the range.
    ///
    /// # Panics
    /// If the range ends beyond the number of keys.
    pub fn check(&self, ids: Range<u64>) -> Result<()> {
        let first = ids.start.saturating_sub(1);
        let mut keys = self.iter(first..ids.end);
        let Some(mut last) = keys.next() else { return Ok(()) };
        for (id, key) in (first + 1..).zip(keys) {
            invalid_if!(
                key <= last,
                self.payload_offset + 8 * id,
                "the dictionary is not sorted: {key}, dense id {id}, comes after {last}"
            );
            last = key;
        }
        Ok(())
    }
}

/// The dense id of `key` among `keys` sorted keys, if it is there. `get` reads the key of a dense id.
///
/// Interpolation and bisection alternate. Interpolation finds evenly spread keys in a few steps; bisection limits the
/// steps for any keys to 2 log2(n).
///
/// # Errors
/// The errors of `get`.
pub fn find_integer<E>(
    keys: u64,
    key: u64,
    mut get: impl FnMut(DenseId) -> StdResult<u64, E>,
) -> StdResult<Option<DenseId>, E> {
    if keys == 0 {
        return Ok(None);
    }
    let (mut low, mut high) = (0, keys - 1);
    let (mut low_key, mut high_key) = (get(DenseId(low))?, get(DenseId(high))?);
    let mut interpolate = true;
    // Invariant: if the key is there, its position is in `low..=high`.
    while low_key < key && key < high_key && high - low > 1 {
        let middle = if interpolate {
            let share = u128::from(key - low_key) * u128::from(high - low) / u128::from(high_key - low_key);
            low + (share as u64).clamp(1, high - low - 1)
        } else {
            low + (high - low) / 2
        };
        interpolate = !interpolate;
        let middle_key = get(DenseId(middle))?;
        if middle_key <= key {
            (low, low_key) = (middle, middle_key);
        } else {
            (high, high_key) = (middle, middle_key);
        }
    }
    Ok(if low_key == key {
        Some(DenseId(low))
    } else if high_key == key {
        Some(DenseId(high))
    } else {
        None
    })
}
