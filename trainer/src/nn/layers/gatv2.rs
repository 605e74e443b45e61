//! GATv2 (Brody, Alon, Yahav: "How Attentive are Graph Attention Networks?", 2022).

use tch::Tensor;

use super::{
    heads::Heads,
    layer::{Hop, Layer},
};
use crate::nn::{
    aggregate::{own_states, with_historical},
    aggregate_kind::Aggregate,
    attention::{attend, pair_logits},
    backend::Backend,
    edge_weight::EdgeWeight,
    linear::{Epilogue, float, linear},
    parameters::{Builder, Start},
    reduction::{Attention, Reduction},
};

/// PyTorch Geometric's GATv2Conv: for each head, the mean of `lin_l(x)` over the neighbors and the node itself, with attention weights
/// softmax(att leaky_relu(lin_l(x_source) + lin_r(x_destination) + lin_edge(features of the edge))); plus a bias.
#[derive(Debug)]
pub(crate) struct Gatv2 {
    heads: Heads,
    attention: Tensor,
    /// Weight and bias.
    sources: (Tensor, Tensor),
    destinations: (Tensor, Tensor),
    /// Weight for the features of edges, if the layer takes them.
    edges: Option<Tensor>,
}

impl Gatv2 {
    pub(crate) fn new(
        builder: &mut Builder,
        [inputs, outputs]: [i64; 2],
        heads: i64,
        last: bool,
        edge_features: usize,
    ) -> Self {
        let heads = Heads::new(builder, outputs, heads, last);
        let width = heads.count * heads.width;
        let start = Start::glorot(heads.count, heads.width, 1.0);
        let attention = builder.parameter("att", &[1, heads.count, heads.width], start);
        let (start, bias) = (Start::glorot(width, inputs, 1.0), Start::linear(inputs));
        let [sources, destinations] =
            ["lin_l", "lin_r"].map(|name| builder.scope(name, |builder| builder.linear([inputs, width], start, bias)));
        let features = edge_features as i64;
        let edges = (features > 0).then(|| {
            builder.parameter(
                "lin_edge.weight",
                &[width, features],
                Start::glorot(width, features, 1.0),
            )
        });
        Self {
            heads,
            attention,
            sources,
            destinations,
            edges,
        }
    }

    /// Features of an edge that the layer takes.
    fn edge_features(&self) -> usize {
        self.edges.as_ref().map_or(0, |weight| weight.size()[1] as usize)
    }

    fn sources(&self, rows: &Tensor) -> Tensor {
        let (weight, bias) = &self.sources;
        float(&linear(&[(rows, weight)], Some(bias), Epilogue::NONE))
    }

    fn destinations(&self, rows: &Tensor) -> Tensor {
        let (weight, bias) = &self.destinations;
        float(&linear(&[(rows, weight)], Some(bias), Epilogue::NONE))
    }
}

impl Layer for Gatv2 {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Attention
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Tensor) {
        let features = self.edge_features();
        let looped = hop.block.with_own(features);
        let of_edges = self.edges.as_ref();
        let of_edges = of_edges.map(|weight| linear(&[(looped.features(features), weight)], None, Epilogue::NONE));
        let transformed = self.sources(hop.sources);
        // A product of each node, not of each destination.
        let of_nodes = self.destinations(&hop.sources.narrow(0, 0, hop.block.destination_nodes() as i64));
        let own = own_states(Backend::Fastest, hop.block, &of_nodes);
        let attention = self.attention.view([-1]);
        let logits = pair_logits(
            Backend::Fastest,
            looped,
            [&transformed, &own],
            of_edges.as_ref(),
            &attention,
            self.heads.count,
        );
        let own_states = hop.wanted_own_states();
        let aggregated = attend(Backend::Fastest, looped, &transformed, &logits, hop.dropout);
        (own_states, with_historical(aggregated, hop.historical))
    }

    fn messages(&self, sources: &Tensor) -> Tensor {
        self.sources(sources)
    }

    fn queries(&self, own: &Tensor) -> Option<Tensor> {
        Some(Tensor::cat(&[self.sources(own), self.destinations(own)], 1))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        let attention = Vec::<f32>::try_from(&self.attention.view([-1])).expect("parameters are f32");
        let (heads, width) = (self.heads.count as usize, self.heads.width as usize);
        let edges = self.edges.as_ref().map(|weight| EdgeWeight::new(weight, None));
        Reduction::Attention(Attention::gatv2(heads, width, attention, edges))
    }

    fn update(&self, own: &Tensor, aggregated: &Tensor, _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        self.heads.finish(aggregated, epilogue, own.kind())
    }
}
