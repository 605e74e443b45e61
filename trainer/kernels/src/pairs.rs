//! The attention of GATv2 in one pass over the edges: logits, softmax and weighted sum, forward and backward.
//!
//! ```text
//! forward, for each destination:
//!     logit of each edge and head = attention * leaky_relu(source + destination), summed over the values of the head
//!     weights = softmax of the logits; result = sum of weight * source
//! backward, for each destination, with the gradient g of its result:
//!     of weights = g * source; of logits through the softmax
//!     of the destination, of the attention vector
//! backward, for each source: of the source, from its weights and the gradients of its logits
//! ```
//!
//! The rows of a destination's sources are in the cache from one step to the next. Step by step, as in [`attention`](crate::attention),
//! they are loaded five times.

use std::ops::Range;

use crate::{
    attention::{Edges, Pairs, SLOPE, exp_of_negative, for_destinations, leaky},
    csr::Transposed,
    gather::{AHEAD, LINE, split},
    multiply::multiply_add,
    parallel::for_each,
};

/// Partial sums of a row: one vector. The compiler does not make vectors of more.
const LANES: usize = 8;

/// The weights of edges, `[edges, heads]`.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// The softmax of logits.
    pub softmax: &'a [f32],
    /// What dropout multiplies them by; none without dropout.
    pub factors: Option<&'a [f32]>,
}

impl Weights<'_> {
    #[inline(always)]
    fn factor(&self, place: usize) -> f32 {
        self.factors.map_or(1.0, |factors| factors[place])
    }

    #[inline(always)]
    fn weight(&self, place: usize) -> f32 {
        self.softmax[place] * self.factor(place)
    }
}

/// Fills `results`, `[destinations, width]`, and `softmax`, `[edges, heads]`, from rows of sources and destinations.
pub fn attend(edges: Edges<'_>, pairs: Pairs<'_>, factors: Option<&[f32]>, [softmax, results]: [&mut [f32]; 2]) {
    let (width, heads, head_width) = (edges.width, edges.heads, edges.width / edges.heads);
    let parts = divide(edges, softmax, results);
    for_each(parts, |(range, softmax, results): DestinationPart<'_>| {
        let first = edges.offsets[range.start] as usize;
        let mut totals = vec![0.0; 2 * heads];
        let (largest, sums) = totals.split_at_mut(heads);
        for (destination, result) in range.zip(results.chunks_exact_mut(width)) {
            edges.prefetch(destination, pairs.sources);
            let own = &pairs.destinations[destination * width..][..width];
            largest.fill(f32::NEG_INFINITY);
            sums.fill(0.0);
            result.fill(0.0);
            let of_destination = edges.range(destination);
            let weights = &mut softmax[(of_destination.start - first) * heads..(of_destination.end - first) * heads];
            for (edge, logits) in of_destination.clone().zip(weights.chunks_exact_mut(heads)) {
                let row = edges.row(edge, pairs.sources);
                for (head, logit) in logits.iter_mut().enumerate() {
                    let part = head * head_width..(head + 1) * head_width;
                    *logit = logit_of(&row[part.clone()], &own[part.clone()], &pairs.attention[part]);
                    largest[head] = largest[head].max(*logit);
                }
            }
            for logits in weights.chunks_exact_mut(heads) {
                for (logit, (largest, sum)) in logits.iter_mut().zip(largest.iter().zip(&mut *sums)) {
                    *logit = exp_of_negative(*logit - largest);
                    *sum += *logit;
                }
            }
            for (edge, weights) in of_destination.zip(weights.chunks_exact_mut(heads)) {
                let row = edges.row(edge, pairs.sources);
                for (head, weight) in weights.iter_mut().enumerate() {
                    *weight /= sums[head];
                    let factor = factors.map_or(1.0, |factors| factors[edge * heads + head]);
                    let part = head * head_width..(head + 1) * head_width;
                    add(&mut result[part.clone()], *weight * factor, &row[part]);
                }
            }
        }
    });
}

