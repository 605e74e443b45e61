//! A run says which of its options have no effect.

use grappa_run::config::{Auto, Correction, FirstHop, HaloMode, LrSchedule, Monitor, TrainConfig};

use crate::stores::{DENSE, Shape, config, store, train_at};

#[test]
fn options_without_effect_are_warned_about_when_a_run_begins() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let correction = TrainConfig { correction: Correction::Node, partitions: Auto::Value(1), ..config() };
    let halo = TrainConfig { halo: HaloMode::History, first_hop: FirstHop::Sampled, ..config() };
    let steps = TrainConfig { steps_per_epoch: 1000, ..config() };
    for (name, config, expected) in grappa_skip::cases![
        "steps", steps, "--steps-per-epoch 1000 has no effect: 7 step(s) use all training nodes";
        "correction", correction, "--correction node has no effect";
        "halo", halo, "--halo history needs a pre-aggregated first hop";
    ] {
        let config = TrainConfig { epochs: 1, ..config };
        let (_, seen) = train_at(&store, &config, &folder.path().join(name)).unwrap();
        let is_told = matches!(&seen.warnings[..], [warning] if warning.contains(expected));
        assert!(is_told, "{seen:?}");
    }
}

#[test]
fn options_that_need_validation_nodes_are_warned_about_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainConfig {
        epochs: 1,
        early_stopping: 2,
        lr_schedule: LrSchedule::Plateau,
        monitor: Monitor::Loss,
        ..config()
    };
    for validated in [true, false] {
        let folder = folder.path().join(validated.to_string());
        let store = store(&folder, Shape { validated, ..DENSE });
        let (_, seen) = train_at(&store, &config, &folder.join("run")).unwrap();
        let expected = ["--early-stopping 2", "--lr-schedule plateau", "--monitor loss"]
            .map(|option| format!("{option} has no effect: the store has no validation nodes"));
        let expected = if validated { &[][..] } else { &expected[..] };
        assert_eq!(seen.warnings.len(), expected.len(), "{seen:?}");
        for (warning, expected) in seen.warnings.iter().zip(expected) {
            assert!(warning.starts_with(expected), "{warning}");
        }
    }
}
