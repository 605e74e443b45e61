//! GCN (Kipf, Welling: "Semi-Supervised Classification with Graph Convolutional Networks", 2017).

use grappa_engine::aggregate::Sum;
use tch::{Kind, Tensor};

use super::layer::{Layer, WeightsFirst};
use crate::nn::{
    aggregate_kind::Aggregate,
    linear::{Epilogue, linear},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// PyTorch Geometric's GCNConv: `W (sum over neighbors s of x_s / sqrt((d + 1)(s + 1)) + x / (d + 1)) + b`, with the in-degrees d of the
/// node and s of the neighbor. It adds a self-loop to each node and divides by the square roots of in-degrees.
///
/// With weights of edges, `x_s` is multiplied by the weight of its edge, and d and s are the sums of the weights of in-edges.
///
/// In-degrees are of the whole graph. A self-loop of the graph counts besides the added one. PyTorch Geometric merges the two, so
/// ingest without self-loops to get the same numbers.
#[derive(Debug)]
pub(crate) struct Gcn {
    weight: Tensor,
    bias: Tensor,
}

impl Gcn {
    pub(crate) fn new(builder: &mut Builder, inputs: i64, outputs: i64) -> Self {
        Self {
            bias: builder.parameter("bias", &[outputs], Start::Constant(0.0)),
            weight: builder.parameter("lin.weight", &[outputs, inputs], Start::glorot(outputs, inputs, 1.0)),
        }
    }

    fn sum(own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>) -> Tensor {
        aggregated.addcmul(own, &own_factor(degrees, own.kind()))
    }
}

impl Layer for Gcn {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Gcn
    }

    fn reduction(&self, width: usize) -> Reduction {
        Reduction::Gcn(Sum { width })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        self.update_combined(&Self::sum(own, &aggregated[0], degrees), epilogue)
    }

    fn combined(&self, own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>, kind: Kind) -> Option<Tensor> {
        Some(Self::sum(&own.to_kind(kind), &aggregated.to_kind(kind), degrees))
    }

    fn update_combined(&self, combined: &Tensor, epilogue: Epilogue) -> Tensor {
        linear(&[(combined, &self.weight)], Some(&self.bias), epilogue)
    }

    fn weights_first(&self) -> Option<&dyn WeightsFirst> {
        Some(self)
    }
}

impl WeightsFirst for Gcn {
    fn width(&self) -> usize {
        self.bias.size()[0] as usize
    }

    fn products(&self, states: &Tensor) -> Tensor {
        linear(&[(states, &self.weight)], None, Epilogue::NONE)
    }

    fn update(&self, products: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>) -> Tensor {
        let kind = products.kind();
        aggregated.addcmul(products, &own_factor(degrees, kind)) + self.bias.to_kind(kind)
    }
}

/// GCN's factors of nodes, `[nodes, 1]`: one is for the message of a source, and one for the sum of a destination.
pub(crate) fn gcn_factors(degrees: &Tensor) -> Tensor {
    (degrees + 1.0).rsqrt().unsqueeze(1)
}

/// The factor of the node itself in GCN's sum, `[nodes, 1]`.
fn own_factor(degrees: Option<&Tensor>, kind: Kind) -> Tensor {
    let degrees = degrees.expect("GCN's update needs the in-degrees of nodes");
    (degrees + 1.0).reciprocal().unsqueeze(1).to_kind(kind)
}
