//! The passes of a sweep over the adjacency lists.

use std::{
    iter,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use grappa_formats::{NodeId, varint::put_varint};
use grappa_io::{
    Error, Result, heap,
    sort::{bits_for, sort_pairs},
    workers,
};

use super::{
    part::GrowingPart,
    record::{EdgeColumns, Pair, PairPlace, Reader, put_block, put_drawn, put_nodes, put_with_length},
    spill::{BucketWriter, Buckets, DiskSpace, PartFile, SWEEP},
};
use crate::{
    sample::{
        BatchKey, Block, Destinations, DrawnEdges, GroupScratch, HopKey, HopOfRelation, RelationHop, Sampler, SeedParts,
    },
    shape::{GraphShape, RelationEnds},
    view::{GraphLists, PartitionView, TimeLists, ViewLists},
};

/// Bytes of a buffer of a bucket.
const BUFFER_BYTES: u64 = 32 << 10;
/// The most buckets of a file.
const BUCKETS_MAX: u64 = 4096;
/// Bytes of memory of a pair while it is sorted: the node and the place, both with scratch, and its part, index and limit.
const PAIR_BYTES: u64 = 2 * 12 + 16;
/// Pairs that a thread draws for at once, between two looks at the flag that stops it.
const PAIRS_AT_ONCE: usize = 1 << 10;
/// Pairs whose lists are read ahead together.
const PAIRS_AHEAD: usize = 1 << 14;
/// Lists are read ahead if at least one of as many nodes has pairs. Others are read by the page.
const NODES_OF_A_READ: u64 = 256;
/// About as many edges are drawn at once. Without a fanout, a list of a hub has more, and is drawn alone.
const EDGES_AT_ONCE: usize = 1 << 18;

/// What a sweep may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resources {
    /// Bytes of memory.
    pub memory: u64,
    pub threads: usize,
}

impl Resources {
    /// The number of buckets whose buffers fit.
    fn buckets(&self) -> u64 {
        (self.memory / 4 / self.threads as u64 / BUFFER_BYTES).clamp(1, BUCKETS_MAX)
    }

    /// The number of pairs that are sorted at once.
    fn pairs(&self) -> usize {
        (self.memory / 2 / PAIR_BYTES).clamp(1, u32::MAX.into()) as usize
    }

    /// Bytes of drawn edges that are in memory at once, in three forms: as they were drawn, their order, and as blocks.
    fn drawn_bytes(&self) -> u64 {
        (self.memory / 4).clamp(1, u32::MAX.into())
    }
}

/// The parts of a sweep, in the order of minibatches.
#[derive(Debug, Default)]
pub(super) struct PartList {
    pub keys: Vec<BatchKey>,
    /// The time of each, if the sampler has times.
    pub times: Vec<i64>,
}

/// A sweep over the lists of a graph.
pub(super) struct Pass<'a> {
    pub sampler: &'a Sampler,
    pub graph: &'a GraphLists<'a>,
    pub resources: Resources,
    pub disk: &'a Arc<DiskSpace>,
    pub stop: &'a AtomicBool,
    pub parts: PartList,
    /// The nodes that each hop added to each part; first the seeds.
    pub levels: Vec<PartFile>,
    /// The blocks of each hop.
    pub blocks: Vec<PartFile>,
}

/// The buckets of the nodes of all types: ranges of the same length.
struct NodeBuckets {
    /// Nodes of a bucket.
    nodes: u64,
    /// The first bucket of each type, and the number of buckets.
    first: Vec<usize>,
}

/// Pairs that are written, by bucket of their node.
struct PairWriter<'a> {
    ranges: &'a NodeBuckets,
    writer: BucketWriter<'a>,
    places: Vec<PairPlace>,
}

/// The pairs of a hop.
pub(super) struct Pairs {
    ranges: NodeBuckets,
    buckets: Buckets,
}

