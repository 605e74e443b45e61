//! A minibatch of link prediction: positives, negatives, the neighborhoods of their ends.

use std::{mem, sync::Arc};

use grappa_formats::NodeId;
use grappa_io::{Error, Result, heap};
use grappa_storage::Store;

use super::{
    end_times::EndTimes,
    known::KnownEdges,
    negatives::{Candidates, Draw, DrawScratch, LinkSamples, Negatives, PAIRS, WithoutNegative},
};
use crate::{
    NodeSet,
    sample::{BatchKey, LinkPairs, Minibatch, Sampler, SeedParts},
    shape::{GraphShape, RelationEnds},
    view::GraphLists,
};

/// The edges that a minibatch leaves out of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExcludedEdges {
    /// None.
    None,
    /// The positives of the minibatch.
    Positives,
    /// The positives and their reverses.
    WithReverses,
}

/// The relation that links are edges of. By default, the relation of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkRelation {
    /// Its number.
    pub number: usize,
    /// The relation that has its edges in the other direction. If there is none, and sources and destinations have the same type, the reverse
    /// of an edge is an edge of the relation itself.
    pub reverse: Option<usize>,
}

/// What is drawn for each minibatch of links, in all epochs.
#[derive(Debug)]
pub struct LinkTask {
    /// The store, or the member of the relation.
    pub store: Arc<Store>,
    /// The relation.
    pub relation: LinkRelation,
    /// How many negatives there are.
    pub negatives: Negatives,
    /// Which nodes they are drawn from.
    pub candidates: Candidates,
    /// The nodes that destinations are among, of positives and of negatives; none for all nodes.
    pub destinations: Option<Arc<NodeSet>>,
    /// What becomes of a positive whose source has no negative.
    pub without_negative: WithoutNegative,
    /// The true edges that are no negatives, beside the graph's. If none, negatives may be true edges.
    pub known: Option<KnownEdges>,
    /// The edges that messages do not use.
    pub excluded: ExcludedEdges,
    /// The times of both ends. Negatives of a positive with a time are there at this time.
    pub ends: EndTimes,
}

/// The state of a thread that samples links.
#[derive(Debug, Default)]
pub(crate) struct LinkScratch {
    draw: DrawScratch,
    samples: LinkSamples,
    /// The pairs of a group of positives.
    group: LinkSamples,
    ends: EndScratch,
}

/// The ends of pairs.
#[derive(Debug, Default)]
struct EndScratch {
    /// The ends of each node type in a part, each once, ascending.
    sorted: Vec<Vec<NodeId>>,
    pairs: LinkPairs,
    /// The excluded edges of a relation: source and destination, as indices of the nodes of the minibatch.
    excluded: Vec<[u32; 2]>,
}

impl LinkScratch {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        let LinkSamples { positives, negatives, is_negative } = &self.samples;
        // Negatives are drawn and looked up in lists as long as the pairs. Groups have a part of them.
        let pairs = 4 * (positives.capacity() + negatives.capacity());
        let EndScratch { sorted, pairs: indices, excluded } = &self.ends;
        let own = pairs * size_of::<(NodeId, NodeId)>()
            + sorted.iter().map(Vec::capacity).sum::<usize>() * size_of::<NodeId>()
            + excluded.capacity() * size_of::<[u32; 2]>()
            + is_negative.capacity();
        own as u64 + indices.bytes()
    }
}

/// The positives of a minibatch whose ends are at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedPositives<'a> {
    /// Source and destination.
    pub edges: &'a [(NodeId, NodeId)],
    /// The time of each.
    pub times: &'a [i64],
    /// The number of the group of each. Positives of a group have the same time, and are next to each other.
    pub groups: &'a [u64],
}

