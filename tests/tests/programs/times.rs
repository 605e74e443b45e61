//! Edges with times: `grappa-ingest --time`, and what other programs do with them.

use std::fs;

use grappa_tests::{files::assert_same, folder::ProgramFolder, npy::Npy, random::Random};

const NODES: u64 = 300;
const EDGES: u64 = 5000;

/// A folder with random events: source, destination, weight, second. Some have equal times, some are the same twice.
fn folder() -> ProgramFolder {
    let folder = ProgramFolder::new();
    let mut random = Random::new(9);
    let mut line = || {
        let [source, target, time] = [NODES, NODES / 3, 40_000].map(|end| random.below(end));
        let time = if time % 3 == 0 { 7 } else { time };
        format!("{source},{target},{},{}\n", (source * 31 + target) % 64, 1_700_000_000 + time)
    };
    let mut lines: Vec<String> = (0..EDGES).map(|_| line()).collect();
    lines.push(lines[0].clone());
    folder.write("events.csv", format!("src,dst,weight,at\n{}", lines.concat()));
    folder
}

const INGEST: &str = "ingest --edges events.csv --time at --time-unit s --chunks 5";

/// The exported edges, a line each.
fn exported(folder: &ProgramFolder, store: &str) -> Vec<String> {
    folder.success(&format!("store export {store} --edges edges.tsv --force"));
    folder.read("edges.tsv").lines().map(str::to_owned).collect()
}

#[test]
fn a_store_has_the_times_of_the_input_in_their_order() {
    let folder = folder();
    folder.success(&format!("{INGEST} --out out.grappa"));
    folder.success("store verify out.grappa");
    let edges = exported(&folder, "out.grappa");
    let numbers = |line: &String| -> Vec<i64> {
        let words = line.split(['\t', ',']);
        words.map(|word| word.parse::<f64>().unwrap() as i64).collect()
    };
    // Lists follow each other in the order of destinations. In each, edges are in the order of time, then of source.
    let edges: Vec<Vec<i64>> = edges.iter().map(numbers).collect();
    for list in edges.chunk_by(|a, b| a[1] == b[1]) {
        assert!(list.is_sorted_by_key(|edge| edge[2]), "{list:?}");
    }
    let mut found: Vec<_> = edges.iter().map(|edge| vec![edge[0], edge[1], edge[3], edge[2]]).collect();
    let mut expected: Vec<_> =
        folder.read("events.csv").lines().skip(1).map(|line| numbers(&line.to_owned())).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let info = folder.success("store info --json out.grappa").json();
    let times = &info["times"];
    assert_eq!((&times["unit"], &times["table"]), (&"s".into(), &false.into()), "{times}");
    assert!(times["bits_per_edge"].as_f64().unwrap() < 32.0, "{times}");
}

#[test]
fn an_export_is_ingested_to_the_same_store() {
    let folder = folder();
    folder.success(&format!("{INGEST} --out out.grappa"));
    for format in ["csv", "parquet"] {
        folder.success(&format!("store export out.grappa --edges again.{format}"));
        let form = "--src source --dst target --weight weight --time time --time-unit s --chunks 5";
        folder.success(&format!("ingest --edges again.{format} {form} --nodes {NODES} --out {format}.grappa"));
        let mut expected = folder.files("out.grappa");
        // The manifest counts the lines that were read.
        expected.retain(|path, _| !path.ends_with("manifest"));
        let mut found = folder.files(&format!("{format}.grappa"));
        found.retain(|path, _| !path.ends_with("manifest"));
        assert!(found == expected, "{format}");
    }
}

#[test]
fn a_store_does_not_depend_on_threads_and_memory() {
    let folder = folder();
    folder.success(&format!("{INGEST} --threads 1 --out out.grappa"));
    let expected = folder.files("out.grappa");
    for (number, more) in ["--threads 3 --memory 16MiB", "--threads 2 --memory 300MiB"].iter().enumerate() {
        folder.success(&format!("{INGEST} {more} --out {number}.grappa"));
        assert_same(&folder.path(&format!("{number}.grappa")), &expected, more);
    }
}

