//! The model of a run, applied: to the store it was trained on, and to others.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use grappa_formats::{DenseId, NodeId, manifest::ExternalIds};
use grappa_io::{durable::Destination, npy, progress::Silent};
use grappa_run::{config::TrainConfig, folder::RunFolder, model::LayerKind};
use grappa_storage::Store;
use grappa_trainer::{
    predict::{FileNodes, FileOptions, Values, predict_file, predict_nodes, print_predictions},
    train::trained::Trained,
};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
};
use tch::Device;

use crate::stores::{BUDGET, CLASSES, DENSE, NAMES, NODES, Shape, config, id, store, trained, trained_as};

fn values<const N: usize>(path: &Path) -> Vec<[u8; N]> {
    let bytes = fs::read(path).unwrap();
    let (values, rest) = bytes[npy::HEADER_BYTES..].as_chunks();
    assert!(rest.is_empty());
    values.to_vec()
}

/// The dense id of each node of a split.
fn dense_ids(store: &Store, split: &str) -> Vec<u64> {
    let nodes = store.split(split).unwrap().expect("it is there");
    nodes
        .iter()
        .map(|node| store.ids().dense_id(NodeId(node)).unwrap().0)
        .collect()
}

#[test]
fn predictions_are_those_of_the_best_evaluation_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    for ids in [ExternalIds::Dense, ExternalIds::String] {
        let shape = Shape { ids, ..DENSE };
        let folder = folder.path().join(format!("{ids:?}"));
        let store = store(&folder, shape);
        let (trained, summary) = trained(&store, &folder, LayerKind::Sage);
        let best = trained.state().best.expect("it was evaluated");
        assert_eq!(Some(trained.state().epoch), summary.best_epoch);
        assert_eq!(trained.state().step, best.step);

        let report = fs::read_to_string(folder.join("sage.run/report.html")).unwrap();
        assert!(NAMES.iter().all(|name| report.contains(&format!("<th>{name}</th>"))));

        let out = folder.join("out");
        fs::create_dir(&out).unwrap();
        let written = |name: &str, values| {
            let path = out.join(name);
            let predicted = predict_file(&trained, &store, &path, values, BUDGET, &Silent).unwrap();
            let length = path.metadata().unwrap().len();
            assert_eq!((predicted.nodes, predicted.bytes), (NODES, length));
            path
        };
        let classes = values::<8>(&written("classes.npy", Values::Classes));
        let classes: Vec<i64> = classes.into_iter().map(i64::from_le_bytes).collect();
        // Of the nodes to test on, as many are right as the run says.
        for (split, expected) in [("test", summary.test_accuracy), ("val", summary.val_accuracy)] {
            let dense_ids = dense_ids(&store, split);
            let right = dense_ids
                .iter()
                .filter(|&&id| classes[id as usize] as u64 == id % CLASSES);
            let accuracy = right.count() as f64 / dense_ids.len() as f64;
            assert!(
                (accuracy - expected.unwrap()).abs() < 1e-9,
                "{split}: {accuracy}, {expected:?}"
            );
            assert!(accuracy > 0.5, "{split}: {accuracy}");
        }

        let logits: Vec<f32> = values::<4>(&written("logits.npy", Values::Logits))
            .into_iter()
            .map(f32::from_le_bytes)
            .collect();
        let embeddings = values::<4>(&written("embeddings.npy", Values::Embeddings));
        assert_eq!(embeddings.len() as u64, NODES * 16);
        let mut probabilities = Vec::new();
        for (row, &class) in logits.chunks_exact(CLASSES as usize).zip(&classes) {
            let largest = row.iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(row[class as usize], largest);
            probabilities.push(row.iter().map(|logit| (logit - largest).exp()).sum::<f32>().recip());
        }

        let file = fs::File::open(written("classes.parquet", Values::Classes)).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        for (dense, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let columns: BTreeMap<_, _> = row.unwrap().into_columns().into_iter().collect();
            let expected = match ids {
                ExternalIds::String => Field::Str(id(shape, dense as u64)),
                _ => Field::Long(dense as i64),
            };
            assert_eq!(columns["id"], expected);
            assert_eq!(columns["class"], Field::Str(NAMES[classes[dense] as usize].into()));
            let Field::Float(probability) = columns["probability"] else {
                panic!("{columns:?}")
            };
            assert!((probability - probabilities[dense]).abs() < 1e-5);
        }
        assert_eq!(reader.metadata().file_metadata().num_rows() as u64, NODES);

        // Logits and embeddings are lists in Parquet, and the same numbers.
        let numbers_of = |file: &Path, column: &str| -> Vec<f32> {
            let reader = SerializedFileReader::new(fs::File::open(file).unwrap()).unwrap();
            let mut numbers = Vec::new();
            for (dense, row) in reader.get_row_iter(None).unwrap().enumerate() {
                let columns: BTreeMap<_, _> = row.unwrap().into_columns().into_iter().collect();
                let expected = match ids {
                    ExternalIds::String => Field::Str(id(shape, dense as u64)),
                    _ => Field::Long(dense as i64),
                };
                assert_eq!(columns["id"], expected);
                let Field::ListInternal(list) = &columns[column] else {
                    panic!("{columns:?}")
                };
                let number = |field: &Field| match field {
                    Field::Float(number) => *number,
                    other => panic!("{other:?}"),
                };
                numbers.extend(list.elements().iter().map(number));
            }
            numbers
        };
        assert_eq!(numbers_of(&written("logits.parquet", Values::Logits), "logits"), logits);
        let found = numbers_of(&written("embeddings.parquet", Values::Embeddings), "embedding");
        let embeddings: Vec<f32> = embeddings.into_iter().map(f32::from_le_bytes).collect();
        assert_eq!(found, embeddings);

        // Probabilities of all classes: an array, or columns with the names of classes. CSV has the columns of Parquet.
        let all = values::<4>(&written("all.npy", Values::Probabilities));
        let all: Vec<f32> = all.into_iter().map(f32::from_le_bytes).collect();
        for (row, (&class, probability)) in all
            .chunks_exact(CLASSES as usize)
            .zip(classes.iter().zip(&probabilities))
        {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{row:?}");
            assert!((row[class as usize] - probability).abs() < 1e-5, "{row:?}");
        }
        let columns_of_classes = NAMES.map(|name| format!("probability_{name}"));
        let file = fs::File::open(written("all.parquet", Values::Probabilities)).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        for (dense, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let columns: BTreeMap<_, _> = row.unwrap().into_columns().into_iter().collect();
            assert_eq!(columns["class"], Field::Str(NAMES[classes[dense] as usize].into()));
            let row = &all[dense * CLASSES as usize..];
            for (name, probability) in columns_of_classes.iter().zip(row) {
                assert_eq!(columns[name], Field::Float(*probability));
            }
        }
        let lines_of = |file: &Path| -> Vec<Vec<String>> {
            let text = fs::read_to_string(file).unwrap();
            text.lines()
                .map(|line| line.split(',').map(str::to_owned).collect())
                .collect()
        };
        let text = lines_of(&written("classes.csv", Values::Classes));
        assert_eq!(text[0], ["id", "class", "probability"]);
        assert_eq!(text.len() as u64, NODES + 1);
        for (dense, line) in text[1..].iter().enumerate() {
            assert_eq!(line[0], id(shape, dense as u64));
            assert_eq!(line[1], NAMES[classes[dense] as usize]);
            assert!((line[2].parse::<f32>().unwrap() - probabilities[dense]).abs() < 1e-5);
        }
        let printed = {
            let mut out = Vec::new();
            print_predictions(&trained, &store, (&mut out, &folder), Values::Classes, BUDGET, &Silent).unwrap();
            out
        };
        assert_eq!(printed, fs::read(out.join("classes.csv")).unwrap());
        let text = lines_of(&written("all.csv", Values::Probabilities));
        let head = ["id".to_owned(), "class".to_owned()]
            .into_iter()
            .chain(columns_of_classes);
        assert!(text[0].iter().eq(&head.collect::<Vec<_>>()), "{:?}", text[0]);
        let values_of = |line: &Vec<String>| {
            line[2..]
                .iter()
                .map(|value| value.parse().unwrap())
                .collect::<Vec<f32>>()
        };
        assert_eq!(text[1..].iter().flat_map(values_of).collect::<Vec<_>>(), all);

        // The last of them first, to see that they come as they were asked for.
        let some: Vec<NodeId> = [399, 5, 0].map(|id| store.ids().node_of(DenseId(id)).unwrap()).into();
        let scratch = folder.join("scratch");
        fs::create_dir(&scratch).unwrap();
        let predictions = predict_nodes(&trained, &store, &some, BUDGET, &scratch, &Silent)
            .unwrap()
            .nodes;
        for ((prediction, node), dense) in predictions.iter().zip(&some).zip([399, 5, 0]) {
            assert_eq!(prediction.node, *node);
            assert_eq!(prediction.labels, Some(vec![dense as u64 % CLASSES]));
            let [(class, probability)] = prediction.classes[..] else {
                panic!("{prediction:?}")
            };
            assert_eq!(class as i64, classes[dense]);
            assert_eq!(trained.class_name(class), NAMES[class as usize]);
            assert!((probability - probabilities[dense]).abs() < 1e-6);
        }

        // A split has the same values, in the order of ids.
        let mut of_test = dense_ids(&store, "test");
        of_test.sort_unstable();
        let of_split = |name: &str, values| {
            let path = out.join(name);
            let file = FileOptions {
                values,
                nodes: FileNodes::Split("test"),
            };
            let predicted = predict_file(&trained, &store, &path, file, BUDGET, &Silent).unwrap();
            let length = path.metadata().unwrap().len();
            assert_eq!((predicted.nodes, predicted.bytes), (of_test.len() as u64, length));
            path
        };
        let found = values::<8>(&of_split("test.npy", Values::Classes));
        let expected: Vec<_> = of_test.iter().map(|&id| classes[id as usize].to_le_bytes()).collect();
        assert_eq!(found, expected);
        let found = values::<4>(&of_split("test-logits.npy", Values::Logits));
        let rows: Vec<_> = logits.chunks_exact(CLASSES as usize).collect();
        let expected: Vec<_> = of_test
            .iter()
            .flat_map(|&id| rows[id as usize])
            .map(|value| value.to_le_bytes())
            .collect();
        assert_eq!(found, expected);
        let file = fs::File::open(of_split("test.parquet", Values::Classes)).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), of_test.len());
        for (row, &dense) in rows.into_iter().zip(&of_test) {
            let columns: BTreeMap<_, _> = row.into_columns().into_iter().collect();
            let expected = match ids {
                ExternalIds::String => Field::Str(id(shape, dense)),
                _ => Field::Long(dense as i64),
            };
            assert_eq!(columns["id"], expected);
            assert_eq!(
                columns["class"],
                Field::Str(NAMES[classes[dense as usize] as usize].into())
            );
        }
        // Listed nodes have theirs in the order of the list, which may name a node twice.
        let list = [7u64, 3, 30, 7];
        let listed: Vec<NodeId> = list
            .iter()
            .map(|&dense| store.ids().node_of(DenseId(dense)).unwrap())
            .collect();
        let of_list = |name: &str| {
            let path = out.join(name);
            let file = FileOptions {
                values: Values::Classes,
                nodes: FileNodes::Listed(&listed),
            };
            let predicted = predict_file(&trained, &store, &path, file, BUDGET, &Silent).unwrap();
            assert_eq!(predicted.nodes, 4);
            path
        };
        let expected: Vec<_> = list.iter().map(|&id| classes[id as usize].to_le_bytes()).collect();
        assert_eq!(values::<8>(&of_list("list.npy")), expected);
        let reader = SerializedFileReader::new(fs::File::open(of_list("list.parquet")).unwrap()).unwrap();
        for (row, dense) in reader.get_row_iter(None).unwrap().map(Result::unwrap).zip(list) {
            let columns: BTreeMap<_, _> = row.into_columns().into_iter().collect();
            let expected = match ids {
                ExternalIds::String => Field::Str(id(shape, dense)),
                _ => Field::Long(dense as i64),
            };
            assert_eq!(columns["id"], expected);
            let class = NAMES[classes[dense as usize] as usize];
            assert_eq!(columns["class"], Field::Str(class.into()));
        }
        let missing = FileOptions {
            values: Values::Classes,
            nodes: FileNodes::Split("holdout"),
        };
        let error = predict_file(&trained, &store, &out.join("no.npy"), missing, BUDGET, &Silent).unwrap_err();
        assert!(
            error.to_string().contains("no split `holdout`") && error.to_string().contains("train"),
            "{error}"
        );

        // Nothing is left, and nothing is replaced.
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&out).unwrap().count(), 15);
        let again = out.join("classes.npy");
        let error = predict_file(&trained, &store, &again, Values::Classes, BUDGET, &Silent).unwrap_err();
        assert!(error.to_string().contains("classes.npy exists"), "{error}");
        let before = fs::read(&again).unwrap();
        fs::write(&again, "old").unwrap();
        let replacing = Destination {
            path: &again,
            replaces: true,
        };
        predict_file(&trained, &store, replacing, Values::Classes, BUDGET, &Silent).unwrap();
        assert_eq!(fs::read(&again).unwrap(), before);
    }
}

