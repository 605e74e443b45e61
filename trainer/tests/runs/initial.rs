//! Runs that start with the parameters of another run.

use std::fs;

use grappa_run::{
    config::{Optimizer, TrainConfig},
    folder::RunFolder,
    model::{FeatureNorm, LayerKind},
};
use grappa_trainer::{
    Error,
    train::{train, trained_model::Trained},
};
use tch::Device;

use crate::stores::{DENSE, Shape, Unseen, config, store, train_at, trained_as};

/// All values of the parameters, and of the buffers that normalize features.
fn values(trained: &Trained) -> Vec<f32> {
    let parameters = trained.model().parameters();
    let tensors = parameters.named().iter().chain(parameters.buffers());
    tensors.flat_map(|(_, tensor)| Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap()).collect()
}

#[test]
fn a_run_starts_with_the_best_parameters_of_the_run_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let before = TrainConfig { normalize_features: FeatureNorm::Standard, ..config() };
    // The next week's graph, with the same classes.
    let (old, new) = (store(&first, DENSE), store(&second, Shape { undirected: true, ..DENSE }));
    let (best, _) = trained_as(&old, &first, before.clone());
    let run = first.join(format!("{}.run", before.model));
    let after = TrainConfig {
        // So little that nothing changes.
        lr: 1e-12,
        optimizer: Optimizer::Sgd,
        epochs: 1,
        dropout: 0.0,
        init_from: Some(run.clone()),
        ..before
    };
    let (started, _) = trained_as(&new, &second, after.clone());
    assert_eq!(values(&started), values(&best));

    let refused = |name: &str, config: &TrainConfig| {
        let error = train_at(&new, config, &folder.path().join(name)).unwrap_err();
        assert_eq!(matches!(error, Error::WrongRun(_)), name != "missing", "{error:?}");
        error.to_string()
    };
    let wider = TrainConfig { hidden: 32, ..after.clone() };
    let error = refused("wider", &wider);
    assert!(error.contains("hidden is 32 here and 16 there"), "{error}");
    let other = TrainConfig { model: LayerKind::Gin, ..after.clone() };
    let error = refused("other", &other);
    assert!(error.contains("layer is gin here and sage there"), "{error}");

    // The run goes on without the other one.
    fs::remove_dir_all(&run).unwrap();
    let error = refused("missing", &after);
    assert!(error.contains("config.toml"), "{error}");
    let longer = TrainConfig { epochs: 2, ..after };
    let run = second.join(format!("{}.run", longer.model));
    let resumed = RunFolder::resume(&run).unwrap();
    train(new, longer, &resumed, true, Device::Cpu, &mut Unseen).unwrap();
    assert_eq!(values(&Trained::open(&run, Device::Cpu).unwrap()), values(&best));
}
