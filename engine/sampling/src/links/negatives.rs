//! Negatives: pairs of nodes without an edge.

use std::{collections::HashMap, ops::Range, sync::Arc};

use grappa_formats::{ChunkId, NodeId};
use grappa_io::{Error, Result, heap};
use grappa_storage::{MappedChunks, Store};

use super::{among::OwnedMembers, end_times::EndTimes, known::KnownEdges};
use crate::{
    NodeSet,
    partition::LocalId,
    sample::{BatchKey, Draws, FindScratch, find_edges, link_draws},
    view::PartitionView,
};

/// The purpose of the memory, in errors.
pub(super) const PAIRS: &str = "the pairs of a minibatch of links";
/// Draws for a negative before it counts as impossible: one of a node that has edges to 99 of 100 nodes is then found with all but
/// certainty.
pub(super) const DRAWS_MAX: u64 = 2000;
/// Draws for each negative of a source before it may count as a source without negatives.
const DRAWS_MIN: u64 = 8;
/// Draws among the listed pairs of a source before none of their destinations counts as a node of the partition.
const OWNED_DRAWS: u64 = 32;
/// Negatives that are looked up at once for a source, at most, if all sources share them.
const SHARED_BLOCK: usize = 1 << 14;
/// Nodes per sum of a table of degrees.
const BLOCK_NODES: u64 = 64;
/// The power of degrees (Mikolov et al., "Distributed Representations of Words and Phrases", 2013).
const POWER: f64 = 0.75;

/// The negatives of a minibatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Negatives {
    /// None.
    None,
    /// Pairs with both ends drawn: this many for each positive, rounded up for the minibatch.
    Pairs(f64),
    /// For each positive, this many destinations for its source.
    Destinations(u32),
    /// This many destinations, which all sources of the minibatch share. [`LinkPairs::is_negative`](crate::sample::LinkPairs::is_negative) says where they have an edge.
    Shared(u32),
}

impl Negatives {
    /// The number of negatives of some positives.
    pub(crate) fn count(self, positives: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Pairs(ratio) => (positives as f64 * ratio).ceil() as u64,
            Self::Destinations(each) => positives * u64::from(each),
            Self::Shared(count) => u64::from(count),
        }
    }
}

/// What becomes of an edge whose source has an edge to all nodes that negatives are drawn from, or to nearly all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutNegative {
    /// It is an error with this remedy.
    Refused(&'static str),
    /// [`LinkPairs::is_negative`](crate::sample::LinkPairs::is_negative) marks the pairs that are no negatives.
    Marked,
}

/// The nodes that negatives are drawn from, as far as the partition owns them. If destinations are listed, all are among these.
#[derive(Debug, Clone)]
pub enum Candidates {
    /// All nodes, each with the same probability.
    Uniform,
    /// All nodes, in proportion to in-degree^0.75.
    ByDegree(Arc<DegreeSums>),
    /// The ends of the minibatch's positives.
    InBatch,
    /// Pairs of a list, such as negatives that are hard to tell from edges.
    Listed(Arc<ListedPairs>),
}

impl Candidates {
    /// Candidates in proportion to the in-degree^0.75 in `store`, among some destinations if these are given. Reads the in-degrees of all
    /// nodes. Takes a byte per 8 nodes.
    ///
    /// # Errors
    /// If the graph has no edges to the destinations, or a file is damaged.
    pub fn by_degree(store: &Store, destinations: Option<Arc<NodeSet>>) -> Result<Self> {
        DegreeSums::new(store, destinations).map(|sums| Self::ByDegree(Arc::new(sums)))
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Uniform | Self::InBatch => 0,
            Self::ByDegree(sums) => ((sums.sums.capacity() + sums.first_blocks.capacity()) * size_of::<f64>()) as u64,
            Self::Listed(listed) => listed.bytes(),
        }
    }
}

/// Pairs that negatives are drawn from: for [`Negatives::Destinations`] among the pairs of the source, otherwise among all pairs, each
/// end on its own. The candidates of an evaluation are all pairs of the source.
#[derive(Debug)]
pub struct ListedPairs {
    /// Ascending.
    pairs: Vec<(NodeId, NodeId)>,
    /// Whether negatives are uniform where the list has none.
    or_uniform: bool,
}

