//! Pass 2: from spilled edges to the adjacency lists of a chunk.
//!
//! ```text
//! each worker: loop
//!     take the next chunk that no worker has
//!     for each of its shards, in order:
//!         wait for memory; read the shard's records; sort them by (destination, source)
//!         push each destination's sources to the chunk's writer
//!     other threads sync the chunk's files and record it in the journal meanwhile
//! ```
//!
//! Cost on two cores: about 25 ns per edge and thread. A shard can exceed the budget, because the graph has more edges
//! than estimated or because a few nodes have most edges. Such a shard is divided by destination and spilled again.

use std::ops::Range;

use bytemuck::{Zeroable, allocation::cast_vec};
use grappa_formats::{ChunkId, NodeId, chunks::ChunkMap, manifest::SelfLoops};
use grappa_io::{
    Error, Result,
    container::WrittenFile,
    durable, heap,
    memory::SpareBuffers,
    progress::check_stopped,
    sort::{bits_for, sort_keys, sort_pairs},
    text::printable,
};

use super::{parallel::ParallelEdges, parts::PartWriters, route::EdgeKeys};
use crate::{
    ids::IdMap,
    ingest::{
        job::IngestJob,
        journal::{ChunkDone, StageState},
        plan::{SORT_COST, SpillPlan},
        spill::{self, Extent, SpillFolder, SpillWriter},
    },
};

/// Records per read while an oversized shard is divided.
const DIVIDE_RECORDS: u64 = 1 << 16;
/// The maximum number of parts into which an oversized shard is divided at once.
const DIVIDE_PARTS_MAX: u64 = 256;
/// The maximum number of groups of destinations whose records are counted to divide a shard evenly.
const DIVIDE_GROUPS_MAX: u64 = 1 << 16;

/// The use of memory, as allocation errors name it.
const SORTING: &str = "sorting the edges of some adjacency lists";

/// Inputs of pass 2.
pub struct SortPass<'a> {
    /// The ingest. Its options decide which parallel edges are merged, and which self-loops are added.
    pub job: &'a IngestJob<'a>,
    /// Chunks of the graph.
    pub chunks: &'a ChunkMap,
    /// Division of chunks into shards.
    pub plan: &'a SpillPlan,
    /// Shard and key of each edge.
    pub keys: &'a EdgeKeys,
    /// Result of pass 1.
    pub spilled: &'a StageState,
    /// Spill files of pass 1.
    pub spill: &'a SpillFolder,
    /// Whether records have weights.
    pub weighted: bool,
    /// Names nodes in errors.
    pub ids: &'a IdMap,
    /// Buffers for the records of a shard. Shards share the memory of their gate.
    pub buffers: SpareBuffers<'a, SortBuffers>,
    /// Bytes of memory for the directories and edge buckets of the chunks, beside the gate's total.
    pub held: u64,
    /// Counts parallel edges, if reverse edges were added and parallel edges stay.
    pub parallel: Option<&'a ParallelEdges>,
}

/// The records of some destinations of a shard.
struct ShardPart {
    /// First node of the shard. Keys are relative to it.
    first_node: u64,
    /// Destinations of this part, as indices in the shard. Includes those without records.
    targets: Range<u64>,
    /// Where the records are.
    spill: SpillFolder,
    /// Worker, shard and extent of each file.
    files: Vec<(u32, u32, Extent)>,
}

/// The records of a part, sorted, and the buffers for one adjacency list.
#[derive(Default)]
pub struct SortBuffers {
    words: Vec<u64>,
    /// Scratch of the sort, and then the sources of one adjacency list, which may be the whole part.
    scratch: Vec<u64>,
    weights: Vec<u32>,
    /// The same for weights.
    weight_scratch: Vec<u32>,
}

