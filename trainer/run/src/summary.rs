//! The result of a run, as one JSON object.

use grappa_io::ledger::Ledger;
use serde::Serialize;

use super::{
    checkpoint::RunState,
    config::{Evaluate, Monitor, TrainConfig},
    journal::EpochRecord,
    model::{ModelGraph, Task},
    scores::{LinkReport, ModelScores, ScoreReport},
    stages::StageSeconds,
};

/// The result of a run: `summary.json`, and the output of the program. The names of the fields are the keys. Accuracies are
/// fractions of 1, at the epoch with the best validation score, or at the last epoch if there are no validation nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Accuracy on the test nodes; null without test nodes or without evaluation.
    pub test_accuracy: Option<f64>,
    /// Accuracy on the validation nodes.
    pub val_accuracy: Option<f64>,
    /// Micro F1 on the test nodes, which counts instead of the accuracy if nodes have sets of labels; left out, as the next ones, if the task has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_micro_f1: Option<f64>,
    /// Micro F1 on the validation nodes, as the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_micro_f1: Option<f64>,
    /// Mean F1 of the classes on the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_macro_f1: Option<f64>,
    /// Mean F1 of the classes on the validation nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_macro_f1: Option<f64>,
    /// Area under the ROC curve on the test nodes or edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_roc_auc: Option<f64>,
    /// Area under the ROC curve on the validation nodes or edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_roc_auc: Option<f64>,
    /// Area under the precision-recall curve on the test nodes or edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_average_precision: Option<f64>,
    /// Area under the precision-recall curve on the validation nodes or edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_average_precision: Option<f64>,
    /// Root of the mean squared error of the test nodes, in the unit of the target; left out, as the next ones, if labels are classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_rmse: Option<f64>,
    /// Root of the mean squared error of the validation nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_rmse: Option<f64>,
    /// Mean absolute error of the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mae: Option<f64>,
    /// Mean absolute error of the validation nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_mae: Option<f64>,
    /// Coefficient of determination on the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_r2: Option<f64>,
    /// Coefficient of determination on the validation nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_r2: Option<f64>,
    /// Mean reciprocal rank of the test edges; left out, as the next ones, if no links are predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_mrr: Option<f64>,
    /// Mean reciprocal rank of the validation edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_mrr: Option<f64>,
    /// Fraction of the test edges that are among the best 10 of their candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_hits_at_10: Option<f64>,
    /// Fraction of the validation edges that are among the best 10 of their candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_hits_at_10: Option<f64>,
    /// Mean share of the held-out destinations of a source that are among its best 20, of the test edges; left out, as the next ones, unless all destinations are ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_recall_at_20: Option<f64>,
    /// The same of the validation edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_recall_at_20: Option<f64>,
    /// Mean average precision of the best 20 destinations of a source, of the test edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_map_at_20: Option<f64>,
    /// The same of the validation edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_map_at_20: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 20 destinations of a source, of the test edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_ndcg_at_20: Option<f64>,
    /// The same of the validation edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_ndcg_at_20: Option<f64>,
    /// All scores of links, of the test edges, or of the validation edges if there are no test edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkReport>,
    /// Mean loss of the test nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// Mean loss of the validation nodes.
    pub val_loss: Option<f64>,
    /// How these scores were computed: `exact` or `sampled`; null without evaluation.
    pub evaluated: Option<Evaluate>,
    /// The epoch with the best validation score, counted from 1; null without evaluation.
    pub best_epoch: Option<u64>,
    /// Finished epochs.
    pub epochs: u64,
    /// The epoch after which early stopping ended the run, before its last one; null if it did not.
    pub early_stopping_epoch: Option<u64>,
    /// Wall time of the run in seconds, over all processes that worked on it. It begins with the start of the program.
    pub seconds_total: f64,
    /// That time by stage.
    pub seconds_by_stage: StageSeconds,
    /// Mean time of training an epoch in seconds, without evaluation and files; null without epochs.
    pub seconds_per_epoch: Option<f64>,
    /// Sampled edges per second of training, over all epochs; null without epochs.
    pub sampled_edges_per_second: Option<f64>,
    /// Mean bytes of the gradient and loss weights of a step, summed over all partitions; null without steps.
    pub gradient_bytes_per_step: Option<f64>,
    /// Mean bytes that each process sent for that in a step: 0 if there is only one process; null without steps.
    pub bytes_sent_per_step: Option<f64>,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Peak memory of a process of the run; null if the kernel does not report it.
    pub peak_rss_bytes: Option<u64>,
    /// The memory of the process that wrote the summary: who may take how much of `--memory`, and why; null if it trained no epoch.
    pub memory: Option<Ledger>,
    /// The generation of the last assignment of chunks to partitions.
    pub generation: u64,
    /// Number of partitions: as configured, or what `auto` became. 0 without epochs, as the next one.
    pub partitions: u32,
    /// Number of partitions that are computed together in a step.
    pub concurrent: u32,
    /// Number of processes that trained together when the summary was written.
    pub processes: u32,
    /// The node type or the relation that was learned; left out if the graph has no types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The effective configuration.
    pub config: TrainConfig,
    /// The kind of predictions.
    #[serde(skip)]
    pub task: Task,
}

