//! Minibatches: the [`Loader`] with its options, and the parts that it combines.
//!
//! [`partition`] says who owns which chunks, [`view`] holds the adjacency lists of a partition, and [`feed`] delivers
//! minibatches with the features of their nodes.

pub use grappa_formats::assignment::{Assignment, Owners, Serves};
pub use grappa_sampling::{
    InNeighbors, List, ListScratch, ListsPlace, Loader, LoaderBuilder, LoaderOptions, NeighborSample, NodeSet,
    NumberOptions, PartitionNumbers, Pieces, Remedy, Seeds, feed, partition, policy, sample::*, view,
};
