//! One hop of neighbourhoods by random walks, as PinSAGE has them.
//!
//! ```text
//! for each group of destinations:
//!     start all their walks
//!     as many times as a walk may step:
//!         ask for the heads of the rows of the nodes where walks are
//!         read the heads; ask for what says the degrees
//!         read the degrees; draw a position for each; ask for the source at it
//!         read the sources: this is where walks are now
//!     for each destination: count visits, keep the nodes that were visited most
//!     relabel
//! ```

use grappa_formats::NodeId;
use grappa_io::{Error, Result};

use super::{
    group::{GROUP, Group, Taken},
    minibatch::Block,
    random::{Draws, HopKey},
    relabel::Relabel,
    sampler::check_size,
};
use crate::view::rows::Rows;

/// Neighbourhoods by random walks: the neighbours of a node are those that walks from it visit most often, and the weight
/// of each is how often that was. (Ying et al., "Graph Convolutional Neural Networks for Web-Scale Recommender Systems",
/// 2018, section 3.1.)
///
/// As DGL's `RandomWalkNeighborSampler` does on a graph of one edge type: a walk takes its first step always, and each
/// further one unless it ends before, for which the probability is `termination` each time. Every step leads to a uniformly
/// drawn neighbour, a parallel edge counting as often as it is there. A walk also ends at a node without neighbours to draw
/// from. All nodes that a step leads to are visited; so is the node where the walk began, if it comes back. Of nodes that
/// were visited as often, those with smaller ids are kept.
///
/// Walks go against the direction of edges, to sources: in a store, rows are in-edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomWalks {
    /// Number of hops, each of which finds neighbourhoods of all nodes that were reached before.
    pub hops: usize,
    /// Walks from each node.
    pub walks: u32,
    /// The most steps of a walk.
    pub steps: u32,
    /// Probability that a walk ends before its next step.
    pub termination: f64,
    /// The most neighbours that are kept of each node.
    pub neighbours: u32,
}

impl RandomWalks {
    /// Fails if a number makes no sense.
    pub(super) fn check(&self) -> Result<()> {
        if self.hops == 0 || self.walks == 0 || self.steps == 0 || self.neighbours == 0 {
            return Err(Error::out_of_range(
                "random walks",
                "at least 1 hop, walk, step and neighbour",
                format!(
                    "{} hops, {} walks, {} steps and {} neighbours",
                    self.hops, self.walks, self.steps, self.neighbours
                ),
            ));
        }
        if !(0.0..=1.0).contains(&self.termination) {
            return Err(Error::out_of_range(
                "random walks: the probability that a walk ends",
                "a number from 0 to 1",
                self.termination,
            ));
        }
        Ok(())
    }
}

/// A walk that goes on.
#[derive(Debug, Clone)]
struct Walk {
    /// Which of the group's destinations it began at.
    destination: u32,
    at: NodeId,
    draws: Draws,
}

/// What is known about walks, beside the group. Its memory is used again and again.
#[derive(Debug, Default)]
pub(super) struct WalkScratch {
    walks: Vec<Walk>,
    /// For each visit, the destination that the walk began at and the node.
    visits: Vec<(u32, NodeId)>,
    /// How often a node was visited, and the node.
    counts: Vec<(u32, NodeId)>,
    sources: Vec<NodeId>,
}

impl WalkScratch {
    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let Self {
            walks,
            visits,
            counts,
            sources,
        } = self;
        let bytes = walks.capacity() * size_of::<Walk>()
            + (visits.capacity() + counts.capacity()) * size_of::<(u32, NodeId)>()
            + sources.capacity() * size_of::<NodeId>();
        bytes as u64
    }
}

/// How neighbourhoods are found at a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkHop<'a> {
    pub key: HopKey,
    pub walks: &'a RandomWalks,
    /// Whether walks may step to halo nodes.
    pub draws_halo: bool,
}

