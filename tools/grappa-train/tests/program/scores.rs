//! What the console, the report and predictions call the score that chooses the model.

use std::fs;

use grappa_tests::program::{self, CommandWords, run};

use crate::fixture::TrainFolder;

/// Ingests a store with edges between nodes, features and labels, which are lines of text.
pub fn ingest(folder: &TrainFolder, store: &str, nodes: u32, lines: [&dyn Fn(u32) -> String; 3]) {
    ingest_with(folder, store, nodes, lines, "");
}

/// As [`ingest`], with more options.
pub fn ingest_with(folder: &TrainFolder, store: &str, nodes: u32, lines: [&dyn Fn(u32) -> String; 3], options: &str) {
    let mut ingest = program::ingest(&folder.path("edges.tsv"), &folder.path(store));
    let names = ["edges.tsv", "features.csv", "labels.csv"];
    for (name, line) in names.into_iter().zip(lines) {
        fs::write(folder.path(name), (0..nodes).map(line).collect::<String>()).unwrap();
    }
    ingest.current_dir(folder.root());
    let inputs = "--features features.csv --labels labels.csv --split 60/20/20";
    run(ingest.words(&format!("{inputs} {options}"))).success();
}

#[test]
fn sets_of_labels_are_scored_by_micro_f1_everywhere() {
    let folder = TrainFolder::empty();
    let edges = |node| format!("{node}\t{}\n", (node + 12) % 200);
    let sets = |node| format!("{},{},{}\n", node % 2, node / 2 % 2, u32::from(node % 3 == 0));
    ingest(&folder, "sets.grappa", 200, [&edges, &sets, &sets]);
    let train = "sets.grappa --epochs 3 --layers 1 --lr 0.1 --out run";
    let trained = run(&mut folder.program(train)).success();
    let lines: Vec<&str> = trained.stdout.lines().collect();
    let epochs: Vec<_> = lines.iter().filter(|line| line.starts_with("epoch ")).collect();
    let records = folder.metrics("run");
    assert_eq!(epochs.len(), 3, "{lines:?}");
    for (line, record) in epochs.iter().zip(&records) {
        let score = 100.0 * record["val_micro_f1"].as_f64().unwrap();
        assert!(line.contains(&format!("  val micro F1 {score:.2} %  ")), "{line}");
    }
    let summary = folder.summary("run");
    let [val, test] = ["val_micro_f1", "test_micro_f1"].map(|key| {
        let best = &records[summary["best_epoch"].as_u64().unwrap() as usize - 1];
        assert_eq!(summary[key], best[key], "{key}: {summary}");
        format!("{:.2} %", 100.0 * summary[key].as_f64().unwrap())
    });
    let last = lines.last().unwrap();
    let expected = format!("run: test micro F1 {test} at the best validation micro F1 {val} (epoch ");
    assert!(last.starts_with(&expected), "{last}");

    let predicted = run(&mut folder.program("predict run sets.grappa --nodes 1,2")).success().stdout;
    let score = format!(" (validation micro F1 {val})");
    assert!(predicted.contains(&score), "{predicted}");
    let report = folder.read("run/report.html");
    for tile in ["val micro F1", "test micro F1", "test subset accuracy"] {
        assert!(report.contains(&format!("<span>{tile}</span>")), "{tile}");
    }
    for absent in ["<span>val accuracy</span>", "<span>micro F1</span>", ">Accuracy<"] {
        assert!(!report.contains(absent), "{absent}");
    }
    assert!(report.contains("Micro F1"));
}

/// Trains on a store of a block model, and returns the lines of the console.
fn console(folder: &TrainFolder, store: &str, options: &str) -> Vec<String> {
    let options = format!("{store} --epochs 2 --layers 1 --threads 1 {options}");
    let stdout = run(&mut folder.program(&options)).success().stdout;
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn without_validation_nodes_the_last_model_is_kept_and_that_is_said() {
    let folder = TrainFolder::empty();
    let graph = "sbm --nodes 500 --feature-dim 8 --val-fraction 0";
    folder.generate("test.grappa", graph);
    folder.generate("none.grappa", &format!("{graph} --test-fraction 0"));
    for (how, evaluations) in
        [("exact", "evaluations are exact: "), ("sampled", "evaluations sample the neighbors of ")]
    {
        let lines = console(&folder, "test.grappa", &format!("--evaluate {how} --out {how}"));
        let kept = "; there are no validation nodes, so the model of the last epoch is kept";
        let plan = lines.iter().find(|line| line.starts_with(evaluations)).unwrap();
        assert!(plan.ends_with(kept) && !plan.contains("0 validation"), "{plan}");
        let last = lines.last().unwrap();
        let expected = "; there are no validation nodes, so the model is from the last epoch (2), in ";
        let is_told = last.starts_with(&format!("{how}: test accuracy ")) && last.contains(expected);
        assert!(is_told && !last.contains(" - "), "{last}");
    }
    let lines = console(&folder, "none.grappa", "--out none");
    let kept = "there are no validation and test nodes; the model of the last epoch is kept";
    assert!(lines.iter().any(|line| line.ends_with(kept)), "{lines:?}");
    let expected = "none: there are no validation and test nodes, so the model is from the last epoch (2), in ";
    assert!(lines.last().unwrap().starts_with(expected), "{lines:?}");
}

#[test]
fn without_test_nodes_the_best_validation_score_is_told() {
    let folder = TrainFolder::with("sbm --nodes 500 --feature-dim 8 --test-fraction 0");
    let lines = console(&folder, "graph.grappa", "--out run");
    let last = lines.last().unwrap();
    let is_told = last.starts_with("run: best validation ") && last.contains(" %, no test score (epoch ");
    assert!(is_told, "{last}");
}
