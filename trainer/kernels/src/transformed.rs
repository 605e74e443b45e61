//! Attention over rows that a linear layer transforms, without transforming them.
//!
//! A product with the weight matrix `W` of a head can follow a weighted sum, and can go to the other factor of a product:
//!
//! ```text
//! weighted sum    sum over edges e of w[e] (W x[e]) = W (sum of w[e] x[e])
//! product         q (W x[e]) = (q W) x[e]
//! ```
//!
//! Then there is a product per destination and not per source, and a batch has several times as many sources. All heads use the same
//! row `x`, while it is in the cache. The sums of a tile of destinations, `heads * inputs` values each, stay in the cache until their
//! product with `W`.
//!
//! The gradients of one are the other. With `g` as the gradient of a sum:
//!
//! ```text
//! of w[e]         (g W) x[e]
//! of x            sum over edges e from x of w[e] (g W)
//! of W            sum over destinations of the outer product of g and its sum of w[e] x[e]
//! ```

use std::ops::Range;

use crate::{
    aligned::Aligned,
    attention::{self, Edges},
    csr::Transposed,
    multiply::{Factors, Instructions, multiply, padded},
    pairs::{add, product},
    parallel::for_each,
};

/// Destinations whose sums stay in the cache: 128 KiB with 4 heads and 128 inputs.
const TILE: usize = 64;
/// Maximum number of ranges of destinations. Each has its own sums and gradients of weights.
const PARTS_MAX: usize = 32;
/// Edges and destinations of a range, at least.
const PART_MIN: usize = 1024;

/// A linear layer for each head.
#[derive(Debug, Clone, Copy)]
pub struct Linear<'a> {
    /// `[heads * outputs, inputs]`
    pub weight: &'a [f32],
    /// Values of a row of a source.
    pub inputs: usize,
    /// Outputs of a head.
    pub outputs: usize,
    /// Number of heads.
    pub heads: usize,
}

impl Linear<'_> {
    /// Values of a row of a destination.
    fn width(self) -> usize {
        self.heads * self.outputs
    }
}

/// `results[d, h] = W[h] (sum over edges e of weights[e, h] * rows[source of e])`, of `[destinations, heads * outputs]`.
pub fn weighted_sum(edges: Edges<'_>, linear: Linear<'_>, rows: &[f32], weights: &[f32], results: &mut [f32]) {
    let (layer, ranges) = (Layer::new(linear), ranges(edges.offsets));
    let parts = divide(&ranges, results, |range| range.len() * linear.width());
    for_each(ranges.iter().cloned().zip(parts).collect(), |(range, results): (Range<usize>, &mut [f32])| {
        let mut tile = HeadRows::new(linear);
        for (destinations, results) in tiles(range).zip(results.chunks_mut(TILE * linear.width())) {
            tile.sum(edges, rows, weights, destinations);
            layer.apply(&mut tile, results);
        }
    });
}

/// The gradients of the weights of edges and of the linear layer of [`weighted_sum`], from the gradient of its results.
pub fn weighted_sum_backward(
    edges: Edges<'_>,
    linear: Linear<'_>,
    rows: &[f32],
    weights: &[f32],
    gradient: &[f32],
    [of_weights, of_linear]: [&mut [f32]; 2],
) {
    let (layer, ranges) = (Layer::new(linear), ranges(edges.offsets));
    let mut sums = layer.gradients(ranges.len());
    let parts = divide(&ranges, of_weights, |range| edge_count(edges, range) * linear.heads);
    let parts = ranges.iter().cloned().zip(parts).zip(&mut sums);
    for_each(parts.collect(), |((range, of_weights), of_linear): ((Range<usize>, &mut [f32]), &mut Aligned<f32>)| {
        let (mut tile, mut pulled) = (HeadRows::new(linear), HeadRows::new(linear));
        let first = edges.offsets[range.start] as usize;
        for destinations in tiles(range) {
            let gradient = &gradient[destinations.start * linear.width()..destinations.end * linear.width()];
            layer.pull(&mut pulled, gradient);
            tile.clear();
            for (place, destination) in destinations.enumerate() {
                edges.prefetch(destination, rows);
                for edge in edges.range(destination) {
                    let row = edges.row(edge, rows);
                    let of_edge = &mut of_weights[(edge - first) * linear.heads..][..linear.heads];
                    for (head, of_edge) in of_edge.iter_mut().enumerate() {
                        *of_edge = product(pulled.row(head, place, linear.inputs), row);
                        add(tile.row_mut(head, place, linear.inputs), weights[edge * linear.heads + head], row);
                    }
                }
            }
            layer.add_outer(&tile, gradient, of_linear);
        }
    });
    layer.add_gradients(&sums, of_linear);
}

