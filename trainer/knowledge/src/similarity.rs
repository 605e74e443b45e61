//! How queries are compared with rows: dot products and distances, forward and backward.

use grappa_kernels::{Factors, Instructions, multiply};

use crate::{
    distances::{self, Complex, Real},
    matrix::PaddedRows,
};

/// Values that a loop over a row handles at a time.
const LANES: usize = 16;
/// Smaller distances have no direction: their gradient is 0.
const DISTANCE_MIN: f32 = 1e-6;

/// The score of a query and a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// Dot product.
    Dot,
    /// Negative Euclidean distance.
    Euclidean,
    /// Negative sum of the absolute differences.
    Manhattan,
    /// Negative sum of the absolute values of complex differences; real parts first.
    Moduli,
}

/// Candidates, prepared for scores with many queries.
#[derive(Debug, Default, Clone)]
pub struct CandidateBlock {
    /// The rows transposed, `[stride, columns]`.
    transposed: Vec<f32>,
    /// Squares of the lengths of rows, for Euclidean distances.
    squares: Vec<f32>,
}

impl CandidateBlock {
    /// Prepares some candidates. `columns` is their number with padding.
    pub fn prepare(&mut self, similarity: Similarity, rows: PaddedRows<'_>, columns: usize) {
        self.transposed.resize(rows.stride * columns, 0.0);
        let count = rows.count();
        // 16 lines at a time stay in the first cache.
        for first in (0..columns).step_by(LANES) {
            for k in 0..rows.stride {
                let line = &mut self.transposed[k * columns + first..][..LANES];
                for (row, value) in (first..).zip(line) {
                    *value = if row < count { rows.data[row * rows.stride + k] } else { 0.0 };
                }
            }
        }
        if similarity == Similarity::Euclidean {
            self.squares.clear();
            self.squares.extend((0..count).map(|row| square(rows.row(row))));
            self.squares.resize(columns, 0.0);
        }
    }
}

impl Similarity {
    /// Whether scores follow from products of matrices.
    pub fn is_product(self) -> bool {
        matches!(self, Self::Dot | Self::Euclidean)
    }

    /// The scores of some queries and a block of candidates, `[queries, columns]`. Scores of padding are meaningless.
    pub fn scores(self, queries: PaddedRows<'_>, block: &CandidateBlock, scores: &mut [f32]) {
        let columns = scores.len() / queries.count();
        match self {
            Self::Manhattan => distances::distances::<1, Real>(queries, &block.transposed, columns, scores),
            Self::Moduli => distances::distances::<2, Complex>(queries, &block.transposed, columns, scores),
            Self::Dot | Self::Euclidean => return self.scores_of_products(queries, block, scores, columns),
        }
        scores.iter_mut().for_each(|score| *score = -*score);
    }

    fn scores_of_products(self, queries: PaddedRows<'_>, block: &CandidateBlock, scores: &mut [f32], columns: usize) {
        scores.fill(0.0);
        let factors = Factors {
            a: queries.data,
            a_row: queries.stride,
            a_step: 1,
            b: &block.transposed,
            b_step: columns,
            depth: queries.stride,
        };
        multiply(Instructions::best(), factors, scores, queries.count(), columns);
        if self == Self::Euclidean {
            for (query, scores) in scores.chunks_mut(columns).enumerate() {
                let of_query = square(queries.row(query));
                for (score, of_row) in scores.iter_mut().zip(&block.squares) {
                    *score = -distance(of_query, *of_row, *score);
                }
            }
        }
    }

    /// The score of a query and a row. [`Similarity::scores`] has the same bits.
    pub fn score(self, query: &[f32], row: &[f32]) -> f32 {
        match self {
            Self::Dot => dot(query, row),
            Self::Euclidean => -distance(square(query), square(row), dot(query, row)),
            Self::Manhattan => -distances::distance::<1, Real>(query, row),
            Self::Moduli => -distances::distance::<2, Complex>(query, row),
        }
    }

    /// Adds the gradients of queries and of candidates in blocks of `block` rows, for distances that are no products. `factors` has the
    /// gradients of scores, `[queries, columns]` for each block. All matrices have the same stride.
    ///
    /// # Panics
    /// If scores are products.
    pub fn gradients(
        self,
        queries: PaddedRows<'_>,
        candidates: PaddedRows<'_>,
        block: usize,
        factors: &[Vec<f32>],
        gradients: [&mut [f32]; 2],
    ) {
        match self {
            Self::Manhattan => distances::gradients::<1, Real>(queries, candidates, block, factors, gradients),
            Self::Moduli => distances::gradients::<2, Complex>(queries, candidates, block, factors, gradients),
            Self::Dot | Self::Euclidean => panic!("gradients of products are products"),
        }
    }

    /// The factor of a row in the gradient of a query, from a score and its gradient. The gradient of a query is the sum of factors times
    /// rows; for distances, the sum of factors times `row - query`, or the factor is the gradient.
    #[inline(always)]
    pub fn factor(self, score: f32, gradient: f32) -> f32 {
        match self {
            // At a distance of 0 there is no direction.
            Self::Euclidean if -score > DISTANCE_MIN => gradient / -score,
            Self::Euclidean => 0.0,
            _ => gradient,
        }
    }

    /// Replaces scores by factors, from the gradient of each.
    #[inline(always)]
    pub fn replace(self, scores: &mut [f32], gradient: impl Fn(f32) -> f32) {
        match self {
            Self::Euclidean => scores.iter_mut().for_each(|score| *score = self.factor(*score, gradient(*score))),
            _ => scores.iter_mut().for_each(|score| *score = gradient(*score)),
        }
    }

    /// Adds the gradients of a query and a row, from the `gradient` of their `score`.
    pub fn backward(self, [query, row]: [&[f32]; 2], score: f32, gradient: f32, [of_query, of_row]: [&mut [f32]; 2]) {
        match self {
            Self::Dot => {
                for k in 0..query.len() {
                    of_query[k] += gradient * row[k];
                    of_row[k] += gradient * query[k];
                }
            }
            Self::Euclidean => {
                let factor = self.factor(score, gradient);
                for k in 0..query.len() {
                    let change = factor * (row[k] - query[k]);
                    of_query[k] += change;
                    of_row[k] -= change;
                }
            }
            Self::Manhattan => distances::backward::<1, Real>([query, row], gradient, [of_query, of_row]),
            Self::Moduli => distances::backward::<2, Complex>([query, row], gradient, [of_query, of_row]),
        }
    }
}

/// Sums in the order of products of matrices.
fn dot(query: &[f32], row: &[f32]) -> f32 {
    query.iter().zip(row).fold(0.0, |sum, (query, row)| query.mul_add(*row, sum))
}

fn square(row: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for values in chunks.iter().map(<[f32; LANES]>::as_slice).chain([rest]) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = value.mul_add(*value, *sum));
    }
    sums.iter().sum()
}

/// The Euclidean distance, from the squares of two lengths and a dot product.
fn distance(of_query: f32, of_row: f32, product: f32) -> f32 {
    (of_query + of_row - 2.0 * product).max(0.0).sqrt()
}
