use grappa_formats::{
    features::{ElementType, FeatureLayout, row_stride},
    manifest::FeatureDtype,
};
use half::{bf16, f16};
use proptest::prelude::*;

const DTYPES: [FeatureDtype; 4] = [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16, FeatureDtype::Int8];

/// The codec of the specification, one value at a time.
fn naive_row(dtype: FeatureDtype, values: &[f32]) -> Vec<u8> {
    match dtype {
        FeatureDtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        FeatureDtype::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        FeatureDtype::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        FeatureDtype::Int8 => {
            let finite = values.iter().map(|v| v.abs()).filter(|v| v.is_finite());
            let mut scale = finite.fold(0.0, f32::max) / 127.0;
            while (127.0 * scale).is_infinite() {
                scale = scale.next_down();
            }
            let quantum = |v: f32| match v {
                _ if scale == 0.0 || v.is_nan() => 0,
                v => (v / scale).round_ties_even().clamp(-127.0, 127.0) as i8,
            };
            let quanta = values.iter().map(|&v| quantum(v) as u8);
            scale.to_le_bytes().into_iter().chain(quanta).collect()
        }
    }
}

fn naive_values(dtype: FeatureDtype, row: &[u8]) -> Vec<f32> {
    let pairs = || row.chunks(2).map(|b| [b[0], b[1]]);
    match dtype {
        FeatureDtype::F32 => row.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        FeatureDtype::F16 => pairs().map(|b| f16::from_le_bytes(b).to_f32()).collect(),
        FeatureDtype::Bf16 => pairs().map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
        FeatureDtype::Int8 => {
            let scale = f32::from_le_bytes(row[..4].try_into().unwrap());
            row[4..].iter().map(|&q| scale * f32::from(q as i8)).collect()
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    // Any NaN is accepted.
    values.iter().map(|v| if v.is_nan() { !0 } else { v.to_bits() }).collect()
}

proptest! {
    #[test]
    fn rows_are_those_of_the_naive_codec(
        dtype in prop::sample::select(&DTYPES[..]),
        values in prop::collection::vec(prop_oneof![8 => -100.0..100.0f32, 1 => any::<u32>().prop_map(f32::from_bits)], 1..200),
    ) {
        let layout = FeatureLayout::new(dtype, values.len() as u32);
        let mut row = vec![0xee; layout.stride as usize];
        layout.encode_row(&values, &mut row);
        let naive = naive_row(dtype, &values);
        prop_assert_eq!(bits(&naive_values(dtype, &row[..naive.len()])), bits(&naive_values(dtype, &naive)));
        prop_assert!(row[naive.len()..].iter().all(|&byte| byte == 0));
        prop_assert!(layout.check_rows(&row, 0, false).is_ok());
        let mut decoded = vec![0.0; values.len()];
        layout.decode_row(&row, &mut decoded);
        prop_assert_eq!(bits(&decoded), bits(&naive_values(dtype, &row[..naive.len()])));
        let lost = decoded.iter().zip(&values).filter(|(d, v)| !v.is_finite() || !d.is_finite()).count();
        prop_assert_eq!(layout.unstorable(&values), lost);
        let (mut sums, mut expected) = (values.clone(), values);
        layout.add_row(&row, &mut sums);
        expected.iter_mut().zip(decoded).for_each(|(sum, value)| *sum += value);
        prop_assert_eq!(bits(&sums), bits(&expected));
    }

    #[test]
    fn int8_is_off_by_half_a_quantum_at_most(values in prop::collection::vec(-1e3..1e3f32, 1..100)) {
        let layout = FeatureLayout::new(FeatureDtype::Int8, values.len() as u32);
        let (mut row, mut decoded) = (vec![0; layout.stride as usize], vec![0.0; values.len()]);
        layout.encode_row(&values, &mut row);
        layout.decode_row(&row, &mut decoded);
        let max = values.iter().fold(0f32, |max, v| max.max(v.abs()));
        for (value, decoded) in values.iter().zip(decoded) {
            prop_assert!((value - decoded).abs() <= max / 254.0 * 1.0001, "{} became {}", value, decoded);
        }
    }

    #[test]
    fn a_stride_costs_no_more_than_any_other(dim in 1u32..3000, dtype in prop::sample::select(&DTYPES[..])) {
        let row = u64::from(dtype.row_bytes(dim));
        let cost = |stride: u64| (0..1024).map(|r| (r * stride + row - 1) / 4096 - r * stride / 4096 + 1).sum::<u64>() * stride;
        let chosen = u64::from(row_stride(dtype, dim));
        prop_assert!(chosen >= row && chosen.is_multiple_of(4) && (chosen - row <= row / 8 || chosen - row < 4));
        for stride in (row.next_multiple_of(4)..=row + row / 8).step_by(4) {
            prop_assert!(cost(chosen) <= cost(stride), "{} instead of {} for rows of {}", chosen, stride, row);
        }
    }
}

#[test]
fn strides_avoid_page_boundaries_if_padding_is_small() {
    let strides =
        [(250, 1000, 1024), (128, 512, 512), (1433, 5732, 6144), (100, 400, 400), (1, 4, 4), (768, 3072, 3072)];
    for (dim, bytes, stride) in strides {
        assert_eq!(FeatureDtype::F32.row_bytes(dim), bytes);
        assert_eq!(row_stride(FeatureDtype::F32, dim), stride, "rows of {bytes} bytes");
    }
    assert_eq!(row_stride(FeatureDtype::F16, 1), 4);
    assert_eq!(row_stride(FeatureDtype::F16, 500), 1024);
    assert_eq!(row_stride(FeatureDtype::Int8, 1433), 1536);
    assert_eq!(row_stride(FeatureDtype::Int8, 1021), 1028);
}

/// All 65,536 values keep their bits on the way through f32, apart from NaNs.
#[test]
fn f16_values_keep_their_bits() {
    let source: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for (from, to) in [(ElementType::F16, FeatureDtype::F16), (ElementType::Bf16, FeatureDtype::Bf16)] {
        let layout = FeatureLayout::new(to, 1 << 16);
        let (mut values, mut row) = (vec![0.0; 1 << 16], vec![0; layout.stride as usize]);
        from.to_f32(&source, &mut values);
        layout.encode_row(&values, &mut row);
        for ((value, before), after) in values.iter().zip(source.chunks(2)).zip(row.chunks(2)) {
            assert!(before == after || value.is_nan(), "{value}: {before:?}, {after:?}");
        }
    }
}

#[test]
fn every_f16_decodes_as_in_the_naive_codec() {
    let source: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for dtype in [FeatureDtype::F16, FeatureDtype::Bf16] {
        let layout = FeatureLayout::new(dtype, 1 << 16);
        let mut values = vec![0.0; 1 << 16];
        layout.decode_row(&source, &mut values);
        assert_eq!(bits(&values), bits(&naive_values(dtype, &source)));
    }
}

#[test]
fn many_rows_convert_as_single_rows_do() {
    for dtype in DTYPES {
        let layout = FeatureLayout::new(dtype, 5);
        let values: Vec<f32> = (0..35).map(|i| i as f32 - 12.5).collect();
        let mut rows = vec![1; 7 * layout.stride as usize];
        layout.encode_rows(&values, &mut rows);
        let mut decoded = vec![0.0; 35];
        layout.decode_rows(&rows, &mut decoded);
        for (i, row) in rows.chunks(layout.stride as usize).enumerate() {
            let mut one = [0.0; 5];
            layout.decode_row(row, &mut one);
            assert_eq!(one, decoded[5 * i..5 * i + 5]);
        }
        if dtype != FeatureDtype::Int8 {
            assert_eq!(decoded, values);
        }
    }
}

#[test]
fn other_types_are_converted_to_f32() {
    let converted = |dtype: ElementType, source: &[u8]| {
        let mut values = [0.0; 3];
        dtype.to_f32(source, &mut values);
        values
    };
    let bytes = |values: [i64; 3], width: usize| {
        values.iter().flat_map(|v| v.to_le_bytes()[..width].to_vec()).collect::<Vec<_>>()
    };
    for (dtype, width) in [(ElementType::I8, 1), (ElementType::I16, 2), (ElementType::I32, 4), (ElementType::I64, 8)] {
        assert_eq!(converted(dtype, &bytes([-1, 0, 100], width)), [-1.0, 0.0, 100.0]);
    }
    for (dtype, width) in [(ElementType::U8, 1), (ElementType::U16, 2), (ElementType::U32, 4), (ElementType::U64, 8)] {
        let max = (1u128 << (8 * width)) as f32;
        let values = converted(dtype, &bytes([-1, 0, 100], width));
        assert!(values[0] > 0.99 * max && values[0] <= max && values[1..] == [0.0, 100.0]);
    }
    let doubles: Vec<u8> = [0.1f64, -2.0, 1e300].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(converted(ElementType::F64, &doubles), [0.1, -2.0, f32::INFINITY]);
    let halves: Vec<u8> = [0.5, -2.0, 65504.0].iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
    assert_eq!(converted(ElementType::F16, &halves), [0.5, -2.0, 65504.0]);
}

#[test]
fn int8_takes_what_is_not_finite_as_near_as_it_can() {
    let layout = FeatureLayout::new(FeatureDtype::Int8, 4);
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 12.7];
    let (mut row, mut decoded) = ([0; 8], [0.0; 4]);
    layout.encode_row(&values, &mut row);
    layout.decode_row(&row, &mut decoded);
    assert_eq!(decoded, [0.0, 12.7, -12.7, 12.7]);
    assert_eq!(layout.unstorable(&values), 3);
}

/// Edge cases of rounding: ties, the ends of the ranges, subnormals, and each kind of NaN.
#[test]
fn edge_cases_of_rounding_match_the_naive_codec() {
    let edges = [
        0x0000_0000,
        0x0000_0001,
        0x0000_8000,
        0x0001_8000,
        0x007f_ffff,
        0x3380_0000,
        0x3300_0000,
        0x3300_0001,
        0x387f_e000,
        0x3f80_1000,
        0x3f80_3000,
        0x3f80_8000,
        0x3f81_8000,
        0x477f_e000,
        0x477f_efff,
        0x477f_f000,
        0x4780_0000,
        0x7f7f_7fff,
        0x7f7f_8000,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7f80_0001,
        0x7fa0_0000,
        0x7fc0_0000,
        0x7fff_ffff,
    ];
    let edges: Vec<f32> = edges.iter().flat_map(|bits| [*bits, bits | 1 << 31]).map(f32::from_bits).collect();
    for dtype in DTYPES {
        // Each value in its own row, because the values of an int8 row share a scale.
        let layout = FeatureLayout::new(dtype, 1);
        for value in &edges {
            let (mut row, mut decoded) = (vec![0; layout.stride as usize], [0.0]);
            layout.encode_row(&[*value], &mut row);
            layout.decode_row(&row, &mut decoded);
            let naive = naive_values(dtype, &naive_row(dtype, &[*value]));
            assert_eq!(bits(&decoded), bits(&naive), "{value:e} in {}", dtype.name());
            let lost = usize::from(!value.is_finite() || !decoded[0].is_finite());
            assert_eq!(layout.unstorable(&[*value]), lost, "{value:e} in {}", dtype.name());
        }
    }
}
