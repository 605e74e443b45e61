//! The dense part of layers in our loops equals libtorch's operators.

use half::bf16;
use tch::{Kind, Tensor};

use super::{assert_close, assert_close_or_special, assert_each, random, with_specials};
use crate::nn::{
    backend::Backend,
    linear::{Dropout, Epilogue, linear_with},
};

fn epilogues() -> impl Iterator<Item = Epilogue> {
    let dropout = Some(Dropout { probability: 0.3, key: 11, names: None });
    [(false, None), (true, None), (false, dropout.clone()), (true, dropout)]
        .into_iter()
        .map(|(relu, dropout)| Epilogue { relu, dropout })
}

/// Numbers that bf16 holds exactly, so that it does not round what goes in.
fn numbers(seed: i64, shape: &[i64]) -> Tensor {
    random(seed, shape).to_kind(Kind::BFloat16).to_kind(Kind::Float)
}

/// Result and gradients of rows, weights and bias.
fn run(backend: Backend, kind: Kind, shape: (i64, i64, i64), bias: bool, epilogue: Epilogue) -> Vec<Tensor> {
    run_of(&numbers, backend, kind, shape, bias, epilogue)
}

/// The same, of rows that `first` makes.
fn run_of(
    first: &dyn Fn(i64, &[i64]) -> Tensor,
    backend: Backend,
    kind: Kind,
    shape: (i64, i64, i64),
    bias: bool,
    epilogue: Epilogue,
) -> Vec<Tensor> {
    let (rows, inputs, outputs) = shape;
    let leaf = |seed, shape: &[i64], kind| numbers(seed, shape).to_kind(kind).set_requires_grad(true);
    let special = first(1, &[rows, inputs]).to_kind(kind).set_requires_grad(true);
    let x = [special, leaf(2, &[rows, inputs + 1], kind)];
    let weights = [leaf(3, &[outputs, inputs], Kind::Float), leaf(4, &[outputs, inputs + 1], Kind::Float)];
    let bias = bias.then(|| leaf(5, &[outputs], Kind::Float));
    let terms = [(&x[0], &weights[0]), (&x[1], &weights[1])];
    let result = linear_with(backend, &terms, bias.as_ref(), epilogue.clone());
    (&result * numbers(6, &[rows, outputs]).to_kind(kind)).sum(Kind::Float).backward();
    let leaves = x.iter().chain(&weights).chain(&bias);
    leaves.map(Tensor::grad).chain([result.detach()]).collect()
}

#[test]
fn loops_equal_operators_forward_and_backward() {
    for shape in [(1, 1, 1), (7, 16, 16), (200, 20, 40), (97, 128, 128), (2000, 3, 70), (0, 4, 5)] {
        for bias in [false, true] {
            for epilogue in epilogues() {
                let expected = run(Backend::Operators, Kind::Float, shape, bias, epilogue.clone());
                for instructions in super::instructions() {
                    let actual = run(Backend::With(instructions), Kind::Float, shape, bias, epilogue.clone());
                    let case = format!("{shape:?} bias {bias} {epilogue:?}, {instructions:?}");
                    assert_each(assert_close, &actual, &expected, 2e-6, &case);
                }
            }
        }
    }
}

#[test]
fn nan_and_infinities_go_where_operators_take_them() {
    let numbers = |seed, shape: &[i64]| with_specials(&numbers(seed, shape));
    for shape in [(7, 16, 16), (97, 128, 128), (2000, 3, 70)] {
        for epilogue in epilogues() {
            let expected = run_of(&numbers, Backend::Operators, Kind::Float, shape, true, epilogue.clone());
            for instructions in super::instructions() {
                for (kind, tolerance) in [(Kind::Float, 2e-6), (Kind::BFloat16, f64::INFINITY)] {
                    let actual = run_of(&numbers, Backend::With(instructions), kind, shape, true, epilogue.clone());
                    let case = format!("{shape:?} {epilogue:?}, {instructions:?}, {kind:?}");
                    assert_each(assert_close_or_special, &actual, &expected, tolerance, &case);
                }
            }
        }
    }
}

#[test]
fn loops_of_bf16_equal_operators_but_for_rounding() {
    for shape in [(1, 1, 1), (200, 20, 40), (97, 127, 128), (2000, 3, 70)] {
        for epilogue in epilogues() {
            let expected = run(Backend::Operators, Kind::Float, shape, true, epilogue.clone());
            for instructions in super::instructions() {
                let actual = run(Backend::With(instructions), Kind::BFloat16, shape, true, epilogue.clone());
                for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                    // Where a sum is nearly 0, rounding may turn its relu: judge by the mean.
                    let difference = (actual - expected).abs().mean(Kind::Float).double_value(&[]);
                    let scale = expected.abs().mean(Kind::Float).double_value(&[]);
                    assert!(
                        difference <= 0.02 * scale,
                        "{i} of {shape:?} {epilogue:?}, {instructions:?}: {difference} of {scale}"
                    );
                }
            }
        }
    }
}

#[test]
fn loops_that_skip_zeros_equal_operators() {
    let sparse = |seed, shape: &[i64]| {
        let numbers = numbers(seed, shape);
        // One value in 15.
        &numbers * numbers.gt(1.5).to_kind(Kind::Float)
    };
    let with_specials = |seed, shape: &[i64]| with_specials(&sparse(seed, shape));
    for shape in [(1, 64, 1), (97, 130, 16), (2000, 300, 70), (3300, 100, 256)] {
        for epilogue in epilogues() {
            let run = |first, backend, kind| run_of(first, backend, kind, shape, true, epilogue.clone());
            for first in [&sparse as &dyn Fn(i64, &[i64]) -> Tensor, &with_specials] {
                let expected = run(first, Backend::Operators, Kind::Float);
                for instructions in super::instructions() {
                    for (kind, tolerance) in [(Kind::Float, 4e-6), (Kind::BFloat16, f64::INFINITY)] {
                        let actual = run(first, Backend::With(instructions), kind);
                        let case = format!("{shape:?} {epilogue:?}, {instructions:?}, {kind:?}");
                        assert_each(assert_close_or_special, &actual, &expected, tolerance, &case);
                    }
                }
            }
        }
    }
}

#[test]
fn only_required_gradients_are_computed() {
    let x = random(1, &[10, 4]);
    let weight = random(2, &[3, 4]).set_requires_grad(true);
    let result = linear_with(Backend::Fastest, &[(&x, &weight)], None, Epilogue::NONE);
    result.sum(Kind::Float).backward();
    assert!(!x.grad().defined());
    let expected = x.sum_dim_intlist([0i64].as_slice(), true, Kind::Float).expand([3, 4], false);
    assert_close(&weight.grad(), &expected, 1e-6, "gradient of the weight");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let threads = tch::get_num_threads() as usize;
    let run = |threads| {
        crate::runtime::set_threads(threads);
        run(Backend::Fastest, Kind::Float, (5000, 20, 40), true, Epilogue { relu: true, dropout: None })
    };
    let (one, three) = (run(1), run(3));
    crate::runtime::set_threads(threads);
    assert_eq!(one, three);
}

#[test]
fn bf16_is_rounded_to_the_nearest() {
    use grappa_kernels::Element;
    for value in [0.0, -0.0, 1.0, 1.003_906_3, 1.001_953_1, -3.999_999, 3.4e38, f32::INFINITY, 1e-40] {
        assert_eq!(<bf16 as Element>::from_f32(value).to_bits(), bf16::from_f32(value).to_bits(), "{value}");
    }
    assert!(<bf16 as Element>::from_f32(f32::NAN).is_nan());
}
