//! GINE (Hu, Liu, Gomes et al.: "Strategies for Pre-training Graph Neural Networks", 2020).

use tch::Tensor;

use super::{
    gin::Gin,
    layer::{Hop, Layer},
};
use crate::nn::{
    aggregate::{rows_of_edges, sum_of_edges, with_historical},
    aggregate_kind::Aggregate,
    backend::Backend,
    edge_weight::EdgeWeight,
    linear::{Epilogue, apply, linear},
    parameters::{Builder, Start},
    reduction::{Reduction, ReluSum},
};

/// PyTorch Geometric's GINEConv: GIN with the messages `relu(x_source + lin(features of the edge))`.
#[derive(Debug)]
pub(crate) struct Gine {
    gin: Gin,
    /// Weight and bias for the features of edges.
    edges: (Tensor, Tensor),
}

impl Gine {
    pub(crate) fn new(builder: &mut Builder, widths: [i64; 3], has_norm: bool, edge_features: usize) -> Self {
        let features = edge_features as i64;
        let start = Start::linear(features);
        Self {
            gin: Gin::new(builder, widths, has_norm),
            edges: builder.scope("lin", |builder| builder.linear([features, widths[0]], start, start)),
        }
    }
}

impl Layer for Gine {
    fn aggregate(&self) -> Aggregate {
        Aggregate::ReluSum
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Tensor) {
        let Hop { block, sources, .. } = hop;
        let (weight, bias) = &self.edges;
        let features = block.features(weight.size()[1] as usize).to_kind(sources.kind());
        let of_edges = linear(&[(&features, weight)], Some(bias), Epilogue::NONE);
        let messages = rows_of_edges(Backend::Fastest, block, sources) + of_edges;
        let messages = apply(&messages, Epilogue::RELU);
        let sums = sum_of_edges(Backend::Fastest, block, hop.scaling, &messages);
        (hop.own_states(), with_historical(sums, hop.historical))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        let (weight, bias) = &self.edges;
        Reduction::ReluSum(ReluSum(EdgeWeight::new(weight, Some(bias))))
    }

    fn update(&self, own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        self.gin.update(own, aggregated, degrees, epilogue)
    }
}
