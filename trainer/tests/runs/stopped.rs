//! A run that is stopped at any moment and then resumed ends like an uninterrupted run.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use grappa_io::progress::Progress;
use grappa_run::{
    checkpoint::{Checkpoint, Checkpoints},
    config::{Auto, HaloMode, TrainConfig},
    folder::RunFolder,
    journal::{EpochRecord, read_records},
    model::{Activation, FeatureNorm, LayerKind},
    stages::StageSeconds,
    summary::Summary,
};
use grappa_storage::Store;
use grappa_trainer::{
    Error,
    train::{Watcher, train},
};
use tch::Device;

use crate::{
    links::{SPLIT, links},
    stores::{DENSE, config, store},
};

/// Stops the run at the call `stop_at` of `is_stopped`.
pub(crate) struct Stopping {
    pub(crate) asked: AtomicU64,
    stop_at: u64,
    stage: Mutex<String>,
    /// Messages of the run before its first epoch.
    pub(crate) told: Vec<String>,
}

impl Stopping {
    pub(crate) fn at(stop_at: u64) -> Self {
        Self { asked: AtomicU64::new(0), stop_at, stage: Mutex::default(), told: Vec::new() }
    }
}

impl Progress for Stopping {
    fn stage(&self, name: &str, _bytes: Option<u64>) {
        *self.stage.lock().unwrap() = name.to_owned();
    }

    fn advance(&self, _bytes: u64, _edges: u64) {}

    fn is_stopped(&self) -> bool {
        self.asked.fetch_add(1, Relaxed) + 1 >= self.stop_at
    }
}

impl Watcher for Stopping {
    fn progress(&self) -> &dyn Progress {
        self
    }

    fn epoch(&mut self, _record: &EpochRecord, _epochs: u64) {}

    fn tell(&mut self, message: &str) {
        self.told.push(message.to_owned());
    }

    fn warn(&mut self, message: &str) {
        panic!("{message}");
    }
}

/// Runs or resumes until `watcher` says to stop.
pub(crate) fn run(
    store: &Arc<Store>,
    config: &TrainConfig,
    path: &Path,
    resume: bool,
    watcher: &mut Stopping,
) -> Result<Summary, Error> {
    let folder = match resume {
        false => RunFolder::create(path, config).unwrap(),
        true => RunFolder::resume(path).unwrap(),
    };
    train(store.clone(), config.clone(), &folder, resume, Device::Cpu, watcher)
}

