//! Edges that are held out of the graph: `grappa-ingest --edge-split`, and what other programs do with them.

use std::collections::BTreeSet;

use grappa_tests::{files::assert_same, folder::ProgramFolder, random::Random};
use serde_json::Value;

const NODES: u64 = 400;
const EDGES: u64 = 4000;

/// A folder with random edges, some of them parallel, in both directions, or from a node to itself; and their weights.
fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    let mut random = Random::new(5);
    let mut line = || {
        let [source, target] = [random.below(NODES), random.below(NODES)];
        format!("{source} {target} {}\n", (source * 31 + target * 17) % 64)
    };
    folder.write("edges.tsv", (0..EDGES).map(|_| line()).collect::<String>());
    folder
}

/// Source, destination and weight of each edge, sorted.
type Edges = Vec<(u64, u64, String)>;

fn exported(folder: &ProgramFolder, option: &str) -> Edges {
    folder.success(&format!("store export out.grappa --{option} {option}.txt --force"));
    parsed(&folder.read(&format!("{option}.txt")))
}

fn parsed(text: &str) -> Edges {
    let edge = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let mut number = || words.next().unwrap().parse().unwrap();
        (number(), number(), words.next().unwrap_or_default())
    };
    let mut edges: Edges = text.lines().map(edge).collect();
    edges.sort();
    edges
}

fn pairs(edges: &Edges) -> BTreeSet<(u64, u64)> {
    edges
        .iter()
        .map(|&(source, target, _)| (source.min(target), source.max(target)))
        .collect()
}

/// The edges of all parts, after a check that no pair of nodes is in two parts, and that `info` counts them.
fn checked_parts(folder: &ProgramFolder) -> [Edges; 3] {
    let parts = ["edges", "val-edges", "test-edges"].map(|option| exported(folder, option));
    let sets: Vec<_> = parts.iter().map(pairs).collect();
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        assert!(sets[a].is_disjoint(&sets[b]), "parts {a} and {b} share a pair");
    }
    let info = folder.success("store info --json out.grappa").json();
    for (name, part) in ["edges", "edges_val", "edges_test"].into_iter().zip(&parts) {
        assert_eq!(info[name], part.len(), "{name}");
    }
    folder.success("store verify out.grappa");
    parts
}

#[test]
fn parts_have_all_edges_and_share_no_pair() {
    let folder = folder();
    folder.success("ingest --edges edges.tsv --edge-split 80/15/5 --edge-split-seed 3 --chunks 5 --out out.grappa");
    let [graph, val, test] = checked_parts(&folder);
    let mut all = [graph, val.clone(), test.clone()].concat();
    all.sort();
    // Weights are exported as floats.
    let input = parsed(&folder.read("edges.tsv"));
    assert_eq!(all.len(), input.len());
    for (edge, (source, target, weight)) in all.iter().zip(&input) {
        assert_eq!((edge.0, edge.1), (*source, *target));
        assert_eq!(edge.2.parse::<f32>().unwrap(), weight.parse::<f32>().unwrap());
    }
    assert!((450..750).contains(&val.len()), "{} edges", val.len());
    assert!((100..300).contains(&test.len()), "{} edges", test.len());
    let info = folder.success("store info out.grappa").stdout;
    assert!(info.contains("(random, 80/15/5, seed 3)"), "{info}");
}

#[test]
fn an_undirected_edge_that_is_held_out_is_listed_once() {
    let folder = folder();
    folder.success("ingest --edges edges.tsv --undirected --dedup --edge-split 80/10/10 --chunks 5 --out out.grappa");
    let [graph, val, test] = checked_parts(&folder);
    let input = parsed(&folder.read("edges.tsv"));
    for held_out in [&val, &test] {
        assert_eq!(held_out.len(), pairs(held_out).len());
    }
    let directions: BTreeSet<_> = graph.iter().map(|&(source, target, _)| (source, target)).collect();
    assert!(
        directions
            .iter()
            .all(|&(source, target)| directions.contains(&(target, source)))
    );
    let all: BTreeSet<_> = [graph, val, test].iter().flat_map(pairs).collect();
    assert_eq!(all, pairs(&input));
}

#[test]
fn threads_and_memory_do_not_change_the_parts() {
    let folder = folder();
    let ingest = |out: &str, options: &str| {
        folder.success(&format!(
            "ingest --edges edges.tsv --undirected --edge-split 70/20/10 --chunks 3 --out {out} {options}"
        ));
    };
    ingest("out.grappa", "--threads 1");
    for (threads, memory) in [(3, "8MiB"), (2, "4MiB")] {
        ingest(
            "other.grappa",
            &format!("--threads {threads} --memory {memory} --force"),
        );
        assert_same(&folder.path("other.grappa"), &folder.files("out.grappa"), memory);
    }
}

#[test]
fn a_slice_has_the_edges_of_its_chunks() {
    let folder = folder();
    folder.success("ingest --edges edges.tsv --edge-split 80/10/10 --chunks 4 --out out.grappa");
    folder.success("store place out.grappa --chunks 0-1 --to half.grappa");
    folder.success("store verify half.grappa");
    let edges = |store: &str, name: &str| {
        let info: Value = folder.success(&format!("store info --json {store}")).json();
        info[name].as_u64().unwrap()
    };
    folder.success("store place out.grappa --chunks 2-3 --to other.grappa");
    for name in ["edges", "edges_val", "edges_test"] {
        let halves = edges("half.grappa", name) + edges("other.grappa", name);
        assert_eq!(halves, edges("out.grappa", name), "{name}");
    }
    folder
        .run("store place out.grappa --chunks 0-1 --edges inside --to inside.grappa")
        .failure(&["the store holds edges out of the graph", "--edges all"]);
}

#[test]
fn parts_that_do_not_exist_are_errors() {
    let folder = folder();
    folder
        .run("ingest --edges edges.tsv --edge-split 80/10/5 --out out.grappa")
        .failure(&["add up to less than 100 percent"]);
    folder.success("ingest --edges edges.tsv --edge-split 90/10/0 --out out.grappa");
    folder
        .run("store export out.grappa --test-edges test.txt")
        .failure(&["no edges are held out for test", "--edge-split"]);
    folder.success("store export out.grappa --val-edges val.csv");
}

#[test]
fn damage_of_held_out_edges_is_found() {
    let folder = folder();
    folder.success("ingest --edges edges.tsv --edge-split 80/10/10 --chunks 2 --out out.grappa");
    let name = "out.grappa/chunk-1/test-edges";
    let mut bytes = folder.bytes(name);
    bytes[4100] ^= 1;
    folder.write(name, bytes);
    let verified = folder.run("store verify out.grappa").failure(&["1 problem found"]);
    assert!(verified.stdout.contains("chunk-1/test-edges"), "{}", verified.stdout);
}
