use grappa_formats::manifest::{LabelKind, LabelSpec};

use super::*;
use crate::{
    checkpoint::Best,
    config::Auto,
    scores::{ScoreReport, Scores},
    stages::Stage,
};

fn seconds(stages: &[(Stage, f64)]) -> StageSeconds {
    stages.iter().copied().collect()
}

fn state(best: Option<Best>) -> RunState {
    RunState { epoch: 4, best, ..RunState::default() }
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
    let best = Best { epoch: 3, step: 30, val: 0.8, test: Some(0.3) };
    let summary = Summary::new(
        &records(),
        &state(Some(best)),
        &TrainConfig::default(),
        seconds(&[(Stage::Open, 8.0), (Stage::Forward, 12.0)]),
    );
    assert_eq!((summary.test_accuracy, summary.val_accuracy), (Some(0.3), Some(0.8)));
    assert_eq!((summary.best_epoch, summary.epochs, summary.generation), (Some(3), 4, 7));
    assert_eq!((summary.seconds_total, summary.seconds_per_epoch), (20.0, Some(2.0)));
    assert_eq!(summary.sampled_edges_per_second, Some(500.0));
    assert_eq!((summary.gradient_bytes_per_step, summary.bytes_sent_per_step), (Some(100.0), Some(50.0)));
    assert_eq!((summary.bytes_read, summary.peak_rss_bytes), (4 << 30, Some(3 << 20)));
}

#[test]
fn lost_records_cost_neither_the_scores_nor_the_rates() {
    let labels = LabelSpec::new(LabelKind::Single, 2);
    let scores = ModelScores {
        evaluated: Evaluate::Exact,
        val_accuracy: Some(0.8),
        val_micro_f1: Some(0.7),
        val_loss: Some(0.5),
        test_accuracy: Some(0.3),
        split: "test".to_owned(),
        report: Scores::new(labels, false).report(),
        ..ModelScores::default()
    };
    let best = Best { epoch: 3, step: 30, val: 0.8, test: Some(0.3) };
    let state = RunState { scores: Some(scores), ..state(Some(best)) };
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
    let state = RunState { best: None, generation: 7, ..state };
    for kept in [3, 0] {
        let summary = Summary::new(&records()[..kept], &state, &TrainConfig::default(), StageSeconds::default());
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
    let given = TrainConfig { partitions: Auto::Value(8), concurrent: Auto::Value(2), ..auto.clone() };
    let mut state = state(None);
    assert_eq!(numbers(&state, &given), [8, 2]);
    state.note_partitions([given.partitions(), given.concurrent()]);
    assert_eq!(numbers(&state, &auto), [8, 2], "what auto became");
}

#[test]
fn what_a_run_monitors_is_in_its_summary_its_records_and_its_scores() {
    let classes = Scores::new(LabelSpec::new(LabelKind::Single, 2), false).report();
    let report = ScoreReport {
        loss: Some(0.7),
        accuracy: Some(0.6),
        macro_f1: Some(0.5),
        micro_f1: Some(0.4),
        roc_auc: Some(0.3),
        average_precision: Some(0.2),
        ..classes
    };
    let scores = ModelScores {
        val_loss: Some(0.75),
        val_accuracy: Some(0.65),
        val_macro_f1: Some(0.55),
        val_micro_f1: Some(0.45),
        val_roc_auc: Some(0.35),
        val_average_precision: Some(0.25),
        test_accuracy: Some(0.6),
        split: "test".to_owned(),
        report,
        ..ModelScores::default()
    };
    for (monitor, name, key, val, test) in [
        (Monitor::Score, "accuracy", "accuracy", 0.65, 0.6),
        (Monitor::Loss, "loss", "loss", 0.75, 0.7),
        (Monitor::Accuracy, "accuracy", "accuracy", 0.65, 0.6),
        (Monitor::MacroF1, "macro F1", "macro_f1", 0.55, 0.5),
        (Monitor::MicroF1, "micro F1", "micro_f1", 0.45, 0.4),
        (Monitor::Auc, "ROC-AUC", "roc_auc", 0.35, 0.3),
        (Monitor::AveragePrecision, "average precision", "average_precision", 0.25, 0.2),
    ] {
        let config = TrainConfig { monitor, ..TrainConfig::default() };
        let mut summary = Summary::new(&[], &state(None), &config, StageSeconds::default());
        summary.set_scores(&scores);
        assert_eq!(summary.monitored(), BestScore { name, val: Some(val), test: Some(test) });
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!((&json[format!("val_{key}")], &json[format!("test_{key}")]), (&val.into(), &test.into()));
        // A line of metrics.jsonl has the same keys.
        let record: EpochRecord = serde_json::from_value(json).unwrap();
        assert_eq!(record.monitored(monitor, Task::MultiClass), [Some(val), Some(test)]);
    }
}

#[test]
fn sets_of_labels_are_judged_by_micro_f1_and_classes_by_accuracy() {
    let mut records = records();
    for record in &mut records {
        (record.val_micro_f1, record.test_micro_f1) = (Some(0.75), Some(0.625));
    }
    let best = Best { epoch: 3, step: 30, val: 0.75, test: None };
    let mut state = state(Some(best));
    let summarize = |state: &RunState| Summary::new(&records, state, &TrainConfig::default(), StageSeconds::default());
    let keys = ["val_micro_f1", "test_micro_f1"];
    let score = summarize(&state).score();
    assert_eq!((score.name, score.val, score.test), ("accuracy", Some(0.8), Some(0.3)));
    state.note_task(Task::MultiLabel);
    let mut summary = summarize(&state);
    let score = summary.score();
    assert_eq!((score.name, score.val, score.test), ("micro F1", Some(0.75), Some(0.625)));
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!((&json[keys[0]], &json["val_accuracy"]), (&0.75.into(), &0.8.into()));
    // The exact scores at the end.
    let labels = LabelSpec::new(LabelKind::Multi, 2);
    let mut report = Scores::new(labels, false).report();
    report.micro_f1 = Some(0.5);
    summary.set_scores(&ModelScores {
        evaluated: Evaluate::Exact,
        val_accuracy: Some(0.1),
        val_micro_f1: Some(0.6),
        test_accuracy: Some(0.2),
        split: "test".to_owned(),
        report,
        ..ModelScores::default()
    });
    assert_eq!((summary.score().val, summary.score().test), (Some(0.6), Some(0.5)));
}

#[test]
fn early_stopping_is_noted_with_its_epoch_only_if_it_ended_the_run() {
    let mut state = state(None);
    [0.9, 0.8, 0.7].into_iter().for_each(|score| {
        state.early_stopping.observe(score);
    });
    let stopping_epoch = |early_stopping, epochs| {
        let config = TrainConfig { early_stopping, epochs, ..TrainConfig::default() };
        Summary::new(&records(), &state, &config, StageSeconds::default()).early_stopping_epoch
    };
    assert_eq!(
        [stopping_epoch(2, 9), stopping_epoch(3, 9), stopping_epoch(0, 9), stopping_epoch(2, 4)],
        [Some(4), None, None, None]
    );
}

#[test]
fn a_run_without_epochs_has_a_summary_without_numbers_that_are_none() {
    let summary = Summary::new(&[], &RunState::default(), &TrainConfig::default(), StageSeconds::default());
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
    let places: Vec<usize> = keys.iter().map(|key| json.find(&format!("\"{key}\":")).expect(key)).collect();
    assert!(places.is_sorted(), "{json}");
    assert!(json.contains(r#""config":{"model":"sage","layers":2,"#), "{json}");
}
