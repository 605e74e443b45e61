//! Numbers of partitions that follow from the memory.

use std::{path::Path, sync::Arc};

use grappa_engine::{
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, preaggregate},
};
use grappa_formats::{
    aggregates::AggregateKind,
    manifest::{FeatureDtype, FeatureSource},
};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::{progress::Silent, size::ByteSize};
use grappa_run::{
    config::{Auto, Evaluate, TrainConfig},
    journal::read_records,
    model::Precision,
};
use grappa_storage::{Store, aggregates::Aggregates};
use grappa_synthetic::{BlockModel, Model, Recipe};

use crate::{
    stopped::{Stopping, assert_same, left, run},
    stores::config,
};

/// Adjacency lists of 5.9 MB and features of 5.1 MB.
pub fn store(folder: &Path) -> Arc<Store> {
    let out = folder.join("graph.grappa");
    let options = StoreOptions {
        chunks: Some(16),
        features: Some(FeatureOptions::new(16, FeatureDtype::F32, FeatureSource::Stored)),
        ..StoreOptions::new(Recipe::new(Model::Sbm(BlockModel::new(80_000, 16.0)), 5), &out)
    };
    generate_store(&options, &Silent).unwrap();
    Arc::new(Store::open(&out).unwrap())
}

pub fn options(memory: u64) -> TrainConfig {
    TrainConfig {
        partitions: Auto::Auto,
        concurrent: Auto::Auto,
        memory: ByteSize(memory),
        epochs: 3,
        steps_per_epoch: 16,
        repartition_every: 2,
        batch: "32".parse().unwrap(),
        evaluate: Evaluate::Sampled,
        evaluate_states: Precision::F32,
        eval_every: 3,
        ..config()
    }
}

#[test]
fn more_partitions_than_chunks_are_refused_before_features_are_preaggregated() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let refused = |partitions, concurrent| {
        let config = TrainConfig { partitions, concurrent, ..options(64 << 20) };
        let path = folder.path().join(format!("{partitions}-{concurrent}.run"));
        let error = run(&store, &config, &path, false, &mut Stopping::at(u64::MAX)).unwrap_err();
        assert!(Aggregates::open(&store, AggregateKind::Mean).unwrap().is_none());
        error.to_string()
    };
    let of_step = refused(Auto::Auto, Auto::Value(17));
    assert!(of_step.contains("16 chunk(s), and 17 partitions") && of_step.contains("--concurrent 16"), "{of_step}");
    for concurrent in [Auto::Auto, Auto::Value(2)] {
        let in_all = refused(Auto::Value(17), concurrent);
        assert!(
            in_all.contains("16 chunks, and each of the 17 partitions") && in_all.contains("at most 16"),
            "{in_all}"
        );
    }
}

#[test]
fn a_graph_that_exceeds_the_memory_is_trained_in_partitions_which_a_resumed_run_keeps() {
    const LITTLE: u64 = 8 << 20;
    const MUCH: u64 = 256 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let start = |name: &str, config: &TrainConfig| {
        let path = folder.path().join(name);
        let mut watcher = Stopping::at(u64::MAX);
        let summary = run(&store, config, &path, false, &mut watcher).unwrap();
        (left(&path), summary, watcher)
    };

    let (expected, summary, watcher) = start("little.run", &options(LITTLE));
    assert_eq!((summary.partitions, summary.concurrent), (8, 1));
    let [made, why] = &watcher.told[..2] else { unreachable!("two were taken") };
    assert!(made.starts_with("pre-aggregated features (mean, "), "{made}");
    assert!(why.starts_with("--partitions auto is 8, 1 per step") && why.contains("of --memory 8.0 MiB"), "{why}");
    let records = read_records(&folder.path().join("little.run")).unwrap();
    assert!(records.iter().all(|record| (record.partitions, record.concurrent) == (8, 1)));

    // Aggregates were stored with the features, because both exceed the memory. Apart from them, they give the same results.
    let aggregates = || Aggregates::open(&store, AggregateKind::Mean).unwrap().unwrap();
    assert!(aggregates().with_features());
    let apart =
        AggregateOptions { replace: true, ..AggregateOptions::new(AggregateKind::Mean, Budget::new(64 << 20, 2)) };
    preaggregate(&store, &apart, &Silent).unwrap();
    assert!(!aggregates().with_features());
    let (found, _, watcher) = start("apart.run", &options(LITTLE));
    let command = format!("preaggregate {} --kind mean --with-features --replace", store.path().display());
    assert!(watcher.told[0].contains(&command), "{:?}", watcher.told);
    assert!(found.1 == expected.1, "{:#?} {:#?}", found.1, expected.1);
    assert!(found.0.parameters == expected.0.parameters);

    // The same numbers, given, with memory for everything.
    let given = TrainConfig { partitions: Auto::Value(8), concurrent: Auto::Value(1), ..options(MUCH) };
    let (found, ..) = start("given.run", &given);
    assert!(found.1 == expected.1, "{:#?} {:#?}", found.1, expected.1);
    assert!(found.0.parameters == expected.0.parameters);

    // Memory for everything needs no partitions.
    let (_, summary, watcher) = start("much.run", &options(MUCH));
    assert_eq!((summary.partitions, summary.concurrent), (1, 1));
    assert!(watcher.told.iter().all(|told| !told.contains("--partitions")), "{:?}", watcher.told);

    // Stopped in an epoch, after the features were pre-aggregated, and resumed with memory for everything.
    let (.., watcher) = start("again.run", &options(LITTLE));
    let asked = watcher.asked.into_inner();
    let path = folder.path().join("stopped.run");
    let error = run(&store, &options(LITTLE), &path, false, &mut Stopping::at(asked / 2)).unwrap_err();
    assert!(error.is_stopped() && error.to_string().contains("after step"), "{error}");
    let summary = run(&store, &options(MUCH), &path, true, &mut Stopping::at(u64::MAX)).unwrap();
    assert_eq!((summary.partitions, summary.concurrent), (8, 1));
    assert_same(&left(&path), &expected, &error.to_string());
}
