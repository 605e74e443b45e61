//! The exchange of gradients between partitions.
//!
//! Its types are its contract: a flat gradient and two numbers go in, and their sums come out. Features and activations have
//! no place in it.

use tch::Tensor;

use crate::Result;

/// The loss weights that belong to a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LossWeights {
    /// Sum of the factors that the losses of the seeds were multiplied by.
    pub factors: f64,
    /// Number of seeds.
    pub seeds: f64,
}

impl LossWeights {
    /// Bytes that they take in an exchange.
    pub const BYTES: u64 = 16;
}

/// Sums the gradients of all participants of a step. A participant without a batch takes part with zeros, so nobody waits for
/// ever.
pub trait Exchange {
    /// Replaces `gradient`, f32 of `[parameters]`, by the sum over all participants. Returns the sums of their loss weights.
    ///
    /// # Errors
    /// If a participant cannot be reached.
    fn sum(&mut self, gradient: &mut Tensor, weights: LossWeights) -> Result<LossWeights>;
}

/// The exchange of a single process. It trains all partitions and has already added up their gradients.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Exchange for InProcess {
    fn sum(&mut self, _gradient: &mut Tensor, weights: LossWeights) -> Result<LossWeights> {
        Ok(weights)
    }
}
