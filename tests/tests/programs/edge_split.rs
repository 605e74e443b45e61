//! Edges that are held out of the graph: `grappa-ingest --edge-split`, `--val-edges` and `--test-edges`, and what other programs do with them.

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
    edges.iter().map(|&(source, target, _)| (source.min(target), source.max(target))).collect()
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
    assert!(directions.iter().all(|&(source, target)| directions.contains(&(target, source))));
    let all: BTreeSet<_> = [graph, val, test].iter().flat_map(pairs).collect();
    assert_eq!(all, pairs(&input));
}

/// Writes files for validation and test: some of the edges, and some that are in no other file.
fn write_held_out(folder: &ProgramFolder) {
    let edges = folder.read("edges.tsv");
    for (name, at) in [("val.tsv", 3), ("test.tsv", 8)] {
        let some = edges.lines().skip(at).step_by(10).map(|line| format!("{line}\n"));
        let new = (0..40).map(|node| format!("{node} {} 0.5\n", (node * 7 + at as u64) % NODES));
        folder.write(name, some.chain(new).collect::<String>());
    }
}

#[test]
fn files_hold_their_edges_out_of_the_graph() {
    let folder = folder();
    write_held_out(&folder);
    let told = folder.success("ingest --edges edges.tsv --val-edges val.tsv --test-edges test.tsv --out out.grappa");
    assert!(told.stderr.contains("some edges of the graph are also held out"), "{}", told.stderr);
    let [edges, val, test] = ["edges.tsv", "val.tsv", "test.tsv"].map(|name| parsed(&folder.read(name)));
    let ends = |edges: &Edges| edges.iter().map(|edge| (edge.0, edge.1)).collect::<Vec<_>>();
    let held_out: BTreeSet<_> = ends(&val).into_iter().chain(ends(&test)).collect();
    let expected: Vec<_> = ends(&edges).into_iter().filter(|edge| !held_out.contains(edge)).collect();
    assert!(expected.len() < edges.len() * 9 / 10, "the files share too few edges");
    assert_eq!(ends(&exported(&folder, "edges")), expected);
    assert_eq!(ends(&exported(&folder, "val-edges")), ends(&val));
    assert_eq!(ends(&exported(&folder, "test-edges")), ends(&test));
    folder.success("store verify out.grappa");
    assert!(!folder.success("store info out.grappa").stdout.contains("random,"));

    // With both directions of each edge, a part lists each edge once, and the graph has neither direction.
    let files = "--edges edges.tsv --val-edges val.tsv --undirected --dedup";
    folder.success(&format!("ingest {files} --self-loops drop --out out.grappa --force"));
    let (graph, listed) = (exported(&folder, "edges"), exported(&folder, "val-edges"));
    let loopless = |edges: &Edges| pairs(edges).into_iter().filter(|(a, b)| a != b).collect::<BTreeSet<_>>();
    assert_eq!((listed.len(), pairs(&listed)), (loopless(&val).len(), loopless(&val)));
    let expected: BTreeSet<_> = loopless(&edges).difference(&loopless(&val)).copied().collect();
    assert_eq!((graph.len(), pairs(&graph)), (2 * expected.len(), expected));
}

#[test]
fn the_last_edges_are_held_out_if_a_column_has_their_times() {
    let folder = ProgramFolder::new();
    let mut random = Random::new(6);
    // Every time but the last ones is there four times, and negative ones too.
    let time = |edge: u64| edge as i64 / 4 - 100;
    let mut lines: Vec<_> =
        (0..1001).map(|edge| format!("n{} n{} {}\n", edge * 3 % 1009, edge * 5 % 1009 + 1009, time(edge))).collect();
    for at in (1..lines.len()).rev() {
        lines.swap(at, random.below(at as u64 + 1) as usize);
    }
    folder.write("edges.tsv", format!("src dst time\n{}", lines.concat()));
    let options = "--edges edges.tsv --ids string --edge-features-from time --edge-split 80/15/5 --edge-split-by time";
    for (threads, memory) in [(1, "64MiB"), (3, "4MiB")] {
        folder.success(&format!("ingest {options} --threads {threads} --memory {memory} --out out.grappa --force"));
        let mut seen = i64::MIN;
        for (part, expected) in [("edges", 800), ("val-edges", 148), ("test-edges", 53)] {
            folder.success(&format!("store export out.grappa --{part} part.csv --force"));
            let text = folder.read("part.csv");
            let times: Vec<i64> =
                text.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
            assert_eq!(times.len(), expected, "{part}");
            assert!(times.iter().all(|&time| time > seen), "{part} begins before the part before it ends");
            seen = *times.iter().max().unwrap();
        }
    }
    assert!(folder.success("store info out.grappa").stdout.contains("(80/15/5 by time)"));
    let ingest = |more: &str| folder.run(&format!("ingest --edges edges.tsv --ids string {more} --out new.grappa"));
    ingest("--edge-split 80/10/10 --edge-split-by hour")
        .failure(&["there is no column hour", "--edge-split-by one of 1, 2, 3"]);
    folder.write("edges.tsv", "src dst time\na b 1\nb c 1\nc d 1\n");
    ingest("--edge-features-from time --edge-split 40/30/30 --edge-split-by time")
        .failure(&["have the value 1", "the graph would have no edges"]);
}

