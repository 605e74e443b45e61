//! One side of a batch: the queries for tails or for heads, their scores among candidates, the loss and its gradients.
//!
//! ```text
//! for each tile of queries:
//!     for each block of candidates: scores = queries x rows (or distances)
//!     for each query: replace its scores by factors, which follow from the gradient of the loss
//!     gradient of the queries = sum over blocks: factors x rows
//! for each block of candidates: gradient of its rows = transposed factors x queries
//! ```
//!
//! Tiles and blocks are parts for threads. Each value of a result is the work of one part, or sums of parts in their order, so results do
//! not depend on the number of threads.

use grappa_kernels::{Factors, Instructions, for_each, multiply, padded};

use crate::{
    loss::{Positive, TripleLoss},
    matrix::Matrix,
    similarity::{CandidateBlock, PaddedRows, Similarity},
};

/// Queries of a tile: a multiple of the rows that a product takes at once.
const TILE: usize = 48;
/// Candidates of a block of products. The transposed rows of a block fit the second cache.
const PRODUCT_BLOCK: usize = 512;
/// Candidates of a block of distances, which have more work per candidate.
const DISTANCE_BLOCK: usize = 64;

/// The positives of some queries.
#[derive(Debug, Clone, Copy)]
pub enum Positives<'a> {
    /// They are candidates: the number of each.
    Among(&'a [u32]),
    /// They are rows of their own. Candidates that are the positive of a query are no negatives of it: query and candidate, sorted.
    Apart(&'a Matrix, &'a [(u32, u32)]),
}

/// Queries, candidates and positives.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// How queries are compared with rows.
    pub similarity: Similarity,
    /// The loss.
    pub loss: TripleLoss,
    /// The factor of the loss of each query.
    pub weight: f32,
    /// Values of a row.
    pub dim: usize,
    /// The queries.
    pub queries: &'a Matrix,
    /// The rows of the candidates.
    pub candidates: &'a Matrix,
    /// The rows that the queries ask for.
    pub positives: Positives<'a>,
}

/// The gradients of a side.
#[derive(Debug, Default)]
pub struct SideGradients {
    /// Of queries.
    pub queries: Matrix,
    /// For each query, the score of its positive, and the gradient of this score, unless positives are candidates.
    pub positives: Vec<(f32, f32)>,
}

/// Memory of [`Side::backward`], which is used again.
#[derive(Debug, Default)]
pub struct SideMemory {
    blocks: Vec<CandidateBlock>,
    /// For each block, the scores and then the factors of all queries.
    scores: Vec<Vec<f32>>,
    /// For each block of distances, its part of the gradients of queries.
    parts: Vec<Matrix>,
}

/// The candidates of a block, and where its parts are.
struct Blocks {
    size: usize,
    candidates: usize,
}

impl Blocks {
    fn new(similarity: Similarity, candidates: usize) -> Self {
        let size = if similarity.is_product() { PRODUCT_BLOCK } else { DISTANCE_BLOCK };
        Self { size, candidates }
    }

    fn count(&self) -> usize {
        self.candidates.div_ceil(self.size)
    }

    /// Candidates of a block.
    fn len(&self, block: usize) -> usize {
        self.size.min(self.candidates - block * self.size)
    }

    fn rows<'a>(&self, candidates: PaddedRows<'a>, block: usize) -> PaddedRows<'a> {
        candidates.range(block * self.size, block * self.size + self.len(block))
    }
}

/// A tile of queries: the number of the first, and the places of its results.
struct Tile<'a> {
    first: usize,
    /// For each block, the scores.
    scores: Vec<&'a mut [f32]>,
    gradients: &'a mut [f32],
    positives: &'a mut [(f32, f32)],
    loss: &'a mut f64,
}

