//! The functions that follow a linear layer, value by value: relu and dropout, forward and backward.
//!
//! NaN stays NaN, as in PyTorch: relu replaces values of at most 0, and a dropped NaN or infinity becomes NaN.

use std::sync::Arc;

use grappa_formats::random;

use crate::{
    element::Element,
    parallel::{ROWS, for_each, in_parts},
};

/// Relu, then dropout. Both are optional.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Epilogue {
    /// Whether to replace negative values by 0. NaN stays.
    pub relu: bool,
    /// The dropout, after relu.
    pub dropout: Option<Dropout>,
}

/// Dropout with a mask that is a function of a key and of the row and column of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    /// Probability that a value becomes 0, in [0, 1). The others are divided by (1 - probability), which keeps the expectation.
    pub probability: f64,
    /// Decides the mask, together with the places of values.
    pub key: u64,
    /// The names of the rows, if the mask of a row is a function of its name and not of its place.
    pub names: Option<RowNames>,
}

/// A number for each row.
pub type RowNames = Arc<[u64]>;

impl Epilogue {
    /// Neither relu nor dropout.
    pub const NONE: Self = Self { relu: false, dropout: None };

    /// Relu alone.
    pub const RELU: Self = Self { relu: true, dropout: None };

    /// Computes the results of a row in its place.
    pub fn forward(&self, row: usize, values: &mut [f32]) {
        if self.relu {
            values.iter_mut().for_each(|value| *value = relu(*value));
        }
        if let Some(dropout) = &self.dropout {
            let mask = dropout.row(row);
            for (column, value) in values.iter_mut().enumerate() {
                *value *= mask.factor(column);
            }
        }
    }

    /// Computes the results of all rows of `columns` values.
    pub fn forward_all<T: Element>(&self, columns: usize, values: &[T], results: &mut [T]) {
        for_each(in_parts(columns, values, results).enumerate().collect(), |(part, (values, results))| {
            let mut row = vec![0.0; columns];
            let rows = values.chunks(columns).zip(results.chunks_mut(columns));
            for (at, (values, results)) in rows.enumerate() {
                widen(values, &mut row);
                self.forward(part * ROWS + at, &mut row);
                narrow(&row, results);
            }
        });
    }

    /// Computes the gradients of all rows from the gradients of their results. As [`Epilogue::backward`].
    pub fn backward_all<T: Element>(&self, columns: usize, results: &[T], of_results: &[T], gradient: &mut [T]) {
        assert_eq!(results.len(), of_results.len(), "matrices of the same shape");
        for_each(in_parts(columns, results, gradient).enumerate().collect(), |(part, (results, gradient))| {
            let of_results = &of_results[part * ROWS * columns..][..results.len()];
            let mut row = vec![0.0; columns];
            let rows = results.chunks(columns).zip(of_results.chunks(columns)).zip(gradient.chunks_mut(columns));
            for (at, ((results, of_results), gradient)) in rows.enumerate() {
                widen(of_results, &mut row);
                self.backward(part * ROWS + at, results, &mut row);
                narrow(&row, gradient);
            }
        });
    }

    /// Replaces the gradient of a row's results by the gradient of its values. `results` are from [`Epilogue::forward`]. Only relu needs
    /// them; without it they may be empty.
    pub fn backward<T: Element>(&self, row: usize, results: &[T], gradient: &mut [f32]) {
        match (self.relu, &self.dropout) {
            (false, None) => {}
            // A result is positive if the value was positive and was not dropped.
            (true, dropout) => {
                let scale = dropout.as_ref().map_or(1.0, Dropout::scale);
                let mut has_nan = false;
                for (gradient, result) in gradient.iter_mut().zip(results) {
                    let result = result.to_f32();
                    has_nan |= result.is_nan();
                    *gradient = if result <= 0.0 { 0.0 } else { *gradient * scale };
                }
                // A NaN result does not tell whether the value was dropped, so the mask decides.
                if let Some(dropout) = dropout.as_ref().filter(|_| has_nan) {
                    let mask = dropout.row(row);
                    let nans = results.iter().enumerate().filter(|(_, result)| result.to_f32().is_nan());
                    for (column, _) in nans.filter(|(column, _)| mask.factor(*column) == 0.0) {
                        gradient[column] = 0.0;
                    }
                }
            }
            (false, Some(dropout)) => {
                let mask = dropout.row(row);
                for (column, gradient) in gradient.iter_mut().enumerate() {
                    *gradient *= mask.factor(column);
                }
            }
        }
    }
}

/// 0 for negative values, and NaN for NaN.
///
/// If this were one choice between 0 and the value, the compiler would store only the zeros, with a masked store of a vector. That is
/// slow on some AMD processors (Zen 4).
#[inline(always)]
fn relu(value: f32) -> f32 {
    let positive = if value > 0.0 { value } else { 0.0 };
    let nan = if value.is_nan() { f32::NAN.to_bits() } else { 0 };
    f32::from_bits(positive.to_bits() | nan)
}