#[test]
fn times_split_edges_exactly_whether_they_are_features_or_not() {
    let folder = ProgramFolder::new();
    let nanoseconds = |edge: u64| 1_700_000_000_000_000_000 + 1_000_000 * edge;
    let date = |edge: u64| {
        format!("2024-{:02}-{:02}T12:{:02}:{:02}", 1 + edge / 100, 1 + edge % 28, edge / 60 % 60, edge % 60)
    };
    for (ids, memory) in [("dense", "64MiB"), ("string", "64MiB"), ("string", "2MiB")] {
        for (more, time) in [
            ("", Box::new(|edge: u64| (1_700_000_000 + edge).to_string()) as Box<dyn Fn(u64) -> String>),
            ("", Box::new(|edge| nanoseconds(edge).to_string())),
            ("", Box::new(|edge| date(100 * (edge / 100) + edge % 28 * 3))),
            ("--edge-features-from kind --dedup --merge max", Box::new(|edge| (1_700_000_000 + edge).to_string())),
        ] {
            let mut rows: Vec<_> = (0..1000_u64).map(|edge| (edge, time(edge))).collect();
            let mut random = Random::new(3);
            for at in (1..rows.len()).rev() {
                rows.swap(at, random.below(at as u64 + 1) as usize);
            }
            let lines = rows
                .iter()
                .map(|(edge, time)| format!("{edge},{},{time},{}\n", edge + 1, ["a", "b"][*edge as usize % 2]));
            folder.write("edges.csv", format!("src,dst,time,kind\n{}", lines.collect::<String>()));
            let columns = "--src src --dst dst --edge-split 60/20/20 --edge-split-by time";
            folder.success(&format!(
                "ingest --edges edges.csv --ids {ids} --memory {memory} {columns} {more} --out out.grappa --force"
            ));
            let mut order: Vec<_> =
                rows.iter().map(|(edge, time)| (time.parse::<u64>().unwrap_or(0), time, *edge)).collect();
            order.sort();
            let mut seen = 0;
            for (part, least) in [("edges", 590), ("val-edges", 180), ("test-edges", 180)] {
                folder.success(&format!("store export out.grappa --{part} part.csv --force"));
                let text = folder.read("part.csv");
                let mut found: Vec<u64> =
                    text.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
                assert!(found.len() >= least, "{part}: {}", found.len());
                let mut expected: Vec<u64> = order[seen..][..found.len()].iter().map(|(.., edge)| *edge).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{ids} {memory} {more} {part}");
                seen += found.len();
            }
        }
    }
}

#[test]
fn columns_of_edges_become_numbers_as_those_of_nodes() {
    let folder = ProgramFolder::new();
    folder.write(
        "edges.csv",
        "src,dst,at,kind,amount\n0,1,2024-01-02T06:00,buy,3.5\n1,2,2024-01-01,view,\n2,0,2024-01-03,buy,1\n",
    );
    let options = "--edges edges.csv --edge-features-from at,kind,amount";
    folder.run(&format!("ingest {options} --out out.grappa")).failure(&["missing values in amount", "--missing mean"]);
    let ran = folder.success(&format!("ingest {options} --missing amount=indicator --out out.grappa"));
    assert!(ran.stdout.contains("at is a date"), "{}", ran.stdout);
    folder.success("store export out.grappa --edges edges.out.csv");
    let text = folder.read("edges.out.csv");
    let mut lines: Vec<&str> = text.lines().collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "source,target,at,kind=buy,kind=view,kind=other,amount,amount_missing",
            "0,1,19724.25,1,0,0,3.5,0",
            "1,2,19723,0,1,0,2.25,1",
            "2,0,19725,1,0,0,1,0",
        ]
    );
    // Another table gets the same columns, and its new categories are other.
    folder.write("next.csv", "src,dst,at,kind,amount\n0,1,2024-02-01,sell,\n");
    let options = "--edges next.csv --edge-features-from at,kind,amount --schema-of out.grappa";
    folder.success(&format!("ingest {options} --out next.grappa"));
    folder.success("store export next.grappa --edges next.out.csv");
    assert!(folder.read("next.out.csv").ends_with("0,1,19754,0,0,1,2.25,1\n"), "{}", folder.read("next.out.csv"));
    folder
        .run("ingest --edges next.csv --edge-features-from kind,at --src src --dst dst --schema-of out.grappa --out x.grappa")
        .failure(&["--schema-of has other edge features", "--edge-features-from at,kind,amount"]);
}

#[test]
fn ids_that_do_not_fit_in_memory_keep_the_parts_of_their_files() {
    let folder = ProgramFolder::new();
    let mut random = Random::new(8);
    for (name, edges) in [("edges.tsv", 120_000), ("val.tsv", 2000), ("test.tsv", 2000)] {
        let mut line = |_| format!("{} {}\n", random.below(1 << 40), random.below(1 << 40));
        folder.write(name, (0..edges).map(&mut line).collect::<String>());
    }
    let ingest = |out: &str, memory: &str| {
        let files = "--edges edges.tsv --val-edges val.tsv --test-edges test.tsv --ids sparse --chunks 3";
        folder.success(&format!("ingest {files} --memory {memory} --out {out}"));
    };
    ingest("out.grappa", "64MiB");
    ingest("joined.grappa", "4MiB");
    assert_same(&folder.path("joined.grappa"), &folder.files("out.grappa"), "4MiB");
    let info = folder.success("store info --json out.grappa").json();
    assert_eq!([&info["edges"], &info["edges_val"], &info["edges_test"]], [120_000, 2000, 2000]);
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
        ingest("other.grappa", &format!("--threads {threads} --memory {memory} --force"));
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
    folder.write("empty.tsv", "# nothing\n");
    let ingest = |options: &str| folder.run(&format!("ingest --edges edges.tsv {options} --out new.grappa"));
    ingest("--val-edges empty.tsv").failure(&["the files of --val-edges have no edges", "omit --val-edges"]);
    ingest("--val-edges edges.tsv").failure(&["edges.tsv", "named twice"]);
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