/// The gradients of the inputs of [`attend`], from the gradient of its results. Fills them for sources and destinations, and returns the
/// gradient of the attention vector.
pub fn attend_backward(
    edges: Edges<'_>,
    transposed: Transposed<'_>,
    pairs: Pairs<'_>,
    weights: Weights<'_>,
    gradient: &[f32],
    [of_sources, of_destinations]: [&mut [f32]; 2],
) -> Vec<f32> {
    let (width, heads, head_width) = (edges.width, edges.heads, edges.width / edges.heads);
    let mut of_logits = vec![0.0; edges.indices.len() * heads];
    let parts = divide(edges, &mut of_logits, of_destinations);
    let mut of_attention = vec![vec![0.0; width]; parts.len()];
    let parts = parts.into_iter().zip(&mut of_attention);
    for_each(parts.collect(), |((range, of_logits, results), of_attention): (DestinationPart<'_>, &mut Vec<f32>)| {
        let first = edges.offsets[range.start] as usize;
        let mut means = vec![0.0; heads];
        for (destination, result) in range.zip(results.chunks_exact_mut(width)) {
            edges.prefetch(destination, pairs.sources);
            let own = &pairs.destinations[destination * width..][..width];
            let gradient = &gradient[destination * width..][..width];
            means.fill(0.0);
            result.fill(0.0);
            let of_destination = edges.range(destination);
            let of_logits =
                &mut of_logits[(of_destination.start - first) * heads..(of_destination.end - first) * heads];
            for (edge, of_weights) in of_destination.clone().zip(of_logits.chunks_exact_mut(heads)) {
                let row = edges.row(edge, pairs.sources);
                for (head, of_weight) in of_weights.iter_mut().enumerate() {
                    let (part, place) = (head * head_width..(head + 1) * head_width, edge * heads + head);
                    *of_weight = product(&gradient[part.clone()], &row[part]) * weights.factor(place);
                    means[head] += *of_weight * weights.softmax[place];
                }
            }
            for (edge, of_logits) in of_destination.zip(of_logits.chunks_exact_mut(heads)) {
                let row = edges.row(edge, pairs.sources);
                for (head, of_logit) in of_logits.iter_mut().enumerate() {
                    *of_logit = weights.softmax[edge * heads + head] * (*of_logit - means[head]);
                    let part = head * head_width..(head + 1) * head_width;
                    let ends = row[part.clone()].iter().zip(&own[part.clone()]);
                    let vectors = pairs.attention[part.clone()].iter().zip(&mut of_attention[part.clone()]);
                    for ((row, own), ((attention, of_attention), result)) in ends.zip(vectors.zip(&mut result[part])) {
                        let sum = row + own;
                        *of_attention += *of_logit * leaky(sum);
                        *result += *of_logit * attention * if sum > 0.0 { 1.0 } else { SLOPE };
                    }
                }
            }
        }
    });
    for_destinations(transposed.offsets, width, of_sources, |range, results| {
        for (source, result) in range.zip(results.chunks_exact_mut(width)) {
            let row = &pairs.sources[source * width..][..width];
            result.fill(0.0);
            for place in transposed.offsets[source] as usize..transposed.offsets[source + 1] as usize {
                prefetch(transposed, place, width, [gradient, pairs.destinations]);
                let (destination, edge) = (transposed.indices[place] as usize, transposed.edges[place] as usize);
                let own = &pairs.destinations[destination * width..][..width];
                let gradient = &gradient[destination * width..][..width];
                for head in 0..heads {
                    let (weight, of_logit) = (weights.weight(edge * heads + head), of_logits[edge * heads + head]);
                    let part = head * head_width..(head + 1) * head_width;
                    let ends = row[part.clone()].iter().zip(&own[part.clone()]);
                    let vectors = pairs.attention[part.clone()].iter().zip(&gradient[part.clone()]);
                    for ((row, own), ((attention, gradient), result)) in ends.zip(vectors.zip(&mut result[part])) {
                        let slope = if row + own > 0.0 { 1.0 } else { SLOPE };
                        *result += weight * gradient + of_logit * attention * slope;
                    }
                }
            }
        }
    });
    let mut total = vec![0.0; width];
    for sum in &of_attention {
        total.iter_mut().zip(sum).for_each(|(total, sum)| *total += sum);
    }
    total
}

/// A range of destinations, with the values of its edges and of itself.
type DestinationPart<'a> = (Range<usize>, &'a mut [f32], &'a mut [f32]);

/// The parts of values of edges, a value for each head, and of rows of destinations.
fn divide<'a>(edges: Edges<'_>, mut of_edges: &'a mut [f32], mut rows: &'a mut [f32]) -> Vec<DestinationPart<'a>> {
    let divided = split(edges.offsets).into_iter().map(|range| {
        let count = (edges.offsets[range.end] - edges.offsets[range.start]) as usize;
        let of_edges = of_edges.split_off_mut(..count * edges.heads).expect("values of all edges");
        let rows = rows.split_off_mut(..range.len() * edges.width).expect("rows of all destinations");
        (range, of_edges, rows)
    });
    divided.collect()
}

/// Prefetches rows of a destination some edges ahead.
#[inline(always)]
fn prefetch(transposed: Transposed<'_>, place: usize, width: usize, arrays: [&[f32]; 2]) {
    if let Some(&soon) = transposed.indices.get(place + AHEAD) {
        let first = soon as usize * width;
        for value in (first..first + width).step_by(LINE / size_of::<f32>()) {
            arrays.iter().for_each(|rows| grappa_io::prefetch::prefetch(rows, value));
        }
    }
}

/// `sums += weight * row`
#[inline(always)]
pub(crate) fn add(sums: &mut [f32], weight: f32, row: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum = multiply_add(weight, *value, *sum);
    }
}

