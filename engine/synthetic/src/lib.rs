//! Synthetic graphs of any size. Any part of a graph can be generated alone.
//!
//! A [`Recipe`] is a model and a seed, and determines a graph. Every adjacency list, class, split and feature row is a
//! function of the recipe and of a node's *label*, its external id in `0..nodes`. So results do not depend on the number of
//! threads or chunks, or on the machine, and a slice of a graph of 10^12 edges costs as much as the slice's edges.
//!
//! ```text
//! in-degree of a label:   one Poisson number; the model gives the mean
//! sources of its edges:   drawn independently of each other, given the label
//! adjacency list:         sources mapped by the node permutation, sorted in cache
//! ```
//!
//! No threads communicate, and no sort over edges is needed. For R-MAT this is exact. A Poisson number of independent edges,
//! divided by destination, gives independent Poisson numbers. And a bit of the source depends only on the same bit of the
//! destination.
//!
//! The number of edges is random too: Poisson-distributed with mean [`Generator::expected_edges`]. Parallel edges and
//! self-loops occur as in the models; [`AdjacencyBuffer::apply`] removes them.
//!
//! Cost per edge and thread, R-MAT with the parameters of Graph500 and edge factor 16: 5 ns to draw, 11 ns to draw, map
//! and sort at scale 24; 7 and 14 ns at scale 36 (AMD EPYC, 5th generation, 2^20 consecutive nodes). An adjacency list
//! must fit in memory twice ([`Generator::largest_degree_estimate`]), or be generated in parts
//! ([`Generator::adjacency_window`]).
//!
//! This crate only computes. `grappa_ingestion::generate` writes stores and files.
//!
//! The graph of a recipe never changes. Tests have checksums of some graphs. A change of the algorithm must raise
//! [`Recipe::VERSION`].

#![forbid(unsafe_code)]

mod alias;
mod block;
mod features;
mod generator;
mod graph;
mod lists;
mod patterns;
mod poisson;
pub mod random;
mod recipe;
mod relation;
mod rmat;

pub use self::{
    block::BlockModel,
    features::Features,
    generator::Generator,
    graph::{GraphRecipe, NodeTypeRecipe, RelationMember, RelationRecipe},
    lists::{AdjacencyBuffer, AdjacencyLists},
    patterns::RmatClasses,
    recipe::{ErdosRenyi, Model, Recipe, Split, SplitShares},
    relation::{Degrees, RelationModel},
    rmat::Rmat,
};

#[cfg(test)]
mod tests;
