//! Products of small matrices that fit the cache: `c += a b`.
//!
//! ```text
//! for each strip of 64 columns, and each 6 rows:
//!     keep 6 x 64 sums in registers
//!     for each step of the depth: load 64 values of b and 6 of a, do 384 multiply-adds
//! ```
//!
//! Reasons not to use libtorch: on processors that are not Intel's, its f32 products (MKL) use half of the vector width. And a product
//! of its own cannot be fused with the operations before and after it. Measured on one core of an AMD EPYC (Zen 5): MKL 90 GFlop/s,
//! this 230, oneDNN 235; with pairs of bf16, oneDNN 490 and this 450. See `benches/step.rs`. The crate `gemm` is as fast as the plain
//! code, up to a tenth slower with AVX-512, and has no products of bf16 pairs.
//!
//! There are three implementations: f32 with AVX-512, pairs of bf16 with the dot products of AVX-512 (two products per instruction and
//! lane), and f32 in plain code for all other processors.

#![expect(unsafe_code, reason = "vector instructions take pointers")]

/// Columns of `b` and `c` are padded to a multiple of this.
pub const LANES: usize = 16;

/// Columns with padding.
pub fn padded(columns: usize) -> usize {
    columns.next_multiple_of(LANES)
}

/// The factors of `c[i][j] += sum over k of a[i * a_row + k * a_step] * b[k * b_step + j]`. Strides are in items: single values, or
/// pairs.
#[derive(Debug, Clone, Copy)]
pub struct Factors<'a, N> {
    /// The first factor.
    pub a: &'a [N],
    /// Stride of its rows. This stride or the next one is 1.
    pub a_row: usize,
    /// Stride of its columns.
    pub a_step: usize,
    /// The second factor. Its columns are adjacent.
    pub b: &'a [N],
    /// Stride of its rows.
    pub b_step: usize,
    /// Columns of the first factor, rows of the second.
    pub depth: usize,
}

impl<N> Factors<'_, N> {
    /// # Panics
    /// If `c` or a factor is too short, or the values of `a` are adjacent neither in its rows nor in its columns.
    fn check(&self, c: &[f32], rows: usize, columns: usize) {
        assert!(columns.is_multiple_of(LANES), "{columns} columns are not padded");
        assert!(c.len() >= rows * columns, "c is too short");
        if rows > 0 && columns > 0 && self.depth > 0 {
            let last = self.depth - 1;
            assert!(self.a.len() > (rows - 1) * self.a_row + last * self.a_step, "a is too short");
            assert!(self.b.len() >= last * self.b_step + columns, "b is too short");
            assert!(self.a_row == 1 || self.a_step == 1, "neither rows nor columns of a are adjacent values");
        }
    }
}

/// The vector instructions that kernels use. A value exists only for instructions that this processor has, so it is a permission to
/// use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instructions {
    has_avx512: bool,
    /// Only with AVX-512.
    has_pairs: bool,
}

impl Instructions {
    /// All instructions of this processor.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        let (has_avx512, has_bf16) = (is_x86_feature_detected!("avx512f"), is_x86_feature_detected!("avx512bf16"));
        #[cfg(not(target_arch = "x86_64"))]
        let (has_avx512, has_bf16) = (false, false);
        Self { has_avx512, has_pairs: has_avx512 && has_bf16 }
    }

    /// All instructions of this processor, plain code first, and those that it lacks.
    pub fn all() -> [Vec<Self>; 2] {
        let all = [(false, false), (true, false), (true, true)];
        let all = all.map(|(has_avx512, has_pairs)| Self { has_avx512, has_pairs });
        let lacks = |one: &Self| cfg!(target_arch = "x86_64") && *one > Self::best();
        [all.into_iter().filter(|one| *one <= Self::best()).collect(), all.into_iter().filter(lacks).collect()]
    }

    pub(crate) fn has_avx512(self) -> bool {
        self.has_avx512
    }

    pub(crate) fn has_pairs(self) -> bool {
        self.has_pairs
    }
}

/// `c += a b` for f32, on the calling thread; `c` has `rows` rows of `columns` values, a multiple of [`LANES`]. Each value adds its products
/// in the order of the depth, so it has the same bits in products of any shape.
///
/// # Panics
/// If `c` or a factor is too short, or the values of `a` are adjacent neither in its rows nor in its columns.
pub fn multiply(instructions: Instructions, factors: Factors<'_, f32>, c: &mut [f32], rows: usize, columns: usize) {
    factors.check(c, rows, columns);
    #[cfg(target_arch = "x86_64")]
    if instructions.has_avx512 {
        // SAFETY: `best` found the instructions, and the slices are long enough: checked above.
        return unsafe { avx512::multiply(factors, c.as_mut_ptr(), rows, columns) };
    }
    plain::multiply(factors, c, rows, columns);
}

