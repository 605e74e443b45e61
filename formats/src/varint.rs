//! LEB128 varints: seven bits per byte, lowest first, with the high bit set if another byte follows.
//!
//! Up to eight bytes are coded at once, in a word.

/// The high bit of each byte of a word.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Appends `value` as a varint. [`take_varint`] reads values below 2^63.
#[inline]
pub fn put_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >> 56 != 0 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    let length = (64 - (value | 1).leading_zeros() as usize).div_ceil(7);
    let more = HIGH_BITS & ((1 << (8 * (length - 1))) - 1);
    let end = bytes.len() + length;
    bytes.extend_from_slice(&(spread(value) | more).to_le_bytes());
    bytes.truncate(end);
}

/// The varint at the start of `bytes`, and its length in bytes. `None` if `bytes` end too early, the encoding is longer
/// than necessary, or the value is not below 2^63.
#[inline]
pub fn take_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    if let Some(word) = bytes.first_chunk() {
        let word = u64::from_le_bytes(*word);
        let ends = !word & HIGH_BITS;
        if ends != 0 {
            let bits = ends.trailing_zeros() + 1;
            let word = word & u64::MAX >> (64 - bits);
            let is_shortest = bits == 8 || word >> (bits - 8) != 0;
            return is_shortest.then_some((gather(word), bits as usize / 8));
        }
    }
    take_bytewise(bytes)
}

fn take_bytewise(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (byte != 0 || i == 0).then_some((value, i + 1));
        }
    }
    None
}

/// Moves each seven bits of a value below 2^56 to a byte of its own.
#[inline]
fn spread(value: u64) -> u64 {
    let halves = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1
}

/// Joins the low seven bits of each byte.
#[inline]
fn gather(word: u64) -> u64 {
    let quarters = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let halves = quarters & 0x0000_3fff_0000_3fff | (quarters & 0x3fff_0000_3fff_0000) >> 2;
    halves & 0x0fff_ffff | (halves & 0x0fff_ffff_0000_0000) >> 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_lengths_read_back_at_any_place() {
        let of_bits = |bits: u32| [1 << bits, (1 << bits) - 1, (1 << bits) + (1 << bits) / 3].map(|value: u64| value);
        let values: Vec<u64> = (0..63).flat_map(of_bits).filter(|value| value >> 63 == 0).collect();
        let mut bytes = Vec::new();
        values.iter().for_each(|&value| put_varint(value, &mut bytes));
        let mut rest = &bytes[..];
        for &value in &values {
            let (found, length) = take_varint(rest).unwrap();
            assert_eq!((found, length), (value, (64 - (value | 1).leading_zeros() as usize).div_ceil(7)));
            // At the end of its bytes, a varint is read byte by byte.
            assert_eq!(take_varint(&rest[..length]), Some((value, length)));
            assert_eq!(take_varint(&rest[..length - 1]), None);
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn encodings_that_are_too_long_or_too_large_are_refused() {
        for short in [&[0x80, 0][..], &[0xff, 0x80, 0], &[0x80; 8], &[0xff; 10], &[]] {
            let mut long = short.to_vec();
            assert_eq!(take_varint(short), None, "{short:?}");
            long.resize(20, 0x80);
            assert_eq!(take_varint(&long), None, "{long:?}");
        }
        let mut bytes = Vec::new();
        put_varint(u64::MAX >> 1, &mut bytes);
        assert_eq!(take_varint(&bytes), Some((u64::MAX >> 1, 9)));
        bytes.clear();
        put_varint(1 << 63, &mut bytes);
        assert_eq!((bytes.len(), take_varint(&bytes)), (10, None));
    }
}
