//! Keys of random numbers: what dropout masks, initial values and minibatches are functions of.

use grappa_formats::random::{GOLDEN, hash, mix};

/// A key made from `key` and a number. Every bit of both affects every bit of the result.
pub(crate) fn combine(key: u64, number: u64) -> u64 {
    grappa_formats::random::combine(key, mix(number))
}

/// A key made from several numbers. Every bit of each affects every bit of the result.
pub(crate) fn key_of<const N: usize>(parts: [u64; N]) -> u64 {
    parts.iter().fold(GOLDEN, |key, part| hash(key ^ part))
}
