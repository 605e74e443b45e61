//! R-GCN (Schlichtkrull, Kipf, Bloem, van den Berg, Titov, Welling: "Modeling Relational Data with Graph Convolutional Networks", 2018).

use grappa_engine::aggregate::Mean;
use tch::Tensor;

use super::{
    layer::{Hop, Layer},
    relations::RelationInput,
};
use crate::nn::{
    aggregate_kind::Aggregate,
    linear::{Epilogue, linear},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// PyTorch Geometric's RGCNConv on the graph as one of a single type, with a relation type for each relation:
/// `x root + sum over relations of (mean of neighbors) weight[relation] + bias`. The layers of all types share these.
///
/// With bases, the matrix of a relation is the sum of `comp[relation, base] weight[base]`.
#[derive(Debug)]
pub(crate) struct Rgcn {
    /// `[relations, inputs, outputs]`, or with bases `[bases, inputs, outputs]`.
    weight: Tensor,
    /// `[relations, bases]`.
    coefficients: Option<Tensor>,
    /// `[inputs, outputs]`.
    root: Tensor,
    bias: Tensor,
    /// The relations into the type.
    relations: Vec<i64>,
}

impl Rgcn {
    /// The parameters, without relations.
    pub(crate) fn new(
        builder: &mut Builder,
        relations: usize,
        bases: Option<usize>,
        [inputs, outputs]: [i64; 2],
    ) -> Self {
        let start = Start::glorot(inputs, outputs, 1.0);
        let (relations, matrices) = (relations as i64, bases.unwrap_or(relations) as i64);
        Self {
            weight: builder.parameter("weight", &[matrices, inputs, outputs], start),
            coefficients: bases
                .map(|_| builder.parameter("comp", &[relations, matrices], Start::glorot(relations, matrices, 1.0))),
            root: builder.parameter("root", &[inputs, outputs], start),
            bias: builder.parameter("bias", &[outputs], Start::Constant(0.0)),
            relations: Vec::new(),
        }
    }

    /// The same parameters for a type that these relations lead to.
    pub(crate) fn for_type(&self, relations: &[RelationInput]) -> Self {
        Self {
            weight: self.weight.shallow_clone(),
            coefficients: self.coefficients.as_ref().map(Tensor::shallow_clone),
            root: self.root.shallow_clone(),
            bias: self.bias.shallow_clone(),
            relations: relations.iter().map(|relation| relation.number as i64).collect(),
        }
    }

    /// The matrix of each relation, `[outputs, inputs]`.
    fn matrices(&self) -> Vec<Tensor> {
        let size = self.weight.size();
        let numbers = Tensor::from_slice(&self.relations).to_device(self.weight.device());
        let of_relations = match &self.coefficients {
            None => self.weight.index_select(0, &numbers),
            Some(coefficients) => {
                let bases = self.weight.view([size[0], -1]).tr();
                let matrices = linear(&[(&coefficients.index_select(0, &numbers), &bases)], None, Epilogue::NONE);
                matrices.view([-1, size[1], size[2]])
            }
        };
        of_relations.transpose(1, 2).unbind(0)
    }
}

impl Layer for Rgcn {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Mean
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        (hop.own_states(), hop.aggregates(Aggregate::Mean))
    }

    fn reduction(&self, width: usize) -> Reduction {
        Reduction::Mean(Mean { width })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let (matrices, root) = (self.matrices(), self.root.tr());
        let terms: Vec<(&Tensor, &Tensor)> = aggregated.iter().zip(&matrices).chain([(own, &root)]).collect();
        linear(&terms, Some(&self.bias), epilogue)
    }
}
