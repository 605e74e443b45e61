//! Candidates of an evaluation: the nodes that the destination of an edge is ranked among.
//!
//! Draws are addressed by the seed and the number of the edge. So each evaluation has the same candidates, for any number of processes and
//! threads, and no matter how edges are divided among them.

use std::{ops::Range, sync::Arc};

use grappa_formats::{ChunkId, EdgePart, NodeId, PartitionId};
use grappa_io::{Error, Result, progress::Progress};
use grappa_storage::Store;

use super::{
    end_times::EndTimes,
    known::KnownEdges,
    negatives::{Candidates, DRAWS_MAX},
    positives::for_each_edge,
};
use crate::{
    NodeSet,
    sample::{BatchKey, link_draws},
};

/// Stands for the epoch in the keys of evaluations.
const EVALUATION: u64 = u64::MAX;

/// How candidates are drawn.
#[derive(Debug)]
pub struct RankCandidates {
    /// Number of candidates of each edge; the largest one if they are listed. None: all nodes, which need no draws.
    pub count: Option<u32>,
    /// The nodes that they are drawn from: uniform, or by degree. Or a list: all its pairs of the source, whatever their number.
    pub nodes: Candidates,
    /// Whether sources and destinations have the same node type. A node is then no candidate of its own.
    pub joins_one_type: bool,
    /// The nodes that uniform candidates are among, and those that are not drawn; none for all nodes.
    pub destinations: Option<Arc<NodeSet>>,
    /// The times of both ends: candidates of an edge with a time are there at this time.
    pub ends: EndTimes,
    /// The seed.
    pub seed: u64,
}

/// The candidates of an edge. Fewer than wanted if the source has edges to all other nodes, or to nearly all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// Nodes without an edge from the source of the edge, and not the source itself.
    pub filtered: Vec<NodeId>,
    /// Nodes other than the destination of the edge; true edges are not excluded.
    pub raw: Vec<NodeId>,
    /// A pair without an edge, both ends drawn; uniform if candidates are listed. With destinations, or if these have another type than
    /// sources, of the source of the edge and a destination. None if there is none, and in all parts but the first.
    pub pair: Option<(NodeId, NodeId)>,
}

