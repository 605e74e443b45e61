//! From seeds to minibatches: which nodes and edges a training step sees.
//!
//! A [`Minibatch`] is what DGL calls message-flow graphs: one [`Block`] a hop, and the nodes that all of them number.

mod minibatch;

pub use minibatch::{Block, Minibatch};
