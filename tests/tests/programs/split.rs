//! Random splits: `grappa-ingest --split`, what `info` and `plan` say about it, and options that contradict it.

use std::fs;

use grappa_tests::{folder::ProgramFolder, program::Ran};
use serde_json::{Value, json};

/// A folder with 200 nodes of two large classes, and a class with one node.
fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    write_lines(&folder, "edges.tsv", 200, |node| format!("{node} {}", (node + 1) % 200));
    write_lines(&folder, "labels.txt", 200, |node| (if node == 17 { 2 } else { node % 2 }).to_string());
    write_lines(&folder, "sets.txt", 200, |node| format!("{} {} 0", node % 2, node % 3 / 2));
    folder.write("ids.txt", "1\n2\n");
    folder
}

fn write_lines(folder: &ProgramFolder, name: &str, nodes: u32, line: impl Fn(u32) -> String) {
    folder.write(name, (0..nodes).map(|node| line(node) + "\n").collect::<String>());
}

fn ingest(folder: &ProgramFolder, options: &str) -> Ran {
    folder.run(&format!("ingest --edges edges.tsv --out out.grappa {options}"))
}

/// Makes the store anew.
#[track_caller]
fn made(folder: &ProgramFolder, options: &str) -> Ran {
    ingest(folder, &format!("{options} --force")).success()
}

fn info(folder: &ProgramFolder) -> Value {
    folder.success("store info --json out.grappa").json()
}

#[test]
fn info_shows_the_split_and_how_it_was_drawn() {
    let folder = folder();
    made(&folder, "--split 60/20/20");
    let first = info(&folder);
    assert_eq!(first["splits"], json!({"train": 120, "val": 40, "test": 40}));
    assert_eq!(first["random_split"], "60/20/20, seed 0");
    made(&folder, "--labels labels.txt --split 50/25/25 --split-seed 9 --stratify");
    assert_eq!(info(&folder)["random_split"], "50/25/25, seed 9, stratified");
    let text = folder.success("store info out.grappa").stdout;
    assert!(text.contains("(random, 50/25/25, seed 9, stratified)"), "{text}");
    made(&folder, "--train ids.txt");
    assert!(info(&folder)["random_split"].is_null());
}

#[test]
fn a_class_without_training_nodes_is_a_warning() {
    let folder = folder();
    for (options, parts) in grappa_skip::cases![
        "--labels labels.txt --split 40/30/30 --stratify", &["class 2", "give train a larger share"][..];
        "--labels labels.txt --train ids.txt", &["class 2", "--train"];
        "--labels labels.txt --split 60/20/20 --stratify", &[];
        // In sets of classes, the third class has no node at all. That is not the split's doing.
        "--labels sets.txt --split 60/20/20", &[];
    ] {
        let stderr = made(&folder, options).stderr;
        let warning = stderr.lines().find(|line| line.contains("no training node"));
        assert_eq!(warning.is_some(), !parts.is_empty(), "{stderr}");
        let is_whole = |warning: &str| parts.iter().all(|part| warning.contains(part));
        assert!(warning.is_none_or(is_whole), "{stderr}");
    }
}

/// With 1 MiB, the check takes 2^17 classes at a time.
#[test]
fn classes_without_training_nodes_are_found_however_many_there_are() {
    let folder = folder();
    let nodes = 80_000;
    write_lines(&folder, "edges.tsv", nodes, |node| format!("{node} {}", (node + 1) % nodes));
    write_lines(&folder, "labels.txt", nodes, |node| match node {
        10 => "7".to_owned(),
        11 => "140000".to_owned(),
        _ => (node % 2).to_string(),
    });
    let stderr = made(&folder, "--labels labels.txt --train ids.txt --memory 1MiB --threads 1").stderr;
    let warning = "no training node has classes 7, 140000: 2 of";
    assert!(stderr.contains(warning), "{stderr}");
}