impl ListedPairs {
    /// Pairs in any order. Pairs that are there several times are drawn as often. A source without a pair is an error.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(mut pairs: Vec<(NodeId, NodeId)>) -> Self {
        assert!(!pairs.is_empty(), "negatives are drawn from pairs");
        pairs.sort_unstable();
        Self { pairs, or_uniform: false }
    }

    /// The same pairs, and uniform negatives for a source without a pair, or without one that the partition owns the destination of.
    pub fn or_uniform(self) -> Self {
        Self { or_uniform: true, ..self }
    }

    /// All pairs, ascending.
    pub fn all(&self) -> &[(NodeId, NodeId)] {
        &self.pairs
    }

    /// The pairs of a source.
    pub fn pairs_of_source(&self, source: NodeId) -> &[(NodeId, NodeId)] {
        let start = self.pairs.partition_point(|pair| pair.0 < source);
        let end = self.pairs.partition_point(|pair| pair.0 <= source);
        &self.pairs[start..end]
    }

    /// The largest number of pairs of a source.
    pub fn of_source_max(&self) -> usize {
        let of_sources = self.pairs.chunk_by(|a, b| a.0 == b.0);
        of_sources.map(<[_]>::len).max().unwrap_or(0)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.pairs.capacity() * size_of::<(NodeId, NodeId)>()) as u64
    }
}

/// The sums of degree^0.75 of all nodes up to each block of 64.
#[derive(Debug)]
pub struct DegreeSums {
    chunks: MappedChunks,
    sums: Vec<f64>,
    /// The number of the first block of each chunk. Blocks end with their chunk.
    first_blocks: Vec<usize>,
    /// Other nodes have no weight.
    destinations: Option<Arc<NodeSet>>,
}

impl DegreeSums {
    fn new(store: &Store, destinations: Option<Arc<NodeSet>>) -> Result<Self> {
        let chunks = MappedChunks::open(store)?;
        let (mut sums, mut sum, mut first_blocks) = (Vec::new(), 0.0, Vec::new());
        for chunk in (0..chunks.map().chunks()).map(ChunkId) {
            first_blocks.push(sums.len());
            let (nodes, first) = (chunks.map().len(chunk), chunks.map().range(chunk).start);
            for start in (0..nodes).step_by(BLOCK_NODES as usize) {
                // The nodes of chunks that a slice lacks have no degree.
                if let Some(lists) = chunks.chunk(chunk) {
                    let rows = start..nodes.min(start + BLOCK_NODES);
                    for (row, degree) in rows.clone().zip(lists.rows().degrees(rows)) {
                        sum += weight(degree?, NodeId(first + row), destinations.as_deref());
                    }
                }
                sums.push(sum);
            }
        }
        if sum == 0.0 {
            return Err(Error::conflict(
                match destinations {
                    None => "the graph has no edges, so no node can be drawn by its degree",
                    Some(_) => "the graph has no edges to the listed destinations, so none can be drawn by its degree",
                },
                "draw negatives uniformly",
            ));
        }
        Ok(Self { chunks, sums, first_blocks, destinations })
    }

    /// The node at `unit`, in (0, 1], of the sum of all weights.
    pub(super) fn node(&self, unit: f64) -> Result<NodeId> {
        let wanted = unit * self.sums[self.sums.len() - 1];
        let block = self.sums.partition_point(|&sum| sum < wanted);
        let mut left = wanted - if block == 0 { 0.0 } else { self.sums[block - 1] };
        // Chunks without nodes have no block, and come before the chunk with their first block.
        let chunk = self.first_blocks.partition_point(|&first| first <= block) - 1;
        let range = self.chunks.map().range(ChunkId(chunk as u32));
        let start = (block - self.first_blocks[chunk]) as u64 * BLOCK_NODES;
        let rows = start..(range.end - range.start).min(start + BLOCK_NODES);
        let mut found = None;
        for (row, degree) in rows.clone().zip(self.chunks[ChunkId(chunk as u32)].rows().degrees(rows)) {
            let weight = weight(degree?, NodeId(range.start + row), self.destinations.as_deref());
            // Rounding must not select a node without edges.
            if weight > 0.0 {
                found = Some(NodeId(range.start + row));
                if left <= weight {
                    break;
                }
            }
            left -= weight;
        }
        Ok(found.expect("a block whose sum grows has a node with edges"))
    }
}

