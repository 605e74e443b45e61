//! Scores of numbers: errors of predicted targets.
//!
//! Errors are added in units of each target's deviation, as integers, so that their order does not matter.

use serde::{Deserialize, Serialize};

use super::loss::LossSum;

/// Units of a signed sum of 1.
const UNITS: f64 = (1u64 << 40) as f64;

/// The mean and the deviation of each target among the training nodes, and the loss of a standardized error.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetScale {
    /// The mean of each target.
    pub means: Vec<f32>,
    /// The standard deviation of each target, above 0.
    pub deviations: Vec<f32>,
    /// The loss of an error in units of the deviation.
    pub loss: TargetLoss,
}

/// The loss of an error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TargetLoss {
    /// Its square.
    Squared,
    /// Its magnitude.
    Absolute,
    /// Half of its square up to this magnitude, and linear beyond (Huber, 1964), as PyTorch's `HuberLoss`.
    Huber(f64),
}

impl TargetLoss {
    /// The loss of an error.
    pub fn evaluate(self, error: f64) -> f64 {
        let magnitude = error.abs();
        match self {
            Self::Squared => error * error,
            Self::Absolute => magnitude,
            Self::Huber(delta) if magnitude <= delta => 0.5 * error * error,
            Self::Huber(delta) => delta * (magnitude - 0.5 * delta),
        }
    }
}

/// Sums over the nodes that have a target, in units of its deviation.
#[derive(Debug, Clone, Copy)]
pub(super) struct TargetSums {
    pub(super) nodes: u64,
    /// Squares and magnitudes of errors, and squares of differences to the mean of the training nodes.
    pub(super) sums: [LossSum; 3],
    /// Differences to the mean, in [`UNITS`].
    pub(super) offset: i128,
    /// The least and the greatest target.
    pub(super) range: [f32; 2],
}

impl Default for TargetSums {
    fn default() -> Self {
        Self { nodes: 0, sums: Default::default(), offset: 0, range: [f32::INFINITY, f32::NEG_INFINITY] }
    }
}

impl TargetSums {
    /// Adds a node with a target, by its error and the target less the mean, both in units of the deviation.
    pub(super) fn add(&mut self, value: f32, error: f64, target: f64) {
        self.nodes += 1;
        self.range = [self.range[0].min(value), self.range[1].max(value)];
        let values = [error * error, error.abs(), target * target];
        for (sum, value) in self.sums.iter_mut().zip(values) {
            sum.add(value);
        }
        self.offset += (target * UNITS).round() as i128;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.nodes += other.nodes;
        for (sum, other) in self.sums.iter_mut().zip(other.sums) {
            sum.merge(other);
        }
        self.offset += other.offset;
        self.range = [self.range[0].min(other.range[0]), self.range[1].max(other.range[1])];
    }

    pub(super) fn score(&self, deviation: f32) -> TargetScore {
        let deviation = f64::from(deviation);
        let [squares, magnitudes, targets] = self.sums.map(|sum| sum.mean(self.nodes));
        let mean = self.offset as f64 / UNITS / self.nodes.max(1) as f64;
        // Of equal targets, rounding may leave a variance above 0.
        let is_constant = self.range[0] >= self.range[1];
        let variance = targets.map(|square| square - mean * mean).filter(|_| !is_constant);
        TargetScore {
            nodes: self.nodes,
            rmse: squares.map(|square| square.sqrt() * deviation),
            mae: magnitudes.map(|magnitude| magnitude * deviation),
            r2: squares
                .zip(variance)
                .filter(|(_, variance)| *variance > 0.0)
                .map(|(square, variance)| 1.0 - square / variance),
            baseline_rmse: targets.map(|square| square.sqrt() * deviation),
        }
    }
}

/// Scores of a target, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TargetScore {
    /// Nodes that have the target, and a prediction.
    pub nodes: u64,
    /// Root of the mean squared error. None without nodes, or if an error is not finite.
    pub rmse: Option<f64>,
    /// Mean absolute error, as [`TargetScore::rmse`].
    pub mae: Option<f64>,
    /// Coefficient of determination: 1 less the mean squared error divided by the variance of the target. None also if all targets are
    /// equal.
    pub r2: Option<f64>,
    /// Root of the mean squared error of a model that predicts the mean of the training nodes.
    pub baseline_rmse: Option<f64>,
}

/// The mean of a score over the targets that have it. None if one has nodes, and lacks it.
pub(super) fn mean_of(scores: &[TargetScore], score: impl Fn(&TargetScore) -> Option<f64>) -> Option<f64> {
    let scores = scores.iter().filter(|target_scores| target_scores.nodes > 0);
    mean(&scores.map(score).collect::<Option<Vec<f64>>>()?)
}

/// The mean of values. None without values.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
