//! Chunks of a graph, and the division of a memory budget.
//!
//! Chunks depend on the graph and the options only. The memory budget decides how finely pass 1 divides the records into
//! *shards*, and how large its buffers are. A chunk has one or more shards, and pass 2 sorts each shard in memory. The
//! store does not depend on the shards.

use std::ops::Range;

use grappa_formats::{ChunkId, chunks::ChunkMap, manifest::BUCKETS_MAX};
use grappa_io::{
    Error, Result,
    ledger::{Lease, MemoryShare},
};
use grappa_storage::writer::{AdjacencyWriter, EndChunks};
use serde::{Deserialize, Serialize};

/// Bytes of input that are parsed at once. The maximum applies unless the budget is small.
const BLOCK_BYTES_MAX: u64 = 4 << 20;
const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Bytes of memory per byte of a block while it is parsed, at worst: the block itself, the next one, which another thread
/// reads, and, for text such as `1 2`, four times as much in ids.
const BLOCK_COST: u64 = 6;
/// The smallest useful spill buffer. Smaller writes would spend their time in system calls.
pub const BUFFER_BYTES_MIN: u64 = 4 << 10;
/// The largest useful spill buffer. Larger writes are not faster.
pub const BUFFER_BYTES_MAX: u64 = 256 << 10;
/// Bytes of memory per word of a record that pass 2 sorts, if an edge has one value or none: the word, its copy, and up to five bytes
/// encoded. The copy is scratch of the sort, and has the sources of an adjacency list after it. A weighted record has two
/// words, and copies of the key and twice of the weight, which take as much.
pub const SORT_COST: u64 = 8 + 8 + 5;
/// Copies of the edge buckets in memory when the manifest is written: the manifest, its archive, and its file.
pub const BUCKET_COPIES: u64 = 3;
/// Remedy of an error about the memory of edge buckets.
pub const BUCKETS_REMEDY: &str = "raise --memory, or give fewer --chunks";
/// The fewest chunks of a graph by default, because there cannot be more partitions than chunks.
const CHUNKS_MIN: u64 = 64;
/// The most chunks of a graph by default. The manifest has an entry for each pair of chunks.
const CHUNKS_MAX: u64 = 1024;
/// Nodes per chunk above which a graph gets more chunks than the minimum.
const CHUNK_NODES: u64 = 1 << 22;
/// Nodes per chunk below which a graph gets fewer chunks, because a chunk with fewer nodes is not worth its files.
const CHUNK_NODES_MIN: u64 = 32;

/// Blocks of the input, of each thread's part of the budget.
const BLOCKS: MemoryShare = MemoryShare::one(
    "blocks of the input",
    4,
    "1/4 of each thread's part, from 64 KiB to 4 MiB a block with its parsed edges; the rest is worth more as spill buffers, and larger \
     blocks are not parsed faster; chosen, not measured",
);
/// What an ingest keeps in memory while it reads.
pub const TABLE_OF_IDS: MemoryShare = MemoryShare::one(
    "table of ids",
    2,
    "a table from external ids to nodes, or what a table of the input keeps in memory; ids that exceed 1/2 are joined in segments; chosen, \
     not measured",
);
/// Sets of nodes beside a table of ids.
const SETS: MemoryShare = MemoryShare::one(
    "sets of nodes",
    4,
    "the nodes of splits or of a list, beside the table of ids; chosen, not measured",
);

/// The default number of chunks of a graph of `nodes` nodes.
pub fn chunks_auto(nodes: u64) -> u32 {
    let wanted = (nodes / CHUNK_NODES).clamp(CHUNKS_MIN, CHUNKS_MAX);
    wanted.min((nodes / CHUNK_NODES_MIN).max(1)) as u32
}

/// The chunks of a graph of `nodes` nodes. Their number is `chunks`, or [`chunks_auto`] if that is none.
pub fn chunk_map(nodes: u64, chunks: Option<u32>) -> Result<ChunkMap> {
    let chunks = chunks.unwrap_or_else(|| chunks_auto(nodes));
    if u64::from(chunks) > nodes.max(1) {
        return Err(Error::limit(
            format!("the graph would have {chunks} chunks"),
            format!("{nodes}, one for each node"),
            format!("give --chunks {nodes} or less"),
        ));
    }
    let least = nodes.div_ceil(ChunkMap::CHUNK_NODES_MAX);
    if u64::from(chunks) < least {
        return Err(Error::out_of_range("--chunks", format!("{least} or more for {nodes} nodes"), chunks));
    }
    Ok(ChunkMap::uniform(nodes, chunks))
}