impl LinkTask {
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        let destinations = self.destinations.as_ref().map_or(0, |destinations| destinations.bytes());
        self.known.as_ref().map_or(0, KnownEdges::bytes) + self.candidates.bytes() + destinations
    }

    /// Draws the negatives of some positives, and lists the seeds of their minibatch: the ends of all pairs, each once, ascending. They are one
    /// part. [`LinkTask::put_pairs`] makes the sampled minibatch one of links.
    ///
    /// # Errors
    /// If a list cannot be read, or a source has edges to nearly all candidates and that is refused.
    pub(crate) fn list_ends(
        &self,
        graph: &GraphLists<'_>,
        positives: &[(NodeId, NodeId)],
        key: BatchKey,
        LinkScratch { draw, samples, ends, .. }: &mut LinkScratch,
        parts: &mut SeedParts,
    ) -> Result<()> {
        self.draw(graph, (positives, &[]), key, draw, samples)?;
        ends.begin(graph.shape.types(), parts);
        ends.push_part(samples, self.ends(graph.shape), (key, None), parts)
    }

    /// As [`LinkTask::list_ends`], with a part for each group of positives, at its time. The ends of its pairs share their neighborhoods with each
    /// other, and with no others.
    ///
    /// Negatives are drawn as for a minibatch of all these positives. Of [`Negatives::Pairs`], pair i is in the group of positive i, modulo
    /// their number.
    ///
    /// # Errors
    /// As [`LinkTask::list_ends`], or if negatives are shared.
    pub(crate) fn list_ends_apart(
        &self,
        graph: &GraphLists<'_>,
        positives: TimedPositives<'_>,
        key: BatchKey,
        scratch: &mut LinkScratch,
        parts: &mut SeedParts,
    ) -> Result<()> {
        if let Negatives::Shared(_) = self.negatives {
            return Err(Error::conflict(
                "edges at different times cannot share their negatives",
                "draw negatives for each edge: uniform ones, or by degree",
            ));
        }
        let LinkScratch { draw, samples, group, ends } = scratch;
        self.draw(graph, (positives.edges, positives.times), key, draw, samples)?;
        ends.begin(graph.shape.types(), parts);
        let mut start = 0;
        for (number, groups) in (0..).zip(positives.groups.chunk_by(|a, b| a == b)) {
            let range = start..start + groups.len();
            start = range.end;
            let time = positives.times[range.start];
            samples.put_group(self.negatives, range, group)?;
            ends.push_part(group, self.ends(graph.shape), (key.of_seed(number), Some(time)), parts)?;
        }
        Ok(())
    }

    /// The node types of sources and destinations.
    fn ends(&self, shape: &GraphShape) -> [usize; 2] {
        let RelationEnds { source, destination } = shape.relations[self.relation.number];
        [source, destination]
    }

    /// Draws the negatives of some positives, at their times if they have times.
    fn draw(
        &self,
        graph: &GraphLists<'_>,
        (positives, times): (&[(NodeId, NodeId)], &[i64]),
        key: BatchKey,
        scratch: &mut DrawScratch,
        samples: &mut LinkSamples,
    ) -> Result<()> {
        let RelationEnds { source, destination } = graph.shape.relations[self.relation.number];
        samples.positives.clear();
        heap::reserve(&mut samples.positives, positives.len(), PAIRS)?;
        samples.positives.extend_from_slice(positives);
        Draw {
            store: &self.store,
            view: graph.views[self.relation.number],
            has_one_type: source == destination,
            negatives: self.negatives,
            candidates: &self.candidates,
            destinations: self.destinations.as_deref(),
            without_negative: self.without_negative,
            known: self.known.as_ref(),
            ends: &self.ends,
            times,
            key,
        }
        .draw(scratch, samples)
    }

    /// Sets the pairs of a minibatch of the listed ends, which `sampler` sampled, and removes the targets from its messages. The minibatch of the
    /// destinations' type gets the pairs.
    ///
    /// # Errors
    /// If memory is too small for the list of removed edges.
    pub(crate) fn put_pairs(
        &self,
        sampler: &Sampler,
        shape: &GraphShape,
        LinkScratch { ends, .. }: &mut LinkScratch,
        out: &mut [Minibatch],
    ) -> Result<()> {
        let [source, destination] = self.ends(shape);
        let links = &mut out[destination].links;
        mem::swap(links, &mut ends.pairs);
        links.source_type = source;
        let has_reverses = self.excluded == ExcludedEdges::WithReverses;
        let in_itself = has_reverses && source == destination && self.relation.reverse.is_none();
        if self.excluded != ExcludedEdges::None {
            self.exclude(self.relation.number, (true, in_itself), shape, &mut ends.excluded, out)?;
        }
        if let (true, Some(reverse)) = (has_reverses, self.relation.reverse) {
            self.exclude(reverse, (false, true), shape, &mut ends.excluded, out)?;
        }
        if sampler.hides_equal() && !self.store.is_timed() {
            self.hide_new(shape, out);
        }
        Ok(())
    }

    /// Removes the links of ends that are as late as their part from the messages: a link exists from its later end on, and draws compare the
    /// times of sources alone. Other ends of such links are earlier, because the sampler hides them otherwise.
    fn hide_new(&self, shape: &GraphShape, out: &mut [Minibatch]) {
        let relation = Some((self.relation.number, self.ends.destinations()));
        let reverse = self.relation.reverse.map(|reverse| (reverse, self.ends.sources()));
        for (number, times) in relation.into_iter().chain(reverse) {
            let Some(times) = times else { continue };
            let hops = shape.hops(out);
            let Minibatch { blocks, nodes, parts, part_times, seeds, .. } =
                &mut out[shape.relations[number].destination];
            let is_new: Vec<bool> = (0..*seeds)
                .map(|seed| {
                    let part = parts.get(seed).map_or(0, |&part| part as usize);
                    times.time(nodes[seed]) >= part_times[part]
                })
                .collect();
            for hop in 0..hops {
                blocks[shape.block_place(number, hop)]
                    .retain(|_, target, _| !is_new.get(target as usize).is_some_and(|&is_new| is_new));
            }
        }
    }

    /// Removes positives and their reverses from the messages of a relation. Of edges with times, only those at the time of their part.
    fn exclude(
        &self,
        relation: usize,
        (positives, reverses): (bool, bool),
        shape: &GraphShape,
        excluded: &mut Vec<[u32; 2]>,
        out: &mut [Minibatch],
    ) -> Result<()> {
        let links = &out[shape.relations[self.relation.number].destination].links;
        excluded.clear();
        heap::reserve(excluded, 2 * links.positives.len(), PAIRS)?;
        for &[source, target] in &links.positives {
            excluded.extend(positives.then_some([source, target]));
            excluded.extend(reverses.then_some([target, source]));
        }
        excluded.sort_unstable();
        let RelationEnds { source, destination } = shape.relations[relation];
        // Both ends are seeds, so a node is never reached through removed edges only.
        let [sources, targets] = [source, destination].map(|node_type| out[node_type].seeds as u32);
        let hops = shape.hops(out);
        // Edges without times have those of their sources in blocks, and are no events.
        let are_events = self.store.is_timed();
        let Minibatch { blocks, parts, part_times, .. } = &mut out[destination];
        let own_time = |target: u32| {
            let part = parts.get(target as usize).map_or(0, |&part| part as usize);
            part_times.get(part).copied()
        };
        for hop in 0..hops {
            blocks[shape.block_place(relation, hop)].retain(|source, target, time| {
                let is_other_event = are_events && time.is_some() && time != own_time(target);
                is_other_event
                    || source >= sources
                    || target >= targets
                    || excluded.binary_search(&[source, target]).is_err()
            });
        }
        Ok(())
    }
}

