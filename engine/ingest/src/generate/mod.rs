//! Writes synthetic graphs: stores, edge lists, and files of features, classes and splits.
//!
//! The in-edges of a node are a function of the recipe and the node ([`grappa_synthetic`]). So each chunk of a store is
//! generated alone, in its final order, without an external sort.

mod edge_list;
pub mod graph;
mod node_files;
pub mod store;

pub use self::{
    edge_list::{EdgeListFormat, EdgeListSummary, print_edge_list, write_edge_list},
    node_files::{check_features_memory, write_classes, write_features, write_split},
};
