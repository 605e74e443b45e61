//! Pass 2: spilled edges to the row files of their chunk.
//!
//! ```text
//! each worker: loop
//!     take the next chunk nobody has
//!     for each of its shards, in order:
//!         wait for memory; read the shard's records; sort them by (row, source)
//!         hand each row to the chunk's writer
//!     the chunk's files go to disk while the worker goes on; then the journal notes them
//! ```
//!
//! Cost on two cores: some 25 ns an edge and thread. A shard that does not fit the budget, because the graph is larger
//! than it was thought to be or its edges crowd on few nodes, is divided by row and spilled once more.

use std::ops::Range;

use grappa_formats::{
    ChunkId, NodeId,
    chunks::ChunkMap,
    manifest::{EdgeOptions, SelfLoops},
};
use grappa_io::{
    Error, Result, durable, heap,
    memory::MemoryGate,
    progress::Progress,
    sort::{bits_for, sort_keys, sort_pairs},
};
use grappa_storage::writer::{ChunkRowsWriter, StoreFolder};

use crate::{
    ids::IdMap,
    ingest::{
        ChunkFiles,
        edges::EdgeKeys,
        plan::{SORT_COST, SpillPlan},
        spill::{self, Extent, SpillFolder, SpillWriter},
        state::{ChunkDone, Spilled, StageState},
    },
};

/// Records read at a time while an oversized shard is divided.
const SPLIT_RECORDS: u64 = 1 << 16;
/// The most parts an oversized shard is divided into at once.
const SPLIT_PARTS: u64 = 256;
/// Groups of rows an oversized shard is counted by.
const SPLIT_GROUPS: u64 = 1 << 16;

/// What memory is for.
const SORTING: &str = "sorting the edges of some rows";

/// What pass 2 needs to know.
pub struct Gather<'a> {
    /// Chunks of the graph.
    pub chunks: &'a ChunkMap,
    /// How chunks are divided.
    pub plan: &'a SpillPlan,
    /// Edge to shard and key.
    pub keys: &'a EdgeKeys,
    /// What pass 1 did.
    pub spilled: &'a StageState,
    /// Where its records are.
    pub spill: &'a SpillFolder,
    /// What to do to edges.
    pub options: EdgeOptions,
    /// Whether records carry weights.
    pub weighted: bool,
    /// Where files go.
    pub store: &'a StoreFolder,
    /// The memory budget.
    pub gate: &'a MemoryGate,
    /// The user's budget is this many times as large.
    pub share: u64,
    /// Nodes to external ids, for errors.
    pub ids: &'a IdMap,
}

/// Records of a range of rows of a shard.
struct Part {
    /// First node of the shard, to which keys are relative.
    first_node: u64,
    /// Rows of the shard that are in this part, all of them, also those without records.
    rows: Range<u64>,
    /// Where the records are.
    spill: SpillFolder,
    /// Worker, shard and extent of each file.
    files: Vec<(u32, u32, Extent)>,
}

/// Buffers a worker reuses from shard to shard.
#[derive(Default)]
pub struct Buffers {
    words: Vec<u64>,
    scratch: Vec<u64>,
    weights: Vec<u32>,
    weight_scratch: Vec<u32>,
    sources: Vec<u64>,
    row_weights: Vec<f32>,
}

