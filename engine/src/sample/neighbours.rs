//! One hop of neighbour sampling.
//!
//! ```text
//! for each group of destinations:
//!     ask for the heads of their rows
//!     read the heads; ask for what says the degrees
//!     read the degrees; draw positions; ask for the sources at them
//!     read the sources
//!     relabel the sources, asking for the table some edges ahead
//! ```

use grappa_formats::NodeId;

use super::{
    draw::{self, DrawScratch},
    minibatch::Block,
    random::HopKey,
    relabel::{PLACES_MAX, Relabel},
    sampler::too_large,
};
use crate::{
    Result,
    view::rows::{Positions, Rows},
};

/// Destinations that are worked on together: so many that the first of them has arrived when the last one was asked for,
/// and so few that what is known about them stays in the first level of the cache.
const GROUP: usize = 64;

/// What is known about a group of destinations.
#[derive(Debug)]
pub(super) struct Group<P> {
    places: Vec<P>,
    taken: Vec<Taken>,
    positions: Vec<u64>,
    sources: Vec<NodeId>,
    draw: DrawScratch,
}

impl<P> Default for Group<P> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            taken: Vec::new(),
            positions: Vec::new(),
            sources: Vec::new(),
            draw: DrawScratch::default(),
        }
    }
}

/// The positions that a destination keeps.
#[derive(Debug, Clone, Copy)]
enum Taken {
    /// The first so many: all.
    First(u64),
    /// Those from here on, so many.
    These(usize, usize),
}

impl Taken {
    #[inline(always)]
    fn positions(self, all: &[u64]) -> Positions<'_> {
        match self {
            Self::First(count) => Positions::First(count),
            Self::These(start, count) => Positions::These(&all[start..start + count]),
        }
    }
}

/// How neighbours are chosen at a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub key: HopKey,
    /// None: all.
    pub fanout: Option<u32>,
    pub replace: bool,
}

impl Hop {
    /// Samples in-neighbours of all `nodes` into `block`, and appends those that are new to `nodes`.
    pub(super) fn sample<R: Rows, L: Relabel>(
        &self,
        rows: &R,
        relabel: &mut L,
        group: &mut Group<R::Place>,
        nodes: &mut Vec<NodeId>,
        block: &mut Block,
    ) -> Result<()> {
        let destinations = nodes.len();
        block.destinations = destinations;
        block.offsets.reserve(destinations + 1);
        block.offsets.push(0);
        block.visible.reserve(destinations);
        block.global.reserve(destinations);
        block.halo.reserve(destinations);
        for first in (0..destinations).step_by(GROUP) {
            let last = destinations.min(first + GROUP);
            self.choose(rows, group, &nodes[first..last], first, block);
            let done = block.indices.len();
            group.sources.clear();
            for (place, taken) in group.places.iter().zip(&group.taken) {
                rows.sources_at(place, taken.positions(&group.positions), &mut group.sources);
                block.offsets.push((done + group.sources.len()) as u32);
            }
            let edges = done + group.sources.len();
            if edges > u32::MAX as usize {
                return Err(too_large("edges in a block", edges, 1 << 32));
            }
            let places = nodes.len() + group.sources.len();
            if places > PLACES_MAX {
                return Err(too_large("nodes", places, PLACES_MAX));
            }
            block.indices.resize(edges, 0);
            relabel.relabel(&group.sources, nodes, &mut block.indices[done..]);
        }
        block.sources = nodes.len();
        Ok(())
    }

    /// Chooses the positions of a group of destinations, the first of which is number `first`, and asks for their sources.
    #[inline(always)]
    fn choose<R: Rows>(
        &self,
        rows: &R,
        group: &mut Group<R::Place>,
        nodes: &[NodeId],
        first: usize,
        block: &mut Block,
    ) {
        for node in nodes {
            rows.prefetch_head(*node);
        }
        group.places.clear();
        group.places.extend(nodes.iter().map(|node| {
            let place = rows.locate(*node);
            rows.prefetch_row(&place);
            place
        }));
        group.positions.clear();
        group.taken.clear();
        for (place, destination) in group.places.iter_mut().zip(first..) {
            let degrees = rows.degrees(place);
            block.visible.push(degrees.visible);
            block.global.push(degrees.global);
            block.halo.push(degrees.halo);
            let pool = degrees.global;
            let taken = match self.fanout {
                Some(fanout) if self.replace && pool > 0 => {
                    let start = group.positions.len();
                    let mut draws = self.key.draws(destination);
                    draw::with_replacement(&mut draws, pool, fanout, &mut group.positions);
                    Taken::These(start, fanout as usize)
                }
                Some(fanout) if u64::from(fanout) < pool => {
                    let start = group.positions.len();
                    let mut draws = self.key.draws(destination);
                    draw::without_replacement(&mut draws, pool, fanout, &mut group.draw, &mut group.positions);
                    Taken::These(start, fanout as usize)
                }
                _ => Taken::First(pool),
            };
            group.taken.push(taken);
            rows.prefetch_sources(place, taken.positions(&group.positions));
        }
    }
}
