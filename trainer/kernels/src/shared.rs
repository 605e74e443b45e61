//! Attention whose heads share rows: each head has weights of its own for the same rows.
//!
//! A linear layer before a weighted sum can follow it instead: `sum(w * (W x)) = W sum(w * x)`. There are fewer destinations than
//! sources, so the product gets smaller by as much. The sums of all heads are then of the same rows `x`. The row of a destination has a sum
//! for each head, one after another: `heads * width` values.
//!
//! A source's row is loaded once per edge, and all heads use it while it is in the cache.

use std::ops::Range;

use crate::{
    attention::{Edges, add, for_destinations, for_edges, sum},
    csr::Transposed,
};

/// Edges whose rows stay in the cache while all heads add them up.
const BLOCK: usize = 32;
/// Values of a row that are added up at a time.
const STRIP: usize = 32;

/// `results[d, h] = sum over edges e of weights[e, h] * rows[source of e]`, of `[destinations, heads * width]`.
pub fn weighted_sum(edges: Edges<'_>, rows: &[f32], weights: &[f32], results: &mut [f32]) {
    let (width, heads) = (edges.width, edges.heads);
    for_destinations(edges.offsets, width * heads, results, |range, results| {
        for (destination, result) in range.zip(results.chunks_exact_mut(width * heads)) {
            edges.prefetch(destination, rows);
            result.fill(0.0);
            for block in blocks(edges.range(destination)) {
                for (head, result) in result.chunks_exact_mut(width).enumerate() {
                    let (strips, rest) = result.as_chunks_mut::<STRIP>();
                    let first_of_rest = strips.len() * STRIP;
                    for (strip, result) in strips.iter_mut().enumerate() {
                        // Sums of a strip stay in registers.
                        let mut sums = *result;
                        for edge in block.clone() {
                            let row: &[f32; STRIP] =
                                edges.row(edge, rows)[strip * STRIP..].first_chunk().expect("a strip");
                            add(&mut sums, weights[edge * heads + head], row);
                        }
                        *result = sums;
                    }
                    if !rest.is_empty() {
                        for edge in block.clone() {
                            add(rest, weights[edge * heads + head], &edges.row(edge, rows)[first_of_rest..]);
                        }
                    }
                }
            }
        }
    });
}

/// The gradient of the rows of [`weighted_sum`], from the gradient of its results.
pub fn weighted_sum_backward(
    transposed: Transposed<'_>,
    width: usize,
    heads: usize,
    gradient: &[f32],
    weights: &[f32],
    results: &mut [f32],
) {
    let of_sources = Edges { offsets: transposed.offsets, indices: transposed.indices, width: width * heads, heads };
    for_destinations(transposed.offsets, width, results, |range, results| {
        for (source, result) in range.zip(results.chunks_exact_mut(width)) {
            of_sources.prefetch(source, gradient);
            result.fill(0.0);
            for place in of_sources.range(source) {
                let weights = &weights[transposed.edges[place] as usize * heads..][..heads];
                let gradient = of_sources.row(place, gradient);
                for (gradient, weight) in gradient.chunks_exact(width).zip(weights) {
                    add(result, *weight, gradient);
                }
            }
        }
    });
}

/// For each edge and head, the product of its source's row and of the row of that head of its destination, `[destinations, heads * width]`.
///
/// This is the gradient of the weights of [`weighted_sum`], and the logits of attention with dot products.
pub fn products(edges: Edges<'_>, destinations: &[f32], rows: &[f32], results: &mut [f32]) {
    let (width, heads) = (edges.width, edges.heads);
    for_edges(edges, results, |range, results| {
        let first = edges.offsets[range.start] as usize;
        for destination in range {
            edges.prefetch(destination, rows);
            let of_heads = &destinations[destination * width * heads..][..width * heads];
            for edge in edges.range(destination) {
                let row = edges.row(edge, rows);
                let results = &mut results[(edge - first) * heads..][..heads];
                for (result, head) in results.iter_mut().zip(of_heads.chunks_exact(width)) {
                    *result = sum(head, row, |a, b| a * b);
                }
            }
        }
    });
}

fn blocks(edges: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = edges.end;
    edges.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + i / 5 + seed * 3) % 17) as f32 - 8.0).collect()
    }

    /// Whole numbers, whose products and sums are exact.
    #[test]
    fn sums_and_products_equal_naive_ones() {
        // Destination 1 has no edges, and destination 2 has more than a block.
        let offsets = [0, 3, 3, 43];
        let indices: Vec<u32> = (0..43).map(|edge| (edge * 5 + edge / 7) % 9).collect();
        let csr = Csr::new(offsets.to_vec(), indices.clone(), 9);
        for (width, heads) in [(1, 1), (32, 4), (40, 3), (7, 2)] {
            let edges = Edges { offsets: &offsets, indices: &indices, width, heads };
            let (rows, weights) = (numbers(9 * width, 1), numbers(43 * heads, 2));
            let of_results = numbers(3 * heads * width, 3);
            let mut expected_sums = vec![0.0; 3 * heads * width];
            let mut expected_rows = vec![0.0; 9 * width];
            let mut expected_products = vec![0.0; 43 * heads];
            for destination in 0..3 {
                for edge in edges.range(destination) {
                    for (head, column) in (0..heads).flat_map(|head| (0..width).map(move |column| (head, column))) {
                        let row = indices[edge] as usize * width + column;
                        let place = (destination * heads + head) * width + column;
                        expected_sums[place] += weights[edge * heads + head] * rows[row];
                        expected_rows[row] += weights[edge * heads + head] * of_results[place];
                        expected_products[edge * heads + head] += of_results[place] * rows[row];
                    }
                }
            }
            let mut sums = vec![9.0; expected_sums.len()];
            weighted_sum(edges, &rows, &weights, &mut sums);
            assert_eq!(sums, expected_sums, "{width} {heads}");
            let mut of_rows = vec![9.0; expected_rows.len()];
            weighted_sum_backward(csr.transposed(), width, heads, &of_results, &weights, &mut of_rows);
            assert_eq!(of_rows, expected_rows, "{width} {heads}");
            let mut of_weights = vec![9.0; expected_products.len()];
            products(edges, &of_results, &rows, &mut of_weights);
            assert_eq!(of_weights, expected_products, "{width} {heads}");
        }
    }
}
