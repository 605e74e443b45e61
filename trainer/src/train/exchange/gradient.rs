//! What an exchange takes and gives.

use tch::{Device, Tensor, no_grad};

use crate::{Result, nn::Parameters, shim};

/// The gradient of a model has room for the loss weights.
const _: () = assert!(LossWeights::VALUES == Parameters::ROOM);

/// The loss weights that belong to a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LossWeights {
    /// Sum of the factors that the losses of the seeds were multiplied by.
    pub factors: f64,
    /// Number of seeds.
    pub seeds: f64,
}

impl LossWeights {
    /// Values of f32 that they take in an exchange: each is the sum of two, so that no digits are lost.
    pub const VALUES: usize = 4;

    pub(super) fn to_values(self) -> [f32; Self::VALUES] {
        let [[a, b], [c, d]] = [self.factors, self.seeds].map(|weight| {
            let high = weight as f32;
            [high, (weight - f64::from(high)) as f32]
        });
        [a, b, c, d]
    }

    pub(super) fn of_values(values: [f32; Self::VALUES]) -> Self {
        let [a, b, c, d] = values.map(f64::from);
        Self { factors: a + b, seeds: c + d }
    }
}

/// The result of an exchange, besides the gradient.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summed {
    /// The sums of the loss weights of all participants.
    pub weights: LossWeights,
    /// Bytes that this participant sent.
    pub sent_bytes: u64,
    /// Bytes of the gradient in an all-reduce, if this process encodes it for several machines.
    pub encoded_bytes: Option<u64>,
}

/// The residual of a participant: the part of its gradients that it has not sent so far, f32 of `[parameters]`. None if its exchange sends
/// everything.
pub type Unsent = Option<Vec<f32>>;

/// Sums the gradients of all participants of a step. A participant without a batch takes part with zeros, so nobody waits for
/// ever.
pub trait Exchange {
    /// Replaces a gradient by the sum over all participants. Returns the sums of their loss weights. `gradient` is f32 of `[parameters +
    /// LossWeights::VALUES]`: its last values are room for the loss weights. `done` is the part of the run that is over, from 0 to 1, which
    /// a schedule of compression follows.
    ///
    /// The residual is added to the gradient, and becomes what this exchange does not send.
    ///
    /// # Errors
    /// If a participant cannot be reached. The residual then stays as it was.
    fn sum(&self, gradient: &Tensor, weights: LossWeights, done: f64, residual: &mut Unsent) -> Result<Summed>;

    /// Whether it leaves residuals.
    fn has_feedback(&self) -> bool {
        false
    }
}

/// The bytes that are summed in a step.
pub fn exchanged_bytes(parameters: usize) -> u64 {
    (parameters + LossWeights::VALUES) as u64 * size_of::<f32>() as u64
}

/// The values of a gradient without the room behind them.
pub(super) fn values_of(gradient: &Tensor) -> Vec<f32> {
    let values = gradient.to_device(Device::Cpu);
    let values = shim::values::<f32>(&values);
    values[..values.len() - LossWeights::VALUES].to_vec()
}

/// Replaces the values of a gradient.
pub(super) fn set_values(gradient: &Tensor, values: &[f32]) {
    no_grad(|| {
        gradient.narrow(0, 0, values.len() as i64).copy_(&Tensor::from_slice(values));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_weights_keep_their_digits_on_the_way() {
        for weights in [(0.0, 0.0), (1024.0, 1024.0), (16_777_217.0, 123_456_789.0), (0.1, 1e-3)] {
            let weights = LossWeights { factors: weights.0, seeds: weights.1 };
            let back = LossWeights::of_values(weights.to_values());
            assert!((back.factors - weights.factors).abs() <= 1e-13 * weights.factors, "{back:?}");
            assert!((back.seeds - weights.seeds).abs() <= 1e-13 * weights.seeds, "{back:?}");
        }
    }
}
