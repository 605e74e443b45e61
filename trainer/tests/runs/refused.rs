//! Runs that are refused, before any work.

use std::fs;

use grappa_formats::manifest::ExternalIds;
use grappa_run::config::{FirstHop, TrainConfig};
use grappa_storage::ExternalId;
use grappa_trainer::Error;

use crate::stores::{DENSE, Shape, config, id, refused_at, store, train_at};

#[test]
fn what_cannot_be_learned_is_refused_before_features_are_aggregated() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names.txt");
    fs::write(&names, "one\ntwo\n").unwrap();
    let unlabelled = Shape { labelled: false, ..DENSE };
    for (name, shape, class_names, expected) in [
        ("unlabelled", unlabelled, None, "nodes have no labels to learn"),
        ("named", DENSE, Some(names), "2 names for 3 classes"),
    ] {
        let store = store(&folder.path().join(name), shape);
        let config = TrainConfig { first_hop: FirstHop::Preaggregated, class_names, ..config() };
        let error = train_at(&store, &config, &folder.path().join(format!("{name}.run"))).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(matches!(error, Error::NoLabels(_)), name == "unlabelled", "{error:?}");
        assert!(!store.path().join("aggregates").exists(), "{name}");
    }
}

#[test]
fn an_unlabelled_node_to_train_on_is_named_by_the_id_of_the_users_files() {
    for ids in [ExternalIds::Dense, ExternalIds::String] {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape { ids, unlabelled: Some(62), ..DENSE };
        let store = store(folder.path(), shape);
        let external = ExternalId::Integer(62);
        let internal = match ids {
            ExternalIds::Dense => store.node(&external).unwrap().unwrap().0,
            _ => 0,
        };
        assert_ne!(internal, 62, "nodes are in another order");
        let error = refused_at(&store, &config(), &folder.path().join("a.run"));
        let expected = format!("node {} is a training node without label", id(shape, 62));
        assert!(error.contains(&expected), "{error}");
    }
}