impl<'a> SortPass<'a> {
    /// Writes the files of a chunk's adjacency lists. They are complete, but not synced.
    pub fn chunk(&self, chunk: ChunkId) -> Result<(ChunkDone, Vec<WrittenFile>)> {
        let mut writer = PartWriters::create(self.job, self.chunks, chunk, self.weighted)?;
        for shard in self.plan.shards_of(chunk) {
            let range = self.keys.shards.range(ChunkId(shard));
            let files = self.spilled.files_of(shard);
            let files = files.filter(|(_, extent)| extent.records > 0);
            let part = ShardPart {
                first_node: range.start,
                targets: 0..range.end - range.start,
                spill: self.spill.clone(),
                files: files.map(|(worker, extent)| (worker, shard, extent)).collect(),
            };
            self.sort_part(&part, &mut writer)?;
        }
        let (entry, files) = writer.finish()?;
        let done = ChunkDone {
            edges: entry.edges,
            bucket_edges: entry.bucket_edges,
            files: Vec::new(),
        };
        Ok((done, files))
    }

    /// Removes the spill files of a chunk.
    pub fn remove_spill(&self, chunk: ChunkId) -> Result<()> {
        self.spill
            .remove_all(self.plan.shards_of(chunk), self.spilled.workers.keys().copied())
    }

