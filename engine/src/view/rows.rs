//! The rows of a view as samplers read them.

use grappa_formats::NodeId;

pub(crate) use super::memory::CsrPlace;
use super::memory::CsrRows;

/// Rows that are read in stages, so that what a group of destinations needs of memory is on its way all at once.
///
/// ```text
/// for each of the group: prefetch_head
/// for each of the group: locate, prefetch_row
/// for each of the group: degrees; choose positions; prefetch_sources
/// for each of the group: sources_at
/// ```
///
/// A position is a place in the order of the row, which all kinds of view share.
pub(crate) trait Rows {
    /// Where a row is.
    type Place;

    /// Asks for what [`Rows::locate`] reads.
    fn prefetch_head(&self, node: NodeId);
    /// Where the row of a node is.
    fn locate(&self, node: NodeId) -> Self::Place;
    /// Asks for what [`Rows::degrees`] reads.
    fn prefetch_row(&self, place: &Self::Place);
    /// How many sources a row has.
    fn degrees(&self, place: &mut Self::Place) -> Degrees;
    /// Asks for what [`Rows::sources_at`] reads.
    fn prefetch_sources(&self, place: &Self::Place, positions: Positions<'_>);
    /// Appends the sources at `positions`.
    fn sources_at(&self, place: &Self::Place, positions: Positions<'_>, sources: &mut Vec<NodeId>);
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
    /// Sources that the view owns.
    pub visible: u64,
    /// All sources.
    pub global: u64,
    /// Whether the view has no row for the node.
    pub halo: bool,
}

/// The rows of a view, by their kind.
pub(crate) enum RowsIn<'a> {
    /// In memory, sources of 32 bits.
    Narrow(CsrRows<'a, u32>),
    /// In memory, sources of 64 bits.
    Wide(CsrRows<'a, u64>),
}
