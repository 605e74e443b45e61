//! The values of the largest magnitude, as bf16, and their indices.
//!
//! ```text
//! indices      ascending, in Elias-Fano code
//! bf16 x k     their values
//! ```
//!
//! All other values count as zero (Aji, Heafield: "Sparse Communication for Distributed Gradient Descent", arXiv 1704.05021).

use super::{bf16, indices, malformed::Malformed};

/// The number of values to send if it is a share of all, in (0, 1]: at least one.
pub fn count(share: f64, values: usize) -> usize {
    ((share * values as f64).ceil() as usize).clamp(1, values.max(1)).min(values)
}

/// The bytes of an encoding of `count` of `values` values.
pub fn encoded_bytes(count: usize, values: usize) -> usize {
    indices::encoded_bytes(count, values) + bf16::encoded_bytes(count)
}

/// Appends the `count` values of the largest magnitude. Of equal magnitudes, the first ones count as larger, so the result is a function
/// of the values. What is not finite is larger than all numbers.
///
/// # Panics
/// If there are fewer than `count` values.
pub fn encode(values: &[f32], count: usize, out: &mut Vec<u8>) {
    let chosen = largest(values, count);
    indices::encode(&chosen, values.len(), out);
    for index in chosen {
        out.extend(bf16::rounded(values[index]));
    }
}

/// Keeps the `count` values that an encoding has, and replaces the others by zeros.
///
/// # Errors
/// If these bytes are no such encoding. The values are then undefined.
pub fn decode(bytes: &[u8], count: usize, values: &mut [f32]) -> Result<(), Malformed> {
    values.fill(0.0);
    let at = indices::encoded_bytes(count, values.len());
    let (chosen, sent) = bytes.split_at_checked(at).ok_or(Malformed("it ends early"))?;
    if sent.len() != bf16::encoded_bytes(count) {
        return Err(Malformed("it has another length than its values"));
    }
    for (index, half) in indices::decode(chosen, count, values.len())?.into_iter().zip(sent.chunks_exact(2)) {
        values[index] = bf16::decode_one(half);
    }
    Ok(())
}

/// The indices of the `count` values of the largest magnitude, ascending.
fn largest(values: &[f32], count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    let mut magnitudes: Vec<u32> = values.iter().map(magnitude).collect();
    let at = values.len() - count;
    let (_, least, larger) = magnitudes.select_nth_unstable(at);
    let least = *least;
    // Of the values that equal the least one, this number is chosen.
    let mut equal = count - larger.iter().filter(|magnitude| **magnitude > least).count();
    let chosen = values.iter().enumerate().filter(|(_, value)| {
        let is_equal = magnitude(value) == least;
        let is_chosen = magnitude(value) > least || (is_equal && equal > 0);
        equal -= usize::from(is_equal && is_chosen);
        is_chosen
    });
    chosen.map(|(index, _)| index).collect()
}

/// The bits of a magnitude, which have its order. NaN is above infinity.
fn magnitude(value: &f32) -> u32 {
    value.to_bits() & !(1 << 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(values: &[f32], count: usize) -> Vec<f32> {
        let mut bytes = Vec::new();
        encode(values, count, &mut bytes);
        assert_eq!(bytes.len(), encoded_bytes(count, values.len()));
        let mut back = vec![5.0; values.len()];
        decode(&bytes, count, &mut back).unwrap();
        back
    }

    proptest! {
        #[test]
        fn the_largest_values_arrive_and_the_others_are_zero(
            values in proptest::collection::vec((-20_i8..20).prop_map(f32::from), 1..300),
            share in 0.001_f64..=1.0,
        ) {
            let count = count(share, values.len());
            let back = decoded(&values, count);
            // A sort is the slow twin. It is stable, so the first of equal values come first.
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by(|a, b| values[*b].abs().total_cmp(&values[*a].abs()));
            let mut expected = vec![0.0; values.len()];
            order[..count].iter().for_each(|index| expected[*index] = values[*index]);
            prop_assert_eq!(back, expected);
        }
    }

    #[test]
    fn a_share_is_at_least_one_value_and_at_most_all() {
        for (share, values, expected) in [(0.01, 1000, 10), (0.001, 10, 1), (1.0, 10, 10), (0.5, 0, 0), (0.26, 10, 3)] {
            assert_eq!(count(share, values), expected, "{share} of {values}");
        }
    }

    #[test]
    fn what_is_not_finite_is_sent_first() {
        let back = decoded(&[1.0, f32::NAN, 1e30, f32::NEG_INFINITY], 2);
        assert!(back[1].is_nan() && back[3] == f32::NEG_INFINITY && back[2] == 0.0, "{back:?}");
    }

    #[test]
    fn one_percent_of_a_gradient_takes_a_hundredth_of_its_bytes() {
        let values: Vec<f32> = (0..100_000).map(|i| (i as f32).powf(1.5).sin()).collect();
        let count = count(0.01, values.len());
        let mut bytes = Vec::new();
        encode(&values, count, &mut bytes);
        assert!(bytes.len() < 4 * values.len() / 100, "{}", bytes.len());
    }

    #[test]
    fn indices_out_of_range_and_wrong_lengths_are_refused() {
        let mut bytes = Vec::new();
        encode(&[1.0, 2.0, 3.0, 4.0, 5.0], 2, &mut bytes);
        let mut back = [0.0; 5];
        decode(&bytes, 2, &mut back).unwrap();
        for count in [0, 1, 3, 5] {
            assert!(decode(&bytes, count, &mut back).is_err(), "{count}");
        }
        assert!(decode(&bytes[1..], 2, &mut back).is_err());
        let high: Vec<u8> = bytes.iter().map(|_| 255).collect();
        assert!(decode(&high, 2, &mut back).is_err());
    }
}
