use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use grappa_io::progress::Progress;
use grappa_run::{
    checkpoint::Checkpoints,
    config::{DistanceNorm, LossKind, NegativeSampling, Optimizer, TaskChoice, TrainConfig},
    folder::{CHECKPOINTS, ROWS, RunFolder},
    journal::EpochRecord,
    model::Decoder,
    summary::Summary,
    watcher::Watcher,
};
use grappa_storage::Graph;
use tempfile::tempdir;

use super::{graph::graph, with_threads};
use crate::{Error, Result, train};

/// Asks to stop when this many steps were reported.
struct Steps(AtomicU64);

impl Progress for Steps {
    fn stage(&self, _name: &str, _bytes: Option<u64>) {}

    fn advance(&self, steps: u64, _edges: u64) {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(steps), Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

pub struct Told {
    steps: Steps,
    told: Vec<String>,
    records: Vec<EpochRecord>,
}

impl Told {
    pub fn until(steps: u64) -> Self {
        Self { steps: Steps(steps.into()), told: Vec::new(), records: Vec::new() }
    }
}

impl Watcher for Told {
    fn progress(&self) -> &dyn Progress {
        &self.steps
    }

    fn tell(&mut self, message: &str) {
        self.told.push(message.to_owned());
    }

    fn epoch(&mut self, record: &EpochRecord, _epochs: u64) {
        self.records.push(record.clone());
    }

    fn warn(&mut self, message: &str) {
        panic!("{message}");
    }
}

fn config(decoder: Decoder) -> TrainConfig {
    TrainConfig {
        layers: 0,
        task: TaskChoice::Link,
        decoder,
        embedding: "16".parse().unwrap(),
        negative_sampling: NegativeSampling::Shared,
        negatives: "20".parse().unwrap(),
        batch: "32".parse().unwrap(),
        lr: 0.05,
        epochs: 4,
        checkpoint_every: 2,
        ..TrainConfig::default()
    }
}

/// A run in `folder`, and what it told.
fn run(graph: &Graph, config: &TrainConfig, folder: &Path, resume: bool, steps: u64) -> (Result<Summary>, Told) {
    let mut told = Told::until(steps);
    let folder = match resume {
        true => RunFolder::resume(folder).unwrap(),
        false => RunFolder::create(folder, config).unwrap(),
    };
    (train(graph.clone(), config.clone(), &folder, resume, &mut told), told)
}

/// What a run learned: its last checkpoint without times, and all files of rows.
fn learned(folder: &Path) -> (String, Vec<(String, Vec<u8>)>) {
    let (_, mut checkpoint) = Checkpoints::look(&folder.join(CHECKPOINTS)).latest().unwrap().found.unwrap();
    checkpoint.state.seconds = 0.0;
    checkpoint.state.seconds_by_stage = Default::default();
    // A resumed run has written more generations.
    checkpoint.state.counters.retain(|name, _| !name.starts_with("rows."));
    let mut rows: Vec<_> = fs::read_dir(folder.join(ROWS))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
        .collect();
    rows.sort();
    // The newest generation of each part.
    let part = |name: &str| name.rsplit_once('-').unwrap().0.to_owned();
    let newest: Vec<_> =
        rows.chunk_by(|one, next| part(&one.0) == part(&next.0)).map(|of| of.last().unwrap()).collect();
    let rows = newest.into_iter().map(|(name, bytes)| (part(name), bytes.clone())).collect();
    let tensors = [&checkpoint.parameters, &checkpoint.optimizer];
    (format!("{:?} {tensors:?}", checkpoint.state), rows)
}

#[test]
fn training_learns_the_rules_of_a_graph() {
    let (_folder, graph) = graph();
    let configs = [
        TrainConfig {
            negative_sampling: NegativeSampling::All,
            negatives: "auto".parse().unwrap(),
            ..config(Decoder::ComplEx)
        },
        config(Decoder::ComplEx),
        TrainConfig { optimizer: Optimizer::Adagrad, lr: 0.2, n3: 0.001, ..config(Decoder::ComplEx) },
        TrainConfig { partitions: "3".parse().unwrap(), ..config(Decoder::ComplEx) },
        TrainConfig { loss: LossKind::Bce, self_adversarial: 1.0, reciprocal: false, ..config(Decoder::RotatE) },
        TrainConfig { distance: DistanceNorm::L1, ..config(Decoder::RotatE) },
        TrainConfig { input_dropout: 0.1, ..config(Decoder::ComplEx) },
        TrainConfig { distance: DistanceNorm::L1, l2: 1e-4, ..config(Decoder::TransE) },
    ];
    for config in configs {
        let config = TrainConfig { epochs: 40, eval_every: 40, ..config };
        let folder = tempdir().unwrap();
        let (summary, told) = run(&graph, &config, folder.path(), false, u64::MAX);
        let summary = summary.unwrap();
        let mrr = summary.test_mrr.unwrap();
        // A random order has 0.08.
        assert!(mrr > 0.18, "MRR {mrr} of {config:?}");
        assert!(told.records.last().unwrap().loss < told.records[0].loss);
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let (_folder, graph) = graph();
    for config in [
        config(Decoder::ComplEx),
        TrainConfig { partitions: "4".parse().unwrap(), ..config(Decoder::RotatE) },
        TrainConfig { distance: DistanceNorm::L1, ..config(Decoder::RotatE) },
        TrainConfig {
            input_dropout: 0.3,
            negative_sampling: NegativeSampling::All,
            negatives: "auto".parse().unwrap(),
            ..config(Decoder::DistMult)
        },
    ] {
        let [one, two] = [1, 2].map(|threads| {
            with_threads(threads, || {
                let folder = tempdir().unwrap();
                run(&graph, &config, folder.path(), false, u64::MAX).0.unwrap();
                learned(folder.path())
            })
        });
        assert!(one == two, "{config:?}");
    }
}

#[test]
fn a_run_that_stops_at_any_step_resumes_to_the_same_rows() {
    let (_folder, graph) = graph();
    for parts in ["1", "3"] {
        let config = TrainConfig { partitions: parts.parse().unwrap(), ..config(Decoder::ComplEx) };
        let whole = tempdir().unwrap();
        let (summary, _) = run(&graph, &config, whole.path(), false, u64::MAX);
        let summary = summary.unwrap();
        let expected = learned(whole.path());
        for steps in [1, 5, 9, 17, 30] {
            let folder = tempdir().unwrap();
            let (stopped, _) = run(&graph, &config, folder.path(), false, steps);
            assert!(matches!(stopped, Err(Error::Stopped { .. })), "{steps} steps");
            let (resumed, told) = run(&graph, &config, folder.path(), true, u64::MAX);
            assert_eq!(resumed.unwrap().test_mrr, summary.test_mrr, "{parts} parts, {steps} steps");
            assert!(told.told[0].starts_with("continues after epoch"), "{:?}", told.told);
            assert!(learned(folder.path()) == expected, "{parts} parts, {steps} steps");
        }
    }
}

#[test]
fn a_run_that_is_killed_after_an_epoch_resumes_from_its_last_checkpoint() {
    let (_folder, graph) = graph();
    let config = config(Decoder::DistMult);
    let whole = tempdir().unwrap();
    run(&graph, &config, whole.path(), false, u64::MAX).0.unwrap();
    // The run ends after three epochs, with a checkpoint after the second and the third one.
    let killed = tempdir().unwrap();
    let three = TrainConfig { epochs: 3, ..config.clone() };
    run(&graph, &three, killed.path(), false, u64::MAX).0.unwrap();
    let mut steps: Vec<_> = fs::read_dir(killed.path().join(CHECKPOINTS))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("step"))
        .collect();
    steps.sort();
    fs::remove_file(steps.pop().unwrap()).unwrap();
    RunFolder::resume(killed.path()).unwrap().write_config(&config).unwrap();
    let (resumed, told) = run(&graph, &config, killed.path(), true, u64::MAX);
    resumed.unwrap();
    assert!(told.told[0].starts_with("continues after epoch 2 of 4"), "{:?}", told.told);
    assert!(learned(killed.path()) == learned(whole.path()));
}

#[test]
fn only_rows_that_checkpoints_name_stay_on_disk() {
    let (_folder, graph) = graph();
    let config = TrainConfig { partitions: "3".parse().unwrap(), keep: 1, ..config(Decoder::ComplEx) };
    let folder = tempdir().unwrap();
    run(&graph, &config, folder.path(), false, u64::MAX).0.unwrap();
    let checkpoints = fs::read_dir(folder.path().join(CHECKPOINTS)).unwrap().count();
    let rows = fs::read_dir(folder.path().join(ROWS)).unwrap().count();
    assert!(rows <= 3 * checkpoints, "{rows} files of rows for {checkpoints} checkpoints");
}

#[test]
fn a_run_is_not_resumed_on_another_store() {
    let (_folder, first) = graph();
    let (_other, second) = graph();
    let config = config(Decoder::ComplEx);
    let folder = tempdir().unwrap();
    run(&first, &config, folder.path(), false, u64::MAX).0.unwrap();
    // The same triples have the same digest.
    assert!(run(&second, &config, folder.path(), true, u64::MAX).0.is_ok());
    let wider = TrainConfig { embedding: "8".parse().unwrap(), ..config };
    let error = run(&first, &wider, folder.path(), true, u64::MAX).0.unwrap_err().to_string();
    assert!(error.contains("other options than the run has"), "{error}");
}
