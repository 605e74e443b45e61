//! Methods on a small graph.

mod divided;
mod exchanges;
mod training;

use std::{path::Path, sync::Arc};

use grappa_formats::manifest::{FeatureDtype, FeatureSource};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::{progress::Silent, size::ByteSize};
use grappa_run::{
    config::{Auto, FirstHop, TrainConfig},
    model::{LayerKind, NormKind},
};
use grappa_storage::Store;
use grappa_synthetic::{BlockModel, Model, Recipe};
use grappa_trainer::{
    distributed::ProcessGroup,
    train::{EpochStats, TrainSetup, Trainer},
};
use tch::{Device, Tensor};

use crate::{
    config::{Method, MethodConfig},
    training::setup,
};

const EPOCHS: u64 = 4;
const PARTITIONS: u32 = 4;

/// A graph of 8 chunks.
fn store(folder: &Path) -> Arc<Store> {
    let out = folder.join("graph.grappa");
    let model = BlockModel { classes: 4, ..BlockModel::new(600, 8.0) };
    let options = StoreOptions {
        chunks: Some(8),
        features: Some(FeatureOptions::new(8, FeatureDtype::F32, FeatureSource::Stored)),
        ..StoreOptions::new(Recipe::new(Model::Sbm(model), 5), &out)
    };
    generate_store(&options, &Silent).unwrap();
    Arc::new(Store::open(&out).unwrap())
}

/// Three layers, trained by a method.
fn config(method: Method, model: LayerKind, change: impl FnOnce(&mut MethodConfig)) -> TrainConfig {
    let mut options = MethodConfig { method, ..MethodConfig::default() };
    change(&mut options);
    options.in_config(TrainConfig {
        model,
        layers: 3,
        hidden: 12,
        heads: 2,
        dropout: 0.0,
        norm: Auto::Value(NormKind::None),
        epochs: EPOCHS,
        partitions: Auto::Value(if method == Method::Gern { 1 } else { PARTITIONS }),
        memory: ByteSize(256 << 20),
        first_hop: FirstHop::Sampled,
        ..TrainConfig::default()
    })
}

/// The trainer of a process, alone or in a group, with what it tells about its partitions.
fn prepared(
    store: &Arc<Store>,
    config: &TrainConfig,
    folder: &Path,
    group: Option<Arc<ProcessGroup>>,
) -> (Trainer, String) {
    let folder = folder.join("run");
    std::fs::create_dir_all(&folder).unwrap();
    let setup = TrainSetup { group, ..setup(config.clone()).unwrap() };
    let mut trainer = Trainer::new(store.clone(), setup, None, Device::Cpu, folder).unwrap();
    let sentence = trainer.prepare(0, None, &Silent).unwrap();
    (trainer, sentence)
}

/// Trains and evaluates all epochs. Returns their metrics and the parameters.
fn trained(trainer: &mut Trainer, epochs: u64) -> (Vec<EpochStats>, Tensor) {
    let stats = (0..epochs).map(|epoch| {
        let stats = trainer.epoch(epoch, &|_, _| 0.02, &Silent).unwrap();
        trainer.evaluate(epoch, &|_| true, &Silent).unwrap();
        trainer.end_epoch();
        stats
    });
    let stats = stats.collect();
    (stats, trainer.model().parameters().flat_values().copy())
}

fn assert_near(context: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-5 * expected.abs(), "{context}: {found} and not {expected}");
}
