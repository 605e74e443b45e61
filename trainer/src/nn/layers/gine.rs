//! GINE (Hu, Liu, Gomes et al.: "Strategies for Pre-training Graph Neural Networks", 2020).

use tch::Tensor;

use super::{
    gin::Gin,
    layer::{Hop, Layer, RelationHop},
};
use crate::nn::{
    aggregate::{rows_of_edges, sum_of_edges, with_historical},
    aggregate_kind::Aggregate,
    backend::Backend,
    edge_weight::EdgeWeight,
    linear::{Epilogue, LinearLayer, apply},
    parameters::Builder,
    reduction::{Reduction, ReluSum},
};

/// PyTorch Geometric's GINEConv: GIN with the messages `relu(x_source + lin(features of the edge))`.
#[derive(Debug)]
pub(crate) struct Gine {
    gin: Gin,
    edges: LinearLayer,
}

impl Gine {
    pub(crate) fn new(builder: &mut Builder, widths: [i64; 3], has_norm: bool, edge_features: usize) -> Self {
        Self {
            gin: Gin::new(builder, widths, has_norm),
            edges: LinearLayer::of_pytorch(builder, "lin", [edge_features as i64, widths[0]]),
        }
    }
}

impl Layer for Gine {
    fn aggregate(&self) -> Aggregate {
        Aggregate::ReluSum
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let RelationHop { block, sources } = hop.relation();
        let features = block.features(self.edges.inputs() as usize).to_kind(sources.kind());
        let messages = rows_of_edges(Backend::Fastest, block, sources) + self.edges.apply(&features, Epilogue::NONE);
        let messages = apply(&messages, Epilogue::RELU);
        let sums = sum_of_edges(Backend::Fastest, block, hop.scaling, &messages);
        (hop.own_states(), vec![with_historical(sums, hop.historical)])
    }

    fn reduction(&self, _width: usize) -> Reduction {
        Reduction::ReluSum(ReluSum(EdgeWeight::new(&self.edges)))
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        self.gin.update(own, aggregated, degrees, epilogue)
    }
}
