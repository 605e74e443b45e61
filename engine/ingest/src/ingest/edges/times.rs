//! The points in time of the edges, between both passes.
//!
//! ```text
//! collect the distinct times of the spilled edges, on all threads; sort and merge them on disk
//! choose the form of the axis: positions count units, or a table has the distinct times
//! write the file time-axis
//! ```
//!
//! Pass 2 needs the positions of times, and removes the spilled edges of finished chunks. So a resumed run takes the axis from its file.
//! Reads each spilled edge once more.

use std::sync::atomic::{AtomicUsize, Ordering};

use grappa_formats::{
    dictionary::KeyKind,
    time_axis::{TimeAxis, TimeUnit},
};
use grappa_io::{Error, Result, ledger::MemoryShare, progress::check_stopped, regular, workers};
use grappa_storage::files::TIME_AXIS;

use crate::ingest::{
    distinct_times::{DistinctTimes, TABLE},
    edge_values::ValueShape,
    job::IngestJob,
    journal::StageState,
    runs::{self, IdCollector, Runs},
    spill::SpillFolder,
};

/// Records per read.
const READ_RECORDS: u64 = 1 << 16;
/// Maps times to integers that sort as they do.
const SIGN: u64 = 1 << 63;

const RUNS: MemoryShare = MemoryShare::one(
    "sorted times",
    2,
    "half of the memory sorts distinct times, the other half has the table of them; chosen, not measured",
);
/// The least memory of a thread that collects times.
const RUN_MEMORY_MIN: u64 = 1 << 20;

/// The spilled edges.
pub struct SpilledTimes<'a> {
    pub spill: &'a SpillFolder,
    pub spilled: &'a StageState,
    pub shards: u32,
    pub shape: ValueShape,
}

/// The axis of the times of all spilled edges, which count `unit`. Writes its file, or reads the file that an earlier process wrote.
///
/// # Errors
/// If the store needs a table of times that exceeds the memory, or files can't be read or written.
pub fn find_axis(job: &IngestJob<'_>, unit: TimeUnit, edges: &SpilledTimes<'_>) -> Result<TimeAxis> {
    let path = job.store.path().join(TIME_AXIS);
    if let Some(bytes) = regular::read_if_there(&path)? {
        return TimeAxis::decode(&bytes).map_err(Error::format(path));
    }
    let title = "collecting times";
    let leases = vec![RUNS.lease(job.budget.memory), TABLE.lease(job.budget.memory)];
    job.enter(title, leases)?;
    job.progress.stage(title, Some(edges.spilled.records() * edges.spill.record_words() as u64 * 8));
    let runs = Runs::new(&job.store.scratch("times")?, KeyKind::Integers);
    collect(job, edges, &runs)?;
    let mut found = DistinctTimes::new(&job.budget);
    let memory = RUNS.bytes(job.budget.memory);
    runs::merge(runs, memory, job.budget.threads, &mut |_| {}, &mut |id| {
        let id = u64::from_be_bytes(id.try_into().expect("integers in runs have eight bytes"));
        found.push((id ^ SIGN).cast_signed());
        Ok(())
    })?;
    let axis = found.axis(&job.budget, unit, (edges.spilled.records(), "edges"))?;
    job.store.write_file(TIME_AXIS, axis.encode())?;
    Ok(axis)
}

/// Collects the times of all spilled edges.
fn collect(job: &IngestJob<'_>, edges: &SpilledTimes<'_>, runs: &Runs) -> Result<()> {
    let SpilledTimes { spill, spilled, shards, shape } = *edges;
    let files =
        (0..shards).flat_map(|shard| spilled.files_of(shard).map(move |(worker, extent)| (shard, worker, extent)));
    let files: Vec<_> = files.filter(|(.., extent)| extent.records > 0).collect();
    let taken = AtomicUsize::new(0);
    let memory = (RUNS.bytes(job.budget.memory) / job.budget.threads as u64).max(RUN_MEMORY_MIN);
    workers::run(job.budget.threads, |turn| {
        let IdCollector::Integers(mut times) = IdCollector::new(runs, memory)? else {
            unreachable!("times are integers")
        };
        while turn.goes_on()
            && let Some(&(shard, worker, extent)) = files.get(taken.fetch_add(1, Ordering::Relaxed))
        {
            spill.read_all(worker, shard, extent, READ_RECORDS, |words| {
                check_stopped(job.progress)?;
                let records = words.chunks_exact(spill.record_words());
                job.progress.advance(size_of_val(words) as u64, records.len() as u64);
                records
                    .map(|record| shape.time(&record[1..]))
                    .try_for_each(|time| times.add(time.cast_unsigned() ^ SIGN))
            })?;
        }
        times.finish()
    })
}
