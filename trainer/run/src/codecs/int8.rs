//! Values as integers of 8 bits, times a scale per block.
//!
//! ```text
//! f32 x blocks     scales: the largest magnitude of a block, divided by 127
//! i8 x values      value / scale of its block, rounded to nearest
//! ```

use super::malformed::Malformed;

/// Values of a block. Smaller blocks follow magnitudes that differ between parts of a gradient more closely, and take more scales.
const BLOCK: usize = 1024;
/// The largest magnitude of an integer.
const LARGEST: f32 = 127.0;

const SCALE_BYTES: usize = size_of::<f32>();

pub(super) fn encoded_bytes(values: usize) -> usize {
    SCALE_BYTES * values.div_ceil(BLOCK) + values
}

pub(super) fn encode(values: &[f32], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + encoded_bytes(values.len()), 0);
    let (scales, integers) = out[start..].split_at_mut(SCALE_BYTES * values.len().div_ceil(BLOCK));
    let blocks = values.chunks(BLOCK).zip(integers.chunks_mut(BLOCK));
    for (scale_bytes, (values, integers)) in scales.chunks_exact_mut(SCALE_BYTES).zip(blocks) {
        let scale = largest_magnitude(values) / LARGEST;
        scale_bytes.copy_from_slice(&scale.to_le_bytes());
        if scale == 0.0 {
            continue;
        }
        for (integer, value) in integers.iter_mut().zip(values) {
            // A quotient that is not a number becomes 0, and its product with the scale is none either.
            *integer = (value / scale).round_ties_even().clamp(-LARGEST, LARGEST) as i8 as u8;
        }
    }
}

pub(super) fn decode(bytes: &[u8], values: &mut [f32]) -> Result<(), Malformed> {
    if bytes.len() != encoded_bytes(values.len()) {
        return Err(Malformed("it has another length than its values"));
    }
    let (scales, integers) = bytes.split_at(SCALE_BYTES * values.len().div_ceil(BLOCK));
    let blocks = values.chunks_mut(BLOCK).zip(integers.chunks(BLOCK));
    for (scale, (values, integers)) in scales.chunks_exact(SCALE_BYTES).zip(blocks) {
        let scale = f32::from_le_bytes(scale.try_into().expect("bytes of a scale"));
        for (value, integer) in values.iter_mut().zip(integers) {
            *value = f32::from(*integer as i8) * scale;
        }
    }
    Ok(())
}

/// NaN if one of the values is NaN, unlike [`f32::max`].
fn largest_magnitude(values: &[f32]) -> f32 {
    // Magnitudes have the order of their bits, and NaN is above infinity.
    let magnitudes = values.iter().map(|value| value.to_bits() & !(1 << 31));
    f32::from_bits(magnitudes.max().unwrap_or_default())
}