/// A score of the best model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BestScore {
    /// Its name, for people.
    pub name: &'static str,
    /// On the validation nodes.
    pub val: Option<f64>,
    /// On the test nodes.
    pub test: Option<f64>,
}

impl Summary {
    /// The result of a run with these epochs in `state`. `seconds` is its wall time.
    ///
    /// Scores come from the state, because a checkpoint has a checksum and lines of `metrics.jsonl` have none. Records may be missing:
    /// means are over the other epochs.
    pub fn new(records: &[EpochRecord], state: &RunState, config: &TrainConfig, seconds: StageSeconds) -> Self {
        let last = records.last();
        let at_best = match &state.best {
            Some(best) => records.iter().find(|record| record.epoch == best.epoch),
            // Without validation nodes, the model is from the last epoch.
            None => last.filter(|record| record.epoch == state.epoch),
        };
        let training: f64 = records.iter().map(|record| record.seconds_by_stage.training()).sum();
        let counted = with_steps(records);
        let steps: u64 = counted.iter().map(|(_, steps)| steps).sum();
        let counted: Vec<&EpochRecord> = counted.iter().map(|(record, _)| *record).collect();
        let gradient_bytes = sum(counted.iter().map(|record| record.gradient_bytes));
        let bytes_sent = sum(counted.iter().map(|record| record.bytes_sent));
        let sampled_edges = sum(records.iter().map(|record| record.sampled_edges));
        let task = state.task();
        let [partitions, concurrent] = match last {
            Some(record) => [record.partitions, record.concurrent],
            None if state.epoch == 0 => [0, 0],
            // All records were lost.
            None => state.partitions([config.partitions(), config.concurrent()]),
        };
        let mut summary = Self {
            test_accuracy: at_best.and_then(|record| record.test_accuracy),
            val_accuracy: at_best.and_then(|record| record.val_accuracy),
            test_micro_f1: at_best.and_then(|record| record.test_micro_f1),
            val_micro_f1: at_best.and_then(|record| record.val_micro_f1),
            test_macro_f1: at_best.and_then(|record| record.test_macro_f1),
            val_macro_f1: at_best.and_then(|record| record.val_macro_f1),
            test_roc_auc: at_best.and_then(|record| record.test_roc_auc),
            val_roc_auc: at_best.and_then(|record| record.val_roc_auc),
            test_average_precision: at_best.and_then(|record| record.test_average_precision),
            val_average_precision: at_best.and_then(|record| record.val_average_precision),
            test_rmse: at_best.and_then(|record| record.test_rmse),
            val_rmse: at_best.and_then(|record| record.val_rmse),
            test_mae: at_best.and_then(|record| record.test_mae),
            val_mae: at_best.and_then(|record| record.val_mae),
            test_r2: at_best.and_then(|record| record.test_r2),
            val_r2: at_best.and_then(|record| record.val_r2),
            test_mrr: at_best.and_then(|record| record.test_mrr),
            val_mrr: at_best.and_then(|record| record.val_mrr),
            test_hits_at_10: at_best.and_then(|record| record.test_hits_at_10),
            val_hits_at_10: at_best.and_then(|record| record.val_hits_at_10),
            test_recall_at_20: at_best.and_then(|record| record.test_recall_at_20),
            val_recall_at_20: at_best.and_then(|record| record.val_recall_at_20),
            test_map_at_20: at_best.and_then(|record| record.test_map_at_20),
            val_map_at_20: at_best.and_then(|record| record.val_map_at_20),
            test_ndcg_at_20: at_best.and_then(|record| record.test_ndcg_at_20),
            val_ndcg_at_20: at_best.and_then(|record| record.val_ndcg_at_20),
            links: None,
            test_loss: at_best.and_then(|record| record.test_loss),
            val_loss: at_best.and_then(|record| record.val_loss),
            evaluated: at_best.and_then(|record| record.evaluated),
            best_epoch: state.best.map(|best| best.epoch),
            epochs: state.epoch,
            early_stopping_epoch: state.ended_early(config.epochs, config.early_stopping).then_some(state.epoch),
            seconds_total: 0.0,
            seconds_by_stage: StageSeconds::default(),
            seconds_per_epoch: ratio(training, records.len() as f64),
            sampled_edges_per_second: ratio(sampled_edges as f64, training),
            gradient_bytes_per_step: ratio(gradient_bytes as f64, steps as f64),
            bytes_sent_per_step: ratio(bytes_sent as f64, steps as f64),
            bytes_read: sum(records.iter().map(|record| record.bytes_read)),
            peak_rss_bytes: records.iter().filter_map(|record| record.peak_rss_bytes).max(),
            memory: None,
            generation: last.map_or(state.generation, |record| record.generation),
            partitions,
            concurrent,
            processes: 1,
            target: state.graph.as_ref().map(ModelGraph::target_name),
            config: config.clone(),
            task,
        };
        if let Some(scores) = &state.scores {
            summary.set_scores(scores);
        }
        summary.set_seconds(seconds);
        summary
    }

