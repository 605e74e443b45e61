//! Steps that overlap, as on a GPU, learn the same as steps one after another. Here the processor computes both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use grappa_io::progress::Progress;

use super::*;

/// Stops after a number of training steps.
struct StopAfter {
    steps: AtomicU64,
    trains: AtomicBool,
}

impl StopAfter {
    fn new(steps: u64) -> Self {
        Self { steps: AtomicU64::new(steps), trains: AtomicBool::new(false) }
    }
}

impl Progress for StopAfter {
    fn stage(&self, name: &str, _bytes: Option<u64>) {
        self.trains.store(name == "training", Ordering::Relaxed);
    }

    fn advance(&self, steps: u64, edges: u64) {
        // Steps of an earlier call have no edges.
        if edges > 0 && self.trains.load(Ordering::Relaxed) {
            self.steps.fetch_sub(steps, Ordering::Relaxed);
        }
    }

    fn is_stopped(&self) -> bool {
        self.steps.load(Ordering::Relaxed) == 0
    }
}

fn overlapping(store: &Arc<Store>, config: &TrainConfig, folder: &Path, overlaps: bool) -> Trainer {
    let mut trainer = trainer(store, config, folder);
    trainer.prepare(0, None, &Silent).unwrap();
    trainer.overlaps = overlaps;
    trainer
}

/// What an epoch has learned: its sums, and the parameters after it.
fn learned(trainer: &mut Trainer, epoch: u64) -> (f64, Option<f64>, [u64; 3], Vec<f32>) {
    let stats = trainer.epoch(epoch, &|_, _| 0.01, &Silent).unwrap();
    trainer.end_epoch();
    let counts = [stats.steps, stats.seeds, stats.sampled_edges];
    let values = Vec::try_from(trainer.learner.model.parameters().flat_values()).unwrap();
    (stats.loss, stats.train_accuracy, counts, values)
}

#[test]
fn overlapping_steps_learn_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (model, full_graph) in [(LayerKind::Sage, false), (LayerKind::Gat, false), (LayerKind::Gcn, true)] {
        let config = TrainConfig {
            full_graph,
            partitions: Auto::Value(if full_graph { 1 } else { 4 }),
            batch: if full_graph { Auto::Auto } else { "7".parse().unwrap() },
            dropout: 0.5,
            ..config(model)
        };
        let [mut apart, mut together] =
            [false, true].map(|overlaps| overlapping(&store, &config, folder.path(), overlaps));
        for epoch in 0..3 {
            let [expected, found] = [&mut apart, &mut together].map(|trainer| learned(trainer, epoch));
            assert!(expected.2[0] >= if full_graph { 1 } else { 10 }, "{model}: {:?}", expected.2);
            assert!(found == expected, "{model}, epoch {epoch}");
        }
        assert_eq!(together.partitions.repeated.is_some(), full_graph, "{model}");
    }
}

#[test]
fn an_epoch_of_overlapping_steps_that_was_stopped_continues_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = config(LayerKind::Sage);
    let [mut whole, mut stopped] = [(); 2].map(|()| overlapping(&store, &config, folder.path(), true));
    for steps in [1, 3] {
        let progress = StopAfter::new(steps);
        let before = stopped.steps_of_epoch().unwrap_or(0);
        let result = stopped.epoch(0, &|_, _| 0.01, &progress);
        assert!(result.is_err_and(|error| error.is_stopped()));
        assert_eq!(stopped.steps_of_epoch(), Some(before + steps));
    }
    let partial = stopped.partial.unwrap();
    assert!(partial.seeds > 0 && partial.loss > 0.0, "the results of begun steps count: {partial:?}");
    assert!(learned(&mut stopped, 0) == learned(&mut whole, 0));
}

#[test]
fn a_loss_that_is_not_finite_is_told_with_its_step_although_the_next_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let config = config(LayerKind::Sage);
    let mut trainer = overlapping(&store, &config, folder.path(), true);
    learned(&mut trainer, 0);
    let steps = trainer.steps();
    no_grad(|| _ = trainer.learner.model.parameters().flat_values().fill_(f64::NAN));
    let error = trainer.epoch(1, &|_, _| 0.01, &Silent).unwrap_err().to_string();
    let expected = format!("the loss is not finite in step 1 of epoch 2, after {steps} steps in all");
    assert!(error.starts_with(&expected), "{error}");
}
