//! Groups of destinations, or of walks, whose adjacency lists are read together.

use std::ops::Range;

use grappa_formats::NodeId;
use grappa_io::Result;

use super::draw::DrawScratch;
use crate::view::{
    SearchedList, TimeGroup, TimeLimit, TimeLists,
    adjacency::{AdjacencyLists, Degrees, Positions},
};

/// The number of nodes of a group. It is large enough that the first prefetch has completed when the last one is
/// issued, and small enough that the state of a group stays in the L1 cache.
pub(super) const GROUP: usize = 64;

/// The adjacency lists of a group of nodes, and the positions that were drawn from each.
pub(super) struct Group<'a, A: AdjacencyLists> {
    pub lists: &'a A,
    pub scratch: &'a mut GroupScratch,
    pub places: Vec<A::Place>,
    pub state: A::GroupState,
    heads: Vec<A::Head>,
    /// The times of the lists, if they limit draws.
    times: Option<&'a TimeLists<'a>>,
}

/// Reusable memory of a group, for any kind of view.
#[derive(Debug, Default)]
pub(crate) struct GroupScratch {
    /// For each list, the positions that were drawn.
    pub(super) drawn: Vec<DrawnPositions>,
    pub(super) positions: Vec<u64>,
    pub(super) sources: Vec<NodeId>,
    pub(super) edge_weights: Vec<f32>,
    pub(super) draw: DrawScratch,
    times: TimeGroup,
    /// Whether lists whose times were searched are of halo nodes, and have no edges.
    halo: Vec<bool>,
}

impl GroupScratch {
    pub(super) fn bytes(&self) -> u64 {
        let Self { drawn, positions, sources, edge_weights, draw, times, halo } = self;
        let bytes = drawn.capacity() * size_of::<DrawnPositions>()
            + positions.capacity() * size_of::<u64>()
            + sources.capacity() * size_of::<NodeId>()
            + edge_weights.capacity() * size_of::<f32>()
            + halo.capacity();
        bytes as u64 + draw.bytes() + times.bytes()
    }
}

impl<'a, A: AdjacencyLists> Group<'a, A> {
    pub(super) fn new(lists: &'a A, times: Option<&'a TimeLists<'a>>, scratch: &'a mut GroupScratch) -> Self {
        Self {
            lists,
            scratch,
            places: Vec::with_capacity(GROUP),
            state: A::GroupState::default(),
            heads: Vec::with_capacity(GROUP),
            times,
        }
    }

    /// Begins a group and locates the lists of `nodes`. Fails if a list is damaged.
    #[inline(always)]
    pub(super) fn locate(&mut self, nodes: impl Iterator<Item = NodeId> + Clone) -> Result<()> {
        let lists = self.lists;
        let files = lists.files();
        if let Some(files) = files {
            files.keep_memory();
        }
        let on_disk = files.filter(|files| files.are_on_disk());
        A::clear(&mut self.state);
        self.scratch.drawn.clear();
        self.scratch.positions.clear();
        self.scratch.sources.clear();
        // One pass per stage, not one per list: each pass prefetches for all lists before the next pass reads.
        if let Some(files) = on_disk {
            nodes.clone().for_each(|node| files.read_ahead_head(node));
        }
        if let Some(times) = &self.times {
            times.heads(nodes.clone(), on_disk.is_some(), &mut self.scratch.times);
        }
        self.heads.clear();
        self.heads.extend(nodes.map(|node| lists.head(node)));
        self.heads.iter().for_each(|&head| lists.prefetch_head(head));
        self.places.clear();
        self.places.extend(self.heads.iter().map(|&head| lists.locate(head)));
        if on_disk.is_some() {
            self.places.iter().for_each(|place| lists.read_ahead_list(place));
        }
        self.places.iter().for_each(|place| lists.prefetch_list(place));
        if let Some(times) = &self.times {
            times.locate(on_disk.is_some(), &mut self.scratch.times)?;
        }
        files.map_or(Ok(()), |files| files.take_damage())
    }

    /// Whether lists have times.
    pub(super) fn has_times(&self) -> bool {
        self.times.is_some()
    }

    /// Finds the positions that draws from each list may have, for [`Group::within`]. `limits` has the limit of each list.
    pub(super) fn search_times(&mut self, limits: impl Iterator<Item = TimeLimit>) -> Result<()> {
        let Self { lists, scratch: GroupScratch { times, halo, .. }, places, state, times: of_lists, .. } = self;
        halo.clear();
        let searched = places.iter_mut().zip(limits).map(|(place, limit)| {
            let degrees = lists.degrees(place, state);
            halo.push(degrees.halo);
            SearchedList { first_edge: lists.first_edge(place), degree: degrees.listed, limit }
        });
        of_lists.as_ref().expect("lists have times").search(searched, times)
    }