/// For each edge and head, the product of a query of its destination, `[destinations, heads * outputs]`, and `W[h] rows[source of e]`.
pub fn products(edges: Edges<'_>, linear: Linear<'_>, rows: &[f32], queries: &[f32], results: &mut [f32]) {
    let (layer, ranges) = (Layer::new(linear), ranges(edges.offsets));
    let parts = divide(&ranges, results, |range| edge_count(edges, range) * linear.heads);
    for_each(ranges.iter().cloned().zip(parts).collect(), |(range, results): (Range<usize>, &mut [f32])| {
        let mut pulled = HeadRows::new(linear);
        let first = edges.offsets[range.start] as usize;
        for destinations in tiles(range) {
            layer.pull(&mut pulled, &queries[destinations.start * linear.width()..destinations.end * linear.width()]);
            for (place, destination) in destinations.enumerate() {
                edges.prefetch(destination, rows);
                for edge in edges.range(destination) {
                    let row = edges.row(edge, rows);
                    let results = &mut results[(edge - first) * linear.heads..][..linear.heads];
                    for (head, result) in results.iter_mut().enumerate() {
                        *result = product(pulled.row(head, place, linear.inputs), row);
                    }
                }
            }
        }
    });
}

/// The gradients of the queries and of the linear layer of [`products`], from the gradient of its results.
pub fn products_backward(
    edges: Edges<'_>,
    linear: Linear<'_>,
    rows: &[f32],
    queries: &[f32],
    gradient: &[f32],
    [of_queries, of_linear]: [&mut [f32]; 2],
) {
    let (layer, ranges) = (Layer::new(linear), ranges(edges.offsets));
    let mut sums = layer.gradients(ranges.len());
    let parts = divide(&ranges, of_queries, |range| range.len() * linear.width());
    let parts = ranges.iter().cloned().zip(parts).zip(&mut sums);
    for_each(parts.collect(), |((range, of_queries), of_linear): ((Range<usize>, &mut [f32]), &mut Aligned<f32>)| {
        let mut tile = HeadRows::new(linear);
        for (destinations, of_queries) in tiles(range).zip(of_queries.chunks_mut(TILE * linear.width())) {
            let queries = &queries[destinations.start * linear.width()..destinations.end * linear.width()];
            tile.sum(edges, rows, gradient, destinations);
            layer.apply(&mut tile, of_queries);
            layer.add_outer(&tile, queries, of_linear);
        }
    });
    layer.add_gradients(&sums, of_linear);
}

