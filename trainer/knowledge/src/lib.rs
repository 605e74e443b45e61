//! Embeddings of knowledge graphs: a row is learned for each entity and each relation, from triples of head, relation and tail.
//!
//! - [`rows`]: tables of learnable rows, their optimizer, and their files in the folder of a run;
//! - [`decoder`], [`similarity`], [`loss`]: the score of a triple, and its loss among negatives;
//! - [`step`]: the gradients of a batch;
//! - [`triples`], [`buckets`], [`residents`]: triples in buckets of two partitions of entities, whose rows are in memory;
//! - [`evaluate`]: filtered ranks of heads and tails;
//! - [`train()`]: a run.
//!
//! The crate does not link libtorch: scores of products are products of matrices by the kernels of Grappa, and gradients are written out.
//! Results do not depend on the number of threads.

#![forbid(unsafe_code)]

pub mod buckets;
pub mod decoder;
mod distances;
mod dropout;
mod error;
pub mod evaluate;
mod learned;
pub mod loss;
pub mod matrix;
pub mod residents;
pub mod rows;
mod session;
pub mod side;
pub mod similarity;
pub mod step;
#[cfg(test)]
mod tests;
pub mod triples;

pub use self::{
    error::{Error, Result},
    learned::{BestTails, LearnedRows},
    session::train,
};
