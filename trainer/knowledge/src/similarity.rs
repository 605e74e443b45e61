//! How queries are compared with rows: dot products and distances, forward and backward.

use grappa_kernels::{Factors, Instructions, multiply};

/// Values that a loop over a row handles at a time.
const LANES: usize = 16;
/// Smaller distances have no direction: their gradient is 0.
const DISTANCE_MIN: f32 = 1e-6;
/// Keeps the square root of a sum of squares away from 0, where it has no derivative.
const SQUARE_MIN: f32 = 1e-12;

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

/// Some rows, with padding, which is 0.
#[derive(Debug, Clone, Copy)]
pub struct PaddedRows<'a> {
    /// Row by row.
    pub data: &'a [f32],
    /// Values of a row with padding.
    pub stride: usize,
    /// Values of a row without padding.
    pub dim: usize,
}

impl<'a> PaddedRows<'a> {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.data.len() / self.stride
    }

    /// A row, without padding.
    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..self.dim]
    }

    /// Some of the rows.
    #[must_use]
    pub fn range(&self, first: usize, end: usize) -> Self {
        Self { data: &self.data[first * self.stride..end * self.stride], ..*self }
    }
}

/// What products need of some candidates.
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
        if !similarity.is_product() {
            return;
        }
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
    pub fn scores(self, queries: PaddedRows<'_>, rows: PaddedRows<'_>, block: &CandidateBlock, scores: &mut [f32]) {
        let columns = scores.len() / queries.count();
        if !self.is_product() {
            for (query, scores) in scores.chunks_mut(columns).enumerate() {
                for (candidate, score) in scores.iter_mut().enumerate().take(rows.count()) {
                    *score = self.score(queries.row(query), rows.row(candidate));
                }
            }
            return;
        }
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

    /// The score of a query and a row. Its bits are those of [`Similarity::scores`].
    pub fn score(self, query: &[f32], row: &[f32]) -> f32 {
        match self {
            Self::Dot => dot(query, row),
            Self::Euclidean => -distance(square(query), square(row), dot(query, row)),
            Self::Manhattan => {
                let mut sums = [0.0f32; LANES];
                for_lanes(query, row, |lane, query, row| sums[lane] += (query - row).abs());
                -sums.iter().sum::<f32>()
            }
            Self::Moduli => {
                let half = query.len() / 2;
                let [(qr, qi), (rr, ri)] = [query, row].map(|row| row.split_at(half));
                let mut sums = [0.0f32; LANES];
                let mut chunks = [qr, qi, rr, ri].map(|part| part.chunks_exact(LANES));
                while let [Some(qr), Some(qi), Some(rr), Some(ri)] = chunks.each_mut().map(Iterator::next) {
                    for lane in 0..LANES {
                        sums[lane] += modulus(qr[lane] - rr[lane], qi[lane] - ri[lane]);
                    }
                }
                let [qr, qi, rr, ri] = chunks.map(|chunk| chunk.remainder());
                for lane in 0..qr.len() {
                    sums[lane] += modulus(qr[lane] - rr[lane], qi[lane] - ri[lane]);
                }
                -sums.iter().sum::<f32>()
            }
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
            Self::Manhattan => {
                for k in 0..query.len() {
                    let difference = row[k] - query[k];
                    let change = if difference == 0.0 { 0.0 } else { gradient * difference.signum() };
                    of_query[k] += change;
                    of_row[k] -= change;
                }
            }
            Self::Moduli => {
                let half = query.len() / 2;
                let [(qr, qi), (rr, ri)] = [query, row].map(|row| row.split_at(half));
                let [(of_qr, of_qi), (of_rr, of_ri)] = [of_query, of_row].map(|row| row.split_at_mut(half));
                let (qi, rr, ri) = (&qi[..half], &rr[..half], &ri[..half]);
                let (of_qi, of_rr, of_ri) = (&mut of_qi[..half], &mut of_rr[..half], &mut of_ri[..half]);
                for k in 0..half {
                    let (real, imaginary) = (rr[k] - qr[k], ri[k] - qi[k]);
                    let factor = gradient / modulus(real, imaginary);
                    of_qr[k] += factor * real;
                    of_qi[k] += factor * imaginary;
                    of_rr[k] -= factor * real;
                    of_ri[k] -= factor * imaginary;
                }
            }
        }
    }
}

fn modulus(real: f32, imaginary: f32) -> f32 {
    real.mul_add(real, imaginary.mul_add(imaginary, SQUARE_MIN)).sqrt()
}

/// Sums in the order of products of matrices.
fn dot(query: &[f32], row: &[f32]) -> f32 {
    query.iter().zip(row).fold(0.0, |sum, (query, row)| query.mul_add(*row, sum))
}

fn square(row: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for_lanes(row, row, |lane, value, same| sums[lane] = value.mul_add(same, sums[lane]));
    sums.iter().sum()
}

/// The Euclidean distance, from the squares of two lengths and a dot product.
fn distance(of_query: f32, of_row: f32, product: f32) -> f32 {
    (of_query + of_row - 2.0 * product).max(0.0).sqrt()
}

/// Calls `each` with the lane and the values of two rows.
#[inline(always)]
fn for_lanes(one: &[f32], other: &[f32], mut each: impl FnMut(usize, f32, f32)) {
    let mut chunks = [one, other].map(|row| row.chunks_exact(LANES));
    while let [Some(one), Some(other)] = chunks.each_mut().map(Iterator::next) {
        for lane in 0..LANES {
            each(lane, one[lane], other[lane]);
        }
    }
    let [one, other] = chunks.map(|chunk| chunk.remainder());
    for lane in 0..one.len() {
        each(lane, one[lane], other[lane]);
    }
}