/// `c += a b` for pairs of bf16, the first in the lower half: each step of the depth adds two products.
///
/// # Panics
/// If there is no such instruction among them.
pub fn multiply_pairs(
    instructions: Instructions,
    factors: Factors<'_, u32>,
    c: &mut [f32],
    rows: usize,
    columns: usize,
) {
    factors.check(c, rows, columns);
    assert!(instructions.has_pairs(), "the processor has no products of bf16 pairs");
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions are there, and the slices are long enough: both checked above.
    unsafe {
        avx512_pairs::multiply(factors, c.as_mut_ptr(), rows, columns);
    }
}

/// ```text
/// for each strip of 16 columns: copy the values of b in the strip to one place
///     for each 5 rows: keep 5 x 16 sums in registers
///         for each 8 steps of the depth: check lengths once, do 640 multiply-adds
/// ```
///
/// AVX2 has 16 registers. With 5 x 16 sums, 10 registers are sums, and the compiler loads one row of `b` and broadcasts 5 values of `a`
/// into the others. It spills registers with 6 x 16 sums. Without the copy, rows of `b` that are a power of two apart push each other
/// out of the first cache.
mod plain {
    use std::array::from_fn;

    use super::{Factors, LANES, multiply_add};

    /// Rows of a block.
    const ROWS: usize = 5;
    /// Rows of the last blocks, unless the number of rows is a multiple of [`ROWS`].
    const LAST_ROWS: usize = ROWS - 1;
    /// Steps of the depth whose values are checked together.
    const STEPS: usize = 8;

    pub(super) fn multiply(factors: Factors<'_, f32>, c: &mut [f32], rows: usize, columns: usize) {
        if factors.depth == 0 {
            return;
        }
        // As many blocks of 4 rows as leave blocks of 5: blocks of one row take several times as long for each row.
        let last_blocks = (ROWS - rows % ROWS) % ROWS;
        let last_rows = if last_blocks * LAST_ROWS <= rows { last_blocks * LAST_ROWS } else { rows % ROWS };
        let mut strip = Vec::with_capacity(factors.depth);
        for column in (0..columns).step_by(LANES) {
            strip.clear();
            strip.extend((0..factors.depth).map(|k| *first::<LANES>(&factors.b[k * factors.b_step + column..])));
            let mut row = 0;
            while row + ROWS <= rows - last_rows {
                block::<ROWS>(factors, &strip, &mut c[row * columns + column..], columns, row);
                row += ROWS;
            }
            while row + LAST_ROWS <= rows {
                block::<LAST_ROWS>(factors, &strip, &mut c[row * columns + column..], columns, row);
                row += LAST_ROWS;
            }
            while row < rows {
                block::<1>(factors, &strip, &mut c[row * columns + column..], columns, row);
                row += 1;
            }
        }
    }

    /// Adds the products of `R` rows and a strip of `b` to `c`, whose rows are `columns` values apart.
    #[inline(always)]
    fn block<const R: usize>(
        factors: Factors<'_, f32>,
        strip: &[[f32; LANES]],
        c: &mut [f32],
        columns: usize,
        row: usize,
    ) {
        let Factors { a_row, a_step, .. } = factors;
        let a = &factors.a[row * a_row..];
        let mut sums = [[0.0f32; LANES]; R];
        let (steps, rest) = strip.as_chunks::<STEPS>();
        // Adjacent values of `a` are loaded at once: those of a row or those of a column.
        if a_step == 1 {
            for (b, k) in steps.iter().zip((0..).step_by(STEPS)) {
                let a: [&[f32; STEPS]; R] = from_fn(|i| first(&a[i * a_row + k..]));
                for (j, b) in b.iter().enumerate() {
                    add(&mut sums, a.map(|a| a[j]), b);
                }
            }
        } else {
            for (b, k) in steps.iter().zip((0..).step_by(STEPS)) {
                let a: [&[f32; R]; STEPS] = from_fn(|j| first(&a[(k + j) * a_step..]));
                for (a, b) in a.into_iter().zip(b) {
                    add(&mut sums, *a, b);
                }
            }
        }
        for (b, k) in rest.iter().zip(steps.len() * STEPS..) {
            add(&mut sums, from_fn(|i| a[i * a_row + k * a_step]), b);
        }
        // This loop has a constant count. Otherwise the compiler would keep the sums in memory.
        for (i, sums) in sums.iter().enumerate() {
            c[i * columns..][..LANES].iter_mut().zip(sums).for_each(|(c, sum)| *c += sum);
        }
    }

