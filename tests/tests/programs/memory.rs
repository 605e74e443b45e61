//! Programs stay within `--memory`, or name the memory that they need.

use grappa_tests::{
    folder::{ProgramFolder, least_memory},
    npy::Npy,
    program::{Ran, run},
    random::Random,
};

/// Memory of a program and its libraries, beside the budget.
const PROGRAM_BYTES: u64 = 20 << 20;

/// Checks that a program has had a budget of `mib` MiB.
#[track_caller]
fn assert_within(mib: u64, ran: &Ran) {
    let peak = ran.json()["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak < (mib << 20) + PROGRAM_BYTES, "{peak}");
}

/// Checks that the leases of each phase of a program add up to its limit at most.
#[track_caller]
fn assert_leased(ran: &Ran) {
    let json = ran.json();
    let (limit, phases) = (json["memory"]["limit"].as_u64().unwrap(), json["memory"]["phases"].as_array().unwrap());
    assert!(!phases.is_empty(), "{json}");
    for phase in phases {
        let leases = phase["leases"].as_array().unwrap();
        let leased: u64 = leases.iter().map(|lease| lease["bytes"].as_u64().unwrap()).sum();
        assert!(0 < leased && leased <= limit, "{phase}");
    }
}

/// A folder with a graph with few edges.
fn few_edges(nodes: usize, dim: usize) -> ProgramFolder {
    let folder = ProgramFolder::new();
    let last = nodes - 1;
    folder.write("edges.tsv", format!("0 {last}\n{last} 0\n1 2\n"));
    let mut random = Random::new(1);
    let values = (0..nodes * dim).map(|_| random.unit() as f32);
    Npy::new(&[nodes, dim], values).write(&folder.path("x.npy"));
    let labels = (0..nodes).map(|node| (node % 7) as i64);
    Npy::new(&[nodes], labels).write(&folder.path("y.npy"));
    folder
}

fn ingest(out: &str, threads: u32, memory: &str) -> String {
    let files = "--edges edges.tsv --features x.npy --labels y.npy";
    format!("ingest {files} --chunks 8 --json --out {out} --threads {threads} --memory {memory}")
}

#[test]
fn features_and_labels_are_read_within_the_budget_on_many_threads() {
    // Rows of 256 bytes, and rows of one byte.
    for (nodes, dim, threads, mib) in [(200_000, 64, 24, 24), (3_000_000, 1, 4, 16)] {
        let folder = few_edges(nodes, dim);
        folder.success(&ingest("one", 1, "1GiB"));
        assert_within(mib, &folder.success(&ingest("many", threads, &format!("{mib}MiB"))));
        assert!(folder.files("one") == folder.files("many"));
    }
}

#[test]
fn a_run_that_was_killed_while_it_read_features_continues_with_other_memory() {
    need_faults!();
    let folder = few_edges(100_000, 32);
    run(folder.command(&ingest("whole", 2, "4MiB")).env("GRAPPA_KILL_LOG", "log")).success();
    let log = folder.read("log");
    let changes: Vec<_> = log.lines().collect();
    let first = |text: &str| changes.iter().position(|change| change.contains(text)).unwrap();
    for (column, chunk) in [("scratch/labels-", "chunk-0/labels"), ("scratch/features-", "chunk-0/features")] {
        let spilling = first(column)..first(chunk);
        let mut appends = spilling.filter(|&at| changes[at].contains("append to"));
        // Each thread records its blocks when it ends. The run dies before the second thread does.
        let kill_at = 1 + appends.next_back().unwrap();
        let mut killed = folder.command(&ingest("killed", 2, "4MiB"));
        assert_eq!(run(killed.env("GRAPPA_KILL_AT", kill_at.to_string())).code, None);
        folder.success(&format!("{} --resume", ingest("killed", 3, "64MiB")));
        assert!(folder.files("whole") == folder.files("killed"), "{column}");
        folder.remove("killed");
    }
}

#[test]
fn many_chunks_stay_within_the_budget_or_are_refused_with_one_that_suffices() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n");
    for make in ["ingest --edges edges.tsv --out ingested", "gen er --edge-factor 1 --out generated"] {
        let line = format!("{make} --nodes 10000 --chunks 2048 --threads 1 --json --memory");
        let refused = folder.run(&format!("{line} 64MiB"));
        refused.failure(&["2048 x 2048 pairs of chunks", "at least 96 MiB", "--memory", "--chunks"]);
        assert_within(96, &folder.success(&format!("{line} 96MiB")));
    }
}

/// A folder with a store of an R-MAT graph, in which many nodes have no in-neighbors.
fn rmat_on_disk(options: &str) -> ProgramFolder {
    let folder = ProgramFolder::on_disk();
    folder.success(&format!("gen rmat --chunks 8 --quiet --out graph {options}"));
    folder
}

/// Results of nodes without in-neighbors are put between the results of the others.
#[test]
fn wide_rows_are_aggregated_within_the_budget() {
    for (features, aggregate) in [
        ("--feature-dim 4096", "preaggregate graph --kind mean"),
        ("", "add-features graph --kind fastrp --dim 4096 --hops 2"),
    ] {
        let folder = rmat_on_disk(&format!("--scale 13 --edge-factor 4 {features}"));
        let aggregated = folder.success(&format!("store {aggregate} --memory 24MiB --threads 2 --json"));
        assert_within(24, &aggregated);
        assert_leased(&aggregated);
    }
}

#[test]
fn edges_are_exported_within_the_budget_on_many_threads_or_refused_with_one_that_suffices() {
    let folder = rmat_on_disk("--scale 17");
    for kind in ["tsv", "npy"] {
        let export = |number: u32, memory: &str, threads: u32| {
            let options = format!("--memory {memory} --threads {threads}");
            folder.run(&format!("store export graph --edges {number}.{kind} --json {options}"))
        };
        export(1, "1GiB", 1).success();
        let refused = export(2, "1MiB", 24).failure(&["blocks of edges for 24 threads", "--threads"]);
        let least = least_memory(&refused);
        assert!(least.trim_end_matches("MiB").parse::<u64>().unwrap() < 16, "{least}");
        for (number, memory) in [(3, &*least), (4, "16MiB")] {
            let exported = export(number, memory, 24).success();
            assert_within(16, &exported);
            assert_leased(&exported);
        }
        let files = [1, 3, 4].map(|number| folder.bytes(&format!("{number}.{kind}")));
        assert!(files[1] == files[0] && files[2] == files[0]);
    }
}
