//! GATv2 (Brody, Alon, Yahav: "How Attentive are Graph Attention Networks?", 2022).

use tch::Tensor;

use super::{
    heads::Heads,
    layer::{Hop, Layer, RelationHop, layer_of_edges, rows_of_edges},
};
use crate::nn::{
    aggregate_kind::Aggregate,
    attention::pair_logits,
    backend::Backend,
    edge_weight::EdgeWeight,
    linear::{Epilogue, LinearLayer},
    parameters::{Builder, Start},
    reduction::{Attention, Reduction},
};

/// PyTorch Geometric's GATv2Conv: for each head, the mean of `lin_l(x)` over the neighbors and the node itself, with attention weights
/// softmax(att leaky_relu(lin_l(x_source) + lin_r(x_destination) + lin_edge(features of the edge))); plus a bias.
#[derive(Debug)]
pub(crate) struct Gatv2 {
    heads: Heads,
    bias: Tensor,
    attention: Tensor,
    sources: LinearLayer,
    destinations: LinearLayer,
    edges: Option<LinearLayer>,
}

impl Gatv2 {
    pub(crate) fn new(
        builder: &mut Builder,
        [inputs, outputs]: [i64; 2],
        heads: i64,
        last: bool,
        edge_features: usize,
    ) -> Self {
        let heads = Heads::new(outputs, heads, last);
        let (width, features) = (heads.values(), edge_features as i64);
        let bias = builder.parameter("bias", &[outputs], Start::Constant(0.0));
        let start = Start::glorot(heads.count, heads.width, 1.0);
        let attention = builder.parameter("att", &[1, heads.count, heads.width], start);
        let (start, bias_start) = (Start::glorot(width, inputs, 1.0), Start::linear(inputs));
        let [sources, destinations] =
            ["lin_l", "lin_r"].map(|name| LinearLayer::new(builder, name, [inputs, width], start, Some(bias_start)));
        Self {
            heads,
            bias,
            attention,
            sources,
            destinations,
            edges: layer_of_edges(builder, [features, width], Start::glorot(width, features, 1.0)),
        }
    }
}

impl Layer for Gatv2 {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Attention
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let features = self.edges.as_ref().map_or(0, LinearLayer::inputs);
        let RelationHop { block, sources } = hop.relation();
        let looped = block.with_own(features as usize);
        let edge_rows = self.edges.as_ref().map(|layer| rows_of_edges(looped, layer));
        let transformed = self.sources.in_f32(sources);
        let own = hop.of_destinations(&self.destinations);
        let logits = pair_logits(
            Backend::Fastest,
            looped,
            [&transformed, &own],
            edge_rows.as_ref(),
            &self.attention.view([-1]),
            self.heads.count,
        );
        let own = hop.wanted_own_states();
        hop.attended(own, looped, [&transformed, &logits], None)
    }

    fn messages(&self, _relation: usize, sources: &Tensor) -> Tensor {
        self.sources.in_f32(sources)
    }

    fn queries(&self, _relation: usize, own: &Tensor) -> Option<Tensor> {
        Some(Tensor::cat(&[self.sources.in_f32(own), self.destinations.in_f32(own)], 1))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        let attention = Vec::<f32>::try_from(&self.attention.view([-1])).expect("parameters are f32");
        let edges = self.edges.as_ref().map(EdgeWeight::new);
        Reduction::Attention(Attention {
            heads: self.heads.of_state(),
            attention: Some(attention),
            edges,
            has_loops: true,
        })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        self.heads.finish(&aggregated[0], &self.bias, epilogue, own.kind())
    }
}