/// Pairs in memory, in the order of nodes.
#[derive(Default)]
struct SortedPairs {
    nodes: Vec<u64>,
    /// The place of each in the other lists.
    places: Vec<u32>,
    parts: Vec<u32>,
    indices: Vec<u32>,
    limits: Vec<i64>,
    nodes_scratch: Vec<u64>,
    places_scratch: Vec<u32>,
}

/// The drawn edges of a hop, by groups of parts.
struct Drawn {
    buckets: Buckets,
    /// Parts of a group.
    parts: usize,
}

impl NodeBuckets {
    fn new(shape: &GraphShape, buckets: u64) -> Self {
        let all: u64 = shape.nodes.iter().sum();
        let nodes = all.div_ceil(buckets).max(1);
        let mut first = vec![0];
        for of_type in &shape.nodes {
            first.push(first[first.len() - 1] + of_type.div_ceil(nodes) as usize);
        }
        Self { nodes, first }
    }

    fn len(&self) -> usize {
        self.first[self.first.len() - 1]
    }

    /// The bucket of a node, and its number in it.
    #[inline]
    fn place(&self, node_type: usize, node: NodeId) -> (usize, u64) {
        (self.first[node_type] + (node.0 / self.nodes) as usize, node.0 % self.nodes)
    }
}

impl<'a> PairWriter<'a> {
    fn new(pairs: &'a Pairs) -> Self {
        let Pairs { ranges, buckets } = pairs;
        let writer = BucketWriter::new(buckets, BUFFER_BYTES as usize);
        Self { ranges, writer, places: vec![PairPlace::default(); buckets.len()] }
    }

    /// Adds the nodes of a type of a part, which comes after those before.
    fn push(&mut self, node_type: usize, part: u32, first: usize, nodes: &[NodeId], limits: &[i64]) -> Result<()> {
        for (at, &node) in nodes.iter().enumerate() {
            let (bucket, node) = self.ranges.place(node_type, node);
            let pair = Pair { node, part, index: (first + at) as u32, limit: limits.get(at).copied() };
            let place = &mut self.places[bucket];
            if self.writer.push(bucket, |bytes| place.put(pair, bytes))? {
                *place = PairPlace::default();
            }
        }
        Ok(())
    }
}

impl Pairs {
    fn create(shape: &GraphShape, resources: Resources, disk: &Arc<DiskSpace>) -> Result<Self> {
        let ranges = NodeBuckets::new(shape, resources.buckets());
        let buckets = Buckets::create(disk, ranges.len())?;
        Ok(Self { ranges, buckets })
    }
}

impl SortedPairs {
    fn clear(&mut self) {
        self.nodes.clear();
        self.places.clear();
        self.parts.clear();
        self.indices.clear();
        self.limits.clear();
    }

    /// Adds the pairs of an extent, whose nodes begin with `first`.
    fn add(&mut self, bytes: &[u8], first: u64, has_limits: bool) -> Option<()> {
        let (mut bytes, mut place) = (Reader(bytes), PairPlace::default());
        while !bytes.is_empty() {
            let pair = place.take(&mut bytes, has_limits)?;
            self.places.push(self.nodes.len() as u32);
            self.nodes.push(first + pair.node);
            self.parts.push(pair.part);
            self.indices.push(pair.index);
            self.limits.extend(pair.limit);
        }
        Some(())
    }

    fn sort(&mut self, nodes: u64) {
        let Self { nodes: keys, places, nodes_scratch, places_scratch, .. } = self;
        sort_pairs(keys, places, nodes_scratch, places_scratch, bits_for(nodes));
    }
}

/// The lists of a relation.
struct Relation<'a> {
    number: usize,
    ends: RelationEnds,
    view: &'a PartitionView,
    lists: ViewLists<'a>,
    time_lists: Option<TimeLists<'a>>,
    columns: EdgeColumns,
}