fn weight(degree: u64, node: NodeId, destinations: Option<&NodeSet>) -> f64 {
    match destinations.is_none_or(|among| among.contains(node)) {
        true => (degree as f64).powf(POWER),
        false => 0.0,
    }
}

/// The pairs of a minibatch.
#[derive(Debug, Default)]
pub(super) struct LinkSamples {
    /// The positives: source and destination.
    pub positives: Vec<(NodeId, NodeId)>,
    /// The negatives, as [`LinkPairs`](crate::sample::LinkPairs) has them.
    pub negatives: Vec<(NodeId, NodeId)>,
    pub is_negative: Vec<bool>,
}

impl LinkSamples {
    /// Fills `group` with a range of positives, and their negatives. These are not shared.
    pub fn put_group(&self, drawn: Negatives, range: Range<usize>, group: &mut Self) -> Result<()> {
        let (positives, negatives) = (self.positives.len(), self.negatives.len());
        group.negatives.clear();
        group.is_negative.clear();
        group.positives.clear();
        heap::reserve(&mut group.positives, range.len(), PAIRS)?;
        group.positives.extend_from_slice(&self.positives[range.clone()]);
        let mut put = |at: usize| {
            group.negatives.push(self.negatives[at]);
            group.is_negative.extend(self.is_negative.get(at));
        };
        match drawn {
            Negatives::Destinations(each) => {
                (range.start * each as usize..range.end * each as usize).for_each(&mut put);
            }
            Negatives::Pairs(_) => {
                range.flat_map(|positive| (positive..negatives).step_by(positives)).for_each(&mut put);
            }
            Negatives::None | Negatives::Shared(_) => {}
        }
        Ok(())
    }
}

/// Draws negatives.
pub(super) struct Draw<'a> {
    pub store: &'a Store,
    pub view: &'a PartitionView,
    /// Whether sources and destinations have the same node type.
    pub has_one_type: bool,
    pub negatives: Negatives,
    pub candidates: &'a Candidates,
    /// The nodes that destinations are among; none for all nodes.
    pub destinations: Option<&'a NodeSet>,
    pub without_negative: WithoutNegative,
    /// The true edges beside the graph's. If none, true edges are not excluded at all.
    pub known: Option<&'a KnownEdges>,
    /// The times of both ends.
    pub ends: &'a EndTimes,
    /// The time of each positive, at which both ends of its negatives are there; none without times.
    pub times: &'a [i64],
    pub key: BatchKey,
}

/// Reusable memory for draws.
#[derive(Debug, Default)]
pub(super) struct DrawScratch {
    find: FindScratch,
    found: Vec<bool>,
    pairs: Vec<(NodeId, NodeId)>,
    pending: Vec<usize>,
    members: OwnedMembers,
}

