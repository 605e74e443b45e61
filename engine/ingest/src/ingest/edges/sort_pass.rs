//! Pass 2: from spilled edges to the adjacency lists of a chunk.
//!
//! ```text
//! each worker: loop
//!     take the next chunk that no worker has
//!     for each of its shards, in order:
//!         wait for memory; read the shard's records; sort them by (destination, source), or (destination, time, source)
//!         push each destination's sources to the chunk's writer
//!     other threads sync the chunk's files and record it in the journal meanwhile
//! ```
//!
//! Cost on two cores: about 25 ns per edge and thread. A shard can exceed the budget, because the graph has more edges
//! than estimated or because a few nodes have most edges. Such a shard is divided by destination and spilled again.

use std::{ops::Range, sync::atomic::AtomicBool};

use bytemuck::{Zeroable, allocation::cast_vec};
use grappa_formats::{ChunkId, NodeId, manifest::SelfLoops, time_axis::TimeAxis};
use grappa_input::EdgeEnd;
use grappa_io::{
    Error, Result,
    container::WrittenFile,
    durable, heap,
    memory::SpareBuffers,
    progress::check_stopped,
    sort::{bits_for, sort_keys, sort_pairs},
    text::printable,
};

use super::{
    ends::EdgeEnds,
    parallel::ParallelEdges,
    parts::{PartWriters, push_list},
    route::EdgeKeys,
};
use crate::ingest::{
    edge_values::{EdgeValues, SortedRecords, sort_by_time, sort_equal_keys},
    job::IngestJob,
    journal::{ChunkDone, StageState},
    plan::SpillPlan,
    spill::{self, Extent, SpillFolder, SpillWriter},
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
    pub plan: &'a SpillPlan,
    pub keys: &'a EdgeKeys,
    /// Result of pass 1.
    pub spilled: &'a StageState,
    pub spill: &'a SpillFolder,
    pub values: &'a EdgeValues,
    /// The chunks of both ends, and the names of nodes in errors.
    pub ends: &'a EdgeEnds<'a>,
    /// Buffers for the records of a shard. Shards share the memory of their gate.
    pub buffers: SpareBuffers<'a, SortBuffers>,
    /// Bytes of memory for the directories and edge buckets of the chunks, beside the gate's total.
    pub directory_bytes: u64,
    /// Counts parallel edges, if reverse edges were added and parallel edges stay.
    pub parallel: Option<&'a ParallelEdges>,
    /// Whether the graph lost edges because they are also held out.
    pub has_dropped: AtomicBool,
    /// The points in time, if edges have times.
    pub axis: Option<&'a TimeAxis>,
}

/// The records of some destinations of a shard.
struct ShardPart {
    /// First node of the shard. Keys are relative to it.
    first_node: u64,
    /// Destinations of this part, as indices in the shard. Includes those without records.
    targets: Range<u64>,
    spill: SpillFolder,
    files: Vec<(u32, u32, Extent)>,
}

/// The records of a part, sorted, and the buffers for one adjacency list.
#[derive(Default)]
pub struct SortBuffers {
    /// The records as they were read; their keys alone, if the payload of a key is its value.
    words: Vec<u64>,
    /// The keys of records with more values.
    keys: Vec<u64>,
    /// Scratch of the sort, and then the sources of one adjacency list, which may be the whole part.
    scratch: Vec<u64>,
    /// What comes with each key: its value, or the number of its record.
    payload: Vec<u32>,
    /// The same scratch for payloads, and then for weights.
    payload_scratch: Vec<u32>,
}

/// The edges of one adjacency list.
struct SortedList {
    sources: Vec<u64>,
    /// Their times, as positions on the axis.
    times: Vec<u64>,
    weights: Vec<f32>,
    /// The encoded rows of features.
    features: Vec<u8>,
    /// Buffer for the values of some edges.
    rows: Vec<f32>,
}

/// Rows of features that are encoded at once.
const ENCODE_ROWS: usize = 256;

impl<'a> SortPass<'a> {
    /// Writes the files of a chunk's adjacency lists. They are complete, but not synced.
    pub fn chunk(&self, chunk: ChunkId) -> Result<(ChunkDone, Vec<WrittenFile>)> {
        let EdgeValues { weighted, features, .. } = *self.values;
        let (chunks, positions) = (self.ends.chunks(), self.axis.map(TimeAxis::positions));
        let mut writer =
            PartWriters::create(self.job, chunks, chunk, weighted, features, positions, &self.has_dropped)?;
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
        let done = ChunkDone { edges: entry.edges, bucket_edges: entry.bucket_edges, files: Vec::new() };
        Ok((done, files))
    }

    pub fn remove_spill(&self, chunk: ChunkId) -> Result<()> {
        self.spill.remove_all(self.plan.shards_of(chunk), self.spilled.workers.keys().copied())
    }

