//! The model of a run, applied: to the store it was trained on, and to others.

use std::{
    fs,
    path::{Path, PathBuf},
};

use grappa_formats::{DenseId, NodeId, manifest::ExternalIds};
use grappa_io::{durable::Destination, npy, progress::Silent};
use grappa_run::{config::TrainConfig, folder::RunFolder, model::LayerKind};
use grappa_storage::Store;
use grappa_trainer::{
    predict::{FileNodes, FileOptions, Values, predict_file, predict_nodes, print_predictions},
    train::trained_model::Trained,
};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row},
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
    nodes.iter().map(|node| store.ids().dense_id(NodeId(node)).unwrap().0).collect()
}

/// A column of a file in Parquet.
fn column(path: &Path, name: &str) -> Vec<Field> {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let value = |row: Result<Row, _>| {
        let mut columns = row.unwrap().into_columns().into_iter();
        columns.find(|(column, _)| column == name).expect("the column is there").1
    };
    reader.get_row_iter(None).unwrap().map(value).collect()
}

fn number(field: &Field) -> f32 {
    match field {
        Field::Float(number) => *number,
        other => panic!("{other:?}"),
    }
}

/// The elements of a field that is a list.
fn elements(field: &Field) -> &[Field] {
    match field {
        Field::ListInternal(list) => list.elements(),
        other => panic!("{other:?}"),
    }
}

fn floats(path: &Path) -> Vec<f32> {
    values::<4>(path).into_iter().map(f32::from_le_bytes).collect()
}

/// The fields of the lines of a file in CSV.
fn lines_of(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
    lines.collect()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
    }
}

#[test]
fn predictions_are_those_of_the_best_evaluation_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    for ids in [ExternalIds::Dense, ExternalIds::String] {
        predictions_in_every_form(&folder.path().join(format!("{ids:?}")), Shape { ids, ..DENSE });
    }
}