/// The chunks of a graph whose nodes are divided into parts of these sizes. No size may be 0.
///
/// Each part becomes a chunk. If there are to be more chunks than parts, every part is divided evenly into the same number
/// of chunks, as far as it has nodes for that.
pub fn chunk_map_of_parts(sizes: &[u64], chunks: Option<u32>) -> Result<ChunkMap> {
    let (parts, nodes) = (sizes.len() as u64, sizes.iter().sum());
    let wanted = u64::from(chunks.unwrap_or_else(|| chunks_auto(nodes)));
    if chunks.is_some() && wanted < parts {
        return Err(Error::conflict(
            format!("the {parts} parts cannot be joined into {wanted} chunks"),
            format!("give --chunks {parts} or more, or auto"),
        ));
    }
    let per_part = wanted.div_ceil(parts.max(1));
    let mut starts = vec![0];
    let mut start = 0;
    for &size in sizes {
        let pieces = per_part.max(size.div_ceil(ChunkMap::CHUNK_NODES_MAX)).min(size);
        starts.extend(
            (1..=pieces).map(|piece| start + (u128::from(piece) * u128::from(size) / u128::from(pieces)) as u64),
        );
        start += size;
    }
    ChunkMap::from_starts(starts).map_err(|error| Error::conflict(error.to_string(), "assign the nodes to other parts"))
}

/// Fails if a store with `present` of the chunks of destinations has too many edge buckets for a manifest.
pub fn check_buckets<'a>(chunks: impl Into<EndChunks<'a>>, present: u64) -> Result<()> {
    let EndChunks { destinations, sources } = chunks.into();
    let [chunks, sources] = [destinations, sources].map(|chunks| u64::from(chunks.chunks()));
    let buckets = present * sources;
    if buckets <= BUCKETS_MAX {
        return Ok(());
    }
    let most = BUCKETS_MAX.isqrt();
    Err(Error::limit(
        format!("{present} of {chunks} chunks have {buckets} edge buckets"),
        format!("{BUCKETS_MAX} in a manifest"),
        if present == chunks {
            format!("give --chunks {most} or less")
        } else {
            format!("generate {} or fewer of the chunks", BUCKETS_MAX / chunks)
        },
    ))
}

/// Bytes of memory for the edge buckets of `present` of the chunks of destinations.
pub fn buckets_memory<'a>(chunks: impl Into<EndChunks<'a>>, present: u64) -> u64 {
    present * u64::from(chunks.into().sources.chunks()) * size_of::<u64>() as u64
}

/// Bytes of memory that are held while adjacency lists are written: the edge buckets, and the directories of all chunks that
/// are written at the same time, for each of `parts` parts of the edges.
///
/// # Errors
/// If they exceed half of the budget, or the manifest exceeds the budget. The error names a budget that suffices.
pub fn directory_memory<'a>(chunks: impl Into<EndChunks<'a>>, parts: u64, budget: &IngestBudget) -> Result<u64> {
    let ends = chunks.into();
    let chunks = ends.destinations;
    let buckets = buckets_memory(ends, chunks.chunks().into());
    let largest = (0..chunks.chunks()).map(|c| chunks.len(ChunkId(c))).max().unwrap_or(0);
    let at_once = u64::from(chunks.chunks()).min(budget.threads as u64);
    let bytes = at_once * parts * AdjacencyWriter::directory_bytes(largest);
    let least = ((bytes + buckets) * 2).max(buckets * BUCKET_COPIES);
    if least <= budget.memory {
        return Ok(bytes + buckets);
    }
    let (operation, remedy) = if buckets > bytes {
        (edge_buckets(ends, chunks.chunks().into()), BUCKETS_REMEDY)
    } else {
        let operation = format!("writing chunks of {largest} nodes, {at_once} at a time");
        (operation, "raise --memory, or give more --chunks or fewer --threads")
    };
    Err(budget.too_small(operation, least, remedy))
}

/// The edge buckets of `present` of the chunks of destinations, for messages about memory.
pub fn edge_buckets<'a>(chunks: impl Into<EndChunks<'a>>, present: u64) -> String {
    let sources = chunks.into().sources.chunks();
    format!("the edge buckets, a number for each of {present} x {sources} pairs of chunks")
}

