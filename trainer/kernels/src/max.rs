//! The maximum of rows, selected by a CSR: max aggregation, forward and backward. NaN is larger than any number, as in PyTorch.

use std::ops::Range;

use crate::{
    csr::{Csr, Transposed},
    element::Element,
    gather::parts,
    parallel::for_each,
};

/// Means "no edge".
const NONE: u32 = u32::MAX;

/// The maximum of each result's rows, value by value; zeros for a result without edges. Returns the edge of each value, the first one
/// if several are equal.
pub fn max<T: Element>(rows: &[T], width: usize, csr: &Csr, results: &mut [T]) -> Vec<u32> {
    let Csr { offsets, indices, .. } = csr;
    let mut winners = vec![NONE; results.len()];
    let of_values = parts(offsets, width, results).into_iter();
    let of_winners = parts(offsets, width, &mut winners);
    let both = of_values.zip(of_winners).map(|((range, values), (_, edges))| (range, values, edges));
    for_each(both.collect(), |(range, values, edges): (Range<usize>, &mut [T], &mut [u32])| {
        for ((result, values), edges) in range.zip(values.chunks_exact_mut(width)).zip(edges.chunks_exact_mut(width)) {
            values.fill(T::default());
            for edge in offsets[result]..offsets[result + 1] {
                let row = &rows[indices[edge as usize] as usize * width..][..width];
                let first = edge == offsets[result];
                for ((value, winner), candidate) in values.iter_mut().zip(edges.iter_mut()).zip(row) {
                    let (candidate_value, best) = (candidate.to_f32(), value.to_f32());
                    let wins = first | (candidate_value > best) | (candidate_value.is_nan() & !best.is_nan());
                    *value = if wins { *candidate } else { *value };
                    *winner = if wins { edge } else { *winner };
                }
            }
        }
    });
    winners
}

/// The gradient of the rows, from the gradient of the results.
pub fn max_backward<T: Element>(
    gradient: &[T],
    width: usize,
    winners: &[u32],
    transposed: Transposed<'_>,
    results: &mut [T],
) {
    let parts = parts(transposed.offsets, width, results);
    for_each(parts, |(range, results): (Range<usize>, &mut [T])| {
        let mut sum = vec![0.0f32; width];
        for (source, out) in range.zip(results.chunks_exact_mut(width)) {
            sum.fill(0.0);
            for place in transposed.offsets[source] as usize..transposed.offsets[source + 1] as usize {
                let first = transposed.indices[place] as usize * width;
                let edge = transposed.edges[place];
                let gradient = &gradient[first..][..width];
                let winners = &winners[first..][..width];
                for ((sum, gradient), winner) in sum.iter_mut().zip(gradient).zip(winners) {
                    *sum += if *winner == edge { gradient.to_f32() } else { 0.0 };
                }
            }
            for (out, sum) in out.iter_mut().zip(&sum) {
                *out = T::from_f32(*sum);
            }
        }
    });
}