/// The gradient of the rows of [`weighted_sum`], from the gradient of its results, or of [`products`], with queries in the place of that and
/// the gradient of its results in the place of weights.
pub fn rows_backward(
    transposed: Transposed<'_>,
    linear: Linear<'_>,
    weights: &[f32],
    gradient: &[f32],
    results: &mut [f32],
) {
    let (layer, heads) = (Layer::new(linear), linear.heads);
    let destinations = gradient.len() / linear.width();
    let mut pulled = Aligned::zeros(destinations * heads * linear.inputs);
    let parts = gradient.chunks(TILE * linear.width()).zip(pulled.chunks_mut(TILE * heads * linear.inputs));
    for_each(parts.collect(), |(gradient, results): (&[f32], &mut [f32])| {
        let mut tile = HeadRows::new(linear);
        layer.pull(&mut tile, gradient);
        for (place, results) in results.chunks_mut(heads * linear.inputs).enumerate() {
            for (head, result) in results.chunks_mut(linear.inputs).enumerate() {
                result.copy_from_slice(tile.row(head, place, linear.inputs));
            }
        }
    });
    let width = heads * linear.inputs;
    let edges = Edges { offsets: transposed.offsets, indices: transposed.indices, width, heads };
    attention::for_destinations(transposed.offsets, linear.inputs, results, |range, results| {
        for (source, result) in range.zip(results.chunks_exact_mut(linear.inputs)) {
            edges.prefetch(source, &pulled);
            result.fill(0.0);
            for place in edges.range(source) {
                let weights = &weights[transposed.edges[place] as usize * heads..][..heads];
                for (pulled, weight) in edges.row(place, &pulled).chunks_exact(linear.inputs).zip(weights) {
                    add(result, *weight, pulled);
                }
            }
        }
    });
}

/// The weights in the layouts of products.
struct Layer<'a> {
    linear: Linear<'a>,
    instructions: Instructions,
    /// For each head, `[inputs, outputs]` with padded columns.
    forward: Aligned<f32>,
    /// For each head, `[outputs, inputs]` with padded columns.
    backward: Aligned<f32>,
    columns: [usize; 2],
}

impl<'a> Layer<'a> {
    fn new(linear: Linear<'a>) -> Self {
        let Linear { weight, inputs, outputs, heads } = linear;
        let columns = [padded(outputs), padded(inputs)];
        let mut forward = Aligned::zeros(heads * inputs * columns[0]);
        let mut backward = Aligned::zeros(heads * outputs * columns[1]);
        for (row, values) in weight.chunks_exact(inputs).enumerate() {
            let (head, output) = (row / outputs, row % outputs);
            backward[row * columns[1]..][..inputs].copy_from_slice(values);
            for (input, value) in values.iter().enumerate() {
                forward[(head * inputs + input) * columns[0] + output] = *value;
            }
        }
        Self { linear, instructions: Instructions::best(), forward, backward, columns }
    }

    /// Writes the products of the tile's rows to the rows of destinations.
    fn apply(&self, tile: &mut HeadRows, results: &mut [f32]) {
        let Linear { inputs, outputs, heads, .. } = self.linear;
        let (rows, columns) = (results.len() / self.linear.width(), self.columns[0]);
        for head in 0..heads {
            let products = &mut tile.products[..rows * columns];
            products.fill(0.0);
            let factors = Factors {
                a: &tile.values[head * TILE * tile.stride..],
                a_row: tile.stride,
                a_step: 1,
                b: &self.forward[head * inputs * columns..],
                b_step: columns,
                depth: inputs,
            };
            multiply(self.instructions, factors, products, rows, columns);
            for (result, products) in results.chunks_exact_mut(self.linear.width()).zip(products.chunks_exact(columns))
            {
                result[head * outputs..][..outputs].copy_from_slice(&products[..outputs]);
            }
        }
    }

    /// Fills a tile with the products of rows of destinations and the weights.
    fn pull(&self, tile: &mut HeadRows, rows: &[f32]) {
        let (width, outputs) = (self.linear.width(), self.linear.outputs);
        let count = rows.len() / width;
        tile.clear();
        for head in 0..self.linear.heads {
            let factors = Factors {
                a: &rows[head * outputs..],
                a_row: width,
                a_step: 1,
                b: &self.backward[head * outputs * self.columns[1]..],
                b_step: self.columns[1],
                depth: outputs,
            };
            let values = &mut tile.values[head * TILE * tile.stride..];
            multiply(self.instructions, factors, values, count, tile.stride);
        }
    }

