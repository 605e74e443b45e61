//! Keys of random draws.

use grappa_formats::random;

/// A key made of several parts. Changing any part changes all of the key.
pub fn key<const N: usize>(parts: [u64; N]) -> u64 {
    parts.iter().fold(random::GOLDEN, |key, part| random::hash(key ^ part))
}
