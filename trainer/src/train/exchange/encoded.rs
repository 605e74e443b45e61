//! The exchange of one process that trains the partitions of several machines, which would encode their gradients.
//!
//! The process has only the sum of the gradients of all partitions. It encodes and decodes the sum once, with error feedback. So the loss of
//! one encoding counts, where machines would encode their parts, and the sum again.

use grappa_run::{
    codecs::{Dense, top_k},
    config::{Compress, CompressRate},
};
use tch::Tensor;

use super::gradient::{Exchange, LossWeights, Summed, Unsent, set_values, values_of};
use crate::Result;

/// The exchange of one process for several machines.
#[derive(Debug)]
pub struct Encoded {
    compress: Compress,
    rate: CompressRate,
    machines: u32,
}

impl Encoded {
    /// An exchange of gradients of `machines` machines. `rate` is for [`Compress::TopK`].
    pub fn new(compress: Compress, rate: CompressRate, machines: u32) -> Self {
        Self { compress, rate, machines }
    }

    fn dense(&self) -> Option<Dense> {
        match self.compress {
            Compress::None | Compress::TopK => None,
            Compress::Bf16 => Some(Dense::Bf16),
            Compress::Int8 => Some(Dense::Int8),
            Compress::Lossless => Some(Dense::Lossless),
        }
    }
}

impl Exchange for Encoded {
    fn sum(&self, gradient: &Tensor, weights: LossWeights, done: f64, residual: &mut Unsent) -> Result<Summed> {
        let mut values = values_of(gradient);
        let carried = residual.iter().flatten();
        values.iter_mut().zip(carried).for_each(|(value, carried)| *value += carried);
        let (mut message, mut decoded) = (Vec::new(), vec![0.0; values.len()]);
        let encoded_bytes = match self.dense() {
            Some(codec) => {
                codec.encode(&values, &mut message);
                codec.decode(&message, &mut decoded).expect("it was encoded here");
                message.len() as u64
            }
            None => {
                let count = top_k::count(self.rate.at(done), values.len());
                top_k::encode(&values, count, &mut message);
                top_k::decode(&message, count, &mut decoded).expect("it was encoded here");
                // Each machine sends its values to all others; an all-reduce sends 2 / machines of that per byte.
                message.len() as u64 * u64::from(self.machines) / 2
            }
        };
        if let Some(residual) = residual {
            for ((rest, value), sent) in residual.iter_mut().zip(&values).zip(&decoded) {
                *rest = value - sent;
            }
        }
        set_values(gradient, &decoded);
        Ok(Summed { weights, sent_bytes: 0, encoded_bytes: Some(encoded_bytes) })
    }

    fn has_feedback(&self) -> bool {
        self.dense().is_none_or(Dense::needs_feedback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_and_what_is_kept_are_the_sum_of_all_gradients() {
        let values: Vec<f32> = (0..5000).map(|i| (i as f32 * 1.7).sin().powi(5)).collect();
        let weights = LossWeights { factors: 1.0, seeds: 1.0 };
        for (compress, bytes) in [
            (Compress::Bf16, 10_000..10_001),
            (Compress::Int8, 5000..5100),
            (Compress::Lossless, 10_000..20_100),
            // A quarter of the values in about 20 bits, from each of 4 machines to 3 others.
            (Compress::TopK, 4000..8000),
        ] {
            let encoded = Encoded::new(compress, CompressRate::default(), 4);
            let mut residual = encoded.has_feedback().then(|| vec![0.0; values.len()]);
            let mut applied = vec![0.0; values.len()];
            for _ in 0..3 {
                let room = [0f32; LossWeights::VALUES];
                let gradient = Tensor::from_slice(&[&values[..], &room].concat());
                let summed = encoded.sum(&gradient, weights, 0.5, &mut residual).unwrap();
                assert!(bytes.contains(&summed.encoded_bytes.unwrap()), "{compress}: {summed:?}");
                let step_values = values_of(&gradient);
                applied.iter_mut().zip(step_values).for_each(|(sum, value)| *sum += value);
            }
            let carried = residual.unwrap_or_else(|| vec![0.0; values.len()]);
            let lacking = values.iter().zip(&applied).zip(&carried);
            let worst = lacking
                .fold(0f32, |worst, ((value, applied), carried)| worst.max((3.0 * value - applied - carried).abs()));
            let most = if compress == Compress::Bf16 { 0.02 } else { 1e-5 };
            assert!(worst < most, "{compress}: {worst}");
        }
    }
}
