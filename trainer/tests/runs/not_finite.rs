//! A feature that is NaN is NaN in all that depends on it, and an error where something is to be learned from it.

use std::{collections::BTreeSet, fs, sync::Arc};

use grappa_engine::aggregate::{Budget, StoreFeatures};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_io::progress::Silent;
use grappa_run::{
    config::{Auto, FirstHop, TrainConfig},
    folder::RunFolder,
    model::LayerKind,
};
use grappa_storage::{MappedChunks, Store};
use grappa_trainer::{
    nn::Model,
    train::{inference::Inference, train},
};
use tch::{Device, Tensor};

use crate::stores::{CLASSES, DENSE, NODES, Shape, Unseen, config, store};

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

fn nan_store(folder: &std::path::Path) -> (Arc<Store>, NodeId) {
    let shape = Shape {
        nan: Some(NAN),
        ..DENSE
    };
    let store = store(folder, shape);
    let node = store.node(&grappa_storage::ExternalId::Integer(NAN)).unwrap().unwrap();
    (store, node)
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
            let config = TrainConfig {
                model: layer,
                layers,
                ..config()
            };
            let options = config.model_options(DENSE.dim as usize, CLASSES as usize);
            let model = Model::new(options, 3, Device::Cpu).unwrap();
            let features = StoreFeatures::open(&store).unwrap();
            let chunks = Arc::new(MappedChunks::open(&store).unwrap());
            let inference = Inference {
                store: &store,
                chunks: &chunks,
                features: &features,
                first_hop: None,
                first_inputs: None,
                budget: Budget {
                    memory: 64 << 20,
                    threads: 2,
                },
                kept_memory: 0,
                scratch: folder.path(),
                rounded_states: FeatureDtype::F32,
                device: Device::Cpu,
            };
            let mut found = BTreeSet::new();
            let mut take = |nodes: std::ops::Range<u64>, logits: &Tensor| {
                let of_nodes = logits.isnan().any_dim(1, false);
                found.extend(
                    nodes
                        .clone()
                        .filter(|node| of_nodes.int64_value(&[(node - nodes.start) as i64]) == 1),
                );
                Ok(())
            };
            inference.run(&model, &Silent, &mut take).unwrap();
            let expected = reached(&store, nan, layers);
            assert!(
                expected.len() > 1 && expected.len() < NODES as usize,
                "{}",
                expected.len()
            );
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
        let config = TrainConfig {
            model,
            first_hop,
            partitions: Auto::Value(1),
            dropout: 0.0,
            ..config()
        };
        let path = folder.path().join(format!("{model}.run"));
        let run = RunFolder::create(&path, &config).unwrap();
        let error = train(store.clone(), config, &run, false, Device::Cpu, &mut Unseen)
            .unwrap_err()
            .to_string();
        for part in [
            "the loss is not finite in step",
            "of epoch 1",
            "features of node ",
            "--allow-nan",
        ] {
            assert!(error.contains(part), "{model}: {error}");
        }
        fs::remove_dir_all(path).unwrap();
    }
}
