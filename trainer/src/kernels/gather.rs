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

#![expect(unsafe_code, reason = "a function for processors that have its instructions")]

use std::ops::Range;

use grappa_io::prefetch::prefetch;

use super::multiply::Instructions;
use crate::{kernels, shim::Element};

/// A result row is given to a thread with so many others that they have about this many edges.
const EDGES_PER_PART: usize = 1024;
/// How many edges ahead rows are asked for.
const AHEAD: usize = 6;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Which rows are added up, and scaled by what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a, T> {
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
    /// What is added to the first results, unscaled; as many rows as there are.
    pub(crate) added: &'a [T],
}

/// Adds up rows of `width` values; sums are of f32, whatever the type of rows.
pub(crate) fn gather<T: Element>(
    instructions: Instructions,
    rows: &[T],
    width: usize,
    plan: Plan<'_, T>,
    results: &mut [T],
) {
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
    kernels::for_each(parts, |(range, results)| {
        #[cfg(target_arch = "x86_64")]
        if instructions.has_avx512() {
            // SAFETY: who holds such instructions was told by the processor that it has them.
            return unsafe { gather_part_avx512(rows, width, plan, range, results) };
        }
        gather_strips::<T, 64>(rows, width, plan, range, results);
    });
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

/// The same code as for others, with wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn gather_part_avx512<T: Element>(rows: &[T], width: usize, plan: Plan<'_, T>, range: Range<usize>, results: &mut [T]) {
    gather_strips::<T, 128>(rows, width, plan, range, results);
}

/// STRIP values at a time, whose sums fit the registers.
#[inline(always)]
fn gather_strips<T: Element, const STRIP: usize>(
    rows: &[T],
    width: usize,
    plan: Plan<'_, T>,
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
        let factor = |edge: usize, input: usize| {
            plan.edges.map_or(1.0, |factors| factors[edge]) * plan.inputs.map_or(1.0, |factors| factors[input])
        };
        let total = plan.results.map_or(1.0, |factors| factors[result]);
        let (strips, rest) = out.as_chunks_mut::<STRIP>();
        let strips_width = strips.len() * STRIP;
        for (strip, out) in strips.iter_mut().enumerate() {
            let mut sums = [0.0f32; STRIP];
            for edge in edges.clone() {
                let input = plan.indices[edge] as usize;
                let row: &[T; STRIP] = rows[input * width + strip * STRIP..].first_chunk().expect("a row");
                add(&mut sums, factor(edge, input), row);
            }
            finish(out, total, &sums, plan.added.get(result * width + strip * STRIP..));
        }
        if !rest.is_empty() {
            let mut sums = [0.0f32; STRIP];
            let sums = &mut sums[..rest.len()];
            for edge in edges {
                let input = plan.indices[edge] as usize;
                add(
                    sums,
                    factor(edge, input),
                    &rows[input * width + strips_width..][..rest.len()],
                );
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
