//! Mapped adjacency lists of the whole graph.

use std::iter;

use grappa_formats::NodeId;
use grappa_io::Result;

use crate::{
    partition::Owned,
    view::{
        adjacency::{AdjacencyLists, Degrees, Positions},
        files::{FileHead, FilePlace, Mapped, MappedFiles},
    },
};

/// The mapped adjacency lists of all nodes. Views and files have the same order.
pub(crate) struct MappedWhole<'a>(MappedFiles<'a>);

impl<'a> MappedWhole<'a> {
    pub(in crate::view) fn new(mapped: &'a Mapped, owned: &'a Owned) -> Self {
        Self(MappedFiles::new(mapped, owned))
    }
}

impl AdjacencyLists for MappedWhole<'_> {
    type Head = FileHead;
    type Place = FilePlace;
    /// Buffer for decoded sources.
    type GroupState = Vec<u64>;

    #[inline(always)]
    fn files(&self) -> Option<&MappedFiles<'_>> {
        Some(&self.0)
    }

    fn read_ahead_list(&self, place: &FilePlace) {
        self.0.read_ahead_list(place);
    }

    #[inline(always)]
    fn head(&self, node: NodeId) -> FileHead {
        self.0.head(node)
    }

    #[inline(always)]
    fn prefetch_head(&self, head: FileHead) {
        self.0.prefetch_head(head);
    }

    #[inline(always)]
    fn locate(&self, head: FileHead) -> FilePlace {
        self.0.locate(head)
    }

    #[inline(always)]
    fn prefetch_list(&self, place: &FilePlace) {
        self.0.prefetch_list(place);
    }

    #[inline(always)]
    fn degrees(&self, place: &mut FilePlace, _: &mut Vec<u64>) -> Degrees {
        let degree = self.0.open(place).map_or(0, |list| list.degree());
        Degrees { visible: degree, global: degree, listed: degree, halo: false }
    }

    #[inline(always)]
    fn prefetch_sources(&self, place: &FilePlace, positions: Positions<'_>) {
        if let Positions::Listed(positions) = positions {
            self.0.prefetch_sources(place, positions);
        }
    }

    #[inline(always)]
    fn sources_at(
        &self,
        place: &FilePlace,
        buffer: &mut Vec<u64>,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    ) {
        let Some(list) = self.0.open(place) else { return };
        match positions {
            // Samplers ask for the first positions only if they take the whole list.
            Positions::First(_) => {
                buffer.clear();
                list.decode_into(buffer);
                sources.extend(buffer.iter().copied().map(NodeId));
            }
            Positions::Listed(positions) => list.get_many_as(positions, sources, NodeId),
        }
    }

    fn edge_weights(&self, place: &FilePlace, _: &Vec<u64>, count: u64, edge_weights: &mut Vec<f32>) -> Result<()> {
        self.0.edge_weights(place, iter::once(0..count), edge_weights)
    }

    fn edge_ids(&self, place: &FilePlace, _: &Vec<u64>, positions: Positions<'_>, ids: &mut Vec<u64>) -> Result<()> {
        let Some(edges) = self.0.edge_ids(place)? else {
            return Ok(());
        };
        positions.for_each(|position| ids.push(edges.start + position));
        Ok(())
    }
}
