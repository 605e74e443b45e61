use std::{fs, path::PathBuf};

use grappa_formats::manifest::{LabelKind, LabelSpec};
use grappa_io::durable::Destination;
use tempfile::{TempDir, tempdir};

use super::*;
use grappa_run::{
    Error,
    checkpoint::{Best, Checkpoint, RunState},
    config::{Auto, Evaluate, TrainConfig},
    folder::RunFolder,
    journal::EpochRecord,
    model::Task,
    scores::{Labels, ModelScores, Scores},
    stages::Stage,
};

use crate::tests::{assert_well_formed, part};

/// A run that is written to a folder.
pub(crate) struct Written {
    pub(crate) config: TrainConfig,
    pub(crate) state: RunState,
    pub(crate) records: Vec<EpochRecord>,
}

/// A run of 4 epochs whose best one is the third.
pub(crate) fn written() -> Written {
    let accuracies = [0.5, 0.6, 0.8, 0.7];
    let records = (1..).zip(accuracies).map(|(epoch, accuracy)| EpochRecord {
        epoch,
        step: epoch * 10,
        loss: 1.0 / epoch as f64,
        evaluated: Some(Evaluate::Exact),
        val_loss: Some(2.0 / epoch as f64),
        val_accuracy: Some(accuracy),
        test_accuracy: (epoch % 2 == 1).then_some(accuracy - 0.1),
        seconds: 10.0,
        partitions: 2,
        concurrent: 2,
        ..EpochRecord::default()
    });
    let records: Vec<EpochRecord> = records.collect();
    let best = Best { epoch: 3, step: 30, val: 0.8, test: Some(0.7) };
    let state = RunState {
        store_digest: 7,
        inputs: 100,
        outputs: 3,
        epoch: 4,
        step: 40,
        best: Some(best),
        scores: Some(model_scores(100)),
        seconds_by_stage: [(Stage::Open, 5.0), (Stage::Forward, 35.0)].into_iter().collect(),
        ..RunState::default()
    };
    Written { config: TrainConfig { epochs: 4, ..TrainConfig::default() }, state, records }
}

/// Scores on `nodes` test nodes, half of them in the largest class.
fn model_scores(nodes: i64) -> ModelScores {
    let spec = LabelSpec { classes: 3, kind: LabelKind::Single };
    let mut scores = Scores::new(spec, false);
    for node in 0..nodes {
        scores.add(&[1.0, 0.0, 0.0], Labels::Classes(&[[0, 1, 0, 2][node as usize % 4]]));
    }
    ModelScores {
        evaluated: Evaluate::Exact,
        val_accuracy: Some(0.8),
        val_micro_f1: Some(0.8),
        val_loss: Some(0.5),
        test_accuracy: Some(0.7),
        split: "test".to_owned(),
        report: scores.report(),
        ..ModelScores::default()
    }
}

impl Written {
    /// Writes the folder `name` of the run.
    pub(crate) fn write(&self, parent: &TempDir, name: &str) -> PathBuf {
        let path = parent.path().join(name);
        let folder = RunFolder::create(&path, &self.config).unwrap();
        let mut journal = folder.journal(0, 0).unwrap();
        for record in &self.records {
            journal.append(record.clone()).unwrap();
        }
        let checkpoint = Checkpoint { state: self.state.clone(), ..Checkpoint::default() };
        folder.checkpoints(1).unwrap().save(&checkpoint).unwrap();
        path
    }
}

fn compared(folders: &[PathBuf]) -> String {
    let html = Comparison::read(folders).unwrap().html();
    assert_well_formed(&html);
    html
}