#[test]
fn a_model_of_another_run_or_of_other_options_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let of_run = |name: &str, seed| {
        let config = TrainConfig {
            seed,
            epochs: 2,
            ..config()
        };
        let (trained, _) = trained_as(&store, &folder.path().join(name), config);
        trained.checkpoint().to_owned()
    };
    fs::create_dir(folder.path().join("own")).unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    let (own, other) = (of_run("own", 1), of_run("other", 2));
    let run = folder.path().join("own/sage.run");
    let refused = || {
        let error = Trained::open(&run, Device::Cpu).unwrap_err().to_string();
        assert!(
            error.contains("best-") && error.contains("config.toml") && error.contains("copy of this run"),
            "{error}"
        );
    };
    // The parameters have the same shapes.
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    let (options, _) = config.split_once("# checksum").unwrap();
    fs::write(
        run.join("config.toml"),
        options.replace("activation = \"relu\"", "activation = \"elu\""),
    )
    .unwrap();
    refused();
    // Options that a resumed run may change may change here, too.
    fs::write(run.join("config.toml"), options.replace("epochs = 2", "epochs = 3")).unwrap();
    assert!(Trained::open(&run, Device::Cpu).unwrap().warnings().is_empty());
    fs::write(run.join("config.toml"), &config).unwrap();
    fs::copy(&other, &own).unwrap();
    refused();
    fs::remove_file(&own).unwrap();
    let trained = Trained::open(&run, Device::Cpu).unwrap();
    let [warning] = trained.warnings() else {
        panic!("{:?}", trained.warnings())
    };
    assert!(
        warning.contains("the best model of the run") && warning.contains("is missing"),
        "{warning}"
    );
}

