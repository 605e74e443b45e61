//! The linear part of a layer, forward and backward: `epilogue(x1 w1ᵀ + x2 w2ᵀ + .. + b)` for rows x.
//!
//! ```text
//! forward, for each tile of 96 rows:
//!     sum = b; for each term: sum += x wᵀ
//!     result = epilogue(sum)
//! backward, for each range of rows, tile by tile:
//!     g = gradient through the epilogue
//!     for each term: gradient of x = g w; the range's gradient of w += gᵀ x
//!     the range's gradient of b += g
//! add up the gradients of w and b of all ranges, in order
//! ```
//!
//! The values of a tile stay in the cache from one operation to the next, so memory is read and written once. With libtorch's
//! operators, each operation (products, bias, relu, mask, product with the mask) is a pass over all rows: about 1.5 ms in each
//! direction for 25 K rows of 128 f32. Also, libtorch's products are slow: see the module `multiply`.
//!
//! Rows with few nonzero values are multiplied without their zeros: see [`sparse`](crate::sparse).

use std::ops::RangeInclusive;

use half::bf16;

use crate::{
    aligned::Aligned,
    element::Element,
    epilogue::{Epilogue, narrow},
    layout::{Numbers, Pairs, Rows, Single},
    multiply::{Factors, Instructions, padded},
    parallel::for_each,
    sparse::{
        FORWARD_SPARSITY, NonzeroRows, Nonzeros, SPARSITY, are_finite, by_inputs, by_outputs, is_sparse, transpose,
    },
};

/// Rows of a tile: a multiple of the number of rows that a product takes at once.
const TILE: usize = 96;
/// Number of rows of a range in [`backward`], unless there are very many. It decides the order in which gradients are added up, so it
/// depends on the rows alone, and the result does not depend on the number of threads.
const PART: RangeInclusive<usize> = 2 * TILE..=16 * TILE;
/// Number of ranges, where that allows it. There are several for each thread, which also waits for threads that sample and read.
const PARTS: usize = 16;
/// Maximum number of ranges. Each has its own copy of the gradients of all parameters.
const PARTS_MAX: usize = 32;
/// Values of these copies that are added up at a time.
const SUMMED: usize = 1 << 13;

/// The transposed weight matrix of a term.
enum Weight<I> {
    OfDense(Aligned<I>),
    /// The rows of the term are sparse: see [`by_inputs`].
    OfSparse(Aligned<f32>),
}

/// The number and the result of a tile, and for each term, where to keep the nonzero values of its rows.
type TileResult<'a, T> = (usize, (&'a mut [T], Vec<Option<&'a mut NonzeroRows>>));

/// Rows and the weight matrix that they are multiplied by.
#[derive(Debug, Clone, Copy)]
pub struct Term<'a, T> {
    /// `[rows, inputs]`
    pub x: &'a [T],
    /// Values of a row.
    pub inputs: usize,
    /// `[outputs, inputs]`
    pub weight: &'a [f32],
    /// For each tile of rows, the nonzero values of its rows, if the forward pass kept them; else empty.
    pub nonzeros: &'a [NonzeroRows],
}

/// The gradients to compute, and where gradients of rows go.
#[derive(Debug, Default)]
pub struct RequestedGradients<'a, T> {
    /// For each term, its destination `[rows, inputs]`; none if not wanted.
    pub x: Vec<Option<&'a mut [T]>>,
    /// For each term, whether the gradient of its weight matrix is wanted.
    pub weights: Vec<bool>,
}

/// The gradients of parameters.
#[derive(Debug)]
pub struct Gradients {
    /// For each term, `[outputs, inputs]`; empty if not wanted.
    pub weights: Vec<Vec<f32>>,
    /// `[outputs]`
    pub bias: Vec<f32>,
}

/// The sum of the products of some terms, with an epilogue.
#[derive(Debug, Clone, Copy)]
pub struct Products<'a, T> {
    /// Vector instructions to use.
    pub instructions: Instructions,
    /// Rows and their weight matrices.
    pub terms: &'a [Term<'a, T>],
    /// Values of a row of the result.
    pub outputs: usize,
    /// What follows the sum.
    pub epilogue: &'a Epilogue,
}