/// Fails if `bytes` of sets of nodes, which an operation makes beside a table of ids, exceed a quarter of the budget. The
/// error names a budget that suffices.
pub fn check_sets(operation: String, bytes: u64, budget: &IngestBudget) -> Result<()> {
    if bytes <= SETS.bytes(budget.memory) {
        return Ok(());
    }
    Err(budget.too_small(operation, SETS.budget_of(bytes), "raise --memory"))
}

/// Fails if the budget is too small for any graph with listed ids, before time is spent on its ids. The error names a
/// budget for `chunks` chunks, or for as many as most graphs have.
pub fn check_before_ids(chunks: Option<u32>, budget: &IngestBudget) -> Result<()> {
    if budget.buffer_bytes(1) >= BUFFER_BYTES_MIN {
        return Ok(());
    }
    let chunks = chunks.map_or(CHUNKS_MIN, u64::from);
    Err(too_small_for_buffers(chunks, true, budget))
}

/// The error about a budget in which a buffer for each of `shards` shards does not fit, in every thread, beside memory that
/// is reserved.
fn too_small_for_buffers(shards: u64, reserved: bool, budget: &IngestBudget) -> Error {
    // Of each thread's share, a quarter is for blocks, or more if they are of the smallest size. If memory is reserved, it
    // may be half of the whole.
    let (threads, buffers) = (budget.threads as u64, shards * BUFFER_BYTES_MIN);
    let least = BLOCK_BYTES_MIN * BLOCK_COST + buffers;
    let chosen = IngestBudget::new(budget.memory, budget.share, budget.threads).block_bytes;
    let wanted = if budget.block_bytes > chosen {
        // An earlier run has chosen larger ones.
        let least = budget.block_bytes as u64 * BLOCK_COST + buffers;
        threads * least * if reserved { 2 } else { 1 }
    } else if reserved {
        (threads * buffers * 4).max(threads * least * 2)
    } else {
        (threads * buffers * 4 / 3).max(threads * least)
    };
    let operation = format!("{shards} buffers in each of {threads} threads");
    budget.too_small(operation, wanted, "raise --memory, or give fewer --threads")
}

/// The memory and threads of a run.
#[derive(Debug, Clone, Copy)]
pub struct IngestBudget {
    /// Bytes of memory that the run may use.
    pub memory: u64,
    /// The user's budget is `memory` times this. The node permutation takes the rest.
    pub share: u64,
    /// Worker threads.
    pub threads: usize,
    /// Bytes of `memory` that are used for something else while records are spilled. At most half.
    pub reserved: u64,
    /// Bytes of input to parse at once. A run that is continued keeps those that it began with.
    pub block_bytes: usize,
}

impl IngestBudget {
    /// A budget of `memory * share` bytes. Blocks take a quarter of each thread's share, counted with `BLOCK_COST`.
    pub fn new(memory: u64, share: u64, threads: usize) -> Self {
        let block_bytes = (BLOCKS.bytes(memory / threads as u64) / BLOCK_COST).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        Self { memory, share, threads, reserved: 0, block_bytes: block_bytes as usize }
    }

    /// The error about `operation`, which needs a budget with at least `least` bytes of [`memory`](Self::memory).
    pub fn too_small(&self, operation: String, least: u64, remedy: &'static str) -> Error {
        Error::Budget { operation, given: self.memory * self.share, least: least * self.share, remedy }
    }

    /// Bytes of memory of each thread for blocks of the input.
    pub fn blocks_memory(&self) -> usize {
        self.block_bytes * BLOCK_COST as usize
    }

    /// The memory of a pass that spills records, with buffers of `buffer_bytes` for `shards` shards in each thread.
    pub fn spill_leases(&self, shards: u64, buffer_bytes: usize) -> Vec<Lease> {
        let threads = self.threads as u64;
        vec![
            TABLE_OF_IDS.lease_of(self.reserved),
            BLOCKS.lease_of(threads * self.blocks_memory() as u64),
            Lease::new(
                "spill buffers",
                threads * shards * buffer_bytes as u64,
                "a buffer for each shard in each thread, from 4 KiB, below which writes are mostly system calls, to 256 KiB, above which they \
                 are not faster; what is left of the limit stays free",
            ),
        ]
    }

    /// Bytes of each spill buffer, if each worker has `shards` of them: the thread's share without blocks, divided evenly.
    pub fn buffer_bytes(&self, shards: u64) -> u64 {
        let blocks = self.blocks_memory() as u64;
        (self.memory.saturating_sub(self.reserved) / self.threads as u64).saturating_sub(blocks) / shards
    }
}

