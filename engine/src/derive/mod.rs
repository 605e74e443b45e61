//! Data that is computed once from a finished store and added to it.
//!
//! - [`features`] computes features from the graph, for a store that has none;
//! - [`preaggregate`](mod@preaggregate) reduces the features of each node's in-neighbors, so that training and sampling skip a
//!   hop.

pub mod features;
pub mod preaggregate;