/// Types of the values of rows.
pub trait Number: Element {
    /// Their layout for processors that multiply pairs of bf16.
    type WithPairs: Numbers<Self>;
}

impl Number for f32 {
    type WithPairs = Single;
}

impl Number for bf16 {
    type WithPairs = Pairs;
}

/// Computes `result`, `[rows, outputs]`. If it `keeps` nonzero values, it returns them for [`Term::nonzeros`] of each term.
pub fn forward<T: Number>(
    products: Products<'_, T>,
    bias: Option<&[f32]>,
    keeps: bool,
    result: &mut [T],
) -> Vec<Vec<NonzeroRows>> {
    match products.instructions.has_pairs() {
        true => forward_with::<T, T::WithPairs>(products, bias, keeps, result),
        false => forward_with::<T, Single>(products, bias, keeps, result),
    }
}

/// Computes gradients from the gradient of the result. A relu also needs the result itself.
pub fn backward<T: Number>(
    products: Products<'_, T>,
    gradient: &[T],
    result: &[T],
    requested: RequestedGradients<'_, T>,
) -> Gradients {
    match products.instructions.has_pairs() {
        true => backward_with::<T, T::WithPairs>(products, gradient, result, requested),
        false => backward_with::<T, Single>(products, gradient, result, requested),
    }
}

fn forward_with<T: Element, N: Numbers<T>>(
    products: Products<'_, T>,
    bias: Option<&[f32]>,
    keeps: bool,
    result: &mut [T],
) -> Vec<Vec<NonzeroRows>> {
    let Products { terms, outputs, .. } = products;
    let columns = padded(outputs);
    let sparsity = if N::VALUES == 1 { FORWARD_SPARSITY } else { SPARSITY };
    let weights = terms.iter().map(|term| match term.is_sparse(sparsity) {
        true => Weight::OfSparse(by_inputs::<T>(term.weight, term.inputs, columns)),
        false => {
            let mut transposed = Aligned::zeros(term.weight.len());
            transpose(term.weight, term.inputs, &mut transposed, outputs, T::from_f32);
            Weight::OfDense(N::by_rows(Rows::dense(&transposed, outputs)).0.into_owned())
        }
    });
    let weights = weights.collect();
    let tiles = result.len().div_ceil((TILE * outputs).max(1));
    // Gradients use nonzero values if rows are sparse enough for them.
    let keeps = terms.iter().map(|term| keeps && term.is_sparse(SPARSITY));
    let mut kept: Vec<Vec<NonzeroRows>> =
        keeps.map(|keeps| (0..if keeps { tiles } else { 0 }).map(|_| NonzeroRows::default()).collect()).collect();
    let forward = Forward::<T, N> { products, bias, weights, columns };
    let mut kept_by_term: Vec<_> = kept.iter_mut().map(|kept| kept.iter_mut()).collect();
    let parts: Vec<_> = result
        .chunks_mut(TILE * outputs)
        .map(|result| (result, kept_by_term.iter_mut().map(Iterator::next).collect()))
        .enumerate()
        .collect();
    for_each(parts, |(tile, (result, mut kept)): TileResult<'_, T>| {
        let first = tile * TILE;
        // Without padding, the sums are where the result is.
        match T::as_f32s(result).filter(|_| columns == outputs) {
            Some(sums) => forward.tile(first, sums, &mut kept),
            None => {
                let mut sums = Aligned::zeros(result.len() / outputs * columns);
                forward.tile(first, &mut sums, &mut kept);
                for (sums, result) in sums.chunks(columns).zip(result.chunks_mut(outputs)) {
                    narrow(&sums[..outputs], result);
                }
            }
        }
    });
    kept
}

