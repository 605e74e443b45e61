//! The exchange of gradients between partitions.
//!
//! Its types are its contract: a flat gradient and two numbers go in, and their sums come out. Features and activations have
//! no place in it.

use std::sync::Arc;

use tch::{Device, Kind, Tensor, no_grad};

use crate::{Result, distributed::ProcessGroup, nn::Parameters};

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

    fn to_values(self) -> [f32; Self::VALUES] {
        let parts = |weight: f64| {
            let high = weight as f32;
            [high, (weight - f64::from(high)) as f32]
        };
        let ([a, b], [c, d]) = (parts(self.factors), parts(self.seeds));
        [a, b, c, d]
    }

    fn of_values(values: [f32; Self::VALUES]) -> Self {
        let [a, b, c, d] = values.map(f64::from);
        Self {
            factors: a + b,
            seeds: c + d,
        }
    }
}

/// Sums the gradients of all participants of a step. A participant without a batch takes part with zeros, so nobody waits for
/// ever.
pub trait Exchange {
    /// Replaces a gradient by the sum over all participants. Returns the sums of their loss weights. `gradient` is f32 of
    /// `[parameters + LossWeights::VALUES]`: its last values are room for the loss weights.
    ///
    /// # Errors
    /// If a participant cannot be reached.
    fn sum(&mut self, gradient: &Tensor, weights: LossWeights) -> Result<LossWeights>;

    /// Bytes that a participant sends to sum that many bytes.
    fn sent_bytes(&self, bytes: u64) -> u64;
}

/// The bytes that are summed in a step.
pub fn exchanged_bytes(parameters: usize) -> u64 {
    (parameters + LossWeights::VALUES) as u64 * size_of::<f32>() as u64
}

/// The exchange of a single process. It trains all partitions and has already added up their gradients.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Exchange for InProcess {
    fn sum(&mut self, _gradient: &Tensor, weights: LossWeights) -> Result<LossWeights> {
        Ok(weights)
    }

    fn sent_bytes(&self, _bytes: u64) -> u64 {
        0
    }
}

/// The exchange of several processes: one all-reduce per step.
#[derive(Debug)]
pub struct AllReduce(pub Arc<ProcessGroup>);

impl Exchange for AllReduce {
    fn sum(&mut self, gradient: &Tensor, weights: LossWeights) -> Result<LossWeights> {
        let count = LossWeights::VALUES as i64;
        let tail = |of: &Tensor| of.narrow(0, of.size()[0] - count, count);
        let summed = no_grad(|| {
            tail(gradient).copy_(&Tensor::from_slice(&weights.to_values()));
            if gradient.device() == Device::Cpu {
                self.0.all_reduce(gradient)?;
                return Ok(gradient.shallow_clone());
            }
            let on_processor = gradient.to_device(Device::Cpu);
            self.0.all_reduce(&on_processor)?;
            gradient.shallow_clone().copy_(&on_processor);
            Ok::<_, crate::Error>(on_processor)
        })?;
        let mut values = [0.0; LossWeights::VALUES];
        tail(&summed)
            .to_kind(Kind::Float)
            .copy_data(&mut values, LossWeights::VALUES);
        Ok(LossWeights::of_values(values))
    }

    /// A ring sends each part of the tensor to the next rank twice, but for one part of each pass.
    fn sent_bytes(&self, bytes: u64) -> u64 {
        let ranks = u64::from(self.0.place().ranks);
        2 * (ranks - 1) * bytes / ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_weights_keep_their_digits_on_the_way() {
        for weights in [(0.0, 0.0), (1024.0, 1024.0), (16_777_217.0, 123_456_789.0), (0.1, 1e-3)] {
            let weights = LossWeights {
                factors: weights.0,
                seeds: weights.1,
            };
            let back = LossWeights::of_values(weights.to_values());
            assert!(
                (back.factors - weights.factors).abs() <= 1e-13 * weights.factors,
                "{back:?}"
            );
            assert!((back.seeds - weights.seeds).abs() <= 1e-13 * weights.seeds, "{back:?}");
        }
    }
}
