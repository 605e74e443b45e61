//! GAT for each relation of a graph with types.

use grappa_formats::random;
use grappa_run::model::RelationAggregate;
use tch::{Kind, Tensor};

use super::{
    heads::Heads,
    layer::{Hop, Layer},
    relations::{RelationInput, combined},
};
use crate::nn::{
    aggregate::rows_of_edges,
    aggregate_kind::Aggregate,
    attention::{attend, sum_logits},
    backend::Backend,
    linear::{Dropout, Epilogue, float, linear},
    parameters::{Builder, Start},
    reduction::{Attention, Reduction},
};

/// PyTorch Geometric's HeteroConv of a GATConv without self-loops for each relation: the sum or the mean over relations of, for each head,
/// the mean of `lin_src(x)` over the neighbors with attention weights
/// softmax(leaky_relu(att_src lin_src(x_source) + att_dst lin_dst(x_destination) + att_edge lin_edge(features of the edge))); plus a bias. The
/// last term is of relations with features of edges.
#[derive(Debug)]
pub(crate) struct Rgat {
    heads: Heads,
    relations: Vec<RelationWeights>,
    combine: RelationAggregate,
}

#[derive(Debug)]
struct RelationWeights {
    number: u64,
    sources: Tensor,
    destinations: Tensor,
    source_attention: Tensor,
    destination_attention: Tensor,
    bias: Tensor,
    edges: Option<EdgeWeights>,
}

#[derive(Debug)]
struct EdgeWeights {
    features: usize,
    attention: Tensor,
    weight: Tensor,
}

impl Rgat {
    pub(crate) fn new(
        builder: &mut Builder,
        relations: &[RelationInput],
        own_width: i64,
        outputs: i64,
        heads: Heads,
        combine: RelationAggregate,
    ) -> Self {
        let shape = [1, heads.count, heads.width];
        let (values, attention) = (heads.values(), Start::glorot(heads.count, heads.width, 1.0));
        let relations = relations.iter().map(|relation| {
            let matrix = |builder: &mut Builder, name: &str, inputs: i64| {
                builder.parameter(name, &[values, inputs], Start::glorot(values, inputs, 1.0))
            };
            builder.scope(&relation.name, |builder| RelationWeights {
                number: relation.number as u64,
                source_attention: builder.parameter("att_src", &shape, attention),
                destination_attention: builder.parameter("att_dst", &shape, attention),
                bias: builder.parameter("bias", &[outputs], Start::Constant(0.0)),
                sources: matrix(builder, "lin_src.weight", relation.width),
                destinations: matrix(builder, "lin_dst.weight", own_width),
                edges: (relation.edge_features > 0).then(|| EdgeWeights {
                    features: relation.edge_features as usize,
                    attention: builder.parameter("att_edge", &shape, attention),
                    weight: matrix(builder, "lin_edge.weight", relation.edge_features),
                }),
            })
        });
        Self { relations: relations.collect(), heads, combine }
    }

    /// `attention weight x` of each head, `[rows, heads]`, by a product with a row for each head.
    fn scores(&self, attention: &Tensor, weight: &Tensor, rows: &Tensor) -> Tensor {
        let Heads { count, width, .. } = self.heads;
        let products = weight.view([count, width, -1]) * attention.view([count, width, 1]);
        let projection = products.sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
        float(&linear(&[(rows, &projection)], None, Epilogue::NONE))
    }
}

impl Layer for Rgat {
    fn aggregate(&self) -> Aggregate {
        Aggregate::AttentionToOthers
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let aggregated = self.relations.iter().zip(&hop.relations).map(|(weights, relation)| {
            let transformed = float(&linear(&[(relation.sources, &weights.sources)], None, Epilogue::NONE));
            let source_scores = self.scores(&weights.source_attention, &weights.sources, relation.sources);
            let nodes = hop.own.narrow(0, 0, relation.block.destination_nodes() as i64);
            let scores = self.scores(&weights.destination_attention, &weights.destinations, &nodes);
            let destination_scores = hop.values_of_destinations(&scores);
            let logits = match &weights.edges {
                None => sum_logits(Backend::Fastest, relation.block, &source_scores, &destination_scores),
                Some(EdgeWeights { features, attention, weight }) => {
                    let edge_scores = self.scores(attention, weight, relation.block.features(*features));
                    let scores = rows_of_edges(Backend::Fastest, relation.block, &source_scores) + edge_scores;
                    sum_logits(Backend::Fastest, relation.block.alone(), &scores, &destination_scores)
                }
            };
            let dropout = hop
                .dropout
                .as_ref()
                .map(|dropout| Dropout { key: random::combine(dropout.key, weights.number), ..dropout.clone() });
            attend(Backend::Fastest, relation.block, &transformed, None, &logits, dropout)
        });
        let aggregated = aggregated.collect();
        (hop.wanted_own_states(), aggregated)
    }

    fn messages(&self, relation: usize, sources: &Tensor) -> Tensor {
        let weights = &self.relations[relation];
        let transformed = float(&linear(&[(sources, &weights.sources)], None, Epilogue::NONE));
        let scores = self.scores(&weights.source_attention, &weights.sources, sources);
        Tensor::cat(&[transformed, scores], 1)
    }

    fn queries(&self, relation: usize, own: &Tensor) -> Option<Tensor> {
        let weights = &self.relations[relation];
        Some(self.scores(&weights.destination_attention, &weights.destinations, own))
    }

    fn reduction(&self, _width: usize) -> Reduction {
        Reduction::Attention(Attention { heads: self.heads.of_state(), attention: None, edges: None, has_loops: false })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let heads = combined(self.combine, aggregated.iter());
        let bias = combined(self.combine, self.relations.iter().map(|weights| &weights.bias));
        self.heads.finish(&heads, &bias, epilogue, own.kind())
    }
}