    /// Adds the outer products of rows of destinations and the tile's rows to a gradient of the weights.
    fn add_outer(&self, tile: &HeadRows, rows: &[f32], of_linear: &mut Aligned<f32>) {
        let (width, outputs) = (self.linear.width(), self.linear.outputs);
        for head in 0..self.linear.heads {
            let factors = Factors {
                a: &rows[head * outputs..],
                a_row: 1,
                a_step: width,
                b: &tile.values[head * TILE * tile.stride..],
                b_step: tile.stride,
                depth: rows.len() / width,
            };
            let sums = &mut of_linear[head * outputs * self.columns[1]..];
            multiply(self.instructions, factors, sums, outputs, self.columns[1]);
        }
    }

    /// Zeros for the gradients of the weights, for each range.
    fn gradients(&self, ranges: usize) -> Vec<Aligned<f32>> {
        (0..ranges).map(|_| Aligned::zeros(self.backward.len())).collect()
    }

    /// Adds up gradients, in order.
    fn add_gradients(&self, sums: &[Aligned<f32>], of_linear: &mut [f32]) {
        let inputs = self.linear.inputs;
        of_linear.fill(0.0);
        for sums in sums {
            for (result, sums) in of_linear.chunks_exact_mut(inputs).zip(sums.chunks_exact(self.columns[1])) {
                result.iter_mut().zip(sums).for_each(|(result, sum)| *result += sum);
            }
        }
    }
}

/// A row for each head of each destination of a tile: `[heads, TILE, stride]`.
struct HeadRows {
    values: Aligned<f32>,
    /// Inputs with padding.
    stride: usize,
    /// Room for products of a head.
    products: Aligned<f32>,
}

impl HeadRows {
    fn new(linear: Linear<'_>) -> Self {
        let stride = padded(linear.inputs);
        Self {
            values: Aligned::zeros(linear.heads * TILE * stride),
            stride,
            products: Aligned::zeros(TILE * padded(linear.outputs)),
        }
    }

    fn clear(&mut self) {
        self.values.fill(0.0);
    }

    #[inline(always)]
    fn row(&self, head: usize, place: usize, inputs: usize) -> &[f32] {
        &self.values[(head * TILE + place) * self.stride..][..inputs]
    }

    #[inline(always)]
    fn row_mut(&mut self, head: usize, place: usize, inputs: usize) -> &mut [f32] {
        &mut self.values[(head * TILE + place) * self.stride..][..inputs]
    }

    /// The weighted sums of rows of sources.
    fn sum(&mut self, edges: Edges<'_>, rows: &[f32], weights: &[f32], destinations: Range<usize>) {
        self.clear();
        for (place, destination) in destinations.enumerate() {
            edges.prefetch(destination, rows);
            for edge in edges.range(destination) {
                let row = edges.row(edge, rows);
                for head in 0..edges.heads {
                    add(self.row_mut(head, place, edges.width), weights[edge * edges.heads + head], row);
                }
            }
        }
    }
}

