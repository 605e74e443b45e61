//! Writes synthetic graphs: stores, edge lists and files of features, classes and splits.
//!
//! No sort is needed. The in-edges of a node are a function of the recipe and the node ([`grappa_synthetic`]), so each chunk
//! of a store is made alone, in its final order.

mod edge_list;
mod in_order;
mod node_files;
pub mod store;

pub use self::{
    edge_list::{EdgeListFormat, EdgeListSummary, write_edge_list},
    node_files::{write_classes, write_features, write_split},
};