#[test]
fn sets_of_classes_are_predicted_as_sets() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { sets: true, ..DENSE };
    let store = store(folder.path(), shape);
    let (trained, _) = trained(&store, folder.path(), LayerKind::Gatv2);
    let out = folder.path().join("sets.npy");
    predict_file(&trained, &store, &out, Values::Classes, BUDGET, &Silent).unwrap();
    let sets = values::<3>(&out);
    let all_in_the_first = sets.iter().filter(|set| set[0] == 1).count() as u64;
    assert!(all_in_the_first > NODES * 9 / 10, "{all_in_the_first}");
    let node = store.ids().node_of(DenseId(4)).unwrap();
    let prediction = predict_nodes(&trained, &store, &[node], BUDGET, folder.path(), &Silent)
        .unwrap()
        .nodes;
    assert_eq!(prediction[0].labels, Some(vec![0, 1]));
    let classes: Vec<u64> = prediction[0].classes.iter().map(|(class, _)| *class).collect();
    let expected: Vec<u64> = (0..3).filter(|&class| sets[4][class as usize] == 1).collect();
    assert_eq!(classes, expected);
    let parquet = folder.path().join("sets.parquet");
    predict_file(&trained, &store, &parquet, Values::Classes, BUDGET, &Silent).unwrap();
    let reader = SerializedFileReader::new(fs::File::open(&parquet).unwrap()).unwrap();
    let mut rows = 0;
    for (row, set) in reader.get_row_iter(None).unwrap().map(Result::unwrap).zip(&sets) {
        let columns: BTreeMap<_, _> = row.into_columns().into_iter().collect();
        let (Field::ListInternal(classes), Field::ListInternal(probabilities)) =
            (&columns["classes"], &columns["probabilities"])
        else {
            panic!("{columns:?}")
        };
        let expected: Vec<Field> = (0..3)
            .filter(|&class| set[class] == 1)
            .map(|class| Field::Str(NAMES[class].into()))
            .collect();
        assert_eq!(classes.elements(), expected);
        assert_eq!(probabilities.len(), expected.len());
        let is_likely = |field: &Field| matches!(field, Field::Float(probability) if *probability > 0.5);
        assert!(probabilities.elements().iter().all(is_likely), "{columns:?}");
        rows += 1;
    }
    assert_eq!(rows, NODES);
}

