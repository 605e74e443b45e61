//! Attention: sums of rows with an attention weight per edge and head, the softmax of logits, and the logits of GAT and GATv2.
//!
//! The rows of the CSR are destinations. A row has the values of the first head, then the values of the second, and so on. Attention
//! weights and logits are `[edges, heads]`, which is small next to rows. An edge costs loading its source's row, as in
//! [`gather`](crate::gather). libtorch's operators would write and read a row per edge several times.

use std::ops::Range;

use grappa_io::prefetch::prefetch;

use crate::{
    csr::Transposed,
    gather::{AHEAD, LINE, parts, parts_by, split},
    multiply::multiply_add,
    parallel::for_each,
};

/// Values of a row that are added up at a time.
const STRIP: usize = 32;

/// Slope of the leaky relu for negative values, as in the papers.
pub const SLOPE: f32 = 0.2;

/// A CSR and the shape of its rows.
#[derive(Debug, Clone, Copy)]
pub struct Edges<'a> {
    /// Offset of each destination's edges, and the number of edges at the end.
    pub offsets: &'a [u32],
    /// Source of each edge.
    pub indices: &'a [u32],
    /// Width of a row.
    pub width: usize,
    /// Number of heads, which share the width.
    pub heads: usize,
}

impl Edges<'_> {
    pub(crate) fn range(&self, destination: usize) -> Range<usize> {
        self.offsets[destination] as usize..self.offsets[destination + 1] as usize
    }

    #[inline(always)]
    pub(crate) fn row<'a>(&self, edge: usize, rows: &'a [f32]) -> &'a [f32] {
        &rows[self.indices[edge] as usize * self.width..][..self.width]
    }

    fn head_width(&self) -> usize {
        self.width / self.heads
    }

    /// Prefetches rows some edges ahead of the edges of a destination.
    #[inline(always)]
    pub(crate) fn prefetch(&self, destination: usize, rows: &[f32]) {
        for edge in self.range(destination) {
            if let Some(&soon) = self.indices.get(edge + AHEAD) {
                let first = soon as usize * self.width;
                for value in (first..first + self.width).step_by(LINE / size_of::<f32>()) {
                    prefetch(rows, value);
                }
            }
        }
    }
}

/// Calls `work` for ranges of destinations with their part of `rows`, `width` values each.
pub(crate) fn for_destinations(
    offsets: &[u32],
    width: usize,
    rows: &mut [f32],
    work: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    for_each(parts(offsets, width, rows), |(range, part)| work(range, part));
}

/// Fills each row of `sums`, of `width` values, with a sum over its entries in a CSR. `add` gets the row, the number of the entry, room for a
/// row of values, and the sum.
fn for_sums(
    offsets: &[u32],
    width: usize,
    sums: &mut [f32],
    add: impl Fn(usize, usize, &mut [f32], &mut [f32]) + Sync,
) {
    for_destinations(offsets, width, sums, |range, sums| {
        let mut room = vec![0.0; width];
        for (row, sum) in range.zip(sums.chunks_exact_mut(width)) {
            sum.fill(0.0);
            (offsets[row] as usize..offsets[row + 1] as usize).for_each(|entry| add(row, entry, &mut room, sum));
        }
    });
}

/// Calls `work` for ranges of destinations with the part of `values` that belongs to their edges.
pub(crate) fn for_edges(edges: Edges<'_>, values: &mut [f32], work: impl Fn(Range<usize>, &mut [f32]) + Sync) {
    let count = |range: &Range<usize>| (edges.offsets[range.end] - edges.offsets[range.start]) as usize;
    let parts = parts_by(edges.offsets, values, |range| count(range) * edges.heads);
    for_each(parts, |(range, part)| work(range, part));
}

/// `results[d] = sum over edges e of weights[e] * rows[source of e]`, head by head.
pub fn weighted_sum(edges: Edges<'_>, rows: &[f32], weights: &[f32], results: &mut [f32]) {
    weighted(edges, rows, |edge| edge, weights, results);
}

