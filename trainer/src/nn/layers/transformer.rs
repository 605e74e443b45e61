//! The transformer convolution (Shi et al.: "Masked Label Prediction: Unified Message Passing Model for Semi-Supervised Classification",
//! 2021).

use tch::Tensor;

use super::{
    heads::Heads,
    layer::{Hop, Layer, RelationHop, layer_of_edges, rows_of_edges},
};
use crate::nn::{
    aggregate_kind::Aggregate,
    attention::dot_logits,
    backend::Backend,
    dot_attention::DotAttention,
    edge_weight::EdgeWeight,
    linear::{Epilogue, LinearLayer},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// PyTorch Geometric's TransformerConv: for each head, the mean of `lin_value(x) + e` over the neighbors, with attention weights
/// softmax(lin_query(x_destination) (lin_key(x_source) + e) / sqrt(d)), with e = lin_edge(features of the edge) and d values of a head; plus
/// lin_skip(x). The node itself is no neighbor.
///
/// A message is the key, then the value.
#[derive(Debug)]
pub(crate) struct Transformer {
    heads: Heads,
    key: LinearLayer,
    query: LinearLayer,
    value: LinearLayer,
    skip: LinearLayer,
    edges: Option<LinearLayer>,
}

impl Transformer {
    pub(crate) fn new(
        builder: &mut Builder,
        [inputs, outputs]: [i64; 2],
        heads: i64,
        last: bool,
        edge_features: usize,
    ) -> Self {
        let heads = Heads::new(outputs, heads, last);
        let (width, features) = (heads.values(), edge_features as i64);
        let [key, query, value] =
            ["lin_key", "lin_query", "lin_value"].map(|name| LinearLayer::of_pytorch(builder, name, [inputs, width]));
        Self {
            heads,
            key,
            query,
            value,
            skip: LinearLayer::of_pytorch(builder, "lin_skip", [inputs, outputs]),
            edges: layer_of_edges(builder, [features, width], Start::linear(features)),
        }
    }
}

impl Layer for Transformer {
    fn aggregate(&self) -> Aggregate {
        Aggregate::AttentionToOthers
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let RelationHop { block, sources } = hop.relation();
        let queries = hop.of_destinations(&self.query);
        let [keys, values] = [&self.key, &self.value].map(|layer| layer.in_f32(sources));
        let edge_rows = self.edges.as_ref().map(|layer| rows_of_edges(block, layer));
        let rows = [&keys, &queries];
        let logits = dot_logits(Backend::Fastest, block, rows, edge_rows.as_ref(), self.heads.count);
        let logits = logits / (self.heads.width as f64).sqrt();
        let own = hop.own_states();
        hop.attended(own, block, [&values, &logits], edge_rows.as_ref())
    }

    fn messages(&self, _relation: usize, sources: &Tensor) -> Tensor {
        Tensor::cat(&[self.key.in_f32(sources), self.value.in_f32(sources)], 1)
    }

    fn queries(&self, _relation: usize, own: &Tensor) -> Option<Tensor> {
        Some(self.query.in_f32(own))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        let edges = self.edges.as_ref().map(EdgeWeight::new);
        Reduction::DotAttention(DotAttention { heads: self.heads.of_state(), edges })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        self.heads.finish(&aggregated[0], &self.skip.in_f32(own), epilogue, own.kind())
    }
}
