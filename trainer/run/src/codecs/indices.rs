//! Ascending indices in Elias-Fano code: the low bits of each as they are, and the high bits in unary.
//!
//! ```text
//! bit i + (index number i >> low bits)     1
//! low bits of each index                   from the next byte on
//! ```
//!
//! The number of low bits follows from the number of indices and their bound, so the length does too. It is within a bit per index of the
//! least that any code can have.

use super::malformed::Malformed;

/// The layout of `count` indices below `bound`.
struct Layout {
    low_bits: u32,
    upper_bytes: usize,
    lower_bytes: usize,
}

impl Layout {
    fn for_count(count: usize, bound: usize) -> Self {
        let low_bits = (bound / count.max(1)).max(1).ilog2();
        let upper_bits = count + (bound >> low_bits) + 1;
        Self { low_bits, upper_bytes: upper_bits.div_ceil(8), lower_bytes: (count * low_bits as usize).div_ceil(8) }
    }
}

pub(super) fn encoded_bytes(count: usize, bound: usize) -> usize {
    let layout = Layout::for_count(count, bound);
    layout.upper_bytes + layout.lower_bytes
}

/// Appends ascending indices below `bound`.
pub(super) fn encode(indices: &[usize], bound: usize, out: &mut Vec<u8>) {
    let layout = Layout::for_count(indices.len(), bound);
    let start = out.len();
    out.resize(start + layout.upper_bytes + layout.lower_bytes, 0);
    let (upper, lower) = out[start..].split_at_mut(layout.upper_bytes);
    for (i, index) in indices.iter().enumerate() {
        let bit = i + (index >> layout.low_bits);
        upper[bit / 8] |= 1 << (bit % 8);
    }
    // Bits wait in a word until they fill bytes.
    let (mut word, mut bits, mut bytes) = (0_u128, 0, lower.iter_mut());
    let mask = (1_u128 << layout.low_bits) - 1;
    for index in indices {
        word |= (*index as u128 & mask) << bits;
        bits += layout.low_bits;
        while bits >= 8 {
            *bytes.next().expect("room for all low bits") = word as u8;
            word >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        *bytes.next().expect("room for all low bits") = word as u8;
    }
}

/// The indices of an encoding of `count` indices below `bound`.
///
/// # Errors
/// If the bytes are no such encoding.
pub(super) fn decode(bytes: &[u8], count: usize, bound: usize) -> Result<Vec<usize>, Malformed> {
    let layout = Layout::for_count(count, bound);
    if bytes.len() != layout.upper_bytes + layout.lower_bytes {
        return Err(Malformed("it has another length than its values"));
    }
    let (upper, lower) = bytes.split_at(layout.upper_bytes);
    let mut indices = Vec::with_capacity(count);
    for (number, byte) in upper.iter().enumerate() {
        let mut ones = *byte;
        while ones != 0 && indices.len() < count {
            let bit = 8 * number + ones.trailing_zeros() as usize;
            indices.push((bit - indices.len()) << layout.low_bits);
            ones &= ones - 1;
        }
    }
    let (mut word, mut bits, mut bytes) = (0_u128, 0, lower.iter());
    let mask = (1_u128 << layout.low_bits) - 1;
    for index in &mut indices {
        while bits < layout.low_bits {
            word |= u128::from(*bytes.next().expect("all low bits")) << bits;
            bits += 8;
        }
        *index |= (word & mask) as usize;
        word >>= layout.low_bits;
        bits -= layout.low_bits;
    }
    let is_ascending = indices.windows(2).all(|pair| pair[0] < pair[1]);
    if indices.len() != count || !is_ascending || indices.last().is_some_and(|last| *last >= bound) {
        return Err(Malformed("its indices are not ascending, or out of range"));
    }
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn indices_come_back(bound in 1_usize..100_000, some in proptest::collection::vec(any::<usize>(), 0..400)) {
            let indices: Vec<usize> = some.iter().map(|index| index % bound).collect::<BTreeSet<_>>().into_iter().collect();
            let mut bytes = Vec::new();
            encode(&indices, bound, &mut bytes);
            prop_assert_eq!(bytes.len(), encoded_bytes(indices.len(), bound));
            prop_assert_eq!(decode(&bytes, indices.len(), bound).unwrap(), indices);
        }
    }

    #[test]
    fn all_indices_and_the_largest_ones_have_room() {
        for (indices, bound) in [
            ((0..1000).collect::<Vec<_>>(), 1000),
            (vec![usize::MAX / 4], usize::MAX / 4 + 1),
            (vec![], 0),
            (vec![0], 1),
        ] {
            let mut bytes = Vec::new();
            encode(&indices, bound, &mut bytes);
            assert_eq!(decode(&bytes, indices.len(), bound).unwrap(), indices);
        }
    }

    #[test]
    fn an_index_takes_at_most_two_bits_more_than_the_logarithm_of_its_gap() {
        for (count, bound) in [(1000, 100_000), (10, 1 << 30), (5000, 10_000)] {
            let bits = 8.0 * encoded_bytes(count, bound) as f64 / count as f64;
            assert!(bits <= 3.0 + (bound as f64 / count as f64).log2() + 16.0 / count as f64, "{bits}");
        }
    }
}