impl Pass<'_> {
    /// Samples all parts, whose seeds `list` gives one minibatch after the other.
    pub fn run(
        &mut self,
        minibatches: Range<u64>,
        list: &dyn Fn(u64, &mut SeedParts) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let (first_parts, mut pairs) = self.seeds(minibatches, list)?;
        for hop in 0..self.sampler.hops() {
            let drawn = self.draw(hop, &pairs)?;
            drop(pairs);
            pairs = self.relabel(hop, &drawn)?;
        }
        Ok(first_parts)
    }

    fn check_stopped(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }

    /// Whether nodes have limits of their own.
    fn has_limits(&self) -> bool {
        self.sampler.limits_by_edge()
    }

    /// The values of edges that blocks have.
    fn columns(&self, relation: usize) -> EdgeColumns {
        block_columns(self.sampler, self.graph, relation)
    }

    /// The values of edges that draws have: those of blocks, and times if these limit later hops.
    fn drawn_columns(&self, relation: usize) -> EdgeColumns {
        let columns = self.columns(relation);
        let limits = self.has_limits() && self.graph.views[relation].time_lists().is_some();
        EdgeColumns { times: columns.times || limits, ..columns }
    }

    /// Lists the seeds of all parts: the first level, and the pairs of the first hop. Returns the first part of each minibatch, too.
    fn seeds(
        &mut self,
        minibatches: Range<u64>,
        list: &dyn Fn(u64, &mut SeedParts) -> Result<()>,
    ) -> Result<(Vec<u32>, Pairs)> {
        let (shape, has_limits) = (self.graph.shape, self.has_limits());
        let pairs = Pairs::create(shape, self.resources, self.disk)?;
        let mut writer = PairWriter::new(&pairs);
        let mut level = PartFile::create(self.disk)?;
        let (mut seeds, mut nodes, mut limits) = (SeedParts::default(), Records::default(), Vec::new());
        let mut first_parts = vec![0];
        for minibatch in minibatches {
            self.check_stopped()?;
            list(minibatch, &mut seeds)?;
            for part in 0..seeds.len() {
                let number = (self.parts.keys.len() + part) as u32;
                for node_type in 0..shape.types() {
                    let of_part = seeds.seeds_of(node_type, part);
                    limits.clear();
                    if has_limits {
                        limits.resize(of_part.len(), seeds.times[part]);
                    }
                    put_nodes(of_part, &limits, &mut nodes.bytes);
                    if shape.blocks_per_hop(node_type) > 0 {
                        writer.push(node_type, number, 0, of_part, &limits)?;
                    }
                }
                nodes.end();
            }
            nodes.write(&mut level)?;
            heap::grow(&mut self.parts.keys, seeds.len(), SWEEP)?;
            self.parts.keys.extend_from_slice(&seeds.keys);
            self.parts.times.extend_from_slice(&seeds.times);
            first_parts.push(self.parts.keys.len() as u32);
        }
        writer.writer.finish()?;
        self.levels.push(level);
        Ok((first_parts, pairs))
    }

    /// Draws for all pairs of a hop, in the order of nodes.
    fn draw(&self, hop: usize, pairs: &Pairs) -> Result<Drawn> {
        let groups = self.resources.buckets().min(self.parts.keys.len() as u64).max(1);
        let parts = self.parts.keys.len().div_ceil(groups as usize).max(1);
        let drawn = Drawn { buckets: Buckets::create(self.disk, self.parts.keys.len().div_ceil(parts))?, parts };
        let mut writers: Vec<_> = iter::repeat_with(|| DrawWriter {
            writer: BucketWriter::new(&drawn.buckets, BUFFER_BYTES as usize),
            scratch: DrawScratch::default(),
        })
        .take(self.resources.threads)
        .collect();
        let mut sorted = SortedPairs::default();
        let mut bytes = Vec::new();
        for destination in 0..self.graph.shape.types() {
            if self.graph.shape.blocks_per_hop(destination) == 0 {
                continue;
            }
            let of_type = pairs.ranges.first[destination]..pairs.ranges.first[destination + 1];
            for (at, bucket) in of_type.clone().enumerate() {
                for extent in pairs.buckets.extents(bucket) {
                    self.check_stopped()?;
                    bytes.clear();
                    pairs.buckets.file().read(extent, &mut bytes)?;
                    let first = at as u64 * pairs.ranges.nodes;
                    sorted.add(&bytes, first, self.has_limits()).ok_or_else(|| pairs.buckets.file().damaged())?;
                    if sorted.nodes.len() >= self.resources.pairs() {
                        self.draw_sorted(hop, destination, &mut sorted, &mut writers, parts)?;
                    }
                }
            }
            self.draw_sorted(hop, destination, &mut sorted, &mut writers, parts)?;
        }
        writers.into_iter().try_for_each(|writer| writer.writer.finish())?;
        Ok(drawn)
    }

    /// The relations into a type, for one thread.
    fn relations_into(&self, destination: usize) -> Vec<Relation<'_>> {
        let GraphLists { shape, views } = self.graph;
        let into = shape.relations.iter().enumerate().filter(|(_, ends)| ends.destination == destination);
        into.map(|(number, &ends)| Relation {
            number,
            ends,
            view: views[number],
            lists: views[number].lists(),
            time_lists: views[number].time_lists(),
            columns: self.drawn_columns(number),
        })
        .collect()
    }

    /// Sorts pairs of nodes of a type, draws for them, and empties the list.
    fn draw_sorted(
        &self,
        hop: usize,
        destination: usize,
        pairs: &mut SortedPairs,
        writers: &mut [DrawWriter<'_>],
        parts_of_group: usize,
    ) -> Result<()> {
        pairs.sort(self.graph.shape.nodes[destination]);
        let each = pairs.nodes.len().div_ceil(writers.len()).max(1);
        let drawn = thread::scope(|scope| {
            let threads = writers.iter_mut().enumerate().map(|(number, writer)| {
                let range = (number * each).min(pairs.nodes.len())..((number + 1) * each).min(pairs.nodes.len());
                let pairs = &*pairs;
                workers::spawn(scope, move || {
                    let relations = self.relations_into(destination);
                    // Pairs of a node are next to each other, so the lists before tell how long the next ones are.
                    let (mut first, mut count, mut ahead) = (range.start, 1, range.start);
                    while first < range.end {
                        self.check_stopped()?;
                        // The lists of a window are read while the window before is drawn from.
                        while ahead < range.end && ahead < first + PAIRS_AHEAD {
                            let window = ahead..range.end.min(ahead + PAIRS_AHEAD);
                            writer.read_ahead(&relations, &pairs.nodes[window.clone()]);
                            ahead = window.end;
                        }
                        let slice = first..range.end.min(first + count);
                        let edges = self.draw_slice(hop, &relations, pairs, slice.clone(), writer, parts_of_group)?;
                        let fitting = slice.len() * EDGES_AT_ONCE / edges.max(1);
                        count = fitting.clamp(1, PAIRS_AT_ONCE).min(2 * count);
                        first = slice.end;
                    }
                    Ok(())
                })
            });
            let threads = threads.collect::<Vec<_>>();
            threads.into_iter().map(|thread| thread.and_then(workers::join)).collect::<Vec<Result<()>>>()
        });
        pairs.clear();
        drawn.into_iter().collect()
    }

    /// Draws for some pairs. Returns the number of edges.
    fn draw_slice(
        &self,
        hop: usize,
        relations: &[Relation<'_>],
        pairs: &SortedPairs,
        slice: Range<usize>,
        DrawWriter { writer, scratch }: &mut DrawWriter<'_>,
        parts_of_group: usize,
    ) -> Result<usize> {
        let mut edges = 0;
        scratch.gather(pairs, slice, &self.parts);
        let DrawScratch { nodes, parts, numbers, indices, limits, times, keys, group, drawn, block, .. } = scratch;
        for relation in relations {
            keys.clear();
            let of_relation = |&part: &u32| self.parts.keys[part as usize].hop(hop).of_relation(relation.number);
            keys.extend(parts.iter().map(of_relation));
            let RelationEnds { source, destination } = relation.ends;
            let relation_hop = RelationHop {
                sampled: HopOfRelation { hop, number: relation.number, source, destination, view: relation.view },
                lists: &relation.lists,
                time_lists: relation.time_lists.as_ref(),
                keys,
                times,
            };
            // Each pair is a part of its own here.
            let destinations = Destinations { nodes, parts: numbers, indices, limits, first: 0 };
            block.clear();
            self.sampler.draw_relation(&relation_hop, &destinations, group, drawn, block)?;
            edges += drawn.sources.len();
            for (at, (&part, &index)) in parts.iter().zip(&*indices).enumerate() {
                let (bucket, part) = (part as usize / parts_of_group, part as usize % parts_of_group);
                writer.push(bucket, |bytes| {
                    put_with_length(bytes, |bytes| {
                        put_varint(part as u64, bytes);
                        put_varint(relation.number as u64, bytes);
                        put_varint(index.into(), bytes);
                        put_drawn(block, (&drawn.sources, &drawn.times), at, relation.columns, bytes);
                    });
                })?;
            }
        }
        Ok(edges)
    }

    /// Relabels the edges of a hop, part by part: writes the next level, and the pairs of the next hop.
    fn relabel(&mut self, hop: usize, drawn: &Drawn) -> Result<Pairs> {
        let pairs = Pairs::create(self.graph.shape, self.resources, self.disk)?;
        let (mut level, mut blocks) = (PartFile::create(self.disk)?, PartFile::create(self.disk)?);
        let mut threads: Vec<_> = iter::repeat_with(|| RelabelThread {
            writer: PairWriter::new(&pairs),
            part: GrowingPart::new(self.graph.shape),
            nodes: Records::default(),
            blocks: Records::default(),
        })
        .take(self.resources.threads)
        .collect();
        let mut records = DrawnRecords::default();
        let mut group = 0;
        while group < drawn.buckets.len() {
            self.check_stopped()?;
            let first = group;
            records.clear();
            let mut bytes = 0;
            while group < drawn.buckets.len()
                && (group == first || bytes + drawn.buckets.bytes(group) <= self.resources.drawn_bytes())
            {
                bytes += drawn.buckets.bytes(group);
                records.load(drawn, group, (group - first) * drawn.parts, self.graph.shape.relations.len())?;
                group += 1;
            }
            let parts = first * drawn.parts..(group * drawn.parts).min(self.parts.keys.len());
            records.sort(parts.len(), self.graph.shape.relations.len());
            self.relabel_parts(hop, parts, &records, &mut threads, drawn)?;
            for thread in &mut threads {
                thread.nodes.write(&mut level)?;
                thread.blocks.write(&mut blocks)?;
            }
        }
        threads.into_iter().try_for_each(|thread| thread.writer.writer.finish())?;
        self.levels.push(level);
        self.blocks.push(blocks);
        Ok(pairs)
    }

    fn relabel_parts(
        &self,
        hop: usize,
        parts: Range<usize>,
        records: &DrawnRecords,
        threads: &mut [RelabelThread<'_>],
        drawn: &Drawn,
    ) -> Result<()> {
        let each = parts.len().div_ceil(threads.len()).max(1);
        let done = thread::scope(|scope| {
            let threads = threads.iter_mut().enumerate().map(|(number, thread)| {
                let start = (parts.start + number * each).min(parts.end);
                let (own, first) = (start..(start + each).min(parts.end), parts.start);
                workers::spawn(scope, move || {
                    own.into_iter().try_for_each(|part| {
                        self.check_stopped()?;
                        self.relabel_part(hop, part, records, part - first, thread, drawn)
                    })
                })
            });
            let threads = threads.collect::<Vec<_>>();
            threads.into_iter().map(|thread| thread.and_then(workers::join)).collect::<Vec<Result<()>>>()
        });
        done.into_iter().collect()
    }

    /// Relabels the edges that a part drew at a hop. `at` is the number of the part among the loaded ones.
    fn relabel_part(
        &self,
        hop: usize,
        number: usize,
        records: &DrawnRecords,
        at: usize,
        RelabelThread { writer, part, nodes, blocks }: &mut RelabelThread<'_>,
        drawn: &Drawn,
    ) -> Result<()> {
        let shape = self.graph.shape;
        part.load(&self.levels, number, self.has_limits())?;
        let draws_once = self.sampler.draws_once();
        for (relation, &ends) in shape.relations.iter().enumerate() {
            let drawn_columns = self.drawn_columns(relation);
            let skipped = part.begin_block(ends.destination, draws_once);
            let mut records = records.of(at, relation, shape.relations.len());
            let is_complete = records.all(|mut record| part.add_destination(&mut record, drawn_columns).is_some())
                && part.end_block(ends, self.has_limits())?;
            if !is_complete {
                return Err(drawn.buckets.file().damaged());
            }
            put_block(part.block(), skipped, self.columns(relation), &mut blocks.bytes);
        }
        blocks.end();
        let is_last = hop + 1 == self.sampler.hops();
        for (node_type, of_type) in part.types().iter().enumerate() {
            let (added, limits) = of_type.from(of_type.reached);
            put_nodes(added, limits, &mut nodes.bytes);
            if !is_last && shape.blocks_per_hop(node_type) > 0 {
                let first = if draws_once { of_type.reached } else { 0 };
                let (nodes, limits) = of_type.from(first);
                writer.push(node_type, number as u32, first, nodes, limits)?;
            }
        }
        nodes.end();
        Ok(())
    }
}

/// The values of edges that the blocks of a relation have.
pub(super) fn block_columns(sampler: &Sampler, graph: &GraphLists<'_>, relation: usize) -> EdgeColumns {
    let view = graph.views[relation];
    let (wanted, stored) = (sampler.block_data(), view.edge_data());
    EdgeColumns {
        weights: wanted.weights && stored.weights,
        ids: wanted.ids && stored.ids,
        times: wanted.times && view.time_lists().is_some(),
    }
}

/// A thread that draws.
struct DrawWriter<'a> {
    writer: BucketWriter<'a>,
    scratch: DrawScratch,
}

impl DrawWriter<'_> {
    /// Asks the system to read the lists of sorted nodes, if they are close to each other.
    fn read_ahead(&mut self, relations: &[Relation<'_>], nodes: &[u64]) {
        let ahead = &mut self.scratch.ahead;
        ahead.clear();
        ahead.extend_from_slice(nodes);
        ahead.dedup();
        let are_close = ahead
            .last()
            .zip(ahead.first())
            .is_some_and(|(last, first)| (last - first) / NODES_OF_A_READ <= ahead.len() as u64);
        if are_close {
            relations.iter().for_each(|relation| relation.view.read_ahead_nodes(ahead));
        }
    }
}

#[derive(Default)]
struct DrawScratch {
    /// Nodes whose lists are read ahead.
    ahead: Vec<u64>,
    nodes: Vec<NodeId>,
    parts: Vec<u32>,
    /// 0, 1, 2, ...
    numbers: Vec<u32>,
    indices: Vec<u32>,
    limits: Vec<i64>,
    times: Vec<i64>,
    keys: Vec<HopKey>,
    group: GroupScratch,
    drawn: DrawnEdges,
    block: Block,
}

impl DrawScratch {
    /// Copies some sorted pairs.
    fn gather(&mut self, pairs: &SortedPairs, slice: Range<usize>, list: &PartList) {
        let places = &pairs.places[slice.clone()];
        let at = |place: &u32| *place as usize;
        self.nodes.clear();
        self.nodes.extend(pairs.nodes[slice].iter().copied().map(NodeId));
        self.parts.clear();
        self.parts.extend(places.iter().map(|place| pairs.parts[at(place)]));
        self.indices.clear();
        self.indices.extend(places.iter().map(|place| pairs.indices[at(place)]));
        self.numbers.clear();
        self.numbers.extend(0..places.len() as u32);
        self.limits.clear();
        self.times.clear();
        if !pairs.limits.is_empty() {
            self.limits.extend(places.iter().map(|place| pairs.limits[at(place)]));
        }
        if !list.times.is_empty() {
            self.times.extend(self.parts.iter().map(|&part| list.times[part as usize]));
        }
    }
}

/// A thread that relabels.
struct RelabelThread<'a> {
    writer: PairWriter<'a>,
    part: GrowingPart,
    nodes: Records,
    blocks: Records,
}