#[test]
fn a_store_with_other_edges_or_classes_than_the_run_had_is_predicted_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| -> PathBuf { folder.path().join(name) };
    let own = store(&in_folder("own"), DENSE);
    let (trained, summary) = trained(&own, folder.path(), LayerKind::Sage);
    let predicted = |name: &str, store: &Store| {
        let file = FileOptions {
            values: Values::Classes,
            nodes: FileNodes::Split("test"),
        };
        let out = in_folder(&format!("{name}.npy"));
        predict_file(&trained, store, &out, file, BUDGET, &Silent).unwrap()
    };
    assert!(trained.warnings_about(&own).unwrap().is_empty());
    assert_eq!(predicted("own", &own).scores.unwrap().accuracy, summary.test_accuracy);

    let undirected = Shape {
        undirected: true,
        ..DENSE
    };
    let other = store(&in_folder("undirected"), undirected);
    let [warning] = &trained.warnings_about(&other).unwrap()[..] else {
        panic!("one warning")
    };
    assert!(
        warning
            .contains("was ingested with --undirected --self-loops drop, and the run's store with --self-loops drop"),
        "{warning}"
    );
    assert!(predicted("undirected", &other).scores.is_some());

    let finer = store(&in_folder("finer"), Shape { classes: 4, ..DENSE });
    let [warning] = &trained.warnings_about(&finer).unwrap()[..] else {
        panic!("one warning")
    };
    assert!(
        warning.contains("has 4 classes") && warning.contains("trained with 3"),
        "{warning}"
    );
    let test = finer.split("test").unwrap().unwrap();
    let predicted = predicted("finer", &finer);
    assert_eq!((predicted.nodes, predicted.scores), (test.len(), None));
}

