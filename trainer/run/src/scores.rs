//! The scores of a run's model.

pub use grappa_scores::{
    Judged, Labels, LinkCandidates, LinkReport, LinkScores, Places, RANKED_MAX, RankReport, ScoreReport, Scores,
    SourceReport, SourceScores, TargetLoss, TargetScale, TargetScore, is_undecided, largest,
};
use serde::{Deserialize, Serialize};

use crate::config::Evaluate;

/// The scores of a model, as the summary and the report show them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelScores {
    /// How they were computed.
    pub evaluated: Evaluate,
    /// Accuracy on the validation nodes.
    pub val_accuracy: Option<f64>,
    /// Micro F1 on the validation nodes.
    pub val_micro_f1: Option<f64>,
    /// Mean F1 of the classes on the validation nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_macro_f1: Option<f64>,
    /// Area under the ROC curve on the validation nodes or edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_roc_auc: Option<f64>,
    /// Area under the precision-recall curve on the validation nodes or edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_average_precision: Option<f64>,
    /// Mean loss of the validation nodes.
    pub val_loss: Option<f64>,
    /// Root of the mean squared error of the validation nodes, if labels are numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_rmse: Option<f64>,
    /// Mean absolute error of the validation nodes, as the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_mae: Option<f64>,
    /// Coefficient of determination on the validation nodes, as the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_r2: Option<f64>,
    /// Mean reciprocal rank of the validation edges, if links are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_mrr: Option<f64>,
    /// Fraction of the validation edges that are among the best 10 of their candidates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_hits_at_10: Option<f64>,
    /// Mean share of the held-out destinations of a source that are among its best 20, of the validation edges; none unless all destinations are ranked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_recall_at_20: Option<f64>,
    /// Mean average precision of the best 20 destinations of a source, of the validation edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_map_at_20: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 20 destinations of a source, of the validation edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_ndcg_at_20: Option<f64>,
    /// Accuracy on the test nodes.
    pub test_accuracy: Option<f64>,
    /// The split of the report: `test`, or `val` if there are no test nodes.
    pub split: String,
    /// All scores on that split.
    pub report: ScoreReport,
}

impl ModelScores {
    /// All scores on the test nodes, if there are any.
    pub fn test(&self) -> Option<&ScoreReport> {
        (self.split == "test").then_some(&self.report)
    }
}
