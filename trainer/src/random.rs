//! Randomness that is a function of a key: dropout masks and initial values.

/// Mixes 64 bits well: the finaliser of SplitMix64.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A key made of two.
pub(crate) fn combine(key: u64, other: u64) -> u64 {
    mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ mix(other))
}
