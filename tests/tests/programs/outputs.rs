//! What programs write: tables that ingest reads back, stdout for `-`, and `--force`.

use std::fs;

use grappa_tests::{
    files::{assert_same, copy_folder},
    folder::ProgramFolder,
    program::run,
};

/// Edges, features, labels and a split, with ids that are strings or integers with gaps.
fn write_input(folder: &ProgramFolder, ids: &str) {
    let id = |node: u64| match ids {
        "string" => format!("n{node} ü,\"{node}\""),
        _ => (node * 1000 + (1 << 40)).to_string(),
    };
    let quoted = |node| format!("\"{}\"", id(node).replace('"', "\"\""));
    let pairs = (0..200u64).map(|i| (i * i % 30, i * 7 % 30));
    let edges: String = pairs.map(|(s, t)| format!("{},{},{}\n", quoted(s), quoted(t), s + 1)).collect();
    let nodes: String = (0..30).map(|node| format!("{},{},-0.5,{}\n", quoted(node), node * 2, node % 3)).collect();
    let train: String = (0..10).map(|node| format!("{}\n", id(node))).collect();
    folder.write("edges.csv", format!("source,target,weight\n{edges}"));
    folder.write("nodes.csv", format!("id,f0,f1,label\n{nodes}"));
    folder.write("train.txt", train);
}

#[test]
fn exported_tables_make_the_same_store_again() {
    for ids in ["string", "sparse"] {
        let folder = ProgramFolder::new();
        write_input(&folder, ids);
        let ingest =
            "ingest --edges edges.csv --features nodes.csv --features-from f0,f1 --labels nodes.csv --train train.txt";
        folder.success(&format!("{ingest} --ids {ids} --out a.grappa --quiet"));
        let expected = folder.files("a.grappa");
        for to in ["parquet", "csv"] {
            let files = format!("--edges e.{to} --features x.{to} --labels y.{to}");
            folder.success(&format!("store export a.grappa {files} --ids ids.{to} --split train t.{to} --quiet"));
            folder.success(&format!("ingest {files} --ids {ids} --train t.{to} --out {to}.grappa --quiet"));
            assert_same(&folder.path(&format!("{to}.grappa")), &expected, ids);
        }
    }
}

#[test]
fn a_dash_prints_what_a_file_would_contain() {
    let folder = ProgramFolder::new();
    write_input(&folder, "string");
    let ingest = "ingest --edges edges.csv --ids string --features nodes.csv --features-from f0,f1 --labels nodes.csv \
                  --train train.txt --out a.grappa --quiet";
    folder.success(ingest);
    for (option, file) in [
        ("--edges", "e.tsv"),
        ("--features", "x.csv"),
        ("--labels", "y.csv"),
        ("--ids", "ids.txt"),
        ("--split train", "t.txt"),
    ] {
        folder.success(&format!("store export a.grappa {option} {file} --quiet"));
        let printed = folder.success(&format!("store export a.grappa {option} - --quiet")).stdout;
        assert_eq!(printed, folder.read(file), "{option}");
        folder.run(&format!("store export a.grappa {option} - --json")).failure(&["stdout", "--json"]);
    }
    folder.run("store export a.grappa --weights -").failure(&["--weights writes a NumPy array"]);
    folder.success("gen er --nodes 2000 --as tsv --out er.tsv --quiet");
    let printed = folder.success("gen er --nodes 2000 --as tsv --out -").stdout;
    assert_eq!(printed, folder.read("er.tsv"));
    folder.run("gen er --nodes 2000 --as npy --out -").misuse(&["--as tsv"]);
    folder.run("ingest --edges er.tsv --out -").failure(&["a store is a folder"]);
}

#[test]
fn force_replaces_a_store_when_the_new_one_is_complete() {
    let folder = ProgramFolder::new();
    folder.write("old.tsv", "0\t1\n");
    folder.write("new.tsv", "0\t1\n1\t2\n");
    folder.write("bad.tsv", "0\t1\nx\ty\n");
    folder.success("ingest --edges old.tsv --out a.grappa --quiet");
    let old = folder.files("a.grappa");
    folder.run("ingest --edges new.tsv --out a.grappa").failure(&["a.grappa", "exists", "--force"]);
    folder.run("ingest --edges bad.tsv --out a.grappa --force").failure(&["bad.tsv:2"]);
    assert_same(&folder.path("a.grappa"), &old, "a failed run");
    folder.success("ingest --edges new.tsv --out a.grappa --force --quiet");
    folder.success("ingest --edges new.tsv --out b.grappa --quiet");
    assert_same(&folder.path("a.grappa"), &folder.files("b.grappa"), "replaced");
    // What was added to a store goes with it, and the other programs that make stores replace it too.
    folder.success("gen sbm --nodes 2000 --feature-dim 4 --out a.grappa --force --quiet");
    folder.success("store preaggregate a.grappa --kind mean --quiet");
    folder.success("store place a.grappa --chunks 0 --halo-features --to b.grappa --force --quiet");
    folder.success("store verify b.grappa --quiet");
    folder.success("ingest --edges new.tsv --out a.grappa --force --quiet");
    folder.success("store verify a.grappa --quiet");
    assert_eq!(folder.names(), ["a.grappa", "b.grappa", "bad.tsv", "new.tsv", "old.tsv"]);
}