impl RankCandidates {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.nodes.bytes() + self.destinations.as_ref().map_or(0, |destinations| destinations.bytes())
    }

    /// The number of candidates of an edge of a source, if these are drawn or listed.
    pub fn count_of(&self, source: NodeId) -> u64 {
        match &self.nodes {
            Candidates::Listed(listed) => listed.pairs_of_source(source).len() as u64,
            _ => u64::from(self.count.unwrap_or(0)),
        }
    }

    /// Draws all candidates of the edge of this number, at its time if it has one, as [`RankCandidates::draw_part`] does.
    ///
    /// # Errors
    /// If the list has no candidate for the source, or a file is damaged.
    ///
    /// # Panics
    /// If candidates are the ends of a minibatch.
    pub fn draw(
        &self,
        store: &Store,
        known: &KnownEdges,
        number: u64,
        edge: (NodeId, NodeId),
        time: Option<i64>,
    ) -> Result<Ranked> {
        let ranked = self.draw_part(store, known, (number, time), edge, 0..self.count_of(edge.0))?;
        match (&self.nodes, ranked.filtered.is_empty()) {
            (Candidates::Listed(_), true) => Err(self.not_listed(store, edge.0)),
            _ => Ok(ranked),
        }
    }

    /// Draws a part of the candidates of the edge of this number and time, out of [`RankCandidates::count_of`]. A node can be drawn several times.
    /// Listed ones are in the order of the list, known destinations last. The first part has the pair, and no filtered candidates if the
    /// first slot finds none: then there are hardly any, and other parts are not worth their draws.
    ///
    /// # Errors
    /// If a file is damaged.
    ///
    /// # Panics
    /// If candidates are the ends of a minibatch.
    pub fn draw_part(
        &self,
        store: &Store,
        known: &KnownEdges,
        (number, time): (u64, Option<i64>),
        (source, destination): (NodeId, NodeId),
        part: Range<u64>,
    ) -> Result<Ranked> {
        let is_first = part.start == 0;
        let is_itself = |source: NodeId, node: NodeId| self.joins_one_type && node == source;
        let are_there = |pair| time.is_none_or(|time| self.ends.are_there(pair, time));
        let may_be = |node: NodeId| node != destination && are_there((source, node));
        // Of this size, because evaluations keep them.
        let slots = (part.end - part.start) as usize;
        let [mut filtered, mut raw] = [Vec::with_capacity(slots), Vec::with_capacity(slots)];
        // The slot of the pair.
        let mut count = u64::from(self.count.unwrap_or(0));
        if let Candidates::Listed(listed) = &self.nodes {
            let mut known_ones = Vec::new();
            let listed = &listed.pairs_of_source(source)[part.start as usize..part.end as usize];
            for &(_, node) in listed.iter().filter(|pair| may_be(pair.1)) {
                match is_itself(source, node) || known.contains(store, source, node)? {
                    true => known_ones.push(node),
                    false => filtered.push(node),
                }
            }
            raw = [&filtered[..], &known_ones].concat();
            count = 0;
        } else {
            for slot in part {
                raw.extend(self.first(store, number, slot, |&[_, node]| Ok(may_be(node)))?.map(|pair| pair[1]));
                let found = self.first(store, number, slot, |&[_, node]| {
                    Ok(may_be(node) && !is_itself(source, node) && !known.contains(store, source, node)?)
                })?;
                filtered.extend(found.map(|pair| pair[1]));
                // The others would take as many draws to find as little.
                if slot == 0 && filtered.is_empty() {
                    break;
                }
            }
        }
        let has_own_source = self.destinations.is_some() || !self.joins_one_type;
        let source_of = |drawn: NodeId| if has_own_source { source } else { drawn };
        let pair = match is_first {
            true => self.first(store, number, count, |&[from, to]| {
                let from = source_of(from);
                Ok(are_there((from, to)) && !is_itself(from, to) && !known.contains(store, from, to)?)
            })?,
            false => None,
        };
        Ok(Ranked { filtered, raw, pair: pair.map(|[from, to]| (source_of(from), to)) })
    }

    /// The error about a source for which nothing is listed that could be a filtered candidate.
    pub fn not_listed(&self, store: &Store, source: NodeId) -> Error {
        Error::conflict(
            format!(
                "the list of candidates has no node without an edge from {}, so its edges cannot be ranked",
                store.source_ids().name(source)
            ),
            "list a candidate without an edge for the source of each edge that is held out, or rank edges among 100 drawn candidates",
        )
    }

    /// The first pair of nodes that is wanted, by the draws of a slot. None if there is hardly one.
    fn first(
        &self,
        store: &Store,
        number: u64,
        slot: u64,
        is_wanted: impl Fn(&[NodeId; 2]) -> Result<bool>,
    ) -> Result<Option<[NodeId; 2]>> {
        let key = BatchKey { seed: self.seed, epoch: EVALUATION, partition: PartitionId(0), batch: number };
        for round in 0..DRAWS_MAX {
            let mut draws = link_draws(key, slot, round);
            let mut node = || match (&self.nodes, &self.destinations) {
                (Candidates::Uniform | Candidates::Listed(_), None) => Ok(NodeId(draws.below(store.manifest().nodes))),
                (Candidates::Uniform | Candidates::Listed(_), Some(among)) => Ok(among.at(draws.below(among.len()))),
                (Candidates::ByDegree(sums), _) => sums.node(draws.unit()),
                (Candidates::InBatch, _) => panic!("candidates of a minibatch"),
            };
            let pair = [node()?, node()?];
            if is_wanted(&pair)? {
                return Ok(Some(pair));
            }
        }
        Ok(None)
    }
}

/// The edges of these parts whose sources are among `sources`, which ascend: source and destination, ascending, each once. In an undirected
/// graph, with the reverses. Reads all edges once, front to back.
///
/// # Errors
/// If the store lacks a part, the edges need more than `memory` bytes, a file is damaged, or `progress` asks to stop.
pub fn known_edges_of(
    store: &Store,
    parts: &[EdgePart],
    sources: &[NodeId],
    memory: u64,
    progress: &dyn Progress,
) -> Result<Vec<(NodeId, NodeId)>> {
    let undirected = store.manifest().edge_options.undirected;
    let mut edges = Vec::new();
    let mut dropped = 0;
    // A vector that grows has twice its size for a moment.
    let edges_max = memory / size_of::<(NodeId, NodeId)>() as u64 / 3;
    let chunks: Vec<ChunkId> = store.present_chunks().collect();
    for &part in parts {
        for_each_edge(store, part, &chunks, progress, |source, destination| {
            let reverse = undirected.then_some((destination, source));
            for edge in std::iter::once((source, destination)).chain(reverse) {
                if sources.binary_search(&edge.0).is_ok() {
                    match (edges.len() as u64) < edges_max {
                        true => edges.push(edge),
                        false => dropped += 1,
                    }
                }
            }
        })?;
    }
    if dropped > 0 {
        let count = edges.len() as u64 + dropped;
        return Err(Error::Budget {
            operation: format!("the {count} known edges of {} sources", sources.len()),
            given: memory,
            least: count * 3 * size_of::<(NodeId, NodeId)>() as u64,
            remedy: "raise --memory, or give fewer sources at a time",
        });
    }
    edges.sort_unstable();
    edges.dedup();
    Ok(edges)
}
