//! Dropout of the values of rows: in each step, a value is 0 with a probability, and the others are scaled so that their mean stays.

use grappa_formats::random;
use grappa_kernels::for_each;

/// Values whose masks come from one random number.
const VALUES: usize = 4;
/// Bits of a random number for a value.
const BITS: usize = 16;
/// Rows of a part, for threads.
const ROWS: usize = 256;

/// The masks of the rows of a matrix in a step. A mask follows from its key, so it is not stored: the same call masks values and gradients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DropoutMasks {
    /// A value is 0 if its random bits are below this.
    threshold: u64,
    scale: f32,
    key: u64,
}

impl DropoutMasks {
    /// Masks with a probability of zeros, from a key of the step and the number of a matrix.
    pub(crate) fn new(probability: f32, key: u64, matrix: u64) -> Self {
        let threshold = (f64::from(probability) * f64::from(1u32 << BITS)).round() as u64;
        // The probability that the threshold has.
        let kept = ((1u64 << BITS) - threshold).max(1) as f32 / (1u64 << BITS) as f32;
        Self { threshold, scale: 1.0 / kept, key: random::combine(key, matrix) }
    }

    /// Multiplies the values of all rows of a matrix by their masks.
    pub(crate) fn apply_to_rows(&self, matrix: &mut [f32], stride: usize, dim: usize) {
        if self.threshold > 0 {
            let parts = matrix.chunks_mut(ROWS * stride).enumerate().collect();
            for_each(parts, |(part, rows): (usize, &mut [f32])| {
                let rows = rows.chunks_mut(stride).enumerate();
                rows.for_each(|(row, values)| self.apply(part * ROWS + row, &mut values[..dim]));
            });
        }
    }

    /// Multiplies the values of a row by their mask.
    pub(crate) fn apply(&self, row: usize, values: &mut [f32]) {
        if self.threshold == 0 {
            return;
        }
        let key = random::combine(self.key, row as u64);
        for (draw, values) in (0..).zip(values.chunks_mut(VALUES)) {
            let bits = random::draw_at(key, draw);
            for (place, value) in values.iter_mut().enumerate() {
                let is_kept = (bits >> (place * BITS)) & ((1 << BITS) - 1) >= self.threshold;
                *value *= if is_kept { self.scale } else { 0.0 };
            }
        }
    }
}
