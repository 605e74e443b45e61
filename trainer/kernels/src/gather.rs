//! Weighted sums of rows, selected by a CSR: the aggregation of layers with mean, sum or GCN's sum. The backward pass is the same over
//! the transposed CSR.
//!
//! ```text
//! for each row of the result:
//!     for each of its edges: prefetch the row of an edge some steps ahead; add this edge's row, scaled
//! ```
//!
//! It is memory-bound. Each edge loads a row of the input (512 bytes for 128 values of 4 bytes), and the arithmetic takes less time
//! than that.

#![expect(unsafe_code, reason = "a function for processors that have its instructions")]

use std::ops::Range;

use grappa_io::prefetch::prefetch;

use crate::{element::Element, multiply::Instructions, parallel::for_each};

/// Approximate number of edges of the result rows that a thread takes at once.
const EDGES_PER_PART: usize = 1024;
/// Distance of prefetching, in edges.
pub(crate) const AHEAD: usize = 6;
pub(crate) const LINE: usize = 64;

/// The rows to add up and their factors.
#[derive(Debug, Clone, Copy)]
pub struct GatherPlan<'a, T> {
    /// Offset of each result's edges, and the number of edges at the end.
    pub offsets: &'a [u32],
    /// Input row of each edge.
    pub indices: &'a [u32],
    /// A factor per edge; none if all are 1.
    pub edges: Option<&'a [f32]>,
    /// A factor per input row; none if all are 1.
    pub inputs: Option<&'a [f32]>,
    /// A factor per result; none if all are 1.
    pub results: Option<&'a [f32]>,
    /// Rows to add to the first results, without a factor; may be empty.
    pub added: &'a [T],
}

impl<T> GatherPlan<'_, T> {
    /// The factor of an input in the sum of a result.
    #[inline(always)]
    fn factor(&self, edge: usize, input: usize) -> f32 {
        self.edges.map_or(1.0, |factors| factors[edge]) * self.inputs.map_or(1.0, |factors| factors[input])
    }
}

impl<'a, T> GatherPlan<'a, T> {
    /// Plain sums.
    pub fn from_lists(offsets: &'a [u32], indices: &'a [u32]) -> Self {
        Self { offsets, indices, edges: None, inputs: None, results: None, added: &[] }
    }
}

/// Adds up rows of `width` values. Sums are f32 for all types of rows.
pub fn gather<T: Element>(
    instructions: Instructions,
    rows: &[T],
    width: usize,
    plan: GatherPlan<'_, T>,
    results: &mut [T],
) {
    let count = plan.offsets.len() - 1;
    assert_eq!(results.len(), count * width, "values of results");
    if results.is_empty() {
        return;
    }
    for_each(parts(plan.offsets, width, results), |(range, results)| {
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: a value of `Instructions` exists only if the processor has these instructions.
            return unsafe { gather_part_avx512(rows, width, plan, range, results) };
        }
        gather_strips::<T, 64>(rows, width, plan, range, results);
    });
}

/// Ranges of results with about [`EDGES_PER_PART`] edges each, or as many results if they have fewer edges.
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

/// The ranges of [`split`], each with its part of `values`, `width` for each result.
pub(crate) fn parts<'a, T>(offsets: &[u32], width: usize, values: &'a mut [T]) -> Vec<(Range<usize>, &'a mut [T])> {
    parts_by(offsets, values, |range| range.len() * width)
}

/// The ranges of [`split`], each with as many of `values` as `length` says.
pub(crate) fn parts_by<'a, T>(
    offsets: &[u32],
    mut values: &'a mut [T],
    length: impl Fn(&Range<usize>) -> usize,
) -> Vec<(Range<usize>, &'a mut [T])> {
    let ranges = split(offsets).into_iter();
    ranges.map(|range| (range.clone(), values.split_off_mut(..length(&range)).expect("values of all ranges"))).collect()
}

/// The plain code, compiled for wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn gather_part_avx512<T: Element>(
    rows: &[T],
    width: usize,
    plan: GatherPlan<'_, T>,
    range: Range<usize>,
    results: &mut [T],
) {
    gather_strips::<T, 128>(rows, width, plan, range, results);
}

/// Works on STRIP values of a row at a time, so that their sums stay in registers.
#[inline(always)]
fn gather_strips<T: Element, const STRIP: usize>(
    rows: &[T],
    width: usize,
    plan: GatherPlan<'_, T>,
    range: Range<usize>,
    results: &mut [T],
) {
    for (result, out) in range.zip(results.chunks_exact_mut(width)) {
        let edges = plan.offsets[result] as usize..plan.offsets[result + 1] as usize;
        for edge in edges.clone() {
            if let Some(&soon) = plan.indices.get(edge + AHEAD) {
                let first = soon as usize * width;
                for value in (first..first + width).step_by(LINE / size_of::<T>()) {
                    prefetch(rows, value);
                }
            }
        }
        let total = plan.results.map_or(1.0, |factors| factors[result]);
        let (strips, rest) = out.as_chunks_mut::<STRIP>();
        let strips_width = strips.len() * STRIP;
        for (strip, out) in strips.iter_mut().enumerate() {
            let mut sums = [0.0f32; STRIP];
            for edge in edges.clone() {
                let input = plan.indices[edge] as usize;
                let row: &[T; STRIP] = rows[input * width + strip * STRIP..].first_chunk().expect("a row");
                add(&mut sums, plan.factor(edge, input), row);
            }
            finish(out, total, &sums, plan.added.get(result * width + strip * STRIP..));
        }
        if !rest.is_empty() {
            let mut sums = [0.0f32; STRIP];
            let sums = &mut sums[..rest.len()];
            for edge in edges {
                let input = plan.indices[edge] as usize;
                add(sums, plan.factor(edge, input), &rows[input * width + strips_width..][..rest.len()]);
            }
            finish(rest, total, sums, plan.added.get(result * width + strips_width..));
        }
    }
}

#[inline(always)]
fn add<T: Element>(sums: &mut [f32], factor: f32, row: &[T]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += factor * value.to_f32();
    }
}

#[inline(always)]
fn finish<T: Element>(out: &mut [T], factor: f32, sums: &[f32], added: Option<&[T]>) {
    match added {
        Some(added) if !added.is_empty() => {
            for ((out, sum), added) in out.iter_mut().zip(sums).zip(&added[..sums.len()]) {
                *out = T::from_f32(factor * sum + added.to_f32());
            }
        }
        _ => {
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = T::from_f32(factor * sum);
            }
        }
    }
}
