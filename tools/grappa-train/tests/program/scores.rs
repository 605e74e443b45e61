//! What the console, the report and predictions call the score that chooses the model.

use std::{fs, path::Path, process::Command};

use grappa_tests::program::{self, Ran, run};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::workers::metrics;

fn grappa_train(folder: &Path, options: &[&str]) -> Ran {
    let mut program = Command::new(env!("CARGO_BIN_EXE_grappa-train"));
    run(program.current_dir(folder).args(options)).success()
}

/// A folder with a store `sets.grappa` whose nodes have sets of labels.
fn sets() -> TempDir {
    let folder = tempdir().unwrap();
    let write = |name: &str, line: &dyn Fn(u32) -> String| {
        let lines: String = (0..200).map(line).collect();
        fs::write(folder.path().join(name), lines).unwrap();
    };
    write("edges.tsv", &|node| format!("{node}\t{}\n", (node + 12) % 200));
    for name in ["features.csv", "labels.csv"] {
        write(name, &|node| {
            format!("{},{},{}\n", node % 2, node / 2 % 2, u32::from(node % 3 == 0))
        });
    }
    let at = |name: &str| folder.path().join(name);
    let mut ingest = program::ingest(&at("edges.tsv"), &at("sets.grappa"));
    ingest.arg("--features").arg(at("features.csv"));
    ingest.arg("--labels").arg(at("labels.csv"));
    run(ingest.args(["--split", "60/20/20"])).success();
    folder
}

#[test]
fn sets_of_labels_are_scored_by_micro_f1_everywhere() {
    let folder = sets();
    let trained = grappa_train(
        folder.path(),
        &[
            "sets.grappa",
            "--epochs",
            "3",
            "--layers",
            "1",
            "--lr",
            "0.1",
            "--out",
            "run",
        ],
    );
    let lines: Vec<&str> = trained.stdout.lines().collect();
    let epochs: Vec<_> = lines.iter().filter(|line| line.starts_with("epoch ")).collect();
    let records = metrics(&folder.path().join("run"));
    assert_eq!(epochs.len(), 3, "{lines:?}");
    for (line, record) in epochs.iter().zip(&records) {
        let score = 100.0 * record["val_micro_f1"].as_f64().unwrap();
        assert!(line.contains(&format!("  val micro F1 {score:.2} %  ")), "{line}");
    }
    let file = fs::read(folder.path().join("run/summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&file).unwrap();
    let [val, test] = ["val_micro_f1", "test_micro_f1"].map(|key| {
        let best = &records[summary["best_epoch"].as_u64().unwrap() as usize - 1];
        assert_eq!(summary[key], best[key], "{key}: {summary}");
        format!("{:.2} %", 100.0 * summary[key].as_f64().unwrap())
    });
    let last = lines.last().unwrap();
    let expected = format!("run: test micro F1 {test} at the best validation micro F1 {val} (epoch ");
    assert!(last.starts_with(&expected), "{last}");

    let predict = ["predict", "run", "sets.grappa", "--nodes", "1,2"];
    let predicted = grappa_train(folder.path(), &predict).stdout;
    assert!(
        predicted.contains(&format!(" (validation micro F1 {val})")),
        "{predicted}"
    );
    let report = fs::read_to_string(folder.path().join("run/report.html")).unwrap();
    for tile in ["val micro F1", "test micro F1", "test subset accuracy"] {
        assert!(report.contains(&format!("<span>{tile}</span>")), "{tile}");
    }
    for absent in ["<span>val accuracy</span>", "<span>micro F1</span>", ">Accuracy<"] {
        assert!(!report.contains(absent), "{absent}");
    }
    assert!(report.contains("Micro F1"));
}

#[test]
fn without_validation_nodes_the_last_model_is_kept_and_that_is_said() {
    let folder = tempdir().unwrap();
    let generate = |store: &str, options: &[&str]| {
        let mut generate = program::command("grappa-gen");
        generate.args(["sbm", "--nodes", "500", "--feature-dim", "8", "--val-fraction", "0"]);
        generate.args(options).args(["--quiet", "--out"]);
        run(generate.arg(folder.path().join(store))).success();
    };
    let trained = |store: &str, out: &str, more: &[&str]| {
        let options = [store, "--epochs", "2", "--layers", "1", "--threads", "1", "--out", out];
        grappa_train(folder.path(), &[&options[..], more].concat()).stdout
    };
    generate("test.grappa", &[]);
    generate("none.grappa", &["--test-fraction", "0"]);
    for (out, more, evaluations) in [
        ("exact", &["--evaluate", "exact"][..], "evaluations are exact: "),
        (
            "sampled",
            &["--evaluate", "sampled"],
            "evaluations sample the neighbors of ",
        ),
    ] {
        let stdout = trained("test.grappa", out, more);
        let kept = "; there are no validation nodes, so the model of the last epoch is kept";
        let plan = stdout
            .lines()
            .find(|line| line.starts_with(evaluations))
            .expect(&stdout);
        assert!(plan.ends_with(kept) && !plan.contains("0 validation"), "{plan}");
        let last = stdout.lines().last().unwrap();
        let expected = "; there are no validation nodes, so the model is that of the last epoch (2), in ";
        assert!(
            last.starts_with(&format!("{out}: test accuracy ")) && last.contains(expected) && !last.contains(" - "),
            "{last}"
        );
    }
    let stdout = trained("none.grappa", "none", &[]);
    assert!(
        stdout.contains("there are no validation and test nodes; the model of the last epoch is kept\n"),
        "{stdout}"
    );
    let last = stdout.lines().last().unwrap();
    let expected = "none: there are no validation and test nodes, so the model is that of the last epoch (2), in ";
    assert!(last.starts_with(expected), "{last}");
}

#[test]
fn without_test_nodes_the_best_validation_score_is_told() {
    let folder = tempdir().unwrap();
    let mut generate = program::command("grappa-gen");
    generate.args([
        "sbm",
        "--nodes",
        "500",
        "--feature-dim",
        "8",
        "--test-fraction",
        "0",
        "--quiet",
        "--out",
    ]);
    run(generate.arg(folder.path().join("val.grappa"))).success();
    let options = [
        "val.grappa",
        "--epochs",
        "2",
        "--layers",
        "1",
        "--threads",
        "1",
        "--out",
        "run",
    ];
    let stdout = grappa_train(folder.path(), &options).stdout;
    let last = stdout.lines().last().unwrap();
    assert!(
        last.starts_with("run: best validation ") && last.contains(" %, no test score (epoch "),
        "{last}"
    );
}
