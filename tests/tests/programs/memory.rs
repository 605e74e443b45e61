//! Programs stay within `--memory`, or name the memory that they need.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::{
    files::{files_of, memory_folder},
    held,
    npy::Npy,
    program::{self, Ran, command, run},
    random::Random,
};
use tempfile::TempDir;

/// Memory of a program and its libraries, beside the budget.
const PROGRAM_BYTES: u64 = 20 << 20;

/// The input files of a graph with few edges.
struct Input {
    folder: TempDir,
    edges: PathBuf,
    features: PathBuf,
    labels: PathBuf,
}

impl Input {
    fn new(nodes: usize, dim: usize) -> Self {
        let folder = memory_folder();
        let [edges, features, labels] =
            ["edges.tsv", "features.npy", "labels.npy"].map(|name| folder.path().join(name));
        let last = nodes - 1;
        fs::write(&edges, format!("0 {last}\n{last} 0\n1 2\n")).unwrap();
        let mut random = Random::new(1);
        let values = (0..nodes * dim).map(|_| random.unit() as f32);
        Npy::new(&[nodes, dim], values).write(&features);
        Npy::new(&[nodes], (0..nodes).map(|node| (node % 7) as i64)).write(&labels);
        Self {
            folder,
            edges,
            features,
            labels,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ingest(&self, store: &Path, threads: &str, memory: &str) -> Command {
        let mut command = program::ingest(&self.edges, store);
        command.arg("--features").arg(&self.features);
        command.arg("--labels").arg(&self.labels);
        command.args(["--chunks", "8", "--json", "--threads", threads, "--memory", memory]);
        command
    }
}

fn peak(ran: &Ran) -> u64 {
    ran.json()["peak_rss_bytes"].as_u64().unwrap()
}

#[test]
fn features_and_labels_are_read_within_the_budget_on_many_threads() {
    // Rows of 256 bytes, and rows of one byte.
    for (nodes, dim, threads, mib) in [(200_000, 64, "24", 24), (3_000_000, 1, "4", 16)] {
        let input = Input::new(nodes, dim);
        let [one, many] = ["one.grappa", "many.grappa"].map(|name| input.path(name));
        run(&mut input.ingest(&one, "1", "1GiB")).success();
        let ran = run(&mut input.ingest(&many, threads, &format!("{mib}MiB"))).success();
        let peak = peak(&ran);
        assert!(peak < (mib << 20) + PROGRAM_BYTES, "{peak}");
        assert!(files_of(&one) == files_of(&many));
    }
}

#[test]
fn a_run_that_was_killed_while_it_read_features_continues_with_other_memory() {
    if !held::IS_POSSIBLE {
        grappa_skip::skip!("{}", held::WHY_NOT);
    }
    let input = Input::new(100_000, 32);
    let [whole, killed, log] = ["whole.grappa", "killed.grappa", "log"].map(|name| input.path(name));
    run(input.ingest(&whole, "2", "4MiB").env("GRAPPA_KILL_LOG", &log)).success();
    let log = fs::read_to_string(log).unwrap();
    let changes: Vec<_> = log.lines().collect();
    let first = |text: &str| changes.iter().position(|change| change.contains(text)).unwrap();
    for (column, chunk) in [
        ("scratch/labels-", "chunk-0/labels"),
        ("scratch/features-", "chunk-0/features"),
    ] {
        let spilling = first(column)..first(chunk);
        let mut appends = spilling.filter(|&at| changes[at].contains("append to"));
        // Each thread records its blocks when it ends. The run dies before the second thread does.
        let kill_at = 1 + appends.next_back().unwrap();
        let mut ingest = input.ingest(&killed, "2", "4MiB");
        assert_eq!(run(ingest.env("GRAPPA_KILL_AT", kill_at.to_string())).code, None);
        run(input.ingest(&killed, "3", "64MiB").arg("--resume")).success();
        assert!(files_of(&whole) == files_of(&killed), "{column}");
        fs::remove_dir_all(&killed).unwrap();
    }
}

#[test]
fn many_chunks_stay_within_the_budget_or_are_refused_with_one_that_suffices() {
    let folder = memory_folder();
    let [edges, ingested, generated] = ["edges.tsv", "i.grappa", "g.grappa"].map(|name| folder.path().join(name));
    fs::write(&edges, "0 1\n").unwrap();
    let ingest = |memory: &str| {
        let mut ingest = program::ingest(&edges, &ingested);
        ingest.args(["--nodes", "10000", "--chunks", "2048", "--threads", "1", "--json"]);
        run(ingest.args(["--memory", memory]))
    };
    let generate = |memory: &str| {
        let mut generate = command("grappa-gen");
        generate.args([
            "er",
            "--nodes",
            "10000",
            "--edge-factor",
            "1",
            "--chunks",
            "2048",
            "--threads",
            "1",
            "--json",
        ]);
        run(generate.args(["--memory", memory, "--out"]).arg(&generated))
    };
    let wanted = ["2048 x 2048 pairs of chunks", "at least 96 MiB", "--memory", "--chunks"];
    ingest("64MiB").failure(&wanted);
    generate("64MiB").failure(&wanted);
    for ran in [ingest("96MiB").success(), generate("96MiB").success()] {
        let peak = peak(&ran);
        assert!(peak < (96 << 20) + PROGRAM_BYTES, "{peak}");
    }
}

/// A store of an R-MAT graph, in which many nodes have no in-neighbors, with `more` options. It is on a disk, because a file system in memory
/// has no page cache to bypass or to count.
fn rmat_on_disk(more: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("graph.grappa");
    let mut generate = command("grappa-gen");
    generate.args(["rmat", "--chunks", "8", "--quiet", "--out"]).arg(&store);
    run(generate.args(more)).success();
    (folder, store)
}

/// Results of nodes without in-neighbors are put between those of the others.
#[test]
fn wide_rows_are_aggregated_within_the_budget() {
    const MIB: u64 = 24;
    let memory = format!("{MIB}MiB");
    let check = |subcommand: &str, store: &Path, more: &[&str]| {
        let mut aggregate = command("grappa-store");
        aggregate
            .arg(subcommand)
            .arg(store)
            .args(["--memory", &memory, "--threads", "2", "--json"]);
        let peak = peak(&run(aggregate.args(more)).success());
        assert!(peak < (MIB << 20) + PROGRAM_BYTES, "{subcommand}: {peak}");
    };
    let size = ["--scale", "13", "--edge-factor", "4"];
    let (_folder, store) = rmat_on_disk(&[&size[..], &["--feature-dim", "4096"]].concat());
    check("preaggregate", &store, &["--kind", "mean"]);
    let (_folder, store) = rmat_on_disk(&size);
    check(
        "add-features",
        &store,
        &["--kind", "fastrp", "--dim", "4096", "--hops", "2"],
    );
}

#[test]
fn edges_are_exported_within_the_budget_on_many_threads_or_refused_with_one_that_suffices() {
    let (folder, store) = rmat_on_disk(&["--scale", "17"]);
    let export = |name: &str, memory: &str, threads: &str| {
        let mut export = command("grappa-store");
        export
            .arg("export")
            .arg(&store)
            .arg("--edges")
            .arg(folder.path().join(name));
        run(export.args(["--json", "--threads", threads, "--memory", memory]))
    };
    for kind in ["tsv", "npy"] {
        let name = |number: u32| format!("{number}.{kind}");
        export(&name(1), "1GiB", "1").success();
        let refused = export(&name(2), "1MiB", "24").failure(&["blocks of edges for 24 threads", "--threads"]);
        let least = refused.stderr.split("at least ").nth(1).expect("what is needed");
        let least = least.split(" is needed").next().expect("a size");
        assert!(least.trim_end_matches(" MiB").parse::<u64>().unwrap() < 16, "{least}");
        for (number, memory) in [(3, least), (4, "16MiB")] {
            let peak = peak(&export(&name(number), memory, "24").success());
            assert!(peak < (16 << 20) + PROGRAM_BYTES, "{memory}: {peak}");
        }
        let files = [1, 3, 4].map(|number| fs::read(folder.path().join(name(number))).unwrap());
        assert!(files[1] == files[0] && files[2] == files[0]);
    }
}
