//! Errors name nodes as the user's files do.

use grappa_formats::manifest::ExternalIds;
use grappa_run::folder::RunFolder;
use grappa_trainer::train::train;
use tch::Device;

use crate::stores::{DENSE, Shape, Unseen, config, id, store};

#[test]
fn an_unlabelled_node_to_train_on_is_named_by_the_id_of_the_users_files() {
    for ids in [ExternalIds::Dense, ExternalIds::String] {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape {
            ids,
            unlabelled: Some(62),
            ..DENSE
        };
        let store = store(folder.path(), shape);
        let external = grappa_storage::ExternalId::Integer(62);
        let internal = match ids {
            ExternalIds::Dense => store.node(&external).unwrap().unwrap().0,
            _ => 0,
        };
        assert_ne!(internal, 62, "nodes are in another order");
        let run = RunFolder::create(&folder.path().join("a.run"), &config()).unwrap();
        let error = train(store, config(), &run, false, Device::Cpu, &mut Unseen)
            .unwrap_err()
            .to_string();
        let expected = format!("node {} is a training node without label", id(shape, 62));
        assert!(error.contains(&expected), "{error}");
    }
}
