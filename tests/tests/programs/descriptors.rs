//! Stores with more files than a process may open, and the error when descriptors are really insufficient.

use std::process::Command;

use grappa_tests::{
    folder::ProgramFolder,
    program::{Ran, run, started_by},
};

/// More chunks than the limit below.
const CHUNKS: u32 = 400;

/// Runs a command that may open `soft` files, or up to `hard` if it raises its limit.
fn limited(folder: &ProgramFolder, [soft, hard]: [u32; 2], line: &str) -> Ran {
    let mut shell = Command::new("sh");
    let script = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" \"$@\"");
    shell.args(["-c", &script]);
    run(&mut started_by(shell, &folder.command(line)))
}

/// Runs a command with limits far below common defaults, which must succeed.
#[track_caller]
fn success(folder: &ProgramFolder, line: &str) {
    limited(folder, [64, 256], line).success();
}

#[test]
fn a_store_of_more_chunks_than_files_may_be_open_is_usable() {
    let folder = ProgramFolder::new();
    let generate = format!("gen sbm --nodes 3000 --feature-dim 4 --chunks {CHUNKS} --quiet --out graph.grappa");
    for line in [
        &generate,
        "store info graph.grappa --coverage",
        "store repartition graph.grappa --partitions 4",
        "store preaggregate graph.grappa --memory 64MiB --kind mean",
        "store export graph.grappa --edges e.tsv --features x.npy --labels y.npy",
        "store verify graph.grappa",
    ] {
        success(&folder, line);
    }
    for view in ["memory", "mapped"] {
        for engine in ["auto", "pread"] {
            for partitions in ["1", "4"] {
                let sample = "store sample graph.grappa --batches 20 --batch 64 --fanouts 5,5 --memory 32MiB";
                let way = format!("--view {view} --read-engine {engine} --partitions {partitions}");
                success(&folder, &format!("{sample} {way}"));
            }
        }
    }
    // The export is ingested into a store with the same number of chunks.
    let ingest = "ingest --edges e.tsv --features x.npy --labels y.npy --nodes 3000 --quiet --out again.grappa";
    success(&folder, &format!("{ingest} --chunks {CHUNKS}"));
    success(&folder, "store verify again.grappa");
}

#[test]
fn features_are_added_to_a_store_of_more_chunks_than_files_may_be_open() {
    let folder = ProgramFolder::new();
    success(&folder, &format!("gen rmat --scale 12 --chunks {CHUNKS} --quiet --out graph.grappa"));
    success(&folder, "store add-features graph.grappa --kind fastrp --dim 8");
    success(&folder, "store verify graph.grappa");
}

/// Each input file needs a descriptor. If the hard limit is too low, the error names a remedy.
#[test]
fn too_few_descriptors_are_an_error_that_names_the_limit() {
    let folder = ProgramFolder::new();
    let mut ingest = "ingest --quiet --out graph.grappa".to_owned();
    for part in 0..60 {
        folder.write(&format!("part-{part}.tsv"), format!("{part}\t{}\n", part + 1));
        ingest += &format!(" --edges part-{part}.tsv");
    }
    limited(&folder, [40, 40], &ingest).failure(&["part-", "`ulimit -n`", "fewer parts"]);
    assert!(!folder.path("graph.grappa").exists());
    // A soft limit is raised automatically.
    limited(&folder, [40, 400], &ingest).success();
    folder.success("store verify graph.grappa");
}
