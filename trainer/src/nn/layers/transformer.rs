//! The transformer convolution (Shi et al.: "Masked Label Prediction: Unified Message Passing Model for Semi-Supervised Classification",
//! 2021).

use tch::{Kind, Tensor};

use super::{
    heads::combined,
    layer::{Hop, Layer},
};
use crate::nn::{
    aggregate::{own_states, with_historical},
    aggregate_kind::Aggregate,
    attention::{attend_along, dot_logits},
    backend::Backend,
    dot_attention::DotAttention,
    edge_weight::EdgeWeight,
    linear::{Epilogue, apply, float, linear},
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
    heads: i64,
    head_width: i64,
    /// Whether the result is the mean of the heads, and not their concatenation.
    mean: bool,
    /// Weight and bias.
    key: (Tensor, Tensor),
    query: (Tensor, Tensor),
    value: (Tensor, Tensor),
    skip: (Tensor, Tensor),
    /// Weight for the features of edges, if the layer takes them.
    edges: Option<Tensor>,
}

impl Transformer {
    pub(crate) fn new(
        builder: &mut Builder,
        [inputs, outputs]: [i64; 2],
        heads: i64,
        last: bool,
        edge_features: usize,
    ) -> Self {
        let head_width = if last { outputs } else { outputs / heads };
        let (width, features) = (heads * head_width, edge_features as i64);
        let mut linear = |name: &str, outputs: i64| {
            let start = Start::linear(inputs);
            builder.scope(name, |builder| builder.linear([inputs, outputs], start, start))
        };
        let [key, query, value] = ["lin_key", "lin_query", "lin_value"].map(|name| linear(name, width));
        let skip = linear("lin_skip", outputs);
        let edges =
            (features > 0).then(|| builder.parameter("lin_edge.weight", &[width, features], Start::linear(features)));
        Self {
            heads,
            head_width,
            mean: last,
            key,
            query,
            value,
            skip,
            edges,
        }
    }

    fn width(&self) -> i64 {
        self.heads * self.head_width
    }
}

/// `W x + b`, f32.
fn transformed(rows: &Tensor, (weight, bias): &(Tensor, Tensor)) -> Tensor {
    float(&linear(&[(rows, weight)], Some(bias), Epilogue::NONE))
}

impl Layer for Transformer {
    fn aggregate(&self) -> Aggregate {
        Aggregate::AttentionToOthers
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Tensor) {
        let Hop { block, sources, .. } = hop;
        // A product of each node, not of each destination.
        let of_nodes = transformed(&sources.narrow(0, 0, block.destination_nodes() as i64), &self.query);
        let queries = own_states(Backend::Fastest, block, &of_nodes);
        let [keys, values] = [&self.key, &self.value].map(|layer| transformed(sources, layer));
        let of_edges = self.edges.as_ref();
        let of_edges = of_edges.map(|weight| {
            let features = weight.size()[1] as usize;
            linear(&[(block.features(features), weight)], None, Epilogue::NONE)
        });
        let logits = dot_logits(
            Backend::Fastest,
            block,
            [&keys, &queries],
            of_edges.as_ref(),
            self.heads,
        );
        let logits = logits / (self.head_width as f64).sqrt();
        let own_states = hop.own_states();
        let aggregated = attend_along(
            Backend::Fastest,
            block,
            &values,
            of_edges.as_ref(),
            &logits,
            hop.dropout,
        );
        (own_states, with_historical(aggregated, hop.historical))
    }

    fn messages(&self, sources: &Tensor) -> Tensor {
        Tensor::cat(&[transformed(sources, &self.key), transformed(sources, &self.value)], 1)
    }

    fn queries(&self, own: &Tensor) -> Option<Tensor> {
        Some(transformed(own, &self.query))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        let edges = self.edges.as_ref().map(|weight| EdgeWeight::new(weight, None));
        let [heads, width] = [self.heads, self.width()].map(|size| size as usize);
        Reduction::DotAttention(DotAttention::new(heads, width, edges))
    }

    fn update(&self, own: &Tensor, aggregated: &Tensor, _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let values = combined(&aggregated.to_kind(Kind::Float), self.heads, self.mean);
        apply(&(values + transformed(own, &self.skip)), epilogue).to_kind(own.kind())
    }
}