fn widen<T: Element>(values: &[T], wide: &mut [f32]) {
    for (value, wide) in values.iter().zip(wide) {
        *wide = value.to_f32();
    }
}

pub(crate) fn narrow<T: Element>(values: &[f32], narrowed: &mut [T]) {
    for (value, narrowed) in values.iter().zip(narrowed) {
        *narrowed = T::from_f32(*value);
    }
}

impl Dropout {
    fn scale(&self) -> f32 {
        (1.0 - self.probability).recip() as f32
    }

    fn row(&self, row: usize) -> Mask {
        let name = self.names.as_ref().map_or(row as u64, |names| names[row]);
        let key = random::combine(self.key, random::mix(name));
        Mask { key: key as u32, threshold: (self.probability * 2f64.powi(32)) as u32, scale: self.scale() }
    }
}

struct Mask {
    key: u32,
    threshold: u32,
    scale: f32,
}

impl Mask {
    /// The factor of a value: 0 if it is dropped. Mixes bits with the finalizer of MurmurHash3, which is six vector instructions.
    #[inline(always)]
    fn factor(&self, column: usize) -> f32 {
        let mut bits = self.key ^ (column as u32).wrapping_mul(0x9e37_79b1);
        bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
        bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
        bits ^= bits >> 16;
        if bits >= self.threshold { self.scale } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relu_keeps_positive_values_and_nan_and_nothing_else() {
        for value in [1e-40, 2.5, f32::MAX, f32::INFINITY] {
            assert_eq!([value, -value].map(relu), [value, 0.0]);
        }
        assert_eq!([0.0, -0.0].map(|zero| relu(zero).to_bits()), [0, 0]);
        assert!([f32::NAN, -f32::NAN].map(relu).iter().all(|value| value.is_nan()));
    }

    fn kept(probability: f64, key: u64, rows: usize, columns: usize) -> Vec<f32> {
        let mask = Epilogue { relu: false, dropout: Some(Dropout { probability, key, names: None }) };
        let mut values = vec![1.0; rows * columns];
        for (row, values) in values.chunks_mut(columns).enumerate() {
            mask.forward(row, values);
        }
        values
    }

    #[test]
    fn as_many_are_dropped_as_asked_and_the_others_make_up_for_it() {
        for probability in [0.0, 0.1, 0.5, 0.9] {
            let values = kept(probability, 5, 1000, 100);
            let dropped = values.iter().filter(|value| **value == 0.0).count() as f64 / 1e5;
            // Four standard deviations.
            let tolerance = 4.0 * (probability * (1.0 - probability) / 1e5).sqrt();
            assert!((dropped - probability).abs() <= tolerance, "{dropped} of {probability}");
            let scale = (1.0 / (1.0 - probability)) as f32;
            assert!(values.iter().all(|&value| value == 0.0 || value == scale));
        }
    }

    #[test]
    fn masks_of_rows_columns_and_keys_are_independent() {
        let values = kept(0.5, 7, 1000, 100);
        let other = kept(0.5, 8, 1000, 100);
        let both = |a: &[f32], b: &[f32]| {
            let count = a.iter().zip(b).filter(|(a, b)| **a > 0.0 && **b > 0.0).count();
            count as f64 / a.len() as f64
        };
        for (name, part) in [
            ("keys", both(&values, &other)),
            ("rows", both(&values[100..], &values[..values.len() - 100])),
            ("columns", both(&values[1..], &values[..values.len() - 1])),
        ] {
            assert!((part - 0.25).abs() < 0.006, "{name}: {part}");
        }
    }

    #[test]
    fn a_named_row_has_the_same_mask_in_every_place() {
        let mask = |names: [u64; 3]| {
            let dropout = Dropout { probability: 0.5, key: 9, names: Some(names.into()) };
            let epilogue = Epilogue { relu: false, dropout: Some(dropout) };
            [0, 1, 2].map(|row| {
                let mut values = [1.0; 64];
                epilogue.forward(row, &mut values);
                values
            })
        };
        let (first, second) = (mask([7, 1 << 40, 3]), mask([3, 7, 1 << 40]));
        assert_eq!([first[0], first[1], first[2]], [second[1], second[2], second[0]]);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn the_backward_pass_multiplies_by_what_the_forward_pass_did() {
        let dropout = Some(Dropout { probability: 0.4, key: 3, names: None });
        for (relu, dropout) in [(false, None), (true, None), (false, dropout.clone()), (true, dropout)] {
            let epilogue = Epilogue { relu, dropout };
            let values: Vec<f32> = (0..50).map(|i| (i as f32 - 20.5) / 4.0).collect();
            let mut results = values.clone();
            epilogue.forward(9, &mut results);
            let mut gradient = vec![1.0; 50];
            epilogue.backward(9, &results, &mut gradient);
            // Each step is linear where it is not 0, so the gradient is result over value.
            for ((value, result), gradient) in values.iter().zip(&results).zip(&gradient) {
                assert!((gradient - result / value).abs() < 1e-6, "{epilogue:?} at {value}");
            }
        }
    }
}
