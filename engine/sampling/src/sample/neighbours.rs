//! One hop of neighbour sampling.
//!
//! ```text
//! for each group of destinations:
//!     ask for the heads of their rows
//!     read the heads; ask for what says the degrees
//!     read the degrees; draw positions
//!     ask for the sources at them
//!     read the sources
//!     relabel the sources, asking for the table some edges ahead
//! ```

use grappa_formats::NodeId;
use grappa_io::Result;
use grappa_storage::StoreIds;

use super::{
    draw,
    group::{GROUP, Group, GroupScratch, Taken},
    minibatch::Block,
    random::{Draws, HopKey},
    relabel::Relabel,
    sampler::check_size,
    weighted,
};
use crate::view::rows::Rows;

/// How neighbours are chosen at a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop<'a> {
    pub key: HopKey,
    /// None: all.
    pub fanout: Option<u32>,
    pub replace: bool,
    pub by_weight: bool,
    /// Whether halo nodes may be drawn.
    pub draws_halo: bool,
    /// What errors call nodes.
    pub ids: &'a StoreIds,
}

impl Hop<'_> {
    /// Samples in-neighbours of all `nodes` into `block`, and appends those that are new to `nodes`.
    pub(super) fn sample<R: Rows, L: Relabel>(
        &self,
        group: &mut Group<'_, R>,
        relabel: &mut L,
        nodes: &mut Vec<NodeId>,
        block: &mut Block,
    ) -> Result<()> {
        let destinations = nodes.len();
        block.begin(destinations);
        for first in (0..destinations).step_by(GROUP) {
            let last = destinations.min(first + GROUP);
            self.choose(group, &nodes[first..last], first, block)?;
            let done = block.indices.len();
            for row in 0..last - first {
                group.read(row);
                block.offsets.push((done + group.scratch.sources.len()) as u32);
            }
            let sources = &group.scratch.sources;
            check_size(done + sources.len(), nodes.len() + sources.len())?;
            block.indices.resize(done + sources.len(), 0);
            relabel.relabel(sources, nodes, &mut block.indices[done..]);
        }
        block.sources = nodes.len();
        Ok(())
    }

    /// Chooses the positions of a group of destinations, the first of which is number `first`, and asks for their sources.
    #[inline(always)]
    fn choose<R: Rows>(
        &self,
        group: &mut Group<'_, R>,
        nodes: &[NodeId],
        first: usize,
        block: &mut Block,
    ) -> Result<()> {
        group.locate(nodes.iter().copied())?;
        for (row, node) in nodes.iter().enumerate() {
            let degrees = group.degrees(row);
            block.visible.push(degrees.visible);
            block.global.push(degrees.global);
            block.halo.push(degrees.halo);
            let pool = if self.draws_halo {
                degrees.global
            } else {
                degrees.visible
            };
            let draws = self.key.draws((first + row) as u64);
            let taken = if self.by_weight {
                group.read_weights(row, pool)?;
                weighted::check(&group.scratch.weights, || self.ids.name(*node))?;
                self.draw_by_weight(draws, group.scratch)
            } else {
                self.draw(draws, pool, group.scratch)
            };
            group.take(taken);
        }
        group.prefetch();
        Ok(())
    }

    #[inline(always)]
    fn draw(&self, mut draws: Draws, pool: u64, scratch: &mut GroupScratch) -> Taken {
        let GroupScratch { positions, draw, .. } = scratch;
        let start = positions.len();
        match self.fanout {
            Some(fanout) if self.replace && pool > 0 => {
                draw::with_replacement(&mut draws, pool, fanout, positions);
            }
            Some(fanout) if u64::from(fanout) < pool => {
                draw::without_replacement(&mut draws, pool, fanout, draw, positions);
            }
            _ => return Taken::First(pool),
        }
        Taken::since(start, positions)
    }

    fn draw_by_weight(&self, mut draws: Draws, scratch: &mut GroupScratch) -> Taken {
        let GroupScratch {
            weights,
            positions,
            draw,
            ..
        } = scratch;
        let start = positions.len();
        match self.fanout {
            Some(fanout) if self.replace => weighted::with_replacement(&mut draws, weights, fanout, draw, positions),
            Some(fanout) => weighted::without_replacement(&mut draws, weights, fanout, draw, positions),
            None => weighted::all(weights, positions),
        }
        Taken::since(start, positions)
    }
}