impl WalkHop<'_> {
    /// Finds neighbourhoods of all `nodes`, and appends the neighbours that are new to `nodes`.
    pub(super) fn sample<R: Rows, L: Relabel>(
        &self,
        group: &mut Group<'_, R>,
        relabel: &mut L,
        scratch: &mut WalkScratch,
        nodes: &mut Vec<NodeId>,
        block: &mut Block,
    ) -> Result<()> {
        let destinations = nodes.len();
        block.begin(destinations);
        let at_a_time = (GROUP / self.walks.walks as usize).max(1);
        for first in (0..destinations).step_by(at_a_time) {
            let last = destinations.min(first + at_a_time);
            self.start(group, scratch, &nodes[first..last], first, block)?;
            for step in 0..self.walks.steps {
                self.step(group, scratch, step)?;
            }
            let done = block.indices.len();
            self.keep(scratch, last - first, block);
            check_size(block.weights.len(), nodes.len() + scratch.sources.len())?;
            block.indices.resize(block.weights.len(), 0);
            relabel.relabel(&scratch.sources, nodes, &mut block.indices[done..]);
        }
        block.sources = nodes.len();
        Ok(())
    }

    /// Starts the walks of a group of destinations, the first of which is number `first`.
    fn start<R: Rows>(
        &self,
        group: &mut Group<'_, R>,
        scratch: &mut WalkScratch,
        nodes: &[NodeId],
        first: usize,
        block: &mut Block,
    ) -> Result<()> {
        scratch.visits.clear();
        scratch.walks.clear();
        group.locate(nodes.iter().copied())?;
        for (destination, &at) in nodes.iter().enumerate() {
            let degrees = group.degrees(destination);
            block.visible.push(degrees.visible);
            block.global.push(degrees.global);
            block.halo.push(degrees.halo);
            let number = (first + destination) as u64 * u64::from(self.walks.walks);
            scratch.walks.extend((0..self.walks.walks).map(|walk| Walk {
                destination: destination as u32,
                at,
                draws: self.key.draws(number + u64::from(walk)),
            }));
        }
        Ok(())
    }

    /// Takes a step of each walk that goes on.
    fn step<R: Rows>(&self, group: &mut Group<'_, R>, scratch: &mut WalkScratch, step: u32) -> Result<()> {
        let walks = &mut scratch.walks;
        if step > 0 {
            walks.retain_mut(|walk| walk.draws.unit() > self.walks.termination);
        }
        group.locate(walks.iter().map(|walk| walk.at))?;
        for (row, walk) in walks.iter_mut().enumerate() {
            let degrees = group.degrees(row);
            let pool = if self.draws_halo {
                degrees.global
            } else {
                degrees.visible
            };
            let positions = &mut group.scratch.positions;
            let start = positions.len();
            if pool > 0 {
                positions.push(walk.draws.below(pool));
            }
            let taken = Taken::since(start, positions);
            group.take(taken);
        }
        group.prefetch();
        let mut row = 0;
        walks.retain_mut(|walk| {
            group.scratch.sources.clear();
            group.read(row);
            row += 1;
            let Some(&source) = group.scratch.sources.first() else {
                return false;
            };
            walk.at = source;
            scratch.visits.push((walk.destination, source));
            true
        });
        Ok(())
    }

    /// Counts the visits of each of so many destinations, and keeps the nodes with most as its edges.
    fn keep(&self, scratch: &mut WalkScratch, destinations: usize, block: &mut Block) {
        scratch.sources.clear();
        scratch.visits.sort_unstable();
        let mut visits = &scratch.visits[..];
        for destination in 0..destinations as u32 {
            let (own, others) = visits.split_at(visits.partition_point(|visit| visit.0 == destination));
            visits = others;
            let counts = &mut scratch.counts;
            counts.clear();
            counts.extend(own.chunk_by(|a, b| a == b).map(|run| (run.len() as u32, run[0].1)));
            counts.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            counts.truncate(self.walks.neighbours as usize);
            scratch.sources.extend(counts.iter().map(|&(_, node)| node));
            block.weights.extend(counts.iter().map(|&(count, _)| count as f32));
            block.offsets.push(block.weights.len() as u32);
        }
    }
}
