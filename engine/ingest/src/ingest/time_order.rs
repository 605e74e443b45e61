//! The order of nodes with times: by time, and by dense id among nodes of one time.
//!
//! ```text
//! look up the ids of the rows of the table with the times: the dense id of each row
//! read the times: (time, dense id) of each row, sorted on disk
//! merge: the node of each dense id, the dense id of each node, and the time of each node
//! choose the axis; write the permutation, and the positions of all nodes on the axis
//! ```
//!
//! It comes before all that needs nodes. Memory: 5 bytes per node for the permutation, which all later steps have too, and 13 per node for the
//! times while they are encoded.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, Write},
};

use grappa_formats::{
    container::FileKind,
    dictionary::KeyKind,
    manifest::FileEntry,
    permutation_table::{ENTRY_BYTES, PermutationTableMeta, entry},
    time_axis::TimeUnit,
};
use grappa_input::{EdgeEnd, NodeTimeSource};
use grappa_io::{
    Error, Result, container::ContainerWriter, durable, heap, ledger::MemoryShare, progress::check_stopped,
    unnamed::unnamed_file,
};
use grappa_storage::{
    files::PERMUTATION,
    writer::{StoreFolder, write_node_times},
};

use crate::{
    ids::IdMap,
    ingest::{
        distinct_times::{DistinctTimes, TABLE},
        edges::{ends::EdgeEnds, join::plan_join},
        id_lists::Join,
        job::IngestJob,
        journal::Record,
        node_files::NodeFiles,
        node_ids::{GraphIds, check_table},
        node_ingest::surplus_rows_remedy,
        plan::{self, IngestBudget, TABLE_OF_IDS},
        row_nodes::{NodesOfFiles, RowNodes},
        runs::{self, IdCollector, Runs},
    },
};

/// Rows that are read at a time.
const ROWS: usize = 1 << 14;
/// Maps times to integers that sort as they do.
const SIGN: u64 = 1 << 63;
/// Bytes of a time and a dense id that are sorted.
const KEY_BYTES: usize = 8 + ENTRY_BYTES;

const RUNS: MemoryShare = MemoryShare::one(
    "sorted times",
    4,
    "a quarter of the memory sorts times; half has the times of all nodes, and a quarter the table of distinct ones; chosen, not measured",
);
const TIMES: MemoryShare =
    MemoryShare::one("times of nodes", 2, "the times of all nodes, and their code, before they are written");
/// Bytes of memory per node for its time and its code. Codes have log2(T / N) + 2 bits, so 40 at most in a large graph.
const TIME_COST: u64 = 8 + 5;
/// The least memory of the sort.
const RUN_MEMORY_MIN: u64 = 1 << 20;

/// Puts `nodes` nodes in the order of their times, unless an earlier process has: writes the table of the node permutation, and the times.
///
/// # Errors
/// If a node has no time, times and permutation exceed the memory, or a file can't be read or written.
pub fn write(job: &IngestJob<'_>, files: &mut NodeFiles, nodes: u64) -> Result<()> {
    check_table(job, nodes)?;
    if job.journal.is_ordered_by_time() {
        return Ok(());
    }
    check_times(nodes, &job.budget)?;
    let rows = dense_ids_of_rows(job, files, nodes)?;
    if let Some(source) = files.times.as_mut().filter(|source| !source.has_ids()) {
        source.expect_rows(nodes, surplus_rows_remedy(job.nodes))?;
    }
    let source = files.times.as_ref().expect("nodes have times");
    let title = "ordering nodes by time";
    let memory = job.budget.memory;
    job.enter(title, vec![RUNS.lease(memory), TIMES.lease(memory), TABLE.lease(memory)])?;
    job.progress.stage(title, Some(source.total_bytes()));
    let runs = Runs::new(&job.store.scratch("node-times")?, KeyKind::Strings);
    collect(job, source, &rows, &runs)?;
    let order = Order::merge(job, runs, nodes)?;
    let files = order.write(job, unit_of(job))?;
    // The ids were cut into segments with their dense ids, if they were cut.
    job.journal.record(Record::Joining(None))?;
    job.journal.record(Record::OrderedByTime(files))
}