#[test]
fn contradictions_name_both_options_and_the_remedy() {
    let folder = folder();
    for (options, parts) in grappa_skip::cases![
        "--split 60/20/20 --train ids.txt", &["--split", "--train"][..];
        "--split 60/20/20 --val ids.txt", &["--split", "--val"];
        "--split 60/20/20 --test ids.txt", &["--split", "--test"];
        "--split 60/20/30", &["--split", "add up to 110 percent", "give 60/20/20"];
        "--split 0.6/0.2/0.2", &["add up to 1 percent", "give 60/20/20"];
        "--split 60", &["TRAIN/VAL/TEST in percent, such as 60/20/20"];
        "--stratify", &["--split"];
        "--split-seed 3", &["--split"];
    ] {
        ingest(&folder, options).misuse(parts);
    }
    for (options, parts) in grappa_skip::cases![
        "--split 60/20/20 --stratify", &["--stratify needs labels", "--labels"][..];
        "--split 60/20/20 --stratify --labels sets.txt", &["one class per node", "sets.txt", "omit --stratify"];
        "--split 0.1/49.9/50", &["200 nodes into 0.1/49.9/50 leaves none for train", "a larger share"];
    ] {
        ingest(&folder, options).failure(parts);
    }
    assert_eq!(folder.names(), ["edges.tsv", "ids.txt", "labels.txt", "sets.txt"]);
}

#[test]
fn nodes_of_a_split_without_a_label_are_a_warning() {
    let folder = folder();
    write_lines(&folder, "some.txt", 200, |node| (if node % 50 == 7 { "-1" } else { "1" }).to_owned());
    for (name, ids) in [("train.txt", 0..100), ("val.txt", 100..107), ("test.txt", 150..200)] {
        folder.write(name, ids.map(|id| format!("{id}\n")).collect::<String>());
    }
    let splits = "--train train.txt --val val.txt --test test.txt";
    let stderr = made(&folder, &format!("--nodes 200 --labels some.txt {splits}")).stderr;
    for part in [
        "train.txt: 2 of 100 nodes have no label, for example ",
        "training stops when it meets one; leave them out",
        "test.txt: 1 of 50 nodes have no label, for example 157: scores are",
    ] {
        assert!(stderr.contains(part), "{stderr}");
    }
    assert!(!stderr.contains("val.txt"), "{stderr}");
}

#[test]
fn the_split_of_a_dataset_is_used_or_replaced_or_missed() {
    let folder = ProgramFolder::new();
    folder.write("ogb/raw/edge.csv", "0,1\n1,2\n2,0\n");
    folder.write("ogb/raw/num-node-list.csv", "3\n");
    fs::create_dir_all(folder.path("ogb/split/random")).unwrap();
    let ingest = |more: &str| folder.run(&format!("ingest --ogb ogb --out ogb.grappa --force {more}"));
    let replaced = "--split 40/30/30 replaces the split";
    let missed = ingest("").success().stderr;
    assert!(missed.contains("the store has no splits; give --split"), "{missed}");
    folder.write("ogb/split/random/split_dict.pt", "");
    ingest("").failure(&["split/random/split_dict.pt", "torch.load(sys.argv[1]", "--split"]);
    assert!(ingest("--split 40/30/30").success().stderr.contains(replaced));
    for (name, node) in [("train", "1\n"), ("valid", "2\n"), ("test", "0\n")] {
        folder.write(&format!("ogb/split/random/{name}.csv"), node);
    }
    assert_eq!(ingest("").success().stderr, "");
    let stderr = ingest("--split 40/30/30").success().stderr;
    assert!(stderr.contains(replaced), "{stderr}");
}

#[test]
fn nodes_beyond_the_shares_are_in_no_split() {
    let folder = folder();
    // Stratified, of 99 or 100 nodes of a class, and one node of another.
    for more in ["", "--stratify --labels labels.txt"] {
        made(&folder, &format!("--nodes 200 --split 10/1/2 {more}"));
        assert_eq!(info(&folder)["splits"], json!({"train": 20, "val": 2, "test": 4}));
    }
}

/// The plan of a split must be within 5 % of its files.
#[test]
fn a_plan_counts_the_split() {
    let folder = folder();
    for (nodes, shares) in [("100000", "60/20/20"), ("300000", "1/1/98")] {
        made(&folder, &format!("--nodes {nodes} --split {shares}"));
        let made = info(&folder)["bytes"]["splits"].as_f64().unwrap();
        let plan = folder.success(&format!("store plan --json --nodes {nodes} --edges 200 --split {shares}"));
        let planned = plan.json()["bytes"]["splits"].as_f64().unwrap();
        assert!((planned - made).abs() <= made / 20.0, "{planned} planned, {made} made");
    }
    let refused = folder.run("store plan --nodes 1G --edges 200 --memory 300MiB --split 60/20/20");
    refused.failure(&["a split of 1000000000 nodes", "at least 358 MiB"]);
}
