//! One hop of neighbor sampling.
//!
//! ```text
//! for each group of destinations:
//!     prefetch the heads of their adjacency lists
//!     read the heads; prefetch what is read for degrees
//!     read the degrees; draw positions (by weight: prefetch the weights first)
//!     prefetch the sources at the positions
//!     read the sources
//!     relabel the sources, prefetching the table some edges ahead
//! ```

use std::ops::Range;

use grappa_formats::NodeId;
use grappa_io::{Result, heap, prefetch::prefetch};
use grappa_storage::StoreIds;

use super::{
    draw,
    group::{DrawnPositions, GROUP, Group, GroupScratch},
    minibatch::{Block, Minibatch},
    random::{Draws, HopKeys},
    relabel::Relabel,
    size::check_size,
    time::{HopLimits, TimeStrategy},
    weighted,
};
use crate::{
    partition::Owned,
    view::adjacency::{AdjacencyLists, weight_max},
};

/// The purpose of the memory, in errors.
pub(super) const SAMPLED: &str = "the edges and nodes of a minibatch";

/// Weights of a cache line.
const LINE: usize = 64 / size_of::<f32>();
/// Weights of a short list that are prefetched. The processor prefetches the rest, because they are read in order.
const PREFETCHED: usize = 4 * LINE;

/// How neighbors are chosen at a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct NeighborHop<'a> {
    pub keys: HopKeys<'a>,
    /// The types of sources and destinations.
    pub source: usize,
    pub destination: usize,
    /// The maximum number of neighbors per destination, which may be 0; none for all.
    pub fanout: Option<u32>,
    pub replace: bool,
    pub by_weight: bool,
    /// Whether the block gets the weights of its edges.
    pub keeps_weights: bool,
    /// Whether it gets their ids.
    pub keeps_ids: bool,
    /// The limits of draws from lists that have times, if draws are limited.
    pub limits: Option<HopLimits<'a>>,
    /// Whether the times of edges are read.
    pub reads_times: bool,
    /// The first destination that draws. Those before it have no edges.
    pub first: usize,
    /// The owned sources, if they are counted among the drawn ones: lists do not begin with them.
    pub counted_sources: Option<&'a Owned>,
    /// The external ids, for errors.
    pub ids: &'a StoreIds,
}

/// The edges that a hop drew by a relation, before they are relabelled. Reusable memory.
#[derive(Debug, Default)]
pub(crate) struct DrawnEdges {
    pub sources: Vec<NodeId>,
    /// Their times, if the relation has times and they are needed.
    pub times: Vec<i64>,
}

impl DrawnEdges {
    pub(super) fn bytes(&self) -> u64 {
        (self.sources.capacity() * size_of::<NodeId>() + self.times.capacity() * size_of::<i64>()) as u64
    }
}

