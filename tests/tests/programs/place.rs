//! `grappa-store place`: slices of stores.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::{
    files::{files_of, memory_folder, names_in},
    program::{self, run},
};
use serde_json::json;

const GRAPH: [&str; 7] = ["sbm", "--nodes", "3000", "--feature-dim", "8", "--chunks", "6"];

fn generated(out: &Path, more: &[&str]) -> PathBuf {
    let mut command = program::command("grappa-gen");
    command.args(GRAPH).args(more).args(["--quiet", "--out"]).arg(out);
    run(&mut command).success();
    out.to_owned()
}

fn store(command: &str, store: &Path) -> Command {
    let mut program = program::command("grappa-store");
    program.arg(command).arg(store);
    program
}

fn place(from: &Path, chunks: &str, to: &Path) -> Command {
    let mut command = store("place", from);
    command.args(["--chunks", chunks, "--json", "--to"]).arg(to);
    command
}

#[test]
fn a_placed_slice_has_the_files_of_a_generated_one() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let whole = generated(&path("whole"), &[]);
    let slice = generated(&path("slice"), &["--only-chunks", "0,2-3"]);
    let mut expected = files_of(&slice);
    expected.remove(Path::new("manifest"));
    for (name, more) in [("links", &[][..]), ("copies", &["--copy"])] {
        let to = path(name);
        let made = run(place(&whole, "2-3,0", &to).args(more)).success().json();
        assert_eq!((&made["chunks"], &made["chunks_present"]), (&json!(6), &json!(3)));
        assert_eq!((&made["nodes"], &made["nodes_present"]), (&json!(3000), &json!(1500)));
        let mut found = files_of(&to);
        found.remove(Path::new("manifest"));
        assert!(found == expected, "{name}");
        run(&mut store("verify", &to)).success();
        let inode = |store: &Path| fs::metadata(store.join("chunk-2/edges")).unwrap().ino();
        assert_eq!(inode(&to) == inode(&whole), name == "links");
        assert_eq!(made["files_linked"] == json!(0), name == "copies");
        assert_eq!(made["bytes_copied"] == json!(0), name == "links");
    }
    // A slice of a slice; and the store may go.
    run(&mut place(&path("links"), "3", &path("one"))).success();
    fs::remove_dir_all(&whole).unwrap();
    run(&mut store("verify", &path("one"))).success();
    run(store("repartition", &path("links")).args(["--partitions", "3"])).success();
    let sample = [
        "--fanouts",
        "5,5",
        "--halo",
        "none",
        "--batch",
        "64",
        "--batches",
        "2",
        "--seeds",
        "all",
    ];
    run(store("sample", &path("links")).args(sample)).success();
}

#[test]
fn edges_from_other_chunks_are_left_out_on_request() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let whole = generated(&path("whole"), &[]);
    run(store("preaggregate", &whole).args(["--kind", "mean", "--quiet"])).success();
    let count = |placed: &serde_json::Value, key: &str| placed[key].as_u64().unwrap();
    let all = run(&mut place(&whole, "0-2", &path("all"))).success();
    assert!(
        all.stderr.contains("--halo-features, or --edges inside"),
        "{}",
        all.stderr
    );
    let all = all.json();
    assert_eq!(count(&all, "edges_left_out"), 0);
    let to = path("inside");
    let inside = run(place(&whole, "0-2", &to).args(["--edges", "inside"])).success();
    assert!(!inside.stderr.contains("--halo-features"), "{}", inside.stderr);
    let inside = inside.json();
    assert!(count(&inside, "edges_left_out") > 0);
    assert_eq!(
        count(&inside, "edges") + count(&inside, "edges_left_out"),
        count(&all, "edges")
    );
    for placed in [&all, &inside] {
        assert_eq!(placed["aggregates"], json!(["mean"]));
    }
    for name in ["all", "inside"] {
        run(&mut store("verify", &path(name))).success();
    }
    // A slice of the slice has none to leave out.
    let again = run(place(&to, "0-2", &path("again")).args(["--edges", "inside"]))
        .success()
        .json();
    assert_eq!(
        (count(&again, "edges"), count(&again, "edges_left_out")),
        (count(&inside, "edges"), 0)
    );
    assert!(files_of(&path("again")) == files_of(&to));
    run(place(&whole, "0", &path("none")).args(["--edges", "some"])).misuse(&["inside"]);
    // It cannot make them, because they aggregate over the whole graph.
    run(store("preaggregate", &to).args(["--kind", "sum"])).failure(&["slice"]);
    let mut stale = fs::read(whole.join("aggregates/mean/chunk-1")).unwrap();
    *stale.last_mut().unwrap() ^= 1;
    fs::write(whole.join("aggregates/mean/chunk-1"), stale).unwrap();
    run(&mut place(&whole, "1", &path("damaged"))).failure(&["aggregates/mean/chunk-1"]);
}

#[test]
fn chunks_are_copied_to_another_file_system() {
    let [from, to] = [memory_folder(), tempfile::tempdir().unwrap()];
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(from.path()) == device(to.path()) {
        grappa_skip::skip!("the folders for temporary files are on one file system");
    }
    let whole = generated(&from.path().join("whole"), &[]);
    let slice = to.path().join("slice");
    let made = run(&mut place(&whole, "1", &slice)).success().json();
    assert_eq!(made["files_linked"], 0);
    run(&mut store("verify", &slice)).success();
}

#[test]
fn what_cannot_be_placed_is_told_and_leaves_nothing() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let whole = generated(&path("whole"), &[]);
    let to = path("slice");
    run(&mut place(&whole, "6", &to)).failure(&["there is no chunk 6"]);
    run(&mut place(&whole, "3-1", &to)).misuse(&["5-7"]);
    run(&mut place(&whole, "0", &whole)).failure(&["something with this name exists", "--force"]);
    run(&mut place(&whole, "0-1", &path("first"))).success();
    run(&mut place(&path("first"), "1-2", &to)).failure(&["only the chunks 0-1, not chunk 2"]);
    // The file of the slice is the same one, so a copy is damaged.
    let damaged = path("damaged");
    run(place(&whole, "0-5", &damaged).arg("--copy")).success();
    let file = damaged.join("chunk-1/features");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    run(&mut place(&damaged, "1", &to)).failure(&["chunk-1/features"]);
    run(place(&damaged, "1", &to).arg("--copy")).failure(&["chunk-1/features"]);
    run(&mut place(&damaged, "0", &to)).success();
    assert_eq!(names_in(folder.path()), ["damaged", "first", "slice", "whole"]);
}