impl Gather<'_> {
    /// Writes the row files of one chunk. They are complete, but not synced.
    pub fn chunk(&self, chunk: ChunkId, progress: &dyn Progress) -> Result<ChunkFiles> {
        let mut writer = ChunkRowsWriter::create(self.store, self.chunks, chunk, self.weighted)?;
        for shard in self.plan.shards_of(chunk) {
            let range = self.keys.shards.range(ChunkId(shard));
            let extent = |(&worker, spilled): (&u32, &Spilled)| (worker, shard, spilled.extents[shard as usize]);
            let extents = self.spilled.workers.iter().map(extent);
            let part = Part {
                first_node: range.start,
                rows: 0..range.end - range.start,
                spill: self.spill.clone(),
                files: extents.filter(|(_, _, extent)| extent.records > 0).collect(),
            };
            self.part(&part, &mut writer, progress)?;
        }
        let (entry, files) = writer.finish()?;
        let done = ChunkDone {
            edges: entry.edges,
            bucket_edges: entry.bucket_edges,
            files: Vec::new(),
        };
        Ok(ChunkFiles { done, files })
    }

    /// Removes the spill files of a chunk.
    pub fn remove_spill(&self, chunk: ChunkId) -> Result<()> {
        self.spill
            .remove_all(self.plan.shards_of(chunk), self.spilled.workers.keys().copied())
    }

    fn part(&self, part: &Part, writer: &mut ChunkRowsWriter, progress: &dyn Progress) -> Result<()> {
        let records: u64 = part.files.iter().map(|(_, _, extent)| extent.records).sum();
        let bytes = records * self.spill.record_words() as u64 * SORT_COST;
        if bytes > self.gate.total() {
            return self.divide(part, records, writer, progress);
        }
        let taken = self.gate.take(bytes);
        let mut buffers = Buffers::default();
        let words = records as usize * self.spill.record_words();
        heap::reserve(&mut buffers.words, words, SORTING)?;
        for &(worker, shard, extent) in &part.files {
            let start = buffers.words.len();
            part.spill.read(worker, shard, 0, extent.records, &mut buffers.words)?;
            part.spill
                .check(worker, shard, extent, spill::sum(&buffers.words[start..]))?;
            progress.advance(extent.records * self.spill.record_words() as u64 * 8, extent.records);
        }
        let key_bits = self.keys.source_bits + bits_for(part.rows.end);
        heap::reserve(&mut buffers.scratch, records as usize, SORTING)?;
        if self.weighted {
            heap::reserve(&mut buffers.weights, records as usize, SORTING)?;
            heap::reserve(&mut buffers.weight_scratch, records as usize, SORTING)?;
            buffers
                .weights
                .extend(buffers.words.chunks_exact(2).map(|record| record[1] as u32));
            let keys = words / 2;
            for i in 0..keys {
                buffers.words[i] = buffers.words[2 * i];
            }
            buffers.words.truncate(keys);
            sort_pairs(
                &mut buffers.words,
                &mut buffers.weights,
                &mut buffers.scratch,
                &mut buffers.weight_scratch,
                key_bits,
            );
        } else {
            sort_keys(&mut buffers.words, &mut buffers.scratch, key_bits);
        }
        buffers.scratch = Vec::new();
        self.rows(part, &mut buffers, writer)?;
        drop(taken);
        Ok(())
    }

    /// Hands the rows of sorted records to the writer.
    fn rows(&self, part: &Part, buffers: &mut Buffers, writer: &mut ChunkRowsWriter) -> Result<()> {
        let Buffers {
            words,
            weights,
            sources,
            row_weights,
            ..
        } = buffers;
        let mut at = 0;
        for row in part.rows.clone() {
            let start = at;
            while at < words.len() && self.keys.row(words[at]) == row {
                at += 1;
            }
            sources.clear();
            sources.extend(words[start..at].iter().map(|&key| self.keys.source(key)));
            if self.weighted {
                row_weights.clear();
                row_weights.extend(weights[start..at].iter().map(|&bits| f32::from_bits(bits)));
            }
            if self.options.dedup {
                merge_parallel(sources, row_weights);
            }
            if self.options.self_loops == SelfLoops::Add {
                let node = part.first_node + row;
                let place = sources.partition_point(|&source| source < node);
                sources.insert(place, node);
                if self.weighted {
                    row_weights.insert(place, 1.0);
                }
            }
            writer.push(sources, row_weights)?;
        }
        assert_eq!(at, words.len(), "every record is in a row of its part");
        Ok(())
    }

    /// Divides a part that does not fit the budget by its rows, and handles the parts in order.
    fn divide(&self, part: &Part, records: u64, writer: &mut ChunkRowsWriter, progress: &dyn Progress) -> Result<()> {
        let record_words = self.spill.record_words();
        let rows = part.rows.end - part.rows.start;
        if rows <= 1 {
            let bytes = records * record_words as u64 * SORT_COST;
            return Err(Error::Budget {
                what: format!(
                    "sorting the adjacency list of node {}, which has {records} in-edges",
                    self.ids.external(NodeId(part.first_node + part.rows.start))?
                ),
                given: self.gate.total() * self.share,
                least: bytes * self.share,
                remedy: "raise --memory",
            });
        }
        let groups = rows.min(SPLIT_GROUPS);
        let group_of = |key: u64| ((self.keys.row(key) - part.rows.start) * groups / rows) as usize;
        let mut counts = vec![0u64; groups as usize];
        self.for_each_record(part, |record| {
            counts[group_of(record[0])] += 1;
            Ok(())
        })?;
        // Parts of as many whole groups as stay below an even share; a crowded group gets a part of its own.
        let parts_wanted = (records * record_words as u64 * SORT_COST).div_ceil(self.gate.total() / 2);
        let target = records.div_ceil(parts_wanted.clamp(2, SPLIT_PARTS));
        let (mut part_of, mut ends, mut filled) = (Vec::with_capacity(counts.len()), Vec::new(), 0);
        for (group, &count) in (0u64..).zip(&counts) {
            // Also after empty groups, so that every part has fewer rows than the whole.
            if group > ends.last().copied().unwrap_or(0) && filled + count > target {
                ends.push(group);
                filled = 0;
            }
            filled += count;
            part_of.push(ends.len() as u32);
        }
        ends.push(groups);

        let taken = self.gate.take(self.gate.total() / 2);
        let folder = self.store.scratch(&format!(
            "divide-{}-{}-{}",
            part.first_node, part.rows.start, part.rows.end
        ))?;
        let spill = SpillFolder::new(&folder, "part", record_words);
        let buffer_bytes = (self.gate.total() / 2 / ends.len() as u64).clamp(4 << 10, 256 << 10) as usize;
        let mut split = SpillWriter::new(spill.clone(), 0, ends.len() as u32, buffer_bytes)?;
        self.for_each_record(part, |record| {
            split.push(part_of[group_of(record[0])])?.copy_from_slice(record);
            Ok(())
        })?;
        let extents = split.flush_all()?.to_vec();
        drop(split);
        drop(taken);

        let mut first_group = 0;
        for (number, &end) in ends.iter().enumerate() {
            // The first row of a group: the smallest whose `group_of` is the group.
            let first_row = |group: u64| part.rows.start + (group * rows).div_ceil(groups);
            let smaller = Part {
                first_node: part.first_node,
                rows: first_row(first_group)..first_row(end),
                spill: spill.clone(),
                files: vec![(0, number as u32, extents[number])],
            };
            self.part(&smaller, writer, progress)?;
            spill.remove(0, number as u32)?;
            first_group = end;
        }
        durable::remove_folder(&folder)
    }

    /// Passes each record of a part to `each`, in bounded memory.
    fn for_each_record(&self, part: &Part, mut each: impl FnMut(&[u64]) -> Result<()>) -> Result<()> {
        let mut words = Vec::new();
        for &(worker, shard, extent) in &part.files {
            let (mut first, mut sum) = (0, 0u64);
            while first < extent.records {
                let count = SPLIT_RECORDS.min(extent.records - first);
                words.clear();
                part.spill.read(worker, shard, first, count, &mut words)?;
                sum = sum.wrapping_add(spill::sum(&words));
                for record in words.chunks_exact(part.spill.record_words()) {
                    each(record)?;
                }
                first += count;
            }
            part.spill.check(worker, shard, extent, sum)?;
        }
        Ok(())
    }
}

/// Merges parallel edges of a row; their weights, if any, are added.
fn merge_parallel(sources: &mut Vec<u64>, weights: &mut Vec<f32>) {
    if weights.is_empty() {
        sources.dedup();
        return;
    }
    let mut kept = 0;
    for i in 1..sources.len() {
        if sources[i] == sources[kept] {
            weights[kept] += weights[i];
        } else {
            kept += 1;
            sources[kept] = sources[i];
            weights[kept] = weights[i];
        }
    }
    sources.truncate(kept + 1);
    weights.truncate(kept + 1);
}
