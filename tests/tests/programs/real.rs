//! Real graphs give sound stores, and `info` prints the numbers that their sources state.
//!
//! Cora is bundled. The others are too large for this repository: `GRAPPA_DATA` names their folder, by default
//! `../shared/data` beside the repository. Each graph has `edges.npy`, optionally `features.npy`, `features_csr.npz`,
//! `labels.npy` and `{train,val,test}.npy`, and `stats.json` with its counts. Missing graphs are reported as a skipped
//! part of the test.

use std::{
    fs,
    path::{Path, PathBuf},
};

use grappa_tests::program::{self, command, run};
use serde_json::{Value, json};

/// The folder of a graph, if it exists.
fn graph(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("GRAPPA_DATA").map_or_else(beside, PathBuf::from).join(name);
    if folder.join("edges.npy").exists() {
        return Some(folder);
    }
    grappa_skip::skip_part!("{name} is not here; GRAPPA_DATA names the folder of graphs");
    None
}

/// Ingests a graph with all its files, and checks that the store is sound and has the stated numbers. Returns the
/// output of `grappa-store info`.
fn ingest_and_check(folder: &Path, more: &[&str]) -> Value {
    let stats = serde_json::from_slice(&fs::read(folder.join("stats.json")).unwrap()).unwrap();
    ingest_and_compare(folder, "edges.npy", &stats, more)
}

/// The same for the edges in this file of the folder, and these `stats`.
fn ingest_and_compare(folder: &Path, edges: &str, stats: &Value, more: &[&str]) -> Value {
    let out = tempfile::tempdir().unwrap();
    let store = out.path().join("graph.grappa");
    let stated = |key: &str| stats[key].as_u64();

    let edges = folder.join(edges);
    let mut ingest = program::ingest(&edges, &store);
    ingest.args(["--json", "--nodes", &stated("nodes").unwrap().to_string()]).args(more);
    for (option, name) in [
        ("--features", "features.npy"),
        ("--features", "features.npz"),
        ("--features", "features_csr.npz"),
        ("--labels", "labels.npy"),
        ("--train", "train.npy"),
        ("--val", "val.npy"),
        ("--test", "test.npy"),
    ] {
        if folder.join(name).exists() {
            ingest.arg(option).arg(folder.join(name));
        }
    }
    let ingested = run(&mut ingest).success().json();
    assert_eq!(ingested["nodes"].as_u64(), stated("nodes"));
    assert_eq!(ingested["edges"].as_u64(), stated("edges"));
    assert_eq!(ingested["rejected"], 0);

    let store_command = |name: &str| {
        let mut command = command("grappa-store");
        command.args([name, "--json"]).arg(&store);
        command
    };
    let verified = run(&mut store_command("verify")).success().json();
    assert_eq!(verified["ok"], true);
    let info = run(&mut store_command("info")).success().json();
    assert_eq!(info["nodes"].as_u64(), stated("nodes"));
    assert_eq!(info["edges"].as_u64(), stated("edges"));
    assert_eq!(info["chunks"], ingested["chunks"]);
    assert_eq!(info["bytes"]["total"], ingested["bytes_on_disk"]);
    let dim = stated("feature_dim").or(stated("dim"));
    assert_eq!(info["features"]["dim"].as_u64(), dim);
    assert_eq!(info["classes"].as_u64(), stated("classes").filter(|&classes| classes > 0));
    for name in ["train", "val", "test"] {
        let nodes = stated(name).or(stats["split"][name].as_u64()).filter(|&nodes| nodes > 0);
        assert_eq!(info["splits"][name].as_u64(), nodes, "{name}");
    }
    info
}

#[test]
fn real_graphs_make_sound_stores_with_the_numbers_their_sources_state() {
    // The numbers of SOURCE.md. Each undirected edge counts twice.
    let cora =
        json!({"nodes": 2708, "edges": 10_556, "dim": 1433, "classes": 7, "train": 140, "val": 500, "test": 1000});
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/cora");
    let info = ingest_and_compare(&bundled, "edges.tsv", &cora, &["--undirected"]);
    assert_eq!(info["features"]["dtype"], "f32");

    if let Some(folder) = graph("cora") {
        let info = ingest_and_check(&folder, &[]);
        assert_eq!(info["features"]["dtype"], "f32");
    }
    if let Some(folder) = graph("debian-bookworm") {
        let info = ingest_and_check(&folder, &[]);
        let degrees: u64 =
            info["degree_histogram"].as_array().unwrap().iter().map(|bucket| bucket["nodes"].as_u64().unwrap()).sum();
        assert_eq!(degrees, 63_436);
    }
    // The features are sparse.
    if let Some(folder) = graph("coauthor-cs") {
        ingest_and_check(&folder, &["--feature-dtype", "f16"]);
    }
    if let Some(folder) = graph("cnr-2000") {
        // In URL order it takes five bits per edge.
        let info = ingest_and_check(&folder, &["--assign", "range"]);
        let bits = info["bits_per_edge"].as_f64().unwrap();
        assert!(bits <= 5.0, "{bits} bits per edge");
    }
}
