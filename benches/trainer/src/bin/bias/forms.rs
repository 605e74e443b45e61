//! Loss weights of seeds that depend on their coverage.

use std::fmt;

use tch::Tensor;

/// Sums over the seeds of a partition, from which all forms are computed: gradients times loss weights, and loss
/// weights.
#[derive(Debug)]
pub struct Sums {
    /// Gradients, weighted by 1, c, 1/c (clipped), and c / (mean of its stratum).
    pub gradients: [Tensor; Sums::WEIGHTS],
    /// The loss weights.
    pub weights: [f64; Sums::WEIGHTS],
}

/// The rule that combines the gradients of the partitions of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    None,
    Batch,
    /// With the shrinkage of the loss weights.
    Node(f64),
    Inverse,
    Strata,
}

/// The largest loss weight of a seed with low coverage.
const INVERSE_MAX: f64 = 4.0;

impl Sums {
    pub const WEIGHTS: usize = 4;

    /// The loss weights of seeds. `coverage` is their coverage, `strata` the mean coverage in the degree range of each.
    pub fn weights(coverage: &[f32], strata: &[f64]) -> [Vec<f32>; Self::WEIGHTS] {
        let each = |weight: &dyn Fn(f64, f64) -> f64| {
            coverage
                .iter()
                .zip(strata)
                .map(|(&c, &mean)| weight(c.into(), mean) as f32)
                .collect()
        };
        [
            each(&|_, _| 1.0),
            each(&|c, _| c),
            each(&|c, _| (1.0 / c).min(INVERSE_MAX)),
            each(&|c, mean| if mean > 0.0 { c / mean } else { 1.0 }),
        ]
    }
}

impl Form {
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Batch,
        Self::Node(1.0),
        Self::Node(0.5),
        Self::Node(0.2),
        Self::Inverse,
        Self::Strata,
    ];

    /// The gradient of a step.
    pub fn gradient(self, partitions: &[Sums]) -> Tensor {
        let mut numerator = partitions[0].gradients[0].zeros_like();
        let mut denominator = 0.0;
        for sums in partitions {
            let [seeds, covered, inverse, strata] = sums.weights;
            // The factor of each sum, and its total loss weight.
            let (parts, weight) = match self {
                Self::None => ([1.0, 0.0, 0.0, 0.0], seeds),
                Self::Batch => ([covered / seeds, 0.0, 0.0, 0.0], covered),
                Self::Node(used) => ([1.0 - used, used, 0.0, 0.0], (1.0 - used) * seeds + used * covered),
                Self::Inverse => ([0.0, 0.0, 1.0, 0.0], inverse),
                Self::Strata => ([0.0, 0.0, 0.0, 1.0], strata),
            };
            for (part, gradient) in parts.into_iter().zip(&sums.gradients) {
                if part != 0.0 {
                    numerator += gradient * part;
                }
            }
            denominator += weight;
        }
        numerator / f64::max(denominator, 1e-9)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Batch => f.write_str("batch"),
            Self::Node(used) if *used < 1.0 => write!(f, "node, shrinkage {used}"),
            Self::Node(_) => f.write_str("node"),
            Self::Inverse => write!(f, "1/c, at most {INVERSE_MAX}"),
            Self::Strata => f.write_str("strata"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums of a partition whose seeds have equal gradients.
    fn sums(gradients: &[f32], coverage: &[f32]) -> Sums {
        let strata = vec![0.5; coverage.len()];
        let weights = Sums::weights(coverage, &strata);
        let dot = |weights: &Vec<f32>| -> f32 { weights.iter().zip(gradients).map(|(a, b)| a * b).sum() };
        Sums {
            gradients: weights.each_ref().map(|weights| Tensor::from_slice(&[dot(weights)])),
            weights: weights.each_ref().map(|weights| f64::from(weights.iter().sum::<f32>())),
        }
    }

    #[test]
    fn forms_are_weighted_means() {
        let partitions = [sums(&[1.0, 3.0], &[1.0, 0.5]), sums(&[10.0], &[0.25])];
        for (form, expected) in [
            (Form::None, 14.0 / 3.0),
            (Form::Batch, (0.75 * 4.0 + 2.5) / 1.75),
            (Form::Node(1.0), (1.0 + 1.5 + 2.5) / 1.75),
            (Form::Node(0.0), 14.0 / 3.0),
            (Form::Inverse, (1.0 + 6.0 + 40.0) / 7.0),
            (Form::Strata, (2.0 + 3.0 + 5.0) / 3.5),
        ] {
            let gradient = form.gradient(&partitions).double_value(&[0]);
            assert!(
                (gradient - expected).abs() < 1e-5,
                "{form}: {gradient}, expected {expected}"
            );
        }
    }

    #[test]
    fn seeds_without_neighbors_have_a_weight() {
        let [one, c, inverse, strata] = Sums::weights(&[0.0], &[0.0]);
        assert_eq!([one[0], c[0], inverse[0], strata[0]], [1.0, 0.0, 4.0, 1.0]);
    }
}
