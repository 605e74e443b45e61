//! GAT (Veličković et al.: "Graph Attention Networks", 2018).

use tch::{Kind, Tensor};

use super::{
    heads::Heads,
    layer::{Hop, Layer, RelationHop},
};
use crate::nn::{
    aggregate_kind::Aggregate,
    attention::sum_logits,
    backend::Backend,
    linear::{Epilogue, float, linear},
    parameters::{Builder, Start},
    reduction::{Attention, Reduction},
};

/// PyTorch Geometric's GATConv: for each head, the mean of `W x` over the neighbors and the node itself, with attention weights
/// softmax(leaky_relu(att_src W x_source + att_dst W x_destination)); plus a bias.
///
/// A message is the `W x` of all heads, then the `att_src W x` of each head.
#[derive(Debug)]
pub(crate) struct Gat {
    heads: Heads,
    bias: Tensor,
    weight: Tensor,
    source_attention: Tensor,
    destination_attention: Tensor,
}

impl Gat {
    pub(crate) fn new(builder: &mut Builder, inputs: i64, outputs: i64, heads: i64, last: bool) -> Self {
        let heads = Heads::new(outputs, heads, last);
        let shape = [1, heads.count, heads.width];
        let start = Start::glorot(heads.count, heads.width, 1.0);
        let width = heads.values();
        Self {
            bias: builder.parameter("bias", &[outputs], Start::Constant(0.0)),
            source_attention: builder.parameter("att_src", &shape, start),
            destination_attention: builder.parameter("att_dst", &shape, start),
            weight: builder.parameter("lin.weight", &[width, inputs], Start::glorot(width, inputs, 1.0)),
            heads,
        }
    }

    fn transformed(&self, rows: &Tensor) -> Tensor {
        float(&linear(&[(rows, &self.weight)], None, Epilogue::NONE))
    }

    /// `att W x` of each head, first with the attention of sources, then with the attention of destinations: `[rows, 2 * heads]`.
    ///
    /// `att W` is a row for each head. So the scores cost a product with few columns, and their gradient does not pass through `W x`, which
    /// would take several passes over rows as wide as all heads.
    fn scores(&self, rows: &Tensor) -> Tensor {
        let Heads { count, width, .. } = self.heads;
        let weight = self.weight.view([count, width, -1]);
        let projections = [&self.source_attention, &self.destination_attention].map(|attention| {
            let products = &weight * attention.view([count, width, 1]);
            products.sum_dim_intlist([1i64].as_slice(), false, Kind::Float)
        });
        float(&linear(&[(rows, &Tensor::cat(&projections, 0))], None, Epilogue::NONE))
    }
}

impl Layer for Gat {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Attention
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let RelationHop { block, sources } = hop.relation();
        let transformed = self.transformed(sources);
        let looped = block.with_own(0);
        let scores = self.scores(sources);
        let heads = self.heads.count;
        let destination_scores = hop.values_of_destinations(&scores.narrow(1, heads, heads));
        let logits = sum_logits(Backend::Fastest, looped, &scores.narrow(1, 0, heads), &destination_scores);
        let own = hop.wanted_own_states();
        hop.attended(own, looped, [&transformed, &logits], None)
    }

    fn messages(&self, _relation: usize, sources: &Tensor) -> Tensor {
        let source_scores = self.scores(sources).narrow(1, 0, self.heads.count);
        Tensor::cat(&[self.transformed(sources), source_scores], 1)
    }

    fn queries(&self, _relation: usize, own: &Tensor) -> Option<Tensor> {
        Some(Tensor::cat(&[self.transformed(own), self.scores(own)], 1))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        Reduction::Attention(Attention { heads: self.heads.of_state(), attention: None, edges: None, has_loops: true })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        self.heads.finish(&aggregated[0], &self.bias, epilogue, own.kind())
    }
}