fn predictions_in_every_form(folder: &Path, shape: Shape) {
    const WIDTH: usize = CLASSES as usize;
    let store = store(folder, shape);
    let (trained, summary) = trained(&store, folder, LayerKind::Sage);
    let best = trained.state().best.expect("it was evaluated");
    assert_eq!(Some(trained.state().epoch), summary.best_epoch);
    assert_eq!(trained.state().step, best.step);
    let report = fs::read_to_string(folder.join("sage.run/report.html")).unwrap();
    assert!(NAMES.iter().all(|name| report.contains(&format!("<th>{name}</th>"))));

    let out = folder.join("out");
    fs::create_dir(&out).unwrap();
    let write = |name: &str, values, nodes: FileNodes<'_>, expected: u64| {
        let path = out.join(name);
        let options = FileOptions { values, nodes };
        let predicted = predict_file(&trained, &store, &path, options, BUDGET, &Silent).unwrap();
        let length = path.metadata().unwrap().len();
        assert_eq!((predicted.nodes, predicted.bytes), (expected, length));
        path
    };
    let written = |name: &str, values| write(name, values, FileNodes::All, NODES);
    let classes = values::<8>(&written("classes.npy", Values::Classes));
    let classes: Vec<usize> = classes.into_iter().map(|class| i64::from_le_bytes(class) as usize).collect();
    // Of the nodes to test on, as many are right as the run says.
    for (split, expected) in [("test", summary.test_accuracy), ("val", summary.val_accuracy)] {
        let dense_ids = dense_ids(&store, split);
        let right = dense_ids.iter().filter(|&&id| classes[id as usize] as u64 == id % CLASSES);
        let accuracy = right.count() as f64 / dense_ids.len() as f64;
        assert!((accuracy - expected.unwrap()).abs() < 1e-9, "{split}: {accuracy}, {expected:?}");
        assert!(accuracy > 0.5, "{split}: {accuracy}");
    }

    let logits = floats(&written("logits.npy", Values::Logits));
    let embeddings = floats(&written("embeddings.npy", Values::Embeddings));
    assert_eq!(embeddings.len() as u64, NODES * 16);
    // The probability of each node's class.
    let mut probabilities = Vec::new();
    for (row, &class) in logits.chunks_exact(WIDTH).zip(&classes) {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        assert_eq!(row[class], largest);
        probabilities.push(row.iter().map(|logit| (logit - largest).exp()).sum::<f32>().recip());
    }

    // Files in Parquet have the ids, the names of classes, and the same numbers.
    let ids_of = |nodes: &[u64]| -> Vec<Field> {
        let id = |&node: &u64| match shape.ids {
            ExternalIds::String => Field::Str(id(shape, node)),
            _ => Field::Long(node as i64),
        };
        nodes.iter().map(id).collect()
    };
    let names_of = |nodes: &[u64]| -> Vec<Field> {
        let name = |&node: &u64| Field::Str(NAMES[classes[node as usize]].into());
        nodes.iter().map(name).collect()
    };
    let all: Vec<u64> = (0..NODES).collect();
    let parquet = written("classes.parquet", Values::Classes);
    assert_eq!(column(&parquet, "id"), ids_of(&all));
    assert_eq!(column(&parquet, "class"), names_of(&all));
    let found: Vec<f32> = column(&parquet, "probability").iter().map(number).collect();
    assert_close(&found, &probabilities);
    for (name, values, list, expected) in [
        ("logits.parquet", Values::Logits, "logits", &logits),
        ("embeddings.parquet", Values::Embeddings, "embedding", &embeddings),
    ] {
        let parquet = written(name, values);
        assert_eq!(column(&parquet, "id"), ids_of(&all));
        let found: Vec<f32> = column(&parquet, list).iter().flat_map(elements).map(number).collect();
        assert_eq!(&found, expected);
    }

    // Probabilities of all classes: an array, or columns with the names of classes. CSV has the columns of Parquet.
    let each = floats(&written("all.npy", Values::Probabilities));
    for ((row, &class), &probability) in each.chunks_exact(WIDTH).zip(&classes).zip(&probabilities) {
        assert_close(&[row.iter().sum::<f32>(), row[class]], &[1.0, probability]);
    }
    let parquet = written("all.parquet", Values::Probabilities);
    assert_eq!(column(&parquet, "class"), names_of(&all));
    for (class, name) in NAMES.iter().enumerate() {
        let found: Vec<f32> = column(&parquet, &format!("probability_{name}")).iter().map(number).collect();
        let expected: Vec<f32> = each.iter().skip(class).step_by(WIDTH).copied().collect();
        assert_eq!(found, expected);
    }
    let csv = written("classes.csv", Values::Classes);
    let text = lines_of(&csv);
    assert_eq!(text[0], ["id", "class", "probability"]);
    assert_eq!(text.len() as u64, NODES + 1);
    for (node, line) in text[1..].iter().enumerate() {
        assert_eq!(line[..2], [&*id(shape, node as u64), NAMES[classes[node]]]);
        assert_close(&[line[2].parse().unwrap()], &[probabilities[node]]);
    }
    let mut printed = Vec::new();
    print_predictions(&trained, &store, (&mut printed, folder), Values::Classes, BUDGET, &Silent).unwrap();
    assert_eq!(printed, fs::read(csv).unwrap());
    let text = lines_of(&written("all.csv", Values::Probabilities));
    let head = format!("id,class,{}", NAMES.map(|name| format!("probability_{name}")).join(","));
    assert_eq!(text[0].join(","), head);
    let found = text[1..].iter().flat_map(|line| &line[2..]).map(|value| value.parse().unwrap());
    assert_eq!(found.collect::<Vec<f32>>(), each);

    // The last of them first, to see that they come as they were asked for.
    let node_of = |&id: &u64| store.ids().node_of(DenseId(id)).unwrap();
    let some = [399, 5, 0];
    let scratch = folder.join("scratch");
    fs::create_dir(&scratch).unwrap();
    let asked: Vec<NodeId> = some.iter().map(node_of).collect();
    let predictions = predict_nodes(&trained, &store, &asked, BUDGET, &scratch, &Silent).unwrap().nodes;
    for ((prediction, node), dense) in predictions.iter().zip(&asked).zip(some) {
        assert_eq!(prediction.node, *node);
        assert_eq!(prediction.labels, Some(vec![dense % CLASSES]));
        let [(class, probability)] = prediction.classes[..] else { panic!("{prediction:?}") };
        assert_eq!(class as usize, classes[dense as usize]);
        assert_eq!(trained.class_name(class), NAMES[class as usize]);
        assert_close(&[probability], &[probabilities[dense as usize]]);
    }

    // A split has the same values, in the order of ids. Listed nodes have theirs in the order of the list, which may
    // name a node twice.
    let mut test = dense_ids(&store, "test");
    test.sort_unstable();
    let list = vec![7, 3, 30, 7];
    let listed: Vec<NodeId> = list.iter().map(node_of).collect();
    for (name, nodes, dense) in [("test", FileNodes::Split("test"), test), ("list", FileNodes::Listed(&listed), list)] {
        let some = |file: &str, values| write(&format!("{name}{file}"), values, nodes, dense.len() as u64);
        let expected: Vec<_> = dense.iter().map(|&id| (classes[id as usize] as i64).to_le_bytes()).collect();
        assert_eq!(values::<8>(&some(".npy", Values::Classes)), expected);
        let rows = dense.iter().flat_map(|&id| &logits[id as usize * WIDTH..][..WIDTH]);
        let expected: Vec<f32> = rows.copied().collect();
        assert_eq!(floats(&some("-logits.npy", Values::Logits)), expected);
        let parquet = some(".parquet", Values::Classes);
        assert_eq!(column(&parquet, "id"), ids_of(&dense));
        assert_eq!(column(&parquet, "class"), names_of(&dense));
    }
    let missing = FileOptions { values: Values::Classes, nodes: FileNodes::Split("holdout") };
    let error = predict_file(&trained, &store, &out.join("no.npy"), missing, BUDGET, &Silent).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("no split `holdout`") && error.contains("train"), "{error}");

    // Nothing is left, and nothing is replaced.
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 16);
    let again = out.join("classes.npy");
    let error = predict_file(&trained, &store, &again, Values::Classes, BUDGET, &Silent).unwrap_err();
    assert!(error.to_string().contains("classes.npy exists"), "{error}");
    let before = fs::read(&again).unwrap();
    fs::write(&again, "old").unwrap();
    let replacing = Destination { path: &again, replaces: true };
    predict_file(&trained, &store, replacing, Values::Classes, BUDGET, &Silent).unwrap();
    assert_eq!(fs::read(&again).unwrap(), before);
}

