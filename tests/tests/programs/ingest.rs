//! Ingest: its output, budget, disk and options.

use std::{fs, ops::Range, path::PathBuf, process::Command};

use grappa_tests::{
    files::{assert_same, names_in},
    folder::{ProgramFolder, least_memory},
    graph::Graph,
    kills::tree_of,
    npy::Npy,
    program::{Ran, run},
    random::Random,
};

/// Runs `grappa-ingest` with these options. The store is `out.grappa`.
pub fn ingest(folder: &ProgramFolder, options: &str) -> Ran {
    folder.run(&format!("ingest --out out.grappa {options}"))
}

/// Runs it, and removes the store.
#[track_caller]
pub fn ingested(folder: &ProgramFolder, options: &str) -> Ran {
    let ran = ingest(folder, options).success();
    folder.remove("out.grappa");
    ran
}

/// Runs it. It must fail with a line that contains `parts`, and leave nothing behind.
#[track_caller]
pub fn refused(folder: &ProgramFolder, options: &str, parts: &[&str]) -> Ran {
    let before = folder.names();
    let ran = ingest(folder, options).failure(parts);
    assert_eq!(ran.stdout, "", "a failure has no result");
    assert_eq!(folder.names(), before, "left behind: {}", ran.stderr);
    ran
}

#[test]
fn an_existing_store_is_untouched() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n1 2\n");
    folder.write("other.tsv", "0 5\n");
    folder.write("bad.tsv", "0 x\n");
    ingest(&folder, "--edges edges.tsv").success();
    let before = folder.files("out.grappa");
    for more in ["", "--resume"] {
        refused(&folder, &format!("--edges other.tsv {more}"), &["out.grappa", "exists", "--force"]);
    }
    refused(&folder, "--edges bad.tsv", &[]);
    assert_same(&folder.path("out.grappa"), &before, "after three refusals");
    // Anything with the name of the output is kept, even if it is not a store.
    folder.remove("out.grappa");
    folder.write("out.grappa", "a letter");
    refused(&folder, "--edges edges.tsv", &["out.grappa", "exists"]);
    assert_eq!(folder.read("out.grappa"), "a letter");
}

#[test]
fn a_budget_that_is_too_small_names_one_that_would_do() {
    let folder = ProgramFolder::new();
    let lines: String = (0..100_000).map(|k| format!("{} 5\n", k % 1000)).collect();
    folder.write("hub.tsv", lines);
    for chunks in [2, 900] {
        let options = format!("--edges hub.tsv --chunks {chunks} --memory");
        let least = least_memory(&refused(&folder, &format!("{options} 1MiB"), &["raise --memory"]));
        ingested(&folder, &format!("{options} {least}"));
    }
}

#[test]
fn the_list_of_a_hub_fits_the_budget_that_the_refusal_names() {
    let folder = ProgramFolder::new();
    let edge = [0_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat();
    folder.write("parallel.u32", edge.repeat(4_000_000));
    let options = "--edges parallel.u32 --json --memory";
    let parts = ["adjacency list of node 1", "raise --memory"];
    let least = least_memory(&refused(&folder, &format!("{options} 8MiB"), &parts));
    let json = ingested(&folder, &format!("{options} {least}")).json();
    // The program and its libraries take some MiB.
    let most = (least.trim_end_matches("MiB").parse::<u64>().unwrap() + 24) << 20;
    assert!(json["peak_rss_bytes"].as_u64().unwrap() < most, "{json}");
}

/// Random edges to targets in a range, in binary.
fn random_edges(random: &mut Random, count: usize, targets: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 * count);
    for _ in 0..count {
        let target = targets.start + random.below(targets.end - targets.start);
        let source = random.below(8000) as u32;
        bytes.extend([source, target as u32].map(u32::to_le_bytes).concat());
    }
    bytes
}

/// The first chunk takes most of the memory to sort, and its buffers are kept. The second one exceeds the memory and is
/// divided.
#[test]
fn a_large_chunk_after_one_that_just_fits_is_sorted_like_with_more_memory() {
    let folder = ProgramFolder::new();
    let mut random = Random::new(3);
    let first = random_edges(&mut random, 300_000, 0..1000);
    let second = random_edges(&mut random, 1_000_000, 1000..2000);
    folder.write("skewed.u32", [first, second].concat());
    let [least, less, more] = ["8MiB", "12MiB", "1GiB"].map(|memory| {
        let options = "--edges skewed.u32 --nodes 8000 --assign range --chunks 8 --threads 1";
        ingest(&folder, &format!("{options} --force --memory {memory}")).success();
        tree_of(&folder.path("out.grappa"))
    });
    assert!(least == more, "8 MiB");
    assert!(less == more, "12 MiB");
}

