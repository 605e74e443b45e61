//! Epochs of a given number of steps.

use grappa_run::config::{LrSchedule, TrainConfig};

use crate::stores::{DENSE, config, store, train_at};

#[test]
fn all_that_counts_epochs_follows_their_number_of_steps() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    const STEPS: u64 = 3;
    let config = TrainConfig {
        steps_per_epoch: STEPS,
        epochs: 6,
        eval_every: 2,
        lr_schedule: LrSchedule::Step,
        lr_step: 2,
        warmup: 0.0,
        ..config()
    };
    let (summary, seen) = train_at(&store, &config, &folder.path().join("short.run")).unwrap();
    let records = seen.records;
    assert_eq!(records.len(), 6);
    for record in &records {
        assert_eq!(record.step, record.epoch * STEPS);
        assert_eq!(record.val_accuracy.is_some(), record.epoch % 2 == 0);
        let halved = config.lr_factor.powi(((record.epoch - 1) / 2) as i32);
        assert!((record.learning_rate - config.lr * halved).abs() < 1e-12, "{record:?}");
    }
    // The same seeds in each epoch would sample about the same edges.
    assert!(records.windows(2).any(|pair| pair[0].sampled_edges != pair[1].sampled_edges));
    assert!(summary.val_accuracy.unwrap() > 0.5, "{summary:?}");
}
