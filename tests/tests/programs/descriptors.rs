//! Stores with more files than a process may open, and the error when descriptors are really insufficient.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::{
    files::memory_folder,
    program::{Ran, command, program, run},
};

const CHUNKS: u32 = 1500;

/// A program that may open `soft` files, or up to `hard` if it raises its limit.
fn limited(name: &str, soft: u32, hard: u32) -> Command {
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" \"$@\""),
        ])
        .arg(program(name))
        .env_remove("RUST_BACKTRACE");
    command
}

fn store_in(folder: &Path) -> PathBuf {
    let store = folder.join("graph.grappa");
    let chunks = CHUNKS.to_string();
    run(limited("grappa-gen", 256, 1024)
        .args([
            "sbm",
            "--nodes",
            "3000",
            "--feature-dim",
            "4",
            "--chunks",
            &chunks,
            "--quiet",
            "--out",
        ])
        .arg(&store))
    .success();
    store
}

/// A subcommand of grappa-store with limits at most as high as common defaults.
fn on_store(store: &Path, subcommand: &str, more: &[&str]) -> Ran {
    run(limited("grappa-store", 256, 1024).arg(subcommand).arg(store).args(more))
}

#[test]
fn a_store_of_more_chunks_than_files_may_be_open_is_usable() {
    let folder = memory_folder();
    let store = store_in(folder.path());
    on_store(&store, "info", &["--json"]).success();
    on_store(&store, "info", &["--coverage"]).success();
    on_store(&store, "repartition", &["--partitions", "4"]).success();
    for kind in ["mean", "sum", "gcn"] {
        on_store(&store, "preaggregate", &["--kind", kind, "--memory", "64MiB"]).success();
    }
    let sample = [
        "--batches",
        "20",
        "--batch",
        "64",
        "--fanouts",
        "5,5",
        "--memory",
        "32MiB",
    ];
    for view in ["memory", "mapped"] {
        for engine in ["auto", "pread"] {
            for partitions in ["1", "4"] {
                let more = ["--view", view, "--read-engine", engine, "--partitions", partitions];
                on_store(&store, "sample", &[&sample[..], &more].concat()).success();
            }
        }
    }
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (edges, features, labels) = (at("edges.tsv"), at("features.npy"), at("labels.npy"));
    on_store(
        &store,
        "export",
        &["--edges", &edges, "--features", &features, "--labels", &labels],
    )
    .success();
    on_store(&store, "verify", &[]).success();

    // The export is ingested into a store with the same number of chunks.
    let again = folder.path().join("again.grappa");
    run(limited("grappa-ingest", 256, 1024)
        .args([
            "--edges",
            &edges,
            "--features",
            &features,
            "--labels",
            &labels,
            "--nodes",
            "3000",
        ])
        .args(["--chunks", &CHUNKS.to_string(), "--quiet", "--out"])
        .arg(&again))
    .success();
    on_store(&again, "verify", &[]).success();
}

#[test]
fn features_are_added_to_a_store_of_more_chunks_than_files_may_be_open() {
    let folder = memory_folder();
    let store = folder.path().join("graph.grappa");
    run(limited("grappa-gen", 256, 1024)
        .args([
            "rmat",
            "--scale",
            "12",
            "--chunks",
            &CHUNKS.to_string(),
            "--quiet",
            "--out",
        ])
        .arg(&store))
    .success();
    on_store(&store, "add-features", &["--kind", "fastrp", "--dim", "8"]).success();
    on_store(&store, "verify", &[]).success();
}

/// Each input file needs a descriptor. If the hard limit is too low, the error names a remedy.
#[test]
fn too_few_descriptors_are_an_error_that_names_the_limit() {
    let folder = memory_folder();
    let parts: Vec<PathBuf> = (0..60)
        .map(|part| {
            let path = folder.path().join(format!("part-{part}.tsv"));
            fs::write(&path, format!("{part}\t{}\n", part + 1)).unwrap();
            path
        })
        .collect();
    let out = folder.path().join("graph.grappa");
    let ingest = |mut command: Command| {
        parts.iter().for_each(|part| {
            command.arg("--edges").arg(part);
        });
        run(command.args(["--quiet", "--out"]).arg(&out))
    };
    ingest(limited("grappa-ingest", 40, 40)).failure(&["part-", "`ulimit -n`", "fewer parts"]);
    assert!(!out.exists());
    // A soft limit is raised automatically.
    ingest(limited("grappa-ingest", 40, 400)).success();
    run(command("grappa-store").arg("verify").arg(&out)).success();
}
