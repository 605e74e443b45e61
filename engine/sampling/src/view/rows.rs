//! The rows of a view as samplers read them.

use grappa_formats::NodeId;
use grappa_io::Result;

use super::{
    mapped::{MappedPart, MappedWhole},
    memory::{PartRows, WholeRows},
};

/// Rows that are read in stages, so that what a group of destinations needs of memory is on its way all at once: each
/// stage asks for what the next one reads.
///
/// ```text
/// for each of the group: head
/// for each of the group: prefetch_head
/// for each of the group: locate
/// for each of the group: prefetch_row
/// take_damage
/// for each of the group: degrees; choose positions
/// for each of the group: prefetch_sources
/// for each of the group: sources_at
/// ```
///
/// Stages that ask for memory do little else: where an address is not in the processor's cache of addresses, what follows
/// waits until it is looked up, and only the more such look-ups are under way at once the fewer instructions are between.
///
/// The sources of a row are in an order that all kinds of view share: those that the view owns, ascending, then the
/// others, ascending. A position is a place in that order.
pub(crate) trait Rows {
    /// Where to look for a row.
    type Head: Copy;
    /// Where a row is.
    type Place;
    /// What has to be kept of a group's rows beside their places. Cleared between groups.
    type Notes: Default;

    /// Keeps to the memory that the rows may take. To be called between groups.
    #[inline(always)]
    fn keep_memory(&self) {}
    /// Forgets what was kept.
    fn clear(notes: &mut Self::Notes);
    /// Where to look for the row of a node. Asks for that.
    fn head(&self, node: NodeId) -> Self::Head;
    /// Asks for what else it takes to locate the row.
    #[inline(always)]
    fn prefetch_head(&self, _: Self::Head) {}
    /// Where the row is.
    fn locate(&self, head: Self::Head) -> Self::Place;
    /// Asks for what it takes to know degrees, and for the sources if they are few.
    #[inline(always)]
    fn prefetch_row(&self, _: &Self::Place) {}
    /// Fails if something of what was located since the last call is damaged.
    #[inline(always)]
    fn take_damage(&self) -> Result<()> {
        Ok(())
    }
    /// How many sources the row has. To be asked once.
    fn degrees(&self, place: &mut Self::Place, notes: &mut Self::Notes) -> Degrees;
    /// Asks for the sources at `positions`.
    fn prefetch_sources(&self, place: &Self::Place, positions: Positions<'_>);
    /// Appends the sources at `positions`.
    fn sources_at(
        &self,
        place: &Self::Place,
        notes: &mut Self::Notes,
        positions: Positions<'_>,
        sources: &mut Vec<NodeId>,
    );
    /// Appends the weights of the first `count` edges.
    fn weights(&self, place: &Self::Place, notes: &Self::Notes, count: u64, weights: &mut Vec<f32>) -> Result<()>;
}

/// Positions in a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Positions<'a> {
    /// The first so many.
    First(u64),
    /// These, which ascend and may repeat.
    These(&'a [u64]),
}

/// In-degrees of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Degrees {
    /// Sources that the view owns: those of the first positions.
    pub visible: u64,
    /// All sources.
    pub global: u64,
    /// Whether the view does not own the node. Both degrees are 0 then.
    pub halo: bool,
}

impl Degrees {
    /// Those of a node that is not owned.
    pub(crate) const HALO: Self = Self {
        visible: 0,
        global: 0,
        halo: true,
    };
}

/// The rows of a view, by their kind.
pub(crate) enum RowsIn<'a> {
    /// All of the graph, in memory, sources of 32 bits.
    WholeNarrow(WholeRows<'a, u32>),
    /// All of the graph, in memory, sources of 64 bits.
    WholeWide(WholeRows<'a, u64>),
    /// Of a partition, in memory, sources of 32 bits.
    PartNarrow(PartRows<'a, u32>),
    /// Of a partition, in memory, sources of 64 bits.
    PartWide(PartRows<'a, u64>),
    /// All of the graph, mapped.
    MappedWhole(MappedWhole<'a>),
    /// Of a partition, mapped.
    MappedPart(MappedPart<'a>),
}
