//! The relations that a layer aggregates, in layers for graphs with types.

use grappa_run::model::RelationAggregate;
use tch::{Kind, Tensor};

/// A relation into the type of a layer.
#[derive(Debug, Clone)]
pub(crate) struct RelationInput {
    /// Its number among the relations of the graph.
    pub(crate) number: usize,
    /// The name of its module in PyTorch Geometric's HeteroConv.
    pub(crate) name: String,
    /// Width of the states of its sources.
    pub(crate) width: i64,
    /// Number of features of an edge: the values of its age.
    pub(crate) edge_features: i64,
}

/// The sum or the mean of tensors of relations.
pub(crate) fn combined<'a>(combine: RelationAggregate, relations: impl Iterator<Item = &'a Tensor>) -> Tensor {
    let all: Vec<&Tensor> = relations.collect();
    let sum = match &all[..] {
        [only] => return only.shallow_clone(),
        all => Tensor::stack(all, 0).sum_dim_intlist([0i64].as_slice(), false, Kind::Float),
    };
    sum * combine.factor(all.len())
}
