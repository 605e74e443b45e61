//! `grappa-store place`: slices of stores.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use grappa_tests::{folder::ProgramFolder, program::Ran};
use serde_json::{Value, json};

/// A folder with the store of a graph.
fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    generate(&folder, "whole", "");
    folder
}

fn generate(folder: &ProgramFolder, out: &str, options: &str) {
    let graph = "sbm --nodes 3000 --feature-dim 8 --chunks 6";
    folder.success(&format!("gen {graph} {options} --quiet --out {out}"));
}

fn place(folder: &ProgramFolder, from: &str, chunks: &str, to: &str) -> Ran {
    folder.run(&format!("store place {from} --json --chunks {chunks} --to {to}"))
}

/// Changes the last byte of a file.
fn flip_last(path: PathBuf) {
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_placed_slice_has_the_files_of_a_generated_one() {
    let folder = folder();
    generate(&folder, "slice", "--only-chunks 0,2-3");
    let mut expected = folder.files("slice");
    expected.remove(Path::new("manifest"));
    for (name, to) in [("links", "links"), ("copies", "copies --copy")] {
        let made = place(&folder, "whole", "2-3,0", to).success().json();
        assert_eq!((&made["chunks"], &made["chunks_present"]), (&json!(6), &json!(3)));
        assert_eq!((&made["nodes"], &made["nodes_present"]), (&json!(3000), &json!(1500)));
        let mut found = folder.files(name);
        found.remove(Path::new("manifest"));
        assert!(found == expected, "{name}");
        folder.success(&format!("store verify {name}"));
        let [whole, placed] = ["whole", name].map(|store| {
            let file = folder.path(&format!("{store}/chunk-2/edges"));
            fs::metadata(file).unwrap().ino()
        });
        assert_eq!(placed == whole, name == "links");
        assert_eq!(made["files_linked"] == json!(0), name == "copies");
        assert_eq!(made["bytes_copied"] == json!(0), name == "links");
    }
    // A slice of a slice; and the store may go.
    place(&folder, "links", "3", "one").success();
    folder.remove("whole");
    folder.success("store verify one");
    folder.success("store repartition links --partitions 3");
    folder.success("store sample links --fanouts 5,5 --halo none --batch 64 --batches 2 --seeds all");
}

#[test]
fn edges_from_other_chunks_are_left_out_on_request() {
    let folder = folder();
    folder.success("store preaggregate whole --kind mean --quiet");
    let counts = |placed: &Value| ["edges", "edges_left_out"].map(|key| placed[key].as_u64().unwrap());
    let mut both = Vec::new();
    for (to, has_hint) in [("all", true), ("inside --edges inside", false)] {
        let ran = place(&folder, "whole", "0-2", to).success();
        let hint = ran.stderr.contains("--halo-features");
        assert_eq!(hint, has_hint, "{}", ran.stderr);
        let placed = ran.json();
        assert_eq!(placed["aggregates"], json!(["mean"]));
        folder.success(&format!("store verify {}", to.split(' ').next().unwrap()));
        both.push(counts(&placed));
    }
    let [[all, none], [inside, left_out]] = both[..] else { unreachable!("two slices") };
    assert_eq!((none, inside + left_out), (0, all));
    assert!(left_out > 0);
    // A slice of the slice has none to leave out.
    let again = place(&folder, "inside", "0-2", "again --edges inside").success().json();
    assert_eq!(counts(&again), [inside, 0]);
    assert!(folder.files("again") == folder.files("inside"));
    place(&folder, "whole", "0", "none --edges some").misuse(&["inside"]);
    // It cannot make them, because they aggregate over the whole graph.
    folder.run("store preaggregate inside --kind sum").failure(&["slice"]);
    flip_last(folder.path("whole/aggregates/mean/chunk-1"));
    place(&folder, "whole", "1", "damaged").failure(&["aggregates/mean/chunk-1"]);
}

#[test]
fn chunks_are_copied_to_another_file_system() {
    let [from, to] = [folder(), ProgramFolder::on_disk()];
    let device = |folder: &ProgramFolder| fs::metadata(folder.root()).unwrap().dev();
    if device(&from) == device(&to) {
        grappa_skip::skip!("the folders for temporary files are on one file system");
    }
    let slice = to.path("slice").display().to_string();
    let made = place(&from, "whole", "1", &slice).success().json();
    assert_eq!(made["files_linked"], 0);
    to.success("store verify slice");
}

#[test]
fn what_cannot_be_placed_is_told_and_leaves_nothing() {
    let folder = folder();
    place(&folder, "whole", "6", "slice").failure(&["there is no chunk 6"]);
    place(&folder, "whole", "3-1", "slice").misuse(&["5-7"]);
    place(&folder, "whole", "0", "whole").failure(&["something with this name exists", "--force"]);
    place(&folder, "whole", "0-1", "first").success();
    place(&folder, "first", "1-2", "slice").failure(&["only the chunks 0-1, not chunk 2"]);
    // The file of the slice is the same one, so a copy is damaged.
    place(&folder, "whole", "0-5", "damaged --copy").success();
    flip_last(folder.path("damaged/chunk-1/features"));
    for to in ["slice", "slice --copy"] {
        place(&folder, "damaged", "1", to).failure(&["chunk-1/features"]);
    }
    place(&folder, "damaged", "0", "slice").success();
    assert_eq!(folder.names(), ["damaged", "first", "slice", "whole"]);
}

#[test]
fn a_slice_of_a_graph_with_types_has_the_files_of_a_generated_one() {
    let folder = ProgramFolder::new();
    let generate = |out: &str, options: &str| {
        let graph = "--nodes user=3000 --nodes item=5000 --nodes shop=3 --edges user:buys:item=20000 --edges shop:offers:item=5000 \
                     --reverse --classes item=4 --feature-dim item=4 --feature-dim user=2";
        folder.success(&format!("gen typed {graph} {options} --quiet --out {out}"));
    };
    generate("whole", "");
    // Users have chunks 0 to 63, and items 64 to 127.
    let info = folder.run("store info whole").success().stdout;
    assert!(info.contains("64-127"), "{info}");
    generate("slice", "--only-chunks 0-19,64-99");
    folder.success("store verify slice");
    let without_manifests = |name: &str| {
        let mut files = folder.files(name);
        files.retain(|path, _| !path.ends_with("manifest"));
        files
    };
    for to in ["links", "copies --copy"] {
        let made = place(&folder, "whole", "64-99,0-19", to).success().json();
        let name = to.split(' ').next().unwrap();
        assert_eq!((&made["chunks_present"], &made["chunks_halo"]), (&json!(56), &json!(0)));
        assert!(without_manifests(name) == without_manifests("slice"), "{name}");
        folder.success(&format!("store verify {name}"));
    }
    let info = folder.run("store info links --json").success().json();
    let types = info["node_types"].as_array().unwrap();
    let chunks: Vec<_> = types.iter().map(|of| (of["chunks"].as_u64(), of["chunks_present"].as_u64())).collect();
    assert_eq!(chunks, [(Some(64), Some(20)), (Some(64), Some(36)), (Some(1), Some(0))]);
    let sample = "--fanouts 5,5 --batch 64 --batches 2 --seeds all";
    let ran = folder.run(&format!("store sample links {sample}"));
    ran.failure(&["is a slice without the features of chunk", "--halo-features"]);
    folder.success(&format!("store sample links --halo none {sample}"));
    // With the features of all sources, and without the edges from other chunks.
    folder.success("store preaggregate whole --kind mean --quiet");
    let halo = place(&folder, "whole", "0-19,64-99", "halo --halo-features").success();
    assert!(!halo.stderr.contains("--halo-features"), "{}", halo.stderr);
    assert_eq!(halo.json()["chunks_halo"], json!(44 + 28));
    assert_eq!(halo.json()["aggregates"], json!(["mean"]));
    folder.success("store verify halo");
    folder.success(&format!("store sample halo {sample}"));
    let inside = place(&folder, "whole", "0-19,64-99", "inside --edges inside").success();
    assert!(!inside.stderr.contains("--halo-features"), "{}", inside.stderr);
    let edges = |placed: &Value, key: &str| placed[key].as_u64().unwrap();
    let [halo, inside] = [halo.json(), inside.json()];
    assert!(edges(&inside, "edges_left_out") > 0);
    assert_eq!(edges(&inside, "edges") + edges(&inside, "edges_left_out"), edges(&halo, "edges"));
    folder.success("store verify inside");
    folder.success(&format!("store sample inside {sample}"));
    // Wrong chunks, and what is missing.
    place(&folder, "whole", "200", "other").failure(&["there is no chunk 200; the store has 129"]);
    place(&folder, "links", "20", "other").failure(&["has only the chunks 0-19, not chunk 20"]);
    folder.run("store preaggregate links --kind sum").failure(&["is a slice of its graph"]);
    let generated = "gen typed --nodes user=3000 --edges user:knows:user=100 --out other --only-chunks 64";
    folder.run(generated).failure(&["some of the chunks 0 to 63 of the graph"]);
}
