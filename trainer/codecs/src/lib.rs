//! Encodings of gradients, for the messages of processes that train together.
//!
//! A [`Dense`] encoding has every value. [`top_k`] has the values of the largest magnitude, and their indices. Encodings that lose
//! digits are for error feedback (Seide, Fu, Droppo, Li, Yu: "1-bit stochastic gradient descent", 2014): the sender keeps the
//! difference to what it sent and adds it to the next gradient.
//!
//! ```text
//!             bytes of n values                       loses
//! bf16        2 n                                     the last 16 of 24 digits
//! int8        n + 4 n / 1024                          differences up to 1/254 of a block's largest magnitude
//! lossless    about 3.5 n, at most 4 n + 32           nothing
//! top-k       k (16 + 2 + log2(n / k)) bits           all other values, and digits as bf16
//! ```
//!
//! All take a few nanoseconds per value.
//!
//! Encodings are not files: both ends are the same version of the program, which they check when they meet. NaN and infinities are not
//! lost: the values that are decoded for them are not finite.

#![forbid(unsafe_code)]

mod bf16;
mod indices;
mod int8;
mod lossless;
mod malformed;
pub mod top_k;

pub use self::malformed::Malformed;

/// An encoding of all values of a gradient, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dense {
    /// Each value as bf16, rounded to nearest.
    Bf16,
    /// Each value as an integer from -127 to 127, times a scale per block of 1024 values.
    Int8,
    /// Each value as it is; exponents, signs and digits are entropy-coded apart from each other.
    Lossless,
}

impl Dense {
    /// The bytes of an encoding of `values` values. None if they depend on the values.
    pub fn encoded_bytes(self, values: usize) -> Option<usize> {
        match self {
            Self::Bf16 => Some(bf16::encoded_bytes(values)),
            Self::Int8 => Some(int8::encoded_bytes(values)),
            Self::Lossless => None,
        }
    }

    /// Whether decoded values differ from those that were encoded so much that the sender keeps the difference for its next gradient.
    pub fn needs_feedback(self) -> bool {
        self == Self::Int8
    }

    /// Appends the encoding of values.
    pub fn encode(self, values: &[f32], out: &mut Vec<u8>) {
        match self {
            Self::Bf16 => bf16::encode(values, out),
            Self::Int8 => int8::encode(values, out),
            Self::Lossless => lossless::encode(values, out),
        }
    }

    /// Replaces values by those of an encoding.
    ///
    /// # Errors
    /// If these bytes do not encode `values.len()` values. The values are then undefined.
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) -> Result<(), Malformed> {
        match self {
            Self::Bf16 => bf16::decode(bytes, values),
            Self::Int8 => int8::decode(bytes, values),
            Self::Lossless => lossless::decode(bytes, values),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Dense; 3] = [Dense::Bf16, Dense::Int8, Dense::Lossless];

    fn encoded(codec: Dense, values: &[f32]) -> Vec<u8> {
        let mut bytes = vec![7];
        codec.encode(values, &mut bytes);
        assert_eq!(bytes.remove(0), 7, "an encoding is appended");
        bytes
    }

    fn decoded(codec: Dense, values: &[f32]) -> Vec<f32> {
        let mut back = vec![5.0; values.len()];
        codec.decode(&encoded(codec, values), &mut back).unwrap();
        back
    }

    /// Gradients of any length, with parts that are zero, and magnitudes that differ from part to part.
    fn gradients() -> impl Strategy<Value = Vec<f32>> {
        let part =
            (-40_i32..40, 0_usize..1500, any::<bool>(), any::<u32>()).prop_map(|(exponent, count, is_zero, seed)| {
                let value = |i: u32| {
                    let hash = (seed ^ i)
                        .wrapping_mul(0x9e37_79b9)
                        .rotate_left(13)
                        .wrapping_mul(0x85eb_ca6b);
                    let unit = f64::from(hash) / f64::from(u32::MAX) - 0.5;
                    if is_zero {
                        0.0
                    } else {
                        (unit * f64::from(exponent).exp2()) as f32
                    }
                };
                (0..count as u32).map(value).collect::<Vec<_>>()
            });
        proptest::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn a_gradient_comes_back_with_as_many_digits_as_its_encoding_has(values in gradients()) {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&decoded(Dense::Lossless, &values)), bits(&values));
            for (value, back) in values.iter().zip(decoded(Dense::Bf16, &values)) {
                prop_assert!((value - back).abs() <= value.abs() / 256.0, "{} {}", value, back);
            }
            let back = decoded(Dense::Int8, &values);
            for (block, back) in values.chunks(1024).zip(back.chunks(1024)) {
                let largest = block.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                for (value, back) in block.iter().zip(back) {
                    prop_assert!((value - back).abs() <= largest / 253.0, "{} {}", value, back);
                }
            }
        }

        #[test]
        fn the_length_of_an_encoding_is_as_announced(values in gradients()) {
            for codec in ALL {
                let bytes = encoded(codec, &values).len();
                prop_assert_eq!(codec.encoded_bytes(values.len()).unwrap_or(bytes), bytes);
                prop_assert!(bytes <= 4 * values.len() + 32);
            }
        }

        #[test]
        fn lossless_keeps_the_bits_of_any_values(bits in proptest::collection::vec(any::<u32>(), 0..3000)) {
            let values: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let back = decoded(Dense::Lossless, &values);
            prop_assert!(bits.iter().zip(back).all(|(bits, back)| *bits == back.to_bits()));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), count in 0_usize..100) {
            let mut values = vec![0.0; count];
            for codec in ALL {
                let _ = codec.decode(&bytes, &mut values);
            }
            let _ = top_k::decode(&bytes, count / 3, &mut values);
        }
    }

    #[test]
    fn what_is_not_finite_is_not_finite_when_it_arrives() {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 3000];
            values[1500] = wrong;
            for codec in ALL {
                let back = decoded(codec, &values);
                assert!(!back[1500].is_finite(), "{codec:?} {wrong}");
                assert_eq!(back[0], 1.0, "{codec:?}");
                assert_eq!(back[2999], 1.0, "{codec:?}");
            }
        }
    }

    #[test]
    fn the_smallest_numbers_are_no_division_by_zero() {
        let tiny = f32::from_bits(1);
        for value in [tiny, -tiny, f32::MIN_POSITIVE, -0.0] {
            let back = decoded(Dense::Int8, &[value, 0.0]);
            assert!(
                back.iter().all(|back| back.abs() <= 2.0 * f32::MIN_POSITIVE),
                "{value}: {back:?}"
            );
        }
    }

    #[test]
    fn encodings_of_another_length_are_refused() {
        let values: Vec<f32> = (0..2000).map(|i| (i as f32).sin()).collect();
        for codec in ALL {
            let mut bytes = encoded(codec, &values);
            let mut back = vec![0.0; 2000];
            assert!(codec.decode(&bytes, &mut back[1..]).is_err(), "{codec:?}");
            bytes.push(0);
            assert!(codec.decode(&bytes, &mut back).is_err(), "{codec:?}");
            bytes.truncate(bytes.len() - 2);
            assert!(codec.decode(&bytes, &mut back).is_err(), "{codec:?}");
            assert!(codec.decode(&[], &mut back).is_err(), "{codec:?}");
        }
    }
}