/// Fails if the times of `nodes` nodes exceed their share of the budget. The error names a budget that suffices.
fn check_times(nodes: u64, budget: &IngestBudget) -> Result<()> {
    let needed = nodes.saturating_mul(TIME_COST);
    if needed <= TIMES.bytes(budget.memory) {
        return Ok(());
    }
    let remedy = "raise --memory, or give --node-time none for nodes without times";
    Err(budget.too_small(format!("the times of {nodes} nodes"), TIMES.budget_of(needed), remedy))
}

fn unit_of(job: &IngestJob<'_>) -> TimeUnit {
    let time = job.nodes.data.tables.columns.time.as_ref();
    time.and_then(|time| time.unit).expect("the unit was found when options were resolved")
}

/// The dense id of each row of the table with the times. They must be all dense ids.
fn dense_ids_of_rows(job: &IngestJob<'_>, files: &NodeFiles, nodes: u64) -> Result<RowNodes> {
    let mut ids = GraphIds::in_order(job, plan::chunk_map(nodes, job.nodes.layout.chunks)?)?;
    let has_ids = files.ids_of_times().is_some() || job.nodes.data.ids.is_some();
    let fits = ids.map.table_memory() <= TABLE_OF_IDS.bytes(job.budget.memory);
    let plans = match has_ids {
        true if fits => {
            ids.map.load()?;
            None
        }
        true => plan_join(job, &mut EdgeEnds::of_one_type(&mut ids))?,
        false => None,
    };
    let plan = plans.as_ref().and_then(|plans| plans.plan(EdgeEnd::Target));
    let join = plan.map(|plan| Join { plan, scratch: job.store.lasting_scratch() });
    let map: &IdMap = &ids.map;
    NodesOfFiles::look_up_times(job, map, join, files)
}

/// Collects the time and the dense id of each row.
fn collect(job: &IngestJob<'_>, source: &NodeTimeSource, rows: &RowNodes, runs: &Runs) -> Result<()> {
    let memory = RUNS.bytes(job.budget.memory).max(RUN_MEMORY_MIN);
    let mut collector = IdCollector::new(runs, memory)?;
    let IdCollector::Strings(keys) = &mut collector else { unreachable!("keys are bytes") };
    let (mut times, mut dense_ids, mut row) = (Vec::new(), Vec::new(), 0);
    loop {
        let read = source.read_rows(row, ROWS, &mut times)? as u64;
        if read == 0 {
            break;
        }
        rows.read(row..row + read, &mut dense_ids)?;
        let some: Vec<_> = times.iter().zip(&dense_ids).map(|(&time, &id)| key_of(time, id)).collect();
        keys.add_all(some.iter().map(<[u8; KEY_BYTES]>::as_slice))?;
        row += read;
        check_stopped(job.progress)?;
    }
    collector.finish()
}

/// A key whose bytes sort as its time, then as its dense id.
fn key_of(time: i64, id: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&(time.cast_unsigned() ^ SIGN).to_be_bytes());
    key[8..].copy_from_slice(&id.to_be_bytes()[8 - ENTRY_BYTES..]);
    key
}

/// The time and the dense id in a key.
fn read_key(key: &[u8]) -> (i64, u64) {
    let (time, id) = key.split_at(8);
    let time = u64::from_be_bytes(time.try_into().expect("eight bytes"));
    ((time ^ SIGN).cast_signed(), id.iter().fold(0, |id, &byte| id << 8 | u64::from(byte)))
}

/// The order of all nodes.
struct Order {
    /// The node of each dense id.
    nodes: Vec<[u8; ENTRY_BYTES]>,
    /// The dense id of each node, in a scratch file.
    dense_ids: File,
    /// The time of each node, ascending.
    times: Vec<i64>,
    distinct: DistinctTimes,
}

