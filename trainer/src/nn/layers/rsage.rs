//! GraphSAGE for each relation of a graph with types.

use grappa_engine::aggregate::Mean;
use grappa_run::model::RelationAggregate;
use tch::Tensor;

use super::{
    layer::{Hop, Layer},
    relations::{RelationInput, combined},
};
use crate::nn::{
    aggregate::aggregate,
    aggregate_kind::{Aggregate, Scaling},
    linear::{Epilogue, linear},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// PyTorch Geometric's HeteroConv of a SAGEConv for each relation: the sum or the mean over relations of
/// `lin_l(mean of neighbors) + lin_r(x)`. Of a relation with features of edges, the neighbors of a node are their states, each followed by the
/// features of its edge.
#[derive(Debug)]
pub(crate) struct Rsage {
    relations: Vec<RelationWeights>,
    combine: RelationAggregate,
}

#[derive(Debug)]
struct RelationWeights {
    neighbors: Tensor,
    bias: Tensor,
    own: Tensor,
    edge_features: i64,
}

impl Rsage {
    pub(crate) fn new(
        builder: &mut Builder,
        relations: &[RelationInput],
        own_width: i64,
        outputs: i64,
        combine: RelationAggregate,
    ) -> Self {
        let relations = relations.iter().map(|relation| {
            let width = relation.width + relation.edge_features;
            builder.scope(&relation.name, |builder| RelationWeights {
                edge_features: relation.edge_features,
                neighbors: builder.parameter("lin_l.weight", &[outputs, width], Start::linear(width)),
                bias: builder.parameter("lin_l.bias", &[outputs], Start::linear(width)),
                own: builder.parameter("lin_r.weight", &[outputs, own_width], Start::linear(own_width)),
            })
        });
        Self { relations: relations.collect(), combine }
    }
}

impl Layer for Rsage {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Mean
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let means = hop.aggregates(Aggregate::Mean).into_iter().zip(&hop.relations).zip(&self.relations);
        let means = means.map(|((states, relation), weights)| match weights.edge_features {
            0 => states,
            count => {
                let features = relation.block.features(count as usize).to_kind(states.kind());
                let of_edges = aggregate(relation.block.alone(), Aggregate::Mean, Scaling::None, &features, None);
                Tensor::cat(&[states, of_edges], 1)
            }
        });
        (hop.own_states(), means.collect())
    }

    fn reduction(&self, width: usize) -> Reduction {
        Reduction::Mean(Mean { width })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        // All relations take the same own states, so one product with the sum of their matrices is enough.
        let own_weight = combined(self.combine, self.relations.iter().map(|weights| &weights.own));
        let bias = combined(self.combine, self.relations.iter().map(|weights| &weights.bias));
        let factor = self.combine.factor(self.relations.len());
        let weights: Vec<Tensor> = self.relations.iter().map(|weights| &weights.neighbors * factor).collect();
        let terms: Vec<(&Tensor, &Tensor)> = aggregated.iter().zip(&weights).chain([(own, &own_weight)]).collect();
        linear(&terms, Some(&bias), epilogue)
    }
}