#[test]
fn ids_that_are_joined_on_disk_keep_the_times_of_their_edges() {
    let folder = ProgramFolder::new();
    let line = |k: u64| format!("c-{k}\td-{}\t{}\n", k * 7 % 60_000, 1_000_000 - k * k % 90_001);
    folder.write("events.tsv", (0..60_000).map(line).collect::<String>());
    let ingest = "ingest --edges events.tsv --ids string --src 1 --dst 2 --time 3 --chunks 2 --threads 2";
    folder.success(&format!("{ingest} --memory 256MiB --out out.grappa"));
    folder.success(&format!("{ingest} --memory 4MiB --out joined.grappa"));
    assert_same(&folder.path("joined.grappa"), &folder.files("out.grappa"), "joined");
    folder.success("store verify joined.grappa");
}

#[test]
fn edges_without_times_have_the_bytes_of_before() {
    let folder = folder();
    folder.success("ingest --edges events.csv --src src --dst dst --out out.grappa");
    let names = folder.files("out.grappa");
    assert!(names.keys().all(|path| !path.to_string_lossy().contains("time")));
    // Version 1 of `edges`, whose meta begins with a codec of 0 or 1.
    let edges = fs::read(folder.path("out.grappa/chunk-0/edges")).unwrap();
    assert!(edges[12] == 1 && edges[64] < 2);
}

#[test]
fn few_distinct_times_are_a_table() {
    let folder = ProgramFolder::new();
    let mut random = Random::new(3);
    let line = |random: &mut Random| {
        let [source, target, year] = [50, 50, 30].map(|end| random.below(end));
        format!("{source}\t{target}\t{}-07-01\n", 1990 + year)
    };
    folder.write("events.tsv", (0..4000).map(|_| line(&mut random)).collect::<String>());
    folder.success("ingest --edges events.tsv --src 1 --dst 2 --time 3 --out out.grappa");
    folder.success("store verify out.grappa");
    let times = &folder.success("store info --json out.grappa").json()["times"];
    assert_eq!((&times["unit"], &times["table"], &times["positions"]), (&"days".into(), &true.into(), &30.into()));
    assert_eq!((&times["first"], &times["last"]), (&7486.into(), &18_078.into()));
}

#[test]
fn both_directions_and_parts_have_times() {
    let folder = folder();
    let split = "--undirected --edge-split 80/10/10 --edge-split-by at";
    folder.success(&format!("{INGEST} {split} --out out.grappa"));
    folder.success("store verify out.grappa");
    let graph: u64 = exported(&folder, "out.grappa").len() as u64;
    folder.success("store export out.grappa --val-edges val.csv --test-edges test.csv");
    let held_out = ["val.csv", "test.csv"].map(|name| folder.read(name).lines().count() as u64 - 1);
    // Self-loops are listed once.
    assert!(graph + 2 * (held_out[0] + held_out[1]) <= 2 * (EDGES + 1));
    assert!(graph > 7000 && held_out[0] > 300 && held_out[1] > 300, "{graph} {held_out:?}");
    let last = |name: &str| -> Vec<i64> {
        let lines = folder.read(name);
        lines.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse().unwrap()).collect()
    };
    assert!(last("val.csv").iter().max() <= last("test.csv").iter().min());
}

#[test]
fn relations_have_times_of_their_own() {
    let folder = ProgramFolder::new();
    folder.write("buys.csv", "user,item,at\n1,10,2024-01-05\n2,10,2024-01-03\n1,11,2024-01-04\n");
    folder.write("likes.csv", "user,item\n1,10\n");
    folder.success(
        "ingest --edges user:buys:item=buys.csv --edges user:likes:item=likes.csv --ids sparse --src buys=user --dst buys=item \
         --src likes=user --dst likes=item --time buys=at --reverse --out out.grappa",
    );
    folder.success("store verify out.grappa");
    let info = folder.success("store info --json out.grappa").json();
    let unit = |name: &str| {
        let relations = info["relations"].as_array().unwrap();
        relations.iter().find(|relation| relation["relation"] == name).unwrap()["times"]["unit"].clone()
    };
    assert_eq!([unit("buys"), unit("rev_buys")], ["days", "days"]);
    assert!(unit("likes").is_null());
    folder.success("store export out.grappa --relation user:buys:item --edges buys.tsv");
    let mut lines: Vec<String> = folder.read("buys.tsv").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["1\t10\t19727", "1\t11\t19726", "2\t10\t19725"]);
}

