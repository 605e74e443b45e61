//! Exchanges that send nothing, or gradients as f32.

use std::sync::Arc;

use tch::{Device, Kind, Tensor, no_grad};

use super::gradient::{Exchange, LossWeights, Summed, Unsent};
use crate::{Result, distributed::ProcessGroup};

/// The exchange of a single process. It trains all partitions and has already added up their gradients. There may be a residual that the
/// ranks of an earlier process left.
#[derive(Debug, Clone, Copy)]
pub struct InProcess;

impl Exchange for InProcess {
    fn sum(&self, gradient: &Tensor, weights: LossWeights, _done: f64, residual: &mut Unsent) -> Result<Summed> {
        if let Some(residual) = residual.take() {
            let residual = Tensor::from_slice(&residual).to_device(gradient.device());
            let _ = no_grad(|| gradient.narrow(0, 0, residual.size()[0]).g_add_(&residual));
        }
        Ok(Summed { weights, ..Summed::default() })
    }
}

/// The exchange of several processes: one all-reduce per step.
#[derive(Debug)]
pub struct AllReduce(pub Arc<ProcessGroup>);

impl AllReduce {
    /// Bytes that each of `ranks` sends to sum `bytes`: its values of the slices of all others, and the sum of its own slice to each of
    /// them.
    pub fn sent_bytes(bytes: u64, ranks: u64) -> u64 {
        2 * (ranks - 1) * bytes / ranks
    }
}

impl Exchange for AllReduce {
    fn sum(&self, gradient: &Tensor, weights: LossWeights, _done: f64, residual: &mut Unsent) -> Result<Summed> {
        assert!(residual.is_none(), "a run keeps its compression, and this one leaves no residual");
        let count = LossWeights::VALUES as i64;
        let summed = no_grad(|| {
            tail(gradient, count).copy_(&Tensor::from_slice(&weights.to_values()));
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
        tail(&summed, count).to_kind(Kind::Float).copy_data(&mut values, LossWeights::VALUES);
        let bytes = (gradient.numel() * size_of::<f32>()) as u64;
        Ok(Summed {
            weights: LossWeights::of_values(values),
            sent_bytes: Self::sent_bytes(bytes, self.0.place().ranks.into()),
            encoded_bytes: None,
        })
    }
}

/// The last values of a tensor.
fn tail(values: &Tensor, count: i64) -> Tensor {
    values.narrow(0, values.size()[0] - count, count)
}

#[cfg(test)]
mod tests {
    use super::{super::gradient::values_of, *};

    #[test]
    fn a_single_process_applies_what_ranks_did_not_send_once() {
        let gradient = Tensor::from_slice(&[1_f32, 2.0, 0.0, 0.0, 0.0, 0.0]);
        let mut residual = Some(vec![0.5, -1.0]);
        for _ in 0..2 {
            let weights = LossWeights { factors: 3.0, seeds: 4.0 };
            assert_eq!(InProcess.sum(&gradient, weights, 0.0, &mut residual).unwrap().weights, weights);
            assert_eq!(values_of(&gradient), [1.5, 1.0]);
            assert_eq!(residual, None);
        }
    }
}
