//! The layers.
//!
//! Each consists of a message, an aggregation and an update (see [`aggregate`](mod@super::aggregate)). The residual, norm, nonlinearity and
//! dropout that follow belong to the model. An update can compute relu and dropout in the same pass. Parameters have the names of the
//! same layer in PyTorch Geometric.

mod gat;
mod gatv2;
mod gcn;
mod gin;
mod gine;
mod heads;
mod hgt;
mod layer;
mod pinsage;
mod relations;
mod rgat;
mod rgcn;
mod rsage;
mod sage;
mod transformer;

pub(crate) use self::{
    gat::Gat,
    gatv2::Gatv2,
    gcn::{Gcn, gcn_factors},
    gin::Gin,
    gine::Gine,
    heads::Heads,
    hgt::HgtWeights,
    layer::{Hop, Layer, RelationHop, WeightsFirst},
    pinsage::PinSage,
    relations::RelationInput,
    rgat::Rgat,
    rgcn::Rgcn,
    rsage::Rsage,
    sage::Sage,
    transformer::Transformer,
};
