//! What is known of an epoch.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What is known of an epoch: a line of `metrics.jsonl`, whose keys are the names of the fields. Accuracies are parts of 1;
/// null stands for what was not measured in this epoch, or is no number.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochRecord {
    /// Epochs that are finished, this one included: the first is 1.
    pub epoch: u64,
    /// Optimizer steps that are finished.
    pub step: u64,
    /// The mean loss of the epoch's seeds.
    #[serde(with = "nan_as_null")]
    pub loss: f64,
    /// Of the nodes that are trained on.
    pub train_accuracy: Option<f64>,
    /// Of the nodes to validate on.
    pub val_accuracy: Option<f64>,
    /// Of the nodes to test on.
    pub test_accuracy: Option<f64>,
    /// Of the nodes to validate on.
    pub val_macro_f1: Option<f64>,
    /// Of the nodes to validate on.
    pub val_micro_f1: Option<f64>,
    /// Of the nodes to validate on.
    pub val_roc_auc: Option<f64>,
    /// Wall time of the epoch, its evaluation included.
    pub seconds: f64,
    /// What the training loop spent that time on.
    pub seconds_by_stage: StageSeconds,
    /// Edges that were drawn by the sampler.
    pub sampled_edges: u64,
    /// Those, per second of the epoch without its evaluation.
    #[serde(with = "nan_as_null")]
    pub sampled_edges_per_second: f64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes that all partitions sent to others.
    pub bytes_sent: u64,
    /// The mean coverage of the epoch's seeds: how much of their neighbourhood their partition sees.
    pub coverage_mean: Option<f64>,
    /// That of the last step.
    #[serde(with = "nan_as_null")]
    pub learning_rate: f64,
    /// The generation of the assignment of chunks to partitions.
    pub generation: u64,
    /// The most memory that the process has had until then, in bytes.
    pub peak_rss_bytes: Option<u64>,
}

/// Seconds that the training loop spent on each stage, waiting included; what others do at the same time in the background
/// does not count.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StageSeconds {
    /// Drawing neighbours.
    pub sample: f64,
    /// Waiting for rows of features to be read.
    pub read: f64,
    /// Putting minibatches together.
    pub assemble: f64,
    /// From minibatches to losses.
    pub forward: f64,
    /// From losses to gradients.
    pub backward: f64,
    /// Adding up gradients of partitions, and stepping.
    pub exchange: f64,
    /// Inference and scores.
    pub evaluate: f64,
}

impl StageSeconds {
    /// The stages' names, in the order of an epoch.
    pub const NAMES: [&'static str; 7] = [
        "sample", "read", "assemble", "forward", "backward", "exchange", "evaluate",
    ];

    /// The stages' seconds, in the order of [`StageSeconds::NAMES`].
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

/// JSON has no NaN and no infinity.
mod nan_as_null {
    use super::*;

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}
