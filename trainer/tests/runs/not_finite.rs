//! A feature that is NaN is NaN in all that depends on it, and an error where something is to be learned from it.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use grappa_engine::aggregate::{Budget, store_features};
use grappa_formats::NodeId;
use grappa_io::progress::Silent;
use grappa_run::{
    config::{Auto, FirstHop, Monitor, TrainConfig},
    model::{LayerKind, Task},
};
use grappa_storage::{ExternalId, MappedChunks, Store};
use grappa_trainer::{
    Error,
    nn::Model,
    predict::{FileNodes, FileOptions, Values, predict_file, predict_nodes},
    train::trained_model::Trained,
};
use tch::{Device, Tensor};

use crate::stores::{BUDGET, CLASSES, DENSE, NODES, Shape, config, inference, refused_at, store, train_at, trained_as};

const NAN: u64 = 77;

/// The nodes whose logits depend on the features of node `from` after `layers` layers.
fn reached(store: &Store, from: NodeId, layers: usize) -> BTreeSet<u64> {
    let mut reached = BTreeSet::from([from.0]);
    for _ in 0..layers {
        let before = reached.clone();
        for chunk in store.present_chunks() {
            let chunk = store.chunk(chunk).unwrap();
            let first = chunk.span().first_node.0;
            for row in 0..chunk.span().rows {
                let mut sources = Vec::new();
                chunk.rows().row(row).unwrap().decode_into(&mut sources);
                if sources.iter().any(|source| before.contains(source)) {
                    reached.insert(first + row);
                }
            }
        }
    }
    reached
}

fn nan_store(folder: &Path) -> (Arc<Store>, NodeId) {
    nan_store_of(folder, NAN)
}

fn nan_store_of(folder: &Path, id: u64) -> (Arc<Store>, NodeId) {
    let shape = Shape { nan: Some(id), ..DENSE };
    let store = store(folder, shape);
    let node = node(&store, id);
    (store, node)
}

fn node(store: &Store, id: u64) -> NodeId {
    store.node(&ExternalId::Integer(id)).unwrap().unwrap()
}

/// A validation node that no other node depends on.
fn lone_validation_node(folder: &Path) -> u64 {
    let store = store(folder, DENSE);
    let val = store.split("val").unwrap().unwrap();
    let is_lone = |id: &u64| {
        let node = node(&store, *id);
        val.contains(node.0) && reached(&store, node, 1).len() == 1
    };
    (0..NODES).find(is_lone).expect("some node has no out-edges")
}

#[test]
fn logits_are_nan_where_a_nan_feature_reaches_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let (store, nan) = nan_store(folder.path());
    for layer in [
        LayerKind::Sage,
        LayerKind::SageMax,
        LayerKind::Gcn,
        LayerKind::Gin,
        LayerKind::Gat,
        LayerKind::Gatv2,
        LayerKind::PinSage,
    ] {
        for layers in [1, 2, 3] {
            let config = TrainConfig { model: layer, layers, ..config() };
            let options = config.model_options(DENSE.dim as usize, CLASSES as usize, Task::MultiClass);
            let model = Model::new(options, 3, Device::Cpu).unwrap();
            let features = store_features(&store).unwrap();
            let chunks = Arc::new(MappedChunks::open(&store).unwrap());
            let budget = Budget::new(64 << 20, 2);
            let inference = inference(&store, &chunks, &*features, None, budget, folder.path());
            let mut found = BTreeSet::new();
            let mut take = |nodes: std::ops::Range<u64>, logits: &Tensor| {
                let of_nodes = logits.isnan().any_dim(1, false);
                found.extend(nodes.clone().filter(|node| of_nodes.int64_value(&[(node - nodes.start) as i64]) == 1));
                Ok(())
            };
            inference.run(&model, &Silent, &mut take).unwrap();
            let expected = reached(&store, nan, layers);
            assert!(expected.len() > 1 && expected.len() < NODES as usize, "{}", expected.len());
            assert_eq!(found, expected, "{layer}, {layers} layers");
        }
    }
}

