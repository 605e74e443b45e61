//! GIN (Xu, Hu, Leskovec, Jegelka: "How Powerful are Graph Neural Networks?", 2019).

use grappa_engine::aggregate::Sum;
use tch::Tensor;

use super::Layer;
use crate::nn::{
    aggregate::Aggregate,
    linear::{Epilogue, linear},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// PyTorch Geometric's GINConv: `mlp((1 + eps) x + sum of neighbors)`, with `train_eps=True` and
/// `nn=Sequential(Linear(inputs, outputs), ReLU(), Linear(outputs, outputs))`.
#[derive(Debug)]
pub(crate) struct Gin {
    epsilon: Tensor,
    weights: [Tensor; 2],
    biases: [Tensor; 2],
}

impl Gin {
    pub(crate) fn new(builder: &mut Builder, inputs: i64, outputs: i64) -> Self {
        let epsilon = builder.parameter("eps", &[1], Start::Constant(0.0));
        let mut linear = |name: &str, inputs| {
            let start = Start::linear(inputs);
            builder.scope(name, |builder| {
                (
                    builder.parameter("weight", &[outputs, inputs], start),
                    builder.parameter("bias", &[outputs], start),
                )
            })
        };
        let (first, first_bias) = linear("nn.0", inputs);
        let (second, second_bias) = linear("nn.2", outputs);
        Self {
            epsilon,
            weights: [first, second],
            biases: [first_bias, second_bias],
        }
    }
}

impl Layer for Gin {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Sum
    }

    fn reduction(&self, width: usize) -> Reduction {
        Reduction::Sum(Sum { width })
    }

    fn update(&self, own: &Tensor, aggregated: &Tensor, _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let sum = aggregated.addcmul(own, &(&self.epsilon + 1.0).to_kind(own.kind()));
        let relu = Epilogue {
            relu: true,
            dropout: None,
        };
        let hidden = linear(&[(&sum, &self.weights[0])], Some(&self.biases[0]), relu);
        linear(&[(&hidden, &self.weights[1])], Some(&self.biases[1]), epilogue)
    }
}