/// The division of the records of one stage for spilling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpillPlan {
    /// Number of shards per chunk.
    pub shards_per_chunk: u32,
    /// Bytes of each spill buffer.
    pub buffer_bytes: usize,
}

impl SpillPlan {
    /// Divides `records` records, or their words, over `chunks`.
    ///
    /// A shard takes `cost` bytes of memory for each of them and fits in one thread's share of the budget, even if it is twice as
    /// large as the average. It has at most `nodes_max` nodes.
    ///
    /// # Errors
    /// If the spill buffers do not fit in the budget. The error names a budget that suffices.
    pub fn new(chunks: &ChunkMap, records: u64, cost: u64, nodes_max: u64, budget: &IngestBudget) -> Result<Self> {
        let share = (budget.memory / budget.threads as u64).max(1);
        let count = u64::from(chunks.chunks());
        let largest = (0..chunks.chunks()).map(|c| chunks.len(ChunkId(c))).max().unwrap_or(0);
        let by_memory = (records.saturating_mul(cost).saturating_mul(2) / count).div_ceil(share);
        let shards_per_chunk = by_memory.max(largest.div_ceil(nodes_max)).clamp(1, largest.max(1));
        Self { shards_per_chunk: shards_per_chunk as u32, buffer_bytes: BUFFER_BYTES_MAX as usize }
            .within(chunks, budget)
    }

    /// Divides `edges` edges, which take `cost` bytes of memory each. A source takes `source_bits` bits of its record.
    pub fn of_edges(chunks: &ChunkMap, edges: u64, cost: u64, source_bits: u32, budget: &IngestBudget) -> Result<Self> {
        // The destination's index in the shard shares one word with the source.
        let nodes_max = 1u64 << (64 - source_bits).min(32);
        Self::new(chunks, edges, cost, nodes_max, budget)
    }

    /// This plan with buffers that fit in a budget, such as the budget of a run that continues the one that planned.
    ///
    /// # Errors
    /// As in [`Self::new`].
    pub fn within(self, chunks: &ChunkMap, budget: &IngestBudget) -> Result<Self> {
        let shards = u64::from(self.shards_per_chunk) * u64::from(chunks.chunks());
        let buffer_bytes = budget.buffer_bytes(shards);
        if buffer_bytes < BUFFER_BYTES_MIN {
            return Err(too_small_for_buffers(shards, budget.reserved > 0, budget));
        }
        Ok(Self { buffer_bytes: self.buffer_bytes.min(buffer_bytes as usize), ..self })
    }

    /// The shards of a chunk.
    pub fn shards_of(&self, chunk: ChunkId) -> Range<u32> {
        chunk.0 * self.shards_per_chunk..(chunk.0 + 1) * self.shards_per_chunk
    }