/// The gradient of [`weighted_sum`]'s rows, from the gradient of its results: the same over the transposed edges.
pub fn weighted_sum_backward(
    transposed: Transposed<'_>,
    width: usize,
    heads: usize,
    gradient: &[f32],
    weights: &[f32],
    results: &mut [f32],
) {
    let edges = Edges { offsets: transposed.offsets, indices: transposed.indices, width, heads };
    weighted(edges, gradient, |place| transposed.edges[place] as usize, weights, results);
}

fn weighted(
    edges: Edges<'_>,
    rows: &[f32],
    weight_of: impl Fn(usize) -> usize + Sync,
    weights: &[f32],
    results: &mut [f32],
) {
    let (width, heads, head_width) = (edges.width, edges.heads, edges.head_width());
    for_destinations(edges.offsets, width, results, |range, results| {
        for (destination, result) in range.zip(results.chunks_exact_mut(width)) {
            edges.prefetch(destination, rows);
            if head_width.is_multiple_of(STRIP) {
                // Sums of a strip stay in registers.
                let (strips, _) = result.as_chunks_mut::<STRIP>();
                for (strip, result) in strips.iter_mut().enumerate() {
                    let (first, mut sums) = (strip * STRIP, [0.0; STRIP]);
                    for edge in edges.range(destination) {
                        let row: &[f32; STRIP] = edges.row(edge, rows)[first..].first_chunk().expect("a strip");
                        add(&mut sums, weights[weight_of(edge) * heads + first / head_width], row);
                    }
                    *result = sums;
                }
                continue;
            }
            result.fill(0.0);
            for edge in edges.range(destination) {
                let parts = result.chunks_exact_mut(head_width).zip(edges.row(edge, rows).chunks_exact(head_width));
                for ((result, row), weight) in parts.zip(&weights[weight_of(edge) * heads..]) {
                    add(result, *weight, row);
                }
            }
        }
    });
}

#[inline(always)]
pub(crate) fn add(sums: &mut [f32], weight: f32, row: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += weight * value;
    }
}

/// The gradient of the attention weights of [`weighted_sum`]: for each edge and head, the dot product of the result's gradient and the
/// source's row.
pub fn products(edges: Edges<'_>, gradient: &[f32], rows: &[f32], results: &mut [f32]) {
    let (width, head_width) = (edges.width, edges.head_width());
    for_edges(edges, results, |range, results| {
        let first = edges.offsets[range.start] as usize;
        for destination in range {
            edges.prefetch(destination, rows);
            let gradient = &gradient[destination * width..][..width];
            for edge in edges.range(destination) {
                let row = edges.row(edge, rows);
                let results = &mut results[(edge - first) * edges.heads..][..edges.heads];
                let heads = gradient.chunks_exact(head_width).zip(row.chunks_exact(head_width));
                for ((gradient, row), result) in heads.zip(results) {
                    *result = sum(gradient, row, |gradient, value| gradient * value);
                }
            }
        }
    });
}

/// Softmax of the logits of each destination's edges, head by head.
pub fn softmax(edges: Edges<'_>, logits: &[f32], results: &mut [f32]) {
    let heads = edges.heads;
    for_edges(edges, results, |range, results| {
        let first = edges.offsets[range.start] as usize;
        let mut of_heads = vec![0.0; heads];
        for destination in range.clone() {
            let edge_range = edges.range(destination);
            let logits = logits[edge_range.start * heads..edge_range.end * heads].chunks_exact(heads);
            let results = &mut results[(edge_range.start - first) * heads..(edge_range.end - first) * heads];
            of_heads.fill(f32::NEG_INFINITY);
            for logits in logits.clone() {
                for (largest, logit) in of_heads.iter_mut().zip(logits) {
                    *largest = largest.max(*logit);
                }
            }
            for (logits, results) in logits.zip(results.chunks_exact_mut(heads)) {
                for (result, (logit, largest)) in results.iter_mut().zip(logits.iter().zip(&of_heads)) {
                    *result = logit - largest;
                }
            }
        }
        // One loop over all edges, in vectors.
        results.iter_mut().for_each(|result| *result = exp_of_negative(*result));
        for destination in range {
            let edge_range = edges.range(destination);
            let results = &mut results[(edge_range.start - first) * heads..(edge_range.end - first) * heads];
            of_heads.fill(0.0);
            for results in results.chunks_exact(heads) {
                of_heads.iter_mut().zip(results).for_each(|(sum, result)| *sum += result);
            }
            for results in results.chunks_exact_mut(heads) {
                results.iter_mut().zip(&of_heads).for_each(|(result, sum)| *result /= sum);
            }
        }
    });
}

