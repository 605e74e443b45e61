//! Puts rows of the store into the order of external ids.
//!
//! ```text
//! pass 1, each worker: take the next chunk; append (place in shard, row) of each of its nodes to the shard of its dense id
//! pass 2, each worker: take the next shard; put its rows in place. Pass the shards on in order
//! ```
//!
//! This mirrors ingest: rows are read, spilled next to the new file and read back, in large pieces and within the
//! memory budget. A shard is a range of dense ids.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_formats::{ChunkId, ChunkSpan, NodeId};
use grappa_io::{
    Error, Result,
    blocks::{Planned, write_in_order},
    ledger::{Lease, MemoryShare},
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::Store;

use crate::export::{
    Budget, expect_whole, pool,
    spill::{Buffers, Spill},
};

/// Gets the bytes of whole rows.
pub type RowSink<'a> = dyn FnMut(&[u8]) -> Result<()> + Send + 'a;

/// Bytes of rows read at a time.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Shards in memory for each worker: one is put in order, and one is passed on.
const SHARDS_PER_WORKER: u64 = 2;
/// The shards of a worker, and its buffers for rows of other shards.
const SHARDS: MemoryShare = MemoryShare::one(
    "rows in order of ids",
    2,
    "larger shards are fewer, so buffers, which have the other half, write longer pieces; chosen, not measured",
);
/// The part of its shards that a worker reads at a time.
const READ: MemoryShare =
    MemoryShare::one("rows that are read", 2, "in a small budget, reads are shorter than 1 MiB; chosen, not measured");
/// Larger spill buffers would not be faster.
const BUFFER_BYTES_MAX: u64 = 256 << 10;

/// A column of the store: feature rows or labels, encoded for the array.
pub(super) trait NodeColumn: Sync {
    /// The name of the column in errors.
    fn name(&self) -> &'static str;

    /// What reading its rows is called, without its name, and the bytes that are read for a row.
    fn stage(&self) -> (&'static str, u64);

    /// Length of an exported row in bytes.
    fn row_bytes(&self) -> usize;

    /// Calls `each` with the rows of a chunk, in order.
    fn rows(&self, span: ChunkSpan, progress: &dyn Progress, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// The division of dense ids into shards.
#[derive(Debug, Clone, Copy)]
struct Shards {
    nodes: u64,
    row_bytes: usize,
    /// Rows of a shard; the last may have fewer.
    rows: u64,
    /// Records in a worker's buffer for one shard.
    buffer_records: u64,
    /// Records of a shard that are read at a time.
    read_records: u64,
}

impl Shards {
    /// Divides the dense ids so that an export of `name` fits the budget.
    fn new(nodes: u64, row_bytes: usize, name: &str, budget: &Budget) -> Result<Self> {
        let shards = Self::within(nodes, row_bytes, budget);
        if shards.bytes(budget.threads) <= budget.memory {
            return Ok(shards);
        }
        let mut enough = *budget;
        while Self::within(nodes, row_bytes, &enough).bytes(budget.threads) > enough.memory {
            enough.memory = enough.memory.saturating_add(enough.memory / 16 + 1);
        }
        Err(Error::Budget {
            operation: format!("sorting {name} by external id with {} threads", budget.threads),
            given: budget.memory,
            least: enough.memory,
            remedy: "raise --memory, or give fewer --threads",
        })
    }

    /// Divides them so that each worker can hold its shards in half of its share of the memory. The other half is for
    /// buffers. If there is less memory than for a row of each shard, it takes more.
    fn within(nodes: u64, row_bytes: usize, budget: &Budget) -> Self {
        let share = SHARDS.bytes(budget.memory / budget.threads as u64);
        let rows = (share / SHARDS_PER_WORKER / row_bytes as u64).clamp(1, nodes.max(1));
        let record_bytes = 8 * record_words(row_bytes) as u64;
        let buffer_bytes = (share / nodes.div_ceil(rows).max(1)).min(BUFFER_BYTES_MAX);
        Self {
            nodes,
            row_bytes,
            rows,
            buffer_records: (buffer_bytes / record_bytes).max(1),
            read_records: (READ.bytes(share).min(READ_BYTES as u64) / record_bytes).max(1),
        }
    }

    /// The most bytes of memory that `threads` workers take: while they fill buffers, or while they put rows in place.
    fn bytes(&self, threads: usize) -> u64 {
        let record_words = record_words(self.row_bytes);
        let (shards, threads) = (self.nodes.div_ceil(self.rows), threads as u64);
        let (region_bytes, buffer_bytes_per_shard) = Spill::bytes_of_shard(record_words, self.buffer_records);
        let read = (8 * record_words as u64).saturating_mul(self.read_records.min(self.rows));
        let rows = self.rows.saturating_mul(self.row_bytes as u64).saturating_mul(SHARDS_PER_WORKER);
        let buffers = buffer_bytes_per_shard.saturating_mul(shards);
        let worker_bytes = buffers.max(rows.saturating_add(read));
        worker_bytes.saturating_mul(threads).saturating_add(region_bytes * shards)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.nodes.div_ceil(self.rows)).expect("the budget is not smaller than that")
    }

    /// Number of rows of a shard.
    fn len(&self, shard: u32) -> u64 {
        self.rows.min(self.nodes - u64::from(shard) * self.rows)
    }
}

/// Words of a spilled row: its place in the shard, and the row.
fn record_words(row_bytes: usize) -> usize {
    1 + row_bytes.div_ceil(8)
}

/// The lease for sorting rows of `row_bytes` bytes, one for each node.
///
/// # Errors
/// [`Error::Budget`], with a sufficient budget.
pub(super) fn sort_lease(store: &Store, row_bytes: usize, name: &str, budget: &Budget) -> Result<Lease> {
    let shards = Shards::new(store.manifest().nodes, row_bytes, name, budget)?;
    Ok(SHARDS.lease_of(shards.bytes(budget.threads)))
}

/// Passes the rows of a column to `sink`, in the order of external ids. In between they are in an unnamed file in the folder `scratch`.
pub(super) fn read_in_order(
    store: &Store,
    column: &dyn NodeColumn,
    scratch: &Path,
    budget: &Budget,
    progress: &dyn Progress,
    sink: &mut RowSink<'_>,
) -> Result<()> {
    expect_whole(store, column.name())?;
    let nodes = store.manifest().nodes;
    let shards = Shards::new(nodes, column.row_bytes(), column.name(), budget)?;
    let records = (0..shards.count()).map(|shard| shards.len(shard));
    let work = Work {
        store,
        column,
        shards,
        spill: Spill::create(scratch, record_words(column.row_bytes()), records)?,
        progress,
    };
    let (verb, read_bytes) = column.stage();
    progress.stage(&format!("{verb} {}", column.name()), Some(nodes.saturating_mul(read_bytes)));
    work.scatter(budget.threads)?;
    let bytes = nodes.saturating_mul(column.row_bytes() as u64);
    progress.stage(&format!("writing {}", column.name()), Some(bytes));
    let mut shards = 0..work.shards.count();
    pool(budget.threads)?.install(|| {
        write_in_order(
            budget.threads,
            || Ok(shards.next().map(|shard| Planned { edges: 0, block: shard })),
            |&shard, (): &mut (), rows| work.gather(shard, rows),
            |rows: &mut Vec<u8>, _| {
                sink(rows)?;
                progress.advance(rows.len() as u64, 0);
                check_stopped(progress)
            },
        )
    })
}

struct Work<'a> {
    store: &'a Store,
    column: &'a dyn NodeColumn,
    shards: Shards,
    spill: Spill,
    progress: &'a dyn Progress,
}

impl Work<'_> {
    /// Pass 1.
    fn scatter(&self, threads: usize) -> Result<()> {
        let next_chunk = AtomicU64::new(0);
        let chunks = self.store.chunks();
        workers::run(threads, |turn| {
            let mut buffers = Buffers::new(&self.spill, self.shards.buffer_records);
            while turn.goes_on() {
                let chunk = next_chunk.fetch_add(1, Ordering::Relaxed);
                if chunk >= u64::from(chunks.chunks()) {
                    break;
                }
                let span = ChunkSpan::for_chunk(chunks, ChunkId(chunk as u32));
                let mut node = span.first_node.0;
                self.column.rows(span, self.progress, &mut |row| {
                    let id = self.store.ids().dense_id(NodeId(node))?.0;
                    let record = buffers.push((id / self.shards.rows) as u32)?;
                    record[0] = id % self.shards.rows;
                    let words: &mut [u8] = bytemuck::cast_slice_mut(&mut record[1..]);
                    words[..row.len()].copy_from_slice(row);
                    words[row.len()..].fill(0);
                    node += 1;
                    Ok(())
                })?;
            }
            buffers.flush_all()
        })
    }

    /// Pass 2, for one shard.
    fn gather(&self, shard: u32, rows: &mut Vec<u8>) -> Result<()> {
        let row_bytes = self.column.row_bytes();
        rows.clear();
        rows.resize(self.shards.len(shard) as usize * row_bytes, 0);
        self.spill.read(shard, self.shards.read_records, |record| {
            let row: &[u8] = bytemuck::cast_slice(&record[1..]);
            let place = rows.chunks_exact_mut(row_bytes).nth(record[0] as usize);
            place.map(|place| place.copy_from_slice(&row[..row_bytes])).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_all_dense_ids_within_the_budget() {
        for (nodes, row_bytes, memory) in
            [(0, 8, 1 << 20), (1, 8, 1 << 20), (1_000_000, 512, 16 << 20), (10, 1 << 20, 16 << 20)]
        {
            let budget = Budget { threads: 2, memory };
            let shards = Shards::new(nodes, row_bytes, "rows", &budget).unwrap();
            let rows: u64 = (0..shards.count()).map(|shard| shards.len(shard)).sum();
            assert_eq!(rows, nodes);
            assert!(shards.rows == 1 || shards.rows * row_bytes as u64 <= memory / 4);
            assert!(shards.bytes(budget.threads) <= memory);
        }
    }

    #[test]
    fn memory_too_small_for_the_buffers_of_all_shards_names_what_would_do() {
        for (nodes, row_bytes, threads, memory) in
            [(10, 1 << 20, 2, 1), (1 << 31, 512, 16, 64 << 20), (1 << 27, 8, 2, 256 << 10)]
        {
            let new = |memory| Shards::new(nodes, row_bytes, "features", &Budget { threads, memory });
            let least = match new(memory).unwrap_err() {
                Error::Budget { given, least, .. } if given == memory => least,
                other => panic!("{other}"),
            };
            assert!(new(least).unwrap().bytes(threads) <= least);
            assert!(new(least / 8 * 7).is_err(), "{least} is too much");
        }
    }
}
