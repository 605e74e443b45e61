//! The order of edges by a value, such as their time: where validation and test begin.
//!
//! ```text
//! pass 1: count edges by the first 16 bits of the key of their place, which sorts as the place does
//! pass 2: for each part, count those with the first 16 bits of its first place by the next 16 bits
//! passes 3 and 4: the same for the rest of the bits
//! ```
//!
//! Reads the input four times, in memory of 1 MiB per thread.

use std::sync::{Mutex, PoisonError};

use grappa_io::{Error, Result, progress::check_stopped, workers};

use crate::ingest::{edge_ingest::EdgeReader, id_columns::ParsedIds, job::IngestJob, shares::Shares};

/// Bits of a key that a pass tells apart.
const DIGIT_BITS: u32 = 16;

/// The first place in the order of validation, and of test. Edges at one place are in one part.
pub fn starts(job: &IngestJob<'_>, reader: &EdgeReader<'_>, shares: Shares) -> Result<[f64; 2]> {
    job.progress.stage("ordering edges", None);
    // The first digits of the keys that the two parts begin with, and the edges before them.
    let mut found = [Some((0, 0)); 2];
    let mut ranks = [0; 2];
    for (pass, shift) in (0..u64::BITS / DIGIT_BITS).rev().map(|digit| digit * DIGIT_BITS).enumerate() {
        let prefixes = found.map(|found| found.map(|(prefix, _)| prefix));
        let counts = counts(job, reader, shift, prefixes)?;
        if pass == 0 {
            let edges = counts[0].iter().sum();
            let [train, val, _] = shares.divide(edges);
            ranks = [train, train + val];
            found = ranks.map(|rank| (rank < edges).then_some((0, 0)));
        }
        for ((found, &rank), counts) in found.iter_mut().zip(&ranks).zip(&counts) {
            if let Some((prefix, before)) = found {
                let (digit, below) = bucket_of(counts, rank - *before);
                (*prefix, *before) = (*prefix << DIGIT_BITS | digit, *before + below);
            }
        }
    }
    let starts = found.map(|found| found.map_or(f64::INFINITY, |(key, _)| value_of(key)));
    for ((found, start), rank) in found.into_iter().zip(starts).zip(ranks) {
        if found.is_some_and(|(_, before)| before == 0) {
            return Err(Error::conflict(
                format!(
                    "--edge-split-by: the first {} edges have the value {start}, and edges with one value are in one part, so the graph \
                     would have no edges",
                    rank + 1
                ),
                "give a column with more different values, or hold fewer edges out",
            ));
        }
    }
    Ok(starts)
}

/// For each part, counts the edges by the digit of their key above `shift`, if the digits before it are `prefixes`.
fn counts(
    job: &IngestJob<'_>,
    reader: &EdgeReader<'_>,
    shift: u32,
    prefixes: [Option<u64>; 2],
) -> Result<[Vec<u64>; 2]> {
    let threads = job.resources.threads;
    let source = reader.open(job.budget.block_bytes)?;
    let empty = || [0; 2].map(|_| vec![0_u64; 1 << DIGIT_BITS]);
    let sums = Mutex::new(empty());
    source.read_ahead(threads, &|_| false, |blocks| {
        workers::run(threads, |turn| {
            let (mut batch, mut counts) = (ParsedIds::default(), empty());
            while turn.goes_on()
                && let Some(block) = blocks.next()?
            {
                batch.parse(&source, &block)?;
                for &place in batch.places() {
                    let digits = key_of(place) >> shift;
                    for (counts, prefix) in counts.iter_mut().zip(prefixes) {
                        if prefix == Some(digits >> DIGIT_BITS) {
                            counts[(digits & ((1 << DIGIT_BITS) - 1)) as usize] += 1;
                        }
                    }
                }
                check_stopped(job.progress)?;
            }
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            let pairs = sums.iter_mut().flatten().zip(counts.iter().flatten());
            pairs.for_each(|(sum, count)| *sum += count);
            Ok(())
        })
    })?;
    Ok(sums.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The bucket with the edge at `rank`, and the edges before it.
fn bucket_of(counts: &[u64], rank: u64) -> (u64, u64) {
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
fn key_of(value: f64) -> u64 {
    // Zero has two signs, and one place.
    let bits = (value + 0.0).to_bits();
    match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    }
}

fn value_of(key: u64) -> f64 {
    f64::from_bits(match key >> 63 {
        1 => key & !(1 << 63),
        _ => !key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_values_and_give_them_back() {
        let values = [f64::MIN, -2.5, -1e-300, 0.0, 1e-300, 1.0, 1.7e9, 1.7e9 + 1e-6, f64::MAX];
        for pair in values.windows(2) {
            assert!(key_of(pair[0]) < key_of(pair[1]), "{pair:?}");
        }
        assert!(values.iter().all(|&value| value_of(key_of(value)) == value));
        assert_eq!(key_of(-0.0), key_of(0.0));
    }
}