    /// `sums += a b` for a step of the depth.
    #[inline(always)]
    fn add<const R: usize>(sums: &mut [[f32; LANES]; R], a: [f32; R], b: &[f32; LANES]) {
        for (sums, a) in sums.iter_mut().zip(a) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = multiply_add(a, *b, *sum);
            }
        }
    }

    #[inline(always)]
    fn first<const N: usize>(values: &[f32]) -> &[f32; N] {
        values.first_chunk().expect("factors have been checked")
    }
}

/// `a b + c`. Fused if that is one instruction. Otherwise it would be a slow library call.
#[inline(always)]
pub fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { a.mul_add(b, c) } else { a * b + c }
}

/// The loops around a block of products, the same for both kinds of numbers.
#[cfg(target_arch = "x86_64")]
macro_rules! vector_loops {
    ($module:ident, $features:literal, $number:ty, $load:expr, $broadcast:expr, $multiply_add:expr) => {
        mod $module {
            use std::arch::x86_64::*;

            use super::{Factors, LANES};

            /// # Safety
            /// The processor has the instructions, and `factors.check` passes for `c`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn multiply(factors: Factors<'_, $number>, c: *mut f32, rows: usize, columns: usize) {
                let mut column = 0;
                while column < columns {
                    // SAFETY: the caller's promise, for these columns.
                    unsafe {
                        match (columns - column) / LANES {
                            1 => strip::<12, 1>(factors, c, rows, columns, column),
                            2 => strip::<12, 2>(factors, c, rows, columns, column),
                            3 => strip::<8, 3>(factors, c, rows, columns, column),
                            _ => strip::<6, 4>(factors, c, rows, columns, column),
                        }
                    }
                    column += 4 * LANES;
                }
            }

            /// All rows of `V * LANES` columns from `column` on, R rows at a time.
            ///
            /// # Safety
            /// As above.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn strip<const R: usize, const V: usize>(
                factors: Factors<'_, $number>,
                c: *mut f32,
                rows: usize,
                columns: usize,
                column: usize,
            ) {
                // SAFETY: the caller's promise, for these rows.
                unsafe {
                    let mut row = 0;
                    while row + R <= rows {
                        block::<R, V>(factors, c, columns, row, column);
                        row += R;
                    }
                    while row + 3 <= rows {
                        block::<3, V>(factors, c, columns, row, column);
                        row += 3;
                    }
                    while row < rows {
                        block::<1, V>(factors, c, columns, row, column);
                        row += 1;
                    }
                }
            }

            /// # Safety
            /// As above.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn block<const R: usize, const V: usize>(
                factors: Factors<'_, $number>,
                c: *mut f32,
                columns: usize,
                row: usize,
                column: usize,
            ) {
                // SAFETY: all places are within the slices, by `check`.
                unsafe {
                    let a = factors.a.as_ptr().add(row * factors.a_row);
                    let b = factors.b.as_ptr().add(column);
                    let c = c.add(row * columns + column);
                    let mut sums = [[_mm512_setzero_ps(); V]; R];
                    for (i, sums) in sums.iter_mut().enumerate() {
                        for (j, sum) in sums.iter_mut().enumerate() {
                            *sum = _mm512_loadu_ps(c.add(i * columns + j * LANES));
                        }
                    }
                    for k in 0..factors.depth {
                        let b = b.add(k * factors.b_step);
                        let mut values = [$load(b); V];
                        for (j, value) in values.iter_mut().enumerate().skip(1) {
                            *value = $load(b.add(j * LANES));
                        }
                        for (i, sums) in sums.iter_mut().enumerate() {
                            let factor = $broadcast(*a.add(i * factors.a_row + k * factors.a_step));
                            for (sum, value) in sums.iter_mut().zip(values) {
                                *sum = $multiply_add(factor, value, *sum);
                            }
                        }
                    }
                    for (i, sums) in sums.iter().enumerate() {
                        for (j, sum) in sums.iter().enumerate() {
                            _mm512_storeu_ps(c.add(i * columns + j * LANES), *sum);
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector_loops!(avx512, "avx512f", f32, |at| _mm512_loadu_ps(at), |value| _mm512_set1_ps(value), |a, b, c| {
    _mm512_fmadd_ps(a, b, c)
});
#[cfg(target_arch = "x86_64")]
vector_loops!(
    avx512_pairs,
    "avx512f,avx512bf16",
    u32,
    |at: *const u32| std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(at.cast())),
    |value: u32| std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(value.cast_signed())),
    |a, b, c| _mm512_dpbf16_ps(c, a, b)
);

#[cfg(test)]
pub(crate) mod tests {
    use half::bf16;

    use super::*;

    /// All instructions of this processor, plain code first. Records the others as skipped.
    pub(crate) fn all_instructions() -> Vec<Instructions> {
        let [has, lacks] = Instructions::all();
        for one in lacks {
            grappa_skip::skip_part!("this processor has no {one:?}");
        }
        has
    }

    /// Small whole numbers, exact in bf16, whose products and sums are exact in f32.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + i / 5 + seed * 3) % 17) as f32 - 8.0).collect()
    }

    fn naive(factors: Factors<'_, f32>, c: &[f32], rows: usize, columns: usize) -> Vec<f32> {
        let mut result = c.to_vec();
        for i in 0..rows {
            for j in 0..columns {
                for k in 0..factors.depth {
                    result[i * columns + j] +=
                        factors.a[i * factors.a_row + k * factors.a_step] * factors.b[k * factors.b_step + j];
                }
            }
        }
        result
    }

    #[test]
    fn products_equal_naive_ones_for_all_instructions() {
        let all = all_instructions();
        for rows in [0, 1, 2, 4, 5, 6, 7, 9, 13, 26] {
            for columns in [16, 32, 48, 64, 80, 128] {
                for depth in [0, 1, 2, 8, 19] {
                    let (a, b, c) =
                        (numbers(rows * depth + 3, 1), numbers(depth * (columns + 3), 2), numbers(rows * columns, 3));
                    for (a_row, a_step) in [(depth, 1), (1, rows)] {
                        let factors = Factors { a: &a, a_row, a_step, b: &b, b_step: columns + 3, depth };
                        let expected = naive(factors, &c, rows, columns);
                        for &instructions in &all {
                            let mut actual = c.clone();
                            multiply(instructions, factors, &mut actual, rows, columns);
                            assert_eq!(actual, expected, "{instructions:?} {rows} {columns} {depth}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_pairs_equal_those_of_single_numbers() {
        let best = Instructions::best();
        if !best.has_pairs() {
            grappa_skip::skip!("this processor has no AVX-512 products of bf16 pairs");
        }
        let pair = |low: f32, high: f32| {
            u32::from(bf16::from_f32(low).to_bits()) | u32::from(bf16::from_f32(high).to_bits()) << 16
        };
        for (rows, columns, depth) in [(1, 16, 2), (7, 64, 6), (20, 96, 10)] {
            let (a, b, c) = (numbers(rows * depth, 1), numbers(depth * columns, 2), numbers(rows * columns, 3));
            let factors = Factors { a: &a, a_row: depth, a_step: 1, b: &b, b_step: columns, depth };
            let expected = naive(factors, &c, rows, columns);
            let a: Vec<u32> = a.chunks(2).map(|two| pair(two[0], two[1])).collect();
            let b: Vec<u32> =
                b.chunks(2 * columns).flat_map(|two| (0..columns).map(|j| pair(two[j], two[columns + j]))).collect();
            let mut actual = c.clone();
            let factors = Factors { a: &a, a_row: depth / 2, a_step: 1, b: &b, b_step: columns, depth: depth / 2 };
            multiply_pairs(best, factors, &mut actual, rows, columns);
            assert_eq!(actual, expected, "{rows} {columns} {depth}");
        }
    }

    #[test]
    #[should_panic(expected = "neither rows nor columns of a are adjacent values")]
    fn a_first_factor_without_adjacent_values_is_refused() {
        let factors = Factors { a: &[0.0; 9], a_row: 4, a_step: 2, b: &[0.0; 32], b_step: 16, depth: 2 };
        multiply(Instructions::best(), factors, &mut [0.0; 32], 2, 16);
    }

    #[test]
    #[should_panic(expected = "b is too short")]
    fn a_factor_that_is_too_short_is_refused() {
        let factors = Factors { a: &[0.0; 4], a_row: 2, a_step: 1, b: &[0.0; 31], b_step: 16, depth: 2 };
        multiply(Instructions::best(), factors, &mut [0.0; 32], 2, 16);
    }
}
