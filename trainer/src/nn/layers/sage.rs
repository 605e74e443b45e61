//! GraphSAGE (Hamilton, Ying, Leskovec: "Inductive Representation Learning on Large Graphs", 2017), with mean or max.

use grappa_engine::aggregate::{Max, Mean};
use tch::Tensor;

use super::layer::{Layer, WeightsFirst};
use crate::nn::{
    aggregate_kind::Aggregate,
    linear::{Epilogue, linear},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// PyTorch Geometric's SAGEConv: `lin_l(aggregate of neighbors) + lin_r(x)`. With weights of edges, the mean is by these, which PyTorch
/// Geometric has not.
#[derive(Debug)]
pub(crate) struct Sage {
    aggregate: Aggregate,
    neighbor_weight: Tensor,
    bias: Tensor,
    own_weight: Tensor,
}

impl Sage {
    pub(crate) fn new(builder: &mut Builder, aggregate: Aggregate, inputs: i64, outputs: i64) -> Self {
        let shape = [outputs, inputs];
        let start = Start::linear(inputs);
        Self {
            aggregate,
            neighbor_weight: builder.parameter("lin_l.weight", &shape, start),
            bias: builder.parameter("lin_l.bias", &[outputs], start),
            own_weight: builder.parameter("lin_r.weight", &shape, start),
        }
    }
}

impl Layer for Sage {
    fn aggregate(&self) -> Aggregate {
        self.aggregate
    }

    fn reduction(&self, width: usize) -> Reduction {
        match self.aggregate {
            Aggregate::Max => Reduction::Max(Max { width }),
            _ => Reduction::Mean(Mean { width }),
        }
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let terms = [(&aggregated[0], &self.neighbor_weight), (own, &self.own_weight)];
        linear(&terms, Some(&self.bias), epilogue)
    }

    fn weights_first(&self) -> Option<&dyn WeightsFirst> {
        // A maximum is not linear.
        (self.aggregate == Aggregate::Mean).then_some(self)
    }
}

impl WeightsFirst for Sage {
    fn width(&self) -> usize {
        2 * self.bias.size()[0] as usize
    }

    fn products(&self, states: &Tensor) -> Tensor {
        // One product with both weight matrices.
        let weight = Tensor::cat(&[&self.neighbor_weight, &self.own_weight], 0);
        let bias = Tensor::cat(&[&self.bias.zeros_like(), &self.bias], 0);
        linear(&[(states, &weight)], Some(&bias), Epilogue::NONE)
    }

    fn update(&self, products: &Tensor, aggregated: &Tensor, _degrees: Option<&Tensor>) -> Tensor {
        let outputs = self.bias.size()[0];
        products.narrow(1, outputs, outputs) + aggregated
    }
}
