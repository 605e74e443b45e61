//! How samplers read the adjacency lists of a view.

use grappa_formats::NodeId;
use grappa_io::Result;

use super::files::MappedFiles;
pub(crate) use super::positions::Positions;

/// Adjacency lists that are read in stages. Each stage prefetches the memory that the next one reads, for a whole group
/// of destinations, so that many cache misses are in flight at once.
///
/// ```text
/// for each of the group: read the head ahead, if the lists are in files on disk
/// for each of the group: head
/// for each of the group: prefetch_head
/// for each of the group: locate
/// for each of the group: read_ahead_list, if the lists are on disk
/// for each of the group: prefetch_list
/// fail if files are damaged
/// for each of the group: degrees; choose positions
/// for each of the group: prefetch_sources
/// for each of the group: sources_at
/// ```
///
/// Stages that prefetch do little else. A prefetch that misses the TLB waits for a page walk. The fewer instructions
/// lie between prefetches, the more page walks overlap.
///
/// All kinds of view list the sources of a node in the same order: owned sources, ascending, then the others,
/// ascending. A position is an index in that order.
pub(crate) trait AdjacencyLists {
    /// Where the place of a list is stored.
    type Head: Copy;
    /// Where a list is stored.
    type Place;
    /// State of a group of lists, besides their places. It is cleared between groups.
    type GroupState: Default;

    /// The mapped files that have the lists; none if they are in memory.
    #[inline(always)]
    fn files(&self) -> Option<&MappedFiles<'_>> {
        None
    }
    /// Starts reading a list from disk.
    #[inline(always)]
    fn read_ahead_list(&self, _: &Self::Place) {}
    /// Empties the state of a group.
    #[inline(always)]
    fn clear(_: &mut Self::GroupState) {}
    /// The head of a node's list. Prefetches it.
    fn head(&self, node: NodeId) -> Self::Head;
    /// Prefetches what else is read to locate the list.
    #[inline(always)]
    fn prefetch_head(&self, _: Self::Head) {}
    /// Reads the place of the list.
    fn locate(&self, head: Self::Head) -> Self::Place;
    /// Prefetches what is read to determine degrees. In short lists that includes the sources.
    #[inline(always)]
    fn prefetch_list(&self, _: &Self::Place) {}
    /// The in-degrees of the list's destination. To be called once per place.
    fn degrees(&self, place: &mut Self::Place, state: &mut Self::GroupState) -> Degrees;
    /// The first edge of a list in memory, counting the edges of all lists; none of other lists.
    #[inline(always)]
    fn first_edge(&self, _: &Self::Place) -> Option<usize> {
        None
    }
    /// Prefetches the sources at `positions`.
    fn prefetch_sources(&self, place: &Self::Place, positions: Positions<'_>);
    /// Appends the sources at `positions`.
    fn sources_at(
        &self,
        place: &Self::Place,
        state: &mut Self::GroupState,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    );
    /// Appends the weights of the edges at the first `count` positions.
    fn edge_weights(
        &self,
        place: &Self::Place,
        state: &Self::GroupState,
        count: u64,
        edge_weights: &mut Vec<f32>,
    ) -> Result<()>;
    /// The weights of the list's edges if all are in memory, and the largest; that is NaN if a weight is negative or not finite.
    #[inline(always)]
    fn weights_in_memory(&self, _: &Self::Place) -> Option<(&[f32], f32)> {
        None
    }
    /// Appends the ids of the edges at `positions`: their places in the store.
    fn edge_ids(
        &self,
        place: &Self::Place,
        state: &Self::GroupState,
        positions: Positions<'_>,
        ids: &mut Vec<u64>,
    ) -> Result<()>;
}

/// In-degrees of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Degrees {
    /// Sources that the view owns. They have the first positions.
    pub visible: u64,
    /// All sources.
    pub global: u64,
    /// Sources that a hop draws from. Without halo nodes these are the visible ones, and a sampled list has fewer than
    /// all.
    pub listed: u64,
    /// Whether the view has no list of the node, because it is a halo node. The degrees are then 0.
    pub halo: bool,
}

impl Degrees {
    /// The degrees of a node without a list.
    pub(crate) const HALO: Self = Self { visible: 0, global: 0, listed: 0, halo: true };
}

/// The largest of the weights of a list, 0 if there are none, and NaN if one is negative or not finite.
pub(crate) fn weight_max(weights: &[f32]) -> f32 {
    let (mut max, mut are_sound) = (0.0f32, true);
    for &weight in weights {
        are_sound &= (0.0..f32::INFINITY).contains(&weight);
        max = max.max(weight);
    }
    if are_sound { max } else { f32::NAN }
}