/// Records of parts that will be written.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    /// Ends the record of a part.
    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// Appends the records to a file, and empties the list.
    fn write(&mut self, file: &mut PartFile) -> Result<()> {
        file.push(&self.bytes, &self.ends)?;
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }
}

/// Drawn edges in memory.
#[derive(Default)]
struct DrawnRecords {
    bytes: Vec<u8>,
    /// The part, relation and index of each record, in ascending order.
    keys: Vec<u64>,
    /// Where each record begins after these.
    offsets: Vec<u32>,
    keys_scratch: Vec<u64>,
    offsets_scratch: Vec<u32>,
}

impl DrawnRecords {
    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        self.offsets.clear();
    }

    /// The smallest key of a part and relation.
    fn first_key(part: usize, relation: usize, relations: usize) -> u64 {
        ((part * relations + relation) as u64) << 32
    }

    /// Loads a group of parts, whose first one is number `first` among the loaded ones.
    fn load(&mut self, drawn: &Drawn, group: usize, first: usize, relations: usize) -> Result<()> {
        let file = drawn.buckets.file();
        for extent in drawn.buckets.extents(group) {
            let mut start = self.bytes.len();
            file.read(extent, &mut self.bytes)?;
            if self.bytes.len() > u32::MAX as usize {
                return Err(Error::limit(
                    "the drawn edges of a group of minibatches at a hop exceed 4 GiB",
                    "4 GiB",
                    "sample smaller batches, or fewer neighbors",
                ));
            }
            while start < self.bytes.len() {
                start = self.add(start, first, relations).ok_or_else(|| file.damaged())?;
            }
        }
        Ok(())
    }

    /// Adds the record at an offset to the order. Returns where the next one begins.
    fn add(&mut self, start: usize, first: usize, relations: usize) -> Option<usize> {
        let at = |rest: &Reader<'_>| self.bytes.len() - rest.0.len();
        let mut rest = Reader(&self.bytes[start..]);
        let length = rest.length()?;
        let end = at(&rest).checked_add(length).filter(|&end| end <= self.bytes.len())?;
        let (part, relation, index) = (rest.index()? as usize, rest.index()? as usize, rest.index()?);
        let offset = at(&rest) as u32;
        self.keys.push(Self::first_key(first + part, relation, relations) | u64::from(index));
        self.offsets.push(offset);
        Some(end)
    }

    fn sort(&mut self, parts: usize, relations: usize) {
        let Self { keys, offsets, keys_scratch, offsets_scratch, .. } = self;
        let bits = 32 + bits_for((parts * relations) as u64);
        sort_pairs(keys, offsets, keys_scratch, offsets_scratch, bits);
    }

    /// The records of a part and relation, in the order of destinations.
    fn of(&self, part: usize, relation: usize, relations: usize) -> impl Iterator<Item = Reader<'_>> {
        let [start, end] = [relation, relation + 1].map(|relation| {
            let first = Self::first_key(part, relation, relations);
            self.keys.partition_point(|&key| key < first)
        });
        self.offsets[start..end].iter().map(|&offset| Reader(&self.bytes[offset as usize..]))
    }
}