/// The gradient of [`softmax`]'s logits, from its results and their gradient.
pub fn softmax_backward(edges: Edges<'_>, weights: &[f32], gradient: &[f32], results: &mut [f32]) {
    let heads = edges.heads;
    for_edges(edges, results, |range, results| {
        let first = edges.offsets[range.start] as usize;
        let mut means = vec![0.0; heads];
        for destination in range {
            let edge_range = edges.range(destination);
            let part = edge_range.start * heads..edge_range.end * heads;
            let both = weights[part.clone()].chunks_exact(heads).zip(gradient[part].chunks_exact(heads));
            let results = &mut results[(edge_range.start - first) * heads..(edge_range.end - first) * heads];
            means.fill(0.0);
            for (weights, gradient) in both.clone() {
                for (mean, (weight, gradient)) in means.iter_mut().zip(weights.iter().zip(gradient)) {
                    *mean += weight * gradient;
                }
            }
            for ((weights, gradient), results) in both.zip(results.chunks_exact_mut(heads)) {
                let both = weights.iter().zip(gradient);
                for ((weight, gradient), (mean, result)) in both.zip(means.iter().zip(results)) {
                    *result = weight * (gradient - mean);
                }
            }
        }
    });
}

/// e^x for x of at most 0, to two units in the last place; 0 for x below -87. It has no branches and calls nothing, so loops over it use
/// vectors.
#[inline(always)]
pub fn exp_of_negative(x: f32) -> f32 {
    /// Adding this rounds to an integer, which is in the low bits of the sum.
    const ROUND: f32 = 1.5 * (1 << 23) as f32;
    /// ln 2 in two parts. Products of the first one with exponents are exact.
    const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];
    let rounded = multiply_add(x, std::f32::consts::LOG2_E, ROUND);
    let exponent = rounded - ROUND;
    let rest = multiply_add(exponent, -LN_2[1], multiply_add(exponent, -LN_2[0], x));
    // The series of e^rest. |rest| is at most ln(2) / 2, so the next term is below 6e-9.
    let mut sum = 1.0 / 5040.0;
    for divisor in [720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        sum = multiply_add(sum, rest, 1.0 / divisor);
    }
    let scale = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    if x < -87.0 { 0.0 } else { sum * scale }
}

/// GAT's logits: for each edge and head, the leaky relu of the score of the source plus the score of the destination.
pub fn sum_logits(edges: Edges<'_>, sources: &[f32], destinations: &[f32], results: &mut [f32]) {
    let heads = edges.heads;
    for_edges(edges, results, |range, results| {
        let mut results = results.chunks_exact_mut(heads);
        for destination in range {
            let own = &destinations[destination * heads..][..heads];
            for edge in edges.range(destination) {
                let source = &sources[edges.indices[edge] as usize * heads..][..heads];
                let results = results.next().expect("a row for each edge");
                for (result, (source, own)) in results.iter_mut().zip(source.iter().zip(own)) {
                    *result = leaky(source + own);
                }
            }
        }
    });
}

