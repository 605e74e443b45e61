//! Names of features and classes: a run keeps the names of its store, and compares them with the names of other stores.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use grappa_ingestion::ingest::{IngestOptions, NodeData, NodeIngest, NodeSplits, Resources, StoreLayout, ingest};
use grappa_io::{npy, progress::Silent};
use grappa_run::{
    checkpoint::read_tensors,
    config::TrainConfig,
    folder::RunFolder,
    model::{FeatureNorm, LayerKind},
};
use grappa_storage::Store;
use grappa_trainer::{
    export::export,
    predict::{FileNodes, FileOptions, Values, predict_file, predict_nodes},
    train::{train, trained_model::Trained},
};
use tch::Device;

use crate::stores::{BUDGET, CLASSES, DENSE, NODES, Unseen, config, refused_at, store, train_at};

const COLUMNS: [&str; 6] = ["age", "income", "visits", "is_new", "height", "orders"];
/// Sorted, as ingest numbers them.
const PLANS: [&str; 3] = ["basic", "free", "gold"];

/// The store of `DENSE` as tables: with the columns `order` of its features, called as in `columns`, and names of
/// classes.
fn named(folder: &Path, name: &str, order: &[usize], columns: &[&str], plans: &[&str]) -> Arc<Store> {
    let arrays = folder.join("arrays");
    if !arrays.exists() {
        store(&arrays, DENSE);
    }
    let features = fs::read(arrays.join("features.npy")).unwrap();
    let values: Vec<f32> =
        features[npy::HEADER_BYTES..].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let header: Vec<&str> = order.iter().map(|&column| columns[column]).collect();
    let mut table = header.join(",") + "\n";
    for row in values.chunks_exact(DENSE.dim as usize) {
        let row: Vec<String> = order.iter().map(|&column| row[column].to_string()).collect();
        table += &(row.join(",") + "\n");
    }
    let labels: String = (0..NODES).map(|node| plans[(node % CLASSES) as usize].to_owned() + "\n").collect();
    let file = |suffix: &str, text: String| {
        let path = folder.join(format!("{name}-{suffix}.csv"));
        fs::write(&path, text).unwrap();
        Some(path)
    };
    let out = folder.join(format!("{name}.grappa"));
    let split = |name: &'static str| grappa_ingestion::ingest::SplitFile {
        name,
        ids: arrays.join(format!("{name}.txt")).into(),
    };
    let options = IngestOptions {
        resources: Resources { memory: 64 << 20, ..Resources::default() },
        nodes: NodeIngest {
            data: NodeData {
                features: file("users", table).map(Into::into),
                labels: file("plans", format!("label\n{labels}")).map(Into::into),
                ..NodeData::default()
            },
            splits: NodeSplits { files: ["train", "val", "test"].map(split).to_vec(), ..NodeSplits::default() },
            layout: StoreLayout { chunks: Some(4), ..StoreLayout::default() },
            ..NodeIngest::default()
        },
        ..IngestOptions::new(vec![arrays.join("edges.tsv")], out.clone())
    };
    ingest(&options, &Silent).unwrap();
    Arc::new(Store::open(&out).unwrap())
}

fn run_of(store: &Arc<Store>, path: PathBuf, config: &TrainConfig) -> Trained {
    train_at(store, config, &path).unwrap();
    Trained::open(&path, Device::Cpu).unwrap()
}

fn logits(trained: &Trained, store: &Store, out: &Path) -> Vec<f32> {
    predict_file(trained, store, out, Values::Logits, BUDGET, &Silent).unwrap();
    let bytes = fs::read(out).unwrap();
    fs::remove_file(out).unwrap();
    bytes[npy::HEADER_BYTES..].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn a_store_with_its_columns_in_another_order_predicts_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let own = named(folder.path(), "own", &[0, 1, 2, 3, 4, 5], &COLUMNS, &PLANS);
    let other = named(folder.path(), "other", &[4, 2, 0, 5, 1, 3], &COLUMNS, &PLANS);
    let out = folder.path().join("logits.npy");
    for (model, features) in [
        (LayerKind::Sage, FeatureNorm::None),
        (LayerKind::Gcn, FeatureNorm::Standard),
        (LayerKind::Gatv2, FeatureNorm::None),
    ] {
        let config = TrainConfig { model, normalize_features: features, epochs: 2, ..config() };
        let trained = run_of(&own, folder.path().join(format!("{model}.run")), &config);
        let expected = logits(&trained, &own, &out);
        let check = |quantity: &str, tolerance: f32| {
            let found = logits(&trained, &other, &out);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < tolerance, "{model} {quantity}: {found} {expected}");
            }
        };
        // Stored aggregates are rounded.
        check("without stored aggregates", 2e-2);
        if model == LayerKind::Sage {
            // A run on the other store leaves pre-aggregated features there.
            run_of(&other, folder.path().join("other.run"), &config);
            check("with stored aggregates", 1e-3);
        }
        let [warning] = &trained.warnings_about(&other).unwrap()[..] else { panic!("one warning") };
        assert!(warning.contains("another order"), "{warning}");
        assert!(trained.warnings_about(&own).unwrap().is_empty());
    }
}

