//! The exchange of gradients between partitions.
//!
//! Its types are its contract: a flat gradient and two numbers go in, and their sums come out. Features and activations have
//! no place in it.
//!
//! ```text
//! InProcess     one process: nothing is sent
//! AllReduce     several: f32, summed on the way
//! Compressed    several: encoded gradients, decoded and summed in the order of ranks
//! ```

mod compressed;

use std::sync::Arc;

use grappa_run::config::{Compress, TrainConfig};
use tch::{Device, Kind, Tensor, no_grad};

use self::compressed::Compressed;
use crate::{Result, distributed::ProcessGroup, nn::Parameters, shim};

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

/// The result of an exchange, besides the gradient.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summed {
    /// The sums of the loss weights of all participants.
    pub weights: LossWeights,
    /// Bytes that this participant sent.
    pub sent_bytes: u64,
}

/// Sums the gradients of all participants of a step. A participant without a batch takes part with zeros, so nobody waits for
/// ever.
pub trait Exchange {
    /// Replaces a gradient by the sum over all participants. Returns the sums of their loss weights. `gradient` is f32 of
    /// `[parameters + LossWeights::VALUES]`: its last values are room for the loss weights. `done` is the part of the run that is over, from
    /// 0 to 1, which a schedule of compression follows.
    ///
    /// # Errors
    /// If a participant cannot be reached.
    fn sum(&mut self, gradient: &Tensor, weights: LossWeights, done: f64) -> Result<Summed>;

    /// The residual of error feedback, f32 of `[parameters]`: the part of its gradients that this participant has not sent so far. None
    /// if an exchange sends everything.
    fn residual(&self) -> Option<&[f32]> {
        None
    }

    /// Replaces the residual. A later exchange adds it to its gradient.
    fn set_residual(&mut self, residual: Vec<f32>);
}

/// The bytes that are summed in a step.
pub fn exchanged_bytes(parameters: usize) -> u64 {
    (parameters + LossWeights::VALUES) as u64 * size_of::<f32>() as u64
}

/// The exchange of the ranks of a group, for a gradient of `parameters` values. It is compressed as the configuration says.
pub fn of_group(config: &TrainConfig, group: Arc<ProcessGroup>, parameters: usize) -> Box<dyn Exchange> {
    match config.compress {
        Compress::None => Box::new(AllReduce(group)),
        _ => Box::new(Compressed::new(config, group, parameters)),
    }
}

/// The exchange of a single process. It trains all partitions and has already added up their gradients.
#[derive(Debug, Clone, Default)]
pub struct InProcess {
    /// The residual that the ranks of an earlier process left, until the first exchange.
    residual: Option<Vec<f32>>,
}

impl Exchange for InProcess {
    fn sum(&mut self, gradient: &Tensor, weights: LossWeights, _done: f64) -> Result<Summed> {
        if let Some(residual) = self.residual.take() {
            let residual = Tensor::from_slice(&residual).to_device(gradient.device());
            let _ = no_grad(|| gradient.narrow(0, 0, residual.size()[0]).g_add_(&residual));
        }
        Ok(Summed { weights, sent_bytes: 0 })
    }

    fn residual(&self) -> Option<&[f32]> {
        self.residual.as_deref()
    }

    fn set_residual(&mut self, residual: Vec<f32>) {
        self.residual = Some(residual);
    }
}

/// The exchange of several processes: one all-reduce per step.
#[derive(Debug)]
pub struct AllReduce(pub Arc<ProcessGroup>);

impl AllReduce {
    /// Bytes that each of `ranks` sends to sum `bytes`: its values of the slices of all others, and the sum of its own slice to each of them.
    pub fn sent_bytes(bytes: u64, ranks: u64) -> u64 {
        2 * (ranks - 1) * bytes / ranks
    }
}

impl Exchange for AllReduce {
    fn sum(&mut self, gradient: &Tensor, weights: LossWeights, _done: f64) -> Result<Summed> {
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
        let bytes = (gradient.numel() * size_of::<f32>()) as u64;
        Ok(Summed {
            weights: LossWeights::of_values(values),
            sent_bytes: Self::sent_bytes(bytes, self.0.place().ranks.into()),
        })
    }

    /// Every gradient is sent whole.
    fn set_residual(&mut self, _residual: Vec<f32>) {
        unreachable!("a run keeps its compression, and this one has no residual")
    }
}

/// The values of a gradient without the room behind them.
fn values_of(gradient: &Tensor) -> Vec<f32> {
    let values = gradient.to_device(Device::Cpu);
    let values = shim::values::<f32>(&values);
    values[..values.len() - LossWeights::VALUES].to_vec()
}

/// Replaces the values of a gradient.
fn set_values(gradient: &Tensor, values: &[f32]) {
    no_grad(|| {
        gradient
            .narrow(0, 0, values.len() as i64)
            .copy_(&Tensor::from_slice(values));
    });
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

    #[test]
    fn a_single_process_applies_what_ranks_did_not_send_once() {
        let mut exchange = InProcess::default();
        let gradient = Tensor::from_slice(&[1_f32, 2.0, 0.0, 0.0, 0.0, 0.0]);
        exchange.set_residual(vec![0.5, -1.0]);
        assert_eq!(exchange.residual(), Some(&[0.5, -1.0][..]));
        for _ in 0..2 {
            let weights = LossWeights {
                factors: 3.0,
                seeds: 4.0,
            };
            assert_eq!(exchange.sum(&gradient, weights, 0.0).unwrap().weights, weights);
            assert_eq!(values_of(&gradient), [1.5, 1.0]);
            assert_eq!(exchange.residual(), None);
        }
    }
}