    /// Sorts the records of a part in memory and pushes its adjacency lists.
    fn sort_part(&self, part: &ShardPart, writer: &mut PartWriters<'_>) -> Result<()> {
        let records: u64 = part.files.iter().map(|(_, _, extent)| extent.records).sum();
        let bytes = records * self.values.shape.sort_cost();
        if bytes > self.buffers.total() || records > u64::from(u32::MAX) && self.values.shape.words() > 0 {
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
            self.job.progress.advance(extent.records * self.spill.record_words() as u64 * 8, extent.records);
            check_stopped(self.job.progress)?;
            start = end;
        }
        let key_bits = self.keys.source_bits + bits_for(part.targets.end);
        // A self-loop may be added to the sources.
        heap::reserve_to(&mut buffers.scratch, records + 1, SORTING)?;
        let shape = self.values.shape;
        if shape.words() == 0 {
            sort_keys(&mut buffers.words, &mut buffers.scratch, key_bits);
            return self.push_lists(part, buffers, writer);
        }
        // The sort wants keys and payloads apart.
        buffers.payload.clear();
        heap::reserve(&mut buffers.payload, records, SORTING)?;
        heap::reserve_to(&mut buffers.payload_scratch, records + 1, SORTING)?;
        let keys = match shape.is_payload() {
            true => {
                let values = buffers.words.chunks_exact(2).map(|record| record[1] as u32);
                buffers.payload.extend(values);
                for i in 0..records {
                    buffers.words[i] = buffers.words[2 * i];
                }
                buffers.words.truncate(records);
                &mut buffers.words
            }
            false => {
                buffers.keys.clear();
                heap::reserve(&mut buffers.keys, records, SORTING)?;
                let keys = buffers.words.chunks_exact(1 + shape.words()).map(|record| record[0]);
                buffers.keys.extend(keys);
                buffers.payload.extend(0..records as u32);
                &mut buffers.keys
            }
        };
        sort_pairs(keys, &mut buffers.payload, &mut buffers.scratch, &mut buffers.payload_scratch, key_bits);
        if shape.is_timed {
            let SortBuffers { keys, payload, words, .. } = buffers;
            sort_by_time(shape, self.keys.source_bits, keys, payload, words)?;
        } else if !shape.is_payload() {
            sort_equal_keys(shape, &buffers.keys, &mut buffers.payload, &buffers.words);
        }
        self.push_lists(part, buffers, writer)
    }

    /// The error about a value of an edge that does not fit its type.
    fn too_large(&self, source: NodeId, target: NodeId, column: usize, value: f32) -> Error {
        let [source, target] = match self.ends.external(source, target) {
            Ok(ids) => ids,
            Err(error) => return error,
        };
        let (edge, name) = (format!("from {} to {}", printable(&source), printable(&target)), self.values.name(column));
        match value.is_finite() {
            true => Error::conflict(
                format!(
                    "the {name} of the edge {edge} is {value}, which does not fit {}",
                    self.values.features.map_or("f32", |layout| layout.dtype.name())
                ),
                "give --edge-feature-dtype bf16 or f32",
            ),
            false => Error::conflict(
                format!("the values ({name}) of the parallel edges {edge} add up to more than a 32-bit float holds"),
                "scale the values down, merge them with --merge mean, or ingest without --dedup",
            ),
        }
    }

    /// Pushes the adjacency lists of sorted records to the writer.
    fn push_lists(&self, part: &ShardPart, buffers: &mut SortBuffers, writer: &mut PartWriters<'_>) -> Result<()> {
        let shape = self.values.shape;
        let has_records = shape.words() > 0 && !shape.is_payload();
        let keys = if has_records { &buffers.keys } else { &buffers.words };
        let records = SortedRecords { shape, keys, payload: &buffers.payload, records: &buffers.words };
        let mut list = SortedList {
            sources: std::mem::take(&mut buffers.scratch),
            times: Vec::new(),
            weights: cast_vec(std::mem::take(&mut buffers.payload_scratch)),
            features: Vec::new(),
            rows: Vec::new(),
        };
        let mut at = 0;
        for target in part.targets.clone() {
            let start = at;
            while at < keys.len() && self.keys.target_index(keys[at]) == target {
                at += 1;
            }
            let node = NodeId(part.first_node + target);
            self.fill_list(&records, start..at, node, &mut list)?;
            if let Some(parallel) = self.parallel {
                parallel.count(&list.sources);
            }
            let SortedList { sources, times, weights, features, .. } = &mut list;
            writer.push_held_out(node, sources, times, weights, features)?;
            if self.job.edges.options.self_loops == SelfLoops::Add {
                self.add_self_loop(node, &mut list);
            }
            push_list(&mut writer.graph, &list.sources, &list.times, &list.weights, &list.features)?;
        }
        assert_eq!(at, keys.len(), "every record has a destination of its part");
        list.weights.clear();
        buffers.payload_scratch = cast_vec(list.weights);
        buffers.scratch = list.sources;
        Ok(())
    }