#[test]
fn sparse_ids_need_neither_all_of_a_large_budget_nor_many_files_with_a_small_one() {
    let folder = ProgramFolder::new();
    let lines: String = (0..20_000).map(|k| format!("{k} {}\n", k + 1)).collect();
    folder.write("path.tsv", lines);
    let options = "--edges path.tsv --ids sparse --threads 2 --memory";
    let least = least_memory(&refused(&folder, &format!("{options} 1KiB"), &["raise --memory"]));
    for budget in [&least, "1TiB"] {
        ingested(&folder, &format!("{options} {budget}"));
    }
}

#[test]
fn skipped_lines_take_no_memory_however_many_there_are() {
    let folder = ProgramFolder::new();
    let lines = 1_000_000;
    folder.write("bad.tsv", format!("1 2\n{}", "x\n".repeat(lines)));
    let options = "--edges bad.tsv --on-bad-line skip --json --memory 16MiB --threads 1";
    let json = ingested(&folder, options).json();
    assert_eq!(json["rejected"], lines);
    // The program and its libraries take some MiB.
    assert!(json["peak_rss_bytes"].as_u64().unwrap() < 40 << 20, "{json}");
    let rejects = folder.read("out.grappa.rejects");
    assert_eq!(rejects.lines().count(), 1 + lines);
    let last = format!("bad.tsv\t:{}\t", lines + 1);
    assert!(rejects.lines().last().unwrap().contains(&last), "{rejects:.200}");
}

#[test]
fn names_of_columns_that_are_read_as_an_edge_or_a_header_are_a_warning() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "u\tv\nv\tw\n");
    for (more, edges_read, warned) in [("", 1, true), ("--header no", 2, false)] {
        let ran = ingested(&folder, &format!("--edges edges.tsv --ids string --json {more}"));
        assert_eq!(ran.json()["edges_read"], edges_read);
        for part in ["edges.tsv:1: ", "give --header no"] {
            assert_eq!(ran.stderr.contains(part), warned, "{}", ran.stderr);
        }
    }
}

#[test]
fn rows_belong_to_the_ids_of_a_file_or_a_warning_says_which_order_they_need() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "n2\tn10\nn10\tn1\n");
    Npy::new(&[4, 1], [2.0_f32, 10.0, 1.0, 7.0]).write(&folder.path("features.npy"));
    Npy::new(&[4], [2_i64, 0, 1, 0]).write(&folder.path("labels.npy"));
    folder.write("ids.txt", "n2\nn10\nn1\nn7\n");
    let rows = "--edges edges.tsv --ids string --features features.npy --labels labels.npy";
    let ran = ingest(&folder, &format!("{rows} --node-ids ids.txt --json")).success();
    assert_eq!((ran.json()["nodes"].as_u64(), ran.stderr.as_str()), (Some(4), ""));
    folder.success("store export out.grappa --features exported.npy --labels classes.npy");
    // In ascending order of the ids: n1, n10, n2, n7.
    let sorted = [1.0_f32, 10.0, 2.0, 7.0].map(f32::to_le_bytes).concat();
    assert!(folder.bytes("exported.npy").ends_with(&sorted));
    let sorted = [1_i64, 0, 2, 0].map(i64::to_le_bytes).concat();
    assert!(folder.bytes("classes.npy").ends_with(&sorted));
    folder.remove("out.grappa");

    folder.write("ids.txt", "n2\nn10\nn3\nn7\n");
    let parts = ["ids.txt", "features.npy and", "labels.npy", "for example n1;"];
    refused(&folder, &format!("{rows} --node-ids ids.txt"), &parts);

    // Without the ids, rows are in the order of the bytes of the ids in the edges.
    Npy::new(&[3, 1], [1.0_f32, 10.0, 2.0]).write(&folder.path("features.npy"));
    Npy::new(&[3], [1_i64, 0, 2]).write(&folder.path("labels.npy"));
    let stderr = ingested(&folder, rows).stderr;
    for part in ["features.npy and", "labels.npy", "n10 comes before n2", "--node-ids"] {
        assert!(stderr.contains(part), "expected {part:?} in: {stderr}");
    }
}

#[test]
fn chunks_that_cannot_be_made_are_refused() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n1 2\n");
    refused(&folder, "--edges edges.tsv --chunks 4", &["--chunks 3"]);
}

/// A file system of a few MiB, if this machine permits mounting one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// The error is the reason.
    fn mount(folder: PathBuf, mebibytes: u32) -> Result<Self, String> {
        fs::create_dir(&folder).unwrap();
        let options = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&folder).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(format!("cannot run mount: {error}")),
        }
    }

    fn grow(&self, mebibytes: u32) {
        let options = format!("remount,size={mebibytes}m");
        let output = Command::new("mount").args(["-o", &options]).arg(&self.0).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        let is_unmounted = unmounted.is_ok_and(|status| status.success());
        assert!(is_unmounted, "{} stays mounted", self.0.display());
    }
}

