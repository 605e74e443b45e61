//! Minibatches with features, sampled from a store.
//!
//! - [`partition`] assigns chunks to partitions and defines which edges each partition sees;
//! - [`view`] holds the adjacency lists of a partition, in memory or mapped;
//! - [`sample`] draws minibatches from a view;
//! - [`feed`] delivers minibatches with the features of their nodes;
//! - [`Loader`] combines all of these under one memory budget.
//!
//! A minibatch depends on the store, the sampler, the seed nodes and the batch key. It does not depend on threads,
//! memory, or the kind of view.

#![forbid(unsafe_code)]

pub mod feed;
mod halo_neighbors;
mod in_neighbors;
pub mod links;
mod loader;
mod names;
mod node_set;
pub mod partition;
mod placement;
pub mod policy;
pub mod sample;
mod shape;
mod sweep;
mod tags;
pub mod view;

pub use halo_neighbors::{halo_neighbors_auto, halo_neighbors_fit};
pub use in_neighbors::{DecodedEdges, EdgeValues, InNeighbors, List, ListScratch, NeighborSample, Pieces};
pub use loader::{Loader, LoaderBuilder, LoaderOptions, NumberOptions, ScratchOptions, SeedTimes, Seeds};
pub use node_set::NodeSet;
pub use placement::{
    ListsBudget, ListsPlace, NumberChoice, PartitionNumbers, PartitionSizes, Remedy, holds_minibatches,
};
pub use shape::{GraphShape, RelationEnds};
pub use sweep::{SweepEpoch, SweepOptions, Sweeps};