    /// Sorts the records of a part in memory and pushes its adjacency lists.
    fn sort_part(&self, part: &ShardPart, writer: &mut PartWriters<'_>) -> Result<()> {
        let records: u64 = part.files.iter().map(|(_, _, extent)| extent.records).sum();
        let bytes = records * self.spill.record_words() as u64 * SORT_COST;
        if bytes > self.buffers.total() {
            return self.divide(part, records, writer);
        }
        let buffers = &mut *self.buffers.take(bytes);
        let (records, words) = (records as usize, records as usize * self.spill.record_words());
        resize(&mut buffers.words, words)?;
        let mut start = 0;
        for &(worker, shard, extent) in &part.files {
            let end = start + extent.records as usize * self.spill.record_words();
            let read = &mut buffers.words[start..end];
            part.spill.read(worker, shard, 0, read)?;
            part.spill.check(worker, shard, extent, spill::sum(read))?;
            self.job
                .progress
                .advance(extent.records * self.spill.record_words() as u64 * 8, extent.records);
            check_stopped(self.job.progress)?;
            start = end;
        }
        let key_bits = self.keys.source_bits + bits_for(part.targets.end);
        // A self-loop may be added to the sources.
        heap::reserve_to(&mut buffers.scratch, records + 1, SORTING)?;
        if self.weighted {
            // Records are (key, weight). The sort wants keys and weights apart.
            buffers.weights.clear();
            heap::reserve(&mut buffers.weights, records, SORTING)?;
            heap::reserve_to(&mut buffers.weight_scratch, records + 1, SORTING)?;
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
        self.push_lists(part, buffers, writer)
    }

    /// The error about parallel edges whose weights, added up, are no f32.
    fn too_heavy(&self, source: NodeId, target: NodeId) -> Error {
        let ids = self
            .ids
            .external(source)
            .and_then(|source| Ok((source, self.ids.external(target)?)));
        match ids {
            Ok((source, target)) => Error::conflict(
                format!(
                    "the weights of the parallel edges from {} to {} add up to more than a 32-bit float holds",
                    printable(&source),
                    printable(&target)
                ),
                "scale the weights down, or ingest without --dedup",
            ),
            Err(error) => error,
        }
    }

    /// Pushes the adjacency lists of sorted records to the writer.
    fn push_lists(&self, part: &ShardPart, buffers: &mut SortBuffers, writer: &mut PartWriters<'_>) -> Result<()> {
        let SortBuffers {
            words,
            scratch: sources,
            weights,
            weight_scratch,
        } = buffers;
        let mut list_weights: Vec<f32> = cast_vec(std::mem::take(weight_scratch));
        list_weights.clear();
        let mut at = 0;
        for target in part.targets.clone() {
            let start = at;
            while at < words.len() && self.keys.target_index(words[at]) == target {
                at += 1;
            }
            sources.clear();
            sources.extend(words[start..at].iter().map(|&key| self.keys.source(key)));
            if self.weighted {
                list_weights.clear();
                list_weights.extend(weights[start..at].iter().map(|&bits| f32::from_bits(bits)));
            }
            if self.job.options.edge_options.dedup
                && let Some(source) = merge_parallel(sources, &mut list_weights)
            {
                return Err(self.too_heavy(NodeId(source), NodeId(part.first_node + target)));
            }
            if let Some(parallel) = self.parallel {
                parallel.count(sources);
            }
            writer.push_held_out(NodeId(part.first_node + target), sources, &mut list_weights)?;
            if self.job.options.edge_options.self_loops == SelfLoops::Add {
                let node = part.first_node + target;
                let place = sources.partition_point(|&source| source < node);
                sources.insert(place, node);
                if self.weighted {
                    list_weights.insert(place, 1.0);
                }
            }
            writer.push(sources, &list_weights)?;
        }
        *weight_scratch = cast_vec(list_weights);
        assert_eq!(at, words.len(), "every record has a destination of its part");
        Ok(())
    }

    /// Divides a part that does not fit the budget by destination, and sorts the smaller parts in order.
    ///
    /// ```text
    /// count the records of each group of neighboring destinations
    /// make parts of whole groups, each with an even share of the records or less
    /// spill the records by part
    /// for each part: sort it, or divide it again
    /// ```
    ///
    /// Memory: at most half of the budget, and that is free again before the first part is sorted.
    fn divide(&self, part: &ShardPart, records: u64, writer: &mut PartWriters<'_>) -> Result<()> {
        let record_words = self.spill.record_words();
        let targets = part.targets.end - part.targets.start;
        if targets <= 1 {
            let bytes = records * record_words as u64 * SORT_COST;
            let what = format!(
                "sorting the adjacency list of node {}, which has {records} in-edges",
                self.ids.external(NodeId(part.first_node + part.targets.start))?
            );
            let budget = &self.job.budget;
            return Err(budget.too_small(what, bytes + self.held, "raise --memory"));
        }
        let groups = targets.min(DIVIDE_GROUPS_MAX);
        let mut counts = vec![0u64; groups as usize];
        self.for_each_record(part, |record| {
            counts[self.group_of(record[0], part, groups)] += 1;
            Ok(())
        })?;
        // A part is filled with whole groups up to an even share. A group with more than that becomes a part of its own.
        let parts_wanted = (records * record_words as u64 * SORT_COST).div_ceil(self.buffers.total() / 2);
        let target = records.div_ceil(parts_wanted.clamp(2, DIVIDE_PARTS_MAX));
        let (mut part_of, mut ends, mut filled) = (Vec::with_capacity(counts.len()), Vec::new(), 0);
        for (group, &count) in (0u64..).zip(&counts) {
            // A part also ends after empty groups. So every part has fewer destinations than the whole, and dividing
            // again and again ends.
            if group > ends.last().copied().unwrap_or(0) && filled + count > target {
                ends.push(group);
                filled = 0;
            }
            filled += count;
            part_of.push(ends.len() as u32);
        }
        ends.push(groups);

        let reserved = self.buffers.reserve(self.buffers.total() / 2);
        let folder = self.job.store.scratch(&format!(
            "divide-{}-{}-{}",
            part.first_node, part.targets.start, part.targets.end
        ))?;
        let spill = SpillFolder::new(&folder, "part", record_words);
        let buffer_bytes = (self.buffers.total() / 2 / ends.len() as u64).clamp(4 << 10, 256 << 10) as usize;
        let mut split = SpillWriter::new(spill.clone(), 0, ends.len() as u32, buffer_bytes)?;
        self.for_each_record(part, |record| {
            split
                .push(part_of[self.group_of(record[0], part, groups)])?
                .copy_from_slice(record);
            Ok(())
        })?;
        let extents = split.flush_all()?.to_vec();
        drop(split);
        drop(reserved);

        let mut first_group = 0;
        for (number, &end) in ends.iter().enumerate() {
            // The first destination of a group is the smallest that `group_of` maps to it.
            let [first, end_target] =
                [first_group, end].map(|group| part.targets.start + (group * targets).div_ceil(groups));
            let smaller = ShardPart {
                first_node: part.first_node,
                targets: first..end_target,
                spill: spill.clone(),
                files: vec![(0, number as u32, extents[number])],
            };
            self.sort_part(&smaller, writer)?;
            spill.remove(0, number as u32)?;
            first_group = end;
        }
        durable::remove_folder(&folder)
    }

    /// The group of a record's destination, if the destinations of a part are divided into `groups`.
    fn group_of(&self, key: u64, part: &ShardPart, groups: u64) -> usize {
        let targets = part.targets.end - part.targets.start;
        ((self.keys.target_index(key) - part.targets.start) * groups / targets) as usize
    }

    /// Passes each record of a part to `each`, in bounded memory, and checks the files.
    fn for_each_record(&self, part: &ShardPart, mut each: impl FnMut(&[u64]) -> Result<()>) -> Result<()> {
        for &(worker, shard, extent) in &part.files {
            part.spill.read_all(worker, shard, extent, DIVIDE_RECORDS, |words| {
                words.chunks_exact(part.spill.record_words()).try_for_each(&mut each)
            })?;
        }
        Ok(())
    }
}

/// Sets the length of a buffer. Values that it had before may stay.
fn resize<T: Zeroable>(values: &mut Vec<T>, length: usize) -> Result<()> {
    heap::reserve(values, length.saturating_sub(values.len()), SORTING)?;
    values.resize_with(length, T::zeroed);
    Ok(())
}

/// Merges parallel edges of an adjacency list. Their weights, if any, are added in f64 and rounded once. Returns the source of an edge whose
/// weight then exceeds f32, if there is one.
fn merge_parallel(sources: &mut Vec<u64>, weights: &mut Vec<f32>) -> Option<u64> {
    if weights.is_empty() {
        sources.dedup();
        return None;
    }
    let (mut kept, mut start, mut too_large) = (0, 0, None);
    while start < sources.len() {
        let source = sources[start];
        let edges = sources[start..].iter().take_while(|&&other| other == source).count();
        let sum: f64 = weights[start..start + edges]
            .iter()
            .map(|&weight| f64::from(weight))
            .sum();
        (sources[kept], weights[kept]) = (source, sum as f32);
        if !weights[kept].is_finite() {
            too_large = Some(source);
        }
        kept += 1;
        start += edges;
    }
    sources.truncate(kept);
    weights.truncate(kept);
    too_large
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_parallel_edges_are_added_exactly_and_refused_beyond_f32() {
        let merged = |edges: &[(u64, f32)]| {
            let (mut sources, mut weights): (Vec<u64>, Vec<f32>) = edges.iter().copied().unzip();
            let too_large = merge_parallel(&mut sources, &mut weights);
            (sources, weights, too_large)
        };
        assert_eq!(merged(&[]), (vec![], vec![], None));
        // A sum in f32 is 100958.34.
        let mut many = vec![(3, 0.1); 1_000_000];
        many.extend([(5, 1.0), (7, -2.0), (7, 0.5)]);
        assert_eq!(merged(&many), (vec![3, 5, 7], vec![100_000.0, 1.0, -1.5], None));
        let (sources, _, too_large) = merged(&[(1, 1.0), (2, 3e38), (2, 3e38)]);
        assert_eq!((sources, too_large), (vec![1, 2], Some(2)));
        assert_eq!(merged(&[(2, 3e38), (2, 3e38), (2, -3e38)]).1, [3e38]);
    }
}
