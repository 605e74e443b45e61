//! Sums in f32 whose bits do not depend on the number of threads.

use crate::parallel::for_each;

/// Partial sums of a row, so that the compiler can add in vectors.
const LANES: usize = 16;
/// Values of a part. A thread takes one at a time.
const PART: usize = 1 << 14;

#[inline(always)]
pub(crate) fn sum(row: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    // Of known length, so that the inner loop is vectors.
    let (blocks, rest) = row.as_chunks::<LANES>();
    for values in blocks {
        for (sum, value) in lanes.iter_mut().zip(values) {
            *sum += term(*value);
        }
    }
    for (sum, value) in lanes.iter_mut().zip(rest) {
        *sum += term(*value);
    }
    lanes.iter().sum()
}

/// The sum of the products of two rows, value by value.
pub fn products(left: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((blocks, rest), (others, other_rest)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
    for (left, right) in blocks.iter().zip(others) {
        for (sum, (left, right)) in lanes.iter_mut().zip(left.iter().zip(right)) {
            *sum += left * right;
        }
    }
    for (sum, (left, right)) in lanes.iter_mut().zip(rest.iter().zip(other_rest)) {
        *sum += left * right;
    }
    lanes.iter().sum()
}

/// The sum of the products of three rows, value by value.
pub fn weighted_products(left: &[f32], weights: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (blocks, rest) = left.as_chunks::<LANES>();
    let (weight_blocks, weight_rest) = weights.as_chunks::<LANES>();
    let (others, other_rest) = right.as_chunks::<LANES>();
    for ((left, weights), right) in blocks.iter().zip(weight_blocks).zip(others) {
        for (sum, ((left, weight), right)) in lanes.iter_mut().zip(left.iter().zip(weights).zip(right)) {
            *sum += left * weight * right;
        }
    }
    for (sum, ((left, weight), right)) in lanes.iter_mut().zip(rest.iter().zip(weight_rest).zip(other_rest)) {
        *sum += left * weight * right;
    }
    lanes.iter().sum()
}

/// The sum of the products of two matrices of the same shape, value by value. Parts of fixed size are added in their order.
pub fn dot(left: &[f32], right: &[f32]) -> f64 {
    assert_eq!(left.len(), right.len(), "matrices of the same shape");
    let mut sums = vec![0.0; left.len().div_ceil(PART)];
    let parts = left.chunks(PART).zip(right.chunks(PART)).zip(&mut sums);
    for_each(parts.collect(), |((left, right), part): ((&[f32], &[f32]), &mut f32)| {
        *part = products(left, right);
    });
    sums.into_iter().map(f64::from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_adds_all_parts() {
        for count in [0, 1, 17, PART, 3 * PART + 5] {
            let left: Vec<f32> = (0..count).map(|index| (index % 7) as f32).collect();
            let right: Vec<f32> = (0..count).map(|index| (index % 5) as f32 - 1.0).collect();
            let expected: f64 = left.iter().zip(&right).map(|(a, b)| f64::from(a * b)).sum();
            // Whole numbers that f32 represents.
            assert_eq!(dot(&left, &right), expected, "{count}");
            let weights = vec![2.0; count];
            assert_eq!(f64::from(weighted_products(&left, &weights, &right)), 2.0 * expected, "{count}");
        }
    }
}
