//! A minibatch of link prediction: positives, negatives, the neighborhoods of their ends.

use std::sync::Arc;

use grappa_formats::NodeId;
use grappa_io::{Error, Result, heap};
use grappa_storage::Store;

use super::{
    known::KnownEdges,
    negatives::{Candidates, Draw, DrawScratch, LinkSamples, Negatives, PAIRS, WithoutNegative},
};
use crate::{
    NodeSet,
    sample::{BatchKey, LinkPairs, Minibatch, Sampler, Scratch},
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
    /// The seeds of each node type.
    seeds: Vec<Vec<NodeId>>,
    /// The excluded edges of a relation: source and destination, as indices of the nodes of the minibatch.
    excluded: Vec<[u32; 2]>,
}

impl LinkScratch {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        let LinkSamples { positives, negatives, is_negative } = &self.samples;
        // Negatives are drawn and looked up in lists as long as the pairs. Groups have a part of them.
        let pairs = 4 * (positives.capacity() + negatives.capacity());
        let EndScratch { seeds, excluded } = &self.ends;
        let indices = excluded.capacity() * size_of::<[u32; 2]>();
        (pairs * size_of::<(NodeId, NodeId)>()
            + seeds.iter().map(Vec::capacity).sum::<usize>() * size_of::<NodeId>()
            + indices
            + is_negative.capacity()) as u64
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

    /// Samples the minibatch of each node type for some positives. The seeds are their ends and the ends of negatives, each once, ascending. The
    /// minibatch of the destinations' type has the pairs.
    ///
    /// # Errors
    /// As [`Sampler::sample`], or if a source has edges to nearly all candidates and that is refused.
    pub(crate) fn sample(
        &self,
        sampler: &Sampler,
        graph: &GraphLists<'_>,
        positives: &[(NodeId, NodeId)],
        key: BatchKey,
        (scratch, sampling): (&mut LinkScratch, &mut Scratch),
        out: &mut [Minibatch],
    ) -> Result<()> {
        let LinkScratch { draw, samples, ends, .. } = scratch;
        self.draw(graph, positives, key, draw, samples)?;
        self.sample_pairs(sampler, graph, samples, (None, key), (ends, sampling), out)
    }

    /// Samples each group of positives as a part of its own, at its time: its ends and those of its negatives share their neighborhoods, and
    /// no others. A part is a minibatch of each of `types` node types, and the first one is part `first`. Returns the number
    /// of parts.
    ///
    /// Negatives are drawn as for a minibatch of all these positives. Of [`Negatives::Pairs`], pair i is in the group of positive i, modulo
    /// their number.
    ///
    /// # Errors
    /// As [`LinkTask::sample`], or if negatives are shared.
    pub(crate) fn sample_apart(
        &self,
        sampler: &Sampler,
        graph: &GraphLists<'_>,
        positives: TimedPositives<'_>,
        key: BatchKey,
        (scratch, sampling): (&mut LinkScratch, &mut Scratch),
        (parts, types, first): (&mut Vec<Minibatch>, usize, usize),
    ) -> Result<usize> {
        if let Negatives::Shared(_) = self.negatives {
            return Err(Error::conflict(
                "edges at different times cannot share their negatives",
                "draw negatives for each edge: uniform ones, or by degree",
            ));
        }
        let LinkScratch { draw, samples, group, ends } = scratch;
        self.draw(graph, positives.edges, key, draw, samples)?;
        let mut count = 0;
        let mut start = 0;
        for groups in positives.groups.chunk_by(|a, b| a == b) {
            let range = start..start + groups.len();
            start = range.end;
            let time = positives.times[range.start];
            samples.put_group(self.negatives, range, group)?;
            let part = (first + count) * types..(first + count + 1) * types;
            parts.resize_with(parts.len().max(part.end), Minibatch::default);
            let key = key.of_seed(count as u64);
            self.sample_pairs(sampler, graph, group, (Some(time), key), (ends, sampling), &mut parts[part])?;
            count += 1;
        }
        Ok(count)
    }

    /// Draws the negatives of some positives.
    fn draw(
        &self,
        graph: &GraphLists<'_>,
        positives: &[(NodeId, NodeId)],
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
            key,
        }
        .draw(scratch, samples)
    }

    /// Samples the minibatch of each node type for some pairs, at a time if the sampler has times.
    fn sample_pairs(
        &self,
        sampler: &Sampler,
        graph: &GraphLists<'_>,
        samples: &LinkSamples,
        (time, key): (Option<i64>, BatchKey),
        (EndScratch { seeds, excluded }, sampling): (&mut EndScratch, &mut Scratch),
        out: &mut [Minibatch],
    ) -> Result<()> {
        let RelationEnds { source, destination } = graph.shape.relations[self.relation.number];
        seeds.resize_with(out.len(), Vec::new);
        seeds.iter_mut().for_each(Vec::clear);
        let pairs = || samples.positives.iter().chain(&samples.negatives);
        let count = samples.positives.len() + samples.negatives.len();
        for (node_type, end) in
            [(source, (|pair| pair.0) as fn(&(NodeId, NodeId)) -> NodeId), (destination, |pair| pair.1)]
        {
            heap::reserve(&mut seeds[node_type], count, PAIRS)?;
            seeds[node_type].extend(pairs().map(end));
        }
        for seeds in &mut *seeds {
            seeds.sort_unstable();
            seeds.dedup();
        }
        sampler.sample_types(graph, seeds, time, key, sampling, out)?;
        let links = &mut out[destination].links;
        links.source_type = source;
        put(links, samples, [&seeds[source], &seeds[destination]])?;
        let has_reverses = self.excluded == ExcludedEdges::WithReverses;
        let in_itself = has_reverses && source == destination && self.relation.reverse.is_none();
        if self.excluded != ExcludedEdges::None {
            self.exclude(self.relation.number, (true, in_itself), time, graph.shape, excluded, out)?;
        }
        if let (true, Some(reverse)) = (has_reverses, self.relation.reverse) {
            self.exclude(reverse, (false, true), time, graph.shape, excluded, out)?;
        }
        Ok(())
    }

    /// Removes positives and their reverses from the messages of a relation. Of edges with times, only those at the time of the positives.
    fn exclude(
        &self,
        relation: usize,
        (positives, reverses): (bool, bool),
        own_time: Option<i64>,
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
        for hop in 0..shape.hops(out) {
            out[destination].blocks[shape.block_place(relation, hop)].retain(|source, target, time| {
                let is_other_event = time.is_some() && time != own_time;
                is_other_event
                    || source >= sources
                    || target >= targets
                    || excluded.binary_search(&[source, target]).is_err()
            });
        }
        Ok(())
    }
}

/// Sets the pairs of a minibatch. `seeds` are the seeds of the source type, and of the destination type.
fn put(links: &mut LinkPairs, samples: &LinkSamples, seeds: [&[NodeId]; 2]) -> Result<()> {
    let pairs = [(&mut links.positives, &samples.positives), (&mut links.negatives, &samples.negatives)];
    for (to, from) in pairs {
        heap::reserve(to, from.len(), PAIRS)?;
        to.extend(from.iter().map(|&(source, target)| {
            let places = [seeds[0].binary_search(&source), seeds[1].binary_search(&target)];
            places.map(|place| place.expect("both ends of a link are seeds") as u32)
        }));
    }
    heap::reserve(&mut links.is_negative, samples.is_negative.len(), PAIRS)?;
    links.is_negative.extend_from_slice(&samples.is_negative);
    Ok(())
}