#[test]
fn a_model_of_another_run_or_of_other_options_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let of_run = |name: &str, seed| {
        let config = TrainConfig { seed, epochs: 2, ..config() };
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
    fs::write(run.join("config.toml"), options.replace("activation = \"relu\"", "activation = \"elu\"")).unwrap();
    refused();
    // Options that a resumed run may change may change here, too.
    fs::write(run.join("config.toml"), options.replace("epochs = 2", "epochs = 3")).unwrap();
    assert!(Trained::open(&run, Device::Cpu).unwrap().warnings().is_empty());
    fs::write(run.join("config.toml"), &config).unwrap();
    fs::copy(&other, &own).unwrap();
    refused();
    fs::remove_file(&own).unwrap();
    let trained = Trained::open(&run, Device::Cpu).unwrap();
    let [warning] = trained.warnings() else { panic!("{:?}", trained.warnings()) };
    assert!(warning.contains("the best model of the run") && warning.contains("is missing"), "{warning}");
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
    let prediction = predict_nodes(&trained, &store, &[node], BUDGET, folder.path(), &Silent).unwrap().nodes;
    assert_eq!(prediction[0].labels, Some(vec![0, 1]));
    let classes: Vec<u64> = prediction[0].classes.iter().map(|(class, _)| *class).collect();
    let expected: Vec<u64> = (0..3).filter(|&class| sets[4][class as usize] == 1).collect();
    assert_eq!(classes, expected);
    let parquet = folder.path().join("sets.parquet");
    predict_file(&trained, &store, &parquet, Values::Classes, BUDGET, &Silent).unwrap();
    let (found, likely) = (column(&parquet, "classes"), column(&parquet, "probabilities"));
    assert_eq!((found.len(), likely.len()), (sets.len(), sets.len()));
    for ((set, found), likely) in sets.iter().zip(&found).zip(&likely) {
        let expected = (0..3).filter(|&class| set[class] == 1);
        let expected: Vec<Field> = expected.map(|class| Field::Str(NAMES[class].into())).collect();
        assert_eq!(elements(found), expected);
        assert_eq!(elements(likely).len(), expected.len());
        assert!(elements(likely).iter().all(|field| number(field) > 0.5), "{likely:?}");
    }
}

#[test]
fn a_store_with_other_edges_or_classes_than_the_run_had_is_predicted_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| -> PathBuf { folder.path().join(name) };
    let own = store(&in_folder("own"), DENSE);
    let (trained, summary) = trained(&own, folder.path(), LayerKind::Sage);
    let predicted = |name: &str, store: &Store| {
        let file = FileOptions { values: Values::Classes, nodes: FileNodes::Split("test") };
        let out = in_folder(&format!("{name}.npy"));
        predict_file(&trained, store, &out, file, BUDGET, &Silent).unwrap()
    };
    assert!(trained.warnings_about(&own).unwrap().is_empty());
    assert_eq!(predicted("own", &own).scores.unwrap().accuracy, summary.test_accuracy);

    let undirected = Shape { undirected: true, ..DENSE };
    let other = store(&in_folder("undirected"), undirected);
    let [warning] = &trained.warnings_about(&other).unwrap()[..] else { panic!("one warning") };
    assert!(
        warning
            .contains("was ingested with --undirected --self-loops drop, and the run's store with --self-loops drop"),
        "{warning}"
    );
    assert!(predicted("undirected", &other).scores.is_some());

    let finer = store(&in_folder("finer"), Shape { classes: 4, ..DENSE });
    let [warning] = &trained.warnings_about(&finer).unwrap()[..] else { panic!("one warning") };
    assert!(warning.contains("has 4 classes") && warning.contains("trained with 3"), "{warning}");
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
    assert!(wider.contains("7 features per node") && wider.contains("trained with 6"), "{wider}");
    assert!(wider.contains("add-features"), "{wider}");
    let bare = refused("bare", Shape { dim: 0, ..DENSE });
    let command = format!("grappa-store add-features {}", in_folder("bare").join("graph.grappa").display());
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
