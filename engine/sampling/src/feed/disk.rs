//! What a read costs, measured: so that gaps between rows are read where leaving them out would take longer.
//!
//! With many reads under way, one of `n` bytes takes a disk `a + n / b`, to good approximation. On a virtual NVMe disk:
//!
//! | bytes | 4 K | 16 K | 64 K | 256 K |
//! |---|---|---|---|---|
//! | µs a read at depth 128 | 12.7 | 22.4 | 36.6 | 82.8 |
//!
//! Two runs of rows with a gap between them are better read as one if the gap is shorter than `a * b`: 42 KB on that
//! disk, where minibatches of an R-MAT graph (scale 22, rows of 512 bytes, 60 % of those ever wanted in memory) then come
//! at twice the rate that they do without gaps read, and at 1.4 times that of gaps up to 12 KB. Other disks are unlike it:
//! 6 KB pay on a SATA drive, and megabytes where a head must move.

use std::time::{Duration, Instant};

use grappa_formats::random::GOLDEN;
use grappa_io::{
    Result,
    read::{FileIndex, Read, ReadEngine},
};

use super::files::RowFiles;

/// The shorter of the two reads that are timed.
const SHORT_BYTES: u32 = 4096;
/// How many reads of each length make a round, and how much time it may take.
const SHORT_READS: u64 = 256;
const LONG_READS: u64 = 48;
const TIME_MAX: Duration = Duration::from_millis(20);
/// The best round counts: what else the machine does makes reads slower, never faster.
const ROUNDS: u64 = 4;
/// Longer gaps are not worth what they would push out of the way.
const BRIDGE_BYTES_MAX: f64 = (1 << 20) as f64;

/// The longest gap, in bytes, that is better read than left out. Takes some hundredths of a second.
pub(super) fn measure_bridge_bytes(files: &RowFiles, engine: &mut dyn ReadEngine) -> Result<u32> {
    let long_bytes = engine.read_bytes_max();
    let (mut short, mut long) = (None, None);
    for round in 0..ROUNDS {
        let least = |before: Option<f64>, now: Option<f64>| before.into_iter().chain(now).reduce(f64::min);
        short = least(short, seconds_a_read(files, engine, SHORT_BYTES, SHORT_READS, round)?);
        long = least(long, seconds_a_read(files, engine, long_bytes, LONG_READS, round)?);
    }
    let (Some(short), Some(long)) = (short, long) else {
        return Ok(0);
    };
    // What is not longer at all costs nothing, as far as one can tell.
    let seconds_a_byte = (long - short).max(1e-12) / f64::from(long_bytes.saturating_sub(SHORT_BYTES).max(1));
    let bridge = short / seconds_a_byte - f64::from(SHORT_BYTES);
    let bridge = bridge.clamp(0.0, BRIDGE_BYTES_MAX) as u32;
    tracing::debug!(
        short_us = short * 1e6,
        long_us = long * 1e6,
        long_bytes,
        bridge,
        "what reads cost"
    );
    Ok(bridge)
}

/// How long one of many reads of `length` bytes takes, at places all over the files; none if no file is so long.
fn seconds_a_read(
    files: &RowFiles,
    engine: &mut dyn ReadEngine,
    length: u32,
    reads: u64,
    round: u64,
) -> Result<Option<f64>> {
    let long_enough: Vec<(FileIndex, u64)> = (0..)
        .map(FileIndex)
        .zip(files.files().iter())
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
            // At a page, as the first rows of runs mostly are read from.
            offset: (random ^ random >> 29) % (last + 1) / 4096 * 4096,
            length,
            tag: 0,
        }
    };
    let (start, mut begun, mut done) = (Instant::now(), 0, 0);
    loop {
        while begun < reads && start.elapsed() < TIME_MAX && engine.submit(&[read(begun)])? == 1 {
            begun += 1;
        }
        match engine.complete(&mut |_, _| {})? {
            0 => break,
            completed => done += completed,
        }
    }
    Ok((done > 0).then(|| start.elapsed().as_secs_f64() / done as f64))
}
