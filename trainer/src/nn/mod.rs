//! Graph neural networks: layers, models and losses.
//!
//! A [`Model`] is a stack of graph convolutions. It is trained on minibatches ([`Model::forward`] over [`Block`]s), and
//! applied to whole graphs layer by layer ([`Model::messages`], [`Model::queries`],
//! [`Model::reduction`] and [`Model::update`], chunk by chunk).
//!
//! Layers compute what those of PyTorch Geometric do; the tests compare values and gradients with arrays from there.
//!
//! On a processor, what takes time runs in loops of our own (`crate::kernels`); on other devices everything is libtorch's
//! operators. Both are deterministic on a processor, whatever the number of threads, as long as libtorch's own operators
//! are.

mod affine;
mod aggregate;
mod attention;
mod graph;
mod layers;
mod loss;
mod model;
mod neighbour;
mod norm;
mod parameters;
mod reduction;
#[cfg(test)]
mod tests;
mod weights;

pub use self::{
    aggregate::{Aggregate, History, Scaling, aggregate},
    graph::Block,
    loss::losses,
    model::{Input, Model, Pass},
    neighbour::Neighbour,
    parameters::Parameters,
    reduction::{Attention, Reduction},
};