/// A kill before any of the changes at the end of a run. Some of them give the new store its name.
#[cfg(debug_assertions)] // only then can a program be killed before a chosen change
#[test]
fn a_replacement_that_is_killed_loses_no_store() {
    let folder = ProgramFolder::new();
    folder.write("old.tsv", "0\t1\n");
    folder.write("new.tsv", "0\t1\n1\t2\n");
    folder.success("ingest --edges old.tsv --out old.grappa --quiet");
    folder.success("ingest --edges new.tsv --out new.grappa --quiet");
    let [old, new] = ["old.grappa", "new.grappa"].map(|name| folder.files(name));
    let ingest = "ingest --edges new.tsv --out a.grappa --force --quiet";
    let replace = |variable: &str, value: &str| {
        copy_folder(&folder.path("old.grappa"), &folder.path("a.grappa"));
        run(folder.command(ingest).env(variable, value))
    };
    replace("GRAPPA_KILL_LOG", "log").success();
    let changes = folder.read("log").lines().count();
    let mut moments = std::collections::BTreeSet::new();
    for change in changes.saturating_sub(12)..=changes {
        folder.remove("a.grappa");
        assert_eq!(replace("GRAPPA_KILL_AT", &change.to_string()).code, None, "change {change} of {changes}");
        let found = folder.path("a.grappa").exists().then(|| folder.files("a.grappa"));
        moments.insert(match found {
            Some(files) if files == old => "old",
            Some(files) => {
                assert!(files == new, "change {change} of {changes}");
                "new"
            }
            None => {
                assert_same(&folder.path("a.grappa.replaced"), &old, "aside");
                "aside"
            }
        });
        folder.success(&format!("{ingest} --resume"));
        assert_same(&folder.path("a.grappa"), &new, &format!("change {change} of {changes}"));
        assert!(!folder.path("a.grappa.replaced").exists() && !folder.path("a.grappa.partial").exists());
    }
    assert_eq!(moments.into_iter().collect::<Vec<_>>(), ["aside", "new", "old"]);
}

#[test]
fn force_replaces_nothing_but_what_the_program_writes() {
    let folder = ProgramFolder::new();
    folder.write("e.tsv", "0\t1\n");
    fs::create_dir(folder.path("mine")).unwrap();
    folder.write("mine/letter.txt", "dear");
    folder.write("file", "dear");
    folder.success("ingest --edges e.tsv --out mixed --quiet");
    folder.write("mixed/letter.txt", "dear");
    for (out, why) in [("mine", "no store"), ("file", "no store"), ("mixed", "letter.txt")] {
        for line in
            [format!("ingest --edges e.tsv --out {out} --force"), format!("gen er --nodes 2000 --out {out} --force")]
        {
            folder.run(&line).failure(&[out, why, "--force does not replace it"]);
        }
    }
    folder.run("store export mixed --edges mine --force").failure(&["mine", "not a regular file"]);
    folder.run("gen er --nodes 2000 --as tsv --out mine --force").failure(&["mine", "not a regular file"]);
    for letter in ["mine/letter.txt", "file", "mixed/letter.txt"] {
        assert_eq!(folder.read(letter), "dear");
    }
}

#[test]
fn force_replaces_files() {
    let folder = ProgramFolder::new();
    folder.write("in.tsv", "0\t1\n");
    folder.success("ingest --edges in.tsv --out a.grappa --quiet");
    for (line, out) in [
        ("store export a.grappa --edges e.tsv", "e.tsv"),
        ("store export a.grappa --edges e.parquet", "e.parquet"),
        ("store export a.grappa --ids ids.npy", "ids.npy"),
        ("gen er --nodes 2000 --as tsv --out er.tsv", "er.tsv"),
        ("gen er --nodes 2000 --as npy --out er.npy", "er.npy"),
    ] {
        folder.write(out, "old");
        folder.run(&format!("{line} --quiet")).failure(&[out, "exists", "--force"]);
        assert_eq!(folder.bytes(out), b"old");
        folder.success(&format!("{line} --force --quiet"));
        assert_ne!(folder.bytes(out), b"old");
    }
}
