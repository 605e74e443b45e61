//! Scores and gradients of blocks equal the scores and gradients of single pairs, which are simple loops.

use grappa_kernels::padded;

use super::{assert_close, sides::matrix};
use crate::{
    matrix::{Matrix, PaddedRows},
    similarity::{CandidateBlock, Similarity},
};

const SIMILARITIES: [Similarity; 4] =
    [Similarity::Dot, Similarity::Euclidean, Similarity::Manhattan, Similarity::Moduli];
/// Queries, candidates of a block, and values of a row.
const SHAPES: [[usize; 3]; 5] = [[1, 1, 2], [2, 8, 32], [5, 7, 10], [7, 64, 70], [96, 33, 38]];

/// Candidates of a block of gradients.
const BLOCK: usize = 24;

fn rows(matrix: &Matrix, dim: usize) -> PaddedRows<'_> {
    PaddedRows { data: &matrix.data, stride: matrix.stride, dim }
}

#[test]
fn scores_of_a_block_have_the_bits_of_single_scores() {
    for similarity in SIMILARITIES {
        for [queries, candidates, dim] in SHAPES {
            let [queries, candidates] = [(queries, 1), (candidates, 2)].map(|(rows, seed)| matrix(rows, dim, seed));
            let [queries, candidates] = [&queries, &candidates].map(|matrix| rows(matrix, dim));
            let columns = padded(candidates.count());
            let (mut block, mut scores) = (CandidateBlock::default(), vec![f32::NAN; queries.count() * columns]);
            block.prepare(similarity, candidates, columns);
            similarity.scores(queries, &block, &mut scores);
            for (query, scores) in scores.chunks(columns).enumerate() {
                for (candidate, score) in scores.iter().enumerate().take(candidates.count()) {
                    let expected = similarity.score(queries.row(query), candidates.row(candidate));
                    assert_eq!(score.to_bits(), expected.to_bits(), "{similarity:?}, {query}, {candidate}, {dim}");
                }
            }
        }
    }
}

#[test]
fn sums_of_distances_are_those_of_the_definition() {
    for dim in [2, 6, 8, 10, 70] {
        let (query, row) = (matrix(1, dim, 1), matrix(1, dim, 2));
        let (query, row) = (&query.row(0)[..dim], &row.row(0)[..dim]);
        let differences: Vec<f64> = query.iter().zip(row).map(|(q, r)| f64::from(*q) - f64::from(*r)).collect();
        let (real, imaginary) = differences.split_at(dim / 2);
        let absolute: f64 = differences.iter().map(|difference| difference.abs()).sum();
        let moduli: f64 = real.iter().zip(imaginary).map(|(real, imaginary)| real.hypot(*imaginary)).sum();
        assert_close(Similarity::Manhattan.score(query, row).into(), -absolute, 1e-6, "real numbers");
        assert_close(Similarity::Moduli.score(query, row).into(), -moduli, 1e-6, "complex numbers");
    }
}

#[test]
fn gradients_in_blocks_have_the_bits_of_single_gradients() {
    for similarity in [Similarity::Manhattan, Similarity::Moduli] {
        for [queries, candidates, dim] in SHAPES {
            let [query_rows, mut candidate_rows, mut of_queries, mut of_rows] =
                [(queries, 1), (candidates, 2), (queries, 3), (candidates, 4)]
                    .map(|(rows, seed)| matrix(rows, dim, seed));
            // A distance of 0 has no direction.
            candidate_rows.data[..dim].copy_from_slice(&query_rows.data[..dim]);
            let factors: Vec<Matrix> = (0..candidates)
                .step_by(BLOCK)
                .map(|first| matrix(queries, padded(BLOCK.min(candidates - first)), 5 + first as u64))
                .collect();
            let [query_rows, candidate_rows] = [&query_rows, &candidate_rows].map(|matrix| rows(matrix, dim));
            let stride = query_rows.stride;
            let (mut expected_queries, mut expected_rows) = (of_queries.clone(), of_rows.clone());
            let by_block: Vec<Vec<f32>> = factors.iter().map(|factors| factors.data.clone()).collect();
            let gradients = [&mut of_queries.data[..], &mut of_rows.data[..]];
            similarity.gradients(query_rows, candidate_rows, BLOCK, &by_block, gradients);
            for (query, of_query) in expected_queries.data.chunks_mut(stride).enumerate() {
                for (row, of_row) in expected_rows.data.chunks_mut(stride).enumerate() {
                    let pair = [query_rows.row(query), candidate_rows.row(row)];
                    let factor = factors[row / BLOCK].row(query)[row % BLOCK];
                    similarity.backward(pair, 0.0, factor, [&mut of_query[..dim], &mut of_row[..dim]]);
                }
            }
            let name = format!("{similarity:?}, {queries} queries, {candidates} candidates, {dim} values");
            assert!(of_queries.data == expected_queries.data, "queries: {name}");
            assert!(of_rows.data == expected_rows.data, "candidates: {name}");
            assert!(of_queries.data.iter().all(|value| value.is_finite()), "{name}");
        }
    }
}