impl Side<'_> {
    fn rows_of<'a>(&self, matrix: &'a Matrix) -> PaddedRows<'a> {
        PaddedRows { data: &matrix.data, stride: matrix.stride, dim: self.dim }
    }

    /// Computes the loss, and adds gradients: to those of the queries, and to `of_candidates`, `[candidates, stride]`.
    pub fn backward(&self, memory: &mut SideMemory, gradients: &mut SideGradients, of_candidates: &mut [f32]) -> f64 {
        let (queries, candidates) = (self.rows_of(self.queries), self.rows_of(self.candidates));
        let (count, stride) = (queries.count(), queries.stride);
        let blocks = Blocks::new(self.similarity, candidates.count());
        memory.blocks.resize_with(blocks.count(), CandidateBlock::default);
        memory.scores.resize_with(blocks.count(), Vec::new);
        let columns: Vec<usize> = (0..blocks.count()).map(|block| padded(blocks.len(block))).collect();
        let parts: Vec<_> = memory.blocks.iter_mut().zip(&mut memory.scores).enumerate().collect();
        for_each(parts, |(number, (block, scores))| {
            block.prepare(self.similarity, blocks.rows(candidates, number), columns[number]);
            scores.resize(count * columns[number], 0.0);
        });

        gradients.queries.reset(count, self.dim);
        gradients.positives.clear();
        gradients.positives.resize(count, (0.0, 0.0));
        let mut losses = vec![0.0; count.div_ceil(TILE)];
        let mut by_block: Vec<_> =
            memory.scores.iter_mut().zip(&columns).map(|(scores, columns)| scores.chunks_mut(TILE * columns)).collect();
        let tiles = gradients.queries.data.chunks_mut(TILE * stride).zip(gradients.positives.chunks_mut(TILE));
        let tiles = tiles.zip(&mut losses).enumerate().map(|(tile, ((gradients, positives), loss))| Tile {
            first: tile * TILE,
            scores: by_block.iter_mut().map(|scores| scores.next().expect("a tile of each block")).collect(),
            gradients,
            positives,
            loss,
        });
        for_each(tiles.collect(), |tile| self.tile(tile, &blocks, &memory.blocks));

        let scores = &memory.scores;
        let block_rows: Vec<_> = of_candidates.chunks_mut(blocks.size * stride).enumerate().collect();
        match self.similarity.is_product() {
            true => for_each(block_rows, |(number, of_rows)| {
                self.add_products(&scores[number], blocks.rows(candidates, number), of_rows);
            }),
            false => {
                memory.parts.resize_with(blocks.count(), Matrix::default);
                let block_rows: Vec<_> = block_rows.into_iter().zip(&mut memory.parts).collect();
                for_each(block_rows, |((number, of_rows), part)| {
                    part.reset(count, self.dim);
                    self.add_distances(&scores[number], blocks.rows(candidates, number), of_rows, part);
                });
                let parts = &memory.parts;
                gradients.queries.fill_rows(|query, sum| {
                    for part in parts {
                        sum.iter_mut().zip(part.row(query)).for_each(|(sum, part)| *sum += part);
                    }
                });
            }
        }
        losses.iter().sum()
    }

    /// Scores, losses and factors of a tile, and the gradients of its queries if scores are products.
    fn tile(&self, tile: Tile<'_>, blocks: &Blocks, prepared: &[CandidateBlock]) {
        let (queries, candidates) = (self.rows_of(self.queries), self.rows_of(self.candidates));
        let Tile { first, mut scores, gradients, positives, loss } = tile;
        let end = first + positives.len();
        let queries = queries.range(first, end);
        for (number, scores) in scores.iter_mut().enumerate() {
            self.similarity.scores(queries, blocks.rows(candidates, number), &prepared[number], scores);
        }
        let mut columns: Vec<_> =
            scores.iter_mut().map(|scores| scores.chunks_mut(scores.len() / positives.len())).collect();
        for (index, positive) in positives.iter_mut().enumerate() {
            let of_query = columns.iter_mut().enumerate().map(|(number, rows)| {
                let row = rows.next().expect("a row for each query");
                &mut row[..blocks.len(number)]
            });
            let mut segments: Vec<&mut [f32]> = of_query.collect();
            let query = first + index;
            let place = match self.positives {
                Positives::Among(numbers) => {
                    let number = numbers[query] as usize;
                    Positive::Among(number / blocks.size, number % blocks.size)
                }
                Positives::Apart(rows, clashes) => {
                    let start = clashes.partition_point(|&(other, _)| (other as usize) < query);
                    for &(_, candidate) in clashes[start..].iter().take_while(|(other, _)| *other as usize == query) {
                        segments[candidate as usize / blocks.size][candidate as usize % blocks.size] =
                            f32::NEG_INFINITY;
                    }
                    positive.0 = self.similarity.score(queries.row(index), self.rows_of(rows).row(query));
                    Positive::Apart(positive.0)
                }
            };
            let (of_query, gradient) = self.loss.of_query(self.similarity, &mut segments, place, self.weight);
            *loss += of_query;
            positive.1 = gradient;
        }
        if !self.similarity.is_product() {
            return;
        }
        let count = end - first;
        for (number, factors) in scores.iter().enumerate() {
            let columns = factors.len() / count;
            let rows = blocks.rows(candidates, number);
            let products = Factors {
                a: factors,
                a_row: columns,
                a_step: 1,
                b: rows.data,
                b_step: rows.stride,
                depth: rows.count(),
            };
            multiply(Instructions::best(), products, gradients, count, rows.stride);
        }
        if self.similarity == Similarity::Euclidean {
            for (query, gradient) in gradients.chunks_mut(queries.stride).enumerate() {
                let sum: f32 = (0..blocks.count())
                    .map(|number| {
                        let columns = scores[number].len() / count;
                        scores[number][query * columns..][..blocks.len(number)].iter().sum::<f32>()
                    })
                    .sum();
                let query = queries.row(query);
                gradient.iter_mut().zip(query).for_each(|(gradient, query)| *gradient -= sum * query);
            }
        }
    }

    /// Adds the gradients of the rows of a block.
    fn add_products(&self, factors: &[f32], rows: PaddedRows<'_>, of_rows: &mut [f32]) {
        let queries = self.rows_of(self.queries);
        let columns = factors.len() / queries.count();
        let products = Factors {
            a: factors,
            a_row: 1,
            a_step: columns,
            b: queries.data,
            b_step: queries.stride,
            depth: queries.count(),
        };
        multiply(Instructions::best(), products, of_rows, rows.count(), queries.stride);
        if self.similarity == Similarity::Euclidean {
            let mut sums = vec![0.0f32; columns];
            for factors in factors.chunks(columns) {
                sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += factor);
            }
            for (row, gradient) in of_rows.chunks_mut(queries.stride).enumerate() {
                let values = rows.row(row);
                gradient.iter_mut().zip(values).for_each(|(gradient, value)| *gradient -= sums[row] * value);
            }
        }
    }

    /// Adds the gradients of the rows of a block, and its part of those of the queries.
    fn add_distances(&self, factors: &[f32], rows: PaddedRows<'_>, of_rows: &mut [f32], part: &mut Matrix) {
        let queries = self.rows_of(self.queries);
        let columns = factors.len() / queries.count();
        for (query, of_query) in part.data.chunks_mut(queries.stride).enumerate() {
            let factors = &factors[query * columns..];
            for (row, of_row) in of_rows.chunks_mut(queries.stride).enumerate() {
                let ends = [queries.row(query), rows.row(row)];
                let gradients = [&mut of_query[..self.dim], &mut of_row[..self.dim]];
                self.similarity.backward(ends, 0.0, factors[row], gradients);
            }
        }
    }
}