/// The gradients of [`sum_logits`]' scores, from its results and their gradient: for sources, and for destinations.
pub fn sum_logits_backward(
    edges: Edges<'_>,
    transposed: Transposed<'_>,
    logits: &[f32],
    gradient: &[f32],
    [of_sources, of_destinations]: [&mut [f32]; 2],
) {
    let heads = edges.heads;
    let of_logits = OfLogits { logits, gradient };
    for_sums(transposed.offsets, heads, of_sources, |_, place, _, sum| {
        of_logits.add(transposed.edges[place] as usize, sum);
    });
    for_sums(edges.offsets, heads, of_destinations, |_, edge, _, sum| of_logits.add(edge, sum));
}

/// The results of [`sum_logits`] and their gradient.
struct OfLogits<'a> {
    logits: &'a [f32],
    gradient: &'a [f32],
}

impl OfLogits<'_> {
    #[inline(always)]
    fn add(&self, edge: usize, sums: &mut [f32]) {
        let of_edge = edge * sums.len()..(edge + 1) * sums.len();
        let both = self.logits[of_edge.clone()].iter().zip(&self.gradient[of_edge]);
        for (sum, (logit, gradient)) in sums.iter_mut().zip(both) {
            // The leaky relu keeps the sign.
            *sum += gradient * if *logit > 0.0 { 1.0 } else { SLOPE };
        }
    }
}

/// The inputs of GATv2's logits.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    /// `[sources, width]`
    pub sources: &'a [f32],
    /// `[destinations, width]`
    pub destinations: &'a [f32],
    /// `[edges, width]`; none counts as zeros.
    pub edges: Option<&'a [f32]>,
    /// `[width]`
    pub attention: &'a [f32],
}

impl Pairs<'_> {
    /// Writes the sum of the rows of a source, a destination and their edge.
    #[inline(always)]
    fn add_up(&self, source: usize, destination: usize, edge: usize, out: &mut [f32]) {
        let width = out.len();
        let row = &self.sources[source * width..][..width];
        let own = &self.destinations[destination * width..][..width];
        match self.edges {
            None => {
                for (value, (row, own)) in out.iter_mut().zip(row.iter().zip(own)) {
                    *value = row + own;
                }
            }
            Some(edges) => {
                let along = &edges[edge * width..][..width];
                for ((value, along), (row, own)) in out.iter_mut().zip(along).zip(row.iter().zip(own)) {
                    *value = row + own + along;
                }
            }
        }
    }

    /// Adds the gradient of an edge to the row of its destination, of its source, or of itself. `gradient` is of all edges' logits.
    /// `values` has room for a row.
    #[inline(always)]
    fn add_gradient(
        &self,
        heads: usize,
        gradient: &[f32],
        [source, destination]: [usize; 2],
        edge: usize,
        values: &mut [f32],
        sum: &mut [f32],
    ) {
        self.add_up(source, destination, edge, values);
        let head_width = sum.len() / heads;
        for head in 0..heads {
            let gradient = gradient[edge * heads + head];
            let part = head * head_width..(head + 1) * head_width;
            let values = values[part.clone()].iter().zip(&self.attention[part.clone()]);
            for (sum, (value, attention)) in sum[part].iter_mut().zip(values) {
                *sum += gradient * attention * if *value > 0.0 { 1.0 } else { SLOPE };
            }
        }
    }
}

/// GATv2's logits: for each edge and head, the sum of `attention * leaky_relu(source + destination + edge)`.
pub fn pair_logits(edges: Edges<'_>, pairs: Pairs<'_>, results: &mut [f32]) {
    let head_width = edges.head_width();
    for_edges(edges, results, |range, results| {
        let first = edges.offsets[range.start] as usize;
        let mut values = vec![0.0; edges.width];
        for destination in range {
            edges.prefetch(destination, pairs.sources);
            for edge in edges.range(destination) {
                pairs.add_up(edges.indices[edge] as usize, destination, edge, &mut values);
                values.iter_mut().for_each(|value| *value = leaky(*value));
                let heads = values.chunks_exact(head_width).zip(pairs.attention.chunks_exact(head_width));
                let results = &mut results[(edge - first) * edges.heads..][..edges.heads];
                for ((values, attention), result) in heads.zip(results) {
                    *result = sum(values, attention, |value, attention| value * attention);
                }
            }
        }
    });
}

