//! From a store to minibatches with features.
//!
//! - [`partition`] assigns chunks to partitions and says which edges each partition sees;
//! - [`view`] reads the adjacency lists that a partition sees, in memory or mapped;
//! - [`sample`] draws minibatches from a view;
//! - [`feed`] delivers these with the features of their nodes;
//! - [`Loader`] puts all of this together under one memory budget.
//!
//! A minibatch is a function of the store, the sampler, the seed nodes and the batch's key. It does not depend on threads,
//! memory, or the kind of view.

#![forbid(unsafe_code)]

pub mod feed;
mod loader;
pub mod partition;
pub mod sample;
pub mod view;

pub use loader::{Loader, LoaderBuilder, LoaderOptions, Seeds};