    fn fill_list(
        &self,
        records: &SortedRecords<'_>,
        edges: Range<usize>,
        node: NodeId,
        list: &mut SortedList,
    ) -> Result<()> {
        let dedup = self.job.edges.options.dedup;
        let width = self.values.shape.width;
        list.sources.clear();
        list.weights.clear();
        list.features.clear();
        let keys = &records.keys[edges.clone()];
        list.sources.extend(keys.iter().map(|&key| self.keys.source(key)));
        if dedup {
            list.sources.dedup();
        }
        list.times.clear();
        if let Some(axis) = self.axis {
            heap::reserve_to(&mut list.times, edges.len(), SORTING)?;
            let positions = edges.clone().map(|edge| axis.position(records.time(edge)));
            list.times.extend(positions.map(|position| position.expect("the axis has the times of all edges")));
        }
        if width == 0 {
            return Ok(());
        }
        if let Some(layout) = self.values.features {
            // One more for a self-loop.
            let bytes = (list.sources.len() + 1) * layout.stride as usize;
            heap::reserve_to(&mut list.features, bytes, SORTING)?;
        }
        let mut edge = edges.start;
        list.rows.clear();
        for (number, &source) in list.sources.iter().enumerate() {
            let first = edge;
            edge += 1;
            while dedup && edge < edges.end && records.keys[edge] == records.keys[first] {
                edge += 1;
            }
            for column in 0..width {
                let value = match edge - first {
                    1 => records.value(first, column),
                    _ => self.values.merged(records, first..edge, column),
                };
                if !value.is_finite() {
                    return Err(self.too_large(self.keys.node(source), node, column, value));
                }
                match column == 0 && self.values.weighted {
                    true => list.weights.push(value),
                    false => list.rows.push(value),
                }
            }
            if number % ENCODE_ROWS == ENCODE_ROWS - 1 || number + 1 == list.sources.len() {
                let first = number / ENCODE_ROWS * ENCODE_ROWS;
                self.encode_rows(&list.sources[first..], node, &mut list.rows, &mut list.features)?;
            }
        }
        Ok(())
    }

    /// Appends the encoded rows of the edges from the first of `sources`, and clears them.
    fn encode_rows(&self, sources: &[u64], node: NodeId, rows: &mut Vec<f32>, encoded: &mut Vec<u8>) -> Result<()> {
        let Some(layout) = self.values.features else {
            return Ok(());
        };
        let dim = layout.dim as usize;
        if layout.unstorable(rows) > 0 {
            let at = rows.iter().position(|value| layout.unstorable(&[*value]) > 0).expect("a value does not fit");
            let column = at % dim + usize::from(self.values.weighted);
            return Err(self.too_large(self.keys.node(sources[at / dim]), node, column, rows[at]));
        }
        let start = encoded.len();
        let bytes = rows.len() / dim * layout.stride as usize;
        encoded.resize(start + bytes, 0);
        layout.encode_rows(rows, &mut encoded[start..]);
        rows.clear();
        Ok(())
    }

    /// Adds the edge from a node to itself. Its weight is 1, and its features are 0.
    fn add_self_loop(&self, node: NodeId, list: &mut SortedList) {
        let place = list.sources.partition_point(|&source| source < node.0);
        list.sources.insert(place, node.0);
        if self.values.weighted {
            list.weights.insert(place, 1.0);
        }
        if let Some(layout) = self.values.features {
            let stride = layout.stride as usize;
            let mut row = vec![0; stride];
            layout.encode_row(&vec![0.0; layout.dim as usize], &mut row);
            list.features.splice(place * stride..place * stride, row);
        }
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
            let bytes = records * self.values.shape.sort_cost();
            let operation = format!(
                "sorting the adjacency list of node {}, which has {records} in-edges",
                self.ends.map(EdgeEnd::Target).external(NodeId(part.first_node + part.targets.start))?
            );
            let budget = &self.job.budget;
            return Err(budget.too_small(operation, bytes + self.directory_bytes, "raise --memory"));
        }
        let groups = targets.min(DIVIDE_GROUPS_MAX);
        let mut counts = vec![0u64; groups as usize];
        self.for_each_record(part, |record| {
            counts[self.group_of(record[0], part, groups)] += 1;
            Ok(())
        })?;
        // A part is filled with whole groups up to an even share. A group with more than that becomes a part of its own.
        let parts_wanted = (records * self.values.shape.sort_cost()).div_ceil(self.buffers.total() / 2);
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
        let folder = self
            .job
            .store
            .scratch(&format!("divide-{}-{}-{}", part.first_node, part.targets.start, part.targets.end))?;
        let spill = SpillFolder::new(&folder, "part", record_words);
        let buffer_bytes = (self.buffers.total() / 2 / ends.len() as u64).clamp(4 << 10, 256 << 10) as usize;
        let mut split = SpillWriter::new(spill.clone(), 0, ends.len() as u32, buffer_bytes)?;
        self.for_each_record(part, |record| {
            split.push(part_of[self.group_of(record[0], part, groups)])?.copy_from_slice(record);
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