/// The last checkpoint of a run and the records of its epochs, without what a clock said.
pub(crate) fn left(path: &Path) -> (Checkpoint, Vec<String>) {
    let folder = RunFolder::resume(path).unwrap();
    let (_, mut checkpoint) = folder.checkpoints(3).unwrap().latest().unwrap().found.unwrap();
    (checkpoint.state.seconds, checkpoint.state.seconds_by_stage) = (0.0, StageSeconds::default());
    for list in
        [&mut checkpoint.parameters, &mut checkpoint.buffers, &mut checkpoint.optimizer, &mut checkpoint.historical]
    {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let told = |record: EpochRecord| {
        format!(
            "{} {} {} {:?} {:?} {:?} {} {} {:?}",
            record.epoch,
            record.step,
            record.loss,
            record.train_accuracy,
            record.val_accuracy,
            record.test_accuracy,
            record.sampled_edges,
            record.gradient_bytes,
            record.coverage_mean,
        )
    };
    (checkpoint, read_records(path).unwrap().into_iter().map(told).collect())
}

pub(crate) fn assert_same(found: &(Checkpoint, Vec<String>), expected: &(Checkpoint, Vec<String>), context: &str) {
    assert!(found.1 == expected.1, "{context}: {:#?} {:#?}", found.1, expected.1);
    let (found, expected) = (&found.0, &expected.0);
    assert!(found.state == expected.state, "{context}: {:?} {:?}", found.state, expected.state);
    assert!(found.parameters == expected.parameters, "{context}: parameters");
    assert!(found.buffers == expected.buffers, "{context}: buffers");
    assert!(found.optimizer == expected.optimizer, "{context}: moments");
    assert!(found.historical == expected.historical, "{context}: history");
}

/// Every part of a run's state is at stake: history that is older than the parameters, a norm's buffers, Adam's moments, a
/// learning rate that changes in each step, partitions that change, evaluations that are not after each epoch.
fn everything() -> TrainConfig {
    TrainConfig {
        layers: 4,
        norm: "batch".parse().unwrap(),
        halo: HaloMode::History,
        partitions: Auto::Value(2),
        repartition_every: 2,
        epochs: 4,
        batch: "32".parse().unwrap(),
        eval_every: 2,
        checkpoint_every: 3,
        warmup: 2.5,
        ..config()
    }
}

/// The options of published settings that have state or draw random numbers.
fn published() -> TrainConfig {
    TrainConfig {
        model: LayerKind::Gat,
        last_heads: "1".parse().unwrap(),
        activation: Activation::Prelu,
        input_dropout: 0.3,
        attention_dropout: 0.3,
        normalize_features: FeatureNorm::Standard,
        weight_decay: "0.001,0".parse().unwrap(),
        label_smoothing: 0.1,
        partitions: Auto::Value(1),
        epochs: 4,
        batch: "32".parse().unwrap(),
        ..config()
    }
}

/// Epochs that use a part of the training nodes, from partitions that train one after another.
fn short_epochs() -> TrainConfig {
    TrainConfig { steps_per_epoch: 5, concurrent: "1".parse().unwrap(), ..everything() }
}

#[test]
fn a_run_stopped_at_any_moment_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let config = everything();
    let mut straight = Stopping::at(u64::MAX);
    let path = folder.path().join("straight.run");
    run(&store, &config, &path, false, &mut straight).unwrap();
    let expected = left(&path);
    let asked = straight.asked.into_inner();

    let mut stages = Vec::new();
    const MOMENTS: u64 = 24;
    for moment in 0..MOMENTS {
        // As if it was the first run on this store.
        fs::remove_dir_all(store.path().join("aggregates")).unwrap();
        let path = folder.path().join(format!("{moment}.run"));
        let mut stopping = Stopping::at(1 + asked * moment / MOMENTS);
        let error = run(&store, &config, &path, false, &mut stopping).unwrap_err();
        assert!(error.is_stopped(), "{error}");
        let stage = stopping.stage.into_inner().unwrap();
        run(&store, &config, &path, true, &mut Stopping::at(u64::MAX)).unwrap();
        assert_same(&left(&path), &expected, &format!("{error}, in {stage}"));
        stages.push(format!("{stage}: {error}"));
    }
    let was = |stage: &str, place: &str| {
        let found = stages.iter().any(|at| at.starts_with(stage) && at.contains(place));
        assert!(found, "never stopped in {stage} {place}: {stages:#?}");
    };
    was("training", "after step");
    was("aggregating", "after step");
    was("aggregating", "stopped");
}

#[test]
fn a_run_stopped_again_and_again_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let dense = store(folder.path(), DENSE);
    for (name, config) in [("everything", everything()), ("published", published()), ("short epochs", short_epochs())] {
        stopped_again_and_again(&dense, &folder.path().join(name), &config);
    }
    let store = store(&folder.path().join("links"), SPLIT);
    let links = TrainConfig { edges_per_epoch: 500, partitions: Auto::Value(2), epochs: 4, ..links() };
    stopped_again_and_again(&store, &folder.path().join("links.runs"), &links);
}

