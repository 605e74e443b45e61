//! Products with rows that have few nonzero values, such as counts of words and one-hot codes. They skip the zeros.
//!
//! ```text
//! for each row x:
//!     find its nonzero values and their columns
//!     forward: sum += each value times the row of the weights for its column
//!     backward: gradient of that row of the weights += the value times the gradient of the sum
//! ```
//!
//! A product of all values reads each value once and does `outputs` multiply-adds for it. This one reads it once too, and does them
//! for nonzero values alone. Sums are formed in the same order, so results of f32 have the same bits. So do gradients with AVX-512.
//!
//! Gradients need the nonzero values again. To find them in wide rows takes as long as the multiply-adds, so the forward pass keeps them.

#![expect(unsafe_code, reason = "vector instructions take pointers")]

use crate::{
    aligned::Aligned,
    element::Element,
    multiply::{Instructions, LANES, multiply_add},
};

/// Rows whose values are counted to tell whether all have few nonzero ones.
const COUNTED_ROWS: usize = 32;
/// A product of single values that skips zeros takes less time if at most one value in this number is not zero.
pub(crate) const FORWARD_SPARSITY: usize = 3;
/// The same for gradients of weights, which are loaded and stored for each nonzero value, and for products of pairs.
pub(crate) const SPARSITY: usize = 8;
/// Columns for which finding the nonzero values pays off.
const WIDTH_MIN: usize = 64;
/// Values that are looked at before deciding whether to look at more.
const FINITE_BLOCK: usize = 1024;
/// Columns that are transposed at a time.
const BLOCK: usize = 16;

/// Whether at most one value in `sparsity` is not zero, of rows of `width` values. Some rows decide. A product of a zero and a weight that
/// is not finite would be NaN, so with such weights the answer is no.
pub(crate) fn is_sparse<T: Element>(rows: &[T], width: usize, weight: &[f32], sparsity: usize) -> bool {
    if width < WIDTH_MIN || rows.is_empty() {
        return false;
    }
    let step = (rows.len() / width).div_ceil(COUNTED_ROWS);
    let (mut nonzeros, mut values) = (0, 0);
    for row in rows.chunks_exact(width).step_by(step) {
        nonzeros += row.iter().filter(|value| value.to_f32() != 0.0).count();
        values += width;
    }
    nonzeros * sparsity <= values && are_finite(weight)
}

/// Whether all values are finite. Without a branch for each, so that the loop uses vectors.
pub(crate) fn are_finite(values: &[f32]) -> bool {
    let mut blocks = values.chunks(FINITE_BLOCK);
    blocks.all(|block| block.iter().fold(true, |all, value| all & value.is_finite()))
}

#[derive(Debug)]
pub(crate) struct Nonzeros {
    width: usize,
    count: usize,
    /// With room for one vector after the values of a whole row.
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl Nonzeros {
    pub(crate) fn of_width(width: usize) -> Self {
        assert!(u32::try_from(width).is_ok(), "{width} columns");
        Self { width, count: 0, columns: vec![0; width + LANES], values: vec![0.0; width + LANES] }
    }

    /// Finds the nonzero values of a row. NaN is not zero.
    pub(crate) fn find<T: Element>(&mut self, instructions: Instructions, row: &[T]) -> NonzeroRow<'_> {
        assert_eq!(row.len(), self.width, "values of a row");
        self.count = 0;
        let (blocks, rest) = row.as_chunks::<LANES>();
        self.find_in_blocks(instructions, blocks);
        self.push(self.width - rest.len(), rest);
        self.row()
    }

    fn find_in_blocks<T: Element>(&mut self, instructions: Instructions, blocks: &[[T; LANES]]) {
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: a value of `Instructions` exists only if the processor has these instructions. There is room for one vector after
            // the nonzero values of a whole row.
            return unsafe { avx512::find(self, blocks) };
        }
        for (block, values) in blocks.iter().enumerate() {
            // Most blocks of sparse rows are zeros.
            if values.iter().fold(false, |any, value| any | (value.to_f32() != 0.0)) {
                self.push(block * LANES, values);
            }
        }
    }

    /// Adds the nonzero values among those from a column on. Without branches, which would be mispredicted.
    fn push<T: Element>(&mut self, first: usize, values: &[T]) {
        for (column, value) in values.iter().enumerate() {
            let value = value.to_f32();
            self.columns[self.count] = (first + column) as u32;
            self.values[self.count] = value;
            self.count += usize::from(value != 0.0);
        }
    }

    /// Takes all values of a row, zeros too.
    pub(crate) fn take_all<T: Element>(&mut self, row: &[T]) -> NonzeroRow<'_> {
        assert_eq!(row.len(), self.width, "values of a row");
        self.count = row.len();
        for (column, value) in row.iter().enumerate() {
            (self.columns[column], self.values[column]) = (column as u32, value.to_f32());
        }
        self.row()
    }

    fn row(&self) -> NonzeroRow<'_> {
        NonzeroRow { width: self.width, columns: &self.columns[..self.count], values: &self.values[..self.count] }
    }
}