impl Order {
    /// Merges the sorted keys.
    fn merge(job: &IngestJob<'_>, runs: Runs, nodes: u64) -> Result<Self> {
        let folder = job.store.lasting_scratch();
        let scratch = Error::io("write a scratch file in", folder);
        let mut order = Self {
            nodes: heap::zeroed(nodes as usize, "the node permutation")?,
            dense_ids: unnamed_file(folder)?,
            times: Vec::new(),
            distinct: DistinctTimes::new(&job.budget),
        };
        heap::reserve_to(&mut order.times, nodes as usize, "the times of nodes")?;
        let Self { nodes, dense_ids, times, distinct } = &mut order;
        let mut dense_ids = BufWriter::new(dense_ids);
        let mut failed = None;
        let memory = RUNS.bytes(job.budget.memory);
        runs::merge(runs, memory, job.budget.threads, &mut |_| {}, &mut |key| {
            let (time, id) = read_key(key);
            if times.last() != Some(&time) {
                distinct.push(time);
            }
            nodes[id as usize] = entry(times.len() as u64);
            times.push(time);
            failed = failed.take().or(dense_ids.write_all(&entry(id)).err());
            Ok(())
        })?;
        failed.map_or(dense_ids.flush(), Err).map_err(scratch)?;
        drop(dense_ids);
        Ok(order)
    }

    /// Writes the permutation and the times, synced. Returns the entries of the files.
    fn write(self, job: &IngestJob<'_>, unit: TimeUnit) -> Result<Vec<FileEntry>> {
        let Self { nodes, dense_ids, times, distinct } = self;
        let number = nodes.len() as u64;
        let axis = distinct.axis(&job.budget, unit, (number, "nodes"))?;
        let permutation = write_permutation(job.store, nodes, dense_ids)?;
        let positions: Vec<u64> =
            times.into_iter().map(|time| axis.position(time).expect("the axis has all times")).collect();
        let mut files = write_node_times(job.store, &axis, &positions)?;
        files.push(permutation);
        Ok(files)
    }
}

fn write_permutation(store: &StoreFolder, nodes: Vec<[u8; ENTRY_BYTES]>, mut dense_ids: File) -> Result<FileEntry> {
    let folder = store.folder("ids")?;
    let meta = PermutationTableMeta { nodes: nodes.len() as u64 }.encode();
    let mut file = ContainerWriter::create(&store.path().join(PERMUTATION), FileKind::PERMUTATION, meta.len())?;
    file.write(nodes.as_flattened())?;
    let scratch = || Error::io("read a scratch file in", store.lasting_scratch());
    dense_ids.rewind().map_err(scratch())?;
    let (mut dense_ids, mut bytes) = (BufReader::new(dense_ids), vec![0; ENTRY_BYTES * ROWS]);
    for some in nodes.chunks(ROWS) {
        let bytes = &mut bytes[..ENTRY_BYTES * some.len()];
        dense_ids.read_exact(bytes).map_err(scratch())?;
        file.write(bytes)?;
    }
    let file = file.finish(meta)?;
    file.sync()?;
    durable::sync_folder(&folder)?;
    Ok(store.entry(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_time_then_by_dense_id() {
        let all = [(i64::MIN, 3), (-1, 0), (-1, (1 << 40) - 1), (0, 1), (0, 256), (7, 0), (i64::MAX - 1, 5)];
        let keys: Vec<_> = all.iter().map(|&(time, id)| key_of(time, id)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert!(keys.iter().map(|key| read_key(key)).eq(all));
    }

    #[test]
    fn times_that_exceed_the_memory_are_refused_with_a_budget_that_would_do() {
        let error = check_times(1 << 20, &IngestBudget::new(8 << 20, 2, 1)).unwrap_err();
        let Error::Budget { given, least, .. } = error else { panic!("{error}") };
        assert_eq!((given, least), (16 << 20, (2 * 2 * 13) << 20));
        check_times(1 << 20, &IngestBudget::new(least / 2, 2, 1)).unwrap();
    }
}
