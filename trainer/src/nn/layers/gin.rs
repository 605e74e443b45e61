//! GIN (Xu, Hu, Leskovec, Jegelka: "How Powerful are Graph Neural Networks?", 2019).

use grappa_engine::aggregate::Sum;
use grappa_run::model::NormKind;
use tch::Tensor;

use super::Layer;
use crate::nn::{
    aggregate::Aggregate,
    linear::{Epilogue, apply, linear},
    norm::Norm,
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// PyTorch Geometric's GINConv: `mlp((1 + eps) x + sum of neighbors)`, with `train_eps=True` and
/// `nn=Sequential(Linear(inputs, hidden), LayerNorm(hidden), ReLU(), Linear(hidden, outputs))`; without norms between layers, there is no
/// LayerNorm either.
///
/// GIN's authors have a batch norm there. But sums differ by orders of magnitude between nodes of few and of many neighbors, and a batch
/// norm scales all alike. A layer norm makes them comparable. It needs many values: of two, it would leave the sign.
#[derive(Debug)]
pub(crate) struct Gin {
    epsilon: Tensor,
    weights: [Tensor; 2],
    biases: [Tensor; 2],
    norm: Option<Norm>,
}

impl Gin {
    pub(crate) fn new(builder: &mut Builder, [inputs, hidden, outputs]: [i64; 3], has_norm: bool) -> Self {
        let epsilon = builder.parameter("eps", &[1], Start::Constant(0.0));
        let mut linear = |name: &str, inputs, outputs| {
            let start = Start::linear(inputs);
            builder.scope(name, |builder| {
                (
                    builder.parameter("weight", &[outputs, inputs], start),
                    builder.parameter("bias", &[outputs], start),
                )
            })
        };
        let (first, first_bias) = linear("nn.0", inputs, hidden);
        let second_name = if has_norm { "nn.3" } else { "nn.2" };
        let norm = if has_norm { NormKind::Layer } else { NormKind::None };
        let (second, second_bias) = linear(second_name, hidden, outputs);
        Self {
            epsilon,
            weights: [first, second],
            biases: [first_bias, second_bias],
            norm: builder.scope("nn.1", |builder| Norm::new(builder, norm, hidden)),
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
        let first = |epilogue| linear(&[(&sum, &self.weights[0])], Some(&self.biases[0]), epilogue);
        let hidden = match &self.norm {
            None => first(relu),
            Some(norm) => apply(&norm.apply(&first(Epilogue::NONE), false), relu),
        };
        linear(&[(&hidden, &self.weights[1])], Some(&self.biases[1]), epilogue)
    }
}