    /// The positions that draws from a list may have, by its index in the group.
    pub(super) fn within(&self, index: usize) -> Range<u64> {
        self.scratch.times.within[index].clone()
    }

    /// Whether a list whose times were searched is of a halo node, by its index in the group.
    pub(super) fn is_halo(&self, index: usize) -> bool {
        self.scratch.halo[index]
    }

    /// Prefetches the times of the drawn edges of all lists.
    pub(super) fn prefetch_times(&self) {
        let Some(times) = &self.times else { return };
        for (index, drawn) in self.scratch.drawn.iter().enumerate() {
            times.prefetch(index, drawn.positions(&self.scratch.positions), &self.scratch.times);
        }
    }

    /// Appends the times of the drawn edges of all lists.
    pub(super) fn read_times(&self, out: &mut Vec<i64>) {
        let Some(times) = &self.times else { return };
        for (index, drawn) in self.scratch.drawn.iter().enumerate() {
            times.times(index, drawn.positions(&self.scratch.positions), &self.scratch.times, out);
        }
    }

    /// The degrees of a list, by its index in the group.
    #[inline(always)]
    pub(super) fn degrees(&mut self, index: usize) -> Degrees {
        self.lists.degrees(&mut self.places[index], &mut self.state)
    }

    /// Reads the weights of the first `count` edges of a list.
    pub(super) fn read_edge_weights(&mut self, index: usize, count: u64) -> Result<()> {
        self.scratch.edge_weights.clear();
        let edge_weights = &mut self.scratch.edge_weights;
        self.lists.edge_weights(&self.places[index], &self.state, count, edge_weights)
    }

    /// Appends the weights of the drawn edges of a list to `weights`. The list has `count` edges that can be drawn.
    #[inline]
    pub(super) fn append_weights(
        &mut self,
        index: usize,
        count: u64,
        drawn: DrawnPositions,
        weights: &mut Vec<f32>,
    ) -> Result<()> {
        if let Some((all, _)) = self.lists.weights_in_memory(&self.places[index]) {
            let positions = drawn.positions(&self.scratch.positions);
            positions.for_each(|at| weights.push(all[at as usize]));
            return Ok(());
        }
        self.read_edge_weights(index, count)?;
        let positions = drawn.positions(&self.scratch.positions);
        positions.for_each(|at| weights.push(self.scratch.edge_weights[at as usize]));
        Ok(())
    }

    pub(super) fn read_edge_ids(&self, index: usize, ids: &mut Vec<u64>) -> Result<()> {
        let positions = self.scratch.drawn[index].positions(&self.scratch.positions);
        self.lists.edge_ids(&self.places[index], &self.state, positions, ids)
    }

    /// Records the positions that were drawn from the next list.
    #[inline(always)]
    pub(super) fn record(&mut self, drawn: DrawnPositions) {
        self.scratch.drawn.push(drawn);
    }

    /// Prefetches the drawn sources of all lists.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        for (place, drawn) in self.places.iter().zip(&self.scratch.drawn) {
            self.lists.prefetch_sources(place, drawn.positions(&self.scratch.positions));
        }
    }

    /// Appends the drawn sources of a list to [`GroupScratch::sources`].
    #[inline(always)]
    pub(super) fn read(&mut self, index: usize) {
        let GroupScratch { drawn, positions, sources, .. } = &mut *self.scratch;
        let positions = drawn[index].positions(positions);
        self.lists.sources_at(&self.places[index], &mut self.state, positions, sources);
    }
}

/// The positions that were drawn from a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum DrawnPositions {
    /// All positions, by their number. They need no memory.
    First(u64),
    /// A part of [`GroupScratch::positions`].
    Listed { start: usize, count: usize },
}

impl DrawnPositions {
    /// The positions from `start` to the end.
    #[inline(always)]
    pub(super) fn since(start: usize, positions: &[u64]) -> Self {
        Self::Listed { start, count: positions.len() - start }
    }

    /// The positions, as a part of `all` positions of the group.
    #[inline(always)]
    pub(super) fn positions(self, all: &[u64]) -> Positions<'_> {
        match self {
            Self::First(count) => Positions::First(count),
            Self::Listed { start, count } => Positions::Listed(&all[start..start + count]),
        }
    }
}
