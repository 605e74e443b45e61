//! The result of a run, as one JSON object.

use serde::Serialize;

use super::{
    checkpoint::RunState,
    config::{Evaluate, TrainConfig},
    journal::EpochRecord,
    model::Task,
    scores::ModelScores,
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
    /// Micro F1 on the test nodes, which counts instead of the accuracy if nodes have sets of labels; left out if they have one class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_micro_f1: Option<f64>,
    /// Micro F1 on the validation nodes, as the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_micro_f1: Option<f64>,
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
    /// The generation of the last assignment of chunks to partitions.
    pub generation: u64,
    /// Number of partitions: that of the configuration, or what `auto` became. 0 without epochs, as the next one.
    pub partitions: u32,
    /// Number of partitions that are computed together in a step.
    pub concurrent: u32,
    /// Number of processes that trained together when the summary was written.
    pub processes: u32,
    /// The effective configuration.
    pub config: TrainConfig,
    /// The kind of predictions.
    #[serde(skip)]
    pub task: Task,
}

/// The score that decides which model is the best, with that model.
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
    /// Scores are those of the state, because a checkpoint has a checksum and lines of `metrics.jsonl` have none. Records may be missing:
    /// means are over the other epochs.
    pub fn new(records: &[EpochRecord], state: &RunState, config: &TrainConfig, seconds: StageSeconds) -> Self {
        let last = records.last();
        let at_best = match &state.best {
            Some(best) => records.iter().find(|record| record.epoch == best.epoch),
            // Without validation nodes, the model is that of the last epoch.
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
        let of_sets = at_best.filter(|_| task == Task::MultiLabel);
        let [partitions, concurrent] = match last {
            Some(record) => [record.partitions, record.concurrent],
            None if state.epoch == 0 => [0, 0],
            // All records were lost.
            None => state.partitions(config),
        };
        let mut summary = Self {
            test_accuracy: at_best.and_then(|record| record.test_accuracy),
            val_accuracy: at_best.and_then(|record| record.val_accuracy),
            test_micro_f1: of_sets.and_then(|record| record.test_micro_f1),
            val_micro_f1: of_sets.and_then(|record| record.val_micro_f1),
            val_loss: at_best.and_then(|record| record.val_loss),
            evaluated: at_best.and_then(|record| record.evaluated),
            best_epoch: state.best.map(|best| best.epoch),
            epochs: state.epoch,
            early_stopping_epoch: state.ended_early(config).then_some(state.epoch),
            seconds_total: 0.0,
            seconds_by_stage: StageSeconds::default(),
            seconds_per_epoch: ratio(training, records.len() as f64),
            sampled_edges_per_second: ratio(sampled_edges as f64, training),
            gradient_bytes_per_step: ratio(gradient_bytes as f64, steps as f64),
            bytes_sent_per_step: ratio(bytes_sent as f64, steps as f64),
            bytes_read: sum(records.iter().map(|record| record.bytes_read)),
            peak_rss_bytes: records.iter().filter_map(|record| record.peak_rss_bytes).max(),
            generation: last.map_or(state.generation, |record| record.generation),
            partitions,
            concurrent,
            processes: 1,
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
        if self.task == Task::MultiLabel {
            (self.test_micro_f1, self.val_micro_f1) = (scores.test_micro_f1(), scores.val_micro_f1);
        }
        self.val_loss = scores.val_loss;
        self.evaluated = Some(scores.evaluated);
    }

    /// The score that decides which model is the best, whatever the run monitors.
    pub fn score(&self) -> BestScore {
        let (val, test) = match self.task {
            Task::MultiClass => (self.val_accuracy, self.test_accuracy),
            Task::MultiLabel => (self.val_micro_f1, self.test_micro_f1),
        };
        BestScore {
            name: self.task.score_name(),
            val,
            test,
        }
    }

    /// Whether the run was evaluated, and there are no validation nodes. The model is then that of the last epoch.
    pub fn lacks_validation(&self) -> bool {
        // A loss may be missing because it is not finite. An accuracy is there if there are nodes.
        self.best_epoch.is_none() && self.evaluated.is_some() && self.val_accuracy.is_none()
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
mod tests {
    use grappa_formats::manifest::{LabelKind, LabelSpec};

    use super::*;
    use crate::{checkpoint::Best, config::Auto, scores::Scores, stages::Stage};

    fn seconds(stages: &[(Stage, f64)]) -> StageSeconds {
        stages.iter().copied().collect()
    }

    fn state(best: Option<Best>) -> RunState {
        RunState {
            epoch: 4,
            best,
            ..RunState::default()
        }
    }

    fn records() -> Vec<EpochRecord> {
        (1..=4)
            .map(|epoch| EpochRecord {
                epoch,
                step: epoch * 10,
                val_accuracy: Some(0.5 + 0.1 * epoch.min(6 - epoch) as f64),
                test_accuracy: Some(epoch as f64 / 10.0),
                seconds: 3.0,
                seconds_by_stage: seconds(&[(Stage::Forward, 2.0), (Stage::Evaluate, 1.0)]),
                sampled_edges: 1000,
                bytes_read: 1 << 30,
                gradient_bytes: 1000,
                bytes_sent: 500,
                peak_rss_bytes: Some(epoch.min(3) << 20),
                generation: 7,
                ..EpochRecord::default()
            })
            .collect()
    }

    #[test]
    fn accuracies_are_those_of_the_best_epoch_and_means_are_over_all() {
        let best = Best {
            epoch: 3,
            step: 30,
            val: 0.8,
            test: Some(0.3),
        };
        let summary = Summary::new(
            &records(),
            &state(Some(best)),
            &TrainConfig::default(),
            seconds(&[(Stage::Open, 8.0), (Stage::Forward, 12.0)]),
        );
        assert_eq!((summary.test_accuracy, summary.val_accuracy), (Some(0.3), Some(0.8)));
        assert_eq!(
            (summary.best_epoch, summary.epochs, summary.generation),
            (Some(3), 4, 7)
        );
        assert_eq!((summary.seconds_total, summary.seconds_per_epoch), (20.0, Some(2.0)));
        assert_eq!(summary.sampled_edges_per_second, Some(500.0));
        assert_eq!(
            (summary.gradient_bytes_per_step, summary.bytes_sent_per_step),
            (Some(100.0), Some(50.0))
        );
        assert_eq!((summary.bytes_read, summary.peak_rss_bytes), (4 << 30, Some(3 << 20)));
    }

    #[test]
    fn lost_records_cost_neither_the_scores_nor_the_rates() {
        let labels = LabelSpec {
            kind: LabelKind::Single,
            classes: 2,
        };
        let scores = ModelScores {
            evaluated: Evaluate::Exact,
            val_accuracy: Some(0.8),
            val_micro_f1: Some(0.7),
            val_loss: Some(0.5),
            test_accuracy: Some(0.3),
            split: "test".to_owned(),
            report: Scores::new(labels, false).report(),
        };
        let best = Best {
            epoch: 3,
            step: 30,
            val: 0.8,
            test: Some(0.3),
        };
        let state = RunState {
            scores: Some(scores),
            ..state(Some(best))
        };
        for lost in [3, 4] {
            let mut records = records();
            records.retain(|record| record.epoch != lost);
            let config = TrainConfig::default();
            let summary = Summary::new(&records, &state, &config, StageSeconds::default());
            assert_eq!((summary.test_accuracy, summary.val_accuracy), (Some(0.3), Some(0.8)));
            assert_eq!((summary.best_epoch, summary.epochs), (Some(3), 4));
            assert_eq!(summary.gradient_bytes_per_step, Some(100.0), "without epoch {lost}");
            assert_eq!(summary.sampled_edges_per_second, Some(500.0), "without epoch {lost}");
        }
        // A record with other scores is damaged.
        let mut damaged = records();
        damaged[2].test_accuracy = Some(0.99);
        let summary = Summary::new(&damaged, &state, &TrainConfig::default(), StageSeconds::default());
        assert_eq!(summary.test_accuracy, Some(0.3));
        // Without validation nodes the model is the last one, and another record than the last has other scores.
        let state = RunState {
            best: None,
            generation: 7,
            ..state
        };
        for kept in [3, 0] {
            let summary = Summary::new(
                &records()[..kept],
                &state,
                &TrainConfig::default(),
                StageSeconds::default(),
            );
            assert_eq!(summary.test_accuracy, Some(0.3), "of {kept} records");
            assert_eq!((summary.evaluated, summary.generation), (Some(Evaluate::Exact), 7));
        }
    }

    #[test]
    fn the_number_of_partitions_is_known_without_any_record() {
        let numbers = |state: &RunState, config: &TrainConfig| {
            let summary = Summary::new(&[], state, config, StageSeconds::default());
            [summary.partitions, summary.concurrent]
        };
        let auto = TrainConfig::default();
        let given = TrainConfig {
            partitions: Auto::Value(8),
            concurrent: Auto::Value(2),
            ..auto.clone()
        };
        let mut state = state(None);
        assert_eq!(numbers(&state, &given), [8, 2]);
        state.note_partitions(&given);
        assert_eq!(numbers(&state, &auto), [8, 2], "what auto became");
    }

    #[test]
    fn sets_of_labels_are_judged_by_micro_f1_and_classes_by_accuracy() {
        let mut records = records();
        for record in &mut records {
            (record.val_micro_f1, record.test_micro_f1) = (Some(0.75), Some(0.625));
        }
        let best = Best {
            epoch: 3,
            step: 30,
            val: 0.75,
            test: None,
        };
        let mut state = state(Some(best));
        let of = |state: &RunState| Summary::new(&records, state, &TrainConfig::default(), StageSeconds::default());
        let keys = ["val_micro_f1", "test_micro_f1"];
        let score = of(&state).score();
        assert_eq!((score.name, score.val, score.test), ("accuracy", Some(0.8), Some(0.3)));
        let json = serde_json::to_value(of(&state)).unwrap();
        assert!(keys.iter().all(|key| json.get(key).is_none()), "{json}");
        state.note_task(Task::MultiLabel);
        let mut summary = of(&state);
        let score = summary.score();
        assert_eq!(
            (score.name, score.val, score.test),
            ("micro F1", Some(0.75), Some(0.625))
        );
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!((&json[keys[0]], &json["val_accuracy"]), (&0.75.into(), &0.8.into()));
        // The exact scores at the end.
        let labels = LabelSpec {
            kind: LabelKind::Multi,
            classes: 2,
        };
        let mut report = Scores::new(labels, false).report();
        report.micro_f1 = Some(0.5);
        summary.set_scores(&ModelScores {
            evaluated: Evaluate::Exact,
            val_accuracy: Some(0.1),
            val_micro_f1: Some(0.6),
            val_loss: None,
            test_accuracy: Some(0.2),
            split: "test".to_owned(),
            report,
        });
        assert_eq!((summary.score().val, summary.score().test), (Some(0.6), Some(0.5)));
    }

    #[test]
    fn early_stopping_is_noted_with_its_epoch_only_if_it_ended_the_run() {
        let mut state = state(None);
        [0.9, 0.8, 0.7].into_iter().for_each(|score| {
            state.early_stopping.observe(score);
        });
        let of = |early_stopping, epochs| {
            let config = TrainConfig {
                early_stopping,
                epochs,
                ..TrainConfig::default()
            };
            Summary::new(&records(), &state, &config, StageSeconds::default()).early_stopping_epoch
        };
        assert_eq!([of(2, 9), of(3, 9), of(0, 9), of(2, 4)], [Some(4), None, None, None]);
    }

    #[test]
    fn a_run_without_epochs_has_a_summary_without_numbers_that_are_none() {
        let summary = Summary::new(
            &[],
            &RunState::default(),
            &TrainConfig::default(),
            StageSeconds::default(),
        );
        let json = serde_json::to_value(&summary).unwrap();
        assert!(json["seconds_per_epoch"].is_null() && json["best_epoch"].is_null() && json["epochs"] == 0);
    }

    #[test]
    fn the_object_has_the_documented_keys_in_order() {
        let json = serde_json::to_string(&Summary::new(
            &records(),
            &state(None),
            &TrainConfig::default(),
            StageSeconds::default(),
        ))
        .unwrap();
        let keys = [
            "test_accuracy",
            "val_accuracy",
            "val_loss",
            "evaluated",
            "best_epoch",
            "epochs",
            "early_stopping_epoch",
            "seconds_total",
            "seconds_by_stage",
            "seconds_per_epoch",
            "sampled_edges_per_second",
            "gradient_bytes_per_step",
            "bytes_sent_per_step",
            "bytes_read",
            "peak_rss_bytes",
            "generation",
            "partitions",
            "concurrent",
            "processes",
            "config",
        ];
        let places: Vec<usize> = keys
            .iter()
            .map(|key| json.find(&format!("\"{key}\":")).expect(key))
            .collect();
        assert!(places.is_sorted(), "{json}");
        assert!(json.contains(r#""config":{"model":"sage","layers":2,"#), "{json}");
    }
}
