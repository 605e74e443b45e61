//! Graph neural networks: layers, models and losses.
//!
//! A [`Model`] is a stack of graph convolutions. [`Model::forward`] trains it on minibatches, which are [`Block`]s. Exact
//! inference applies it to whole graphs, layer by layer and chunk by chunk, with [`Model::messages`], [`Model::queries`],
//! [`Model::reduction`] and [`Model::update`].
//!
//! Layers compute the same as layers of PyTorch Geometric. The tests compare values and gradients with arrays from there.
//!
//! On a processor, the expensive operations are our own loops (`grappa-kernels`). On other devices all operations are
//! libtorch's. On a processor, our loops give the same bits for any number of threads.

mod activation;
mod aggregate;
mod aggregate_kind;
mod attention;
mod backend;
mod decoder;
mod dot_attention;
mod edge_weight;
mod features;
mod file;
mod graph;
mod historical;
mod jump;
mod layer_shape;
mod layers;
mod layerwise;
mod linear;
mod loss;
mod model;
mod neighbor;
mod norm;
mod parameters;
mod pass;
mod reduction;
mod scaled;
mod softmax;
#[cfg(test)]
mod tests;
mod typewise;

pub use self::{
    aggregate::aggregate,
    aggregate_kind::{Aggregate, Scaling},
    decoder::LinkDecoder,
    dot_attention::DotAttention,
    graph::Block,
    historical::{HistoricalEmbeddings, Neighbor},
    loss::Loss,
    model::{Input, Model},
    parameters::Parameters,
    pass::{Names, Pass},
    reduction::{Attention, Reduction, ReluSum, WeightedGcn},
    typewise::TypeStep,
};
pub(crate) use self::{decoder::PairScore, features::ChangedRows, layer_shape::module_key, layers::gcn_factors};
