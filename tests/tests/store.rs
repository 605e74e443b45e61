//! `grappa-store` from outside: what it tells of a sound store, and what it writes. (Damaged ones are in `damage`.)

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::{
    files::{assert_same, files_of},
    program::{command, run},
};
use serde_json::json;
use tempfile::TempDir;

/// A small store with features, labels and splits, and what it was made from.
struct Sample {
    folder: TempDir,
}

const NODES: u64 = 300;

impl Sample {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sample = Self { folder };
        let edges: String = (0..3000u64)
            .map(|i| format!("{}\t{}\n", i * i % 299, i * 17 % 300))
            .collect();
        fs::write(sample.at("edges.tsv"), edges).unwrap();
        let features: String = (0..NODES).map(|i| format!("{},{},{}\n", i, i * 2, i % 7)).collect();
        fs::write(sample.at("features.csv"), features).unwrap();
        let labels: String = (0..NODES).map(|i| format!("{}\n", i % 5)).collect();
        fs::write(sample.at("labels.csv"), labels).unwrap();
        for (name, start) in [("train", 0), ("val", 100)] {
            let ids: String = (start..start + 50).map(|i| format!("{i}\n")).collect();
            fs::write(sample.at(name), ids).unwrap();
        }
        sample.ingest(
            "sample.grappa",
            ["edges.tsv", "features.csv", "labels.csv", "train", "val"],
        );
        sample
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.at("sample.grappa")
    }

    fn ingest(&self, out: &str, [edges, features, labels, train, val]: [&str; 5]) {
        run(command("grappa-ingest")
            .current_dir(self.folder.path())
            .args([
                "--out",
                out,
                "--edges",
                edges,
                "--features",
                features,
                "--labels",
                labels,
            ])
            .args([
                "--train", train, "--val", val, "--nodes", "300", "--chunks", "5", "--quiet",
            ]))
        .success();
    }
}

/// `grappa-store COMMAND STORE`.
fn of_store(name: &str, store: &Path) -> Command {
    let mut command = command("grappa-store");
    command.arg(name).arg(store);
    command
}

#[test]
fn a_sound_store_is_said_to_be() {
    let sample = Sample::new();
    let report = run(of_store("verify", &sample.store()).arg("--json")).success().json();
    assert_eq!((&report["ok"], &report["problems"]), (&json!(true), &json!([])));
    assert_eq!(report["files"], files_of(&sample.store()).len());
    let text = run(&mut of_store("verify", &sample.store())).success().stdout;
    assert!(text.contains("sample.grappa: sound; "), "{text}");
}

#[test]
fn info_tells_people_and_programs_the_same() {
    let sample = Sample::new();
    let object = run(of_store("info", &sample.store()).arg("--json")).success().json();
    assert_eq!(
        (&object["nodes"], &object["edges"], &object["chunks"]),
        (&json!(300), &json!(3000), &json!(5))
    );
    assert_eq!(object["features"]["dim"], 3);
    assert_eq!(object["features"]["dtype"], "f32");
    assert_eq!(object["features"]["bytes"], object["bytes"]["features"]);
    assert_eq!(object["splits"], json!({"train": 50, "val": 50, "test": null}));
    assert_eq!((&object["classes"], &object["generation"]), (&json!(5), &json!(0)));
    let buckets = object["degree_histogram"].as_array().unwrap();
    assert_eq!(
        buckets
            .iter()
            .map(|bucket| bucket["nodes"].as_u64().unwrap())
            .sum::<u64>(),
        NODES
    );
    let lengths: usize = files_of(&sample.store()).values().map(Vec::len).sum();
    assert_eq!(object["bytes"]["total"], lengths);

    let text = run(&mut of_store("info", &sample.store())).success().stdout;
    for line in [
        "  nodes          300\n",
        "  edges          3000\n",
        "  features       3 x f32\n",
        "  splits         train 50, val 50\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn what_is_exported_and_ingested_again_is_the_same_store() {
    let sample = Sample::new();
    let expected = files_of(&sample.store());
    for edges in ["again.tsv", "again.csv", "again.npy"] {
        let of = |name: &str| format!("{edges}.{name}");
        let [x, y, train, val] = ["x.npy", "y.npy", "train.npy", "val.npy"].map(of);
        run(of_store("export", &sample.store())
            .current_dir(sample.folder.path())
            .args(["--edges", edges, "--features", &x, "--labels", &y])
            .args(["--split", "train", &train, "--split", "val", &val]))
        .success();
        sample.ingest(&of("grappa"), [edges, &x, &y, &train, &val]);
        assert_same(&sample.at(&of("grappa")), &expected, edges);
    }
}

#[test]
fn edges_go_to_stdout_and_an_export_needs_something_to_export() {
    let sample = Sample::new();
    let export = || of_store("export", &sample.store());
    let text = run(export().args(["--edges", "-"])).success().stdout;
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort();
    let input = fs::read_to_string(sample.at("edges.tsv")).unwrap();
    let mut expected: Vec<_> = input.lines().collect();
    expected.sort();
    assert_eq!(lines, expected);

    run(&mut export()).misuse(&["--edges"]);
    run(export().arg("--edges").arg(sample.at("edges.tsv"))).failure(&["edges.tsv exists"]);
    run(export().args(["--weights", "w.npy"])).failure(&["no weights"]);
    run(export().args(["--edges", "-", "--labels", "y.npy"])).failure(&["stdout"]);
}
