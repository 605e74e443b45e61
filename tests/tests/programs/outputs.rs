//! What programs write: tables that ingest reads back, stdout for `-`, and `--force`.

use std::{fs, path::Path};

use grappa_tests::{
    files::{assert_same, files_of},
    program::{Ran, command, run},
};
use tempfile::TempDir;

/// Runs `grappa-PROGRAM ARGS` in a folder. Arguments contain no spaces.
fn grappa(folder: &TempDir, line: &str) -> Ran {
    let mut words = line.split_whitespace();
    let program = format!("grappa-{}", words.next().expect("a program"));
    run(command(&program).current_dir(folder.path()).args(words))
}

/// Edges, features, labels and a split, with ids that are strings or integers with gaps.
fn write_input(folder: &Path, ids: &str) {
    let id = |node: u64| match ids {
        "string" => format!("n{node} ü,\"{node}\""),
        _ => (node * 1000 + (1 << 40)).to_string(),
    };
    let quoted = |node| format!("\"{}\"", id(node).replace('"', "\"\""));
    let pairs = (0..200u64).map(|i| (i * i % 30, i * 7 % 30));
    let edges: String = pairs
        .map(|(s, t)| format!("{},{},{}\n", quoted(s), quoted(t), s + 1))
        .collect();
    let nodes: String = (0..30)
        .map(|node| format!("{},{},-0.5,{}\n", quoted(node), node * 2, node % 3))
        .collect();
    let train: String = (0..10).map(|node| format!("{}\n", id(node))).collect();
    fs::write(folder.join("edges.csv"), format!("source,target,weight\n{edges}")).unwrap();
    fs::write(folder.join("nodes.csv"), format!("id,f0,f1,label\n{nodes}")).unwrap();
    fs::write(folder.join("train.txt"), train).unwrap();
}

#[test]
fn exported_tables_make_the_same_store_again() {
    for ids in ["string", "sparse"] {
        let folder = tempfile::tempdir().unwrap();
        write_input(folder.path(), ids);
        grappa(
            &folder,
            &format!(
                "ingest --edges edges.csv --ids {ids} --features nodes.csv --features-from f0,f1 --labels nodes.csv --train train.txt \
                 --out a.grappa --quiet"
            ),
        )
        .success();
        for ending in ["parquet", "csv"] {
            grappa(
                &folder,
                &format!(
                    "store export a.grappa --edges e.{ending} --features x.{ending} --labels y.{ending} --ids ids.{ending} \
                     --split train t.{ending} --quiet"
                ),
            )
            .success();
            grappa(
                &folder,
                &format!(
                    "ingest --edges e.{ending} --ids {ids} --features x.{ending} --labels y.{ending} --train t.{ending} \
                     --out {ending}.grappa --quiet"
                ),
            )
            .success();
            let [a, b] = ["a".to_owned(), ending.to_owned()].map(|name| folder.path().join(format!("{name}.grappa")));
            assert_same(&b, &files_of(&a), ids);
        }
    }
}

#[test]
fn a_dash_prints_what_a_file_would_contain() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path(), "string");
    let ingest = "ingest --edges edges.csv --ids string --features nodes.csv --features-from f0,f1 --labels nodes.csv \
                  --train train.txt --out a.grappa --quiet";
    grappa(&folder, ingest).success();
    for (what, file) in [
        ("--edges", "e.tsv"),
        ("--features", "x.csv"),
        ("--labels", "y.csv"),
        ("--ids", "ids.txt"),
        ("--split train", "t.txt"),
    ] {
        grappa(&folder, &format!("store export a.grappa {what} {file} --quiet")).success();
        let printed = grappa(&folder, &format!("store export a.grappa {what} - --quiet"))
            .success()
            .stdout;
        assert_eq!(printed, fs::read_to_string(folder.path().join(file)).unwrap(), "{what}");
        grappa(&folder, &format!("store export a.grappa {what} - --json")).failure(&["stdout", "--json"]);
    }
    grappa(&folder, "store export a.grappa --weights -").failure(&["--weights writes a NumPy array"]);
    grappa(&folder, "gen er --nodes 2000 --as tsv --out er.tsv --quiet").success();
    let printed = grappa(&folder, "gen er --nodes 2000 --as tsv --out -").success().stdout;
    assert_eq!(printed, fs::read_to_string(folder.path().join("er.tsv")).unwrap());
    grappa(&folder, "gen er --nodes 2000 --as npy --out -").misuse(&["--as tsv"]);
    grappa(&folder, "ingest --edges er.tsv --out -").failure(&["a store is a folder"]);
}

