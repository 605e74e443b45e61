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
                let hash = (seed ^ i).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
                let unit = f64::from(hash) / f64::from(u32::MAX) - 0.5;
                if is_zero { 0.0 } else { (unit * f64::from(exponent).exp2()) as f32 }
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
        assert!(back.iter().all(|back| back.abs() <= 2.0 * f32::MIN_POSITIVE), "{value}: {back:?}");
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