/// The sum of `attention * leaky_relu(row + own)`.
#[inline(always)]
fn logit_of(row: &[f32], own: &[f32], attention: &[f32]) -> f32 {
    let (rows, owns) = (row.as_chunks::<LANES>(), own.as_chunks::<LANES>());
    let attentions = attention.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for ((row, own), attention) in rows.0.iter().zip(owns.0).zip(attentions.0) {
        for ((sum, attention), (row, own)) in sums.iter_mut().zip(attention).zip(row.iter().zip(own)) {
            *sum = multiply_add(*attention, leaky(row + own), *sum);
        }
    }
    let rest = rows.1.iter().zip(owns.1).zip(attentions.1).map(|((row, own), attention)| attention * leaky(row + own));
    sums.iter().sum::<f32>() + rest.sum::<f32>()
}

/// The sum of the products of two rows.
#[inline(always)]
pub(crate) fn product(left: &[f32], right: &[f32]) -> f32 {
    let (lefts, rights) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (left, right) in lefts.0.iter().zip(rights.0) {
        for (sum, (left, right)) in sums.iter_mut().zip(left.iter().zip(right)) {
            *sum = multiply_add(*left, *right, *sum);
        }
    }
    let rest = lefts.1.iter().zip(rights.1).map(|(left, right)| left * right);
    sums.iter().sum::<f32>() + rest.sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attention::{
            pair_logits, pair_logits_backward, products, softmax, softmax_backward, weighted_sum, weighted_sum_backward,
        },
        csr::Csr,
    };

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + i / 5 + seed * 3) % 17) as f32 / 8.0 - 1.03).collect()
    }

    fn assert_close(actual: &[f32], expected: &[f32], name: &str) {
        assert_eq!(actual.len(), expected.len(), "{name}");
        for (place, (actual, expected)) in actual.iter().zip(expected).enumerate() {
            assert!(
                (actual - expected).abs() <= 1e-4 * (1.0 + expected.abs()),
                "{name} {place}: {actual}, not {expected}"
            );
        }
    }

    #[test]
    fn one_pass_equals_its_steps() {
        // Destination 1 has no edges.
        let offsets = vec![0, 3, 3, 43];
        let indices: Vec<u32> = (0..43).map(|edge| (edge * 5 + edge / 7) % 9).collect();
        let csr = Csr::new(offsets, indices, 9);
        for (width, heads, has_dropout) in [(1, 1, false), (64, 2, true), (21, 3, false), (40, 2, true)] {
            let edges = Edges { offsets: &csr.offsets, indices: &csr.indices, width, heads };
            let (sources, destinations, attention) = (numbers(9 * width, 1), numbers(3 * width, 2), numbers(width, 3));
            let pairs = Pairs { sources: &sources, destinations: &destinations, edges: None, attention: &attention };
            let gradient = numbers(3 * width, 4);
            let factors: Option<Vec<f32>> = has_dropout.then(|| (0..43 * heads).map(|i| (i % 3) as f32).collect());
            let times_factors = |values: &[f32]| match &factors {
                Some(factors) => values.iter().zip(factors).map(|(value, factor)| value * factor).collect(),
                None => values.to_vec(),
            };

            let [mut logits, mut weights, mut of_weights, mut of_logits] = [(); 4].map(|()| vec![0.0; 43 * heads]);
            let [mut sums, mut of_destinations] = [(); 2].map(|()| vec![0.0; 3 * width]);
            let [mut of_rows, mut of_sources] = [(); 2].map(|()| vec![0.0; 9 * width]);
            pair_logits(edges, pairs, &mut logits);
            softmax(edges, &logits, &mut weights);
            let dropped: Vec<f32> = times_factors(&weights);
            weighted_sum(edges, &sources, &dropped, &mut sums);
            products(edges, &gradient, &sources, &mut of_weights);
            softmax_backward(edges, &weights, &times_factors(&of_weights), &mut of_logits);
            weighted_sum_backward(csr.transposed(), width, heads, &gradient, &dropped, &mut of_rows);
            let results = [None, Some(&mut of_sources[..]), Some(&mut of_destinations[..])];
            let of_attention = pair_logits_backward(edges, csr.transposed(), pairs, &of_logits, results);
            of_sources.iter_mut().zip(&of_rows).for_each(|(sum, value)| *sum += value);

            let (mut found_weights, mut found) = (vec![9.0; 43 * heads], vec![9.0; 3 * width]);
            attend(edges, pairs, factors.as_deref(), [&mut found_weights, &mut found]);
            assert_close(&found_weights, &weights, "weights");
            assert_close(&found, &sums, "sums");
            let (mut found_sources, mut found_destinations) = (vec![9.0; 9 * width], vec![9.0; 3 * width]);
            let softmax = Weights { softmax: &weights, factors: factors.as_deref() };
            let results = [&mut found_sources[..], &mut found_destinations[..]];
            let found_attention = attend_backward(edges, csr.transposed(), pairs, softmax, &gradient, results);
            assert_close(&found_sources, &of_sources, "sources");
            assert_close(&found_destinations, &of_destinations, "destinations");
            assert_close(&found_attention, &of_attention, "attention");
        }
    }
}