#[test]
fn training_on_a_nan_feature_is_an_error_that_names_epoch_step_and_node() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = nan_store(folder.path());
    for (model, first_hop) in [
        (LayerKind::Sage, FirstHop::Sampled),
        (LayerKind::Gcn, FirstHop::Preaggregated),
        (LayerKind::SageMax, FirstHop::Sampled),
        (LayerKind::Gat, FirstHop::Sampled),
    ] {
        let config = TrainConfig { model, first_hop, partitions: Auto::Value(1), dropout: 0.0, ..config() };
        let path = folder.path().join(format!("{model}.run"));
        let error = refused_at(&store, &config, &path);
        for part in ["the loss is not finite in step", "of epoch 1", "features of node ", "--allow-nan"] {
            assert!(error.contains(part), "{model}: {error}");
        }
        fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn a_model_whose_logits_are_all_nan_is_an_error_and_never_the_best() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    // The only step of an epoch has a finite loss, and makes the parameters so large that attention overflows.
    let config = TrainConfig {
        lr: 1e30,
        model: LayerKind::Gat,
        batch: NODES.to_string().parse().unwrap(),
        partitions: Auto::Value(1),
        checkpoint_every: 1,
        ..config()
    };
    let path = folder.path().join("overflow.run");
    let error = train_at(&store, &config, &path).unwrap_err();
    assert!(matches!(error, Error::Diverged(_)), "{error:?}");
    for part in ["have NaN logits after epoch 1", "the first is node", "smaller --lr"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = Trained::open(&path, Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("no checkpoint yet"), "{error}");
}

#[test]
fn a_validation_node_with_nan_logits_is_named_and_does_not_cost_the_best_model() {
    let folder = tempfile::tempdir().unwrap();
    let id = lone_validation_node(&folder.path().join("sound"));
    let (store, nan) = nan_store_of(folder.path(), id);
    let config = TrainConfig {
        monitor: Monitor::Loss,
        early_stopping: 2,
        epochs: 4,
        lr: 0.01,
        partitions: Auto::Value(1),
        ..config()
    };
    let path = folder.path().join("run");
    let (summary, seen) = train_at(&store, &config, &path).unwrap();
    assert!(summary.best_epoch.is_some() && summary.epochs > 2, "{summary:?}");
    let [warning] = &seen.warnings[..] else { panic!("{seen:?}") };
    let name = store.ids().name(nan);
    for part in ["1 of 78", &format!("the first is {name}:"), "after epoch 1"] {
        assert!(warning.contains(part), "{warning}");
    }
    // Predictions mark the node, and tell how many there are.
    let trained = Trained::open(&path, Device::Cpu).unwrap();
    let out = folder.path().join("classes.npy");
    let predicted = predict_file(&trained, &store, &out, Values::Classes, BUDGET, &Silent).unwrap();
    let found = predicted.nan.expect("a node has no prediction");
    assert_eq!((found.nodes, found.first), (1, nan));
    let both = [nan, NodeId((nan.0 + 1) % NODES)];
    let told = predict_nodes(&trained, &store, &both, BUDGET, folder.path(), &Silent).unwrap();
    assert_eq!(told.nan, Some(found));
    let is_empty: Vec<bool> = told.nodes.iter().map(|node| node.classes.is_empty()).collect();
    assert_eq!(is_empty, [true, false]);
}

#[test]
fn predictions_that_are_all_nan_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let sound = store(&folder.path().join("sound"), DENSE);
    let (damaged, nan) = nan_store(&folder.path().join("nan"));
    let config = TrainConfig { epochs: 1, ..config() };
    let (trained, _) = trained_as(&sound, folder.path(), config);
    let out = folder.path().join("logits.npy");
    let listed = FileOptions { values: Values::Logits, nodes: FileNodes::Listed(&[nan]) };
    let error = predict_file(&trained, &damaged, &out, listed, BUDGET, &Silent).unwrap_err();
    assert!(matches!(error, Error::NotFinite(_)), "{error:?}");
    let name = damaged.ids().name(nan);
    for part in ["the outputs of all 1 nodes are NaN", &format!("beginning with {name}"), "--allow-nan"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!out.exists());
}
