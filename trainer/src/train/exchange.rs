//! What partitions exchange: gradients, and two numbers.
//!
//! The types say it: a flat gradient and two weights go in, their sums come out, and there is no room for a feature or an
//! activation.

use tch::Tensor;

use crate::Result;

/// What goes with a gradient: what the losses of its seeds were multiplied by, added up, and how many seeds there were.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Weights {
    /// Sum of the factors of all seeds.
    pub factors: f64,
    /// Number of seeds.
    pub seeds: f64,
}

impl Weights {
    /// Bytes that they take in an exchange.
    pub const BYTES: u64 = 16;
}

/// Adds up gradients over all who take part in a step. Who has no batch left takes part with zeros, so nobody waits for
/// ever.
pub trait Exchange {
    /// Replaces `gradient`, f32 of as many values as the model has, by the sum over all; returns the sums of the weights.
    ///
    /// # Errors
    /// If somebody can't be reached.
    fn sum(&mut self, gradient: &mut Tensor, weights: Weights) -> Result<Weights>;
}

/// All partitions are trained by this process, which has added up their gradients already.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Exchange for InProcess {
    fn sum(&mut self, _gradient: &mut Tensor, weights: Weights) -> Result<Weights> {
        Ok(weights)
    }
}
