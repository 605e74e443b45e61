//! Norms between layers.

use grappa_run::model::NormKind;
use tch::Tensor;

use super::{
    linear::float,
    parameters::{Builder, Start},
};
const EPSILON: f64 = 1e-5;
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
    /// A new norm; none for [`NormKind::None`].
    pub(crate) fn new(builder: &mut Builder, kind: NormKind, width: i64) -> Option<Self> {
        if kind == NormKind::None {
            return None;
        }
        Some(Self {
            weight: builder.parameter("weight", &[width], Start::Constant(1.0)),
            bias: builder.parameter("bias", &[width], Start::Constant(0.0)),
            running: (kind == NormKind::Batch).then(|| {
                (
                    builder.buffer("running_mean", &[width], 0.0),
                    builder.buffer("running_var", &[width], 1.0),
                )
            }),
        })
    }

    /// Normalizes rows. In training, a batch norm uses the mean and variance of the rows, unless there is only one row, and updates
    /// the running ones.
    pub(crate) fn apply(&self, rows: &Tensor, training: bool) -> Tensor {
        let values = float(rows);
        let (weight, bias) = (Some(&self.weight), Some(&self.bias));
        let normal = match &self.running {
            None => values.layer_norm([values.size()[1]], weight, bias, EPSILON, false),
            Some((mean, variance)) => {
                // A single row has no variance. PyTorch refuses it, but a minibatch may be that small.
                let training = training && values.size()[0] > 1;
                values.batch_norm(
                    weight,
                    bias,
                    Some(mean),
                    Some(variance),
                    training,
                    MOMENTUM,
                    EPSILON,
                    false,
                )
            }
        };
        normal.to_kind(rows.kind())
    }
}