#[test]
fn force_replaces_a_store_when_the_new_one_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("old.tsv"), "0\t1\n").unwrap();
    fs::write(at("new.tsv"), "0\t1\n1\t2\n").unwrap();
    fs::write(at("bad.tsv"), "0\t1\nx\ty\n").unwrap();
    grappa(&folder, "ingest --edges old.tsv --out a.grappa --quiet").success();
    let old = files_of(&at("a.grappa"));
    grappa(&folder, "ingest --edges new.tsv --out a.grappa").failure(&["a.grappa", "exists", "--force"]);
    grappa(&folder, "ingest --edges bad.tsv --out a.grappa --force").failure(&["bad.tsv:2"]);
    assert_same(&at("a.grappa"), &old, "a failed run");
    grappa(&folder, "ingest --edges new.tsv --out a.grappa --force --quiet").success();
    grappa(&folder, "ingest --edges new.tsv --out b.grappa --quiet").success();
    assert_same(&at("a.grappa"), &files_of(&at("b.grappa")), "replaced");
    // What was added to a store goes with it, and the other programs that make stores replace it too.
    grappa(
        &folder,
        "gen sbm --nodes 2000 --feature-dim 4 --out a.grappa --force --quiet",
    )
    .success();
    grappa(&folder, "store preaggregate a.grappa --kind mean --quiet").success();
    grappa(
        &folder,
        "store place a.grappa --chunks 0 --halo-features --to b.grappa --force --quiet",
    )
    .success();
    grappa(&folder, "store verify b.grappa --quiet").success();
    grappa(&folder, "ingest --edges new.tsv --out a.grappa --force --quiet").success();
    grappa(&folder, "store verify a.grappa --quiet").success();
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["a.grappa", "b.grappa", "bad.tsv", "new.tsv", "old.tsv"]);
}

/// A kill before any of the changes at the end of a run. Some of them give the new store its name.
#[cfg(debug_assertions)] // only then can a program be killed before a chosen change
#[test]
fn a_replacement_that_is_killed_loses_no_store() {
    let folder = grappa_tests::files::memory_folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("old.tsv"), "0\t1\n").unwrap();
    fs::write(at("new.tsv"), "0\t1\n1\t2\n").unwrap();
    grappa(&folder, "ingest --edges old.tsv --out old.grappa --quiet").success();
    grappa(&folder, "ingest --edges new.tsv --out new.grappa --quiet").success();
    let [old, new] = ["old.grappa", "new.grappa"].map(|name| files_of(&at(name)));
    let ingest = "--edges new.tsv --out a.grappa --force --quiet";
    let replace = |variable: &str, value: &str| {
        grappa_tests::files::copy_folder(&at("old.grappa"), &at("a.grappa"));
        let mut ingesting = command("grappa-ingest");
        run(ingesting
            .current_dir(folder.path())
            .args(ingest.split(' '))
            .env(variable, value))
    };
    replace("GRAPPA_KILL_LOG", "log").success();
    let changes = fs::read_to_string(at("log")).unwrap().lines().count();
    let mut moments = std::collections::BTreeSet::new();
    for change in changes.saturating_sub(12)..=changes {
        fs::remove_dir_all(at("a.grappa")).unwrap();
        assert_eq!(
            replace("GRAPPA_KILL_AT", &change.to_string()).code,
            None,
            "change {change} of {changes}"
        );
        let found = at("a.grappa").exists().then(|| files_of(&at("a.grappa")));
        moments.insert(match found {
            Some(files) if files == old => "old",
            Some(files) => {
                assert!(files == new, "change {change} of {changes}");
                "new"
            }
            None => {
                assert_same(&at("a.grappa.replaced"), &old, "aside");
                "aside"
            }
        });
        grappa(&folder, &format!("ingest {ingest} --resume")).success();
        assert_same(&at("a.grappa"), &new, &format!("change {change} of {changes}"));
        assert!(!at("a.grappa.replaced").exists() && !at("a.grappa.partial").exists());
    }
    assert_eq!(moments.into_iter().collect::<Vec<_>>(), ["aside", "new", "old"]);
}

#[test]
fn force_replaces_nothing_but_what_the_program_writes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("e.tsv"), "0\t1\n").unwrap();
    fs::create_dir(at("mine")).unwrap();
    fs::write(at("mine/letter.txt"), "dear").unwrap();
    fs::write(at("file"), "dear").unwrap();
    grappa(&folder, "ingest --edges e.tsv --out mixed --quiet").success();
    fs::write(at("mixed/letter.txt"), "dear").unwrap();
    for (out, why) in [("mine", "no store"), ("file", "no store"), ("mixed", "letter.txt")] {
        for line in [
            format!("ingest --edges e.tsv --out {out} --force"),
            format!("gen er --nodes 2000 --out {out} --force"),
        ] {
            grappa(&folder, &line).failure(&[out, why, "--force does not replace it"]);
        }
    }
    grappa(&folder, "store export mixed --edges mine --force").failure(&["mine", "not a regular file"]);
    grappa(&folder, "gen er --nodes 2000 --as tsv --out mine --force").failure(&["mine", "not a regular file"]);
    for letter in ["mine/letter.txt", "file", "mixed/letter.txt"] {
        assert_eq!(fs::read_to_string(at(letter)).unwrap(), "dear");
    }
}

#[test]
fn force_replaces_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("in.tsv"), "0\t1\n").unwrap();
    grappa(&folder, "ingest --edges in.tsv --out a.grappa --quiet").success();
    for (line, out) in [
        ("store export a.grappa --edges e.tsv", "e.tsv"),
        ("store export a.grappa --edges e.parquet", "e.parquet"),
        ("store export a.grappa --ids ids.npy", "ids.npy"),
        ("gen er --nodes 2000 --as tsv --out er.tsv", "er.tsv"),
        ("gen er --nodes 2000 --as npy --out er.npy", "er.npy"),
    ] {
        fs::write(at(out), "old").unwrap();
        grappa(&folder, &format!("{line} --quiet")).failure(&[out, "exists", "--force"]);
        assert_eq!(fs::read(at(out)).unwrap(), b"old");
        grappa(&folder, &format!("{line} --force --quiet")).success();
        assert_ne!(fs::read(at(out)).unwrap(), b"old");
    }
}