/// At most [`PARTS_MAX`] ranges of destinations, with about as many edges and destinations each. They do not depend on threads.
fn ranges(offsets: &[u32]) -> Vec<Range<usize>> {
    let count = offsets.len() - 1;
    let work = |destination: usize| offsets[destination] as usize + destination;
    let part = (work(count) / PARTS_MAX + 1).max(PART_MIN);
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < count {
        let mut end = start + 1;
        while end < count && work(end + 1) - work(start) <= part {
            end += 1;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

fn edge_count(edges: Edges<'_>, range: &Range<usize>) -> usize {
    (edges.offsets[range.end] - edges.offsets[range.start]) as usize
}

/// The part of `values` of each range.
fn divide<'a>(
    ranges: &[Range<usize>],
    mut values: &'a mut [f32],
    length: impl Fn(&Range<usize>) -> usize,
) -> Vec<&'a mut [f32]> {
    ranges.iter().map(|range| values.split_off_mut(..length(range)).expect("values of all ranges")).collect()
}

fn tiles(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(TILE).map(move |start| start..end.min(start + TILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;

    /// Whole numbers, whose products and sums are exact.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + i / 5 + seed * 3) % 5) as f32 - 2.0).collect()
    }

    #[test]
    fn sums_products_and_gradients_equal_those_of_transformed_rows() {
        // Some destinations have no edges, and one has many. There are several ranges and tiles.
        let degrees: Vec<u32> = (0..700).map(|at| if at == 100 { 3000 } else { at % 4 }).collect();
        let offsets: Vec<u32> = [0]
            .into_iter()
            .chain(degrees.iter().scan(0, |sum, degree| {
                *sum += degree;
                Some(*sum)
            }))
            .collect();
        let edge_count = offsets[700] as usize;
        let indices: Vec<u32> = (0..edge_count as u32).map(|edge| (edge * 5 + edge / 7) % 90).collect();
        let csr = Csr::new(offsets, indices, 90);
        for (inputs, outputs, heads) in [(1, 1, 1), (32, 16, 4), (40, 5, 3), (7, 20, 2)] {
            let weight = numbers(heads * outputs * inputs, 1);
            let linear = Linear { weight: &weight, inputs, outputs, heads };
            let width = heads * outputs;
            let (rows, weights) = (numbers(90 * inputs, 2), numbers(edge_count * heads, 3));
            let queries = numbers(700 * width, 4);
            let [mut sums, mut of_edges, mut of_queries] =
                [700 * width, edge_count * heads, 700 * width].map(|length| vec![0.0; length]);
            let [mut of_linear, mut of_rows] = [weight.len(), rows.len()].map(|length| vec![0.0; length]);
            for destination in 0..700 {
                for edge in csr.offsets[destination] as usize..csr.offsets[destination + 1] as usize {
                    let source = csr.indices[edge] as usize;
                    for (head, output) in (0..heads).flat_map(|head| (0..outputs).map(move |output| (head, output))) {
                        let (weight_row, place) =
                            (head * outputs + output, destination * width + head * outputs + output);
                        let by_edge = weights[edge * heads + head];
                        for input in 0..inputs {
                            let (weight, value) = (weight[weight_row * inputs + input], rows[source * inputs + input]);
                            sums[place] += by_edge * weight * value;
                            of_edges[edge * heads + head] += queries[place] * weight * value;
                            of_linear[weight_row * inputs + input] += by_edge * queries[place] * value;
                            of_rows[source * inputs + input] += by_edge * queries[place] * weight;
                        }
                    }
                }
            }
            of_queries.copy_from_slice(&sums);
            let edges = Edges { offsets: &csr.offsets, indices: &csr.indices, width: inputs, heads };
            let filled = |length: usize| vec![9.0; length];

            let mut results = filled(sums.len());
            weighted_sum(edges, linear, &rows, &weights, &mut results);
            assert_eq!(results, sums, "sums");
            let mut results = [filled(of_edges.len()), filled(weight.len())];
            let [of_weights, of_weight] = &mut results;
            weighted_sum_backward(edges, linear, &rows, &weights, &queries, [of_weights, of_weight]);
            assert_eq!(results, [of_edges.clone(), of_linear.clone()], "gradients of sums");
            let mut results = filled(of_edges.len());
            products(edges, linear, &rows, &queries, &mut results);
            assert_eq!(results, of_edges, "products");
            let mut results = [filled(of_queries.len()), filled(weight.len())];
            let [first, second] = &mut results;
            products_backward(edges, linear, &rows, &queries, &weights, [first, second]);
            assert_eq!(results, [of_queries, of_linear], "gradients of products");
            let mut results = filled(of_rows.len());
            rows_backward(csr.transposed(), linear, &weights, &queries, &mut results);
            assert_eq!(results, of_rows, "gradient of rows");
        }
    }
}
