//! One hop of neighborhoods by random walks, as in PinSAGE.
//!
//! ```text
//! for each group of destinations:
//!     start all their walks
//!     for each step:
//!         prefetch the heads of the adjacency lists of the current nodes
//!         read the heads; prefetch what is read for degrees
//!         read the degrees; draw a position for each walk; prefetch the source at it
//!         read the sources: these are the next current nodes
//!     for each destination: count visits, keep the most visited nodes
//!     relabel
//! ```

use grappa_formats::NodeId;
use grappa_io::{Error, Result};

use super::{
    group::{DrawnPositions, GROUP, Group},
    minibatch::Block,
    random::{Draws, HopKey},
    relabel::Relabel,
    size::check_size,
};
use crate::view::adjacency::AdjacencyLists;

/// Neighborhoods by random walks. The neighbors of a node are the nodes that walks from it visit most often. Their
/// edge weights are the numbers of visits. (Ying et al., "Graph Convolutional Neural Networks for Web-Scale Recommender
/// Systems", 2018, section 3.1.)
///
/// Walks follow DGL's `RandomWalkNeighborSampler` on a graph of one edge type. A walk always takes its first step.
/// Before each further step it ends with probability `termination`. Each step leads to a uniformly drawn in-neighbor;
/// parallel edges count separately. A walk also ends at a node without in-neighbors to draw from. Every node that a
/// step leads to is visited, also the node where the walk began if it returns. Among nodes with equally many visits,
/// those with smaller ids are kept.
///
/// Walks go against the direction of edges, to sources, because a store has in-edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomWalks {
    /// The number of hops. Each hop finds neighborhoods of all nodes that were reached so far.
    pub hops: usize,
    /// The number of walks from each node.
    pub walks: u32,
    /// The maximum number of steps of a walk.
    pub steps: u32,
    /// The probability that a walk ends before its next step.
    pub termination: f64,
    /// The maximum number of neighbors of each node.
    pub neighbors: u32,
}

impl RandomWalks {
    /// Fails if a number is 0 or the probability is not in 0 to 1.
    pub(super) fn check(&self) -> Result<()> {
        if self.hops == 0 || self.walks == 0 || self.steps == 0 || self.neighbors == 0 {
            return Err(Error::out_of_range(
                "random walks",
                "at least 1 hop, walk, step and neighbor",
                format!(
                    "{} hops, {} walks, {} steps and {} neighbors",
                    self.hops, self.walks, self.steps, self.neighbors
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

/// A walk that has not ended.
#[derive(Debug, Clone)]
struct Walk {
    /// The index in the group of the destination where it began.
    destination: u32,
    /// The current node.
    at: NodeId,
    draws: Draws,
}

/// Reusable memory for the walks of a group.
#[derive(Debug, Default)]
pub(super) struct WalkScratch {
    walks: Vec<Walk>,
    /// For each visit, the destination of the walk and the visited node.
    visits: Vec<(u32, NodeId)>,
    /// The number of visits of a node, and the node.
    counts: Vec<(u32, NodeId)>,
    sources: Vec<NodeId>,
}

impl WalkScratch {
    pub(super) fn bytes(&self) -> u64 {
        let Self { walks, visits, counts, sources } = self;
        let bytes = walks.capacity() * size_of::<Walk>()
            + (visits.capacity() + counts.capacity()) * size_of::<(u32, NodeId)>()
            + sources.capacity() * size_of::<NodeId>();
        bytes as u64
    }
}

/// How a hop finds neighborhoods.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkHop<'a> {
    pub key: HopKey,
    pub walks: &'a RandomWalks,
}

impl WalkHop<'_> {
    /// Finds neighborhoods of all `nodes`. Appends new nodes to `nodes`.
    pub(super) fn sample<A: AdjacencyLists>(
        &self,
        group: &mut Group<'_, A>,
        relabel: &mut dyn Relabel,
        scratch: &mut WalkScratch,
        nodes: &mut Vec<NodeId>,
        block: &mut Block,
    ) -> Result<()> {
        let destinations = nodes.len();
        block.begin(destinations);
        // A step reads one list per walk, so a group of destinations has about GROUP walks.
        let at_a_time = (GROUP / self.walks.walks as usize).max(1);
        for first in (0..destinations).step_by(at_a_time) {
            let last = destinations.min(first + at_a_time);
            self.start(group, scratch, &nodes[first..last], first, block)?;
            for step in 0..self.walks.steps {
                self.step(group, scratch, step)?;
            }
            let done = block.indices.len();
            self.keep(scratch, last - first, block);
            check_size(block.edge_weights.len(), nodes.len() + scratch.sources.len())?;
            block.indices.resize(block.edge_weights.len(), 0);
            relabel.relabel(&scratch.sources, nodes, &mut block.indices[done..]);
        }
        Ok(())
    }

    /// Starts the walks of a group of destinations. `first` is the index of the first destination.
    fn start<A: AdjacencyLists>(
        &self,
        group: &mut Group<'_, A>,
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

    fn step<A: AdjacencyLists>(&self, group: &mut Group<'_, A>, scratch: &mut WalkScratch, step: u32) -> Result<()> {
        let walks = &mut scratch.walks;
        if step > 0 {
            walks.retain_mut(|walk| walk.draws.unit() > self.walks.termination);
        }
        group.locate(walks.iter().map(|walk| walk.at))?;
        for (index, walk) in walks.iter_mut().enumerate() {
            let pool = group.degrees(index).listed;
            let positions = &mut group.scratch.positions;
            let start = positions.len();
            if pool > 0 {
                positions.push(walk.draws.below(pool));
            }
            let drawn = DrawnPositions::since(start, positions);
            group.record(drawn);
        }
        group.prefetch();
        let mut index = 0;
        walks.retain_mut(|walk| {
            group.scratch.sources.clear();
            group.read(index);
            index += 1;
            let Some(&source) = group.scratch.sources.first() else {
                return false;
            };
            walk.at = source;
            scratch.visits.push((walk.destination, source));
            true
        });
        Ok(())
    }

    /// Counts the visits of the walks of each destination. The most visited nodes become its in-neighbors.
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
            counts.truncate(self.walks.neighbors as usize);
            scratch.sources.extend(counts.iter().map(|&(_, node)| node));
            block.edge_weights.extend(counts.iter().map(|&(count, _)| count as f32));
            block.offsets.push(block.edge_weights.len() as u32);
        }
    }
}
