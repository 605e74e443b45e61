//! The record of an epoch.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::Evaluate;

/// The metrics of an epoch: a line of `metrics.jsonl`. The names of the fields are its keys. Accuracies are fractions of 1. Null
/// means that a value was not measured in this epoch, or is not finite.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochRecord {
    /// Number of the epoch, counted from 1.
    pub epoch: u64,
    /// Finished optimizer steps.
    pub step: u64,
    /// Mean loss of the epoch's seeds.
    #[serde(with = "nan_as_null")]
    pub loss: f64,
    /// Fraction of the training nodes whose class was right in their training step; null for multi-label tasks.
    pub train_accuracy: Option<f64>,
    /// How the model was evaluated: `exact` or `sampled`.
    pub evaluated: Option<Evaluate>,
    /// Accuracy on the validation nodes.
    pub val_accuracy: Option<f64>,
    /// Accuracy on the test nodes. It is computed when the validation score improved, or when it costs little.
    pub test_accuracy: Option<f64>,
    /// Macro F1 on the validation nodes.
    pub val_macro_f1: Option<f64>,
    /// Micro F1 on the validation nodes.
    pub val_micro_f1: Option<f64>,
    /// Area under the ROC curve on the validation nodes.
    pub val_roc_auc: Option<f64>,
    /// Wall time of the epoch in seconds, with its evaluation.
    pub seconds: f64,
    /// That time by stage.
    pub seconds_by_stage: StageSeconds,
    /// Sampled edges.
    pub sampled_edges: u64,
    /// Sampled edges per second of the epoch, without its evaluation.
    #[serde(with = "nan_as_null")]
    pub sampled_edges_per_second: f64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes that partitions sent to each other.
    pub bytes_sent: u64,
    /// Mean coverage of the epoch's seeds: the fraction of its neighbourhood that a seed sees in its partition.
    pub coverage_mean: Option<f64>,
    /// Learning rate of the last step.
    #[serde(with = "nan_as_null")]
    pub learning_rate: f64,
    /// Generation of the assignment of chunks to partitions.
    pub generation: u64,
    /// Peak memory of the process so far, in bytes.
    pub peak_rss_bytes: Option<u64>,
}

/// Seconds that the training loop spent on each stage of an epoch, or waiting for it. Work in the background does not count.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StageSeconds {
    /// Waiting for sampled minibatches.
    pub sample: f64,
    /// Waiting for feature rows from the disk.
    pub read: f64,
    /// Waiting for feature rows to be copied into minibatches.
    pub assemble: f64,
    /// Loading tensors and computing losses.
    pub forward: f64,
    /// Computing gradients.
    pub backward: f64,
    /// Exchanging gradients and updating the parameters.
    pub exchange: f64,
    /// Exact inference and scores.
    pub evaluate: f64,
}

impl StageSeconds {
    /// Names of the stages, in the order of an epoch.
    pub const NAMES: [&'static str; 7] = [
        "sample", "read", "assemble", "forward", "backward", "exchange", "evaluate",
    ];

    /// Seconds of the stages, in the order of [`StageSeconds::NAMES`].
    pub fn values(&self) -> [f64; 7] {
        [
            self.sample,
            self.read,
            self.assemble,
            self.forward,
            self.backward,
            self.exchange,
            self.evaluate,
        ]
    }
}

/// Writes values that are not finite as null, because JSON has neither NaN nor infinity.
mod nan_as_null {
    use super::*;

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}