    /// The shards: each chunk's range divided evenly, in order.
    pub fn shards(&self, chunks: &ChunkMap) -> ChunkMap {
        let per_chunk = u128::from(self.shards_per_chunk);
        let mut starts = vec![0];
        for chunk in 0..chunks.chunks() {
            let range = chunks.range(ChunkId(chunk));
            let nodes = u128::from(range.end - range.start);
            starts.extend((1..=per_chunk).map(|i| range.start + (i * nodes / per_chunk) as u64));
        }
        ChunkMap::from_starts(starts).expect("shards lie inside chunks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_divide_chunks_without_crossing_them() {
        for (nodes, chunks, per_chunk) in [(1000, 7, 3), (64, 64, 1), (1 << 22, 64, 5)] {
            let chunks = ChunkMap::uniform(nodes, chunks);
            let shards = SpillPlan { shards_per_chunk: per_chunk, buffer_bytes: 4096 }.shards(&chunks);
            for chunk in 0..chunks.chunks() {
                let (first, last) = (ChunkId(chunk * per_chunk), ChunkId((chunk + 1) * per_chunk - 1));
                let range = chunks.range(ChunkId(chunk));
                assert_eq!((shards.range(first).start, shards.range(last).end), (range.start, range.end));
            }
        }
    }

    /// The memory that an error names: what is given, and the least that would do.
    fn budgets<T: std::fmt::Debug>(refused: Result<T>) -> [u64; 2] {
        match refused.unwrap_err() {
            Error::Budget { given, least, .. } => [given, least],
            error => panic!("{error}"),
        }
    }

    #[test]
    fn a_budget_too_small_names_one_that_would_do() {
        let chunks = ChunkMap::uniform(1 << 40, 1024);
        let small = IngestBudget::new(64 << 20, 1, 2);
        let error = SpillPlan::of_edges(&chunks, 1 << 44, SORT_COST, 40, &small).unwrap_err().to_string();
        let wanted: u64 = error.split("at least ").nth(1).unwrap().split(" MiB").next().unwrap().parse().unwrap();
        let enough = IngestBudget::new(wanted << 20, 1, 2);
        // A larger budget needs fewer shards, so the named budget suffices.
        SpillPlan::of_edges(&chunks, 1 << 44, SORT_COST, 40, &enough).unwrap();
    }

    #[test]
    fn blocks_of_the_run_that_is_continued_count_as_memory() {
        let chunks = ChunkMap::uniform(1 << 20, 64);
        let plan = SpillPlan::new(&chunks, 1 << 24, SORT_COST, 1 << 32, &IngestBudget::new(1 << 30, 1, 4)).unwrap();
        let continued =
            |memory, reserved| IngestBudget { block_bytes: 4 << 20, reserved, ..IngestBudget::new(memory, 1, 4) };
        for part in [0, 2] {
            let reserved = |memory: u64| memory.checked_div(part).unwrap_or(0);
            let given = 64 << 20;
            let [_, least] = budgets(plan.within(&chunks, &continued(given, reserved(given))));
            assert!(least > 4 * (4 << 20) * BLOCK_COST, "{least}");
            let plan = plan.within(&chunks, &continued(least, reserved(least))).unwrap();
            let shards = u64::from(plan.shards_per_chunk) * 64;
            let taken = 4 * (plan.buffer_bytes as u64 * shards + (4 << 20) * BLOCK_COST);
            assert!(taken + reserved(least) <= least, "{taken} of {least}");
        }
    }

    #[test]
    fn sets_that_exceed_the_budget_are_refused_with_one_that_would_do() {
        let budget = |memory| IngestBudget::new(memory, 2, 2);
        let [given, least] = budgets(check_sets("sets".to_owned(), 3 << 20, &budget(8 << 20)));
        assert_eq!([given, least], [16 << 20, 24 << 20]);
        check_sets("sets".to_owned(), 3 << 20, &budget(least / 2)).unwrap();
    }

    #[test]
    fn chunks_whose_directories_exceed_the_budget_are_refused_with_one_that_would_do() {
        let budget = |memory, threads| IngestBudget::new(memory, 2, threads);
        let one = ChunkMap::uniform(1 << 24, 1);
        let [given, least] = budgets(directory_memory(&one, 1, &budget(32 << 20, 4)));
        assert_eq!(given, 64 << 20);
        // One thread writes the chunk: 64 bytes per 54 nodes, in half of the memory.
        let bytes = (1u64 << 24).div_ceil(54) * 64;
        assert_eq!(least, (bytes + 8) * 2 * 2);
        assert_eq!(directory_memory(&one, 1, &budget(least / 2, 4)).unwrap(), bytes + 8);
        let more = ChunkMap::uniform(1 << 24, 64);
        assert!(directory_memory(&more, 1, &budget(32 << 20, 4)).unwrap() < 2 << 20);
    }

    #[test]
    fn edge_buckets_that_exceed_the_budget_are_refused_with_one_that_would_do() {
        let budget = |memory| IngestBudget::new(memory, 2, 2);
        let chunks = ChunkMap::uniform(1 << 20, 4096);
        let refused = || directory_memory(&chunks, 1, &budget(64 << 20));
        let text = refused().unwrap_err().to_string();
        assert!(text.contains("4096 x 4096 pairs of chunks") && text.contains("--chunks"), "{text}");
        let ([given, least], buckets) = (budgets(refused()), 4096 * 4096 * 8);
        assert_eq!([given, least], [128 << 20, 2 * 3 * buckets]);
        assert!(directory_memory(&chunks, 1, &budget(least / 2)).unwrap() > buckets);
    }

    #[test]
    fn small_graphs_get_few_chunks_and_huge_ones_a_bounded_number() {
        assert_eq!(chunks_auto(0), 1);
        assert_eq!(chunks_auto(100), 3);
        assert_eq!(chunks_auto(2708), 64);
        assert_eq!(chunks_auto(1 << 30), 256);
        assert_eq!(chunks_auto(1 << 40), 1024);
    }
}
