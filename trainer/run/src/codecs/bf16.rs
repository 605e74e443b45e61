//! Values as bf16: the upper half of an f32, rounded to nearest.

use super::malformed::Malformed;

const BYTES: usize = 2;

pub(super) fn encoded_bytes(values: usize) -> usize {
    BYTES * values
}

pub(super) fn encode(values: &[f32], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + encoded_bytes(values.len()), 0);
    for (bytes, value) in out[start..].chunks_exact_mut(BYTES).zip(values) {
        bytes.copy_from_slice(&rounded(*value));
    }
}

pub(super) fn decode(bytes: &[u8], values: &mut [f32]) -> Result<(), Malformed> {
    if bytes.len() != encoded_bytes(values.len()) {
        return Err(Malformed("it has another length than its values"));
    }
    for (bytes, value) in bytes.chunks_exact(BYTES).zip(values) {
        *value = decode_one(bytes);
    }
    Ok(())
}

/// The nearest bf16 of a value, ties to even. Without a branch, so that the compiler can use vector instructions.
pub(super) fn rounded(value: f32) -> [u8; BYTES] {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nearest = if value.is_nan() { 0x7fc0 } else { nearest as u16 };
    nearest.to_le_bytes()
}

/// The value of a bf16.
pub(super) fn decode_one(bytes: &[u8]) -> f32 {
    f32::from_bits(u32::from_le_bytes([0, 0, bytes[0], bytes[1]]))
}
