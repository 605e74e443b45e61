//! Measures the coalescing gap: the longest gap between two feature rows that is cheaper to read than to skip.
//!
//! With many reads in flight, a read of `n` bytes takes about `a + n / b`. On a virtual NVMe disk:
//!
//! | bytes | 4 K | 16 K | 64 K | 256 K |
//! |---|---|---|---|---|
//! | µs per read at depth 128 | 12.7 | 22.4 | 36.6 | 82.8 |
//!
//! So one read that spans a gap is faster than two reads if the gap is shorter than `a * b`: 42 KB on that disk. There,
//! minibatches of an R-MAT graph (scale 22, rows of 512 bytes, 60 % of all needed rows in memory) are delivered twice
//! as fast as without reading gaps, and 1.4 times as fast as with gaps of up to 12 KB. Other disks differ: the gap is 6
//! KB on a SATA drive, and megabytes on a disk with moving heads.

use std::time::{Duration, Instant};

use grappa_formats::random::GOLDEN;
use grappa_io::{
    Result,
    read::{FileIndex, Read, ReadEngine},
};

use super::files::RowFiles;

/// The length of the short reads. The long ones are as long as the engine allows.
const SHORT_BYTES: u32 = 4096;
/// A round has at most this many reads of each length, and takes at most this time for each.
const SHORT_READS: u64 = 256;
const LONG_READS: u64 = 48;
const TIME_MAX: Duration = Duration::from_millis(20);
/// The fastest round counts, because other work of the machine makes reads slower and never faster.
const ROUNDS: u64 = 4;
/// Longer gaps would evict too many rows from the pool.
const GAP_BYTES_MAX: f64 = (1 << 20) as f64;

/// Measures the coalescing gap, in bytes. Takes some hundredths of a second.
pub(super) fn measure_coalescing_gap(files: &RowFiles, engine: &mut dyn ReadEngine) -> Result<u32> {
    let long_bytes = engine.options().read_bytes_max;
    let (mut short, mut long) = (None, None);
    for round in 0..ROUNDS {
        let now = seconds_per_read(files, engine, SHORT_BYTES, SHORT_READS, round)?;
        short = short.into_iter().chain(now).reduce(f64::min);
        let now = seconds_per_read(files, engine, long_bytes, LONG_READS, round)?;
        long = long.into_iter().chain(now).reduce(f64::min);
    }
    let (Some(short), Some(long)) = (short, long) else {
        return Ok(0);
    };
    // If long reads are not slower, further bytes cost nothing that can be measured.
    let seconds_per_byte = (long - short).max(1e-12) / f64::from(long_bytes.saturating_sub(SHORT_BYTES).max(1));
    let gap = short / seconds_per_byte - f64::from(SHORT_BYTES);
    let gap = gap.clamp(0.0, GAP_BYTES_MAX) as u32;
    tracing::debug!(
        short_us = short * 1e6,
        long_us = long * 1e6,
        long_bytes,
        coalescing_gap_bytes = gap,
        "measured the cost of reads"
    );
    Ok(gap)
}

/// Measures the time of a read of `length` bytes at random offsets of all files, with as many reads in flight as the
/// engine allows. None if no file has that length.
fn seconds_per_read(
    files: &RowFiles,
    engine: &mut dyn ReadEngine,
    length: u32,
    reads: u64,
    round: u64,
) -> Result<Option<f64>> {
    let long_enough: Vec<(FileIndex, u64)> = (0..)
        .map(FileIndex)
        .zip(files.files.iter())
        .filter_map(|(index, file)| Some((index, file.bytes().checked_sub(length.into())?)))
        .collect();
    if long_enough.is_empty() {
        return Ok(None);
    }
    let read = |number: u64| {
        let random = (round * reads + number + 1).wrapping_mul(GOLDEN);
        let (file, last) = long_enough[((random >> 40) % long_enough.len() as u64) as usize];
        Read {
            file,
            // At the start of a page, like most reads of feature rows.
            offset: (random ^ random >> 29) % (last + 1) / 4096 * 4096,
            length,
            tag: 0,
        }
    };
    let (start, mut submitted, mut completed) = (Instant::now(), 0, 0);
    loop {
        while submitted < reads && start.elapsed() < TIME_MAX && engine.submit(&[read(submitted)])? == 1 {
            submitted += 1;
        }
        match engine.complete(&mut |_, _| {})? {
            0 => break,
            count => completed += count,
        }
    }
    Ok((completed > 0).then(|| start.elapsed().as_secs_f64() / completed as f64))
}
