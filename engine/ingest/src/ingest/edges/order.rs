//! The order of edges by a value, such as their time: where validation and test begin.
//!
//! ```text
//! pass 1: count edges by the high half of the value's key, which sorts as the value does
//! for each part: count those by the low half that have the high half of its first value
//! ```
//!
//! Reads the input up to three times, in memory of 1 MiB per thread.

use std::sync::{Mutex, PoisonError};

use grappa_formats::manifest::ExternalIds;
use grappa_input::{EdgeBatch, TextBatch};
use grappa_io::{Error, Result, progress::check_stopped, workers};

use crate::ingest::{job::IngestJob, options::open_edges, shares::Shares};

/// Halves of a key.
const HALVES: usize = 1 << 16;
/// From here on, 32-bit floats skip integers, so different times may have become one value.
const EXACT_MAX: f32 = (1 << 24) as f32;
/// A part may miss its share by 1/this of all edges before rounding counts as the cause: equal times are in one part anyway.
const MOVED_SHARE: u64 = 200;

/// The first value of validation, and of test, at `at` among the values of an edge. Edges with one value are in one part.
pub fn starts(job: &IngestJob<'_>, nodes: u64, at: usize, shares: Shares) -> Result<[f32; 2]> {
    job.progress.stage("ordering edges", None);
    let high = counts(job, nodes, at, |key| Some(key >> 16))?;
    let edges = high.iter().sum();
    let [train, val, _] = shares.of(edges);
    let mut starts = [f32::INFINITY; 2];
    for (start, rank) in starts.iter_mut().zip([train, train + val]) {
        if rank == edges {
            continue;
        }
        let (first, before) = bucket_of(&high, rank);
        let low = counts(job, nodes, at, |key| (key >> 16 == first).then_some(key & 0xffff))?;
        let (second, below) = bucket_of(&low, rank - before);
        *start = value_of(first << 16 | second);
        let moved = rank - before - below;
        if start.abs() >= EXACT_MAX && moved > edges / MOVED_SHARE {
            return Err(Error::conflict(
                format!(
                    "--edge-split-by: {} edges have the value {start} as a 32-bit float, which has 24 bits, so {moved} of {edges} edges \
                     would be in a later part than their share says",
                    low[second as usize]
                ),
                "subtract the first time from all times, or write them in a larger unit, such as minutes in place of seconds",
            ));
        }
        if before + below == 0 {
            return Err(Error::conflict(
                format!(
                    "--edge-split-by: the first {} of {edges} edges have the value {start}, and edges with one value are in one part, so \
                     the graph would have no edges",
                    rank + 1
                ),
                "give a column with more different values, or hold fewer edges out",
            ));
        }
    }
    Ok(starts)
}

/// Counts edges by a half of the key of their value.
fn counts(job: &IngestJob<'_>, nodes: u64, at: usize, half: impl Fn(u32) -> Option<u32> + Sync) -> Result<Vec<u64>> {
    let options = job.options;
    let nodes = (options.ids == ExternalIds::Dense).then_some(nodes);
    let source = open_edges(options, nodes, job.budget.block_bytes)?;
    let width = usize::from(source.weighted()) + source.features();
    let counts = Mutex::new(vec![0; HALVES]);
    source.read_ahead(options.resources.threads, &|_| false, |blocks| {
        workers::run(options.resources.threads, |turn| {
            let (mut batch, mut text, mut of_worker) = (EdgeBatch::default(), TextBatch::default(), vec![0u64; HALVES]);
            while turn.goes_on()
                && let Some(block) = blocks.next()?
            {
                let values = match options.ids {
                    ExternalIds::String => {
                        block.parse_text(&mut text, &mut |_| Ok(()))?;
                        &text.values
                    }
                    ExternalIds::Dense | ExternalIds::Sparse => {
                        block.parse(&mut batch, &mut |_| Ok(()))?;
                        &batch.values
                    }
                };
                for edge in values.chunks_exact(width) {
                    if let Some(half) = half(key_of(edge[at])) {
                        of_worker[half as usize] += 1;
                    }
                }
                check_stopped(job.progress)?;
            }
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.iter_mut().zip(of_worker).for_each(|(sum, count)| *sum += count);
            Ok(())
        })
    })?;
    Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The bucket with the edge at `rank`, and the edges before it.
fn bucket_of(counts: &[u64], rank: u64) -> (u32, u64) {
    let mut before = 0;
    for (bucket, count) in (0..).zip(counts) {
        if rank < before + count {
            return (bucket, before);
        }
        before += count;
    }
    unreachable!("the rank is below the number of edges")
}

/// An integer that sorts as the value does.
fn key_of(value: f32) -> u32 {
    // Zero has two signs, and one place.
    let bits = (value + 0.0).to_bits();
    match bits >> 31 {
        0 => bits | 1 << 31,
        _ => !bits,
    }
}

fn value_of(key: u32) -> f32 {
    f32::from_bits(match key >> 31 {
        1 => key & !(1 << 31),
        _ => !key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_values_and_give_them_back() {
        let values = [f32::MIN, -2.5, -1e-40, 0.0, 1e-40, 1.0, 1.7e9, f32::MAX];
        for pair in values.windows(2) {
            assert!(key_of(pair[0]) < key_of(pair[1]), "{pair:?}");
        }
        assert!(values.iter().all(|&value| value_of(key_of(value)) == value));
        assert_eq!(key_of(-0.0), key_of(0.0));
    }
}