#[test]
fn stores_that_are_not_as_the_model_was_trained_are_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| -> PathBuf { folder.path().join(name) };
    let own = store(&in_folder("own"), DENSE);
    let (trained, _) = trained(&own, folder.path(), LayerKind::Gcn);
    let refused = |name: &str, shape: Shape| {
        let other = store(&in_folder(name), shape);
        let out = in_folder("refused.npy");
        let error = predict_file(&trained, &other, &out, Values::Classes, BUDGET, &Silent).unwrap_err();
        assert!(!out.exists());
        error.to_string()
    };
    let wider = refused("wider", Shape { dim: 7, ..DENSE });
    assert!(
        wider.contains("7 features per node") && wider.contains("trained with 6"),
        "{wider}"
    );
    assert!(wider.contains("add-features"), "{wider}");
    let bare = refused("bare", Shape { dim: 0, ..DENSE });
    let command = format!(
        "grappa-store add-features {}",
        in_folder("bare").join("graph.grappa").display()
    );
    assert!(bare.contains("no features") && bare.contains(&command), "{bare}");
    let sets = refused("sets", Shape { sets: true, ..DENSE });
    assert!(sets.contains("one class each"), "{sets}");

    let error = |path: &Path| Trained::open(path, Device::Cpu).unwrap_err().to_string();
    assert!(error(folder.path()).contains("it contains no run"));
    let empty = in_folder("empty.run");
    drop(RunFolder::create(&empty, &TrainConfig::default()).unwrap());
    assert!(error(&empty).contains("no checkpoint yet"), "{}", error(&empty));
    // Whoever looks makes nothing.
    assert!(!empty.join("checkpoints").exists());
}