/// The nonzero values of consecutive rows of one width.
#[derive(Debug, Default)]
pub struct NonzeroRows {
    /// Values of a row, zeros too. 0 before the first row.
    width: usize,
    /// Where each row ends among the values.
    ends: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl NonzeroRows {
    /// Adds a row. All must have the same width.
    pub(crate) fn push(&mut self, row: NonzeroRow<'_>) {
        assert!(self.ends.is_empty() || row.width == self.width, "rows of one width");
        self.width = row.width;
        self.columns.extend_from_slice(row.columns);
        self.values.extend_from_slice(row.values);
        self.ends.push(self.values.len());
    }

    pub(crate) fn row(&self, row: usize) -> NonzeroRow<'_> {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        NonzeroRow {
            width: self.width,
            columns: &self.columns[start..self.ends[row]],
            values: &self.values[start..self.ends[row]],
        }
    }
}

/// The nonzero values of one row and their columns, which are less than `width`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NonzeroRow<'a> {
    width: usize,
    columns: &'a [u32],
    values: &'a [f32],
}

impl NonzeroRow<'_> {
    fn iter(&self) -> impl Iterator<Item = (usize, f32)> {
        let columns = self.columns.iter().map(|&column| column as usize);
        columns.zip(self.values.iter().copied())
    }

    /// `sums += row weights`, with weights of `[width, sums]`.
    pub(crate) fn add_product(self, instructions: Instructions, weights: &[f32], sums: &mut [f32]) {
        self.check(weights, sums);
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: a value of `Instructions` exists only if the processor has these instructions. Slices are long enough: checked
            // above, and all columns are below the width.
            return unsafe { avx512::add_product(self, weights, sums) };
        }
        let step = sums.len();
        for (strip, sums) in sums.chunks_exact_mut(LANES).enumerate() {
            // As in `multiply`, so that results have the same bits.
            let mut products = [0.0f32; LANES];
            for (column, value) in self.iter() {
                let weights = &weights[column * step + strip * LANES..][..LANES];
                for (product, weight) in products.iter_mut().zip(weights) {
                    *product = multiply_add(value, *weight, *product);
                }
            }
            sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
        }
    }

    /// `weights += rowᵀ gradient`, with weights of `[width, gradient]`.
    pub(crate) fn add_outer(self, instructions: Instructions, gradient: &[f32], weights: &mut [f32]) {
        self.check(weights, gradient);
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: as above.
            return unsafe { avx512::add_outer(self, gradient, weights) };
        }
        let step = gradient.len();
        for (column, value) in self.iter() {
            let weights = &mut weights[column * step..][..step];
            weights.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight += value * gradient);
        }
    }

    fn check(&self, weights: &[f32], outputs: &[f32]) {
        assert!(outputs.len().is_multiple_of(LANES), "{} columns are not padded", outputs.len());
        assert_eq!(weights.len(), self.width * outputs.len(), "weights");
    }
}

/// Weights of `[outputs, inputs]` as `[inputs, columns]`, as rows of type T have them. Columns after the outputs are zeros.
pub(crate) fn by_inputs<T: Element>(weight: &[f32], inputs: usize, columns: usize) -> Aligned<f32> {
    let mut result = Aligned::zeros(inputs * columns);
    transpose(weight, inputs, &mut result, columns, |value| T::from_f32(value).to_f32());
    result
}

/// The inverse of [`by_inputs`] for f32. Empty if `weight` is.
pub(crate) fn by_outputs(weight: &[f32], inputs: usize, outputs: usize) -> Vec<f32> {
    if weight.is_empty() {
        return Vec::new();
    }
    let mut result = vec![0.0; outputs * inputs];
    transpose(weight, weight.len() / inputs, &mut result, inputs, |value| value);
    result
}

