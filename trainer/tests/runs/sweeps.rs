//! Swept minibatches are those that are sampled one by one.

use std::path::Path;

use grappa_run::{
    config::{Auto, Evaluate, FirstHop, Sampling, TrainConfig},
    model::LayerKind,
};

use crate::{
    links::{SPLIT, links},
    numbers::{options, store as large_store},
    stopped::{Stopping, assert_same, left, run},
    stores::{DENSE, config, refused_at, store, train_at},
};

#[test]
fn runs_with_swept_minibatches_end_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let batch = || "32".parse().unwrap();
    let base =
        || TrainConfig { batch: batch(), epochs: 2, evaluate: Evaluate::Sampled, partitions: Auto::Auto, ..config() };
    let (nodes, edges) = (store(&folder.path().join("nodes"), DENSE), store(&folder.path().join("edges"), SPLIT));
    for (name, store, config) in [
        ("sampled", &nodes, TrainConfig { first_hop: FirstHop::Sampled, ..base() }),
        ("preaggregated", &nodes, TrainConfig { first_hop: FirstHop::Preaggregated, layers: 3, ..base() }),
        ("gatv2", &nodes, TrainConfig { model: LayerKind::Gatv2, ..base() }),
        ("links", &edges, TrainConfig { batch: batch(), epochs: 2, partitions: Auto::Auto, ..links() }),
    ] {
        let trained = |sampling: Sampling| {
            let path = folder.path().join(format!("{name}-{sampling}"));
            train_at(store, &TrainConfig { sampling, ..config.clone() }, &path).unwrap();
            left(&path)
        };
        assert_same(&trained(Sampling::Sweep), &trained(Sampling::Batch), name);
    }
}

#[test]
fn a_graph_that_exceeds_the_memory_is_swept_and_a_resumed_run_samples_as_its_memory_allows() {
    const LITTLE: u64 = 10 << 20;
    const MUCH: u64 = 256 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = large_store(folder.path());
    let sampled = |memory| TrainConfig { first_hop: FirstHop::Sampled, ..options(memory) };
    let start = |name: &str, config: &TrainConfig| {
        let path = folder.path().join(name);
        let mut watcher = Stopping::at(u64::MAX);
        let summary = run(&store, config, &path, false, &mut watcher).unwrap();
        assert_eq!((summary.partitions, summary.concurrent), (1, 1));
        (left(&path), watcher)
    };
    let (expected, watcher) = start("little.run", &sampled(LITTLE));
    let is_told = |watcher: &Stopping| watcher.told.iter().any(|told| told.starts_with("--sampling auto is sweep"));
    assert!(is_told(&watcher), "{:?}", watcher.told);
    let (found, watcher) = start("much.run", &sampled(MUCH));
    assert!(!is_told(&watcher), "{:?}", watcher.told);
    assert_same(&found, &expected, "memory for everything");

    let (.., watcher) = start("again.run", &sampled(LITTLE));
    let asked = watcher.asked.into_inner();
    for (first, then) in [(LITTLE, MUCH), (MUCH, LITTLE), (LITTLE, LITTLE)] {
        let path = folder.path().join(format!("{first}-{then}.run"));
        let error = run(&store, &sampled(first), &path, false, &mut Stopping::at(asked / 2)).unwrap_err();
        assert!(error.is_stopped(), "{error}");
        run(&store, &sampled(then), &path, true, &mut Stopping::at(u64::MAX)).unwrap();
        assert_same(&left(&path), &expected, &error.to_string());
    }
}

#[test]
fn sweeps_that_cannot_be_are_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let sweep = || TrainConfig { sampling: Sampling::Sweep, partitions: Auto::Auto, batch: Auto::Auto, ..config() };
    let missing = Some(Path::new("absent/folder").to_owned());
    for (number, (config, words)) in [
        (TrainConfig { partitions: Auto::Value(2), ..sweep() }, "set partitions to 1"),
        (TrainConfig { full_graph: true, ..sweep() }, "leave sampling out"),
        (TrainConfig { model: LayerKind::PinSage, ..sweep() }, "random walks"),
        (TrainConfig { tmp: missing, ..sweep() }, "absent/folder"),
    ]
    .into_iter()
    .enumerate()
    {
        let error = refused_at(&store, &config, &folder.path().join(format!("{number}.run")));
        assert!(error.contains(words), "{error}");
    }
}
