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
    loss::{QueryLoss, TripleLoss},
    matrix::{Matrix, PaddedRows},
    similarity::{CandidateBlock, Similarity},
};

/// Queries of a tile: a multiple of the rows that a product takes at once.
const TILE: usize = 96;
/// Candidates of a block: as many as a product takes at once, so that the transposed rows of a block are read in order, from the first cache.
const BLOCK: usize = 64;

/// The positives of some queries.
#[derive(Debug, Clone, Copy)]
pub enum Positives<'a> {
    /// Each positive is a candidate with this number.
    Among(&'a [u32]),
    /// Positives are not among the candidates. Pairs of a query and a candidate that is the same entity as its positive, sorted: the candidate
    /// is not a negative of the query.
    Apart(&'a Matrix, &'a [(u32, u32)]),
}

/// Queries, candidates and positives.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// How queries are compared with rows.
    pub similarity: Similarity,
    /// The loss.
    pub loss: TripleLoss,
    /// Factor of the loss of a query.
    pub weight: f32,
    /// Values of a row.
    pub dim: usize,
    /// The queries.
    pub queries: &'a Matrix,
    /// The rows of the candidates.
    pub candidates: &'a Matrix,
    /// The right rows of the queries.
    pub positives: Positives<'a>,
}

/// The gradients of a side.
#[derive(Debug, Default)]
pub struct SideGradients {
    /// Gradients of queries.
    pub queries: Matrix,
    /// For each query, the score of its positive, and the gradient of this score, unless positives are candidates.
    pub positives: Vec<(f32, f32)>,
}

/// Buffers of [`Side::backward`], reused from step to step.
#[derive(Debug, Default)]
pub struct SideMemory {
    blocks: Vec<CandidateBlock>,
    /// For each block, the scores and then the factors of all queries.
    scores: Vec<Vec<f32>>,
}

/// Candidates in blocks.
struct Blocks {
    candidates: usize,
}

impl Blocks {
    fn count(&self) -> usize {
        self.candidates.div_ceil(BLOCK)
    }

    /// Candidates of a block.
    fn len(&self, block: usize) -> usize {
        BLOCK.min(self.candidates - block * BLOCK)
    }

    fn rows<'a>(&self, candidates: PaddedRows<'a>, block: usize) -> PaddedRows<'a> {
        candidates.range(block * BLOCK, block * BLOCK + self.len(block))
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

    /// Computes the loss and the gradients of the queries. Adds the gradients of the candidates to `of_candidates`, `[candidates, stride]`.
    pub fn backward(&self, memory: &mut SideMemory, gradients: &mut SideGradients, of_candidates: &mut [f32]) -> f64 {
        let (queries, candidates) = (self.rows_of(self.queries), self.rows_of(self.candidates));
        let (count, stride) = (queries.count(), queries.stride);
        let blocks = Blocks { candidates: candidates.count() };
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
        if self.similarity.is_product() {
            let block_rows: Vec<_> = of_candidates.chunks_mut(BLOCK * stride).enumerate().collect();
            for_each(block_rows, |(number, of_rows)| {
                self.add_products(&scores[number], blocks.rows(candidates, number), of_rows);
            });
        } else {
            let gradients = [&mut gradients.queries.data[..], of_candidates];
            self.similarity.gradients(queries, candidates, BLOCK, scores, gradients);
        }
        losses.iter().sum()
    }

    /// Scores, losses and factors of a tile, and the gradients of its queries if scores are products.
    fn tile(&self, tile: Tile<'_>, blocks: &Blocks, prepared: &[CandidateBlock]) {
        let (queries, candidates) = (self.rows_of(self.queries), self.rows_of(self.candidates));
        let Tile { first, mut scores, gradients, positives, loss } = tile;
        let (count, end) = (positives.len(), first + positives.len());
        let queries = queries.range(first, end);
        let mut losses: Vec<QueryLoss> = (first..end)
            .zip(positives.iter_mut())
            .map(|(query, positive)| {
                let apart = match self.positives {
                    Positives::Among(_) => None,
                    Positives::Apart(rows, _) => {
                        positive.0 = self.similarity.score(queries.row(query - first), self.rows_of(rows).row(query));
                        Some(positive.0)
                    }
                };
                QueryLoss::new(self.loss, self.similarity, self.weight, blocks.candidates, apart)
            })
            .collect();
        for (number, scores) in scores.iter_mut().enumerate() {
            self.similarity.scores(queries, &prepared[number], scores);
            let columns = scores.len() / count;
            if let Positives::Apart(_, clashes) = self.positives {
                let clashes = &clashes[clashes.partition_point(|&(query, _)| (query as usize) < first)..];
                let of_tile = clashes.iter().take_while(|(query, _)| (*query as usize) < end);
                for &(query, candidate) in of_tile.filter(|(_, candidate)| *candidate as usize / BLOCK == number) {
                    scores[(query as usize - first) * columns + candidate as usize % BLOCK] = f32::NEG_INFINITY;
                }
            }
            for (index, (loss, scores)) in losses.iter_mut().zip(scores.chunks_mut(columns)).enumerate() {
                loss.observe(&mut scores[..blocks.len(number)], self.place(first + index, number));
            }
        }
        for (number, scores) in scores.iter_mut().enumerate() {
            let columns = scores.len() / count;
            for (index, (loss, scores)) in losses.iter_mut().zip(scores.chunks_mut(columns)).enumerate() {
                loss.replace(&mut scores[..blocks.len(number)], self.place(first + index, number));
            }
            if self.similarity.is_product() {
                let rows = blocks.rows(candidates, number);
                let (depth, stride) = (rows.count(), rows.stride);
                let products = Factors { a: scores, a_row: columns, a_step: 1, b: rows.data, b_step: stride, depth };
                multiply(Instructions::best(), products, gradients, count, stride);
            }
        }
        for (of_query, positive) in losses.iter().zip(positives.iter_mut()) {
            *loss += of_query.value();
            positive.1 = of_query.gradient();
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

    /// The place of the positive of a query in a block of candidates, if it is there.
    fn place(&self, query: usize, block: usize) -> Option<usize> {
        let Positives::Among(numbers) = self.positives else { return None };
        let number = numbers[query] as usize;
        (number / BLOCK == block).then_some(number % BLOCK)
    }

    /// Adds the gradients of the rows of a block.
    fn add_products(&self, factors: &[f32], rows: PaddedRows<'_>, of_rows: &mut [f32]) {
        let queries = self.rows_of(self.queries);
        let columns = factors.len() / queries.count();
        // The queries of a tile stay in the cache.
        let tiles = factors.chunks(TILE * columns).zip(queries.data.chunks(TILE * queries.stride));
        for (factors, queries) in tiles {
            let stride = self.queries.stride;
            let depth = queries.len() / stride;
            let products = Factors { a: factors, a_row: 1, a_step: columns, b: queries, b_step: stride, depth };
            multiply(Instructions::best(), products, of_rows, rows.count(), stride);
        }
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
}
