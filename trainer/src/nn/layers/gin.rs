//! GIN (Xu, Hu, Leskovec, Jegelka: "How Powerful are Graph Neural Networks?", 2019).

use grappa_engine::aggregate::Sum;
use grappa_run::model::NormKind;
use tch::Tensor;

use super::layer::Layer;
use crate::nn::{
    aggregate_kind::Aggregate,
    backend::Backend,
    linear::{Epilogue, LinearLayer, apply},
    norm::Norm,
    parameters::{Builder, Start},
    reduction::Reduction,
    scaled::add_scaled,
};

/// PyTorch Geometric's GINConv: `mlp((1 + eps) x + sum of neighbors)`, with `train_eps=True` and
/// `nn=Sequential(Linear(inputs, hidden), LayerNorm(hidden), ReLU(), Linear(hidden, outputs))`; without norms between layers, there is no
/// LayerNorm either. With weights of edges, the sum is by these.
///
/// GIN's authors have a batch norm there. But sums differ by orders of magnitude between nodes of few and of many neighbors, and a batch
/// norm scales all alike. A layer norm makes them comparable. It needs many values: of two, it would leave the sign.
#[derive(Debug)]
pub(crate) struct Gin {
    epsilon: Tensor,
    layers: [LinearLayer; 2],
    norm: Option<Norm>,
}

impl Gin {
    pub(crate) fn new(builder: &mut Builder, [inputs, hidden, outputs]: [i64; 3], has_norm: bool) -> Self {
        let epsilon = builder.parameter("eps", &[1], Start::Constant(0.0));
        let second_name = if has_norm { "nn.3" } else { "nn.2" };
        let norm = if has_norm { NormKind::Layer } else { NormKind::None };
        let layers = [("nn.0", [inputs, hidden]), (second_name, [hidden, outputs])]
            .map(|(name, sizes)| LinearLayer::of_pytorch(builder, name, sizes));
        Self { epsilon, layers, norm: builder.scope("nn.1", |builder| Norm::new(builder, norm, hidden)) }
    }

    /// `aggregated + (1 + eps) own`.
    fn with_own(&self, backend: Backend, own: &Tensor, aggregated: &Tensor) -> Tensor {
        add_scaled(backend, aggregated, own, &(&self.epsilon + 1.0))
    }
}

impl Layer for Gin {
    fn aggregate(&self) -> Aggregate {
        Aggregate::Sum
    }

    fn reduction(&self, width: usize) -> Reduction {
        Reduction::Sum(Sum { width })
    }

    fn update(&self, own: &Tensor, aggregated: &[Tensor], _degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
        let sum = self.with_own(Backend::Fastest, own, &aggregated[0]);
        let [first, second] = &self.layers;
        let hidden = match &self.norm {
            None => first.apply(&sum, Epilogue::RELU),
            Some(norm) => apply(&norm.apply(&first.apply(&sum, Epilogue::NONE), false), Epilogue::RELU),
        };
        second.apply(&hidden, epilogue)
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;
    use crate::{
        nn::tests::{assert_close, assert_each, random},
        runtime,
    };

    /// The sum, and the gradients of own rows, aggregates and eps.
    fn run(backend: Backend, kind: Kind) -> Vec<Tensor> {
        let leaf = |seed, shape: &[i64]| random(seed, shape).to_kind(kind).set_requires_grad(true);
        let [own, aggregated] = [1, 2].map(|seed| leaf(seed, &[3000, 40]));
        let epsilon = random(3, &[1]).set_requires_grad(true);
        let gin = Gin {
            epsilon: epsilon.shallow_clone(),
            layers: [0, 1].map(|_| LinearLayer { weight: Tensor::new(), bias: None }),
            norm: None,
        };
        let sum = gin.with_own(backend, &own, &aggregated);
        (&sum * random(4, &[3000, 40])).sum(Kind::Float).backward();
        vec![sum.detach(), own.grad(), aggregated.grad(), epsilon.grad()]
    }

    #[test]
    fn the_gradient_of_eps_equals_the_operators_on_any_number_of_threads() {
        let threads = tch::get_num_threads() as usize;
        for (kind, tolerance) in [(Kind::Float, 1e-5), (Kind::BFloat16, 2e-2)] {
            let expected = run(Backend::Operators, kind);
            let [one, three] = [1, 3].map(|threads| {
                runtime::set_threads(threads);
                run(Backend::Fastest, kind)
            });
            assert_eq!(one, three, "{kind:?}");
            assert_each(assert_close, &one, &expected, tolerance, &format!("{kind:?}"));
        }
        runtime::set_threads(threads);
    }
}