#[test]
fn a_store_with_other_features_is_refused_with_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let all = [0, 1, 2, 3, 4, 5];
    let own = named(folder.path(), "own", &all[..5], &COLUMNS, &PLANS);
    let more = named(folder.path(), "more", &all, &COLUMNS, &PLANS);
    let renamed = ["age", "income", "visits", "is_new", "Height"];
    let renamed = named(folder.path(), "renamed", &all[..5], &renamed, &PLANS);
    let config = TrainConfig { epochs: 1, ..config() };
    let trained = run_of(&own, folder.path().join("own.run"), &config);
    let out = folder.path().join("out.npy");
    let error = |store: &Store| {
        let error = predict_file(&trained, store, &out, Values::Classes, BUDGET, &Silent).unwrap_err();
        assert!(!out.exists());
        error.to_string()
    };
    let remedy = "grappa-ingest ... --features-from 'age,income,visits,is_new,height'";
    for (store, expected) in [
        (&more, "the store also has orders"),
        (&renamed, "the store lacks height, and has Height, which the run lacks"),
    ] {
        let error = error(store);
        assert!(error.contains(expected) && error.ends_with(remedy), "{error}");
    }
    // A store without names is taken as before, with a warning.
    let unnamed = store(&folder.path().join("unnamed"), crate::stores::Shape { dim: 5, ..DENSE });
    let warnings = trained.warnings_about(&unnamed).unwrap();
    let expected = format!("features of {} have no names", unnamed.path().display());
    assert!(warnings.iter().any(|warning| warning.contains(&expected)), "{warnings:?}");
    predict_file(&trained, &unnamed, &out, Values::Classes, BUDGET, &Silent).unwrap();

    let resumed = RunFolder::resume(&folder.path().join("own.run")).unwrap();
    let longer = TrainConfig { epochs: 2, ..config.clone() };
    let error = train(renamed.clone(), longer, &resumed, true, Device::Cpu, &mut Unseen).unwrap_err().to_string();
    assert!(error.contains("the features of the store are not those"), "{error}");
    drop(resumed);

    let swapped = named(folder.path(), "swapped", &[1, 0, 2, 3, 4], &COLUMNS, &PLANS);
    let other_plans = named(folder.path(), "plans", &all[..5], &COLUMNS, &["gold", "free", "silver"]);
    for (store, expected) in [
        (&swapped, "other features: they are the same ones in another order"),
        (&renamed, "other features: the store lacks height"),
        (&other_plans, "other classes: the store lacks basic"),
    ] {
        let init = TrainConfig { init_from: Some(folder.path().join("own.run")), ..config.clone() };
        let path = folder.path().join("init.run");
        let error = refused_at(store, &init, &path);
        assert!(error.contains(expected), "{error}");
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn names_of_classes_go_from_the_store_to_report_model_and_scores() {
    let folder = tempfile::tempdir().unwrap();
    let order = [0, 1, 2, 3, 4, 5];
    let own = named(folder.path(), "own", &order, &COLUMNS, &PLANS);
    let path = folder.path().join("own.run");
    let trained = run_of(&own, path.clone(), &config());
    assert_eq!(trained.class_names(), PLANS);
    let report = fs::read_to_string(path.join("report.html")).unwrap();
    assert!(PLANS.iter().all(|name| report.contains(&format!("<th>{name}</th>"))));
    let model = folder.path().join("model.safetensors");
    export(&trained, &model).unwrap();
    let (_, metadata) = read_tensors(&model).unwrap();
    assert_eq!(metadata["feature_names"], serde_json::to_string(&COLUMNS).unwrap());
    assert_eq!(metadata["class_names"], serde_json::to_string(&PLANS).unwrap());

    // The same nodes, whose classes have other numbers.
    let other = named(folder.path(), "other", &order, &COLUMNS, &["gold", "free", "silver"]);
    let test = |store: &Store, out: &str| {
        let file = FileOptions { values: Values::Classes, nodes: FileNodes::Split("test") };
        let out = folder.path().join(out);
        predict_file(&trained, store, &out, file, BUDGET, &Silent).unwrap().scores
    };
    assert!(test(&own, "own.npy").is_some());
    assert!(test(&other, "other.npy").is_none(), "they have other classes");
    let warnings = trained.warnings_about(&other).unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("lacks basic, and has silver")), "{warnings:?}");
    let nodes: Vec<_> = other.split("test").unwrap().unwrap().iter().map(grappa_formats::NodeId).collect();
    let predictions = predict_nodes(&trained, &other, &nodes, BUDGET, folder.path(), &Silent).unwrap();
    assert!(predictions.scores.is_none());
    assert_eq!(trained.names_of_labels(&other).unwrap(), ["free", "gold", "silver"]);

    // Names that the user gives are shown instead.
    let names = folder.path().join("names.txt");
    fs::write(&names, "B\nF\nG\n").unwrap();
    let given = TrainConfig { class_names: Some(names), epochs: 1, ..config() };
    let with_given = run_of(&own, folder.path().join("given.run"), &given);
    assert_eq!(with_given.class_names(), ["B", "F", "G"]);
    assert!(with_given.has_classes_of(&own).unwrap());
    assert!(!with_given.has_classes_of(&other).unwrap());

    // The names are part of the run.
    let schema = path.join("schema");
    let kept = fs::read(&schema).unwrap();
    for (change, expected) in [(None, "missing"), (Some(&b"damaged"[..]), "restore it from a copy")] {
        match change {
            None => fs::remove_file(&schema).unwrap(),
            Some(bytes) => fs::write(&schema, bytes).unwrap(),
        }
        let error = Trained::open(&path, Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("schema") && error.contains(expected), "{error}");
    }
    fs::write(&schema, kept).unwrap();
    assert_eq!(Trained::open(&path, Device::Cpu).unwrap().class_names(), PLANS);
}