struct Forward<'a, T: Element, N: Numbers<T>> {
    products: Products<'a, T>,
    bias: Option<&'a [f32]>,
    weights: Vec<Weight<N::Item>>,
    /// Outputs with padding.
    columns: usize,
}

impl<T: Element, N: Numbers<T>> Forward<'_, T, N> {
    /// Computes the rows of `sums`, which begin at row `first`, and keeps their nonzero values.
    fn tile(&self, first: usize, sums: &mut [f32], kept: &mut [Option<&mut NonzeroRows>]) {
        let Products { instructions, terms, outputs, epilogue } = self.products;
        let columns = self.columns;
        let rows = sums.len() / columns;
        match self.bias {
            None => sums.fill(0.0),
            Some(bias) => {
                for sums in sums.chunks_mut(columns) {
                    let (sums, padding) = sums.split_at_mut(outputs);
                    sums.copy_from_slice(bias);
                    padding.fill(0.0);
                }
            }
        }
        for ((term, weight), kept) in terms.iter().zip(&self.weights).zip(kept) {
            let x = term.rows(first, rows);
            match weight {
                Weight::OfSparse(weight) => {
                    let mut nonzeros = Nonzeros::of_width(term.inputs);
                    for (x, sums) in x.chunks(term.inputs).zip(sums.chunks_mut(columns)) {
                        let row = nonzeros.find(instructions, x);
                        row.add_product(instructions, weight, sums);
                        if let Some(kept) = kept {
                            kept.push(row);
                        }
                    }
                }
                Weight::OfDense(weight) => {
                    let (a, a_row) = N::by_columns(Rows::dense(x, term.inputs));
                    let depth = N::items(term.inputs);
                    let factors = Factors { a: &a, a_row, a_step: 1, b: weight, b_step: columns, depth };
                    N::multiply(instructions, factors, sums, rows, columns);
                }
            }
        }
        for (row, sums) in sums.chunks_mut(columns).enumerate() {
            epilogue.forward(first + row, &mut sums[..outputs]);
        }
    }
}

fn backward_with<T: Element, N: Numbers<T>>(
    products: Products<'_, T>,
    gradient: &[T],
    result: &[T],
    requested: RequestedGradients<'_, T>,
) -> Gradients {
    let Products { terms, outputs, .. } = products;
    let rows = gradient.len() / outputs;
    let weights = terms.iter().map(|term| {
        let weight: Vec<T> = term.weight.iter().map(|&w| T::from_f32(w)).collect();
        N::by_rows(Rows::dense(&weight, term.inputs)).0.into_owned()
    });
    let backward = Backward::<T, N> {
        products,
        gradient,
        result,
        sparse: terms.iter().map(|term| term.is_sparse(SPARSITY)).collect(),
        weights: weights.collect(),
        wants_weight: &requested.weights,
    };
    let part_rows = part_rows(rows, backward.sparse.contains(&true));
    let mut parts: Vec<RowRange<'_, T>> = (0..rows.div_ceil(part_rows))
        .map(|part| RowRange {
            first: part * part_rows,
            rows: part_rows.min(rows - part * part_rows),
            x: Vec::new(),
            sums: Sums::default(),
        })
        .collect();
    for (term, mut rest) in terms.iter().zip(requested.x) {
        for part in &mut parts {
            let x;
            (x, rest) = rest.map(|values| values.split_at_mut(part.rows * term.inputs)).unzip();
            part.x.push(x);
        }
    }
    for_each(parts.iter_mut().collect(), |part: &mut RowRange<'_, T>| backward.part(part));

    let mut total = parts.pop().map_or_else(|| backward.zeros(), |part| part.sums);
    total.add_each(parts.iter().rev().map(|part| &part.sums).collect());
    total.bias.truncate(outputs);
    let weights = total.weights.iter().zip(terms).zip(&backward.sparse);
    Gradients {
        weights: weights
            .map(|((weight, term), is_sparse)| match is_sparse {
                true => by_outputs(weight, term.inputs, outputs),
                false => unpad(weight, term.inputs),
            })
            .collect(),
        bias: total.bias,
    }
}

struct Backward<'a, T: Element, N: Numbers<T>> {
    products: Products<'a, T>,
    gradient: &'a [T],
    result: &'a [T],
    weights: Vec<Aligned<N::Item>>,
    /// For each term, whether its rows are sparse.
    sparse: Vec<bool>,
    wants_weight: &'a [bool],
}

