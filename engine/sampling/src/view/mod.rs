//! Adjacency lists in the form that samplers read.
//!
//! A [`PartitionView`] has the adjacency lists of the nodes that a partition owns. Only these nodes can be expanded.
//! The [`Halo`] mode decides which in-neighbors a hop may draw. The lists are in memory as plain CSR, or are decoded
//! from the mapped files of the store ([`ViewKind`]). Samples are the same.
//!
//! Loading into memory takes about 30 MiB besides the lists: buffers of the read engine, encoded pieces that wait to be
//! decoded, and one decoded piece per thread. The memory is freed when loading ends.
//!
//! # Order of sources
//! A sampler draws positions, not sources. All kinds of view list the sources of a node in the same order, so they give
//! the same samples: owned sources, ascending, then the others, ascending. Owned sources thus have the first positions,
//! and a draw among them is a draw below the visible degree. In a view of the whole graph, this is the order of the
//! store. Edges with times are in the order of time, and only such views have them. Draws that are limited by times of sources need such views
//! as well: elsewhere, the sources until a time are no prefix of a list.

pub(crate) mod adjacency;
mod edge_features;
mod edge_filter;
mod edge_times;
mod files;
mod graph_view;
mod halo;
mod halo_lists;
mod kind;
mod list_starts;
mod load;
mod mapped;
mod memory;
mod opened;
mod positions;
mod relation_times;
mod sources;
mod spare;
mod storage;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod time_lists;
mod time_load;
mod turns;

pub use self::{
    edge_features::EdgeFeatures,
    edge_filter::EdgeData,
    graph_view::{GraphView, shape_of},
    halo::Halo,
    halo_lists::{Given, GraphHaloLists, HaloLists, HaloSizes},
    kind::ViewKind,
    opened::{PartitionView, ViewOptions},
    turns::{OpenView, TurnPlace, Turns, TurnsEpoch, ViewSource},
};
pub(crate) use self::{
    files::MappedMemory,
    graph_view::{GraphLists, owned_of_types},
    halo_lists::{HaloEdges, HaloPiece},
    opened::ViewLists,
    time_lists::{SearchedList, TimeGroup, TimeLimit, TimeLists},
};
