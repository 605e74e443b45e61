//! Weighted sums of rows, chosen by CSR: the aggregation of mean, sum and GCN-like layers, forward and, over the transposed
//! CSR, backward.
//!
//! ```text
//! for each row of the result:
//!     for each of its edges: ask for the row of an edge some steps ahead; add this one's, scaled
//! ```
//!
//! It is bound by memory: an edge costs a row of the input from wherever it is (512 bytes for 128 values of 4 bytes), and
//! the arithmetic hides behind it.

use std::ops::Range;

use grappa_engine::io::prefetch::prefetch;

use crate::{kernels, shim::Element};

/// A result row is given to a thread with so many others that they have about this many edges.
const EDGES_PER_PART: usize = 1024;
/// How many edges ahead rows are asked for.
const AHEAD: usize = 6;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Which rows are added up, and scaled by what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// Where each result's edges start, and last the number of edges.
    pub(crate) offsets: &'a [u32],
    /// Each edge's row of the input.
    pub(crate) indices: &'a [u32],
    /// A factor for each edge, if they differ.
    pub(crate) edges: Option<&'a [f32]>,
    /// A factor for each row of the input, if they differ.
    pub(crate) inputs: Option<&'a [f32]>,
    /// A factor for each result, if they differ.
    pub(crate) results: Option<&'a [f32]>,
}

/// Adds up rows of `width` values; sums are of f32, whatever the type of rows.
pub(crate) fn gather<T: Element>(rows: &[T], width: usize, plan: Plan<'_>, results: &mut [T]) {
    let count = plan.offsets.len() - 1;
    assert_eq!(results.len(), count * width, "values of results");
    if results.is_empty() {
        return;
    }
    let mut parts = Vec::new();
    let mut rest = results;
    for range in split(plan.offsets) {
        let (part, others) = rest.split_at_mut(range.len() * width);
        rest = others;
        parts.push((range, part));
    }
    kernels::for_each(parts, |(range, results)| gather_part(rows, width, plan, range, results));
}

/// Ranges of results that have about [`EDGES_PER_PART`] edges each, or results if there are fewer edges.
pub(crate) fn split(offsets: &[u32]) -> Vec<Range<usize>> {
    let count = offsets.len() - 1;
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < count {
        let begin = offsets[start] as usize;
        let mut end = start + 1;
        while end < count && offsets[end + 1] as usize - begin + (end - start) <= EDGES_PER_PART {
            end += 1;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

fn gather_part<T: Element>(rows: &[T], width: usize, plan: Plan<'_>, range: Range<usize>, results: &mut [T]) {
    let mut sum = vec![0.0f32; width];
    for (result, out) in range.zip(results.chunks_exact_mut(width)) {
        sum.fill(0.0);
        for edge in plan.offsets[result] as usize..plan.offsets[result + 1] as usize {
            if let Some(&soon) = plan.indices.get(edge + AHEAD) {
                let first = soon as usize * width;
                for value in (first..first + width).step_by(LINE / size_of::<T>()) {
                    prefetch(rows, value);
                }
            }
            let input = plan.indices[edge] as usize;
            let factor =
                plan.edges.map_or(1.0, |factors| factors[edge]) * plan.inputs.map_or(1.0, |factors| factors[input]);
            let row = &rows[input * width..][..width];
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += factor * value.to_f32();
            }
        }
        let factor = plan.results.map_or(1.0, |factors| factors[result]);
        for (out, sum) in out.iter_mut().zip(&sum) {
            *out = T::from_f32(factor * sum);
        }
    }
}
