//! The program as a user runs it: exit codes, what it says, and what is on disk whatever happens to it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

fn program(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grappa-gen"));
    command.args(line.split(' ')).current_dir(folder);
    command
}

fn run(folder: &Path, line: &str) -> Output {
    program(folder, line).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("text");
    let mut names: Vec<_> = fs::read_dir(folder).expect("a folder").map(name).collect();
    names.sort();
    names
}

/// Every file below a folder, by its path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            found.extend(
                files(&path)
                    .into_iter()
                    .map(|(below, bytes)| (format!("{name}/{below}"), bytes)),
            );
        } else {
            found.insert(name, fs::read(path).expect("a file"));
        }
    }
    found
}

#[test]
fn one_json_object_says_what_was_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), "rmat --scale 10 --chunks 4 --out g --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&told["nodes"], &told["chunks"]), (&1024.into(), &4.into()));
    assert_eq!(told["edges"], told["edges_read"]);
    assert_eq!(told["rejected"], 0);
    assert!(told["seconds"].as_f64() > Some(0.0) && told["edges_per_second"].as_f64() > Some(0.0));
    assert!(told["peak_rss_bytes"].as_u64() > Some(0));
    let bytes: usize = files(&folder.path().join("g")).values().map(Vec::len).sum();
    assert_eq!(told["bytes_on_disk"], bytes);
    assert_eq!(stderr(&output), "");
}

#[test]
fn wrong_usage_is_code_2_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in [
        "rmat --out g",
        "rmat --scale 9 --nodes 512 --out g",
        "rmat --nodes 500 --out g",
        "er --nodes 100 --chunks 101 --out g",
        "sbm --nodes 100 --homophily 2 --out g",
        "er --nodes 100 --as tsv --dedup --out g",
    ] {
        let output = run(folder.path(), line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("error: "), "{line}: {}", stderr(&output));
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn computed_features_have_no_other_type_than_f32() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "sbm --nodes 100 --feature-dim 4 --features procedural --out g --feature-dtype";
    for dtype in ["f16", "bf16", "int8"] {
        let output = run(folder.path(), &format!("{line} {dtype}"));
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains("--feature-dtype") && error.contains("--features stored"),
            "{error}"
        );
    }
    assert!(names(folder.path()).is_empty());
    let output = run(folder.path(), &format!("{line} f32"));
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn existing_outputs_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("g"), "precious").expect("written");
    fs::write(folder.path().join("h.labels.npy"), "precious").expect("written");
    for line in [
        "er --nodes 100 --out g",
        "er --nodes 100 --as npy --out g",
        "sbm --nodes 100 --as tsv --out h.tsv",
    ] {
        let output = run(folder.path(), line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(stderr(&output).contains("exists"), "{line}: {}", stderr(&output));
    }
    assert_eq!(names(folder.path()), ["g", "h.labels.npy"]);
    assert!(files(folder.path()).values().all(|bytes| bytes == b"precious"));
    let output = run(folder.path(), "er --nodes 100 --out missing/g");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("missing/g"), "{}", stderr(&output));
}

#[test]
fn a_graph_that_cannot_fit_the_disk_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    for line in [
        "er --scale 39 --edge-factor 0.0001 --feature-dim 4096 --out g",
        "er --scale 39 --edge-factor 10000 --as npy --out g.npy",
    ] {
        let output = run(folder.path(), line);
        assert_eq!(output.status.code(), Some(1), "{line}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("takes at least"),
            "{line}: {}",
            stderr(&output)
        );
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn too_little_memory_is_refused_with_the_least_that_is_enough() {
    let folder = tempfile::tempdir().expect("a folder");
    for model in [
        "er --nodes 1000 --out g --threads 2",
        "sbm --nodes 1000 --feature-dim 8 --out h",
    ] {
        let output = run(folder.path(), &format!("{model} --memory 1"));
        assert_eq!(output.status.code(), Some(1), "{model}: {}", stderr(&output));
        let error = stderr(&output);
        let (_, least) = error.split_once("at least ").expect(&error);
        let least: String = least.split(" is needed").next().expect("a size").replace(' ', "");
        let output = run(folder.path(), &format!("{model} --memory {least}"));
        assert!(output.status.success(), "{model}: {}", stderr(&output));
    }
}

#[test]
fn class_means_that_exceed_the_memory_are_refused_for_files_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "sbm --nodes 65536 --classes 32768 --feature-dim 2048 --as npy --out g.npy --memory 64MiB";
    let output = run(folder.path(), line);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let error = stderr(&output);
    assert!(
        error.contains("the features' mean of each class") && error.contains("--classes"),
        "{error}"
    );
    assert!(names(folder.path()).is_empty());
}

#[test]
fn an_edge_list_has_its_node_files_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(
        folder.path(),
        "sbm --nodes 100 --feature-dim 3 --as tsv --out g.tsv --json",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = [
        "g.features.npy",
        "g.labels.npy",
        "g.test.npy",
        "g.train.npy",
        "g.tsv",
        "g.val.npy",
    ];
    assert_eq!(names(folder.path()), expected);
    let files = files(folder.path());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        told["edges"],
        files["g.tsv"].iter().filter(|&&byte| byte == b'\n').count()
    );
    assert_eq!(told["bytes_on_disk"], files.values().map(Vec::len).sum::<usize>());
    assert_eq!(told["chunks"], 0);
}

#[test]
fn a_split_without_nodes_has_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(
        folder.path(),
        "sbm --nodes 100 --train-fraction 0.5 --val-fraction 0 --as npy --out g.npy",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = ["g.labels.npy", "g.npy", "g.test.npy", "g.train.npy"];
    assert_eq!(names(folder.path()), expected);
}

#[test]
fn a_killed_run_is_resumed_to_the_same_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = "sbm --nodes 60000 --chunks 32 --feature-dim 8 --quiet --threads 2 --out";
    let begin = Instant::now();
    assert!(run(folder.path(), &format!("{line} whole")).status.success());
    let whole = (begin.elapsed(), files(&folder.path().join("whole")));
    for percent in [2, 15, 30, 45, 60, 75, 90] {
        let mut child = program(folder.path(), &format!("{line} killed"))
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        thread::sleep(whole.0 * percent / 100 + Duration::from_millis(1));
        child.kill().expect("a child can be killed");
        child.wait().expect("a child");
        // It may have been done already.
        if names(folder.path()) != ["killed", "whole"] {
            let output = run(folder.path(), &format!("{line} killed --resume"));
            assert!(output.status.success(), "{}", stderr(&output));
        }
        assert!(files(&folder.path().join("killed")) == whole.1, "killed at {percent} %");
        assert_eq!(names(folder.path()), ["killed", "whole"]);
        fs::remove_dir_all(folder.path().join("killed")).expect("removed");
    }
}
