//! A run that is started again keeps what it knew.

use std::{fs, path::Path, sync::Arc, time::Instant};

use grappa_formats::aggregates::AggregateKind;
use grappa_run::{
    config::{Auto, TrainConfig},
    folder::{CLASSES, REPORT, RunFolder},
    journal::{METRICS, read_records},
    summary::Summary,
};
use grappa_storage::{Store, aggregates};
use grappa_trainer::{
    Error,
    train::{train, trained_model::Trained},
};
use tch::Device;

use crate::stores::{DENSE, NAMES, Shape, Unseen, config, store, trained_as};

/// Begins or resumes a run of this many epochs.
fn run(store: &Arc<Store>, path: &Path, epochs: u64, resume: bool) -> Summary {
    let config = TrainConfig { epochs, partitions: Auto::Value(1), ..config() };
    let folder = match resume {
        false => RunFolder::create(path, &config).unwrap(),
        true => RunFolder::resume(path).unwrap(),
    };
    train(store.clone(), config, &folder, resume, Device::Cpu, &mut Unseen).unwrap()
}

/// The tables of scores in a run's report.
fn tables(run: &Path) -> Vec<String> {
    let report = fs::read_to_string(run.join(REPORT)).unwrap();
    let table = |id: &str| {
        let (_, table) = report.split_once(&format!("<table id=\"{id}\">"))?;
        Some(table.split_once("</table>")?.0.to_owned())
    };
    ["classes", "confusion"].into_iter().filter_map(table).collect()
}

#[test]
fn a_finished_run_that_is_started_again_keeps_its_scores_and_their_tables() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let path = folder.path().join("run");
    let summary = run(&store, &path, 3, false);
    let before = tables(&path);
    assert_eq!(before.len(), 2);
    let again = run(&store, &path, 3, true);
    assert_eq!(tables(&path), before);
    assert_eq!(
        (again.val_accuracy, again.test_accuracy, again.best_epoch),
        (summary.val_accuracy, summary.test_accuracy, summary.best_epoch)
    );
}

#[test]
fn a_run_that_lost_lines_of_its_metrics_keeps_its_scores_and_rates() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let path = folder.path().join("run");
    let summary = run(&store, &path, 3, false);
    let metrics = fs::read_to_string(path.join(METRICS)).unwrap();
    let lines: Vec<&str> = metrics.lines().collect();
    // The line of the best epoch is lost, and all after it.
    let best = summary.best_epoch.unwrap() as usize;
    let kept: String = lines[..best - 1].iter().map(|line| format!("{line}\n")).collect();
    fs::write(path.join(METRICS), kept).unwrap();

    let again = run(&store, &path, 3, true);
    assert_eq!(
        (again.val_accuracy, again.val_loss, again.test_accuracy, again.evaluated),
        (summary.val_accuracy, summary.val_loss, summary.test_accuracy, summary.evaluated)
    );
    assert_eq!((again.best_epoch, again.epochs), (summary.best_epoch, 3));
    // The next record has the time of its own epoch only.
    let begin = Instant::now();
    run(&store, &path, 4, true);
    let seconds = begin.elapsed().as_secs_f64();
    let records = read_records(&path).unwrap();
    let next = records.last().unwrap();
    assert_eq!(next.epoch, 4);
    assert!(next.seconds <= seconds, "{} of {seconds}", next.seconds);
}

#[test]
fn another_store_is_refused_before_features_are_aggregated() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = |name, validated| store(&at(name), Shape { validated, ..DENSE });
    let (own, other) = (store("own", true), store("other", false));
    run(&own, &at("run"), 1, false);
    let folder = RunFolder::resume(&at("run")).unwrap();
    let config = TrainConfig { epochs: 2, ..folder.config().unwrap() };
    let refused = train(other.clone(), config, &folder, true, Device::Cpu, &mut Unseen).unwrap_err();
    assert!(matches!(refused, Error::WrongStore(_)), "{refused:?}");
    let error = refused.to_string();
    assert!(error.contains("not the one that the run was trained on"), "{error}");
    let is_aggregated = |store: &Store| aggregates::folder(store, AggregateKind::Mean).exists();
    assert_eq!((is_aggregated(&own), is_aggregated(&other)), (true, false));
}

#[test]
fn a_run_without_the_file_of_its_class_names_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let config = TrainConfig { epochs: 1, ..config() };
    trained_as(&store, folder.path(), config.clone());
    let path = folder.path().join(format!("{}.run", config.model));
    fs::remove_file(path.join(CLASSES)).unwrap();
    let run = RunFolder::resume(&path).unwrap();
    let more = TrainConfig { epochs: 2, ..config };
    let resumed = |config| train(store.clone(), config, &run, true, Device::Cpu, &mut Unseen);
    for error in
        [Trained::open(&path, Device::Cpu).unwrap_err().to_string(), resumed(more.clone()).unwrap_err().to_string()]
    {
        assert!(error.contains("classes.txt: missing") && error.contains("--class-names"), "{error}");
    }
    // The names can be given again.
    let names = folder.path().join("names.txt");
    fs::write(&names, NAMES.join("\n")).unwrap();
    resumed(TrainConfig { class_names: Some(names), ..more }).unwrap();
    assert_eq!(Trained::open(&path, Device::Cpu).unwrap().class_names(), NAMES);
}
