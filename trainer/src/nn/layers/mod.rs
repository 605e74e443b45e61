//! The layers.
//!
//! Each splits into a message, an aggregation and an update (see [`aggregate`](super::aggregate)), and leaves the
//! nonlinearity, norm and dropout that follow it to the model, except that an update computes them on the way if it is
//! told to. Parameters are called as PyTorch Geometric calls those of the layer's twin there.

mod gcn;
mod gin;
mod sage;

use std::fmt;

use tch::Tensor;

pub(crate) use self::{gcn::Gcn, gin::Gin, sage::Sage};
use super::{affine::Epilogue, aggregate::Aggregate};

/// A graph convolution.
pub(crate) trait Layer: fmt::Debug + Send {
    /// How it makes one row of those of the neighbours.
    fn aggregate(&self) -> Aggregate;

    /// What sources send: the rows to aggregate, from their hidden states `[sources, inputs]`.
    fn messages(&self, sources: &Tensor) -> Tensor {
        sources.shallow_clone()
    }

    /// New states of nodes from their own `[nodes, inputs]` and the aggregates of their neighbours' messages. `degrees` are
    /// their in-degrees in the whole graph, f32 of `[nodes]`, which only GCN uses.
    fn update(&self, own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor;
}