impl EndScratch {
    /// Begins without parts, in a graph of `types` node types.
    fn begin(&mut self, types: usize, parts: &mut SeedParts) {
        self.sorted.resize_with(types, Vec::new);
        parts.begin(types);
        self.pairs.clear();
    }

    /// Adds a part: the ends of some pairs, each once, are its seeds. `source` and `destination` are the node types of ends.
    fn push_part(
        &mut self,
        samples: &LinkSamples,
        [source, destination]: [usize; 2],
        (key, time): (BatchKey, Option<i64>),
        parts: &mut SeedParts,
    ) -> Result<()> {
        let Self { sorted, pairs, .. } = self;
        sorted.iter_mut().for_each(Vec::clear);
        let ends = || samples.positives.iter().chain(&samples.negatives);
        let count = samples.positives.len() + samples.negatives.len();
        for (node_type, end) in
            [(source, (|pair| pair.0) as fn(&(NodeId, NodeId)) -> NodeId), (destination, |pair| pair.1)]
        {
            heap::reserve(&mut sorted[node_type], count, PAIRS)?;
            sorted[node_type].extend(ends().map(end));
        }
        for seeds in &mut *sorted {
            seeds.sort_unstable();
            seeds.dedup();
        }
        let first = [source, destination].map(|node_type| parts.seeds()[node_type].len() as u32);
        let seeds = [&sorted[source], &sorted[destination]];
        let place = |end: usize, node: NodeId| {
            first[end] + seeds[end].binary_search(&node).expect("both ends of a link are seeds") as u32
        };
        for (to, from) in [(&mut pairs.positives, &samples.positives), (&mut pairs.negatives, &samples.negatives)] {
            heap::reserve(to, from.len(), PAIRS)?;
            to.extend(from.iter().map(|&(source, target)| [place(0, source), place(1, target)]));
        }
        heap::reserve(&mut pairs.is_negative, samples.is_negative.len(), PAIRS)?;
        pairs.is_negative.extend_from_slice(&samples.is_negative);
        for (node_type, seeds) in sorted.iter().enumerate() {
            seeds.iter().for_each(|&seed| parts.push_seed(node_type, seed));
        }
        parts.push_part(key, time);
        Ok(())
    }
}
