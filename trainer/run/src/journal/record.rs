//! The record of an epoch.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    config::{Evaluate, Monitor},
    model::Task,
    stages::StageSeconds,
};

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
    /// Mean loss of the validation nodes, without weights and label smoothing.
    pub val_loss: Option<f64>,
    /// Mean loss of the test nodes; left out where they were not scored, as the next scores of test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// Accuracy on the validation nodes.
    pub val_accuracy: Option<f64>,
    /// Accuracy on the test nodes. It is computed when the validation score improved, or when it costs little.
    pub test_accuracy: Option<f64>,
    /// Macro F1 on the validation nodes.
    pub val_macro_f1: Option<f64>,
    /// Macro F1 on the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_macro_f1: Option<f64>,
    /// Micro F1 on the validation nodes.
    pub val_micro_f1: Option<f64>,
    /// Micro F1 on the test nodes. It is computed when the accuracy is.
    pub test_micro_f1: Option<f64>,
    /// Area under the ROC curve on the validation nodes.
    pub val_roc_auc: Option<f64>,
    /// Area under the ROC curve on the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_roc_auc: Option<f64>,
    /// Area under the precision-recall curve on the validation nodes; left out if the task has none, as the scores of numbers below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_average_precision: Option<f64>,
    /// Area under the precision-recall curve on the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_average_precision: Option<f64>,
    /// Root of the mean squared error of the validation nodes, in the unit of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_rmse: Option<f64>,
    /// Mean absolute error of the validation nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_mae: Option<f64>,
    /// Coefficient of determination on the validation nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_r2: Option<f64>,
    /// Root of the mean squared error of the test nodes. It is computed when the validation score improved, or when it costs little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_rmse: Option<f64>,
    /// Mean absolute error of the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mae: Option<f64>,
    /// Coefficient of determination on the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_r2: Option<f64>,
    /// Mean reciprocal rank of the validation edges; left out, as the next ones, if no links are predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_mrr: Option<f64>,
    /// Fraction of the validation edges that are among the best 10 of their candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_hits_at_10: Option<f64>,
    /// Mean share of the held-out destinations of a source that are among its best 20, of the validation edges; left out, as the next ones, unless all destinations are ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_recall_at_20: Option<f64>,
    /// Mean average precision of the best 20 destinations of a source, of the validation edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_map_at_20: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 20 destinations of a source, of the validation edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_ndcg_at_20: Option<f64>,
    /// Mean reciprocal rank of the test edges. It is computed when the validation score improved, or when it costs little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mrr: Option<f64>,
    /// Fraction of the test edges that are among the best 10 of their candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_hits_at_10: Option<f64>,
    /// Mean share of the held-out destinations of a source that are among its best 20, of the test edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_recall_at_20: Option<f64>,
    /// Mean average precision of the best 20 destinations of a source, of the test edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_map_at_20: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 20 destinations of a source, of the test edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_ndcg_at_20: Option<f64>,
    /// Wall time since the record before, in seconds, or since the start of the program.
    pub seconds: f64,
    /// That time by stage. The files of an epoch are written while the next one trains, and count there.
    pub seconds_by_stage: StageSeconds,
    /// Sampled edges.
    pub sampled_edges: u64,
    /// Sampled edges per second of training.
    #[serde(with = "nan_as_null")]
    pub sampled_edges_per_second: f64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes of gradients and loss weights that were summed over all partitions. Of W processes, each sends 2 (W - 1) / W of them. Also the bytes
    /// of gradients of embeddings, which partitions send to the owner of a row.
    pub gradient_bytes: u64,
    /// Bytes that each process sent for that: none if there is only one process.
    pub bytes_sent: u64,
    /// Halo data received before the epoch, in bytes, after repartitioning or a refresh of embeddings: historical
    /// embeddings, or sampled in-neighbors with their features.
    pub halo_bytes: u64,
    /// Bytes of learnable embeddings that partitions received before the epoch, as copies of the rows of other partitions: state, and no
    /// gradients.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub row_bytes: u64,
    /// Bytes of features that partitions sent each other.
    pub feature_bytes: u64,
    /// Bytes of hidden states and of their gradients that partitions sent each other.
    pub activation_bytes: u64,
    /// Mean squared error of the states that arrived, relative to the mean square of what was sent, if the method changes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_error: Option<f64>,
    /// Mean coverage of the epoch's seeds: the fraction of its neighborhood that a seed sees in its partition.
    pub coverage_mean: Option<f64>,
    /// Learning rate of the last step.
    #[serde(with = "nan_as_null")]
    pub learning_rate: f64,
    /// Generation of the assignment of chunks to partitions.
    pub generation: u64,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of partitions that are computed together in a step.
    pub concurrent: u32,
    /// Peak memory of the process so far, in bytes.
    pub peak_rss_bytes: Option<u64>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl EpochRecord {
    /// The score of a task on the validation nodes and on the test nodes. Test nodes are scored if the validation score is better than
    /// before, or if it costs little.
    pub fn scores(&self, task: Task) -> [Option<f64>; 2] {
        match task {
            Task::MultiClass => [self.val_accuracy, self.test_accuracy],
            Task::MultiLabel => [self.val_micro_f1, self.test_micro_f1],
            Task::Regression => [self.val_rmse, self.test_rmse],
            Task::Links => [self.val_mrr, self.test_mrr],
        }
    }

    /// What a run monitors, on the validation nodes and on the test nodes.
    pub fn monitored(&self, monitor: Monitor, task: Task) -> [Option<f64>; 2] {
        match monitor {
            Monitor::Score => self.scores(task),
            Monitor::Loss => [self.val_loss, self.test_loss],
            Monitor::Accuracy => [self.val_accuracy, self.test_accuracy],
            Monitor::MacroF1 => [self.val_macro_f1, self.test_macro_f1],
            Monitor::MicroF1 => [self.val_micro_f1, self.test_micro_f1],
            Monitor::Auc => [self.val_roc_auc, self.test_roc_auc],
            Monitor::AveragePrecision => [self.val_average_precision, self.test_average_precision],
            Monitor::Rmse => [self.val_rmse, self.test_rmse],
            Monitor::Mae => [self.val_mae, self.test_mae],
            Monitor::R2 => [self.val_r2, self.test_r2],
            Monitor::Mrr => [self.val_mrr, self.test_mrr],
            Monitor::HitsAt10 => [self.val_hits_at_10, self.test_hits_at_10],
            Monitor::RecallAt20 => [self.val_recall_at_20, self.test_recall_at_20],
            Monitor::MapAt20 => [self.val_map_at_20, self.test_map_at_20],
            Monitor::NdcgAt20 => [self.val_ndcg_at_20, self.test_ndcg_at_20],
        }
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