    /// Sets the scores of the model.
    pub fn set_scores(&mut self, scores: &ModelScores) {
        self.test_accuracy = scores.test_accuracy;
        self.val_accuracy = scores.val_accuracy;
        let test = scores.test();
        self.test_loss = test.and_then(|test| test.loss);
        (self.test_micro_f1, self.val_micro_f1) = (test.and_then(|test| test.micro_f1), scores.val_micro_f1);
        (self.test_macro_f1, self.val_macro_f1) = (test.and_then(|test| test.macro_f1), scores.val_macro_f1);
        (self.test_roc_auc, self.val_roc_auc) = (test.and_then(|test| test.roc_auc), scores.val_roc_auc);
        (self.test_average_precision, self.val_average_precision) =
            (test.and_then(|test| test.average_precision), scores.val_average_precision);
        (self.test_rmse, self.val_rmse) = (test.and_then(|test| test.rmse), scores.val_rmse);
        (self.test_mae, self.val_mae) = (test.and_then(|test| test.mae), scores.val_mae);
        (self.test_r2, self.val_r2) = (test.and_then(|test| test.r2), scores.val_r2);
        let links = scores.report.links.clone();
        let ranks = test.and(links.as_ref()).map(|links| &links.filtered);
        (self.test_mrr, self.val_mrr) = (ranks.and_then(|ranks| ranks.mrr), scores.val_mrr);
        (self.test_hits_at_10, self.val_hits_at_10) = (ranks.and_then(|ranks| ranks.hits_at_10), scores.val_hits_at_10);
        let by_source = test.and_then(ScoreReport::by_source);
        (self.test_recall_at_20, self.val_recall_at_20) =
            (by_source.and_then(|sources| sources.recall_at_20), scores.val_recall_at_20);
        (self.test_map_at_20, self.val_map_at_20) =
            (by_source.and_then(|sources| sources.map_at_20), scores.val_map_at_20);
        (self.test_ndcg_at_20, self.val_ndcg_at_20) =
            (by_source.and_then(|sources| sources.ndcg_at_20), scores.val_ndcg_at_20);
        self.links = links;
        self.val_loss = scores.val_loss;
        self.evaluated = Some(scores.evaluated);
    }

