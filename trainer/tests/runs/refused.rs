//! Runs that are refused, before any work.

use std::fs;

use grappa_run::{
    config::{FirstHop, TrainConfig},
    folder::RunFolder,
};
use grappa_trainer::{Error, train::train};
use tch::Device;

use crate::stores::{DENSE, Shape, Unseen, config, store};

#[test]
fn what_cannot_be_learned_is_refused_before_features_are_aggregated() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names.txt");
    fs::write(&names, "one\ntwo\n").unwrap();
    let unlabelled = Shape {
        labelled: false,
        ..DENSE
    };
    for (name, shape, class_names, expected) in [
        ("unlabelled", unlabelled, None, "nodes have no labels to learn"),
        ("named", DENSE, Some(names), "2 names for 3 classes"),
    ] {
        let store = store(&folder.path().join(name), shape);
        let config = TrainConfig {
            first_hop: FirstHop::Preaggregated,
            class_names,
            ..config()
        };
        let run = RunFolder::create(&folder.path().join(format!("{name}.run")), &config).unwrap();
        let error = train(store.clone(), config, &run, false, Device::Cpu, &mut Unseen).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(matches!(error, Error::NoLabels(_)), name == "unlabelled", "{error:?}");
        assert!(!store.path().join("aggregates").exists(), "{name}");
    }
}
