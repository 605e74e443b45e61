//! LEB128 varints: seven bits per byte, lowest first, with the high bit set if another byte follows.

/// The length of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` as a varint. [`take_varint`] reads values below 2^63.
#[inline]
pub fn put_varint(mut value: u64, bytes: &mut Vec<u8>) {
    // One growth of the list is faster than one for each byte.
    let (mut encoded, mut length) = ([0; VARINT_BYTES_MAX], 0);
    while value >= 0x80 {
        encoded[length] = value as u8 | 0x80;
        value >>= 7;
        length += 1;
    }
    encoded[length] = value as u8;
    bytes.extend_from_slice(&encoded[..=length]);
}

/// The varint at the start of `bytes`, and its length in bytes. `None` if `bytes` end too early, the encoding is longer
/// than necessary, or the value is not below 2^63.
#[inline]
pub fn take_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (byte != 0 || i == 0).then_some((value, i + 1));
        }
    }
    None
}
