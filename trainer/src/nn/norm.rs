//! Norms between layers.

use grappa_kernels::norm::{self, Columns, EPSILON};
use grappa_run::model::NormKind;
use tch::Tensor;

use super::{
    backend::Backend,
    linear::float,
    parameters::{Builder, Start},
};
use crate::shim;

const MOMENTUM: f64 = 0.1;

/// A normalization. It computes in f32. Its result has the type of its input.
#[derive(Debug)]
pub(crate) struct Norm {
    weight: Tensor,
    bias: Tensor,
    /// Running mean and variance, of batch norms.
    running: Option<(Tensor, Tensor)>,
}

impl Norm {
    pub(crate) fn new(builder: &mut Builder, kind: NormKind, width: i64) -> Option<Self> {
        if kind == NormKind::None {
            return None;
        }
        Some(Self {
            weight: builder.parameter("weight", &[width], Start::Constant(1.0)),
            bias: builder.parameter("bias", &[width], Start::Constant(0.0)),
            running: (kind == NormKind::Batch)
                .then(|| (builder.buffer("running_mean", &[width], 0.0), builder.buffer("running_var", &[width], 1.0))),
        })
    }

    /// Normalizes rows. In training, a batch norm uses the mean and variance of the rows, unless there is only one row, and updates
    /// the running ones.
    pub(crate) fn apply(&self, rows: &Tensor, training: bool) -> Tensor {
        self.apply_with(Backend::Fastest, rows, training)
    }

    pub(super) fn apply_with(&self, backend: Backend, rows: &Tensor, training: bool) -> Tensor {
        let values = float(rows);
        // A single row has no variance. PyTorch refuses it, but a minibatch may be that small.
        let training = training && values.size()[0] > 1;
        let normal = match (backend.has_kernels_for(&values), &self.running) {
            (true, None) => self.layer_with_kernel(&values.contiguous()),
            (true, Some(running)) => self.batch_with_kernel(&values.contiguous(), running, training),
            _ => self.with_operators(&values, training),
        };
        normal.to_kind(rows.kind())
    }

    fn with_operators(&self, values: &Tensor, training: bool) -> Tensor {
        let (weight, bias) = (Some(&self.weight), Some(&self.bias));
        let epsilon = f64::from(EPSILON);
        match &self.running {
            None => values.layer_norm([values.size()[1]], weight, bias, epsilon, false),
            Some((mean, variance)) => {
                values.batch_norm(weight, bias, Some(mean), Some(variance), training, MOMENTUM, epsilon, false)
            }
        }
    }

    fn layer_with_kernel(&self, values: &Tensor) -> Tensor {
        let mut result = values.detach().empty_like();
        let statistics = norm::layer_forward(shim::values(values), self.weights(), shim::values_mut(&mut result));
        self.with_gradients(result, values, move |values, weight, gradient, values_gradient| {
            norm::layer_backward(values, weight, &statistics, gradient, values_gradient)
        })
    }

    /// Gives `result` a backward pass, which `backward` computes from values, weight and the gradient of the result.
    fn with_gradients(
        &self,
        result: Tensor,
        values: &Tensor,
        backward: impl Fn(&[f32], &[f32], &[f32], &mut [f32]) -> [Vec<f32>; 2] + Send + 'static,
    ) -> Tensor {
        let saved = [values, &self.weight].map(Tensor::detach);
        shim::with_gradient(result, &[values, &self.weight, &self.bias], move |gradient, _| {
            let mut values_gradient = gradient.empty_like();
            let [values, weight] = saved.each_ref().map(shim::values);
            let weight_gradients =
                backward(values, weight, shim::values(gradient), shim::values_mut(&mut values_gradient));
            let weight_gradients = weight_gradients.map(|gradient| Tensor::from_slice(&gradient));
            [values_gradient].into_iter().chain(weight_gradients).map(Some).collect()
        })
    }

    fn weights(&self) -> [&[f32]; 2] {
        [&self.weight, &self.bias].map(shim::values)
    }

    /// In training, the batch norm with the statistics of the rows, which the running ones take in; otherwise with the running ones.
    fn batch_with_kernel(&self, values: &Tensor, (mean, variance): &(Tensor, Tensor), training: bool) -> Tensor {
        let [rows, columns] = [0, 1].map(|dimension| values.size()[dimension]);
        let statistics = match training {
            true => norm::columns_of(columns as usize, shim::values(values)),
            false => Columns { means: shim::values(mean).to_vec(), variances: shim::values(variance).to_vec() },
        };
        if training {
            // As PyTorch: the running variance is the unbiased one.
            let unbiased = rows as f64 / (rows - 1) as f64;
            tch::no_grad(|| {
                take_in(mean, &statistics.means, 1.0);
                take_in(variance, &statistics.variances, unbiased);
            });
        }
        let mut result = values.detach().empty_like();
        norm::batch_forward(shim::values(values), self.weights(), &statistics, shim::values_mut(&mut result));
        self.with_gradients(result, values, move |values, weight, gradient, values_gradient| {
            norm::batch_backward(values, weight, &statistics, training, gradient, values_gradient)
        })
    }
}

/// Moves running statistics towards the statistics of a batch.
fn take_in(running: &Tensor, batch_moments: &[f32], factor: f64) {
    let batch_moments = Tensor::from_slice(batch_moments) * (factor * MOMENTUM);
    let _ = running.shallow_clone().g_mul_scalar_(1.0 - MOMENTUM).g_add_(&batch_moments);
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::{
        nn::tests::{assert_close, assert_each, random},
        runtime,
    };

    /// A norm with weights that are not 1 and 0.
    fn norm(kind: NormKind, width: i64) -> Norm {
        let random = |seed| random(seed, &[width]).set_requires_grad(true);
        Norm {
            weight: random(1),
            bias: random(2),
            running: (kind == NormKind::Batch)
                .then(|| [0, 1].map(|_| Tensor::ones([width], (Kind::Float, Device::Cpu))).into()),
        }
    }

    /// The result, the gradients, and the running statistics.
    fn run(backend: Backend, kind: NormKind, [rows, width]: [i64; 2], training: bool) -> Vec<Tensor> {
        let norm = norm(kind, width);
        let values = (random(3, &[rows, width]) * 3.0 + 1.5).set_requires_grad(true);
        let result = norm.apply_with(backend, &values, training);
        (&result * random(4, &[rows, width])).sum(Kind::Float).backward();
        let running = norm.running.iter().flat_map(|(mean, variance)| [mean.copy(), variance.copy()]);
        let leaves = [&values, &norm.weight, &norm.bias].map(Tensor::grad);
        [result.detach()].into_iter().chain(leaves).chain(running).collect()
    }

    #[test]
    fn loops_equal_operators_forward_and_backward() {
        for kind in [NormKind::Layer, NormKind::Batch] {
            for shape in [[1, 8], [2, 3], [255, 16], [1000, 128], [513, 70]] {
                for training in [false, true] {
                    let expected = run(Backend::Operators, kind, shape, training);
                    let actual = run(Backend::Fastest, kind, shape, training);
                    let case = format!("{kind:?} {shape:?} {training}");
                    assert_each(assert_close, &actual, &expected, 1e-5, &case);
                }
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let threads = tch::get_num_threads() as usize;
        for kind in [NormKind::Layer, NormKind::Batch] {
            for training in [false, true] {
                let [one, three] = [1, 3].map(|threads| {
                    runtime::set_threads(threads);
                    run(Backend::Fastest, kind, [5000, 40], training)
                });
                assert_eq!(one, three, "{kind:?} {training}");
            }
        }
        runtime::set_threads(threads);
    }
}