impl NeighborHop<'_> {
    /// Samples in-neighbors of the first `destinations` nodes of a type into `block`. Appends new nodes to the nodes of the
    /// source type, which may be the same type.
    pub(super) fn sample<A: AdjacencyLists>(
        &self,
        group: &mut Group<'_, A>,
        relabel: &mut dyn Relabel,
        types: &mut [Minibatch],
        destinations: usize,
        block: &mut Block,
    ) -> Result<()> {
        block.begin(destinations);
        block.skip(self.first);
        // The list of nodes grows while a group is sampled, so the group is copied.
        let mut copied = [NodeId(0); GROUP];
        for first in (self.first..destinations).step_by(GROUP) {
            let last = destinations.min(first + GROUP);
            let copied = &mut copied[..last - first];
            copied.copy_from_slice(&types[self.destination].nodes[first..last]);
            let done = block.indices.len();
            self.draw_group(group, copied, first, done, block)?;
            let nodes = &mut types[self.source].nodes;
            let sources = &group.scratch.sources;
            check_size(done + sources.len(), nodes.len() + sources.len())?;
            heap::grow(&mut block.indices, sources.len(), SAMPLED)?;
            heap::grow(nodes, sources.len(), SAMPLED)?;
            block.indices.resize(done + sources.len(), 0);
            relabel.relabel(sources, nodes, &mut block.indices[done..]);
        }
        Ok(())
    }

    /// Samples in-neighbors of `destinations`, which are all of their type, without relabelling them. The block gets no indices of sources.
    pub(super) fn draw_apart<A: AdjacencyLists>(
        &self,
        group: &mut Group<'_, A>,
        destinations: &[NodeId],
        drawn: &mut DrawnEdges,
        block: &mut Block,
    ) -> Result<()> {
        block.begin(destinations.len());
        block.skip(self.first);
        drawn.sources.clear();
        drawn.times.clear();
        for (number, nodes) in destinations[self.first..].chunks(GROUP).enumerate() {
            let done = drawn.sources.len();
            self.draw_group(group, nodes, self.first + number * GROUP, done, block)?;
            let sources = &group.scratch.sources;
            check_size(done + sources.len(), 0)?;
            heap::grow(&mut drawn.sources, sources.len(), SAMPLED)?;
            drawn.sources.extend_from_slice(sources);
            if self.reads_times {
                heap::grow(&mut drawn.times, sources.len(), SAMPLED)?;
                group.read_times(&mut drawn.times);
            }
        }
        Ok(())
    }

    /// Draws for a group of destinations, and reads the sources and ids of their edges. `first` is the index of the first destination, and
    /// `done` the number of edges before it.
    #[inline(always)]
    fn draw_group<A: AdjacencyLists>(
        &self,
        group: &mut Group<'_, A>,
        nodes: &[NodeId],
        first: usize,
        done: usize,
        block: &mut Block,
    ) -> Result<()> {
        self.choose(group, nodes, first, block)?;
        for index in 0..nodes.len() {
            let start = group.scratch.sources.len();
            group.read(index);
            block.offsets.push((done + group.scratch.sources.len()) as u32);
            if let Some(owned) = self.counted_sources {
                let drawn = &group.scratch.sources[start..];
                let listed = block.global[first + index];
                block.visible[first + index] = visible_share(drawn, owned, listed);
            }
        }
        if self.keeps_ids {
            heap::grow(&mut block.edge_ids, group.scratch.sources.len(), SAMPLED)?;
            (0..nodes.len()).try_for_each(|index| group.read_edge_ids(index, &mut block.edge_ids))?;
        }
        Ok(())
    }

    /// Draws the positions of a group of destinations, and prefetches their sources. `first` is the index of the first
    /// destination.
    #[inline(always)]
    fn choose<A: AdjacencyLists>(
        &self,
        group: &mut Group<'_, A>,
        nodes: &[NodeId],
        first: usize,
        block: &mut Block,
    ) -> Result<()> {
        group.locate(nodes.iter().copied())?;
        if let Some(limits) = self.limits
            && group.has_times()
        {
            return self.choose_within(group, first..first + nodes.len(), limits, block);
        }
        if self.by_weight {
            self.prefetch_weights(group, first);
        }
        for (index, node) in nodes.iter().enumerate() {
            let degrees = group.degrees(index);
            block.visible.push(degrees.visible);
            block.global.push(degrees.global);
            block.halo.push(degrees.halo);
            let pool = degrees.listed;
            let draws = self.keys.draws(first + index);
            let drawn = if self.fanout == Some(0) {
                DrawnPositions::First(0)
            } else if self.by_weight {
                self.draw_by_weight(draws, pool, group, index, *node)?
            } else {
                self.draw(draws, pool, group.scratch)
            };
            if self.keeps_weights {
                group.append_weights(index, pool, drawn, &mut block.edge_weights)?;
            }
            group.record(drawn);
        }
        group.prefetch();
        Ok(())
    }

    /// As [`NeighborHop::choose`], for destinations whose draws are limited by time.
    fn choose_within<A: AdjacencyLists>(
        &self,
        group: &mut Group<'_, A>,
        destinations: Range<usize>,
        limits: HopLimits<'_>,
        block: &mut Block,
    ) -> Result<()> {
        group.search_times(destinations.clone().map(|destination| limits.of(destination)))?;
        for (index, destination) in destinations.enumerate() {
            let within = group.within(index);
            let draws = self.keys.draws(destination);
            let drawn = self.draw_within(draws, within, limits.options.strategy, index, group, block)?;
            group.record(drawn);
        }
        group.prefetch();
        if self.reads_times {
            group.prefetch_times();
        }
        Ok(())
    }

    /// Draws from the edges at some positions of a list, whose index in the group this is. Degrees count these edges alone, so that nothing
    /// tells of later ones.
    fn draw_within<A: AdjacencyLists>(
        &self,
        mut draws: Draws,
        eligible: Range<u64>,
        strategy: TimeStrategy,
        index: usize,
        group: &mut Group<'_, A>,
        block: &mut Block,
    ) -> Result<DrawnPositions> {
        let pool = eligible.end - eligible.start;
        block.visible.push(pool);
        block.global.push(pool);
        block.halo.push(group.is_halo(index));
        let GroupScratch { positions, draw, .. } = &mut *group.scratch;
        let start = positions.len();
        match (self.fanout, strategy) {
            (Some(0), _) => {}
            (Some(fanout), TimeStrategy::Last) => {
                positions.extend(pool.saturating_sub(u64::from(fanout))..pool);
            }
            (Some(fanout), TimeStrategy::Uniform) if self.replace && pool > 0 => {
                draw::with_replacement(&mut draws, pool, fanout, positions);
            }
            (Some(fanout), TimeStrategy::Uniform) if u64::from(fanout) < pool => {
                draw::without_replacement(&mut draws, pool, fanout, draw, positions);
            }
            (Some(_) | None, _) => positions.extend(0..pool),
        }
        positions[start..].iter_mut().for_each(|position| *position += eligible.start);
        let drawn = DrawnPositions::since(start, positions);
        if self.keeps_weights {
            group.append_weights(index, eligible.end, drawn, &mut block.edge_weights)?;
        }
        Ok(drawn)
    }

    /// Prefetches the weights that draws from each list read first, if they are in memory.
    fn prefetch_weights<A: AdjacencyLists>(&self, group: &Group<'_, A>, first: usize) {
        let Some(fanout) = self.fanout.filter(|&fanout| fanout > 0) else { return };
        for (index, place) in group.places.iter().enumerate() {
            let Some((weights, _)) = group.lists.weights_in_memory(place) else { continue };
            let pool = weights.len() as u64;
            if weighted::is_long(pool, fanout) {
                let draws = self.keys.draws(first + index);
                weighted::first_tries(draws, pool, fanout, |at| prefetch(weights, at as usize));
            } else {
                (0..weights.len().min(PREFETCHED)).step_by(LINE).for_each(|at| prefetch(weights, at));
            }
        }
    }

    #[inline(always)]
    fn draw(&self, mut draws: Draws, pool: u64, scratch: &mut GroupScratch) -> DrawnPositions {
        let GroupScratch { positions, draw, .. } = scratch;
        let start = positions.len();
        match self.fanout {
            Some(fanout) if self.replace && pool > 0 => {
                draw::with_replacement(&mut draws, pool, fanout, positions);
            }
            Some(fanout) if u64::from(fanout) < pool => {
                draw::without_replacement(&mut draws, pool, fanout, draw, positions);
            }
            _ => return DrawnPositions::First(pool),
        }
        DrawnPositions::since(start, positions)
    }

    /// Draws from the list of `node` by weight; `pool` edges of it can be drawn.
    fn draw_by_weight<A: AdjacencyLists>(
        &self,
        mut draws: Draws,
        pool: u64,
        group: &mut Group<'_, A>,
        index: usize,
        node: NodeId,
    ) -> Result<DrawnPositions> {
        let few = self.fanout.filter(|&fanout| weighted::is_long(pool, fanout));
        let lists = group.lists;
        let known = few.and_then(|_| lists.weights_in_memory(&group.places[index])).filter(|(_, max)| !max.is_nan());
        group.scratch.draw.drawn.clear();
        if let (Some(few), Some((weights, max))) = (few, known) {
            let GroupScratch { positions, draw, .. } = &mut *group.scratch;
            let drawn = &mut draw.drawn;
            weighted::by_rejection(&mut draws, (pool, few, self.replace), max, |at| weights[at as usize], drawn);
            if drawn.len() == few as usize {
                let start = positions.len();
                positions.extend_from_slice(drawn);
                positions[start..].sort_unstable();
                return Ok(DrawnPositions::since(start, positions));
            }
        }
        group.read_edge_weights(index, pool)?;
        weighted::check(&group.scratch.edge_weights, || self.ids.name(node))?;
        let GroupScratch { edge_weights, positions, draw, .. } = &mut *group.scratch;
        if let (Some(few), None) = (few, known) {
            // The same draws as where the largest weight is known.
            let (max, weight) = (weight_max(edge_weights), |at: u64| edge_weights[at as usize]);
            weighted::by_rejection(&mut draws, (pool, few, self.replace), max, weight, &mut draw.drawn);
        }
        let start = positions.len();
        match self.fanout {
            Some(fanout) if self.replace => {
                weighted::with_replacement(&mut draws, edge_weights, fanout, draw, positions)
            }
            Some(fanout) => weighted::without_replacement(&mut draws, edge_weights, fanout, draw, positions),
            None => weighted::all(edge_weights, positions),
        }
        Ok(DrawnPositions::since(start, positions))
    }
}

/// The number of owned sources among `listed` ones, estimated from those that were drawn; exact if all were. A count of the list itself would
/// need its sources, or tell of later ones.
fn visible_share(drawn: &[NodeId], owned: &Owned, listed: u64) -> u64 {
    if drawn.is_empty() {
        return listed;
    }
    let visible = drawn.iter().filter(|&&source| owned.contains(source)).count();
    let share = u128::from(listed) * visible as u128 / drawn.len() as u128;
    share as u64
}