fn refused(folders: &[PathBuf]) -> String {
    let error = Comparison::read(folders).unwrap_err();
    assert!(matches!(error, Error::Incomparable(_) | Error::RunFile { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn curves_scores_and_options_of_runs_are_on_one_page() {
    let parent = tempdir().unwrap();
    let mut other = written();
    (other.config.hidden, other.config.partitions) = (256, Auto::Value(4));
    other.state.scores.as_mut().unwrap().test_accuracy = Some(0.75);
    let folders = [written().write(&parent, "narrow"), other.write(&parent, "wide")];
    let html = compared(&folders);
    assert!(!html.contains("id=\"notes\""), "runs on the same store");
    for curve in ["val", "test", "train-loss", "val-loss"] {
        for by in ["epoch", "time"] {
            let figure = part(&html, &format!("<figure id=\"{curve}-by-{by}\">"), "</figure>");
            for run in ["1 narrow", "2 wide"] {
                let color = format!("run-{}", &run[..1]);
                assert!(figure.contains(&format!("<i class=\"{color}\"></i>{run} <b>")), "{figure}");
                assert!(figure.contains(&format!("<path class=\"line {color}\"")) || curve == "test", "{figure}");
            }
            assert_eq!(figure.matches("<span class=\"title\">").count(), 2);
        }
    }
    let results = part(&html, "<table id=\"results\">", "</table>");
    for text in ["</i>1 narrow</th>", "</i>2 wide</th>", ">70.0 %</td>", ">75.0 %</td>", ">40.0 s</td>", ">5.00 s</td>"]
    {
        assert!(results.contains(text), "{text}: {results}");
    }
    let options = part(&html, "<table id=\"options\">", "</table>");
    let rows: Vec<&str> = options.lines().filter(|line| line.starts_with("<tr><th>")).collect();
    assert_eq!(
        rows,
        [
            "<tr><th>hidden</th><td>128</td><td>256</td></tr>",
            "<tr><th>partitions</th><td>auto \u{2192} 2</td><td>4</td></tr>"
        ]
    );
    let stages = part(&html, "<table id=\"stages\">", "</table>");
    assert!(stages.contains("<i class=\"stage-forward\"></i>forward</th><td>35.0 s</td><td>35.0 s</td>"), "{stages}");
}

#[test]
fn legends_of_a_comparison_rest_at_the_best_epoch_of_each_run() {
    let parent = tempdir().unwrap();
    let mut other = written();
    other.state.best.as_mut().unwrap().epoch = 4;
    other.records[3].val_accuracy = Some(0.9);
    let html = compared(&[written().write(&parent, "a"), other.write(&parent, "b")]);
    for by in ["epoch", "time"] {
        let figure = part(&html, &format!("<figure id=\"val-by-{by}\">"), "</figure>");
        assert!(figure.contains("</i>1 a <b>80.0 %</b>") && figure.contains("</i>2 b <b>90.0 %</b>"), "{figure}");
        assert!(figure.contains("each at its best epoch"), "{figure}");
    }
    let figure = part(&html, "<figure id=\"val-by-time\">", "</figure>");
    assert!(figure.contains(r#""names":["after 10.0 s","after 20.0 s","after 30.0 s","after 40.0 s"]"#), "{figure}");
}

#[test]
fn what_differs_between_runs_that_can_be_compared_is_said() {
    let parent = tempdir().unwrap();
    let mut other = written();
    (other.state.store_digest, other.state.inputs, other.config.epochs) = (8, 50, 10);
    other.state.scores = Some(ModelScores { evaluated: Evaluate::Sampled, ..model_scores(50) });
    let html = compared(&[written().write(&parent, "a"), other.write(&parent, "b")]);
    let notes = part(&html, "<ul id=\"notes\">", "</ul>");
    for note in [
        "The stores differ. a: store 0000000000000007; b: store 0000000000000008",
        "The numbers of features per node differ. a: 100; b: 50",
        "Scores are of different nodes. a: 100 test nodes, 50 % in the largest class; b: 50 test nodes, 50 % in the largest class",
        "Evaluations differ. a: exact; b: sampled",
        "b is not finished: its last checkpoint is after epoch 4 of 10",
    ] {
        assert!(notes.contains(&format!("<li>{note}</li>")), "{note}: {notes}");
    }
}

#[test]
fn runs_that_cannot_be_compared_are_refused_with_the_reason() {
    let parent = tempdir().unwrap();
    let a = written().write(&parent, "a");
    let mut other = written();
    (other.state.outputs, other.state.scores) = (5, None);
    let b = other.write(&parent, "b");
    let error = refused(&[a.clone(), b]);
    assert!(error.contains("a predicts one of 3 classes, and ") && error.contains("b one of 5 classes"), "{error}");
    let mut sets = written();
    sets.state.note_task(Task::MultiLabel);
    let error = refused(&[a.clone(), sets.write(&parent, "sets")]);
    assert!(error.contains("sets sets of 3 labels, so their scores cannot be compared"), "{error}");
    let error = refused(std::slice::from_ref(&a));
    assert!(error.contains("two runs or more") && error.contains("a/report.html"), "{error}");
    let error = refused(&[a.clone(), parent.path().join("./a")]);
    assert!(error.contains("are the same run"), "{error}");
    let error = refused(&vec![a.clone(); 9]);
    assert!(error.contains("name 8 or fewer"), "{error}");
    let error = refused(&[a.clone(), parent.path().join("none")]);
    assert!(error.contains("none: it contains no run (no config.toml)"), "{error}");
    let begun = parent.path().join("begun");
    drop(RunFolder::create(&begun, &TrainConfig::default()).unwrap());
    let error = refused(&[a, begun]);
    assert!(error.contains("begun: it has no checkpoint yet"), "{error}");
}

#[test]
fn runs_in_folders_of_the_same_name_are_told_apart_by_their_paths() {
    let parents = [tempdir().unwrap(), tempdir().unwrap()];
    let folders = parents.each_ref().map(|parent| written().write(parent, "run"));
    let html = compared(&folders);
    for folder in &folders {
        assert!(html.contains(&format!("{} <b>", folder.display())), "{}", folder.display());
    }
    assert!(html.contains("None: all runs have the same options."));
}

#[test]
fn comparing_runs_changes_none_and_loads_nothing_from_elsewhere() {
    let parent = tempdir().unwrap();
    let folders = ["<a>", "b"].map(|name| written().write(&parent, name));
    let metrics = fs::read(folders[0].join("metrics.jsonl")).unwrap();
    let html = compared(&folders);
    assert!(html.contains("1 &lt;a&gt; <b>"));
    for wish in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!html.contains(wish), "{wish}");
    }
    assert_eq!(fs::read(folders[0].join("metrics.jsonl")).unwrap(), metrics);
}

#[test]
fn a_page_replaces_another_only_if_told() {
    let parent = tempdir().unwrap();
    let runs = ["a", "b"].map(|name| written().write(&parent, name));
    let comparison = Comparison::read(&runs).unwrap();
    let page = parent.path().join("compare.html");
    fs::write(&page, "mine").unwrap();
    let error = comparison.write(&page).unwrap_err().to_string();
    assert!(error.contains("compare.html exists") && error.contains("--force"), "{error}");
    assert_eq!(fs::read(&page).unwrap(), b"mine");
    let replacing = Destination { path: &page, replaces: true };
    comparison.write(replacing).unwrap();
    assert_eq!(fs::read_to_string(&page).unwrap(), comparison.html());
    let new = parent.path().join("new.html");
    comparison.write(&new).unwrap();
    assert!(new.exists());
}
