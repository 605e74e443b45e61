//! Losses of predictions: cross-entropy, and binary cross-entropy for sets.

/// Units of a loss of 1: losses are added as integers, so that their order does not matter.
const UNITS: f64 = (1u64 << 40) as f64;
/// Larger losses count as infinite. With the largest number of nodes, their sum is below 2^128.
const LOSS_MAX: f64 = (1u64 << 47) as f64;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossSum {
    /// The sum of the finite losses, in [`UNITS`].
    pub(super) units: u128,
    /// Whether a loss is not finite.
    pub(super) is_infinite: bool,
}

impl LossSum {
    pub(super) fn add(&mut self, loss: f64) {
        match loss <= LOSS_MAX {
            true => self.units += (loss * UNITS).round() as u128,
            false => self.is_infinite = true,
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.units += other.units;
        self.is_infinite |= other.is_infinite;
    }

    /// The mean over `nodes` nodes. None without nodes, or if a loss is not finite.
    pub(super) fn mean(&self, nodes: u64) -> Option<f64> {
        (nodes > 0 && !self.is_infinite).then(|| self.units as f64 / UNITS / nodes as f64)
    }
}

/// The negative logarithm of the probability of the class `label`: cross-entropy after a softmax.
pub(super) fn of_class(logits: &[f32], label: usize) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from((logit - largest).exp())).sum();
    sum.ln() + f64::from(largest) - f64::from(logits[label])
}

/// The mean over the known classes of the negative logarithm of the probability that the node is in the class, or is not: binary
/// cross-entropy after a sigmoid.
pub(super) fn of_set(logits: &[f32], is_in: impl Fn(usize) -> Option<bool>) -> f64 {
    let (mut sum, mut known) = (0.0, 0);
    for (class, &logit) in logits.iter().enumerate() {
        let Some(is_in) = is_in(class) else { continue };
        let against = f64::from(if is_in { -logit } else { logit });
        // ln(1 + e^x), without overflow.
        sum += against.max(0.0) + (-against.abs()).exp().ln_1p();
        known += 1;
    }
    sum / f64::from(known)
}
