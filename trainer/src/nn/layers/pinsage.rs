//! PinSAGE's convolution (Ying et al.: "Graph Convolutional Neural Networks for Web-Scale Recommender Systems", 2018,
//! algorithm 1).

use grappa_engine::aggregate::Mean;
use tch::{Kind, Tensor};

use super::layer::{Hop, Layer, RelationHop};
use crate::nn::{
    aggregate::aggregate,
    aggregate_kind::Aggregate,
    linear::{Epilogue, LinearLayer, apply, float, linear},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// The WeightedSAGEConv of DGL's PinSAGE example: `relu(W [mean of relu(Q x) over the neighbors, by edge weight; x])`, scaled to length
/// 1. It leaves out the dropout of the example, because the model has dropout between layers.
#[derive(Debug)]
pub(crate) struct PinSage {
    message: LinearLayer,
    update: LinearLayer,
}

impl PinSage {
    pub(crate) fn new(builder: &mut Builder, inputs: i64, outputs: i64) -> Self {
        let [message, update] = [("Q", inputs), ("W", inputs + outputs)].map(|(name, inputs)| {
            let start = Start::glorot(outputs, inputs, 2f64.sqrt());
            LinearLayer::new(builder, name, [inputs, outputs], start, Some(Start::Constant(0.0)))
        });
        Self { message, update }
    }
}

impl Layer for PinSage {
    fn aggregate(&self) -> Aggregate {
        Aggregate::WeightedMean
    }

    fn messages(&self, _relation: usize, sources: &Tensor) -> Tensor {
        self.message.apply(sources, Epilogue::RELU)
    }

    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let RelationHop { block, sources } = hop.relation();
        let aggregated = aggregate(block, self.aggregate(), hop.scaling, &self.messages(0, sources), hop.historical);
        (hop.own_states(), vec![aggregated])
    }

    /// All in-neighbors have the same weight, because the edge weights of training come from random walks.
    fn reduction(&self, _width: usize) -> Reduction {
        Reduction::Mean(Mean { width: self.message.outputs() as usize })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let (hidden, LinearLayer { weight, bias }) = (self.message.outputs(), &self.update);
        let aggregated_weight = weight.narrow(1, 0, hidden);
        let own_weight = weight.narrow(1, hidden, own.size()[1]);
        let result =
            float(&linear(&[(&aggregated[0], &aggregated_weight), (own, &own_weight)], bias.as_ref(), Epilogue::RELU));
        let square = result.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Float);
        // Rows of zeros stay. The square root has no gradient at 0.
        let length = square.where_self(&square.gt(0.0), &square.ones_like()).sqrt();
        apply(&(result / length), epilogue).to_kind(own.kind())
    }
}