/// The gradients of the inputs of [`pair_logits`], from the gradient of the logits. Fills them for edges, sources and destinations where
/// they are wanted, and returns the gradient of the attention vector.
pub fn pair_logits_backward(
    edges: Edges<'_>,
    transposed: Transposed<'_>,
    pairs: Pairs<'_>,
    gradient: &[f32],
    [of_edges, of_sources, of_destinations]: [Option<&mut [f32]>; 3],
) -> Vec<f32> {
    let (width, head_width) = (edges.width, edges.head_width());
    if let Some(results) = of_edges {
        let rows = Edges { heads: width, ..edges };
        for_edges(rows, results, |range, results| {
            let mut values = vec![0.0; width];
            let mut results = results.chunks_exact_mut(width);
            for destination in range {
                for (edge, result) in edges.range(destination).zip(&mut results) {
                    result.fill(0.0);
                    let ends = [edges.indices[edge] as usize, destination];
                    pairs.add_gradient(edges.heads, gradient, ends, edge, &mut values, result);
                }
            }
        });
    }
    if let Some(results) = of_destinations {
        for_sums(edges.offsets, width, results, |destination, edge, values, sum| {
            let ends = [edges.indices[edge] as usize, destination];
            pairs.add_gradient(edges.heads, gradient, ends, edge, values, sum);
        });
    }
    if let Some(results) = of_sources {
        for_sums(transposed.offsets, width, results, |source, place, values, sum| {
            let (ends, edge) = ([source, transposed.indices[place] as usize], transposed.edges[place] as usize);
            pairs.add_gradient(edges.heads, gradient, ends, edge, values, sum);
        });
    }

    let ranges = split(edges.offsets);
    let mut parts: Vec<(Range<usize>, Vec<f32>)> = ranges.into_iter().map(|range| (range, Vec::new())).collect();
    for_each(parts.iter_mut().collect(), |(range, sum): &mut (Range<usize>, Vec<f32>)| {
        sum.resize(width, 0.0);
        let mut values = vec![0.0; width];
        for destination in range.clone() {
            for edge in edges.range(destination) {
                pairs.add_up(edges.indices[edge] as usize, destination, edge, &mut values);
                let heads = sum.chunks_exact_mut(head_width).zip(values.chunks_exact(head_width));
                for (head, (sum, values)) in heads.enumerate() {
                    let gradient = gradient[edge * edges.heads + head];
                    for (sum, value) in sum.iter_mut().zip(values) {
                        *sum += gradient * leaky(*value);
                    }
                }
            }
        }
    });
    let mut total = vec![0.0; width];
    for (_, sum) in &parts {
        total.iter_mut().zip(sum).for_each(|(total, sum)| *total += sum);
    }
    total
}

/// The sum of a function of two slices' values. Eight independent sums let the compiler use vector instructions.
#[inline(always)]
pub(crate) fn sum(a: &[f32], b: &[f32], value: impl Fn(f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += value(*a, *b);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| value(*a, *b)).sum();
    sums.iter().sum::<f32>() + rest
}

/// The leaky relu of a value.
#[inline(always)]
pub fn leaky(value: f32) -> f32 {
    if value > 0.0 { value } else { SLOPE * value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_the_math_library() {
        let close = |x: f32| {
            let (actual, expected) = (exp_of_negative(x), f64::from(x).exp());
            assert!(
                (f64::from(actual) - expected).abs() <= 2.0 * f64::from(f32::EPSILON) * expected,
                "e^{x} is {expected}, not {actual}"
            );
        };
        (0..=87_000).for_each(|i| close(i as f32 / -1000.0));
        [-1e-7, -1e-30, -0.0, -f32::MIN_POSITIVE].into_iter().for_each(close);
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert_eq!([-87.5, -1e30, f32::NEG_INFINITY].map(exp_of_negative), [0.0; 3]);
        assert!(exp_of_negative(f32::NAN).is_nan());
    }
}