    /// What the run monitors, which decides which model is the best.
    pub fn monitored(&self) -> BestScore {
        let monitor = self.config.monitor;
        let (val, test) = match monitor {
            Monitor::Score => return self.score(),
            Monitor::Loss => (self.val_loss, self.test_loss),
            Monitor::Accuracy => (self.val_accuracy, self.test_accuracy),
            Monitor::MacroF1 => (self.val_macro_f1, self.test_macro_f1),
            Monitor::MicroF1 => (self.val_micro_f1, self.test_micro_f1),
            Monitor::Auc => (self.val_roc_auc, self.test_roc_auc),
            Monitor::AveragePrecision => (self.val_average_precision, self.test_average_precision),
            Monitor::Rmse => (self.val_rmse, self.test_rmse),
            Monitor::Mae => (self.val_mae, self.test_mae),
            Monitor::R2 => (self.val_r2, self.test_r2),
            Monitor::Mrr => (self.val_mrr, self.test_mrr),
            Monitor::HitsAt10 => (self.val_hits_at_10, self.test_hits_at_10),
            Monitor::RecallAt20 => (self.val_recall_at_20, self.test_recall_at_20),
            Monitor::MapAt20 => (self.val_map_at_20, self.test_map_at_20),
            Monitor::NdcgAt20 => (self.val_ndcg_at_20, self.test_ndcg_at_20),
        };
        BestScore { name: monitor.shown_name(self.task), val, test }
    }

    /// The score of the task, by which runs are compared, whatever they monitor.
    pub fn score(&self) -> BestScore {
        let (val, test) = match self.task {
            Task::MultiClass => (self.val_accuracy, self.test_accuracy),
            Task::MultiLabel => (self.val_micro_f1, self.test_micro_f1),
            Task::Regression => (self.val_rmse, self.test_rmse),
            Task::Links => (self.val_mrr, self.test_mrr),
        };
        BestScore { name: self.task.score_name(), val, test }
    }

    /// Whether the run was evaluated, and there are no validation nodes. The model is then from the last epoch.
    pub fn lacks_validation(&self) -> bool {
        // A loss may be missing because it is not finite. An accuracy is there if there are nodes, and an RMSE if errors are finite.
        let has_score = self.val_accuracy.is_some() || self.val_rmse.is_some() || self.val_mrr.is_some();
        self.best_epoch.is_none() && self.evaluated.is_some() && !has_score
    }

    /// Sets the wall time of the run.
    pub fn set_seconds(&mut self, seconds: StageSeconds) {
        (self.seconds_total, self.seconds_by_stage) = (seconds.total(), seconds);
    }
}

/// The sum of `values`, at most the largest number.
fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// None if `count` is 0 or the quotient is not a number.
fn ratio(sum: f64, count: f64) -> Option<f64> {
    (count > 0.0 && sum.is_finite()).then(|| sum / count)
}

/// Records and numbers of steps of the epochs after which the record before is there too: without it the number is unknown.
fn with_steps(records: &[EpochRecord]) -> Vec<(&EpochRecord, u64)> {
    let ends = records.iter().map(|record| (record.epoch, record.step));
    let before = std::iter::once((0, 0)).chain(ends);
    before
        .zip(records)
        .filter(|((epoch, _), record)| record.epoch.checked_sub(1) == Some(*epoch))
        .map(|((_, step), record)| (record, record.step.saturating_sub(step)))
        .collect()
}

#[cfg(test)]
mod tests;
