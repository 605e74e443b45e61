//! Methods whose partitions several processes divide, as threads of one process: together they have the results of one.

use grappa_run::config::Method;

use super::{
    processes::{as_ranks, prepared},
    *,
};
use crate::train::epoch::EpochStats;

const EPOCHS: u64 = 4;

fn of_method(method: Method, schedule: &str, change: impl FnOnce(&mut TrainConfig)) -> TrainConfig {
    let mut config = TrainConfig {
        method,
        batch: Auto::Auto,
        epochs: EPOCHS,
        partitions: Auto::Value(4),
        rate_schedule: schedule.parse().unwrap(),
        ..config(LayerKind::Sage)
    };
    change(&mut config);
    config
}

/// Trains and evaluates some epochs as one of several processes, or alone. Returns the metrics, and the parameters.
fn trained(trainer: &mut Trainer) -> (Vec<EpochStats>, Tensor) {
    let epochs = 0..EPOCHS;
    let stats = epochs.map(|epoch| {
        let stats = trainer.epoch(epoch, &|_, _| 0.05, &Silent).unwrap();
        trainer.evaluate(epoch, &|_| true, &Silent).unwrap();
        trainer.end_epoch();
        stats
    });
    let stats = stats.collect();
    (stats, trainer.learner.model.parameters().flat_values().copy())
}

fn assert_near(context: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-5 * expected.abs(), "{context}: {found} and not {expected}");
}

#[test]
fn several_processes_train_as_one_and_count_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let none = |_: &mut TrainConfig| {};
    for config in [
        of_method(Method::Full, "fixed:1", none),
        of_method(Method::Full, "fixed:1", |config| {
            (config.model, config.dropout, config.input_dropout) = (LayerKind::Gat, 0.3, 0.2);
        }),
        of_method(Method::Full, "fixed:1", |config| {
            (config.model, config.layers) = (LayerKind::Gcn, 1);
        }),
        of_method(Method::Varco, "linear:8:1:2", none),
        of_method(Method::Varco, "fixed:4", |config| {
            (config.rate_unit, config.input_dropout) = ("row".parse().unwrap(), 0.2);
        }),
        of_method(Method::Varco, "adaptive:8:1:1", |config| config.partitions = Auto::Value(7)),
    ] {
        let (expected, parameters) = trained(&mut prepared(&store, &config, folder.path(), None));
        for ranks in [2, 4] {
            let found = as_ranks(ranks, |group| trained(&mut prepared(&store, &config, folder.path(), Some(group))));
            let context = format!("{}, {}, {ranks} processes", config.method, config.rate_schedule);
            for (found, expected) in found[0].0.iter().zip(&expected) {
                assert_near(&context, found.loss, expected.loss);
                assert_eq!(found.train_accuracy, expected.train_accuracy, "{context}");
                assert_eq!(
                    (found.seeds, found.sampled_edges, found.feature_bytes, found.activation_bytes),
                    (expected.seeds, expected.sampled_edges, expected.feature_bytes, expected.activation_bytes),
                    "{context}"
                );
                assert!(found.feature_bytes + found.activation_bytes > 0 || config.method == Method::Full);
                match (found.message_error, expected.message_error) {
                    (Some(found), Some(expected)) => assert_near(&context, found, expected),
                    (found, expected) => assert_eq!(found, expected, "{context}"),
                }
            }
            for (_, of_rank) in &found {
                assert_eq!(of_rank, &found[0].1, "{context}: all have the same parameters");
                let difference = (of_rank - &parameters).abs().max().double_value(&[]);
                assert!(difference < 1e-4, "{context}: parameters differ by {difference}");
            }
        }
    }
}
