//! Coverage-corrected aggregation of gradients.
//!
//! # Idea
//! The target is the gradient of uniform sampling from whole neighborhoods. A partition samples the neighbors of an inner node only
//! among those that it can expand. With the [coverage](grappa_sampling::sample::coverage) c(v) of a seed v as importance weight, the
//! gradient of a step, over partitions p and their seeds v, is (Xu, Siebenbrunner, Bindschaedler: "Grappa", arXiv 2602.01872)
//!
//! ```text
//! node    sum_p sum_v c(v) grad_v / sum_p sum_v c(v)
//! batch   sum_p a_p sum_v grad_v / sum_p a_p n_p,   a_p = mean of c(v) over the n_p seeds of p
//! ```
//!
//! `batch` replaces the weights of the seeds by their mean. Both forms are self-normalized importance sampling. They are unbiased in
//! the limit, where repartitioning gives every neighborhood a chance. `--shrinkage` weakens them.
//!
//! The denominator is a running mean over steps, corrected for its start at zero. The denominator of one step alone would
//! cancel the weights where a step has a single partition.
//!
//! # Effect
//! Small: see `benches/record/accuracy.md`. Isolation does not give some seeds too large a weight. It makes
//! the messages of halo nodes wrong, and no weight of a seed corrects that. The aggregator can: a pre-aggregated first hop
//! ([`crate::train::first_hop`]) with historical embeddings ([`crate::train::historical`]) leaves 4 % of the bias of isolation in 3 layers,
//! and none in 2. That is the default, with loss weights of 1 (`none`). The paper's forms remain available.

use grappa_run::config::Correction;
use grappa_sampling::sample::loss_weights;

use crate::train::exchange::LossWeights;

/// The share of a step in the running mean of denominators.
const SMOOTHING: f64 = 0.1;

/// The factors by which the losses of a partition's seeds are multiplied, from their coverage.
pub fn factors(correction: Correction, shrinkage: f64, coverage: &[f32]) -> Vec<f32> {
    match correction {
        Correction::None => vec![1.0; coverage.len()],
        Correction::Node | Correction::Batch => loss_weights(coverage, correction == Correction::Node, shrinkage),
    }
}

/// The running mean of the mean factor of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Denominator {
    mean: f64,
    /// The sum of the weights of all steps so far in the running mean. It tends to 1.
    weight: f64,
}

impl Denominator {
    /// The state, for a checkpoint.
    pub fn parts(&self) -> [f64; 2] {
        [self.mean, self.weight]
    }

    /// Restores the state of a checkpoint.
    pub fn of_parts([mean, weight]: [f64; 2]) -> Self {
        Self { mean, weight }
    }

    /// The divisor of a step's gradient: `seeds`, the mean number of seeds of a step in this epoch. With a correction, it is
    /// multiplied by the running mean of the factors.
    ///
    /// Dividing by the mean number gives all seeds the same weight. Dividing by the step's own number would give the seeds of a
    /// small step, and their noise, a larger one.
    pub fn of_step(&mut self, correction: Correction, weights: LossWeights, seeds: f64) -> f64 {
        if correction == Correction::None || weights.seeds == 0.0 {
            return seeds.max(1.0);
        }
        self.mean += SMOOTHING * (weights.factors / weights.seeds - self.mean);
        self.weight += SMOOTHING * (1.0 - self.weight);
        seeds * (self.mean / self.weight).max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_differ_in_who_gets_which_weight() {
        let coverage = [1.0, 0.5];
        assert_eq!(factors(Correction::None, 1.0, &coverage), [1.0, 1.0]);
        assert_eq!(factors(Correction::Node, 1.0, &coverage), [1.0, 0.5]);
        assert_eq!(factors(Correction::Batch, 1.0, &coverage), [0.75, 0.75]);
    }

    #[test]
    fn a_partition_alone_in_its_step_keeps_its_weight() {
        let step = |factors, seeds| LossWeights { factors, seeds };
        let mut denominator = Denominator::default();
        // The first step is its own mean.
        let first = denominator.of_step(Correction::Batch, step(8.0, 10.0), 10.0);
        assert!((first - 8.0).abs() < 1e-9, "{first}");
        for _ in 0..1000 {
            denominator.of_step(Correction::Batch, step(9.0, 10.0), 10.0);
            denominator.of_step(Correction::Batch, step(3.0, 10.0), 10.0);
        }
        // Gradients are then 0.9 / 0.6 and 0.3 / 0.6 of a mean, about: what few see counts less.
        let divisor = denominator.of_step(Correction::Batch, step(9.0, 10.0), 10.0);
        assert!((divisor / 10.0 - 0.6).abs() < 0.05, "{divisor}");
        // A step of few seeds counts as much as these do.
        let few = denominator.of_step(Correction::Batch, step(0.9, 1.0), 10.0);
        assert!((few / divisor - 1.0).abs() < 0.1, "{few} {divisor}");
        assert_eq!(denominator.of_step(Correction::None, step(1.0, 1.0), 10.0), 10.0);
        assert_eq!(denominator.of_step(Correction::None, step(0.0, 0.0), 0.0), 1.0);
    }
}