/// A range of rows, and their gradients.
struct RowRange<'a, T> {
    first: usize,
    rows: usize,
    /// The destinations of the gradients of rows, where wanted.
    x: Vec<Option<&'a mut [T]>>,
    sums: Sums,
}

/// Gradients of parameters, with padded rows.
#[derive(Default)]
struct Sums {
    /// For each term, `[outputs, inputs]`, or `[inputs, outputs]` if its rows are sparse; empty if not wanted.
    weights: Vec<Aligned<f32>>,
    bias: Vec<f32>,
}

impl<T: Element, N: Numbers<T>> Backward<'_, T, N> {
    fn zeros(&self) -> Sums {
        let weights = self.products.terms.iter().zip(self.wants_weight).zip(&self.sparse);
        Sums {
            weights: weights
                .map(|((term, requested), is_sparse)| match (requested, is_sparse) {
                    (false, _) => Aligned::zeros(0),
                    (true, false) => Aligned::zeros(self.products.outputs * padded(term.inputs)),
                    (true, true) => Aligned::zeros(term.inputs * padded(self.products.outputs)),
                })
                .collect(),
            bias: vec![0.0; padded(self.products.outputs)],
        }
    }

    fn part(&self, part: &mut RowRange<'_, T>) {
        let Products { instructions, terms, outputs, .. } = self.products;
        part.sums = self.zeros();
        let columns = padded(outputs);
        let mut inner = vec![0.0f32; TILE * columns];
        let mut narrowed = Vec::new();
        let mut nonzeros: Vec<Nonzeros> = terms.iter().map(|term| Nonzeros::of_width(term.inputs)).collect();
        for first in (0..part.rows).step_by(TILE) {
            let rows = TILE.min(part.rows - first);
            self.through_epilogue(part.first + first, rows, &mut inner, &mut part.sums.bias);
            let inner = &inner[..rows * columns];
            let gradient = Rows {
                values: T::of_f32s(inner).unwrap_or_else(|| {
                    narrowed.resize(inner.len(), T::default());
                    narrow(inner, &mut narrowed);
                    &narrowed
                }),
                stride: columns,
                width: outputs,
            };
            let (by_rows, a_step) = N::by_rows(gradient);
            for (index, term) in terms.iter().enumerate() {
                let width = padded(term.inputs);
                let (x, weight) = (term.rows(part.first + first, rows), &mut part.sums.weights[index]);
                if self.wants_weight[index] && self.sparse[index] {
                    let kept = term.nonzeros.get((part.first + first) / TILE);
                    let each = x.chunks(term.inputs).zip(inner.chunks(columns));
                    for (row, (x, gradient)) in each.enumerate() {
                        let nonzeros = &mut nonzeros[index];
                        let nonzeros = match (are_finite(gradient), kept) {
                            (true, Some(kept)) => kept.row(row),
                            (true, None) => nonzeros.find(instructions, x),
                            // Its products with zeros are NaN.
                            (false, _) => nonzeros.take_all(x),
                        };
                        nonzeros.add_outer(instructions, gradient, weight);
                    }
                } else if self.wants_weight[index] {
                    let (x, b_step) = N::by_rows(Rows::dense(x, term.inputs));
                    let factors = Factors { a: &by_rows, a_row: 1, a_step, b: &x, b_step, depth: N::items(rows) };
                    N::multiply(instructions, factors, weight, outputs, width);
                }
                if let Some(x) = &mut part.x[index] {
                    let (a, a_row) = N::by_columns(gradient);
                    let (b, depth) = (&self.weights[index], N::items(outputs));
                    let factors = Factors { a: &a, a_row, a_step: 1, b, b_step: width, depth };
                    let x = &mut x[first * term.inputs..][..rows * term.inputs];
                    // Without padding, the product is where the gradient is.
                    match T::as_f32s(x).filter(|_| width == term.inputs) {
                        Some(product) => {
                            product.fill(0.0);
                            N::multiply(instructions, factors, product, rows, width);
                        }
                        None => {
                            let mut product = Aligned::zeros(rows * width);
                            N::multiply(instructions, factors, &mut product, rows, width);
                            for (product, x) in product.chunks(width).zip(x.chunks_mut(term.inputs)) {
                                narrow(&product[..term.inputs], x);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The gradient of some rows before the epilogue, with padded rows. Also adds it to the gradient of the bias.
    fn through_epilogue(&self, first: usize, rows: usize, inner: &mut [f32], bias: &mut [f32]) {
        let outputs = self.products.outputs;
        for (row, inner) in inner.chunks_mut(padded(outputs)).take(rows).enumerate() {
            let start = (first + row) * outputs;
            let inner = &mut inner[..outputs];
            for (inner, gradient) in inner.iter_mut().zip(&self.gradient[start..]) {
                *inner = gradient.to_f32();
            }
            let result = if self.products.epilogue.relu { &self.result[start..][..outputs] } else { &[] };
            self.products.epilogue.backward(first + row, result, inner);
            for (bias, inner) in bias.iter_mut().zip(inner) {
                *bias += *inner;
            }
        }
    }
}

impl<T: Element> Term<'_, T> {
    fn is_sparse(&self, sparsity: usize) -> bool {
        is_sparse(self.x, self.inputs, self.weight, sparsity)
    }

    fn rows(&self, first: usize, count: usize) -> &[T] {
        &self.x[first * self.inputs..][..count * self.inputs]
    }
}

impl Sums {
    /// Adds others, in their order.
    fn add_each(&mut self, others: Vec<&Self>) {
        for other in &others {
            self.bias.iter_mut().zip(&other.bias).for_each(|(sum, value)| *sum += value);
        }
        let mut pieces = Vec::new();
        for (index, weight) in self.weights.iter_mut().enumerate() {
            let chunks = (0..).step_by(SUMMED).zip(weight.chunks_mut(SUMMED));
            pieces.extend(chunks.map(|(first, sums)| (index, first, sums)));
        }
        for_each(pieces, |(index, first, sums): (usize, usize, &mut [f32])| {
            for other in &others {
                let values = &other.weights[index][first..];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        });
    }
}

/// Rows of each range but the last, if there are `rows` in all.
fn part_rows(rows: usize, are_sparse: bool) -> usize {
    let (least, most) = (*PART.start(), *PART.end());
    let even = match are_sparse {
        // There is little to compute for each row, next to adding up the gradients of ranges.
        true => most,
        false => rows.div_ceil(PARTS).clamp(least, most),
    };
    rows.div_ceil(PARTS_MAX).max(even).next_multiple_of(TILE)
}

/// Rows of `width` values, without the padding of [`padded`].
fn unpad(values: &[f32], width: usize) -> Vec<f32> {
    if values.is_empty() {
        return Vec::new();
    }
    values.chunks(padded(width)).flat_map(|row| &row[..width]).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_even_and_not_too_many() {
        let ranges = |rows: usize, are_sparse| rows.div_ceil(part_rows(rows, are_sparse));
        assert_eq!([1, 192, 193, 1024, 8500].map(|rows| ranges(rows, false)), [1, 1, 2, 6, 15]);
        assert_eq!([1, 1536, 1537, 8500].map(|rows| ranges(rows, true)), [1, 1, 2, 6]);
        for rows in [49_152, 100_000, 1_000_003] {
            for are_sparse in [false, true] {
                assert!((16..=PARTS_MAX).contains(&ranges(rows, are_sparse)), "{rows} rows");
                assert!(part_rows(rows, are_sparse).is_multiple_of(TILE));
            }
        }
    }
}