impl Draw<'_> {
    /// Draws the negatives for the positives of `out`.
    pub fn draw(&self, scratch: &mut DrawScratch, out: &mut LinkSamples) -> Result<()> {
        out.negatives.clear();
        out.is_negative.clear();
        let positives = out.positives.len();
        let count = self.negatives.count(positives as u64) as usize;
        if positives == 0 || self.negatives == Negatives::None {
            return Ok(());
        }
        if let Some(destinations) = self.destinations {
            scratch.members.set(destinations, self.view.owned());
            if scratch.members.count() == 0 {
                return Err(Error::conflict(
                    format!("no listed destination is in partition {}, so it has no negatives", self.key.partition.0),
                    "list more destinations, or use fewer partitions",
                ));
            }
        }
        heap::reserve(&mut out.negatives, count, PAIRS)?;
        out.negatives.resize(count, (NodeId(0), NodeId(0)));
        scratch.pending.clear();
        heap::reserve(&mut scratch.pending, count, PAIRS)?;
        scratch.pending.extend(0..count);
        let is_shared = matches!(self.negatives, Negatives::Shared(_));
        if !is_shared && self.without_negative == WithoutNegative::Marked {
            heap::reserve(&mut out.is_negative, count, PAIRS)?;
            out.is_negative.resize(count, true);
        }
        for round in 0.. {
            for &slot in &scratch.pending {
                out.negatives[slot] = self.pair(slot, round, out, &scratch.members)?;
            }
            if is_shared || self.known.is_none() && !self.limits_ends() {
                break;
            }
            scratch.pairs.clear();
            heap::reserve(&mut scratch.pairs, scratch.pending.len(), PAIRS)?;
            scratch.pairs.extend(scratch.pending.iter().map(|&slot| out.negatives[slot]));
            match self.known {
                Some(_) => self.find(scratch)?,
                None => {
                    scratch.found.clear();
                    scratch.found.resize(scratch.pairs.len(), false);
                }
            }
            let found = &scratch.found;
            let mut at = 0;
            scratch.pending.retain(|&slot| {
                at += 1;
                found[at - 1] || !self.are_there(slot, out)
            });
            if scratch.pending.is_empty() {
                break;
            }
            self.give_up(round + 1, &mut scratch.pending, out)?;
        }
        if is_shared {
            self.mark_shared(scratch, out)?;
        }
        Ok(())
    }

    /// Whether negatives are limited by the times of their ends.
    fn limits_ends(&self) -> bool {
        !self.times.is_empty() && !self.ends.is_empty()
    }

    /// Whether both ends of a negative are there at the time of its positive.
    fn are_there(&self, slot: usize, out: &LinkSamples) -> bool {
        if !self.limits_ends() {
            return true;
        }
        let positive = match self.negatives {
            Negatives::Destinations(each) => slot / each as usize,
            _ => slot % out.positives.len(),
        };
        self.ends.are_there(out.negatives[slot], self.times[positive])
    }

    /// Marks the negatives of each positive that its source has no edge to. Only the marks grow with both numbers: pairs are looked up in
    /// blocks.
    fn mark_shared(&self, scratch: &mut DrawScratch, out: &mut LinkSamples) -> Result<()> {
        let LinkSamples { positives, negatives, is_negative } = out;
        heap::reserve(is_negative, positives.len() * negatives.len(), PAIRS)?;
        if self.known.is_none() {
            is_negative.resize(positives.len() * negatives.len(), true);
            return Ok(());
        }
        for &(source, _) in &*positives {
            for negatives in negatives.chunks(SHARED_BLOCK) {
                scratch.pairs.clear();
                scratch.pairs.extend(negatives.iter().map(|&(_, target)| (source, target)));
                self.find(scratch)?;
                is_negative.extend(scratch.found.iter().map(|&found| !found));
            }
        }
        Ok(())
    }

    /// Gives up slots for which `draws` draws each found no negative: all of a source that has none, or too many draws.
    ///
    /// Many slots may have the same source, such as the edges of a node with edges to all others. Their draws count together, so that a
    /// minibatch of them takes no longer than one of them.
    fn give_up(&self, draws: u64, pending: &mut Vec<usize>, out: &mut LinkSamples) -> Result<()> {
        if draws != DRAWS_MAX && (draws < DRAWS_MIN || !draws.is_power_of_two()) {
            return Ok(());
        }
        let slots_of = |count: u64| match self.negatives {
            Negatives::Destinations(each) => count * u64::from(each),
            _ => u64::MAX,
        };
        let (mut sources, mut failed) = (HashMap::new(), HashMap::new());
        out.positives.iter().for_each(|pair| *sources.entry(pair.0).or_insert(0) += 1);
        pending.iter().for_each(|&slot| *failed.entry(out.negatives[slot].0).or_insert(0) += 1);
        let is_hopeless = |source: NodeId| {
            let (all, failed) = (slots_of(sources.get(&source).copied().unwrap_or(0)), failed[&source]);
            draws == DRAWS_MAX || (failed == all && failed * draws >= DRAWS_MAX)
        };
        let hopeless: Vec<usize> = pending.iter().copied().filter(|&slot| is_hopeless(out.negatives[slot].0)).collect();
        match (hopeless.first(), self.without_negative) {
            (Some(&slot), WithoutNegative::Refused(remedy)) => {
                let source = self.store.source_ids().name(out.negatives[slot].0);
                let contradiction = format!(
                    "{DRAWS_MAX} draws found no node without an edge from {source}, so its edges have no negative"
                );
                return Err(Error::conflict(contradiction, remedy));
            }
            (_, WithoutNegative::Marked) => hopeless.iter().for_each(|&slot| out.is_negative[slot] = false),
            (None, _) => {}
        }
        pending.retain(|slot| hopeless.binary_search(slot).is_err());
        Ok(())
    }

    /// A draw for a negative.
    fn pair(&self, slot: usize, round: u64, out: &LinkSamples, members: &OwnedMembers) -> Result<(NodeId, NodeId)> {
        let mut draws = link_draws(self.key, slot as u64, round);
        let (positives, owned) = (&out.positives, self.view.owned());
        let is_uniform = matches!(self.candidates, Candidates::Uniform);
        let source = match self.negatives {
            Negatives::Pairs(_) if !self.has_one_type && is_uniform => {
                let sources = self.view.sources();
                Some(sources.at(LocalId(draws.below(sources.nodes()))))
            }
            // Destinations are of another kind than sources.
            Negatives::Pairs(_) if self.destinations.is_some() || !self.has_one_type => {
                Some(positives[draws.below(positives.len() as u64) as usize].0)
            }
            Negatives::Pairs(_) => None,
            Negatives::Destinations(each) => Some(positives[slot / each as usize].0),
            Negatives::Shared(_) | Negatives::None => Some(positives[0].0),
        };
        let uniform = |draws: &mut Draws| match self.destinations {
            None => owned.at(LocalId(draws.below(owned.nodes()))),
            Some(destinations) => members.at(destinations, draws.below(members.count())),
        };
        let mut node = |of_positive: fn(&(NodeId, NodeId)) -> NodeId| match self.candidates {
            Candidates::Uniform => Ok(uniform(&mut draws)),
            Candidates::ByDegree(sums) => loop {
                let node = sums.node(draws.unit())?;
                if owned.contains(node) {
                    break Ok(node);
                }
            },
            Candidates::InBatch => Ok(of_positive(&positives[draws.below(positives.len() as u64) as usize])),
            Candidates::Listed(listed) => {
                let pairs = match (self.negatives, source) {
                    (Negatives::Destinations(_), Some(source)) => listed.pairs_of_source(source),
                    _ => listed.all(),
                };
                if !listed.or_uniform {
                    return match pairs.len() {
                        0 => Err(self.not_listed(source.unwrap_or(positives[0].0))),
                        count => Ok(of_positive(&pairs[draws.below(count as u64) as usize])),
                    };
                }
                let tries = if pairs.is_empty() { 0 } else { OWNED_DRAWS };
                let mut drawn = (0..tries).map(|_| of_positive(&pairs[draws.below(pairs.len() as u64) as usize]));
                let found = drawn.find(|&node| owned.contains(node));
                Ok(found.unwrap_or_else(|| uniform(&mut draws)))
            }
        };
        let source = source.map_or_else(|| node(|pair| pair.0), Ok)?;
        Ok((source, node(|pair| pair.1)?))
    }

    /// Sets `found` to whether each pair is a true edge, or a node with itself.
    fn find(&self, scratch: &mut DrawScratch) -> Result<()> {
        let DrawScratch { find, found, pairs, .. } = scratch;
        find_edges(self.view, pairs, find, found)?;
        for (found, &(source, target)) in found.iter_mut().zip(&*pairs) {
            *found = *found || self.has_one_type && source == target;
            if let (false, Some(known)) = (*found, self.known) {
                *found = known.contains(self.store, source, target)?;
            }
        }
        Ok(())
    }

    fn not_listed(&self, source: NodeId) -> Error {
        Error::conflict(
            format!(
                "the list of negatives has no pair of {}, which is the source of a positive",
                self.store.source_ids().name(source)
            ),
            "list a destination for the source of each positive, or draw negatives uniformly",
        )
    }
}
