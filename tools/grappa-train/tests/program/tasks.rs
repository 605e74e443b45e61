//! Numbers as labels, labels that are partly unknown, and rare classes.

use std::fs;

use grappa_tests::program::{CommandWords, run};
use serde_json::Value;

use crate::{
    fixture::{TrainFolder, assert_close},
    scores::ingest_with,
};

const NODES: u32 = 400;

/// A feature of a node, from 0 to 1.
fn feature(node: u32, column: u32) -> f64 {
    f64::from((node * 7919 + column * 104_729) % 997) / 997.0
}

fn features(node: u32) -> String {
    let row = [0, 1, 2, 3].map(|column| feature(node, column).to_string());
    row.join(",") + "\n"
}

fn edges(node: u32) -> String {
    format!("{node}\t{}\n", (node + 17) % NODES)
}

/// Two targets of very different scale. Every seventh node lacks the second one, and node 3 both.
fn targets(node: u32) -> [Option<f64>; 2] {
    let price = 3000.0 + 250.0 * feature(node, 0) - 100.0 * feature(node, 1);
    let age = 0.002 * feature(node, 2);
    [(node != 3).then_some(price), (node != 3 && !node.is_multiple_of(7)).then_some(age)]
}

/// A store with two targets, which have names.
fn with_targets(folder: &TrainFolder) {
    let lines = |node: u32| {
        let header = if node == 0 { "id,price,age\n" } else { "" };
        let cells = targets(node).map(|value| value.map_or_else(String::new, |value| value.to_string()));
        format!("{header}{node},{}\n", cells.join(","))
    };
    ingest_with(folder, "numbers.grappa", NODES, [&edges, &features, &lines], "--label-type float");
}

/// Whether a node is in a class.
fn is_in(node: u32, class: u32) -> bool {
    feature(node, class) > 0.5
}

/// A store with three classes. Of half of the entries, nothing is known.
fn with_partial_sets(folder: &TrainFolder) {
    let cell = |node: u32, class: u32| match ((node + class).is_multiple_of(2), is_in(node, class)) {
        (false, _) => "-1",
        (_, true) => "1",
        (_, false) => "0",
    };
    let lines = |node: u32| format!("{}\n", [0, 1, 2].map(|class| cell(node, class)).join(","));
    ingest_with(folder, "partial.grappa", NODES, [&edges, &features, &lines], "--label-type partial");
}