/// Writes the rows of a matrix, of `width` values, to the columns of `into`, whose rows have `stride` values. The matrix may have more columns
/// than `into` has rows; these are left out.
pub(crate) fn transpose<A: Copy, B>(rows: &[A], width: usize, into: &mut [B], stride: usize, convert: impl Fn(A) -> B) {
    let columns = into.len() / stride;
    for first in (0..columns).step_by(BLOCK) {
        for (row, values) in rows.chunks_exact(width).enumerate() {
            for (column, value) in values[..columns].iter().enumerate().skip(first).take(BLOCK) {
                into[column * stride + row] = convert(*value);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{LANES, NonzeroRow, Nonzeros};
    use crate::element::Element;

    /// Adds the nonzero values of blocks, which are the first ones of a row.
    ///
    /// # Safety
    /// The processor has the instructions. There is room for a vector after as many values.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn find<T: Element>(row: &mut Nonzeros, blocks: &[[T; LANES]]) {
        let mut places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let (columns, values) = (row.columns.as_mut_ptr(), row.values.as_mut_ptr());
        for block in blocks {
            let block = block.map(T::to_f32);
            // SAFETY: a block has a vector's values, and the caller promises room for one at the end.
            unsafe {
                let block = _mm512_loadu_ps(block.as_ptr());
                let nonzero = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(block, _mm512_setzero_ps());
                _mm512_storeu_epi32(columns.add(row.count).cast(), _mm512_maskz_compress_epi32(nonzero, places));
                _mm512_storeu_ps(values.add(row.count), _mm512_maskz_compress_ps(nonzero, block));
                row.count += nonzero.count_ones() as usize;
            }
            places = _mm512_add_epi32(places, _mm512_set1_epi32(LANES as i32));
        }
    }

    /// # Safety
    /// The processor has the instructions. There are weights for each column, of `sums.len()` values, a multiple of [`LANES`].
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_product(row: NonzeroRow<'_>, weights: &[f32], sums: &mut [f32]) {
        let mut first = 0;
        while first < sums.len() {
            // SAFETY: the caller's promise, for these columns.
            first += unsafe {
                match (sums.len() - first) / LANES {
                    1 => strip::<1>(row, weights, sums, first),
                    2 | 3 => strip::<2>(row, weights, sums, first),
                    4..8 => strip::<4>(row, weights, sums, first),
                    _ => strip::<8>(row, weights, sums, first),
                }
            };
        }
    }

    /// Adds products to `V * LANES` sums, and returns their number.
    ///
    /// # Safety
    /// As above.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn strip<const V: usize>(row: NonzeroRow<'_>, weights: &[f32], sums: &mut [f32], first: usize) -> usize {
        let step = sums.len();
        // SAFETY: these sums exist, and as many weights of each column.
        unsafe {
            let at = sums.as_mut_ptr().add(first);
            let weights = weights.as_ptr().add(first);
            let mut kept = [_mm512_setzero_ps(); V];
            for (i, sum) in kept.iter_mut().enumerate() {
                *sum = _mm512_loadu_ps(at.add(i * LANES));
            }
            for (column, value) in row.iter() {
                let (value, weights) = (_mm512_set1_ps(value), weights.add(column * step));
                for (i, sum) in kept.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(value, _mm512_loadu_ps(weights.add(i * LANES)), *sum);
                }
            }
            for (i, sum) in kept.iter().enumerate() {
                _mm512_storeu_ps(at.add(i * LANES), *sum);
            }
        }
        V * LANES
    }

    /// # Safety
    /// As above, with a gradient instead of sums.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_outer(row: NonzeroRow<'_>, gradient: &[f32], weights: &mut [f32]) {
        let step = gradient.len();
        for (column, value) in row.iter() {
            let value = _mm512_set1_ps(value);
            for first in (0..step).step_by(LANES) {
                // SAFETY: the caller's promise.
                unsafe {
                    let at = weights.as_mut_ptr().add(column * step + first);
                    let gradient = _mm512_loadu_ps(gradient.as_ptr().add(first));
                    _mm512_storeu_ps(at, _mm512_fmadd_ps(value, gradient, _mm512_loadu_ps(at)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::multiply::{Factors, multiply, tests::all_instructions};

    /// Rows in which one value in `one_in` is not zero.
    fn rows(count: usize, width: usize, one_in: usize) -> Vec<f32> {
        let value = |i: usize| match (i * i + i / 7) % one_in {
            0 => (i % 23) as f32 * 0.37 - 4.0,
            _ => 0.0,
        };
        (0..count * width).map(value).collect()
    }

    #[test]
    fn products_without_zeros_equal_those_with_them() {
        for (width, outputs) in [(64usize, 16usize), (100, 33), (130, 64), (1433, 130), (64, 300)] {
            let x = rows(1, width, 11);
            let columns = outputs.next_multiple_of(LANES);
            let weight: Vec<f32> = (0..outputs * width).map(|i| (i % 101) as f32 * 0.013 - 0.7).collect();
            let weights = by_inputs::<f32>(&weight, width, columns);
            assert_eq!(by_outputs(&weights, width, outputs), weight);
            let start: Vec<f32> = (0..columns).map(|i| i as f32 * 0.1).collect();
            let mut nonzeros = Nonzeros::of_width(width);
            let nonzeros = nonzeros.find(Instructions::best(), &x);
            for instructions in all_instructions() {
                let factors = Factors { a: &x, a_row: width, a_step: 1, b: &weights, b_step: columns, depth: width };
                let (mut expected, mut actual) = (start.clone(), start.clone());
                multiply(instructions, factors, &mut expected, 1, columns);
                nonzeros.add_product(instructions, &weights, &mut actual);
                assert_eq!(actual, expected, "{instructions:?}, {width} values");

                let (mut expected, mut actual) = (weights.to_vec(), Aligned::from_values(&weights));
                for (weights, x) in expected.chunks_mut(columns).zip(&x) {
                    weights.iter_mut().zip(&start).for_each(|(weight, start)| *weight = x.mul_add(*start, *weight));
                }
                nonzeros.add_outer(instructions, &start, &mut actual);
                for (actual, expected) in actual.iter().zip(&expected) {
                    assert!((actual - expected).abs() < 1e-4, "{instructions:?}: {actual}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn nonzero_values_are_found_at_any_place_of_a_row() {
        let mut nonzeros = Nonzeros::of_width(70);
        for instructions in all_instructions() {
            for place in 0..70 {
                let mut row = [bf16::ZERO; 70];
                row[69] = bf16::NAN;
                row[place] = bf16::from_f32(-2.5);
                let found: Vec<(usize, f32)> = nonzeros.find(instructions, &row).iter().collect();
                assert_eq!(found[0], (place, -2.5));
                match place {
                    69 => assert_eq!(found.len(), 1),
                    _ => assert!(found.len() == 2 && found[1].0 == 69 && found[1].1.is_nan()),
                }
            }
        }
        let all: Vec<(usize, f32)> = nonzeros.take_all(&[1.5f32; 70]).iter().collect();
        assert_eq!(all, (0..70).map(|column| (column, 1.5)).collect::<Vec<_>>());
    }

    #[test]
    fn rows_that_are_kept_are_those_that_were_found() {
        let width = 80;
        let x = [rows(1, width, 7), vec![0.0; width], rows(1, width, 3)].concat();
        let (mut nonzeros, mut kept) = (Nonzeros::of_width(width), NonzeroRows::default());
        for row in x.chunks(width) {
            kept.push(nonzeros.find(Instructions::best(), row));
        }
        for (index, row) in x.chunks(width).enumerate() {
            let mut found = vec![0.0; width];
            kept.row(index).iter().for_each(|(column, value)| found[column] = value);
            assert_eq!(found, row, "row {index}");
        }
    }

    #[test]
    fn rows_are_sparse_if_few_values_are_not_zero() {
        let weight = [1.0; 100];
        let decide = |count: usize, one_in: usize| is_sparse(&rows(count, 100, one_in), 100, &weight, SPARSITY);
        for count in [1, 31, 32, 33, 1000] {
            assert!(decide(count, 40), "{count} rows");
            assert!(!decide(count, 3), "{count} rows");
        }
        assert!(!is_sparse::<f32>(&[], 100, &weight, SPARSITY), "no rows");
        assert!(!is_sparse(&[0.0f32; 63], 63, &weight, SPARSITY), "too narrow");
        assert!(!is_sparse(&[0.0f32; 100], 100, &[1.0, f32::NAN], SPARSITY), "0 times NaN is NaN");
    }
}
