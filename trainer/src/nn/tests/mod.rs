//! Layers and models against arrays of PyTorch Geometric, and against other ways to compute the same result.

mod aggregation;
mod attention;
mod decoder;
mod fixture;
mod linear;
mod models;
mod parameters;
mod training;
mod typed;

use std::f32::consts::TAU;

use grappa_formats::random::SplitMix64;
use grappa_kernels::Instructions;
use tch::{Kind, Tensor};

use crate::runtime::{self, Cuda};

/// The devices to test on. Records a skipped part if there is no CUDA.
fn devices() -> Vec<tch::Device> {
    if let Cuda::Unusable { reason } = runtime::cuda() {
        grappa_skip::skip_part!("CUDA: {reason}");
    }
    runtime::devices()
}

/// All instructions of this processor, plain code first. Records the others as skipped.
fn instructions() -> Vec<Instructions> {
    let [has, lacks] = Instructions::all();
    for one in lacks {
        grappa_skip::skip_part!("this processor has no {one:?}");
    }
    has
}

/// Normally distributed numbers. They do not come from libtorch's generator, because all threads share that.
pub(super) fn random(seed: i64, shape: &[i64]) -> Tensor {
    let mut draws = SplitMix64::new(seed.cast_unsigned());
    let mut uniform = || (draws.draw() >> 40) as f32 / (1 << 24) as f32;
    let count: i64 = shape.iter().product();
    // The transform of Box and Muller.
    let numbers: Vec<f32> =
        (0..count).map(|_| (-2.0 * (1.0 - uniform()).ln()).sqrt() * (TAU * uniform()).cos()).collect();
    Tensor::from_slice(&numbers).view(shape)
}

/// Numbers, some of them NaN or infinite. These are in few rows.
fn with_specials(numbers: &Tensor) -> Tensor {
    let numbers = numbers.copy();
    let count = numbers.numel() as i64;
    let flat = numbers.view(-1);
    for (place, special) in
        [(1, f64::NAN), (count / 2, f64::INFINITY), (count / 2 + 1, f64::NEG_INFINITY), (count - 1, f64::NAN)]
    {
        let _ = flat.get(place.min(count - 1)).fill_(special);
    }
    numbers
}

/// Asserts that each of some results is close to the expected one, by [`assert_close`] or [`assert_close_or_special`].
#[track_caller]
pub(super) fn assert_each(
    assert: fn(&Tensor, &Tensor, f64, &str),
    actual: &[Tensor],
    expected: &[Tensor],
    tolerance: f64,
    case: &str,
) {
    assert_eq!(actual.len(), expected.len(), "results of {case}");
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert(actual, expected, tolerance, &format!("{index} of {case}"));
    }
}

/// As [`assert_close`], for what may not be finite: NaN where NaN is expected, the same infinities, and the rest close.
#[track_caller]
fn assert_close_or_special(actual: &Tensor, expected: &Tensor, tolerance: f64, case: &str) {
    assert_eq!(actual.size(), expected.size(), "shape of {case}");
    let special = |tensor: &Tensor| {
        let tensor = tensor.detach();
        [tensor.isnan(), tensor.isposinf(), tensor.isneginf()]
    };
    for (name, (actual, expected)) in
        ["NaN", "infinity", "-infinity"].iter().zip(special(actual).iter().zip(&special(expected)))
    {
        let (found, wanted) = (actual.sum(Kind::Int64).int64_value(&[]), expected.sum(Kind::Int64).int64_value(&[]));
        assert!(actual == expected, "{case} has {found} {name} and not {wanted}, or elsewhere");
    }
    let finite = |tensor: &Tensor| tensor.detach().nan_to_num(0.0, 0.0, 0.0);
    assert_close(&finite(actual), &finite(expected), tolerance, case);
}

/// Asserts that values are equal up to rounding: within `tolerance` times the largest.
#[track_caller]
pub(super) fn assert_close(actual: &Tensor, expected: &Tensor, tolerance: f64, case: &str) {
    assert_eq!(actual.size(), expected.size(), "shape of {case}");
    let float = |tensor: &Tensor| tensor.detach().to_device(tch::Device::Cpu).to_kind(Kind::Double);
    let (actual, expected) = (float(actual), float(expected));
    if actual.numel() == 0 {
        return;
    }
    let difference = (&actual - &expected).abs().max().double_value(&[]);
    let scale = expected.abs().max().double_value(&[]).max(1.0);
    assert!(difference <= tolerance * scale, "{case} differs by {difference:e} where values go up to {scale:e}");
}