#[test]
fn a_full_disk_is_named_and_the_run_goes_on_once_there_is_room() {
    let folder = ProgramFolder::on_disk();
    let files = Graph::random(5, 20_000, 300_000, 24).write(folder.root());
    let ingest = |out: &str, more: &str| {
        let mut command = folder.command(&format!("ingest --edges edges.tsv --chunks 8 --out {out} {more}"));
        run(files.node_arguments(&mut command))
    };
    ingest("expected", "").success();
    let expected = folder.files("expected");
    // The disk is full while features are spilled, while they are written, and while edges are spilled.
    for mebibytes in [1, 3, 4] {
        let disk = match SmallDisk::mount(folder.path("disk"), mebibytes) {
            Ok(disk) => disk,
            Err(why) => grappa_skip::skip!("{why}"),
        };
        let parts = ["out.grappa.partial", "No space left on device", "--resume"];
        ingest("disk/out.grappa", "").failure(&parts);
        assert_eq!(names_in(&disk.0), ["out.grappa.partial"]);
        // The disk is still full, so it fails again.
        ingest("disk/out.grappa", "--resume").failure(&parts[1..]);
        disk.grow(64);
        ingest("disk/out.grappa", "--resume").success();
        assert_same(&disk.0.join("out.grappa"), &expected, &format!("{mebibytes} MiB at first"));
        drop(disk);
        folder.remove("disk");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n");
    for (options, parts) in grappa_skip::cases![
        "", &["--edges", "--out"][..];
        "--out out.grappa", &["--edges"];
        "--edges edges.tsv", &["--out"];
        "--ogb folder --node-ids ids.txt --out x.grappa", &["--ogb", "--node-ids"];
    ] {
        folder.run(&format!("ingest {options}")).misuse(parts);
    }
    for (options, parts) in [
        ("--edge x", &["--edges"][..]),
        ("--memory lots", &["lots", "--memory"]),
        ("--memory -1", &["-1"]),
        ("--chunks 0", &["--chunks"]),
        ("--threads 0", &["--threads"]),
        ("--nodes -4", &["-4"]),
        ("--format xml", &["xml", "parquet"]),
        ("--ids names", &["names", "string"]),
        ("--self-loops maybe", &["maybe", "keep"]),
        ("--assign metis", &["metis", "range"]),
        ("--feature-dtype f64", &["f64", "bf16"]),
        ("--ogb folder", &["--ogb"]),
    ] {
        ingest(&folder, &format!("--edges edges.tsv {options}")).misuse(parts);
    }
    folder.success("ingest --help");
    folder.success("ingest --version");
    assert_eq!(folder.names(), ["edges.tsv"]);
}

#[test]
fn the_result_is_one_json_object_and_progress_is_silent_off_a_terminal() {
    let folder = ProgramFolder::new();
    let lines: String = (0..50_000).map(|k| format!("{} {}\n", k % 1000, k % 777)).collect();
    folder.write("edges.tsv", lines);
    let ran = ingest(&folder, "--edges edges.tsv --json --chunks 3").success();
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
    let json = ran.json();
    let mut found: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    found.sort_unstable();
    let wanted = "bytes_on_disk chunks chunks_present class_names edges edges_per_second edges_read feature_names \
                  inputs memory nodes peak_rss_bytes rejected seconds";
    assert_eq!(found.join(" "), wanted);
    for (key, value) in [
        ("nodes", 1000),
        ("edges", 50_000),
        ("edges_read", 50_000),
        ("rejected", 0),
        ("chunks", 3),
        ("chunks_present", 3),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
    let memory = &json["memory"];
    let phases: Vec<_> = memory["phases"].as_array().unwrap().iter().collect();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["reading edges", "sorting and writing adjacency lists"]);
    for phase in phases {
        let leases = phase["leases"].as_array().unwrap();
        let leased: u64 = leases.iter().map(|lease| lease["bytes"].as_u64().unwrap()).sum();
        assert!(leased > 0 && leased <= memory["limit"].as_u64().unwrap(), "{phase}");
    }
    let on_disk: usize = folder.files("out.grappa").values().map(Vec::len).sum();
    assert_eq!(json["bytes_on_disk"], on_disk);
    assert!(json["seconds"].as_f64().unwrap() > 0.0 && json["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    folder.remove("out.grappa");

    for (options, lines) in [("", 2), ("--quiet", 0), ("--quiet --json", 1)] {
        let ran = ingested(&folder, &format!("--edges edges.tsv {options}"));
        assert_eq!((ran.stderr.as_str(), ran.stdout.lines().count()), ("", lines), "{}", ran.stdout);
    }
}