fn stopped_again_and_again(store: &Arc<Store>, folder: &Path, config: &TrainConfig) {
    fs::create_dir(folder).unwrap();
    let path = folder.join("straight.run");
    let mut straight = Stopping::at(u64::MAX);
    run(store, config, &path, false, &mut straight).unwrap();
    let asked = straight.asked.into_inner();

    let stopped = folder.join("stopped.run");
    let mut stops = 0;
    while let Err(error) = run(store, config, &stopped, stops > 0, &mut Stopping::at(asked / 5 + 7 * stops)) {
        assert!(error.is_stopped(), "{error}");
        stops += 1;
        assert!(stops < 50, "it gets nowhere");
    }
    assert!(stops >= 3, "{stops}");
    assert_same(&left(&stopped), &left(&path), "stopped again and again");
}

/// Copies the folder of the run whenever it has a new checkpoint within an epoch: what a kill would leave.
struct Copying {
    run: PathBuf,
    copies: Mutex<Vec<PathBuf>>,
}

impl Copying {
    const COPIES_MAX: usize = 6;

    fn copy_if_new(&self) {
        let mut copies = self.copies.lock().unwrap();
        let checkpoints = self.run.join("checkpoints");
        let Ok(latest) = Checkpoints::look(&checkpoints).latest() else {
            return;
        };
        let Some((path, checkpoint)) = latest.found else { return };
        let is_within = checkpoint.state.partial.is_some_and(|partial| partial.steps > 0 && !partial.is_trained);
        let copy = self.run.with_extension(format!("at-{}", checkpoint.state.step));
        if !is_within || copies.len() == Self::COPIES_MAX || copies.contains(&copy) {
            return;
        }
        fs::create_dir_all(copy.join("checkpoints")).unwrap();
        for file in ["config.toml", "metrics.jsonl"] {
            fs::copy(self.run.join(file), copy.join(file)).unwrap();
        }
        // A run removes old checkpoints while it goes on, and these are not needed.
        fs::copy(&path, copy.join("checkpoints").join(path.file_name().unwrap())).unwrap();
        for entry in fs::read_dir(&checkpoints).unwrap() {
            let name = entry.unwrap().file_name();
            if name.to_string_lossy().starts_with("best-") {
                fs::copy(checkpoints.join(&name), copy.join("checkpoints").join(&name)).unwrap();
            }
        }
        copies.push(copy);
    }
}

impl Progress for Copying {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, _bytes: u64, _edges: u64) {
        self.copy_if_new();
    }
}

impl Watcher for Copying {
    fn progress(&self) -> &dyn Progress {
        self
    }

    fn epoch(&mut self, _record: &EpochRecord, _epochs: u64) {}

    fn warn(&mut self, message: &str) {
        panic!("{message}");
    }
}

#[test]
fn a_run_killed_within_an_epoch_continues_from_a_checkpoint_within_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    for (name, config) in [("everything", everything()), ("short epochs", short_epochs())] {
        let straight = folder.path().join(format!("{name}.run"));
        run(&store, &config, &straight, false, &mut Stopping::at(u64::MAX)).unwrap();
        let config = TrainConfig { checkpoint_minutes: 1e-9, ..config };
        let path = folder.path().join(format!("{name}.killed"));
        let mut copying = Copying { run: path.clone(), copies: Mutex::default() };
        let run_folder = RunFolder::create(&path, &config).unwrap();
        train(store.clone(), config.clone(), &run_folder, false, Device::Cpu, &mut copying).unwrap();
        let copies = copying.copies.into_inner().unwrap();
        assert!(copies.len() >= 3, "{copies:?}");
        for copy in copies {
            run(&store, &config, &copy, true, &mut Stopping::at(u64::MAX)).unwrap();
            let ended = (left(&copy), left(&straight));
            let ended = [ended.0, ended.1].map(|(checkpoint, records)| (without_config(checkpoint), records));
            assert_same(&ended[0], &ended[1], &copy.display().to_string());
        }
    }
}

/// The two runs differ in how often they save.
fn without_config(mut checkpoint: Checkpoint) -> Checkpoint {
    checkpoint.state.config_digest = 0;
    checkpoint
}
