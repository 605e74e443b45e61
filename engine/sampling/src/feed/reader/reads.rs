//! Keeps as many reads in flight as an engine accepts.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use grappa_io::{
    Result,
    read::{Read, ReadEngine},
};

use super::runs::pages_bytes;
use crate::feed::stats::Counters;

/// Number of reads that are passed to the engine at once.
const SUBMIT_READS: usize = 64;

/// How reading a window ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::feed) enum FetchOutcome {
    /// All rows are in their slots.
    Complete,
    /// The feed was stopped.
    Stopped,
}

/// Reads all of `reads` and passes the bytes of each to `take`. Of a feed, adds to the statistics and returns when it
/// stops. Whatever ends it, no read is in flight in the end.
pub(super) fn read_all(
    mut reads: impl Iterator<Item = Read>,
    engine: &mut dyn ReadEngine,
    feed: Option<(&Counters, &AtomicBool)>,
    mut take: impl FnMut(&Read, &[u8]) -> Result<()>,
) -> Result<FetchOutcome> {
    let mut waiting: Vec<Read> = Vec::with_capacity(SUBMIT_READS);
    loop {
        if feed.is_some_and(|(_, stop)| stop.load(Ordering::Relaxed)) {
            abandon(engine);
            return Ok(FetchOutcome::Stopped);
        }
        loop {
            waiting.extend(reads.by_ref().take(SUBMIT_READS - waiting.len()));
            let submitted = engine.submit(&waiting)?;
            let submitted_reads = waiting.drain(..submitted);
            if let Some((counters, _)) = feed {
                let bytes: u64 = submitted_reads.map(|read| pages_bytes(&read)).sum();
                counters.add(|stats| {
                    stats.reads += submitted as u64;
                    stats.bytes_read += bytes;
                });
            }
            if submitted == 0 || engine.in_flight() >= engine.options().depth {
                break;
            }
        }
        let (since, depth) = (Instant::now(), engine.in_flight());
        let mut taken = Ok(());
        let completed = engine.complete(&mut |read, bytes| {
            if taken.is_ok() {
                taken = take(read, bytes);
            }
        })?;
        if let Some((counters, _)) = feed
            && depth > 0
        {
            let seconds = since.elapsed().as_secs_f64();
            counters.add(|stats| {
                stats.read_seconds += seconds;
                stats.queue_depth += seconds * depth as f64;
            });
        }
        if let Err(error) = taken {
            abandon(engine);
            return Err(error);
        }
        if completed == 0 && waiting.is_empty() {
            return Ok(FetchOutcome::Complete);
        }
    }
}

/// Waits for the reads in flight, and ignores their results.
fn abandon(engine: &mut dyn ReadEngine) {
    // After an error nothing is in flight.
    while matches!(engine.complete(&mut |_, _| {}), Ok(1..)) {}
}
