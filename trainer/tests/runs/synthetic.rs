//! Synthetic graphs have classes that edges tell and features alone do not.

use std::{path::Path, sync::Arc};

use grappa_formats::manifest::{FeatureDtype, FeatureSource};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::progress::Silent;
use grappa_run::config::{Auto, TrainConfig};
use grappa_storage::Store;
use grappa_synthetic::{Model, Recipe, Rmat, RmatClasses, SplitShares};

use crate::stores::{config, train_at};

/// A graph of R-MAT with classes. All graphs have the same nodes.
fn rmat(out: &Path, edge_factor: f64) -> Arc<Store> {
    let rmat = Rmat { classes: Some(RmatClasses::new(6)), ..Rmat::graph500(12, edge_factor) };
    let splits = SplitShares { train: 0.5, val: 0.1, test: 0.4 };
    let options = StoreOptions {
        chunks: Some(8),
        features: Some(FeatureOptions::new(32, FeatureDtype::F32, FeatureSource::Procedural)),
        ..StoreOptions::new(Recipe::new(Model::Rmat(rmat), 5).with_splits(splits), out)
    };
    generate_store(&options, &Silent).unwrap();
    Arc::new(Store::open(out).unwrap())
}

#[test]
fn a_model_that_sees_edges_learns_the_classes_of_rmat_better() {
    let folder = tempfile::tempdir().unwrap();
    let accuracy = |name: &str, edge_factor| {
        let store = rmat(&folder.path().join(name), edge_factor);
        let config = TrainConfig {
            hidden: 64,
            epochs: 20,
            lr: 0.01,
            batch: "128".parse().unwrap(),
            partitions: Auto::Value(1),
            ..config()
        };
        let path = folder.path().join(format!("{name}.run"));
        let (summary, _) = train_at(&store, &config, &path).unwrap();
        summary.test_accuracy.unwrap()
    };
    let (with, without) = (accuracy("with", 16.0), accuracy("without", 0.0));
    assert!(without > 0.25, "features tell something: {without}");
    assert!(with > without + 0.15, "{with} with edges and {without} without");
}