/// A column of a table with a header.
fn column(text: &str, name: &str) -> Vec<Option<f64>> {
    let mut lines = text.lines();
    let place = lines.next().unwrap().split(',').position(|title| title == name).expect(name);
    lines.map(|line| line.split(',').nth(place).unwrap().parse().ok()).collect()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn targets_are_learned_scored_and_predicted_in_their_unit() {
    let folder = TrainFolder::empty();
    with_targets(&folder);
    let options = "--layers 1 --dropout 0 --lr 0.1 --batch 64 --threads 1";
    let told = run(&mut folder.program(&format!("numbers.grappa --epochs 60 {options} --out run"))).success();
    let summary = folder.summary("run");
    assert!(told.stdout.contains("  val RMSE ") && summary["val_accuracy"].is_null(), "{}", told.stdout);
    assert!(number(&summary, "val_r2") > 0.95, "{summary}");

    // Scores follow from the predictions in the table, target by target.
    run(&mut folder.program("predict run numbers.grappa --split test --out test.csv")).success();
    let table = folder.read("test.csv");
    let ids = column(&table, "id");
    let (mut rmse, mut mae) = (0.0, 0.0);
    for (target, name) in ["prediction_price", "prediction_age"].into_iter().enumerate() {
        let errors: Vec<f64> = ids
            .iter()
            .zip(column(&table, name))
            .filter_map(|(id, predicted)| Some(predicted.unwrap() - targets(id.unwrap() as u32)[target]?))
            .collect();
        let nodes = errors.len() as f64;
        rmse += (errors.iter().map(|error| error * error).sum::<f64>() / nodes).sqrt() / 2.0;
        mae += errors.iter().map(|error| error.abs()).sum::<f64>() / nodes / 2.0;
    }
    assert_close(&rmse.into(), &summary["test_rmse"], "RMSE");
    assert_close(&mae.into(), &summary["test_mae"], "MAE");

    let named = run(&mut folder.program("predict run numbers.grappa --nodes 3,7 --json")).success().stdout;
    let named: Value = serde_json::from_str(&named).unwrap();
    let [none, some] = [0, 1].map(|index| &named["predictions"][index]);
    assert!(none["targets"].is_null() && none["predicted"][0].is_f64(), "{named}");
    assert!(some["targets"][0].is_f64() && some["targets"][1].is_null(), "{named}");
    let report = folder.read("run/report.html");
    for part in ["<span>test RMSE</span>", "<h2>Targets</h2>", "<th>price</th>"] {
        assert!(report.contains(part), "{part}");
    }
    run(&mut folder.program("predict run numbers.grappa --out all.csv --probabilities"))
        .failure(&["--probabilities is for classes"]);
}

#[test]
fn a_resumed_run_and_one_of_two_processes_are_as_if_never_stopped_and_alone() {
    let folder = TrainFolder::empty();
    with_targets(&folder);
    with_partial_sets(&folder);
    for (store, loss, monitored, others) in [
        ("numbers", "huber", "mae", ["val_rmse", "val_r2"]),
        ("partial", "focal", "average-precision", ["val_micro_f1", "val_roc_auc"]),
    ] {
        let options = "--layers 2 --partitions 4 --batch 16 --threads 1 --quiet";
        let options = format!("{store}.grappa {options} --loss {loss} --monitor {monitored}");
        let train = |rest: &str| run(&mut folder.program(&format!("{options} {rest}"))).success();
        let run_of = |name: &str| format!("{store}-{name}");
        train(&format!("--epochs 4 --out {}", run_of("whole")));
        train(&format!("--epochs 2 --out {}", run_of("parts")));
        train(&format!("--epochs 4 --out {} --resume", run_of("parts")));
        train(&format!("--epochs 4 --workers 2 --out {}", run_of("two")));
        let monitored = format!("val_{}", monitored.replace('-', "_"));
        let whole = folder.metrics(&run_of("whole"));
        for out in ["parts", "two"] {
            for (one, other) in whole.iter().zip(folder.metrics(&run_of(out))) {
                for key in ["loss", "val_loss", &monitored, others[0], others[1]] {
                    number(one, key);
                    assert_close(&one[key], &other[key], &format!("{key} of {out}"));
                }
            }
        }
        let summary = folder.summary(&run_of("whole"));
        let values = whole.iter().map(|record| number(record, &monitored));
        let best = match store {
            "numbers" => values.fold(f64::INFINITY, f64::min),
            _ => values.fold(0.0, f64::max),
        };
        let best_epoch = number(&summary, "best_epoch") as usize;
        assert_eq!(number(&whole[best_epoch - 1], &monitored), best, "{summary}");
        let events = folder.files(&run_of("parts")).into_iter();
        let events = events.filter(|(name, _)| name.to_string_lossy().contains("tfevents"));
        let tag = format!("scores/{}", others[0]).into_bytes();
        let found: usize =
            events.map(|(_, bytes)| bytes.windows(tag.len()).filter(|window| *window == tag).count()).sum();
        assert_eq!(found, 4, "{}", others[0]);
    }
}

#[test]
fn the_best_epoch_follows_the_number_that_is_monitored() {
    let folder = TrainFolder::empty();
    with_targets(&folder);
    with_partial_sets(&folder);
    let two = |node: u32| format!("{}\n", u32::from(is_in(node, 1)));
    ingest_with(&folder, "two.grappa", NODES, [&edges, &features, &two], "");
    for (store, monitors) in [
        ("numbers", "loss rmse mae r2"),
        ("partial", "loss micro-f1 auc average-precision"),
        ("two", "accuracy macro-f1 auc average-precision"),
    ] {
        for monitor in monitors.split(' ') {
            // A large rate, so that numbers do not only improve.
            let options = format!("--monitor {monitor} --epochs 5 --layers 1 --lr 1 --batch 64 --threads 1 --quiet");
            run(&mut folder.program(&format!("{store}.grappa {options} --out run --force"))).success();
            let key = match monitor {
                "auc" => "val_roc_auc".to_owned(),
                _ => format!("val_{}", monitor.replace('-', "_")),
            };
            let values: Vec<_> = folder.metrics("run").iter().map(|record| number(record, &key)).collect();
            let best = match monitor {
                "loss" | "rmse" | "mae" => values.iter().copied().fold(f64::INFINITY, f64::min),
                _ => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            };
            let epoch = number(&folder.summary("run"), "best_epoch") as usize;
            assert_eq!(values[epoch - 1], best, "{store}, {monitor}: {values:?}");
        }
    }
}

#[test]
fn a_slice_learns_numbers_and_partial_sets_and_predicts_as_its_graph_would() {
    let folder = TrainFolder::empty();
    with_targets(&folder);
    with_partial_sets(&folder);
    for store in ["numbers", "partial"] {
        folder.success(&format!("store place {store}.grappa --chunks 0-5 --halo-features --to half"));
        let options = "--layers 1 --epochs 3 --fanouts -1 --first-hop sampled --threads 1 --quiet --out run --force";
        run(&mut folder.program(&format!("half {options}"))).success();
        assert!(number(&folder.summary("run"), "val_loss").is_finite());
        let [of_slice, of_graph] = ["half", &format!("{store}.grappa")].map(|input: &str| {
            run(&mut folder.program(&format!("predict run {input} --split test --out test.csv --force"))).success();
            folder.read("test.csv").lines().map(str::to_owned).collect::<Vec<_>>()
        });
        assert!((10..of_graph.len() - 10).contains(&of_slice.len()), "{}", of_slice.len());
        for line in &of_slice {
            assert!(of_graph.contains(line), "{store}: {line}");
        }
        fs::remove_dir_all(folder.path("half")).unwrap();
    }
}

#[test]
fn options_that_the_labels_cannot_serve_are_refused() {
    let folder = TrainFolder::empty();
    with_targets(&folder);
    let classes = |node: u32| format!("{}\n", node % 3);
    ingest_with(&folder, "three.grappa", NODES, [&edges, &features, &classes], "");
    fs::write(folder.path("two.txt"), "1\n2\n").unwrap();
    fs::write(folder.path("text.txt"), "1\nheavy\n3\n").unwrap();
    for (options, parts) in grappa_skip::cases![
        "three.grappa --task regression", ["task is regression", "--label-type float"];
        "numbers.grappa --task classes", ["task is classes", "are numbers"];
        "three.grappa --loss mse", ["loss is mse", "cross-entropy or focal"];
        "numbers.grappa --loss focal", ["loss is focal", "mse, mae or huber"];
        "numbers.grappa --class-weights balanced", ["class-weights is balanced", "numbers"];
        "numbers.grappa --label-smoothing 0.1", ["label-smoothing is 0.1", "numbers"];
        "three.grappa --monitor auc", ["monitor is auc", "one of 3 classes"];
        "numbers.grappa --monitor macro-f1", ["monitor is macro-f1", "rmse, mae or r2"];
        "three.grappa --monitor r2", ["monitor is r2", "accuracy, macro-f1 or loss"];
        "three.grappa --loss focal --label-smoothing 0.1", ["loss is focal", "label-smoothing"];
        "three.grappa --class-weights two.txt", ["two.txt", "expected 3 weights"];
        "three.grappa --class-weights text.txt", ["text.txt:2", "`heavy`"];
        "three.grappa --class-weights none.txt", ["none.txt", "No such file"];
    ] {
        let ran = run(&mut folder.program(&format!("{options} --epochs 1 --layers 1 --quiet --out refused")));
        ran.failure(&parts);
        assert!(!folder.path("refused").exists(), "{options}");
    }
    run(&mut folder.program("numbers.grappa --epochs 1 --layers 1 --quiet --out run")).success();
    run(&mut folder.program("numbers.grappa --out run --resume --task classes")).failure(&["has task \"auto\""]);
    run(&mut folder.program("predict run three.grappa --nodes 1")).failure(&["one class each", "numbers"]);
}

#[test]
fn weights_of_classes_find_more_of_a_rare_class_and_are_fixed_for_a_run() {
    let folder = TrainFolder::empty();
    // Class 1 is rare, and no feature tells it for sure.
    let rare = |node: u32| u32::from(feature(node, 0) + 0.3 * feature(node, 3) > 1.1 && !node.is_multiple_of(4));
    let lines = |node: u32| format!("{}\n", rare(node));
    ingest_with(&folder, "rare.grappa", NODES, [&edges, &features, &lines], "");
    let options =
        "rare.grappa --epochs 8 --layers 1 --dropout 0 --lr 0.03 --batch 64 --threads 1 --monitor average-precision";
    let recall = |out: &str, more: &str| {
        run(&mut folder.program(&format!("{options} {more} --out {out} --quiet"))).success();
        run(&mut folder.program(&format!("predict {out} rare.grappa --out {out}.csv"))).success();
        let table = folder.read(&format!("{out}.csv"));
        let found = column(&table, "id")
            .into_iter()
            .zip(column(&table, "class"))
            .filter(|(id, class)| rare(id.unwrap() as u32) == 1 && *class == Some(1.0));
        found.count()
    };
    fs::write(folder.path("weights.txt"), "1\n20\n").unwrap();
    let plain = recall("plain", "");
    let nodes = (0..NODES).filter(|&node| rare(node) == 1).count();
    for (out, more) in [("balanced", "--class-weights balanced"), ("file", "--class-weights weights.txt")] {
        let found = recall(out, more);
        assert!(found > plain && found > nodes / 2, "{out}: {found} of {nodes}, and {plain} without weights");
    }
    assert!(folder.read("plain/report.html").contains("Precision by recall"));
    assert!(number(&folder.metrics("plain")[0], "val_average_precision") > 0.0);
    // What is monitored has a value of the test nodes in both files, and leads the report.
    let summary = folder.summary("plain");
    let best = &folder.metrics("plain")[summary["best_epoch"].as_u64().unwrap() as usize - 1];
    for key in ["val_average_precision", "test_average_precision", "test_roc_auc", "test_macro_f1"] {
        assert_eq!(number(&summary, key), number(best, key), "{key}");
    }
    let report = folder.read("plain/report.html");
    assert!(report.contains("<div class=\"tiles\">\n<div><span>test average precision</span>"), "{report}");
    assert!(report.contains("<h3>Average precision</h3>"), "{report}");
    let told = run(&mut folder.program(&format!("{options} --out told"))).success().stdout;
    assert!(told.contains("  val average precision ") && told.contains("  test average precision "), "{told}");
    assert!(told.contains("told: test average precision "), "{told}");

    let resume =
        |more: &str| run(&mut folder.program(&format!("rare.grappa --out file --resume --epochs 9 --quiet {more}")));
    fs::write(folder.path("weights.txt"), "1\n30\n").unwrap();
    resume("").failure(&["weights.txt has other weights than at the start of the run"]);
    fs::write(folder.path("weights.txt"), "1\n20\n").unwrap();
    resume("").success();
}

#[test]
fn an_area_that_validation_nodes_of_one_class_do_not_have_is_refused_at_the_start() {
    let folder = TrainFolder::empty();
    let lines = |_: u32| "0\n".to_owned();
    let last = |node: u32| if node == NODES - 1 { "1\n".to_owned() } else { lines(node) };
    ingest_with(&folder, "same.grappa", NODES, [&edges, &features, &last], "");
    for monitor in ["auc", "average-precision"] {
        let train = format!("same.grappa --epochs 1 --layers 1 --out run --monitor {monitor}");
        run(&mut folder.program(&train)).failure(&["validation nodes are of class 0", "--monitor loss"]);
        assert!(!folder.path("run").exists());
    }
}

#[test]
fn a_class_without_training_nodes_has_no_balanced_weight() {
    let folder = TrainFolder::empty();
    let lines = |node: u32| format!("{}\n", [0, 2][node as usize % 2]);
    ingest_with(&folder, "gap.grappa", NODES, [&edges, &features, &lines], "");
    let train = "gap.grappa --epochs 1 --layers 1 --out run --class-weights balanced";
    run(&mut folder.program(train)).failure(&["class 1 has no training nodes", "--class-weights a file"]);
}

#[test]
fn classes_that_are_unknown_of_a_node_do_not_count() {
    let folder = TrainFolder::empty();
    with_partial_sets(&folder);
    let options = "partial.grappa --layers 1 --dropout 0 --lr 0.2 --batch 64 --threads 1 --quiet";
    for (out, more) in [("plain", ""), ("focal", "--loss focal --class-weights balanced")] {
        run(&mut folder.program(&format!("{options} --epochs 40 {more} --out {out}"))).success();
        run(&mut folder.program(&format!("predict {out} partial.grappa --out {out}.npy"))).success();
        let file = fs::read(folder.path(&format!("{out}.npy"))).unwrap();
        let predicted = file[file.len() - 3 * NODES as usize..].chunks(3).zip(0..);
        let right = predicted
            .flat_map(|(row, node)| [0, 1, 2].map(|class| (row[class as usize] == 1) == is_in(node, class)))
            .filter(|is_right| *is_right);
        // What is unknown counts as neither in nor out.
        let right = right.count();
        assert!(right * 100 > 93 * 3 * NODES as usize, "{out}: {right}");
        let summary = folder.summary(out);
        assert!(number(&summary, "val_micro_f1") > 0.9, "{summary}");
    }
    let plain = "labels.csv --split 60/20/20 --out sets.grappa --edges edges.tsv";
    let mut ingest = folder.command("ingest --labels");
    run(ingest.words(plain)).failure(&["column 1 is missing but other columns are not", "--label-type partial"]);
}
