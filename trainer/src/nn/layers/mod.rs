//! The layers.
//!
//! Each splits into a message, an aggregation and an update (see [`aggregate`](super::aggregate)), and leaves the
//! nonlinearity, norm and dropout that follow it to the model, except that an update computes them on the way if it is
//! told to. Parameters are called as PyTorch Geometric calls those of the layer's twin there.

mod gat;
mod gatv2;
mod gcn;
mod gin;
mod heads;
mod pinsage;
mod sage;

use std::fmt;

use tch::Tensor;

pub(crate) use self::{gat::Gat, gatv2::Gatv2, gcn::Gcn, gin::Gin, pinsage::PinSage, sage::Sage};
use super::{
    aggregate::{Aggregate, Backend, HistoricalEmbeddings, Scaling, own_and_aggregate},
    graph::Block,
    linear::Epilogue,
    reduction::Reduction,
};

/// A graph convolution.
pub(crate) trait Layer: fmt::Debug + Send {
    /// How it makes one row of those of the neighbours.
    fn aggregate(&self) -> Aggregate;

    /// What sources send: the rows to aggregate, from their hidden states `[sources, inputs]`. Where it is not those states,
    /// [`Layer::neighbours`] is another, too.
    fn messages(&self, sources: &Tensor) -> Tensor {
        sources.shallow_clone()
    }

    /// What attention must know of destinations, from their hidden states `[destinations, inputs]`.
    fn queries(&self, _own: &Tensor) -> Option<Tensor> {
        None
    }

    /// The hidden states of the destinations of a block, `[destinations, inputs]`, and the aggregates of their neighbours'
    /// messages, `[destinations, width]`, from the hidden states of its sources.
    fn neighbours(
        &self,
        block: &Block,
        sources: &Tensor,
        scaling: Scaling,
        historical: Option<&HistoricalEmbeddings>,
    ) -> (Tensor, Tensor) {
        own_and_aggregate(Backend::Fastest, block, self.aggregate(), scaling, sources, historical)
    }

    /// The aggregation over all in-neighbours, for rows of `width` at the layer's input.
    fn reduction(&self, width: usize) -> Reduction;

    /// New states of nodes from their own `[nodes, inputs]` and the aggregates of their neighbours' messages. `degrees` are
    /// their in-degrees in the whole graph, f32 of `[nodes]`, which only GCN uses.
    fn update(&self, own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor;
}