#[test]
fn bad_times_are_errors_that_name_line_value_and_remedy() {
    let folder = ProgramFolder::new();
    for (value, unit, parts) in [
        ("soon", "", &["events.csv:3", "soon", "neither an integer nor a date"][..]),
        ("", "", &["events.csv:3", "the value of --time is missing"]),
        (
            "1289241911.72836",
            "--time-unit s",
            &["events.csv:3", "1289241911.72836", "has a fraction", "--time-unit ms"],
        ),
        ("2024-01-02", "--time-unit integer", &["events.csv:3", "2024-01-02", "is a date", "--time-unit s"]),
        ("99999999999999999999", "", &["events.csv:3", "does not fit 64 bits", "--time-unit"]),
    ] {
        folder.write("events.csv", format!("src,dst,at\n0,1,5\n1,0,{value}\n"));
        folder
            .run(&format!("ingest --edges events.csv --src src --dst dst --time at {unit} --out out.grappa"))
            .failure(parts);
    }
    folder.write("events.csv", "src,dst,at\n0,1,2024-01-02\n1,0,2024-01-02T12:00\n1,0,2024-01-03T12:00\n");
    let columns = "--src src --dst dst --time at";
    folder.success(&format!("ingest --edges events.csv {columns} --out seconds.grappa"));
    let days = folder.run(&format!("ingest --edges events.csv {columns} --time-unit days --out out.grappa"));
    days.failure(&["events.csv:3", "not whole in the unit of the store, days", "--time-unit s"]);
    folder.run(&format!("ingest --edges events.csv {columns} --dedup --out out.grappa")).failure(&["--dedup", "omit"]);
    folder
        .run(&format!("ingest --edges events.csv {columns} --self-loops add --out out.grappa"))
        .failure(&["--self-loops add", "no time"]);
    folder.run("ingest --edges events.csv --src src --dst dst --time when --out out.grappa").failure(&["when", "at"]);
    Npy::new(&[2, 2], [0_i64, 1, 1, 0]).write(&folder.path("edges.npy"));
    folder.run("ingest --edges edges.npy --time 3 --out out.grappa").failure(&["times", "Parquet"]);
}

#[test]
fn draws_are_limited_by_the_time_of_the_seeds() {
    let folder = folder();
    folder.success(&format!("{INGEST} --out out.grappa"));
    let sampled = |more: &str| {
        let line = "store sample out.grappa --fanouts -1,-1 --batch 20 --batches 10 --seeds all --json";
        folder.success(&format!("{line} {more}")).json()["sampled_edges"].as_u64().unwrap()
    };
    let at = |time: u64, more: &str| sampled(&format!("--seed-time {time} {more}"));
    let (late, half, none) = (at(1_800_000_000, ""), at(1_700_020_000, ""), at(1_600_000_000, ""));
    assert!(0 < half && half < late, "{half} of {late}");
    assert_eq!(none, 0);
    assert!(at(1_700_020_000, "--time-window 500") < half);
    for more in ["--time-strict", "--time-hops edge", "--time-strategy last", "--threads 1 --view mapped"] {
        assert!(at(1_700_020_000, more) > 0, "{more}");
    }
    let sample = "store sample out.grappa --fanouts 5 --batch 20 --batches 2 --seeds all";
    for more in ["", "--seed-time 5", "--view mapped", "--seed-time 5 --view mapped"] {
        folder.success(&format!("{sample} --partitions 4 {more}"));
    }
    folder.run(&format!("{sample} --partitions 4 --halo none")).failure(&["halo is none", "halo stop"]);
    folder.run("store place out.grappa --chunks 0-1 --to slice.grappa").failure(&["edges have times", "whole store"]);
    folder.success("ingest --edges events.csv --src src --dst dst --out untimed.grappa");
    folder
        .run("store sample untimed.grappa --fanouts 5 --batch 2 --batches 2 --seeds all --seed-time 5")
        .failure(&["neither edges nor nodes have times", "--time"]);
}
